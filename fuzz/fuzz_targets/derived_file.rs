//! A file of derived vectors, beside a segment that is there: its columns, its vectors, and queries that compare them.
#![no_main]

use std::sync::Arc;

use engramfs::search::{DerivedVectors, Query};
use engramfs::segment::DerivedFile;
use engramfs::vector::Metric;

const QUERIES: [&str; 3] = [
    r#"{"vector": [1, 0, 0.5, -1], "k": 2}"#,
    r#"{"vector": [1, 0, 0.5, -1], "text": "fox", "exact": true}"#,
    r#"{"id": "a"}"#,
];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = DerivedFile::open(&engramfs_fuzz::blobs_with(bytes), engramfs_fuzz::NAME) else { return };
    let file = Arc::new(file);
    let is_whole = file.verify().is_ok();
    let _ = (file.find(&engramfs_fuzz::NAME), file.vector(0), file.vector(u32::MAX));
    let Ok(columns) = file.columns() else { return };
    for row in 0..20 {
        let Some(number) = columns.number(row) else { continue };
        let (code, _) = columns.code(number);
        assert!(!columns.is_unembedded(row) && code.bytes.len() == file.dim());
        assert!(!is_whole || file.vector(number).expect("it was verified").len() == file.dim());
    }
    // The name of a set of vectors has their dimension in it.
    if file.dim() != 4 {
        return;
    }
    let [_, state, _] = engramfs_fuzz::states();
    state.layers().iter().for_each(|layer| layer.segment.derived().attach(file.clone()));
    let derived = DerivedVectors { embedder: file.embedder(), dim: 4, recent: Default::default() };
    let _ = (derived.unembedded(&state), derived.has_any(&state));
    for query in QUERIES {
        let query = Query::parse(query).expect("it is well formed");
        let _ = engramfs_fuzz::answer_with(Some(derived.clone()), state.clone(), Metric::Cosine, &query);
    }
});
