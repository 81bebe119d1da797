//! A segment of the index of files: every content and passage, its words, and a merge of it with itself.
#![no_main]

use engramfs::file_index::{IndexSegment, merge_segments};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(segment) = IndexSegment::open(&engramfs_fuzz::blobs_with(bytes), engramfs_fuzz::NAME) else { return };
    let _ = (segment.verify(), segment.vector_keys(), segment.bytes());
    for n in 0..segment.contents().min(20) {
        let Ok(key) = segment.key(n) else { continue };
        if let Ok(Some(rows)) = segment.find(&key) {
            assert!(rows.end <= segment.rows());
        }
        if let Ok(rows) = segment.content_rows(n) {
            for row in rows.take(20) {
                let _ = (segment.row_key(row), segment.passage_location(row));
            }
        }
    }
    let _ = (
        segment.key(u32::MAX),
        segment.content_rows(u32::MAX),
        segment.passage_location(u32::MAX),
        segment.row_key(u32::MAX),
    );
    if let Ok(postings) = segment.postings()
        && let Some(list) = postings.term("fox")
    {
        assert!(list.clone().all(|(row, count)| row < postings.rows() && count > 0));
    }
    if let Ok(Some(merged)) = merge_segments(&[segment.clone(), segment.clone()], |_| true) {
        assert!(merged.contents() <= segment.contents() && merged.postings().is_ok());
    }
});
