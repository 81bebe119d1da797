//! Files whose hashes hold and whose parts contradict one another: each was found by a fuzz target.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use super::columns::{FACETS, KIND, PAYLOAD_ENDS, POSTINGS};
use super::*;
use crate::disk::ForgetfulDisk;
use crate::object::{BlobStore, Hash, SetHash, Writer};
use crate::record::{Provenance, RecordContent, Version};

fn blobs() -> BlobStore {
    BlobStore::new(Arc::new(ForgetfulDisk::new()), FOLDER).unwrap()
}

/// Writes a segment of one row, and the same again as `forge` changes its sections and its number of rows.
fn forged(blobs: &BlobStore, forge: impl Fn(&mut Vec<Vec<u8>>, &mut u64)) -> Hash {
    let content = RecordContent { vector: Some([1.0, 2.0].into()), text: Some("text".into()), metadata: "{}".into() };
    let row = Row::Unsealed(Arc::new(Version::new("a".into(), content, Provenance::sample())));
    let file = Container::open(blobs, write_segment(blobs, &[row], 2).unwrap(), KIND).unwrap();
    let mut sections = (0..=FACETS).map(|section| file.read_section(section).unwrap()).collect();
    let mut rows = 1;
    forge(&mut sections, &mut rows);
    let mut out = ContainerWriter::new(blobs).unwrap();
    for section in &sections {
        out.begin().unwrap();
        out.write(section).unwrap();
    }
    let mut extra = Writer::new();
    extra.number(rows).number(2);
    RowTotals::default().write(&mut extra);
    extra.bytes(&SetHash::default().to_bytes());
    out.finish(KIND, extra.as_slice()).unwrap()
}

fn is_damaged<T>(result: Result<T, SegmentError>) -> bool {
    matches!(result, Err(SegmentError::Damaged { .. }))
}

#[test]
fn a_segment_without_all_sections_is_damaged() {
    let blobs = blobs();
    assert!(Segment::open(&blobs, forged(&blobs, |_, _| {})).is_ok());
    for left in 0..=FACETS {
        let name = forged(&blobs, |sections, _| sections.truncate(left));
        // The indexes are not looked at before they are needed.
        let facets = Segment::open(&blobs, name).and_then(|segment| segment.facets().map(drop));
        assert!(is_damaged(facets), "{left} sections");
    }
}

#[test]
fn a_section_that_a_later_version_added_is_skipped() {
    let blobs = blobs();
    let name = forged(&blobs, |sections, _| sections.push(b"of a later version".into()));
    let segment = Segment::open(&blobs, name).unwrap();
    assert!(segment.facets().is_ok());
    assert_eq!(segment.id(0).unwrap(), "a");
}

#[test]
fn a_segment_with_more_rows_than_its_columns_is_damaged() {
    let blobs = blobs();
    for claimed in [0, 2, u64::from(u32::MAX)] {
        let name = forged(&blobs, |_, rows| *rows = claimed);
        assert!(is_damaged(Segment::open(&blobs, name)), "{claimed} rows");
    }
}

/// What a seal or a bulk commit has written is refused by it, and not by queries later.
#[test]
fn an_index_that_is_damaged_is_found_when_its_segment_is_prefetched() {
    let disk = ForgetfulDisk::new();
    let blobs = BlobStore::new(Arc::new(disk.clone()), FOLDER).unwrap();
    let name = forged(&blobs, |_, _| {});
    assert!(Segment::open(&blobs, name).unwrap().prefetch().is_ok());
    for section in [POSTINGS, FACETS] {
        let index = Container::open(&blobs, name, KIND).unwrap().read_section(section).unwrap();
        let content = disk.bytes(&blobs.path(&name)).unwrap();
        let at = content.windows(index.len()).position(|bytes| bytes == index).unwrap();
        disk.flip(&blobs.path(&name), at as u64, 1).unwrap();
        assert!(is_damaged(Segment::open(&blobs, name).unwrap().prefetch()), "section {section}");
        disk.flip(&blobs.path(&name), at as u64, 1).unwrap();
    }
}

#[test]
fn a_payload_shorter_than_its_fixed_part_is_damaged() {
    let blobs = blobs();
    let name = forged(&blobs, |sections, _| sections[PAYLOAD_ENDS].fill(0));
    assert!(is_damaged(Segment::open(&blobs, name).unwrap().row_totals(0)));
}

#[test]
fn a_row_wants_a_vector_of_its_text_unless_it_has_one_that_is_not_older() {
    let blobs = blobs();
    let version = |id: &str, has_vector: bool, vector_stale: bool, text: Option<&str>| {
        let vector: Option<Arc<[f32]>> = has_vector.then(|| [1.0, 2.0].into());
        let content = RecordContent { vector, text: text.map(Arc::from), metadata: "{}".into() };
        Arc::new(Version::new(id.into(), content, Provenance { vector_stale, ..Provenance::sample() }))
    };
    let versions = [
        version("a", false, false, Some("has no vector")),
        version("b", true, false, Some("has a vector")),
        version("c", true, true, Some("has an older vector")),
        version("d", false, false, Some(" \n")),
        version("e", false, false, None),
    ];
    let wanted = [Some("has no vector"), None, Some("has an older vector"), None, None];
    assert_eq!(versions.each_ref().map(|version| version.derivable_text()), wanted);
    let name = write_segment(&blobs, &versions.map(Row::Unsealed), 2).unwrap();
    let segment = Segment::open(&blobs, name).unwrap();
    assert_eq!([0, 1, 2, 3, 4].map(|row| segment.derivable_text(row).unwrap()), wanted);
}

/// Writes a file of derived vectors of one row and one vector of two numbers, whose footer and row say this.
fn forged_vectors(blobs: &BlobStore, (dim, vectors): (u64, u64), number: u32) -> Hash {
    let (number, hash, floats) = (number.to_le_bytes(), [7; 32], [0; 8]);
    let mut out = ContainerWriter::new(blobs).unwrap();
    for section in [&number[..], &hash, &floats, &[1, 2], &floats[..4], &floats[..4], &floats[..4]] {
        out.begin().unwrap();
        out.write(section).unwrap();
    }
    let mut extra = Writer::new();
    extra.hash(&Hash([1; 32])).hash(&Hash([2; 32])).number(1).number(dim).number(vectors);
    extra.number(1).number(0).number(0);
    out.finish(DerivedFile::KIND, extra.as_slice()).unwrap()
}

#[test]
fn derived_vectors_that_are_not_there_are_nobodys() {
    let blobs = blobs();
    let open = |footer, number| DerivedFile::open(&blobs, forged_vectors(&blobs, footer, number));
    let whole = open((2, 1), 0).unwrap();
    assert!(whole.verify().is_ok() && whole.columns().unwrap().number(0) == Some(0));
    for footer in [(u64::from(u32::MAX), u64::from(u32::MAX)), (3, 1), (2, 2), (1 << 40, 1)] {
        assert!(is_damaged(open(footer, 0)), "{footer:?}");
    }
    let file = open((2, 1), 1).unwrap();
    assert!(is_damaged(file.verify()));
    assert_eq!(file.columns().unwrap().number(0), None);
}
