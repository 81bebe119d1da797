//! A branch's own edits, one a line or counted.

use serde_json::{Value, json};

use super::{pluralize, printable, text};
use crate::cli::output::{Paint, paint};

/// How often each change occurs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiffCounts {
    added: u64,
    modified: u64,
    deleted: u64,
}

impl DiffCounts {
    /// Counts the changes of one kind, `record` or `file`.
    pub fn from_diff(diff: &[Value], kind: &str) -> DiffCounts {
        let count = |change: &str| {
            let fits = |line: &&Value| text(line, "kind") == kind && text(line, "change") == change;
            diff.iter().filter(fits).count() as u64
        };
        DiffCounts { added: count("added"), modified: count("modified"), deleted: count("deleted") }
    }

    fn is_empty(self) -> bool {
        self == DiffCounts::default()
    }

    fn to_json(self) -> Value {
        json!({ "added": self.added, "modified": self.modified, "deleted": self.deleted })
    }

    fn line(self, word: &str) -> String {
        let total = self.added + self.modified + self.deleted;
        let sum = format!("{} added, {} modified, {} deleted", self.added, self.modified, self.deleted);
        format!("{}: {sum}\n", pluralize(total, word))
    }
}

/// Returns one line an edit: `A`, `M` or `D`, and the path below the branch.
pub fn render(diff: &[Value], coloured: bool) -> String {
    let line = |edit: &Value| {
        let (letter, colour) = match text(edit, "change") {
            "added" => ("A", Paint::Green),
            "deleted" => ("D", Paint::Red),
            _ => ("M", Paint::Yellow),
        };
        let path = match text(edit, "kind") {
            // A file's path may be given with or without the folder that holds them all.
            "file" => format!("files/{}", text(edit, "path").trim_start_matches("files/")),
            _ => format!("vectors/{}.json", text(edit, "id")),
        };
        let (letter, path) = (paint(coloured, colour, letter), printable(&path));
        format!("{letter}  {path}\n{}", changed_lines(edit, coloured))
    };
    diff.iter().map(line).collect()
}

/// Returns the lines of text that an edit took away and added, where both versions are shown.
fn changed_lines(edit: &Value, coloured: bool) -> String {
    let lines = |side: &str| -> Vec<&str> {
        let text = edit.get(side).and_then(|version| version.get("text")).and_then(Value::as_str);
        text.unwrap_or_default().lines().collect()
    };
    let (old, new) = (lines("before"), lines("after"));
    let same = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let (old, new) = (&old[same..], &new[same..]);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    // Tabs are part of many a text, and do no harm.
    let shown = |line: &str| line.split('\t').map(printable).collect::<Vec<_>>().join("\t");
    let side = |lines: &[&str], sign: &str, colour: Paint| -> String {
        let line = |line: &str| format!("     {}\n", paint(coloured, colour, &format!("{sign} {}", shown(line))));
        lines.iter().copied().map(line).collect()
    };
    side(&old[..old.len() - tail], "-", Paint::Red) + &side(&new[..new.len() - tail], "+", Paint::Green)
}

/// Returns the counts for people; files only where there are any.
pub fn render_stat(diff: &[Value]) -> String {
    let files = DiffCounts::from_diff(diff, "file");
    let records = DiffCounts::from_diff(diff, "record").line("record");
    if files.is_empty() { records } else { records + &files.line("file") }
}

/// Returns the counts for programs: those of records and of files, also where they are 0.
pub fn stat_json(diff: &[Value]) -> Value {
    json!({ "records": DiffCounts::from_diff(diff, "record").to_json(), "files": DiffCounts::from_diff(diff, "file").to_json() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff() -> Vec<Value> {
        vec![
            json!({"kind": "record", "id": "a", "change": "added"}),
            json!({"kind": "record", "id": "b", "change": "deleted"}),
            json!({"kind": "file", "path": "notes/x.md", "change": "modified"}),
        ]
    }

    #[test]
    fn edits_are_paths_with_a_letter() {
        assert_eq!(render(&diff(), false), "A  vectors/a.json\nD  vectors/b.json\nM  files/notes/x.md\n");
    }

    #[test]
    fn neither_a_path_nor_a_text_forges_an_edit() {
        let edit =
            json!({"kind": "file", "path": "a\nD  files/b", "change": "added", "after": {"text": "\tx\u{1b}[2J"}});
        assert_eq!(render(&[edit], false), "A  files/a\\nD  files/b\n     + \tx\\u{1b}[2J\n");
    }

    #[test]
    fn counts_are_apart_for_records_and_files() {
        assert_eq!(render_stat(&diff()[..1]), "1 record: 1 added, 0 modified, 0 deleted\n");
        assert_eq!(render_stat(&diff()).lines().count(), 2);
        assert_eq!(stat_json(&diff())["records"]["deleted"], 1);
        assert_eq!(stat_json(&[])["files"]["added"], 0);
    }
}
