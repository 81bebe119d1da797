//! Figures as aligned lines: `status`, and the reports of `verify`, `gc` and `backup`.

use serde_json::Value;

use super::first_words;

/// The keys of `status` in the order of interest, and `conflicts`, which results of merges have. Other keys follow after them.
const ORDER: [&str; 37] = [
    "path",
    "name",
    "parent",
    "created",
    "owner",
    "head",
    "base",
    "tip",
    "records",
    "own_edits",
    "deleted",
    "files",
    "bytes_own",
    "bytes_shared",
    "depth",
    "children",
    "checkpoints",
    "dim",
    "metric",
    "strategy",
    "agent",
    "session",
    "task",
    "conflicts",
    "log_entries",
    "unread",
    "log_bytes",
    "index",
    "embedder",
    "scrub",
    "reserve",
    "lease",
    "temporaries",
    "last_error",
    "kept_since",
    "bytes_kept",
    "clock",
];

/// Objects of which every figure is a number of bytes, whatever its key.
const ALL_BYTES: [&str; 2] = ["scrub", "reserve"];

/// Longest value on a line, in characters.
const VALUE_CHARS_MAX: usize = 160;

/// Returns one `key  value` line for each fact of an object, in the order of `ORDER` and then by name.
pub fn render(object: &Value) -> String {
    let Some(map) = object.as_object() else { return format!("{object}\n") };
    let rank = |key: &str| ORDER.iter().position(|known| *known == key).unwrap_or(ORDER.len());
    let mut facts: Vec<(String, String)> =
        map.iter().map(|(key, value)| (key.clone(), format_value(key, value))).collect();
    facts.sort_by_key(|(key, _)| rank(key));
    facts.retain(|(_, value)| !value.is_empty());
    let width = facts.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    facts.iter().map(|(key, value)| format!("{:width$}  {value}\n", key.replace('_', " "))).collect()
}

fn format_value(key: &str, value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => first_words(text, VALUE_CHARS_MAX),
        Value::Number(number) => match number.as_u64().filter(|_| key.contains("bytes")) {
            Some(bytes) => readable_bytes(bytes),
            None => number.to_string(),
        },
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Array(items) => items.iter().map(|item| format_value(key, item)).collect::<Vec<_>>().join(", "),
        Value::Object(map) => {
            let kind = |inner| if ALL_BYTES.contains(&key) { "bytes" } else { inner };
            let shown = map.iter().map(|(inner, value)| format!("{inner} {}", format_value(kind(inner), value)));
            shown.collect::<Vec<_>>().join(", ")
        }
    }
}

fn readable_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn facts_are_aligned_in_the_order_of_interest() {
        let status = json!({"bytes_own": 1536, "path": "main", "parent": null, "index": {"building": false, "rows": 3}, "zeta": 1});
        let expected = "path       main\nbytes own  1.5 KiB\nindex      building no, rows 3\nzeta       1\n";
        assert_eq!(render(&status), expected);
    }

    #[test]
    fn each_key_of_status_has_its_place() {
        let page = include_str!("../../../docs/SEMANTICS.md");
        let section = page.split("\n## ").find(|section| section.starts_with("Status\n")).unwrap_or_default();
        let cells = section.lines().filter(|line| line.starts_with("| `")).filter_map(|row| row.split('|').nth(1));
        let keys: Vec<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
        assert_eq!(keys.first(), Some(&"name"), "the section Status of docs/SEMANTICS.md has no table of its keys");
        for key in keys {
            assert!(ORDER.contains(&key), "{key} would stand behind all others, by its name");
        }
    }

    #[test]
    fn bytes_have_a_unit() {
        let status = json!({"reserve": {"bytes": 4096, "total": 8 << 20}, "scrub": {"checked": 0, "total": 1536}});
        let expected = "scrub    checked 0 B, total 1.5 KiB\nreserve  bytes 4.0 KiB, total 8.0 MiB\n";
        assert_eq!(render(&status), expected);
        assert_eq!(render(&json!({"rows": {"total": 1536}})), "rows  total 1536\n", "rows are no bytes");
        assert_eq!(readable_bytes(0), "0 B");
        assert_eq!(readable_bytes(1023), "1023 B");
        assert_eq!(readable_bytes(5 << 30), "5.0 GiB");
    }
}
