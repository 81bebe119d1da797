//! Entry for the fuzz target of archives of entries.

use std::sync::Arc;

use super::{Archive, ArchiveName, History, HistoryFile, HistoryReader, MovedEntries};
use crate::disk::Disk;
use crate::memory::catalog::LineageStart;
use crate::object::{BlobStore, Hash};
use crate::segment::Blocks;

/// Rows of a kind that are looked at, so that a long file does not slow the fuzzer down.
const ROWS: u64 = 20;

/// Reads the archive with that name in the folder of moved entries as `verify` does, and as those do that are shown a
/// history.
pub fn archive(disk: Arc<dyn Disk>, name: Hash) {
    if let Ok(moved) = MovedEntries::open(&disk) {
        let _ = moved.for_each_chunk(u64::MAX, |_| Ok(()));
    }
    let blobs = BlobStore::open_existing(disk, super::ARCHIVE_FOLDER);
    let Ok(archive) = Archive::from_file(&blobs, name) else { return };
    let Ok((branches, steps)) = archive.counts(&blobs) else { return };
    for at in 0..archive.chunk_count(&blobs).unwrap_or_default().min(ROWS) {
        let _ = archive.chunk(&blobs, at, &mut Blocks::default());
    }
    for at in 0..steps.min(ROWS) {
        let _ = archive.step(&blobs, at);
    }
    let _ = (
        archive.load_attrs_before(&blobs),
        archive.attrs_before(&blobs, 1),
        archive.chunk_with(&blobs, archive.count - 1),
    );
    let start = LineageStart { first_seq: archive.first, ..LineageStart::default() };
    let history = History::new(&[ArchiveName { name, count: archive.count }], start);
    let reader = HistoryReader::new(&blobs, history.snapshot());
    for seq in (archive.first..=archive.last()).take(ROWS as usize) {
        if let Ok(signed) = reader.entry(seq) {
            assert_eq!(signed.entry.seq, seq);
            let _ = reader.find_by_hash(&signed.hash);
        }
    }
    for at in 0..branches.min(ROWS) {
        let Ok(row) = archive.branch_row(&blobs, at) else { continue };
        let _ = (archive.find_branch(&blobs, row.branch), reader.timeline_point(row.branch, archive.last()));
        for file in [HistoryFile::Lineage, HistoryFile::Events] {
            for offset in [0, 100] {
                let _ = reader.lines((file, row.branch, archive.last()), offset, 4096, &|_| Ok(offset == 0));
            }
        }
    }
}
