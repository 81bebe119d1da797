//! What a name in `vectors/` means: a record, or a file that editors and atomic savers put beside the one they replace.

use std::ffi::OsStr;

/// Kinds of names in `vectors/`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum VectorsName {
    /// `ID.json`, also where it looks like a saver's name, but not one that begins with `.`.
    Record,
    /// What a saver moves the file to that it is about to replace: `.…` or `…~`.
    Backup,
    /// Another name that savers give to files for a while.
    Temporary,
    /// Nothing that is made here.
    Other,
}

impl VectorsName {
    /// Returns what a name means. That of a record may still be no valid id.
    pub fn parse(name: &OsStr) -> VectorsName {
        let bytes = name.as_encoded_bytes();
        if bytes.starts_with(b".") || bytes.ends_with(b"~") {
            return VectorsName::Backup;
        }
        if bytes.ends_with(b".json") {
            return VectorsName::Record;
        }
        if is_temporary(&name.to_string_lossy()) { VectorsName::Temporary } else { VectorsName::Other }
    }
}

/// emacs saves to `#…#` by itself, vim tries a directory with `4913`; the others are names of `sed -i`, of mkstemp(3) as most
/// languages call it, and of savers that add random letters to the name.
fn is_temporary(name: &str) -> bool {
    let behind =
        |start: &str, length: usize| name.strip_prefix(start).is_some_and(|rest| rest.chars().count() == length);
    let is_random = |end: &str| {
        (6..=12).contains(&end.len()) && end.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    };
    let added = name.rsplit_once(".json.").is_some_and(|(id, end)| !id.is_empty() && is_random(end));
    let by_emacs = name.len() > 1 && name.starts_with('#') && name.ends_with('#');
    added || by_emacs || name == "4913" || behind("sed", 6) || behind("tmp", 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    fn all(names: &[&str], kind: VectorsName) {
        for name in names {
            assert_eq!(VectorsName::parse(OsStr::new(name)), kind, "{name}");
        }
    }

    #[test]
    fn names_are_told_apart() {
        all(&["a.json", "sed123.json", "tmp1.json", "#a#.json", "a~.json", "4913.json", "~.json"], VectorsName::Record);
        all(&[".a.json", ".json", ".", "a.json~", "~", "a~", ".a.json.swp", ".#a.json"], VectorsName::Backup);
        all(
            &["4913", "#a.json#", "##", "sedAbC123", "tmp_x1y2z3k", "a.json.abcdef", "a.json.0123456789ab"],
            VectorsName::Temporary,
        );
        all(
            &["a", "a.JSON", "a.jsonl", "a.txt", "5036", "#", "#a", "sedabcde", "sedabcdefg", "tmpabcdefg"],
            VectorsName::Other,
        );
        all(
            &["a.json.tmp", "a.json.abcde", "a.json.0123456789abc", "a.json.bak.xx", "a.json.abcdef x", "tmpabcdefghi"],
            VectorsName::Other,
        );
        all(&["tmp1234567", "tmp123456789", "a.json.abcdé"], VectorsName::Other);
        all(&["sed-é.. x", "tmp-é..  78", "a.json.A-_9z0"], VectorsName::Temporary);
        assert_eq!(VectorsName::parse(OsStr::from_bytes(b"\xff.json")), VectorsName::Record);
        assert_eq!(VectorsName::parse(OsStr::from_bytes(b"\xff")), VectorsName::Other);
    }
}
