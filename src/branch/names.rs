//! Which names branches, checkpoints and records may have.

use thiserror::Error;

/// Longest name of a branch or checkpoint, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Longest record id, in bytes.
pub const RECORD_ID_BYTES_MAX: usize = 200;

/// Names that the directory of a branch uses itself, or will: no branch and no checkpoint has one of them. A test in
/// `fs` holds its nodes against this list.
const RESERVED: [&str; 23] = [
    "README.md",
    "at",
    "branches",
    "branches.jsonl",
    "checkpoints",
    "config",
    "conflicts",
    "ctl",
    "diff",
    "errors",
    "events.jsonl",
    "export",
    "files",
    "ingest",
    "lease",
    "lineage",
    "proposals",
    "query",
    "scratch",
    "search",
    "shared",
    "status",
    "vectors",
];

/// Says why a name is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NameError {
    /// Empty or too long: the beginning of the name, and how many bytes the whole of it has.
    #[error("a name has 1 to 64 bytes, and '{0}' has {1}")]
    Length(String, usize),
    /// A character that names don't have.
    #[error("'{0}' is no name for a branch or checkpoint")]
    Characters(String),
    /// A name that every branch's directory uses itself.
    #[error("'{0}' is a name that every branch's directory uses itself")]
    Taken(String),
    /// A label that would also read as an entry or a time.
    #[error("'{0}' can't be a checkpoint's label: it reads as an entry or a time")]
    Ambiguous(String),
    /// A record id that can't be a file's name.
    #[error("'{0}' is no record id")]
    RecordId(String),
}

impl NameError {
    /// Returns what to do next, which the error's own text leaves out.
    pub fn hint(&self) -> String {
        match self {
            NameError::Length(..) => "use 1 to 64 bytes".into(),
            NameError::Characters(..) => "use A-Z a-z 0-9 _ . - : @ and no dot in front".into(),
            NameError::Taken(..) => "choose another; files and directories of a branch have such names already".into(),
            NameError::Ambiguous(..) => "put a word in it, as in v12, and no @ in front".into(),
            NameError::RecordId(..) => {
                "use 1 to 200 bytes of UTF-8 without '/', NUL or control characters and no dot in front".into()
            }
        }
    }
}

/// Checks the name of a branch or a checkpoint: 1 to 64 bytes of A-Z a-z 0-9 _ . - : @ without a dot in front.
///
/// Fails with `Length` or `Characters` for any other name, with `Taken` for one that is reserved in every branch's
/// directory.
pub fn check_name(name: &str) -> Result<(), NameError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-:@".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(NameError::Length(escaped_beginning(name), name.len()));
    }
    if name.starts_with('.') || !name.bytes().all(allowed) {
        return Err(NameError::Characters(escaped_beginning(name)));
    }
    if RESERVED.contains(&name) {
        return Err(NameError::Taken(escaped_beginning(name)));
    }
    Ok(())
}

/// Checks a record id; `RecordId` unless it has 1 to 200 bytes without `/`, control characters and a dot in front.
pub fn check_record_id(id: &str) -> Result<(), NameError> {
    let fits = (1..=RECORD_ID_BYTES_MAX).contains(&id.len()) && !id.starts_with('.');
    if fits && !id.chars().any(|c| c == '/' || c.is_control()) {
        Ok(())
    } else {
        Err(NameError::RecordId(escaped_beginning(id)))
    }
}

/// The beginning of a refused name, fit for a message.
fn escaped_beginning(name: &str) -> String {
    name.chars().take(80).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_listed_bytes_are_allowed_at_each_place() {
        for byte in 0..=255u8 {
            let allowed = byte.is_ascii_alphanumeric() || b"_.-:@".contains(&byte);
            let inside = String::from_utf8_lossy(&[b'x', byte]).into_owned();
            let first = String::from_utf8_lossy(&[byte, b'x']).into_owned();
            assert_eq!(check_name(&inside).is_ok(), allowed, "{byte}");
            assert_eq!(check_name(&first).is_ok(), allowed && byte != b'.', "{byte}");
        }
    }

    #[test]
    fn lengths_and_the_tree_s_own_names_are_refused() {
        for length in 0..300 {
            let name = "a".repeat(length);
            assert_eq!(check_name(&name).is_ok(), (1..=64).contains(&length));
            assert_eq!(check_record_id(&name).is_ok(), (1..=200).contains(&length));
        }
        for name in RESERVED {
            assert!(check_name(name).is_err(), "{name}");
        }
        assert!(check_name("..").is_err() && check_name("main").is_ok());
    }

    #[test]
    fn the_page_names_what_is_reserved() {
        let page = include_str!("../../docs/SEMANTICS.md");
        let (_, names) = page.split_once("directory itself uses: `").expect("the page lists them");
        let mut names: Vec<&str> = names.split('`').next().unwrap_or_default().split_whitespace().collect();
        names.sort_unstable();
        assert_eq!(names, RESERVED);
    }

    #[test]
    fn record_ids_are_unicode_without_slash_and_control() {
        assert!(check_record_id("Ünïcode id: 7 (x)").is_ok());
        for bad in ["", ".hidden", "a/b", "a\0b", "a\nb", "a\u{85}b"] {
            assert!(check_record_id(bad).is_err(), "{bad:?}");
        }
    }
}
