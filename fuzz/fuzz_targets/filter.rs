//! A filter on the first line and metadata on the others: the index of a segment gives the rows that match one by one.
#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;

use engramfs::memory::{RecordInput, RecordPatch};
use engramfs::record::filterable_metadata;
use engramfs::search::{Filter, Query};
use engramfs::vector::Metric;
use serde_json::{Value, json};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let mut lines = text.lines();
    let Some(Ok(filter)) = lines.next().map(serde_json::from_str::<Value>) else { return };
    let Ok(parsed) = Filter::parse(&filter) else { return };
    let mut records = BTreeMap::new();
    for (number, line) in lines.take(100).enumerate() {
        let document = format!("{{\"vector\": [1], \"metadata\": {line}}}");
        let id = format!("{number:03}");
        if let Ok(Some(record)) = RecordPatch::parse(&id, document.as_bytes()) {
            records.insert(Arc::<str>::from(id), engramfs_fuzz::whole(record));
        }
    }
    let matching = |record: &RecordInput| {
        let metadata = serde_json::from_str(&record.metadata).expect("it is JSON");
        parsed.matches(&filterable_metadata(metadata, &engramfs_fuzz::provenance()))
    };
    let expected: Vec<Arc<str>> =
        records.iter().filter(|(_, record)| matching(record)).map(|(id, _)| id.clone()).collect();
    let query = json!({ "vector": [1], "k": 1000, "filter": filter }).to_string();
    let Ok(query) = Query::parse(&query) else { return };
    for state in engramfs_fuzz::branches(&records) {
        let hits = engramfs_fuzz::answer(state, Metric::L2, &query).expect("nothing is damaged").hits;
        let found: Vec<Arc<str>> = hits.into_iter().map(|hit| hit.id).collect();
        assert_eq!(found, expected);
    }
});
