//! The metadata index of a segment, asked for a path and a value in front of it, each on a line.
#![no_main]

use std::cmp::Ordering;

use engramfs::facet::{Bound, Facets, RowSet};
use serde_json::Value;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (query, index) = engramfs_fuzz::split(bytes);
    let Ok(facets) = Facets::open(index) else { return };
    let query = String::from_utf8_lossy(query);
    let (path, value) = query.split_once('\n').unwrap_or((&query, "1"));
    let value: Value = serde_json::from_str(value).unwrap_or(Value::Null);
    let check = |rows: RowSet| {
        assert!(rows.certain.is_disjoint(&rows.uncertain));
        assert!(rows.possible().max().is_none_or(|row| row < facets.rows()));
    };
    check(facets.rows_with_path(path));
    check(facets.rows_equal_to(path, &value));
    check(facets.rows_equal_to_any(path, &[value.clone(), Value::Null, Value::Bool(true), "a".into(), 1.into()]));
    for wanted in [[Ordering::Less; 2], [Ordering::Greater, Ordering::Equal]] {
        let one = Value::from(1);
        check(facets.rows_in_bounds(path, &[Bound { operand: &value, wanted }, Bound { operand: &one, wanted }]));
        check(facets.rows_in_bounds(path, &[Bound { operand: &value, wanted }]));
    }
});
