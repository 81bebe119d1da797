//! The words of a query, as they are looked for in documents.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::phrase::quoted_parts;
use super::tokens::for_each_token;
use super::{Language, Phrase, TERM_BYTES_MAX};

/// What a stem's words count beside the word itself. Measured: more brings in too many other words, less too few.
pub const STEM_WEIGHT: f64 = 0.5;

/// A quoted phrase, or an identifier, in a query: a document has it as it is written, or has not.
#[derive(Clone, Debug, PartialEq)]
pub struct ExactPhrase {
    /// The whole of an identifier as a term of an index; `None` if it is too long to be one, and for quoted phrases.
    pub term: Option<Box<str>>,
    /// Its words, in order and joined as they are.
    pub phrase: Phrase,
}

/// The words of a query, each as written, and their stems.
///
/// ```
/// use engramfs::text::{Language, QueryTerms};
///
/// let terms = QueryTerms::parse("the parsing of \"log files\"", Language::from_code("en"));
/// // Stop words are gone, and what is quoted has no stem: it counts as much as a word with its stem.
/// assert_eq!(terms.exact, [("files".into(), 1.5), ("log".into(), 1.5), ("parsing".into(), 1.0)]);
/// assert_eq!(terms.stems, ["pars".into()]);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueryTerms {
    /// Distinct terms with their weights, sorted.
    pub exact: Vec<(Box<str>, f64)>,
    /// Distinct stems, sorted; each counts [`STEM_WEIGHT`].
    pub stems: Vec<Box<str>>,
    /// What is between double quotes, and identifiers: compounds that are names, codes or versions.
    pub phrases: Vec<ExactPhrase>,
    /// Words that the query has in these alone, with their places in `phrases`: they count only in a document that has
    /// one of them.
    pub bound: BTreeMap<Box<str>, BTreeSet<usize>>,
}

impl QueryTerms {
    /// Cuts a query. Without a language all words count alike, as they are.
    ///
    /// With one, its stop words are dropped, unless there is nothing else. A word between double quotes or of an
    /// identifier is neither dropped nor does it have a stem. A word without a stem counts as much as another with its
    /// stem.
    pub fn parse(text: &str, language: Option<&Language>) -> QueryTerms {
        let terms = QueryTerms::cut(text, language, false);
        if terms.exact.is_empty() { QueryTerms::cut(text, language, true) } else { terms }
    }

    /// Has all words count wherever they are, those of exact phrases too.
    pub fn unbind(&mut self) {
        self.phrases.clear();
        self.bound.clear();
    }

    fn cut(text: &str, language: Option<&Language>, keeps_stop_words: bool) -> QueryTerms {
        let mut exact: BTreeMap<Box<str>, f64> = BTreeMap::new();
        let (mut stems, mut free): (BTreeSet<Box<str>>, BTreeSet<Box<str>>) = (BTreeSet::new(), BTreeSet::new());
        let (mut phrases, mut bound) = (ExactPhrases::default(), BTreeMap::<Box<str>, BTreeSet<usize>>::new());
        for (part, is_quoted) in quoted_parts(text) {
            for (term, phrase) in terms_in(part, is_quoted, &mut phrases) {
                let is_as_written = is_quoted || phrase.is_some();
                if !is_as_written && !keeps_stop_words && language.is_some_and(|language| language.is_stop_word(&term))
                {
                    continue;
                }
                let stem = language.filter(|_| !is_as_written).and_then(|language| language.stem(&term));
                let weight = if language.is_none() || stem.is_some() { 1.0 } else { 1.0 + STEM_WEIGHT };
                stems.extend(stem);
                match phrase {
                    Some(phrase) => _ = bound.entry(term.clone()).or_default().insert(phrase),
                    None => _ = free.insert(term.clone()),
                }
                let held = exact.entry(term).or_insert(weight);
                *held = held.max(weight);
            }
        }
        bound.retain(|term, _| !free.contains(term));
        let (exact, stems) = (exact.into_iter().collect(), stems.into_iter().collect());
        QueryTerms { exact, stems, phrases: phrases.list, bound }
    }
}

/// The exact phrases of a query. One that is repeated, as in a pasted log, is looked for once.
#[derive(Default)]
struct ExactPhrases {
    list: Vec<ExactPhrase>,
    /// Their numbers by what is written, and whether that is an identifier.
    numbers: HashMap<(Box<str>, bool), usize>,
}

impl ExactPhrases {
    /// Adds a phrase, if it is new, and returns its number; `source` is how the query has it.
    fn add(&mut self, source: &str, phrase: ExactPhrase) -> usize {
        let key = (source.into(), phrase.term.is_some());
        *self.numbers.entry(key).or_insert_with(|| {
            self.list.push(phrase);
            self.list.len() - 1
        })
    }
}

/// Returns the terms of a part of a query, each with the exact phrase that it is a word of, if it is; adds these.
fn terms_in(part: &str, is_quoted: bool, phrases: &mut ExactPhrases) -> Vec<(Box<str>, Option<usize>)> {
    let mut terms: Vec<(Box<str>, Option<usize>)> = Vec::new();
    for_each_token(part, &mut |token| {
        if !is_quoted
            && token.words > 1
            && is_identifier(token.source)
            && let Some(phrase) = Phrase::parse(token.source)
        {
            // Half of the limit, as some letters take more bytes in lower case.
            let term = (token.source.len() <= TERM_BYTES_MAX / 2).then(|| token.term.into());
            let number = phrases.add(token.source, ExactPhrase { term, phrase });
            // The words of a compound come directly before it.
            terms.iter_mut().rev().take(token.words).for_each(|(_, phrase)| *phrase = Some(number));
        }
        terms.push((token.term.into(), None));
    });
    // One word needs no look at texts.
    if is_quoted && let Some(phrase) = Phrase::parse(part).filter(|phrase| !phrase.is_term()) {
        let number = phrases.add(part, ExactPhrase { term: None, phrase });
        terms.iter_mut().for_each(|(_, phrase)| *phrase = Some(number));
    }
    terms
}

/// Returns whether a compound is a name, a code or a version: with a digit, `_`, `@` or `::` in it. Others are words
/// that language joins (`long-term`, `and/or`), and so is a number with its unit (`20-year-old`).
fn is_identifier(compound: &str) -> bool {
    let is_unit = |unit: &str| unit.chars().all(|c| c == '-' || c.is_alphabetic());
    let is_measure =
        (compound.split_once('-')).is_some_and(|(number, unit)| number.chars().all(char::is_numeric) && is_unit(unit));
    let has_mark = compound.contains(['_', '@']) || compound.contains("::");
    has_mark || (compound.contains(char::is_numeric) && !is_measure)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_phrase_that_is_repeated_is_one() {
        let terms = QueryTerms::parse("\"of two words\" user_id \"of two words\" user_id", Language::from_code("en"));
        assert_eq!(terms.phrases.len(), 2);
    }

    #[track_caller]
    fn check(text: &str, exact: &str, stems: &str) {
        let terms = QueryTerms::parse(text, Language::from_code("en"));
        let words: Vec<&str> = terms.exact.iter().map(|(term, _)| &**term).collect();
        assert_eq!((words.join(" "), terms.stems.join(" ")), (exact.to_owned(), stems.to_owned()));
    }

    #[test]
    fn stop_words_go_and_stems_come() {
        check("What did the agents decide about connections?", "agents connections decide", "agent connect decid");
        // Shorter lists of stop words lack these. Snowball's second English stemmer makes the stems below; its first, others.
        check("mightn needn shan", "mightn needn shan", "mightn needn shan");
        check("mightn memory", "memory", "memori");
        check("generously skies dying", "dying generously skies", "die generous sky");
        check("the the and", "and the", "and the");
        check("", "", "");
    }

    #[test]
    fn identifiers_and_quoted_words_stay_as_they_are() {
        check("error E0308 in std::io", "e0308 error io std std::io", "error");
        check("to_do lists", "do lists to to_do", "list");
        check("\"to be or not\" decisions", "be decisions not or to", "decis");
        check("a 5\" screen", "5 screen", "screen");
    }

    /// The words that count only with an exact phrase, and the identifiers that have a term.
    #[track_caller]
    fn check_bound(text: &str, bound: &str, identifiers: &str) {
        for language in [None, Language::from_code("en")] {
            let terms = QueryTerms::parse(text, language);
            let words: Vec<&str> = terms.bound.keys().map(|term| &**term).collect();
            let whole: Vec<&str> = terms.phrases.iter().filter_map(|found| found.term.as_deref()).collect();
            assert_eq!((words.join(" "), whole.join(" ")), (bound.to_owned(), identifiers.to_owned()), "{text}");
        }
    }

    #[test]
    fn words_of_identifiers_alone_are_bound_to_them() {
        check_bound("why ERR_CONN_42?", "42 conn err", "err_conn_42");
        check_bound("E1234-77 foo_bar a::b 1.2.3", "1 2 3 77 a b bar e1234 foo", "e1234-77 foo_bar a::b 1.2.3");
        check_bound("the conn of err_conn", "err", "err_conn");
        check_bound("me@host.org on 2024-05-12", "05 12 2024 host me org", "me@host.org 2024-05-12");
        check_bound("long-term and/or c++ main.rs E0308 10+", "", "");
        check_bound("a 20-year-old 3-bedroom flat", "", "");
        let long = format!("x_{}", "y".repeat(70));
        check_bound(&long, &format!("x {}", "y".repeat(64)), "");
        let terms = QueryTerms::parse("a_b b_c", None);
        assert_eq!((&terms.bound["a"], &terms.bound["b"]), (&BTreeSet::from([0]), &BTreeSet::from([0, 1])));
    }

    #[test]
    fn words_of_quoted_phrases_alone_are_bound_to_them() {
        check_bound("why \"The log files\", files?", "log the", "");
        check_bound("\"ERR_CONN_42 failed\"", "42 conn err err_conn_42 failed", "");
        check_bound("\"conn lost\" in err_conn", "conn err lost", "err_conn");
        check_bound("\"E0308\" or \"?!\" or \"\"", "", "");
        check_bound("\"c++\"", "c c++", "");
        let terms = QueryTerms::parse("\"a b\" \"c\" \"b d\" d", None);
        assert_eq!((terms.phrases.len(), &terms.bound["b"]), (2, &BTreeSet::from([0, 1])));
        assert!(!terms.bound.contains_key("c") && !terms.bound.contains_key("d"));
    }

    #[test]
    fn a_word_without_a_stem_counts_as_one_with_its_stem() {
        let terms = QueryTerms::parse("\"keys\" keys e0308 lock", Language::from_code("en"));
        let weight = |word: &str| terms.exact.iter().find(|(term, _)| &**term == word).unwrap().1;
        assert_eq!((weight("keys"), weight("e0308"), weight("lock")), (1.5, 1.5, 1.0));
        let plain = QueryTerms::parse("the Keys", None);
        assert_eq!(plain.exact, [("keys".into(), 1.0), ("the".into(), 1.0)]);
    }
}
