//! What a merge, promote, pull or dry run came to.

use serde_json::Value;

use super::{pluralize, printable, short_hash, text};

/// The branch that a merge or the like has changed, as far as whoever asked for that can take it back.
pub enum Receiver {
    /// It is theirs, at this target.
    Own(String),
    /// It belongs to another user.
    Foreign {
        /// Where it is.
        target: String,
        /// Its owner.
        uid: u32,
    },
    /// It can't be reached from where they are; its name path.
    OutOfReach(String),
}

impl Receiver {
    /// Returns the words for how a result is taken back, by the line of `ctl` that does so.
    fn way_back(&self, line: &str, is_revert: bool) -> String {
        let command = |line: &str, target: &str| {
            let (verb, entry) = line.split_once(' ').unwrap_or((line, ""));
            format!("engramfs {verb} {target} {entry}").trim_end().to_owned()
        };
        match self {
            Receiver::Own(target) if is_revert => format!("`{}` takes it back", command(line, target)),
            Receiver::Own(target) => format!("`{}` takes it back", command("undo", target)),
            // `undo` is for who has done it.
            Receiver::Foreign { target, uid } => {
                format!("uid {uid}, whose that branch is, can take it back: `{}`", command(line, target))
            }
            Receiver::OutOfReach(path) => {
                let target = format!("MNT/{}", path.replace('/', "/branches/"));
                format!("whose {path} is can take it back where that is mounted: `{}`", command(line, &target))
            }
        }
    }
}

/// Returns the result in a few lines: what it did, and how to take that back from `receiver`; then conflicts and what
/// is in the way.
pub fn render(outcome: &Value, receiver: &Receiver) -> String {
    let count = |key: &str| outcome.get(key).and_then(Value::as_u64).unwrap_or(0);
    let list = |key: &str| outcome.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let (conflicts, blockers, reverted) = (list("conflicts"), list("blockers"), list("reverted"));
    let mut lines = format!("{} {}", text(outcome, "status"), text(outcome, "branch"));
    for entry in &reverted {
        lines.push_str(&format!(
            ", entry {} ({} of {})",
            text(entry, "entries"),
            text(entry, "op"),
            text(entry, "time")
        ));
    }
    lines.push_str(&format!(": {} put, {} deleted", count("put"), count("deleted")));
    if count("files") > 0 {
        lines.push_str(&format!(", {}", pluralize(count("files"), "file")));
    }
    if !conflicts.is_empty() {
        let conflicts = pluralize(conflicts.len() as u64, "conflict");
        lines.push_str(&format!(", {conflicts} decided by {}", text(outcome, "strategy")));
    }
    if outcome.get("undo").is_some() {
        lines.push_str(&format!("; {}", receiver.way_back(text(outcome, "undo"), !reverted.is_empty())));
    }
    lines.push('\n');
    for conflict in &conflicts {
        lines.push_str(&format!("  {}\n", conflict_line(conflict)));
    }
    for path in list("not_merged") {
        lines.push_str(&format!("  not merged: {}\n", printable(path.as_str().unwrap_or_default())));
    }
    for blocker in &blockers {
        let [code, message, hint] = ["code", "message", "hint"].map(|key| printable(text(blocker, key)));
        lines.push_str(&format!("  {code}: {message}; {hint}\n"));
    }
    lines
}

/// Returns what a result says of the state that a label, an entry or a time has led to.
pub fn state_name(state: &Value) -> String {
    match state["checkpoint"].as_str() {
        Some(label) => format!("checkpoint {label}"),
        None => format!("entry {} of {}", state["entry"], text(state, "time")),
    }
}

/// Returns what a rollback of `target` came to in one line, and how to take that back.
pub fn render_rollback(result: &Value, target: &str) -> String {
    let state = state_name(&result["from"]);
    let (put, deleted) = (&result["put"], &result["deleted"]);
    format!("rolled back {target} to {state}: {put} put, {deleted} deleted; `engramfs undo {target}` takes it back\n")
}

/// Returns one line without its end: the item, each side's version as a short hash, and the decision, or `open`.
pub fn conflict_line(conflict: &Value) -> String {
    let item = if text(conflict, "kind") == "file" { text(conflict, "path") } else { text(conflict, "id") };
    let item = printable(item);
    let version = |side: &str| match conflict.get(side) {
        // In `conflicts` a record's version may come with its text, as an object.
        Some(Value::String(hash)) => short_hash(hash).to_owned(),
        Some(Value::Object(version)) => {
            version.get("hash").and_then(Value::as_str).map_or_else(|| "changed".into(), |h| short_hash(h).to_owned())
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

    fn own() -> Receiver {
        Receiver::Own("/m/main".to_owned())
    }

    #[test]
    fn who_can_not_take_it_back_is_told_who_can_and_how() {
        let outcome = json!({"status": "merged", "branch": "main/x/y", "put": 1, "deleted": 0, "undo": "revert 7"});
        let foreign = Receiver::Foreign { target: "/m/main/branches/x".to_owned(), uid: 1001 };
        for (receiver, way) in [
            (foreign, "uid 1001, whose that branch is, can take it back: `engramfs revert /m/main/branches/x 7`"),
            (
                Receiver::OutOfReach("main/x".to_owned()),
                "whose main/x is can take it back where that is mounted: `engramfs revert MNT/main/branches/x 7`",
            ),
        ] {
            assert_eq!(render(&outcome, &receiver), format!("merged main/x/y: 1 put, 0 deleted; {way}\n"));
        }
    }

    #[test]
    fn a_merge_is_told_in_one_line_and_each_conflict_in_another() {
        let conflict =
            json!({"kind": "record", "id": "a", "child": "0123456789abcdef", "parent": null, "decision": "child"});
        let outcome = json!({"status": "merged", "branch": "main/x", "strategy": "child-wins", "put": 2, "deleted": 0, "files": 0, "conflicts": [conflict], "blockers": [], "undo": "revert 7"});
        let expected = "merged main/x: 2 put, 0 deleted, 1 conflict decided by child-wins; `engramfs undo /m/main` takes it back\n  record a: child 0123456789, parent deleted -> child\n";
        assert_eq!(render(&outcome, &own()), expected);
    }

    #[test]
    fn a_rollback_names_the_state() {
        let entry = json!({"checkpoint": null, "entry": 2, "time": "2026-11-25T18:04:08Z"});
        let expected = "rolled back /m/main to entry 2 of 2026-11-25T18:04:08Z: 1 put, 0 deleted; `engramfs undo /m/main` takes it back\n";
        assert_eq!(render_rollback(&json!({"put": 1, "deleted": 0, "from": entry}), "/m/main"), expected);
        let label = json!({"put": 0, "deleted": 3, "from": {"checkpoint": "v1", "entry": 2}});
        assert!(
            render_rollback(&label, "/m/main").starts_with("rolled back /m/main to checkpoint v1: 0 put, 3 deleted;")
        );
    }

    #[test]
    fn what_a_rule_left_out_is_named() {
        let outcome =
            json!({"status": "merged", "branch": "main/x", "put": 0, "deleted": 0, "not_merged": ["files/cache/a"]});
        assert_eq!(render(&outcome, &own()), "merged main/x: 0 put, 0 deleted\n  not merged: files/cache/a\n");
    }

    #[test]
    fn a_path_forges_no_line_of_a_plan() {
        let path = "files/a\nmerged main/x";
        let conflict = json!({"kind": "file", "path": path, "child": null, "parent": null, "decision": null});
        let blocker = json!({"code": "append_rule", "message": format!("{path} may only be appended to"), "hint": "h"});
        let outcome = json!({"status": "blocked", "branch": "main/x", "conflicts": [conflict], "blockers": [blocker], "not_merged": [path]});
        let rendered = render(&outcome, &own());
        assert_eq!(rendered.lines().count(), 4, "{rendered}");
        assert_eq!(rendered.matches("files/a\\nmerged main/x").count(), 3, "{rendered}");
    }

    #[test]
    fn blockers_say_what_to_do() {
        let outcome = json!({"status": "blocked", "branch": "main/x", "blockers": [{"code": "gate_pending", "message": "m", "hint": "h"}]});
        assert_eq!(render(&outcome, &own()), "blocked main/x: 0 put, 0 deleted\n  gate_pending: m; h\n");
    }
}
