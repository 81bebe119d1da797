//! Imports into stores that are not mounted.

use std::fs;

use serde_json::Value;

use crate::command_line::{Folder, json};
use crate::mount::{lines, run};

#[test]
fn records_come_from_arrays_folders_and_other_names_and_again_without_doubles() {
    let folder = Folder::new();
    let target = format!("{}:main", folder.at("store"));
    run(&["init", &folder.at("store")]);
    fs::create_dir_all(folder.at("notes/deep")).unwrap();
    fs::write(folder.at("notes/tea.md"), "green tea").unwrap();
    fs::write(folder.at("notes/deep/milk.txt"), "oat milk").unwrap();
    fs::write(folder.at("notes/photo.png"), "x").unwrap();
    fs::write(folder.at("a.json"), "[{\"id\":\"a\",\n \"text\":\"one\"},{\"id\":\"b\",\"text\":\"two\"}]").unwrap();
    fs::write(folder.at("m.jsonl"), "{\"key\":7,\"page\":{\"body\":\"seven\"},\"lang\":\"en\"}\n").unwrap();
    let map = ["--map", "id=key,text=page.body"];
    for round in 0..2 {
        let (_, notes) = json(&["import", &target, &folder.at("notes")]);
        assert_eq!((&notes["rows"], &notes["left_out"]), (&Value::from(2), &Value::from(1)), "{notes}");
        assert_eq!(json(&["import", &target, &folder.at("a.json")]).0, 0);
        let (_, mapped) = json(&[&["import", &target, &folder.at("m.jsonl")][..], &map].concat());
        assert_eq!(mapped["put"], Value::from(1 - round), "the second time all is there already");
        assert_eq!(json(&["status", &target]).1["records"], Value::from(5));
    }
    run(&["export", &target, &folder.at("out.jsonl")]);
    let out = lines(&fs::read_to_string(folder.at("out.jsonl")).unwrap());
    let ids: Vec<&str> = out.iter().map(|line| line["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["7", "a", "b", "deep:milk.txt", "tea.md"]);
    assert_eq!((&out[0]["text"], &out[0]["metadata"]["lang"]), (&Value::from("seven"), &Value::from("en")));
    assert_eq!(json(&["import", &target, &folder.at("m.jsonl"), "--map", "name=x"]).0, 2);
}

#[test]
fn an_import_names_what_is_refused_as_its_file_has_it() {
    let folder = Folder::new();
    let (target, input, notes) = (format!("{}:main", folder.at("store")), folder.at("v.jsonl"), folder.at("notes"));
    run(&["init", &folder.at("store")]);
    fs::create_dir(&notes).unwrap();
    for (name, text) in [("a.md", "hi"), ("empty.md", ""), ("z.md", "bye")] {
        fs::write(format!("{notes}/{name}"), text).unwrap();
    }
    let (_, taken) = json(&["import", &target, &notes]);
    assert_eq!((&taken["put"], &taken["left_out"]), (&Value::from(2), &Value::from(1)), "{taken}");
    assert!(run(&["import", &target, &notes]).2.contains("empty notes were left out: 1"));
    // No id is that long.
    let long = format!("{notes}/{}.md", "n".repeat(210));
    fs::write(&long, "a note").unwrap();
    let refusal = |from: &str| {
        let (code, error) = json(&["import", &target, from]);
        assert_eq!(code, 1, "{error}");
        let said = |key: &str| error[key].as_str().unwrap().to_owned();
        (said("message"), said("hint"))
    };
    let (message, _) = refusal(&notes);
    assert!(message.starts_with(&format!("{long}: ")), "{message}");
    fs::write(&input, "\n{\"id\":\"a\",\"vector\":[1,2]}\n\n{\"id\":\"b\",\"vector\":[1,2,3]}\n").unwrap();
    let (message, _) = refusal(&input);
    assert!(message.starts_with(&format!("line 4 of {input}: the vector has 3 numbers")), "{message}");
    // An element of an array may have several lines, and several may be on one.
    let array = folder.at("v.json");
    fs::write(&array, "[\n{\"id\":\"a\",\n\"vector\":[1,2]}, {\"id\":\"b\",\"vector\":[1,2,3]}]").unwrap();
    let (message, _) = refusal(&array);
    assert!(message.starts_with(&format!("element 2 of {array}: the vector has 3 numbers")), "{message}");
    fs::write(&input, "{\"id\":\"a\",\"text\":\"\"}\n").unwrap();
    let (message, hint) = refusal(&input);
    assert!(message.starts_with(&format!("line 1 of {input}: neither")), "{message}");
    assert!(hint.contains("\"delete\":true") && !hint.contains("rm the file"), "{hint}");
}
