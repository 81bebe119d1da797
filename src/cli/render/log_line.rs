//! One entry of the lineage as one line.

use serde_json::Value;

use super::{first_words, printable, short_hash, text};
use crate::cli::output::{Paint, paint};

/// Characters of a checkpoint's text, a setting's value or a refusal's reason.
const NOTE_CHARS_MAX: usize = 60;

/// Returns the line: short hash, time, what was done, to which branch, by whom, and how much changed.
pub fn render(entry: &Value, coloured: bool) -> String {
    let hash = paint(coloured, Paint::Yellow, short_hash(text(entry, "entry")));
    let time = paint(coloured, Paint::Dim, &readable_time(text(entry, "time")));
    let fields = [subject(entry), text(entry, "agent").to_owned(), counts(entry), note(entry)];
    let rest: Vec<String> = fields.into_iter().filter(|field| !field.is_empty()).collect();
    format!("{hash} {time} {:10} {}", text(entry, "op"), rest.join("  "))
}

/// Whole seconds are enough for reading: `2026-01-02 03:04:05`.
fn readable_time(time: &str) -> String {
    time.get(..19).unwrap_or(time).replace('T', " ")
}

/// An arrow shows which way content went.
fn subject(entry: &Value) -> String {
    let (branch, parent) = (text(entry, "branch"), text(entry, "parent"));
    match text(entry, "op") {
        "fork" | "pull" => format!("{parent} -> {branch}"),
        "merge" | "promote" => format!("{branch} -> {parent}"),
        _ => branch.to_owned(),
    }
}

fn counts(entry: &Value) -> String {
    let count = |key: &str| entry.get("counts").and_then(|counts| counts.get(key)).and_then(Value::as_u64).unwrap_or(0);
    let parts = [("+", count("put"), ""), ("-", count("deleted"), ""), ("~", count("files"), " files")];
    let shown =
        parts.iter().filter(|(_, count, _)| *count > 0).map(|(sign, count, word)| format!("{sign}{count}{word}"));
    let conflicts = entry.get("conflicts").and_then(Value::as_array).map_or(0, Vec::len) as u64;
    let conflicts = (conflicts > 0).then(|| super::pluralize(conflicts, "conflict"));
    shown.chain(conflicts).collect::<Vec<_>>().join(" ")
}

fn note(entry: &Value) -> String {
    let label = ["checkpoint", "setting", "id", "renamed_from"].map(|key| printable(text(entry, key))).concat();
    let words = first_words(text(entry, "text"), NOTE_CHARS_MAX);
    match (label.is_empty(), words.is_empty()) {
        (false, false) => format!("[{label}] {words}"),
        (false, true) => format!("[{label}]"),
        (true, _) => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_merge_shows_its_way_its_counts_and_its_conflicts() {
        let entry = json!({
            "entry": "0123456789abcdef", "time": "2026-01-02T03:04:05.678900000Z", "op": "merge", "branch": "main/x", "parent": "main",
            "agent": "ann", "counts": {"put": 3, "deleted": 1, "files": 0}, "conflicts": [{}],
        });
        let expected = "0123456789 2026-01-02 03:04:05 merge      main/x -> main  ann  +3 -1 1 conflict";
        assert_eq!(render(&entry, false), expected);
    }

    #[test]
    fn a_checkpoint_shows_its_label_and_text() {
        let entry = json!({"op": "checkpoint", "branch": "main", "checkpoint": "v1", "text": "all\ngood"});
        assert!(render(&entry, false).ends_with("main  [v1] all good"));
    }
}
