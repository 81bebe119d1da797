//! `engramfs eval` on records whose answers are known.

use std::fs;

use serde_json::{Value, json};

use crate::mount::{lines, run};

const RECORDS: &str = r#"{"id":"keys","text":"the keys are rotated in May","vector":[1,0]}
{"id":"tea","text":"green tea is in the kitchen","vector":[0,1]}
{"id":"door","text":"the keys of the door hang there","vector":[0.9,0.1]}
"#;
const QUESTIONS: &str = r#"{"question":"when are keys rotated","vector":[0.8,0.2],"evidence":["keys","lost"]}

{"question":"tea","evidence":["tea"],"group":"kitchen"}
"#;

#[test]
fn figures_by_mode_and_what_was_missed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (store, target) = (at("store"), at("store") + ":main");
    assert_eq!(run(&["init", &store]).0, 0);
    fs::write(at("records.jsonl"), RECORDS).unwrap();
    assert_eq!(run(&["import", &target, &at("records.jsonl")]).0, 0);
    fs::write(at("questions.jsonl"), QUESTIONS).unwrap();

    let (code, out, err) = run(&["eval", &target, &at("questions.jsonl"), "--json"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("no record of") && err.contains("is called lost"), "{err}");
    let figures = lines(&out);
    let figures_for =
        |mode: &str| figures.iter().find(|line| line["mode"] == mode && line["k"] == 10).cloned().unwrap();
    // Of the first question half is found, at the first place; of the second all, by its words alone.
    assert_eq!(
        (&figures_for("text")["questions"], &figures_for("text")["recall"], &figures_for("text")["mrr"]),
        (&json!(2), &json!(0.75), &json!(1.0))
    );
    assert_eq!((&figures_for("vector")["questions"], &figures_for("vector")["missed"]), (&json!(1), &json!(1)));
    let missed: Vec<&Value> = figures.iter().filter(|line| line.get("missed").is_some_and(Value::is_array)).collect();
    assert_eq!((missed.len(), &missed[0]["line"], &missed[0]["missed"]), (3, &json!(1), &json!(["lost"])));
    assert_eq!(missed[0]["instead"], json!(["door"]));

    let (code, table, _) = run(&["eval", &target, &at("questions.jsonl"), "--k", "1", "--missed", "1"]);
    assert_eq!(code, 0);
    assert!(table.starts_with("mode") && table.contains("recall@1") && table.contains("missed lost"), "{table}");
    fs::write(at("bad.jsonl"), "{\"question\":\"q\"}\n").unwrap();
    let (code, _, err) = run(&["eval", &target, &at("bad.jsonl"), "--json"]);
    assert_eq!((code, &lines(&err)[0]["code"]), (1, &json!("bad_question")));
}
