//! JSON whose pieces keep the bytes in which they were written.

use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// The members of an object in the order in which they stand there.
pub(super) struct Members<'a>(pub Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Members<'de>, D::Error> {
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

/// Returns one text for all ways to write a value; none for null and what is no JSON.
pub(super) fn canonical(value: &RawValue) -> Option<String> {
    // Numbers that no machine word holds would become equal to their neighbours.
    let text = value.get();
    let is_long_number = text.len() > 15 && text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    if is_long_number {
        return Some(text.to_owned());
    }
    match serde_json::from_str(text).ok()? {
        Value::Null => None,
        value => Some(value.to_string()),
    }
}

/// How a document, or an entry of it, is laid out: what stands around its pieces.
pub(super) struct Layout<'a> {
    /// White space behind the opening bracket.
    lead: &'a str,
    /// White space before the closing one.
    trail: &'a str,
    /// What stands behind the closing one.
    end: &'a str,
    /// What stands behind a colon, and behind a comma on a line.
    gap: &'static str,
}

impl<'a> Layout<'a> {
    /// Returns the layout of an array or object with at least one piece.
    pub(super) fn of(text: &'a str) -> Layout<'a> {
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

    /// Returns a document of that layout.
    pub(super) fn render(&self, brackets: [&str; 2], pieces: &[String]) -> String {
        let [open, close] = brackets;
        if pieces.is_empty() {
            return [open, close, self.end].concat();
        }
        let space = if self.lead.contains('\n') { self.lead } else { self.gap };
        let pieces = pieces.join(&[",", space].concat());
        [open, self.lead, &pieces, self.trail, close, self.end].concat()
    }

    /// Returns a member of an object.
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
            assert_eq!(Layout::of(text).render(["[", "]"], &pieces), text.trim_start());
        }
        assert_eq!(Layout::of("[ 1 ]\n").render(["[", "]"], &[]), "[]\n");
    }

    #[test]
    fn equal_values_have_one_canonical_text() {
        let canonical = |text: &str| canonical(serde_json::from_str(text).expect("JSON"));
        assert_eq!(canonical("\"\\u0061\""), canonical("\"a\""));
        assert_eq!(canonical("{\"b\":1, \"a\":[ 2 ]}"), canonical("{\"a\":[2],\"b\":1}"));
        assert_ne!(canonical("1"), canonical("\"1\""));
        assert_ne!(canonical("123456789012345678901"), canonical("123456789012345678902"));
        assert_eq!(canonical("null"), None);
    }
}
