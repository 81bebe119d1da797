//! The words of a query, as they are looked for in documents.

use std::collections::{BTreeMap, BTreeSet};

use super::{Language, for_each_term};

/// What a stem's words count beside the word itself. Measured: more brings in too many other words, less too few.
pub const STEM_WEIGHT: f64 = 0.5;

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
}

impl QueryTerms {
    /// Cuts a query. Without a language all words count alike, as they are.
    ///
    /// With one, its stop words are dropped, unless there is nothing else. A word between double quotes is neither dropped nor
    /// does it have a stem. A word without a stem counts as much as another with its stem.
    pub fn parse(text: &str, language: Option<&Language>) -> QueryTerms {
        let Some(language) = language else {
            let mut exact = BTreeMap::new();
            for_each_term(text, &mut |term| {
                exact.insert(Box::from(term), 1.0);
            });
            return QueryTerms { exact: exact.into_iter().collect(), stems: Vec::new() };
        };
        let terms = QueryTerms::cut(text, language, false);
        if terms.exact.is_empty() { QueryTerms::cut(text, language, true) } else { terms }
    }

    fn cut(text: &str, language: &Language, keeps_stop_words: bool) -> QueryTerms {
        let mut exact: BTreeMap<Box<str>, f64> = BTreeMap::new();
        let mut stems = BTreeSet::new();
        for (part, is_quoted) in quoted_parts(text) {
            for_each_term(part, &mut |term| {
                if !is_quoted && !keeps_stop_words && language.is_stop_word(term) {
                    return;
                }
                let stem = if is_quoted { None } else { language.stem(term) };
                let weight = if stem.is_some() { 1.0 } else { 1.0 + STEM_WEIGHT };
                let held = exact.entry(Box::from(term)).or_insert(weight);
                *held = held.max(weight);
                if let Some(stem) = stem {
                    stems.insert(stem);
                }
            });
        }
        QueryTerms { exact: exact.into_iter().collect(), stems: stems.into_iter().collect() }
    }
}

/// Returns the parts of a text outside and inside of double quotes; a last quote without a partner is none.
fn quoted_parts(text: &str) -> impl Iterator<Item = (&str, bool)> {
    let parts: Vec<&str> = text.split(['"', '“', '”']).collect();
    let paired = parts.len() - (parts.len() + 1) % 2;
    parts.into_iter().enumerate().map(move |(at, part)| (part, at % 2 == 1 && at < paired))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

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
        check("error E0308 in std::io", "e0308 error io std std::io", "error io std");
        check("\"to be or not\" decisions", "be decisions not or to", "decis");
        check("a 5\" screen", "5 screen", "screen");
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
