//! JSON whose pieces keep the bytes in which they were written.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// Longest value that is brought into its canonical form.
const CANONICAL_BYTES_MAX: usize = 1 << 20;

/// The members of an object in the order of the text.
pub(super) struct Members<'a>(pub Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members<'de>, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// Finds one member of an object without keeping any other.
struct Member<'k>(&'k str);

impl<'de> DeserializeSeed<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(IsKey(is_it)) = map.next_key_seed(IsKeySeed(self.0))? {
            if is_it {
                // As in any reader of JSON the last one counts.
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Returns whether the name of a member is the wanted one, and keeps no copy of it.
struct IsKeySeed<'k>(&'k str);

struct IsKey(bool);

impl<'de> DeserializeSeed<'de> for IsKeySeed<'_> {
    type Value = IsKey;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<IsKey, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for IsKeySeed<'_> {
    type Value = IsKey;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<IsKey, E> {
        Ok(IsKey(name == self.0))
    }
}

/// Returns the value of a member of the object that `text` is; `None` if it is not an object or has no such member.
pub(super) fn member<'a>(text: &'a str, name: &str) -> Option<&'a RawValue> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let found = Member(name).deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    found
}

/// Returns one text for all ways to write a value; `None` for null and for anything but JSON. A very long value is its
/// own.
pub(super) fn canonical(value: &RawValue) -> Option<Cow<'_, str>> {
    let text = value.get();
    if is_canonical(text.as_bytes()) || text.len() > CANONICAL_BYTES_MAX {
        return Some(text.into());
    }
    match serde_json::from_str(text).ok()? {
        Value::Null => None,
        value => Some(value.to_string().into()),
    }
}

/// Returns whether a value is written in the one way at a glance: a plain string, or a number that is not a machine
/// word and would become equal to its neighbours.
fn is_canonical(text: &[u8]) -> bool {
    match text.first() {
        Some(b'"') => text.iter().all(|byte| (b' '..0x7f).contains(byte) && *byte != b'\\'),
        Some(b'-' | b'0'..=b'9') => text.len() > 15 || is_plain_number(text),
        _ => false,
    }
}

/// Returns whether a number is a whole one without a sign or leading zeros.
fn is_plain_number(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_digit) && (text[0] != b'0' || text.len() == 1)
}

/// How a document, or an entry of it, is laid out: the blanks around its pieces.
pub(super) struct Layout<'a> {
    /// White space behind the opening bracket.
    lead: &'a str,
    /// White space before the closing one.
    trail: &'a str,
    /// The text behind the closing one, such as a line end.
    end: &'a str,
    /// The text behind a colon, and behind a comma on a line.
    gap: &'static str,
}

impl<'a> Layout<'a> {
    /// Returns the layout of an array or object with at least one piece.
    pub(super) fn detect(text: &'a str) -> Layout<'a> {
        let document = text.trim();
        let end = &text[text.trim_end().len()..];
        let inside = document.get(1..document.len().saturating_sub(1)).unwrap_or_default();
        Layout {
            lead: &inside[..inside.len() - inside.trim_start().len()],
            trail: &inside[inside.trim_end().len()..],
            end,
            gap: if inside.contains("\": ") { " " } else { "" },
        }
    }

    /// Returns a document of that layout; without pieces it keeps no blanks inside.
    pub(super) fn render(&self, brackets: [&str; 2], pieces: &[String]) -> String {
        let [open, close] = brackets;
        if pieces.is_empty() {
            return [open, close, self.end].concat();
        }
        let space = if self.lead.contains('\n') { self.lead } else { self.gap };
        let pieces = pieces.join(&[",", space].concat());
        [open, self.lead, &pieces, self.trail, close, self.end].concat()
    }

    /// Returns a member as text; `value` is JSON already and stays as it is.
    pub(super) fn member(&self, name: &str, value: &str) -> String {
        format!("{}:{}{value}", Value::from(name), self.gap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_keeps_its_layout() {
        let pieces = ["{\"a\": 1}".to_owned(), "2".to_owned()];
        for text in
            ["[{\"a\": 1}, 2]\n", "[\n  {\"a\": 1},\n  2\n]\n", "[\n\t{\"a\": 1},\n\t2\n]", " [ {\"a\": 1}, 2 ]"]
        {
            assert_eq!(Layout::detect(text).render(["[", "]"], &pieces), text.trim_start());
        }
        assert_eq!(Layout::detect("[ 1 ]\n").render(["[", "]"], &[]), "[]\n");
    }

    #[test]
    fn equal_values_have_one_canonical_text() {
        fn canonical(text: &str) -> Option<Cow<'_, str>> {
            super::canonical(serde_json::from_str(text).expect("JSON"))
        }
        assert_eq!(canonical("\"\\u0061\""), canonical("\"a\""));
        assert_eq!(canonical("{\"b\":1, \"a\":[ 2 ]}"), canonical("{\"a\":[2],\"b\":1}"));
        assert_ne!(canonical("1"), canonical("\"1\""));
        assert_ne!(canonical("123456789012345678901"), canonical("123456789012345678902"));
        assert_eq!(canonical("7"), canonical(" 7 "));
        assert_ne!(canonical("-0"), canonical("0"));
        assert_eq!(canonical("null"), None);
    }

    #[test]
    fn a_member_is_found_whatever_stands_around_it_and_the_last_one_counts() {
        let found = |text: &'static str| member(text, "id").map(RawValue::get);
        assert_eq!(found("{\"x\":{\"id\":1},\"id\":[2],\"y\":3}"), Some("[2]"));
        assert_eq!(found("{\"\\u0069d\":1,\"id\":2}"), Some("2"));
        assert_eq!(found("{\"id\":2,\"\\u0069d\":1}"), Some("1"));
        for none in ["{}", "[1]", "7", "{\"id\":1} x", "{\"id\":1", "{\"id\":}", ""] {
            assert_eq!(found(none), None, "{none}");
        }
    }
}
