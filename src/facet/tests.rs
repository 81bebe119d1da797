//! The module against its own promises: what comes back, and what damage does.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::*;

fn index(records: &[Value]) -> Vec<u8> {
    let mut writer = FacetsWriter::new();
    records.iter().zip(0..).for_each(|(metadata, row)| writer.add(row, metadata));
    writer.finish()
}

/// Enough for marks, and not a multiple of 8.
const ROWS: u64 = 4101;

fn records() -> Vec<Value> {
    let record = |i: u64| {
        json!({
            "kind": if i.is_multiple_of(3) { "note" } else { "task" }, "n": i, "half": i as f64 / 2.0, "id": format!("{:032x}", i * i),
            "tags": [i % 7, format!("t{}", i % 11), null, [i]], "in": {"side": i.is_multiple_of(2)}, "o": null,
        })
    };
    (0..ROWS).map(record).collect()
}

/// Every query that the index answers, of every path that `records` has.
fn ask_all(facets: &Facets<'_>) -> Vec<RowSet> {
    let operands =
        [json!(null), json!(true), json!(5), json!(700.5), json!("note"), json!("t3"), json!([5]), json!({})];
    let wanted = [[Ordering::Less; 2], [Ordering::Less, Ordering::Equal], [Ordering::Greater; 2]];
    let mut answers = Vec::new();
    for path in ["kind", "n", "half", "id", "tags", "in", "in.side", "o", "none"] {
        answers.push(facets.rows_with_path(path));
        answers.push(facets.rows_equal_to_any(path, &operands));
        for operand in &operands {
            answers.push(facets.rows_equal_to(path, operand));
            answers.extend(wanted.map(|wanted| facets.rows_in_bounds(path, &[Bound { operand, wanted }])));
        }
    }
    answers
}

#[test]
fn equality_and_order_by_hand() {
    let bytes =
        index(&[json!({"a": 1}), json!({"a": [1.0, "x"]}), json!({"a": 2.5}), json!({"b": 1}), json!({"a": "x"})]);
    let facets = Facets::open(&bytes).unwrap();
    let rows = |rows: &[u32]| RowSet::from_certain(rows.iter().copied().collect());
    assert_eq!(facets.rows(), 5);
    assert_eq!(facets.rows_with_path("a"), rows(&[0, 1, 2, 4]));
    assert_eq!(facets.rows_equal_to("a", &json!(1)), rows(&[0, 1]));
    assert_eq!(facets.rows_equal_to("a", &json!("x")), rows(&[1, 4]));
    assert_eq!(facets.rows_equal_to_any("a", &[json!(2.5), json!("x")]), rows(&[1, 2, 4]));
    let ordered = |operand: Value, wanted| facets.rows_in_bounds("a", &[Bound { operand: &operand, wanted }]);
    assert_eq!(ordered(json!(1), [Ordering::Greater, Ordering::Equal]), rows(&[0, 2]));
    assert_eq!(ordered(json!(1), [Ordering::Greater; 2]), rows(&[2]));
    assert_eq!(ordered(json!("y"), [Ordering::Less; 2]), rows(&[4]));
    assert_eq!(facets.rows_equal_to("missing", &json!(1)), RowSet::none());
    assert_eq!(facets.rows_equal_to("a", &json!([1, "x"])).uncertain, [1].into_iter().collect());
}

#[test]
fn an_empty_index_has_no_rows() {
    let bytes = FacetsWriter::new().finish();
    let facets = Facets::open(&bytes).unwrap();
    assert_eq!((facets.rows(), facets.rows_with_path("a")), (0, RowSet::none()));
}

#[test]
fn the_bytes_depend_on_the_metadata_alone() {
    assert_eq!(index(&records()), index(&records()));
}

#[test]
fn a_row_that_was_left_out_has_nothing() {
    let mut writer = FacetsWriter::new();
    writer.add(3, &json!({"a": 1}));
    let bytes = writer.finish();
    let facets = Facets::open(&bytes).unwrap();
    assert_eq!(facets.rows(), 4);
    assert_eq!(facets.rows_with_path("a").not(4).certain.len(), 3);
}

#[test]
fn long_lists_are_left_open() {
    let list: Vec<u32> = (0..=writer::ITEMS_MAX as u32).collect();
    let bytes = index(&[json!({"a": list}), json!({"a": [1]})]);
    let facets = Facets::open(&bytes).unwrap();
    let rows = facets.rows_equal_to("a", &json!(1));
    assert_eq!((rows.certain.min(), rows.uncertain.min()), (Some(1), Some(0)));
}

#[test]
fn other_bytes_are_refused() {
    let bytes = index(&records()[..10]);
    assert_eq!(Facets::open(&[]).unwrap_err(), FacetError::Magic);
    assert_eq!(Facets::open(&bytes[1..]).unwrap_err(), FacetError::Magic);
    assert_eq!(Facets::open(&bytes[..bytes.len() - 1]).unwrap_err(), FacetError::Size { bytes: bytes.len() - 1 });
    let mut newer = bytes;
    newer[7] += 1;
    assert_eq!(Facets::open(&newer).unwrap_err(), FacetError::Version { found: 2 });
}

#[test]
fn damaged_bytes_never_panic_and_never_name_rows_that_are_not_there() {
    let bytes = index(&records());
    let whole = ask_all(&Facets::open(&bytes).unwrap());
    let (mut opened, mut differing) = (0, 0);
    // All of the first places, where headers and directories are, and a thousand others.
    let step = bytes.len() / 1000;
    for at in (0..bytes.len()).filter(|at| *at < 600 || at % step == 0) {
        for value in [!bytes[at], 0xff, 0] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            let Ok(facets) = Facets::open(&damaged) else { continue };
            opened += 1;
            if u64::from(facets.rows()) != ROWS {
                continue;
            }
            let answers = ask_all(&facets);
            differing += usize::from(answers != whole);
            assert!(answers.into_iter().all(|rows| rows.possible().max() < Some(ROWS as u32)), "byte {at}");
        }
    }
    assert!(opened > 1000 && differing > 500, "{opened} opened, {differing} differ");
}

#[test]
fn damaged_bytes_never_put_a_row_into_both_sets() {
    let long = "a".repeat(200);
    let bytes = index(&[json!({"s": long}), json!({"s": "b"})]);
    let operand = json!(long[..150]);
    let bounds = [Bound { operand: &operand, wanted: [Ordering::Greater, Ordering::Equal] }];
    let whole = Facets::open(&bytes).unwrap().rows_in_bounds("s", &bounds);
    assert_eq!((whole.certain.len(), whole.uncertain.len()), (1, 1));
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let Ok(facets) = Facets::open(&damaged) else { continue };
        let rows = facets.rows_in_bounds("s", &bounds);
        assert!(rows.certain.is_disjoint(&rows.uncertain), "bit {bit}");
    }
}
