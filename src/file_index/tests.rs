#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use super::{
    HiddenPaths, IndexKey, IndexSegment, IndexableContent, SegmentSet, VisibleFiles, VisiblePart, index_contents,
    merge_segments,
};
use crate::disk::ForgetfulDisk;
use crate::object::{BlobStore, Time};
use crate::segment::{FOLDER, SegmentError};
use crate::text::{CollectionTotals, PostingsWriter};
use crate::workspace::{FileName, FileOp, NewInode, NoPacks, ROOT, Tree};

/// A tree of files of these texts, one Markdown file each, and their inodes.
fn tree_with(texts: &[String]) -> (Tree, Vec<u64>) {
    let mut tree = Tree::new(0o755, 0, 0, Time(0));
    let mut add = |(n, text): (usize, &String)| {
        let name = FileName::new(format!("n{n}.md").as_bytes()).unwrap();
        let make = FileOp::Create { parent: ROOT, name, make: NewInode::File, mode: 0o644, uid: 0, gid: 0 };
        let inode = tree.apply(&make, Time(0), &NoPacks).unwrap().inode;
        tree.apply(&FileOp::Write { inode, offset: 0, bytes: text.as_bytes().into() }, Time(0), &NoPacks).unwrap();
        inode
    };
    let inodes = texts.iter().enumerate().map(&mut add).collect();
    (tree, inodes)
}

/// The contents of these files.
fn contents(texts: &[String]) -> Vec<IndexableContent> {
    let (tree, inodes) = tree_with(texts);
    inodes.iter().map(|inode| IndexableContent::from_node(tree.node(*inode).unwrap()).unwrap()).collect()
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

/// The rows that are shown of each segment, how often, and the sums over them.
fn shown_rows(files: &VisibleFiles) -> (Vec<Vec<(u32, u32)>>, CollectionTotals) {
    let rows = |part: &VisiblePart| -> Vec<(u32, u32)> {
        part.visible_rows().map(|row| (row, part.file_count(row))).collect()
    };
    (files.parts.iter().map(rows).collect(), files.totals)
}

/// What a tree shows of one segment, first as it is looked up anew, then where another segment was shown before.
fn shown_anew_and_after(tree: &Tree, old: &Arc<IndexSegment>, new: &Arc<IndexSegment>) -> [VisibleFiles; 2] {
    let hidden = HiddenPaths { rules: "".into(), hides: None };
    let [before, after] =
        [(1, old), (2, new)].map(|(version, segment)| SegmentSet { version, segments: vec![segment.clone()] });
    let none = VisibleFiles::none(hidden.clone());
    let shown = none.updated_for(tree, &hidden, &before).unwrap();
    [none, shown].map(|files| files.updated_for(tree, &hidden, &after).unwrap())
}

#[test]
fn another_segment_with_the_same_contents_shows_the_same() {
    let all = texts(60);
    // Every third, and one of them in three files.
    let mut own: Vec<String> = all.iter().step_by(3).cloned().collect();
    own.extend([own[1].clone(), own[1].clone()]);
    let [expected, found] = shown_anew_and_after(&tree_with(&own).0, &index(&all[..58]), &index(&all));
    assert_eq!((shown_rows(&found), found.counts()), (shown_rows(&expected), (own.len() as u64, 0)));
    assert!(shown_rows(&found).0[0].iter().any(|(_, times)| *times == 3));
}

#[test]
fn of_a_segment_that_is_replaced_what_other_branches_show_is_not_looked_at() {
    let mut all = ["words one", "words two two", "words three three three"].map(str::to_owned).to_vec();
    all.sort_by_key(|text| contents(std::slice::from_ref(text))[0].key);
    let mut postings = PostingsWriter::new();
    for (row, text) in (0..).zip(&all) {
        postings.add(row, Some(text), &serde_json::Value::Null);
    }
    let keys = all.iter().flat_map(|text| contents(std::slice::from_ref(text))[0].key.0.0).collect();
    // A row each; where the third begins is wrong, as whoever looks at the rows of the second or the third finds.
    let first_rows = [0, 1, u32::MAX, 3].iter().flat_map(|row| row.to_le_bytes()).collect();
    let sections = [keys, first_rows, vec![0; 36], vec![0; 48], postings.finish()];
    assert!([1, 2].iter().all(|n| IndexSegment::from_sections(sections.clone()).content_rows(*n).is_err()));

    let old = Arc::new(IndexSegment::from_sections(sections));
    let [expected, found] = shown_anew_and_after(&tree_with(&all[..1]).0, &old, &index(&all));
    assert!(!old.is_broken());
    assert_eq!((shown_rows(&found), found.counts()), (shown_rows(&expected), (1, 0)));
}
