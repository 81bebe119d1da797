//! Phrases: words that stand in a text one behind the other, as they are written.

use serde_json::Value;

use super::tokens::{for_each_token, is_join};

/// Words of the longest phrase: of a longer one these count, as the time that it takes to find a phrase grows with them.
const WORDS_MAX: usize = 64;

/// Words in an order, as they are, with nothing but blanks and punctuation between them.
///
/// Letters count in either case, and no word has a stem. Where the phrase joins two words, as in `std::io`, a text has
/// to join them in the same way.
///
/// ```
/// use engramfs::text::Phrase;
///
/// let phrase = Phrase::parse("the disk was corrupted").unwrap();
/// assert!(phrase.is_in("Then THE DISK (was) corrupted."));
/// assert!(!phrase.is_in("the corrupted disk was") && !phrase.is_in("the disk was not corrupted"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phrase {
    /// One at least.
    words: Vec<PhraseWord>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PhraseWord {
    term: Box<str>,
    /// What has to follow the word directly: the characters that join the next word to it, else the `+` and `#` that
    /// belong to it.
    after: Box<str>,
    /// Whether nothing else may stand between it and the next word.
    is_joined: bool,
}

impl PhraseWord {
    fn is_followed_by(&self, between: &str) -> bool {
        if self.is_joined { *between == *self.after } else { between.starts_with(&*self.after) }
    }
}

impl Phrase {
    /// Takes the words of a text for one phrase, the first 64 of more; `None` if it has no word.
    pub fn parse(text: &str) -> Option<Phrase> {
        let (mut words, mut end): (Vec<PhraseWord>, usize) = (Vec::new(), 0);
        for_each_token(text, &mut |token| {
            if token.words > 0 || words.len() == WORDS_MAX {
                return;
            }
            let start = token.source.as_ptr().addr() - text.as_ptr().addr();
            if let Some(last) = words.last_mut() {
                let between = &text[end..start];
                last.is_joined = is_join(between);
                last.after = if last.is_joined { between.into() } else { suffix(between).into() };
            }
            end = start + token.source.len();
            words.push(PhraseWord { term: token.term.into(), after: "".into(), is_joined: false });
        });
        words.last_mut()?.after = suffix(&text[end..]).into();
        Some(Phrase { words })
    }

    /// Returns whether it is one word and nothing else, which stands wherever an index has the term.
    pub(super) fn is_term(&self) -> bool {
        matches!(&*self.words, [word] if word.after.is_empty())
    }

    /// Returns its words as terms of an index, in their order; one may occur twice.
    pub fn terms(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(|word| &*word.term)
    }

    /// Returns whether a text has it.
    pub fn is_in(&self, text: &str) -> bool {
        // How many words of each beginning of the phrase have been met that may still go on.
        let (mut begun, mut end, mut is_found): (Vec<usize>, usize, bool) = (Vec::new(), 0, false);
        for_each_token(text, &mut |token| {
            if token.words > 0 || is_found {
                return;
            }
            let start = token.source.as_ptr().addr() - text.as_ptr().addr();
            let between = &text[end..start];
            end = start + token.source.len();
            begun.push(0);
            begun.retain_mut(|met| {
                let before = met.checked_sub(1).map(|before| &self.words[before]);
                let word = &self.words[*met];
                if *word.term != *token.term || before.is_some_and(|before| !before.is_followed_by(between)) {
                    return false;
                }
                *met += 1;
                let is_whole = *met == self.words.len();
                is_found |= is_whole && word.is_followed_by(&text[end..]);
                !is_whole
            });
        });
        is_found
    }

    /// Returns whether a record's document has it: its text, or one of the strings in its metadata, at any depth.
    pub fn is_in_document(&self, text: Option<&str>, metadata: &Value) -> bool {
        text.is_some_and(|text| self.is_in(text))
            || match metadata {
                Value::String(string) => self.is_in(string),
                Value::Array(items) => items.iter().any(|item| self.is_in_document(None, item)),
                Value::Object(fields) => fields.values().any(|field| self.is_in_document(None, field)),
                Value::Null | Value::Bool(_) | Value::Number(_) => false,
            }
    }
}

/// Returns the parts of a query outside and inside of double quotes, in order; a last quote without a partner is none.
pub(super) fn quoted_parts(query: &str) -> Vec<(&str, bool)> {
    let mut marks: Vec<(usize, usize)> = Vec::new();
    for (at, mark) in query.match_indices(['"', '“', '”', '„']) {
        let is_open = marks.len() % 2 == 1;
        // Directly behind a digit it says inches, unless it closes a quote.
        if is_open || mark != "\"" || !query[..at].ends_with(|c: char| c.is_ascii_digit()) {
            marks.push((at, at + mark.len()));
        }
    }
    let (mut parts, mut start) = (Vec::new(), 0);
    for pair in marks.chunks_exact(2) {
        let ((open, inside), (close, behind)) = (pair[0], pair[1]);
        parts.extend([(&query[start..open], false), (&query[inside..close], true)]);
        start = behind;
    }
    parts.push((&query[start..], false));
    parts
}

/// Returns the `+` and `#` at the beginning of what follows a word: they belong to it, as in `c++`.
fn suffix(behind: &str) -> &str {
    &behind[..behind.len() - behind.trim_start_matches(['+', '#']).len()]
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(phrase: &str, with: &[&str], without: &[&str]) {
        let parsed = Phrase::parse(phrase).unwrap();
        for text in with {
            assert!(parsed.is_in(text), "{phrase:?} is in {text:?}");
        }
        for text in without {
            assert!(!parsed.is_in(text), "{phrase:?} is not in {text:?}");
        }
    }

    #[test]
    fn a_phrase_is_its_words_in_a_row_in_either_case_and_without_stems() {
        let with = ["the disk was corrupted badly", "Disk, was\n\ncorrupted!", "disk disk was disk was corrupted"];
        let without = ["the corrupted disk was badly", "disk was not corrupted", "disks was corrupted", "disk was", ""];
        check("disk was corrupted", &with, &without);
        check("the the cat", &["the the the cat"], &["the cat the"]);
        check("Größe ΟΔΟΣ", &["größe οδος"], &["grösse οδος"]);
        check("don't", &["I don’t know"], &["don is not"]);
    }

    #[test]
    fn joined_words_are_joined_alike() {
        let with = ["ERR_CONN_42", "see x.err_conn_42: failed", "/var/log/ERR_CONN_42.log"];
        check("ERR_CONN_42", &with, &["ERR_CONN_43", "ERR_CONN_421", "err conn 42", "ERR-CONN-42", "SERR_CONN_42"]);
        check("1.2.3", &["v 1.2.3", "1.2.3-rc1"], &["1.2.34", "1.2-3", "3.2.1"]);
        check("open std::io now", &["open std::io now"], &["open std io now", "open std.io now"]);
        check("C++ code", &["c++ code"], &["C code", "c# code"]);
        check("code in c++", &["code in C++."], &["code in C."]);
    }

    #[test]
    fn phrases_of_scripts_without_spaces_are_found() {
        check("迁移数据库", &["我们决定在下周二迁移数据库到新的服务器"], &["数据库迁移"]);
        check("错误E0308", &["错误E0308出现", "错误 E0308"], &["E0308错误"]);
    }

    #[test]
    fn a_document_has_a_phrase_within_one_of_its_strings() {
        let phrase = Phrase::parse("at four").unwrap();
        let metadata = json!({"a": [{"b": "Tea at four"}], "at": "four"});
        assert!(phrase.is_in_document(None, &metadata));
        assert!(phrase.is_in_document(Some("at four"), &Value::Null));
        assert!(!phrase.is_in_document(Some("be at"), &json!({"at": "four"})), "no phrase reaches into the next");
    }

    #[test]
    fn of_a_long_phrase_the_first_64_words_count() {
        let phrase = Phrase::parse(&"a ".repeat(1_000)).unwrap();
        assert!(phrase.is_in(&"a ".repeat(64)) && !phrase.is_in(&"a ".repeat(63)));
    }

    #[test]
    fn quotes_come_in_pairs_and_inches_are_none() {
        let quoted = |query: &str| -> Vec<String> {
            let parts = quoted_parts(query).into_iter().filter(|(_, is_quoted)| *is_quoted);
            parts.map(|(part, _)| part.to_owned()).collect()
        };
        assert_eq!(quoted("the \"log files\" of “last week”"), ["log files", "last week"]);
        assert_eq!(quoted("„Foo“ und „Bar“"), ["Foo", "Bar"]);
        assert_eq!(quoted("a 5\" screen or 7\" tablet"), [""; 0]);
        assert_eq!(quoted("a 5\" screen with \"version 2\" now \""), ["version 2"]);
    }

    #[test]
    fn what_has_no_word_is_no_phrase() {
        assert!(["", "?!", " - "].iter().all(|text| Phrase::parse(text).is_none()));
    }
}
