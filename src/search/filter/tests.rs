//! Filters and what passes them.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::json;

use super::*;

#[track_caller]
fn check(filter: Value, metadata: Value, expected: bool) {
    assert_eq!(Filter::parse(&filter).unwrap().matches(&metadata), expected, "{filter} of {metadata}");
}

#[track_caller]
fn refused(filter: Value, part: &str) {
    let error = Filter::parse(&filter).unwrap_err();
    let message = format!("{error}; {}", error.hint());
    assert!(message.contains(part), "{message:?} lacks {part:?}");
}

#[test]
fn equality_of_each_kind() {
    let metadata = || json!({"s": "x", "n": 1, "f": 1.5, "b": true, "z": null, "o": {"a": 1}, "l": [1, "y", [2]]});
    for (filter, expected) in [
        (json!({}), true),
        (json!({"s": "x"}), true),
        (json!({"s": "X"}), false),
        (json!({"n": 1.0}), true),
        (json!({"n": "1"}), false),
        (json!({"f": {"$eq": 1.5}}), true),
        (json!({"b": true}), true),
        (json!({"b": 1}), false),
        (json!({"z": null}), true),
        (json!({"missing": null}), false),
        (json!({"o": {"a": 1.0}}), true),
        (json!({"o": {}}), false),
        (json!({"l": "y"}), true),
        (json!({"l": 1.0}), true),
        (json!({"l": [2]}), true),
        (json!({"l": 2}), false),
        (json!({"l": [1, "y", [2]]}), true),
        (json!({"s": "x", "n": 2}), false),
    ] {
        check(filter, metadata(), expected);
    }
}

#[test]
fn numbers_compare_exactly_beyond_what_a_float_holds() {
    let big = 9_007_199_254_740_993_u64; // 2^53 + 1
    check(json!({"n": 9_007_199_254_740_992.0}), json!({"n": big}), false);
    check(json!({"n": {"$gt": 9_007_199_254_740_992.0}}), json!({"n": big}), true);
    check(json!({"n": {"$lt": 1e300}}), json!({"n": u64::MAX}), true);
    check(json!({"n": {"$gt": -1e300}}), json!({"n": i64::MIN}), true);
    check(json!({"n": {"$gt": -2}}), json!({"n": -1.5}), true);
    check(json!({"n": {"$lt": -1}}), json!({"n": -1.5}), true);
    check(json!({"n": {"$lt": u64::MAX}}), json!({"n": -1}), true);
    check(json!({"n": 0}), json!({"n": -0.0}), true);
}

#[test]
fn order_is_for_numbers_and_strings_of_one_kind() {
    check(json!({"n": {"$gte": 10, "$lt": 20}}), json!({"n": 10}), true);
    check(json!({"n": {"$gte": 10, "$lt": 20}}), json!({"n": 20}), false);
    check(json!({"n": {"$lte": 20.0}}), json!({"n": 20}), true);
    check(json!({"n": {"$gt": 10}}), json!({"n": 10}), false);
    check(json!({"d": {"$gt": "2024-01-01"}}), json!({"d": "2024-05"}), true);
    for other in [json!("10"), json!(null), json!(true), json!([11]), json!({})] {
        check(json!({"n": {"$gt": 1}}), json!({"n": other}), false);
        check(json!({"n": {"$lte": 1}}), json!({"n": other}), false);
    }
    check(json!({"n": {"$lt": 1}}), json!({}), false);
}

#[test]
fn in_and_nin_and_ne_and_exists() {
    check(json!({"s": {"$in": ["a", 2]}}), json!({"s": 2.0}), true);
    check(json!({"s": {"$in": ["a", 2]}}), json!({"s": ["q", "a"]}), true);
    check(json!({"s": {"$in": []}}), json!({"s": "a"}), false);
    check(json!({"s": {"$in": ["a"]}}), json!({}), false);
    check(json!({"s": {"$nin": ["a"]}}), json!({}), true);
    check(json!({"s": {"$nin": ["a"]}}), json!({"s": ["q", "a"]}), false);
    check(json!({"s": {"$ne": "a"}}), json!({"s": 1}), true);
    check(json!({"s": {"$ne": "a"}}), json!({}), true);
    check(json!({"s": {"$ne": "a"}}), json!({"s": "a"}), false);
    check(json!({"s": {"$exists": true}}), json!({"s": null}), true);
    check(json!({"s": {"$exists": false}}), json!({"s": null}), false);
    check(json!({"s": {"$exists": false}}), json!(null), true);
}

#[test]
fn and_or_not_combine() {
    let either = || json!({"$or": [{"a": 1}, {"b": {"$gt": 5}}]});
    check(either(), json!({"a": 1}), true);
    check(either(), json!({"b": 6}), true);
    check(either(), json!({"a": 2, "b": 5}), false);
    check(json!({"$and": [{"a": 1}, either()], "c": 3}), json!({"a": 1, "c": 3}), true);
    check(json!({"$and": [{"a": 1}, {"b": 1}]}), json!({"a": 1}), false);
    check(json!({"$not": {"a": 1, "b": 1}}), json!({"a": 1}), true);
    check(json!({"$not": {"a": 1}}), json!({"a": 1}), false);
    check(json!({"a": {"$not": {"$gt": 1, "$lt": 5}}}), json!({"a": 3}), false);
    check(json!({"a": {"$not": {"$gt": 1, "$lt": 5}}}), json!({"a": 7}), true);
    check(json!({"a": {"$not": {"$gt": 1}}}), json!({}), true);
}

#[test]
fn dots_reach_inside_unless_the_key_is_there_literally() {
    check(json!({"a.b": 1}), json!({"a": {"b": 1}}), true);
    check(json!({"a.b": 1}), json!({"a.b": 1, "a": {"b": 2}}), true);
    check(json!({"a.b": 2}), json!({"a.b": 1, "a": {"b": 2}}), false);
    check(json!({"a.b.c": {"$exists": true}}), json!({"a": {"b.c": 0}}), true);
    check(json!({"a.b": 1}), json!({"a": [{"b": 1}]}), false);
    check(json!({"a.": 1}), json!({"a": {"": 1}}), true);
}

#[test]
fn the_weight_of_a_filter_counts_its_conditions_and_the_values_of_lists() {
    for (filter, weight) in [
        (json!({}), 1),
        (json!({"a": 1}), 1),
        (json!({"a": 1, "b": {"$exists": true}}), 3),
        (json!({"$or": [{"a": 1}, {"b": 1}]}), 3),
        (json!({"$not": {"a": 1}}), 2),
        (json!({"a": {"$gte": 1, "$lt": 5}}), 3),
        (json!({"a": {"$not": {"$gte": 1, "$lt": 5}}}), 4),
        (json!({"a": {"$in": [1, 2, 3]}}), 4),
        (json!({"a": {"$nin": [1, 2, 3]}}), 5),
    ] {
        assert_eq!(Filter::parse(&filter).unwrap().weight(), weight, "{filter}");
    }
}

#[test]
fn refusals_say_what_to_write() {
    refused(json!("x"), "write an object");
    refused(json!({"a": {"$regex": "x"}}), "$eq $ne $gt $gte $lt $lte $in $nin $exists $not");
    refused(json!({"$nor": []}), "$and $or $not");
    refused(json!({"$gt": 1}), "the filter itself");
    refused(json!({"a": {"$and": []}}), "the condition on \"a\"");
    refused(json!({"a": {"$gt": true}}), "a number or a string");
    refused(json!({"a": {"$in": "x"}}), "a list of values");
    refused(json!({"a": {"$exists": 1}}), "true or false");
    refused(json!({"a": {"$not": {}}}), "an empty object");
    refused(json!({"a": {"$not": 5}}), "an object of operators");
    refused(json!({"a": {"$gt": 1, "b": 2}}), "mixes");
    refused(json!({"$or": []}), "an empty list");
    refused(json!({"$or": [1]}), "a number stands there");
    refused(json!({"$not": []}), "write an object");
}

#[test]
fn depth_has_a_limit() {
    let nested = |levels: usize| (1..levels).fold(json!({"a": 1}), |inner, _| json!({"$not": inner}));
    assert!(Filter::parse(&nested(32)).is_ok());
    assert_eq!(Filter::parse(&nested(33)), Err(FilterError::Depth));
    let tests = (0..32).fold(json!({"$gt": 1}), |inner, _| json!({"$not": inner}));
    assert_eq!(Filter::parse(&json!({"a": tests})), Err(FilterError::Depth));
}
