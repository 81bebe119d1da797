//! What a merge, promote, pull or dry run came to.

use serde_json::Value;

use super::{counted, short, text};

/// Returns the result in a few lines: the counts, then conflicts and what stands in the way.
pub fn render(outcome: &Value) -> String {
    let count = |key: &str| outcome.get(key).and_then(Value::as_u64).unwrap_or(0);
    let list = |key: &str| outcome.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let (conflicts, blockers) = (list("conflicts"), list("blockers"));
    let mut lines = format!("{}: {} put, {} deleted", text(outcome, "status"), count("put"), count("deleted"));
    if count("files") > 0 {
        lines.push_str(&format!(", {}", counted(count("files"), "file")));
    }
    if !conflicts.is_empty() {
        lines.push_str(&format!(", {}", counted(conflicts.len() as u64, "conflict")));
    }
    lines.push('\n');
    for conflict in &conflicts {
        lines.push_str(&format!("  {}\n", conflict_line(conflict)));
    }
    for path in list("not_merged") {
        lines.push_str(&format!("  not merged: {}\n", path.as_str().unwrap_or_default()));
    }
    for blocker in &blockers {
        lines.push_str(&format!(
            "  {}: {}; {}\n",
            text(blocker, "code"),
            text(blocker, "message"),
            text(blocker, "hint")
        ));
    }
    lines
}

/// Returns one conflict as one line.
pub fn conflict_line(conflict: &Value) -> String {
    let item = if text(conflict, "kind") == "file" { text(conflict, "path") } else { text(conflict, "id") };
    let version = |side: &str| match conflict.get(side) {
        // In `conflicts` a record's version may come with its text, as an object.
        Some(Value::String(hash)) => short(hash).to_owned(),
        Some(Value::Object(version)) => {
            version.get("hash").and_then(Value::as_str).map_or_else(|| "changed".into(), |h| short(h).to_owned())
        }
        _ => "deleted".to_owned(),
    };
    let decision = conflict.get("decision").and_then(Value::as_str).unwrap_or("open");
    format!("{} {item}: child {}, parent {} -> {decision}", text(conflict, "kind"), version("child"), version("parent"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_merge_is_told_in_one_line_and_each_conflict_in_another() {
        let conflict =
            json!({"kind": "record", "id": "a", "child": "0123456789abcdef", "parent": null, "decision": "child"});
        let outcome =
            json!({"status": "merged", "put": 2, "deleted": 0, "files": 0, "conflicts": [conflict], "blockers": []});
        let expected = "merged: 2 put, 0 deleted, 1 conflict\n  record a: child 0123456789, parent deleted -> child\n";
        assert_eq!(render(&outcome), expected);
    }

    #[test]
    fn what_a_rule_left_out_is_named() {
        let outcome = json!({"status": "merged", "put": 0, "deleted": 0, "not_merged": ["files/cache/a"]});
        assert_eq!(render(&outcome), "merged: 0 put, 0 deleted\n  not merged: files/cache/a\n");
    }

    #[test]
    fn blockers_say_what_to_do() {
        let outcome = json!({"status": "blocked", "blockers": [{"code": "gate_pending", "message": "m", "hint": "h"}]});
        assert_eq!(render(&outcome), "blocked: 0 put, 0 deleted\n  gate_pending: m; h\n");
    }
}
