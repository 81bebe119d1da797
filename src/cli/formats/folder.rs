//! A folder of notes: each .md and .txt file is a record, its text the content.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{InputRow, RowPosition, malformed};
use crate::cli::failure::CommandError;

/// The notes below a folder, in the order of their paths.
pub struct TextFolder {
    folder: PathBuf,
    paths: std::vec::IntoIter<PathBuf>,
    /// Bytes of all notes, as they were when the folder was listed.
    pub total_bytes: u64,
    /// Files that are no notes: neither `.md` nor `.txt`, or not regular.
    pub skipped_files: u64,
    /// Notes without a byte, which make no record.
    pub empty_notes: u64,
}

impl TextFolder {
    /// Looks for notes; names that begin with a dot are passed by, and empty notes counted and left out. Fails if the
    /// folder, or one in it, can't be listed.
    pub fn open(folder: &Path) -> Result<TextFolder, CommandError> {
        let (mut paths, mut total_bytes, mut skipped_files, mut empty_notes) = (Vec::new(), 0, 0, 0);
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            let failed = |e: std::io::Error| CommandError::file("read", &next, &e);
            for entry in fs::read_dir(&next).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let kind = entry.file_type().map_err(failed)?;
                let path = entry.path();
                let is_note = path.extension().is_some_and(|end| end == "md" || end == "txt");
                match () {
                    () if entry.file_name().as_encoded_bytes().starts_with(b".") => {}
                    () if kind.is_dir() => folders.push(path),
                    () if kind.is_file() && is_note => match entry.metadata().map_err(failed)?.len() {
                        0 => empty_notes += 1,
                        length => {
                            total_bytes += length;
                            paths.push(path);
                        }
                    },
                    () => skipped_files += 1,
                }
            }
        }
        paths.sort();
        let (folder, paths) = (folder.to_owned(), paths.into_iter());
        Ok(TextFolder { folder, paths, total_bytes, skipped_files, empty_notes })
    }

    fn read(&self, path: &Path) -> Result<(InputRow, u64), CommandError> {
        let inside = path.strip_prefix(&self.folder).unwrap_or(path);
        let utf8 = "convert it to UTF-8, for instance with iconv";
        let name = inside.to_str().ok_or_else(|| malformed(path, "has a name that is not UTF-8", "rename it"))?;
        let bytes = fs::read(path).map_err(|e| CommandError::file("read", path, &e))?;
        let length = bytes.len() as u64;
        let text = String::from_utf8(bytes).map_err(|_| malformed(path, "is not UTF-8", utf8))?;
        let record = json!({ "id": id_from_path(name), "text": text, "metadata": { "path": name } });
        Ok((
            InputRow::Line { position: RowPosition::Note(path.into()), bytes: record.to_string().into_bytes() },
            length,
        ))
    }
}

/// Returns the id of a path: an id has no `/`, which becomes a colon. What has a colon already gets one more, so that no two paths have
/// one id; a `/` beside one becomes `:.`, as no name that is taken begins with a dot.
fn id_from_path(name: &str) -> String {
    let mut id = String::with_capacity(name.len());
    let (mut before, mut left) = (None, name.chars().peekable());
    while let Some(char) = left.next() {
        match char {
            ':' => id.push_str("::"),
            '/' if before == Some(':') || left.peek() == Some(&':') => id.push_str(":."),
            '/' => id.push(':'),
            other => id.push(other),
        }
        before = Some(char);
    }
    id
}

impl Iterator for TextFolder {
    type Item = Result<(InputRow, u64), CommandError>;

    fn next(&mut self) -> Option<Self::Item> {
        let path = self.paths.next()?;
        Some(self.read(&path))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn each_note_is_a_record_and_other_files_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("deep")).unwrap();
        fs::create_dir(dir.path().join(".git")).unwrap();
        let files = [("deep/b.md", "two\n"), ("a.txt", "one"), (".git/c.md", "x"), ("d.png", "x"), ("empty.md", "")];
        for (path, text) in files {
            fs::write(dir.path().join(path), text).unwrap();
        }
        let notes = TextFolder::open(dir.path()).unwrap();
        assert_eq!((notes.total_bytes, notes.skipped_files, notes.empty_notes), (7, 1, 1));
        let lines: Vec<serde_json::Value> =
            notes.map(|row| serde_json::from_slice(&row.unwrap().0.into_line()).unwrap()).collect();
        assert_eq!(lines[0], json!({"id": "a.txt", "text": "one", "metadata": {"path": "a.txt"}}));
        assert_eq!((&lines[1]["id"], &lines[1]["text"]), (&json!("deep:b.md"), &json!("two\n")));
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn no_two_paths_have_one_id() {
        let names = ["a/b", "a:b", "a:/b", "a/:b", "a::b", "a/:/b", "a:/:b", "a::/b", "a/::b", "a:.b"];
        let ids: std::collections::BTreeSet<String> = names.iter().map(|name| id_from_path(name)).collect();
        assert_eq!(ids.len(), names.len(), "{ids:?}");
        assert_eq!(["deep/b.md", "a:b.md"].map(id_from_path), ["deep:b.md", "a::b.md"]);
    }

    #[test]
    fn what_is_no_text_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.md"), [0xff]).unwrap();
        let error = TextFolder::open(dir.path()).unwrap().next().unwrap().unwrap_err();
        assert!(error.message.contains("a.md is not UTF-8"), "{}", error.message);
    }
}
