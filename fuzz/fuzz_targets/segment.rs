//! A segment: every column of its first rows, its indexes, and queries to a branch that sees it.
#![no_main]

use std::sync::Arc;

use engramfs::branch::BranchVersion;
use engramfs::search::Query;
use engramfs::segment::{Blocks, Segment};
use engramfs::vector::Metric;

const QUERIES: [&str; 4] = [
    r#"{"text": "the quick fox", "explain": true, "include": ["vector"]}"#,
    r#"{"vector": [1, 0, 0.5, -1], "k": 3}"#,
    r#"{"vector": [1, 0, 0.5, -1], "text": "fox", "exact": true}"#,
    r#"{"text": "note", "filter": {"$or": [{"kind": "note"}, {"size": {"$gte": 2}}, {"tags": {"$nin": ["a", null]}}]}}"#,
];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(segment) = Segment::open(&engramfs_fuzz::blobs_with(bytes), engramfs_fuzz::NAME) else { return };
    let segment = Arc::new(segment);
    let _ = (segment.verify(), segment.prefetch(), segment.hashes().is_ok(), segment.lower_bound("m", 0));
    let mut blocks = Blocks::default();
    for row in 0..segment.rows().min(20) {
        let _ = (
            segment.hash(row),
            segment.vector(row),
            segment.norm(row),
            segment.text_and_metadata(row),
            segment.row_totals(row),
        );
        let _ = (
            segment.version(row, &mut blocks),
            segment.provenance_and_content(row, &mut blocks),
            segment.provenance(row),
        );
        let _ = (segment.verified_id(row, &mut blocks), segment.verified_vector(row, &mut blocks));
        let _ = segment.verified_json_bytes(row, &mut blocks);
    }
    let mut state = BranchVersion::default();
    if state.put_segment(&segment).is_ok() {
        let state = Arc::new(state);
        for query in QUERIES {
            let query = Query::parse(query).expect("it is well formed");
            let _ = engramfs_fuzz::answer(state.clone(), Metric::Cosine, &query);
        }
    }
});
