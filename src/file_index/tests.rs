#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use super::{IndexKey, IndexSegment, IndexableContent, index_contents, merge_segments};
use crate::disk::ForgetfulDisk;
use crate::object::{BlobStore, Time};
use crate::segment::{FOLDER, SegmentError};
use crate::workspace::{FileName, FileOp, NewInode, NoPacks, ROOT, Tree};

/// The contents of files of these texts, one Markdown file each.
fn contents(texts: &[String]) -> Vec<IndexableContent> {
    let mut tree = Tree::new(0o755, 0, 0, Time(0));
    let mut add = |(n, text): (usize, &String)| {
        let name = FileName::new(format!("n{n}.md").as_bytes()).unwrap();
        let make = FileOp::Create { parent: ROOT, name, make: NewInode::File, mode: 0o644, uid: 0, gid: 0 };
        let inode = tree.apply(&make, Time(0), &NoPacks).unwrap().inode;
        tree.apply(&FileOp::Write { inode, offset: 0, bytes: text.as_bytes().into() }, Time(0), &NoPacks).unwrap();
        IndexableContent::from_node(tree.node(inode).unwrap()).unwrap()
    };
    texts.iter().enumerate().map(&mut add).collect()
}

fn index(texts: &[String]) -> Arc<IndexSegment> {
    index_contents(contents(texts), &NoPacks).segment.unwrap()
}

/// Everything that a segment says of its contents.
fn dump(segment: &IndexSegment) -> Vec<(IndexKey, Vec<super::PassageLocation>, Vec<u32>)> {
    let postings = segment.postings().unwrap();
    let content = |n| {
        let rows = segment.content_rows(n).unwrap();
        assert!(rows.clone().all(|row| segment.row_key(row).unwrap() == segment.key(n).unwrap()));
        assert_eq!(segment.find(&segment.key(n).unwrap()).unwrap(), Some(rows.clone()));
        let lengths = rows.clone().map(|row| postings.length(row)).collect();
        (segment.key(n).unwrap(), rows.map(|row| segment.passage_location(row).unwrap()).collect(), lengths)
    };
    (0..segment.contents()).map(content).collect()
}

fn texts(count: usize) -> Vec<String> {
    let text = |n: usize| match n % 5 {
        0 => format!("\0 binary {n}"),
        1 => String::new(),
        _ => format!("# Title {n}\n\nbody of {n}\n\n## Part\n\n{}", "more ".repeat(n * 37 % 600)),
    };
    (0..count).map(text).collect()
}

#[test]
fn merged_segments_are_the_segment_of_all_their_contents() {
    let all = texts(60);
    let parts: Vec<_> = all.chunks(13).map(index).collect();
    let merged = merge_segments(&parts, |_| true).unwrap().unwrap();
    assert_eq!(dump(&merged), dump(&index(&all)));
    let kept: Vec<String> = all.iter().enumerate().filter(|(n, _)| n % 3 > 0).map(|(_, text)| text.clone()).collect();
    let keys: Vec<IndexKey> = contents(&kept).iter().map(|content| content.key).collect();
    let pruned = merge_segments(std::slice::from_ref(&merged), |key| keys.contains(key)).unwrap().unwrap();
    assert_eq!(dump(&pruned), dump(&index(&kept)));
    assert!(merge_segments(std::slice::from_ref(&merged), |_| false).unwrap().is_none());
}

#[test]
fn a_segment_in_a_file_is_that_in_memory() {
    let blobs = BlobStore::new(Arc::new(ForgetfulDisk::new()), FOLDER).unwrap();
    let segment = index(&texts(40));
    let file = segment.persist(&blobs).unwrap();
    assert_eq!(dump(&file), dump(&segment));
    file.verify().unwrap();
    assert!(!file.is_broken() && file.name().is_some() && segment.name().is_none());
}

#[test]
fn a_file_whose_sections_do_not_fit_together_is_no_segment() {
    let blobs = BlobStore::new(Arc::new(ForgetfulDisk::new()), FOLDER).unwrap();
    // One content of one passage: its key, two row numbers, a location and the passage's key.
    let fitting = [32, 8, 12, 16, 0];
    let persist = |lengths: [usize; 5]| {
        IndexSegment::from_sections(lengths.map(|length| vec![0; length])).persist(&blobs).map(|_| ())
    };
    persist(fitting).unwrap();
    for section in 0..4 {
        for more in [1, fitting[section]] {
            let mut lengths = fitting;
            lengths[section] += more;
            assert!(matches!(persist(lengths), Err(SegmentError::Damaged { .. })), "{lengths:?}");
        }
    }
}
