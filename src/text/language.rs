//! What a language says about the words of a query: which of them say nothing, and which share a stem.
//!
//! Stemmers are those of the Snowball project, stop words those of the Natural Language Toolkit. Both act on queries alone, so
//! that an index serves every language and no index changes with the setting.

use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use rust_stemmers::{Algorithm, Stemmer};

use super::for_each_term;

/// The languages by their ISO 639-1 codes.
const LANGUAGES: [(&str, Algorithm); 18] = [
    ("ar", Algorithm::Arabic),
    ("da", Algorithm::Danish),
    ("de", Algorithm::German),
    ("el", Algorithm::Greek),
    ("en", Algorithm::English),
    ("es", Algorithm::Spanish),
    ("fi", Algorithm::Finnish),
    ("fr", Algorithm::French),
    ("hu", Algorithm::Hungarian),
    ("it", Algorithm::Italian),
    ("nl", Algorithm::Dutch),
    ("no", Algorithm::Norwegian),
    ("pt", Algorithm::Portuguese),
    ("ro", Algorithm::Romanian),
    ("ru", Algorithm::Russian),
    ("sv", Algorithm::Swedish),
    ("ta", Algorithm::Tamil),
    ("tr", Algorithm::Turkish),
];

/// A language's stemmer and stop words.
pub struct Language {
    code: &'static str,
    stemmer: Stemmer,
    stop_words: HashSet<Box<str>>,
}

impl fmt::Debug for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Language").field(&self.code).finish()
    }
}

impl Language {
    /// Returns the language with an ISO 639-1 code such as `en`; `None` for one that has no stemmer here.
    pub fn from_code(code: &str) -> Option<&'static Language> {
        static ALL: [OnceLock<Language>; LANGUAGES.len()] = [const { OnceLock::new() }; LANGUAGES.len()];
        let at = LANGUAGES.iter().position(|(name, _)| *name == code)?;
        Some(ALL[at].get_or_init(|| Language::new(LANGUAGES[at])))
    }

    /// Returns its ISO 639-1 code, which [`Language::from_code`] takes.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// Returns all codes, in order.
    pub fn codes() -> impl Iterator<Item = &'static str> {
        LANGUAGES.iter().map(|(code, _)| *code)
    }

    fn new((code, algorithm): (&'static str, Algorithm)) -> Language {
        let mut stop_words = HashSet::new();
        for word in stop_words::lookup(code).unwrap_or_default() {
            // Stop words are tokenized as queries are, where `don't` is two words.
            for_each_term(word, &mut |term| {
                stop_words.insert(Box::from(term));
            });
        }
        Language { code, stemmer: Stemmer::create(algorithm), stop_words }
    }

    /// Returns whether a term says nothing about what is looked for.
    pub fn is_stop_word(&self, term: &str) -> bool {
        self.stop_words.contains(term)
    }

    /// Returns the stem of a term that is one word of letters; `None` for numbers, identifiers and compounds, and for a
    /// word at which the stemmer panics.
    pub fn stem(&self, term: &str) -> Option<Box<str>> {
        if !term.chars().all(char::is_alphabetic) {
            return None;
        }
        // That of Greek does so at some words; such a word is then found as it is, and the query goes on.
        catch_unwind(AssertUnwindSafe(|| Box::from(&*self.stemmer.stem(term)))).ok()
    }
}

/// Returns with which letters every term begins that has this stem, except for irregular ones.
///
/// A stemmer may exchange the last letter (`happy`, `happi`) or add one (`hoping`, `hope`).
pub fn stem_prefix(stem: &str) -> &str {
    match stem.char_indices().next_back() {
        Some((last, letter)) if last >= 3 || matches!(letter, 'i' | 'e') => &stem[..last],
        _ => stem,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn every_language_has_a_stemmer_and_stop_words() {
        for code in Language::codes() {
            let language = Language::from_code(code).unwrap();
            assert!(language.stop_words.len() > 20, "{code}: {}", language.stop_words.len());
        }
        assert!(Language::from_code("none").is_none() && Language::from_code("EN").is_none());
    }

    #[test]
    fn the_languages_are_those_of_the_page() {
        let page = include_str!("../../docs/SEMANTICS.md");
        let row = page.lines().find(|line| line.starts_with("| `language` |")).unwrap();
        let (_, codes) = row.split_once("one of `").unwrap();
        let (codes, _) = codes.split_once('`').unwrap();
        // The default stands in front.
        assert!(Language::codes().filter(|code| *code != "en").eq(codes.split(' ')), "{codes}");
    }

    #[test]
    fn words_of_letters_have_stems_and_identifiers_none() {
        let english = Language::from_code("en").unwrap();
        let stem = |word| english.stem(word);
        assert_eq!(stem("connections"), stem("connecting"));
        assert_ne!(stem("connect"), stem("connector's"));
        for other in ["e0308", "std::io", "42", "foo_bar"] {
            assert_eq!(stem(other), None, "{other}");
        }
        assert!(english.is_stop_word("the") && english.is_stop_word("don") && !english.is_stop_word("memory"));
    }

    #[test]
    fn a_word_at_which_the_stemmer_panics_has_no_stem() {
        let greek = Language::from_code("el").unwrap();
        assert_eq!((greek.stem("ισαισα"), greek.stem("ο")), (None, Some("ο".into())));
    }

    #[test]
    fn words_of_one_stem_begin_alike() {
        let english = Language::from_code("en").unwrap();
        for words in [
            &["happy", "happier", "happiness"][..],
            &["hope", "hoping", "hoped", "hopes"],
            &["cry", "cries", "cried"],
            &["hop", "hopping", "hops"],
            &["study", "studies", "studying"],
        ] {
            let stem = english.stem(words[0]).unwrap();
            for word in words {
                if english.stem(word) == Some(stem.clone()) {
                    assert!(word.starts_with(stem_prefix(&stem)), "{word} of {stem}");
                }
            }
        }
    }
}
