//! Scripts that put no spaces between words: where they occur in a text, and where their words end.
//!
//! Words are those of the dictionaries of the Unicode Consortium (ICU), for Chinese and Japanese, Thai, Lao, Khmer and Burmese.
//! The models that ICU also has cut the same word in one way by itself and in another within a sentence, so that a query
//! would miss it.

use icu_segmenter::WordSegmenter;
use icu_segmenter::options::WordBreakInvariantOptions;

/// The first character that is in such a script: all before are passed over with one comparison.
const FIRST: char = '\u{E00}';

/// Splits a text into stretches, each with whether it is in scripts without spaces.
pub(super) fn split_by_script(text: &str) -> impl Iterator<Item = (&str, bool)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let is_spaceless = is_spaceless(rest.chars().next()?);
        let end = rest.find(|c| self::is_spaceless(c) != is_spaceless).unwrap_or(rest.len());
        let (stretch, after) = rest.split_at(end);
        rest = after;
        Some((stretch, is_spaceless))
    })
}

/// Calls `each` with the start and end of every word of a stretch in scripts without spaces.
pub(super) fn for_each_word(stretch: &str, mut each: impl FnMut(usize, usize)) {
    let segmenter = WordSegmenter::new_dictionary(WordBreakInvariantOptions::default());
    let mut start = 0;
    for end in segmenter.segment_str(stretch).filter(|end| *end > 0) {
        if stretch[start..end].contains(char::is_alphanumeric) {
            each(start, end);
        }
        start = end;
    }
}

/// Returns whether a character is a letter, digit or mark of a script without spaces.
fn is_spaceless(c: char) -> bool {
    c >= FIRST && (is_mark(c) || (is_in_script(c) && c.is_alphanumeric()))
}

fn is_in_script(c: char) -> bool {
    matches!(c,
        '\u{E00}'..='\u{EFF}' // Thai, Lao
        | '\u{1000}'..='\u{109F}' | '\u{A9E0}'..='\u{A9FF}' | '\u{AA60}'..='\u{AA7F}' // Burmese
        | '\u{1780}'..='\u{17FF}' // Khmer
        | '\u{3005}'..='\u{3007}' | '\u{3041}'..='\u{30FF}' | '\u{31F0}'..='\u{31FF}' | '\u{FF66}'..='\u{FF9F}' // kana
        | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}' | '\u{F900}'..='\u{FAFF}' | '\u{20000}'..='\u{3FFFF}' // ideographs
    )
}

/// Returns whether a character is a mark within words that Unicode doesn't count among letters.
fn is_mark(c: char) -> bool {
    matches!(c,
        '\u{E47}'..='\u{E4E}' // Thai
        | '\u{EBA}' | '\u{EC8}'..='\u{ECE}' // Lao
        | '\u{1037}' | '\u{1039}' | '\u{103A}' | '\u{1087}'..='\u{108D}' | '\u{108F}' | '\u{109A}' | '\u{109B}' // Burmese
        | '\u{17C9}'..='\u{17D3}' | '\u{17DD}' // Khmer
    )
}
