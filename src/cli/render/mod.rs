//! Data made readable for people. Programs get JSON instead, as the store gives it.

pub mod branches;
pub mod diff;
pub mod entry_graph;
pub mod evaluation;
pub mod facts;
pub mod graph;
pub mod hits;
pub mod log_line;
pub mod outcome;

use serde_json::Value;

/// Digits of a hash that people see: enough to be unique in a store of any size met in practice.
const SHORT_HASH_DIGITS: usize = 10;

/// Returns the first 10 digits; what is no longer than that as it is.
pub fn short_hash(hash: &str) -> &str {
    hash.get(..SHORT_HASH_DIGITS).unwrap_or(hash)
}

/// Returns the text under `key`; empty if there is none.
fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Returns `count` with its word, which gets an s where it is not one.
fn pluralize(count: u64, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

/// Returns a name, or a sentence with names in it, as one line that does nothing to a terminal: control characters are
/// escaped, as in `\n` and `\u{1b}`.
pub fn printable(text: &str) -> String {
    // A file may be called anything, by anybody who may write to a branch.
    let escaped = |c: char| if c.is_control() { c.escape_default().collect() } else { String::from(c) };
    text.chars().map(escaped).collect()
}

/// Returns the first `limit` characters of `text` on one line, with an ellipsis where there are more.
pub fn first_words(text: &str, limit: usize) -> String {
    // Control characters out of a record must not reach a terminal.
    let mut line: String = String::new();
    for word in text.split_whitespace() {
        let word: String = word.chars().filter(|c| !c.is_control()).collect();
        let room = line.chars().count() + word.chars().count() + usize::from(!line.is_empty()) <= limit;
        match (room, line.is_empty()) {
            (true, true) => line = word,
            (true, false) => line = format!("{line} {word}"),
            (false, true) => return word.chars().take(limit).chain(['…']).collect(),
            (false, false) => return line + " …",
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_between_words_and_held_to_one_line() {
        assert_eq!(first_words("one\ntwo  three", 20), "one two three");
        assert_eq!(first_words("one two three", 8), "one two …");
        assert_eq!(first_words("abcdefgh", 3), "abc…");
        assert_eq!(first_words("\x1b[31mred", 20), "[31mred");
        assert_eq!(first_words("", 3), "");
    }

    #[test]
    fn control_characters_of_a_name_are_escaped_and_all_others_stay() {
        assert_eq!(printable("a\n\x1b[31m\u{9b}b\t\\ ü"), "a\\n\\u{1b}[31m\\u{9b}b\\t\\ ü");
    }

    #[test]
    fn one_thing_is_singular() {
        assert_eq!((pluralize(1, "record"), pluralize(0, "record")), ("1 record".into(), "0 records".into()));
    }
}
