//! What the index selects against what each record's own metadata says, on random records and filters.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::cell::Cell;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::*;
use crate::branch::VisibleRows;
use crate::disk::ForgetfulDisk;
use crate::facet::FacetsWriter;
use crate::object::BlobStore;
use crate::record::{Provenance, RecordContent, Version};
use crate::segment::{FOLDER, Row, write_segment};

/// A small generator of repeatable numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }

    /// A key; some of them are spelled like paths of others.
    fn key(&mut self) -> String {
        let mut key = self.pick(&["a", "b", "c", "a.b", "b.c", "a.b.c", "", ".a", "é"]).to_owned();
        if self.below(40) == 0 {
            key = "k".repeat(200 + self.below(100) as usize);
        }
        key
    }

    /// A key of a filter: often a path of several keys.
    fn path(&mut self) -> String {
        (0..self.below(3)).fold(self.key(), |path, _| format!("{path}.{}", self.key()))
    }

    fn number(&mut self) -> Value {
        let big = 1u64 << 53;
        match self.below(8) {
            0..=2 => json!(self.below(5)),
            3 => json!(-(self.below(5) as i64)),
            4 => json!(self.below(8) as f64 / 2.0 - 2.0),
            5 => self.pick(&[json!(big), json!(big + 1), json!(big as f64), json!(big + 2), json!(-(big as i64) - 1)]),
            6 => self.pick(&[json!(u64::MAX), json!(i64::MAX), json!(i64::MIN), json!(1e300), json!(-1e300)]),
            _ => self.pick(&[json!(18_446_744_073_709_551_616.0), json!(-0.0), json!(5e-324), json!(1u64 << 62)]),
        }
    }

    fn string(&mut self) -> Value {
        let text = match self.below(8) {
            0..=3 => self.pick(&["", "x", "xy", "y", "1", "é"]).to_owned(),
            // Random ids are cut, these have neighbours that share much of them.
            4 | 5 => format!("{:016x}{:016x}", self.below(200).wrapping_mul(0x9e37_79b9_7f4a_7c15), self.below(2)),
            6 => format!("{}{}", "long ".repeat(24), "abcdefghij".get(..self.below(10) as usize).unwrap()),
            _ => "z".repeat(120 + self.below(20) as usize),
        };
        json!(text)
    }

    fn scalar(&mut self) -> Value {
        match self.below(8) {
            0 => json!(null),
            1 => json!(self.below(2) == 0),
            2..=4 => self.number(),
            _ => self.string(),
        }
    }

    fn value(&mut self, depth: u32) -> Value {
        match self.below(10) {
            0 | 1 if depth > 0 => Value::Object(self.object(depth - 1)),
            2 | 3 if depth > 0 => {
                let length = if self.below(40) == 0 { 300 } else { self.below(4) };
                (0..length).map(|_| self.value(depth - 1)).collect()
            }
            _ => self.scalar(),
        }
    }

    fn object(&mut self, depth: u32) -> Map<String, Value> {
        (0..self.below(5)).map(|_| (self.key(), self.value(depth))).collect()
    }

    fn metadata(&mut self) -> Value {
        match self.below(20) {
            0 => json!({}),
            1 => self.scalar(),
            _ => Value::Object(self.object(3)),
        }
    }

    fn filter(&mut self, depth: u32) -> Value {
        let filters = |random: &mut Self| (0..=random.below(3)).map(|_| random.filter(depth - 1)).collect::<Value>();
        match self.below(8) {
            0 if depth > 0 => json!({"$and": filters(self)}),
            1 if depth > 0 => json!({"$or": filters(self)}),
            2 if depth > 0 => json!({"$not": self.filter(depth - 1)}),
            _ => (0..self.below(3)).map(|_| (self.path(), self.condition())).collect::<Map<_, _>>().into(),
        }
    }

    fn condition(&mut self) -> Value {
        if self.below(3) == 0 {
            return json!({"$eq": self.value(2)});
        }
        (0..=self.below(2)).map(|_| self.operator(2)).collect::<Map<_, _>>().into()
    }

    fn operator(&mut self, depth: u32) -> (String, Value) {
        let name = self.pick(&["$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists", "$not"]);
        let operand = match name {
            "$eq" | "$ne" => self.value(2),
            "$in" | "$nin" => (0..self.below(4)).map(|_| self.value(1)).collect(),
            "$exists" => json!(self.below(2) == 0),
            "$not" if depth == 0 => return self.operator(0),
            "$not" => [self.operator(depth - 1)].into_iter().collect::<Map<_, _>>().into(),
            _ if self.below(2) == 0 => self.number(),
            _ => self.string(),
        };
        (name.to_owned(), operand)
    }
}

fn index(records: &[Value]) -> Vec<u8> {
    let mut writer = FacetsWriter::new();
    records.iter().zip(0..).for_each(|(metadata, row)| writer.add(row, metadata));
    writer.finish()
}

#[track_caller]
fn check(records: &[Value], facets: &Facets<'_>, filter: &Value) -> RowSet {
    let parsed = Filter::parse(filter).unwrap();
    let rows = parsed.rows_by_index(facets, &QueryTimer::new(&|| None)).unwrap();
    assert!(rows.certain.is_disjoint(&rows.uncertain), "{filter}");
    for (metadata, row) in records.iter().zip(0..) {
        match parsed.matches(metadata) {
            true => assert!(rows.certain.contains(row) || rows.uncertain.contains(row), "{filter} misses {metadata}"),
            false => assert!(!rows.certain.contains(row), "{filter} selects {metadata}"),
        }
    }
    assert!(rows.clone().possible().max() < Some(facets.rows()), "{filter}");
    rows
}

#[test]
fn random_filters_select_what_matches() {
    for (seed, count) in [(1, 1), (2, 40), (3, 700), (4, 3000)] {
        let mut random = Random(seed);
        let records: Vec<Value> = (0..count).map(|_| random.metadata()).collect();
        let bytes = index(&records);
        let facets = Facets::open(&bytes).unwrap();
        let (mut sure, mut unsure) = (0, 0);
        for _ in 0..1_200_000 / (count + 400) {
            let rows = check(&records, &facets, &random.filter(2));
            sure += rows.certain.len();
            unsure += rows.uncertain.len();
        }
        // Both kinds of answer were met; metadata so wild leave more open than people's do.
        assert!(count == 1 || (sure > 0 && unsure > 0 && unsure < sure), "{sure} sure, {unsure} unsure");
    }
}

/// Metadata as agents write it leave the index in no doubt.
#[test]
fn plain_metadata_are_selected_for_certain() {
    let mut random = Random(9);
    let record = |i: u64, random: &mut Random| {
        json!({
            "kind": random.pick(&["note", "task", "fact"]), "words": random.below(60), "n": i, "score": i as f64 / 7.0,
            "time": format!("2024-05-{:02}T{:02}:{:02}:00Z", 1 + i % 30, i % 24, i % 60), "done": i.is_multiple_of(5),
            "tags": [random.pick(&["red", "green"]), format!("tag {}", random.below(40))], "source": {"page": i % 90},
        })
    };
    let records: Vec<Value> = (0..20_000).map(|i| record(i, &mut random)).collect();
    let bytes = index(&records);
    let facets = Facets::open(&bytes).unwrap();
    for filter in [
        json!({"kind": "note"}),
        json!({"kind": {"$in": ["note", "fact", "missing"]}}),
        json!({"words": {"$lt": 30}}),
        json!({"words": {"$gte": 3, "$ne": 7}, "done": true}),
        json!({"n": {"$lt": 20}}),
        json!({"n": {"$gte": 10_000}}),
        json!({"n": {"$gt": 5_000, "$lte": 12_000}}),
        json!({"n": {"$gt": 19_999}}),
        json!({"score": {"$gt": 0.5, "$lt": 1500.25}}),
        json!({"time": {"$gte": "2024-05-10", "$lt": "2024-05-11"}}),
        json!({"tags": "red", "source.page": {"$lt": 9}}),
        json!({"tags": {"$nin": ["red", "tag 7"]}}),
        json!({"$or": [{"tags": "tag 7"}, {"$not": {"n": {"$gt": 3}}}]}),
        json!({"missing": {"$exists": false}}),
        json!({}),
    ] {
        let rows = check(&records, &facets, &filter);
        assert!(rows.uncertain.is_empty(), "{filter} leaves {} rows", rows.uncertain.len());
    }
}

#[test]
fn random_ids_are_looked_at_where_they_are_asked_for() {
    let mut random = Random(5);
    let records: Vec<Value> =
        (0..5000).map(|_| json!({"id": format!("{:016x}{:016x}", random.next(), random.next())})).collect();
    let bytes = index(&records);
    assert!(bytes.len() < 5000 * 12, "{} bytes for 5000 ids of 32", bytes.len());
    let facets = Facets::open(&bytes).unwrap();
    for record in records.iter().step_by(97) {
        let id = &record["id"];
        assert_eq!(check(&records, &facets, &json!({"id": id})).uncertain.len(), 1);
        check(&records, &facets, &json!({"id": {"$gt": id}}));
        check(&records, &facets, &json!({"id": {"$lte": id}}));
        check(&records, &facets, &json!({"id": {"$gte": id.as_str().unwrap().get(..9)}}));
    }
    assert!(check(&records, &facets, &json!({"id": "0"})).is_empty());
}

#[test]
fn keys_that_are_data_stay_findable() {
    let records: Vec<Value> = (0..3000).map(|i| json!({"seen": {format!("id {i}"): i % 3}, "kind": i % 4})).collect();
    let bytes = index(&records);
    assert!(bytes.len() < 500_000, "{} bytes", bytes.len());
    let facets = Facets::open(&bytes).unwrap();
    assert_eq!(check(&records, &facets, &json!({"kind": 2})).certain.len(), 750);
    for i in [0, 999, 1500, 2999] {
        check(&records, &facets, &json!({format!("seen.id {i}"): i % 3}));
        check(&records, &facets, &json!({format!("seen.id {i}"): {"$exists": false}}));
    }
}

/// Ten rows with an object each, of which the index says nothing, and with a text so long that no block of the file has bytes
/// of two rows that are not neighbours. Returns the path of the file, too.
fn ten_objects(disk: &ForgetfulDisk) -> (Arc<Segment>, String) {
    let blobs = BlobStore::new(Arc::new(disk.clone()), FOLDER).unwrap();
    let row = |n: u32| {
        let (text, metadata) = (Some("x".repeat(70_000).into()), format!("{{\"a\":{{\"n\":{n}}}}}").into());
        let content = RecordContent { vector: None, text, metadata };
        Row::Unsealed(Arc::new(Version::new(format!("{n}").into(), content, Provenance::sample())))
    };
    let name = write_segment(&blobs, &(0..10).map(row).collect::<Vec<Row>>(), 0).unwrap();
    (Arc::new(Segment::open(&blobs, name).unwrap()), blobs.path(&name))
}

/// Metadata of rows of all branches were read, and each query failed where one of them was damaged.
#[test]
fn metadata_of_hidden_rows_are_not_read() {
    let disk = ForgetfulDisk::new();
    let (segment, path) = ten_objects(&disk);
    let at = disk.bytes(&path).unwrap().windows(7).position(|bytes| bytes == b"{\"n\":9}").unwrap();
    disk.flip(&path, at as u64, 1).unwrap();
    let filter = Filter::parse(&json!({"a": {"$in": [{"n": 1}, {"n": 2}, {"n": 9}]}})).unwrap();
    let select = |visible: VisibleRows| {
        let layer = Layer { segment: segment.clone(), visible };
        filter.select(&layer, &QueryTimer::new(&|| None))
    };
    let mut visible = VisibleRows::none(10);
    [0, 1, 3].into_iter().for_each(|row| visible.set(row, true));
    assert_eq!(select(visible.clone()).unwrap(), RoaringBitmap::from_iter([1u32]));
    visible.set(2, true);
    assert_eq!(select(visible).unwrap(), RoaringBitmap::from_iter([1u32, 2]));
    assert!(
        matches!(select(VisibleRows::all(10)), Err(SearchError::Segment(_))),
        "a control: it is read if it is visible"
    );
}

/// A row counted alike whatever its bytes, and hundreds of large ones were read between two looks at the clock.
#[test]
fn the_timer_is_charged_for_the_bytes_of_rows_that_are_read() {
    let (segment, _) = ten_objects(&ForgetfulDisk::new());
    let filter = Filter::parse(&json!({"a": {"$eq": {"n": 4}}})).unwrap();
    let asked = Cell::new(0);
    let ask = || {
        asked.set(asked.get() + 1);
        (asked.get() > 3).then_some(SearchError::Timeout(5))
    };
    let mut visible = VisibleRows::none(10);
    (0..3).for_each(|row| visible.set(row, true));
    let layer = Layer { segment: segment.clone(), visible };
    assert!(filter.select(&layer, &QueryTimer::new(&ask)).unwrap().is_empty());
    assert_eq!(asked.get(), 3, "once a row");
    asked.set(0);
    let layer = Layer { segment, visible: VisibleRows::all(10) };
    assert!(matches!(filter.select(&layer, &QueryTimer::new(&ask)), Err(SearchError::Timeout(5))));
}
