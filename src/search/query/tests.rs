//! Lines and what they are read as.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::json;

use super::fields::KEYS;
use super::*;

fn parse(line: &str) -> Query {
    Query::parse(line).unwrap()
}

#[track_caller]
fn refused(line: &str, part: &str) {
    let error = Query::parse(line).unwrap_err();
    let message = format!("{error}; {}", error.hint());
    assert!(message.contains(part), "{message:?} lacks {part:?}");
}

#[test]
fn bare_text_has_the_defaults_of_an_object() {
    let bare = parse("  how do I fork?\r\n");
    let mut object = parse(r#"{"text": "how do I fork?"}"#);
    assert_eq!((bare.text.as_deref(), bare.echo.as_str()), (Some("how do I fork?"), "how do I fork?"));
    object.echo.clone_from(&bare.echo);
    assert_eq!(bare, object);
    assert_eq!((bare.k, bare.timeout_ms, bare.mode, bare.ef), (10, 2_000, None, None));
    assert_eq!(bare.scope, ["branch", "log", "files"]);
    assert_eq!((bare.exact, bare.explain, bare.include, bare.tag), (false, false, Include::default(), Value::Null));
    assert_eq!(parse("[1, 2]").text.unwrap(), "[1, 2]");
}

/// Editors and PowerShell write a byte-order mark; an object behind one was taken for words.
#[test]
fn a_byte_order_mark_before_a_query_does_not_count() {
    for mark in ["\u{feff}", " \u{feff}", "\u{feff} "] {
        assert_eq!(parse(&format!(r#"{mark}{{"text": "tea", "k": 3}}"#)), parse(r#"{"text": "tea", "k": 3}"#));
        assert_eq!(parse(&format!("{mark}tea")), parse("tea"));
    }
    assert!(matches!(Query::parse("\u{feff}\n"), Err(QueryError::Empty)));
}

#[test]
fn every_key_is_read() {
    let query = parse(
        r#"{"vector": [1, -0.5, 1e-3], "text": "x", "k": 10000, "mode": "hybrid", "filter": {"a": 1}, "exact": true,
            "ef": 64, "scope": ["other", "branch", "other"], "include": ["vector"], "explain": true,
            "tag": {"n": [1]}, "timeout_ms": 600000}"#,
    );
    assert_eq!(query.vector.unwrap(), [1.0, -0.5, 0.001]);
    assert_eq!((query.k, query.ef, query.timeout_ms), (10_000, Some(64), 600_000));
    assert_eq!(query.mode, Some(Mode::Hybrid));
    assert!(query.filter.unwrap().matches(&json!({"a": 1})));
    assert_eq!(query.scope, ["other", "branch"]);
    assert_eq!(query.tag, json!({"n": [1]}));
    assert!(query.exact && query.explain && query.include.vector && !query.include.stamp);
    assert_eq!(parse(r#"{"id": "a b"}"#).id.unwrap(), "a b");
}

#[test]
fn null_is_a_key_left_out() {
    let keys = KEYS.iter().filter(|key| **key != "text").map(|key| format!(", {key:?}: null"));
    let line = format!(r#"{{"text": "x", "vector": null{}}}"#, keys.collect::<String>());
    let mut query = parse(&line);
    query.echo = "x".to_owned();
    assert_eq!(query, parse("x"));
}

#[test]
fn a_query_for_nothing_or_for_two_things_is_refused() {
    for line in ["", "  \n", "{}", r#"{"k": 3}"#, r#"{"text": " "}"#, r#"{"id": ""}"#, r#"{"text": null}"#] {
        assert!(matches!(Query::parse(line), Err(QueryError::Empty)), "{line}");
    }
    refused(r#"{"id": "a", "vector": [1]}"#, "beside \"vector\"");
    refused(r#"{"id": "a", "text": "x"}"#, "leave one of them out");
}

#[test]
fn wrong_values_say_what_to_write() {
    let with = |rest: &str| format!(r#"{{"text": "x", {rest}}}"#);
    for (rest, part) in [
        (r#""k": 0"#, r#""k" is 0; write a whole number from 1 to 10000"#),
        (r#""k": 10001"#, "from 1 to 10000"),
        (r#""k": 2.5"#, "2.5"),
        (r#""k": "3""#, "a whole number"),
        (r#""ef": -1"#, "from 1 to 100000"),
        (r#""ef": 0"#, "from 1 to 100000"),
        (r#""ef": 100001"#, "from 1 to 100000"),
        (r#""timeout_ms": 0"#, "milliseconds from 1 to 600000"),
        (r#""timeout_ms": 600001"#, "milliseconds from 1 to 600000"),
        (r#""mode": "fast""#, r#""vector", "text" or "hybrid""#),
        (r#""exact": 1"#, "true or false"),
        (r#""explain": "yes""#, "true or false"),
        (r#""scope": []"#, "a list of names"),
        (r#""scope": "log""#, "a list of names"),
        (r#""scope": ["log", 7, "branch"]"#, "a list of names"),
        (r#""include": ["text"]"#, r#"write a list of "vector" and "stamp""#),
        (r#""filter": {"a": {"$gtt": 1}}"#, "$gte"),
        (r#""filter": 3"#, "write an object"),
        (r#""colour": 3"#, r#"unknown key "colour", expected one of vector, text, id, k"#),
        (r#""k": 3, "k": 4"#, r#""k" is given twice"#),
        (r#""text": 5"#, "given twice"),
    ] {
        refused(&with(rest), part);
    }
    let least = parse(&with(r#""k": 1, "ef": 1, "timeout_ms": 1"#));
    assert_eq!((least.k, least.ef, least.timeout_ms), (1, Some(1), 1));
    refused(r#"{"text": 5}"#, r#""text" is 5; write a string"#);
    refused(r#"{"id": 5}"#, "write a string");
    refused("{no json", "write one object on one line");
    refused(r#"{"text": "x"} more"#, "write one object on one line");
}

#[test]
fn vectors_are_lists_of_finite_numbers() {
    refused(r#"{"vector": []}"#, "an empty list");
    refused(r#"{"vector": [1e39]}"#, "beyond the range of f32");
    refused(r#"{"vector": [1e999]}"#, "out of range");
    refused(r#"{"vector": [NaN]}"#, "write one object");
    refused(r#"{"vector": ["1"]}"#, "invalid type");
    refused(r#"{"vector": [null]}"#, "invalid type");
    refused(r#"{"vector": "1,2"}"#, "a list of numbers like");
    refused(r#"{"vector": [1], "vector": [2]}"#, "given twice");
    assert_eq!(parse(r#"{"vector": [3.4028234e38, 1e-60]}"#).vector.unwrap(), [f32::MAX, 0.0]);
}

#[test]
fn tag_and_echo_have_their_limits() {
    let tagged = |len: usize| Query::parse(&format!(r#"{{"text": "x", "tag": "{}"}}"#, "t".repeat(len)));
    assert!(tagged(1_022).is_ok());
    let error = tagged(1_023).unwrap_err();
    let message = format!("{error}; {}", error.hint());
    assert!(message.contains("at most 1024 bytes") && message.len() < 200, "{message}");
    assert_eq!(parse(&"é".repeat(60)).echo, "é".repeat(40));
    assert_eq!(parse(&format!("a{}", "é".repeat(60))).echo.len(), 79);
}

#[test]
fn the_keys_are_those_of_the_page() {
    let page = include_str!("../../../docs/SEMANTICS.md");
    let (_, rows) = page.split_once("\n| key | meaning | default |\n|---|---|---|\n").unwrap();
    let cells = rows.lines().take_while(|line| line.starts_with('|')).filter_map(|row| row.split('|').nth(1));
    let mut on_page: Vec<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let mut keys = [&KEYS[..], &["vector"]].concat();
    on_page.sort_unstable();
    keys.sort_unstable();
    assert_eq!(keys, on_page);
}

/// As many as a line of 4 MiB holds.
#[test]
fn a_scope_of_very_many_names_takes_no_time() {
    let names: Vec<String> = (0..400_000).map(|n| format!("{n:x}")).collect();
    assert_eq!(parse(&json!({ "text": "x", "scope": names }).to_string()).scope, names);
}
