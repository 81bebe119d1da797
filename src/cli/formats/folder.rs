//! A folder of notes: each .md and .txt file is a record, its text the content.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde_json::json;

use super::{InputRow, RowPosition, malformed};
use crate::cli::failure::CommandError;

/// The notes below a folder, in the order of their paths.
pub struct TextFolder {
    folder: PathBuf,
    paths: std::vec::IntoIter<PathBuf>,
    /// Bytes of all notes, as they were when the folder was listed.
    pub total_bytes: u64,
    /// What makes no record. That a note is blank shows when it is read.
    pub left_out: Rc<Cell<LeftOutCounts>>,
}

/// How many files of a folder of notes make no record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOutCounts {
    /// Regular files that are neither `.md` nor `.txt`.
    pub other_files: u64,
    /// Symbolic links, pipes and what else is no regular file, whatever its name.
    pub special_files: u64,
    /// Notes whose names begin with a dot. Folders with such names are not looked into.
    pub hidden_notes: u64,
    /// Notes of no bytes or of blanks.
    pub blank_notes: u64,
}

impl TextFolder {
    /// Looks for notes, and counts what else there is. Fails if the folder, or one in it, can't be listed.
    pub fn open(folder: &Path) -> Result<TextFolder, CommandError> {
        let (mut paths, mut total_bytes, mut left_out) = (Vec::new(), 0, LeftOutCounts::default());
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            let failed = |e: std::io::Error| CommandError::file("read", &next, &e);
            for entry in fs::read_dir(&next).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let kind = entry.file_type().map_err(failed)?;
                let path = entry.path();
                let is_note = path.extension().is_some_and(|end| end == "md" || end == "txt");
                let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
                match () {
                    () if is_hidden => left_out.hidden_notes += u64::from(is_note && kind.is_file()),
                    () if kind.is_dir() => folders.push(path),
                    () if !kind.is_file() => left_out.special_files += 1,
                    () if !is_note => left_out.other_files += 1,
                    () => {
                        total_bytes += entry.metadata().map_err(failed)?.len();
                        paths.push(path);
                    }
                }
            }
        }
        paths.sort();
        let (folder, paths) = (folder.to_owned(), paths.into_iter());
        Ok(TextFolder { folder, paths, total_bytes, left_out: Rc::new(Cell::new(left_out)) })
    }

    /// Reads a note; `None` for one that is blank, which would be nothing in a record either.
    fn read(&self, path: &Path) -> Result<Option<(InputRow, u64)>, CommandError> {
        let utf8 = "convert it to UTF-8, for instance with iconv";
        let bytes = fs::read(path).map_err(|e| CommandError::file("read", path, &e))?;
        let length = bytes.len() as u64;
        let text = String::from_utf8(bytes).map_err(|_| malformed(path, "is not UTF-8", utf8))?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        let inside = path.strip_prefix(&self.folder).unwrap_or(path);
        let name = inside.to_str().ok_or_else(|| malformed(path, "has a name that is not UTF-8", "rename it"))?;
        let record = json!({ "id": id_from_path(name), "text": text, "metadata": { "path": name } });
        let position = RowPosition::Note(path.into());
        Ok(Some((InputRow::Line { position, bytes: record.to_string().into_bytes() }, length)))
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
        loop {
            let path = self.paths.next()?;
            if let Some(row) = self.read(&path).transpose() {
                return Some(row);
            }
            let left_out = self.left_out.get();
            self.left_out.set(LeftOutCounts { blank_notes: left_out.blank_notes + 1, ..left_out });
        }
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
        for (path, text) in files.into_iter().chain([("blank.md", "  \n"), (".hidden.md", "x"), (".hidden", "x")]) {
            fs::write(dir.path().join(path), text).unwrap();
        }
        std::os::unix::fs::symlink(dir.path().join("a.txt"), dir.path().join("link.txt")).unwrap();
        let notes = TextFolder::open(dir.path()).unwrap();
        let (total_bytes, left_out) = (notes.total_bytes, notes.left_out.clone());
        let lines: Vec<serde_json::Value> =
            notes.map(|row| serde_json::from_slice(&row.unwrap().0.into_line()).unwrap()).collect();
        assert_eq!(lines[0], json!({"id": "a.txt", "text": "one", "metadata": {"path": "a.txt"}}));
        assert_eq!((&lines[1]["id"], &lines[1]["text"]), (&json!("deep:b.md"), &json!("two\n")));
        assert_eq!((lines.len(), total_bytes), (2, 10));
        let expected = LeftOutCounts { other_files: 1, special_files: 1, hidden_notes: 1, blank_notes: 2 };
        assert_eq!(left_out.get(), expected);
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
