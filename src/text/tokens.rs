//! Words out of text: the one place that says what a term is.
//!
//! The choices, each made so that an agent finds what it wrote:
//!
//! * A word is a run of Unicode letters and digits, in lower case. The final sigma is folded into
//!   the common one, since lower-casing letter by letter can't tell them apart.
//! * Words joined without a space by `. _ - : / @ + #` also give the whole compound as one term
//!   (`E0308` is a word; `std::io`, `HTTP/1.1`, `foo_bar`, `libann-cctbx0:1` are compounds), so
//!   that a name, an id or a version matches exactly and ranks above its scattered parts. A
//!   trailing `+` or `#` belongs to the compound (`c++`, `c#`), a trailing full stop does not.
//! * More than three joiners in a row are a ruler or a leader, not a name: they separate.
//! * No stemming and no stop words in documents: which apply depends on the language of a query, see
//!   [`QueryTerms`](super::QueryTerms).
//! * No normalisation: composed and decomposed accents are different terms.
//! * Scripts without spaces are cut into the words of a dictionary; they join no compound.

use serde_json::Value;

use super::spaceless;

/// Bytes of the longest term; what is longer is cut at a character boundary.
///
/// A query is cut in the same way, so long words still match by their beginning, and no
/// pasted blob can fill the dictionary.
pub const TERM_BYTES_MAX: usize = 64;

/// Joiners in a row that still join: three, as in `https://`.
const JOINERS_MAX: usize = 3;

/// Calls `each` with every term of `text`, in the order in which they end.
///
/// A term that occurs twice is given twice. Terms are 1 to [`TERM_BYTES_MAX`] bytes.
///
/// ```
/// use engramfs::text::for_each_term;
///
/// let mut terms = Vec::new();
/// for_each_term("E0308 in std::io, by C++.", &mut |term| terms.push(term.to_owned()));
/// assert_eq!(terms, ["e0308", "in", "std", "io", "std::io", "by", "c", "c++"]);
/// ```
pub fn for_each_term(text: &str, each: &mut dyn FnMut(&str)) {
    for_each_token(text, &mut |token| each(token.term));
}

/// A term with what it was cut from.
pub(super) struct Token<'a> {
    /// The word or compound in lower case, at most [`TERM_BYTES_MAX`] bytes of it.
    pub term: &'a str,
    /// All of it, as it is in the text.
    pub source: &'a str,
    /// How many of the words before it are those of this compound; 0 for a word.
    pub words: usize,
}

/// Calls `each` with every term of `text`, like [`for_each_term`].
pub(super) fn for_each_token(text: &str, each: &mut dyn FnMut(Token<'_>)) {
    let mut scan = TokenScan { text, term: String::with_capacity(TERM_BYTES_MAX), each };
    if text.is_ascii() {
        return scan.scan_spaced();
    }
    for (stretch, is_spaceless) in spaceless::split_by_script(text) {
        scan.text = stretch;
        if is_spaceless {
            spaceless::for_each_word(stretch, |start, end| scan.emit(start, end, 0));
        } else {
            scan.scan_spaced();
        }
    }
}

/// Calls `each` with every term of a record's document: its text, then the strings in its metadata.
///
/// Strings count at any depth, keys, numbers and booleans do not. Each string is cut by itself, so
/// no compound reaches from one into the next.
pub fn for_each_document_term(text: Option<&str>, metadata: &Value, each: &mut dyn FnMut(&str)) {
    if let Some(text) = text {
        for_each_term(text, each);
    }
    match metadata {
        Value::String(string) => for_each_term(string, each),
        Value::Array(items) => items.iter().for_each(|item| for_each_document_term(None, item, each)),
        Value::Object(fields) => fields.values().for_each(|field| for_each_document_term(None, field, each)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The terms of one document with how often each occurs: for a record that is in no segment yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TermFrequencies {
    terms: Vec<(Box<str>, u32)>,
    length: u32,
}

impl TermFrequencies {
    /// Counts the terms of the document that `text` and `metadata` make, as [`for_each_document_term`] cuts it.
    pub fn from_document(text: Option<&str>, metadata: &Value) -> Self {
        let mut all: Vec<Box<str>> = Vec::new();
        for_each_document_term(text, metadata, &mut |term| all.push(Box::from(term)));
        let length = u32::try_from(all.len()).unwrap_or(u32::MAX);
        all.sort_unstable();
        let mut terms: Vec<(Box<str>, u32)> = Vec::new();
        for term in all {
            match terms.last_mut() {
                Some((last, count)) if *last == term => *count += 1,
                _ => terms.push((term, 1)),
            }
        }
        Self { terms, length }
    }

    /// Returns the distinct terms with their counts (1 or more), sorted bytewise by term.
    pub fn terms(&self) -> &[(Box<str>, u32)] {
        &self.terms
    }

    /// Returns the distinct terms that begin with `prefix`, sorted, with their counts.
    pub fn starting_with<'a>(&'a self, prefix: &str) -> impl Iterator<Item = &'a (Box<str>, u32)> {
        let from = self.terms.partition_point(|(term, _)| **term < *prefix);
        self.terms[from..].iter().take_while(move |(term, _)| term.starts_with(prefix))
    }

    /// Returns the document's length in tokens, repeated ones counted each time.
    pub fn length(&self) -> u32 {
        self.length
    }

    /// Returns how often `term` occurs; 0 when it does not.
    pub fn count(&self, term: &str) -> u32 {
        let found = self.terms.binary_search_by(|(name, _)| (**name).cmp(term));
        found.map_or(0, |at| self.terms[at].1)
    }
}

/// Returns whether what is between two words joins them to a compound.
pub(super) fn is_join(between: &str) -> bool {
    (1..=JOINERS_MAX).contains(&between.len()) && between.chars().all(is_joiner)
}

fn is_joiner(c: char) -> bool {
    matches!(c, '.' | '_' | '-' | ':' | '/' | '@' | '+' | '#')
}

/// A compound in the making: where it begins and ends, and what has followed it so far.
struct CompoundToken {
    start: usize,
    end: usize,
    words: usize,
    joiners: usize,
    /// Where the `+` and `#` end that follow `end` directly.
    suffix_end: usize,
}

impl CompoundToken {
    /// Returns the compound `before` with one word more, or a new one of that word.
    fn extend(before: Option<Self>, start: usize, end: usize) -> Self {
        let (start, words) = before.map_or((start, 0), |name| (name.start, name.words));
        Self { start, end, words: words + 1, joiners: 0, suffix_end: end }
    }

    fn joined(mut self, c: char) -> Self {
        if matches!(c, '+' | '#') && self.suffix_end == self.end + self.joiners {
            self.suffix_end += 1;
        }
        self.joiners += 1;
        self
    }
}

/// Where terms go: lower-cased into one buffer, so that cutting allocates nothing per term.
struct TokenScan<'a> {
    text: &'a str,
    term: String,
    each: &'a mut dyn FnMut(Token<'_>),
}

impl TokenScan<'_> {
    /// Gives the words and compounds of a text in scripts with spaces.
    fn scan_spaced(&mut self) {
        let text = self.text;
        let mut word = None; // where the word at hand begins
        let mut name: Option<CompoundToken> = None; // the words so far that nothing has separated yet
        for (at, c) in text.char_indices() {
            if c.is_alphanumeric() {
                word.get_or_insert(at);
                continue;
            }
            if let Some(start) = word.take() {
                self.emit(start, at, 0);
                name = Some(CompoundToken::extend(name, start, at));
            }
            name = match name {
                Some(open) if is_joiner(c) && open.joiners < JOINERS_MAX => Some(open.joined(c)),
                Some(open) => {
                    self.close(&open);
                    None
                }
                None => None,
            };
        }
        if let Some(start) = word {
            self.emit(start, text.len(), 0);
            name = Some(CompoundToken::extend(name, start, text.len()));
        }
        if let Some(open) = name {
            self.close(&open);
        }
    }

    fn emit(&mut self, start: usize, end: usize, words: usize) {
        let part = &self.text[start..end];
        self.term.clear();
        if part.is_ascii() {
            self.term.push_str(&part[..part.len().min(TERM_BYTES_MAX)]);
            self.term.make_ascii_lowercase();
        } else {
            for c in part.chars().flat_map(char::to_lowercase) {
                if self.term.len() + c.len_utf8() > TERM_BYTES_MAX {
                    break;
                }
                self.term.push(if c == 'ς' { 'σ' } else { c });
            }
        }
        (self.each)(Token { term: &self.term, source: part, words });
    }

    /// Gives the compound itself, when it is more than the one word that was given already.
    fn close(&mut self, name: &CompoundToken) {
        if name.words > 1 || name.suffix_end > name.end {
            self.emit(name.start, name.suffix_end, name.words);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cut(text: &str) -> Vec<String> {
        let mut terms = Vec::new();
        for_each_term(text, &mut |term| terms.push(term.to_owned()));
        terms
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(cut(text).join(" "), expected);
    }

    #[test]
    fn words_are_runs_of_letters_and_digits_in_lower_case() {
        check("The QUICK, brown fox; 42 foxes!", "the quick brown fox 42 foxes");
        check("Größe ÉTÉ", "größe été");
        check("  \n\t ?! ", "");
        check("", "");
    }

    #[test]
    fn compounds_are_given_besides_their_words() {
        check("libann-cctbx0:1", "libann cctbx0 1 libann-cctbx0:1");
        check("error E0308 in std::io", "error e0308 in std io std::io");
        check("HTTP/1.1", "http 1 1 http/1.1");
        check("foo_bar.", "foo bar foo_bar");
        check("me@host.org, you", "me host org me@host.org you");
        check("https://a.b/c", "https a b c https://a.b/c");
    }

    #[test]
    fn a_sentence_ends_and_rulers_separate() {
        check("end. Next", "end next");
        check("-x- _y_ #7 @you", "x y 7 you");
        check("a....b a---b", "a b a b a---b");
        check("(a-b)(c-d)", "a b a-b c d c-d");
    }

    #[test]
    fn trailing_plus_and_hash_belong_to_the_name() {
        check("C++ and C#.", "c c++ and c c#");
        check("libstdc++6 c++-dev", "libstdc 6 libstdc++6 c dev c++-dev");
        check("x.+ y-#", "x y");
    }

    #[test]
    fn scripts_without_spaces_are_cut_into_words() {
        check("我们决定在下周二迁移数据库", "我们 决定 在 下周 二 迁移 数据 库");
        check("会議は来週の火曜日に東京で", "会議 は 来週 の 火曜日 に 東京 で");
        check("เราตัดสินใจย้ายฐานข้อมูล", "เรา ตัดสิน ใจ ย้าย ฐาน ข้อมูล");
        check("ខ្ញុំចូលចិត្តអានសៀវភៅ។", "ខ្ញុំ ចូលចិត្ត អាន សៀវភៅ");
        check("ຂ້ອຍມັກອ່ານປຶ້ມ", "ຂ້ອຍ ມັກ ອ່ານ ປຶ້ມ");
        check("ကျွန်တော် စာအုပ်ဖတ်", "ကျွန်တော် စာအုပ် ဖတ်");
    }

    #[test]
    fn names_between_scripts_without_spaces_stay_whole() {
        check("错误E0308出现在std::io模块", "错误 e0308 出现 在 std io std::io 模 块");
        check("C++の本、libann-cctbx0:1", "c c++ の 本 libann cctbx0 1 libann-cctbx0:1");
        check("한국어 문장", "한국어 문장");
    }

    #[test]
    fn a_letter_and_its_accent_apart_are_another_word_than_both_in_one() {
        assert_ne!(cut("e\u{301}t"), cut("\u{e9}t"));
    }

    #[test]
    fn both_sigmas_are_one_letter() {
        assert_eq!(cut("ΟΔΟΣ"), cut("οδος"));
    }

    #[test]
    fn long_terms_are_cut_at_a_character_boundary() {
        let word = "é".repeat(40);
        assert_eq!(cut(&word), ["é".repeat(32)]);
        let odd = format!("a{word}");
        assert_eq!(cut(&odd)[0].len(), 63);
        let url = format!("x/{}", "y".repeat(100));
        assert_eq!(cut(&url)[2].len(), 64);
    }

    #[test]
    fn a_document_is_text_and_metadata_strings_but_no_keys_or_numbers() {
        let metadata = json!({"k1": "Alpha", "k2": [{"k3": "beta gamma"}, 7, true, null], "k4": 3});
        let mut terms = Vec::new();
        for_each_document_term(Some("zero"), &metadata, &mut |term| terms.push(term.to_owned()));
        assert_eq!(terms, ["zero", "alpha", "beta", "gamma"]);
    }

    #[test]
    fn frequencies_count_and_find() {
        let counted = TermFrequencies::from_document(Some("b a b"), &json!({"x": "c"}));
        assert_eq!(counted.length(), 4);
        let terms: Vec<_> = counted.terms().iter().map(|(term, n)| (&**term, *n)).collect();
        assert_eq!(terms, [("a", 1), ("b", 2), ("c", 1)]);
        assert_eq!((counted.count("b"), counted.count("d")), (2, 0));
    }
}
