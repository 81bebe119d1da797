//! Taking the texts of lines that merges did not keep out of archives: hash and signature of each entry stay right, and so
//! do the offsets of lines.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

use super::archive::{
    ATTRS_BEFORE, Archive, BRANCH_ROW_BYTES, BRANCHES, HASH_ROW_BYTES, HASHES, KIND, STEP_ROW_BYTES, STEPS,
};
use super::chunks::ArchiveEntriesWriter;
use super::{History, HistoryReader};
use crate::lineage::{Decision, SignedEntry};
use crate::memory::Error;
use crate::object::{BlobStore, Hash};
use crate::segment::{Blocks, ContainerWriter};

/// Bytes that are copied at a time, so that a section of any length takes little memory.
const COPY_BYTES: u64 = 1 << 20;

/// A decision of an entry whose lost lines go: the entry's number, and which of its decisions.
pub type DecisionRef = (u64, u32);

/// What a purge takes out, as decisions on merges name it.
#[derive(Default)]
pub struct PurgedItems {
    /// Ids, and paths of files and directories with `files/` in front.
    pub names: HashSet<Arc<str>>,
    /// Hashes of versions, which a decision may have as base, child or parent.
    pub versions: HashSet<Hash>,
}

impl PurgedItems {
    /// Returns whether a decision is about one of the items, something in one of the directories, or one of the
    /// versions.
    fn concerns(&self, decision: &Decision) -> bool {
        let id = &*decision.id;
        let mut directories = id.match_indices('/').map(|(end, _)| &id[..end]);
        let versions = [decision.base, decision.child, decision.parent];
        self.names.contains(id)
            || directories.any(|directory| self.names.contains(directory))
            || versions.iter().flatten().any(|version| self.versions.contains(version))
    }

    /// Returns the decisions in an entry that quote a lost line of one of the items.
    pub(super) fn quotes_in(&self, signed: &SignedEntry) -> impl Iterator<Item = DecisionRef> {
        let decisions = signed.entry.detail.conflicts.iter().zip(0..);
        let quoting = decisions
            .filter(|(decision, _)| decision.lost.iter().any(|part| part.purged.is_none()) && self.concerns(decision));
        quoting.map(|(_, at)| (signed.entry.seq, at))
    }
}

impl History {
    /// Returns the decisions in some entries that quote a lost line of what is purged. It reads every entry of the
    /// range. Kind `NotFound` for an entry behind the newest one.
    pub fn quotes(&self, blobs: &BlobStore, seqs: Range<u64>, purged: &PurgedItems) -> Result<Vec<DecisionRef>, Error> {
        let (reader, mut quotes) = (HistoryReader::new(blobs, self.snapshot()), Vec::new());
        for seq in seqs.start.max(reader.first())..seqs.end {
            let signed = reader.entry(seq)?;
            quotes.extend(purged.quotes_in(&signed));
        }
        Ok(quotes)
    }
}

/// Returns archives without some quotes; those that have none of them stay. Fails if an archive that has one of them
/// can't be read or written again.
pub(in crate::memory) fn without_quotes(
    blobs: &BlobStore,
    archives: Vec<Arc<Archive>>,
    quotes: &[DecisionRef],
) -> Result<Vec<Arc<Archive>>, Error> {
    let mut kept = Vec::with_capacity(archives.len());
    for archive in archives {
        let inside: BTreeSet<DecisionRef> =
            quotes.iter().filter(|(seq, _)| (archive.first..=archive.last()).contains(seq)).copied().collect();
        kept.push(if inside.is_empty() { archive } else { Arc::new(rewrite_archive(blobs, &archive, &inside)?) });
    }
    Ok(kept)
}

/// Writes an archive again without some quotes, each named by its entry and its place among the conflicts. Hashes and
/// signatures stay: they cover no quotes. Kind `Io` or `Damaged` if the archive can't be read, `Full` or `Io` if the
/// disk refuses the new one.
pub(super) fn rewrite_archive(
    blobs: &BlobStore,
    archive: &Archive,
    quotes: &BTreeSet<DecisionRef>,
) -> Result<Archive, Error> {
    let (mut out, mut chunked) = (ContainerWriter::new(blobs)?, ArchiveEntriesWriter::default());
    let file = archive.file(blobs)?;
    out.begin()?;
    for number in 0..archive.chunk_count(blobs)? {
        for mut signed in archive.chunk(blobs, number, &mut Blocks::default())? {
            let seq = signed.entry.seq;
            for (_, at) in quotes.range((seq, 0)..=(seq, u32::MAX)) {
                if let Some(decision) = signed.entry.detail.conflicts.get_mut(*at as usize) {
                    decision.purge_lost();
                }
            }
            chunked.push(&mut out, &signed)?;
        }
    }
    chunked.finish(&mut out)?;
    let (branches, steps) = archive.counts(blobs)?;
    // These rows hold hashes and lengths of lines, which a purged text leaves as they were, so they are copied.
    for (section, length) in [
        (HASHES, archive.count * HASH_ROW_BYTES),
        (BRANCHES, branches * BRANCH_ROW_BYTES),
        (STEPS, steps * STEP_ROW_BYTES),
        (ATTRS_BEFORE, file.section_length(ATTRS_BEFORE)?),
    ] {
        out.begin()?;
        for start in (0..length).step_by(COPY_BYTES as usize) {
            out.write(file.slice(section, start, COPY_BYTES.min(length - start))?)?;
        }
    }
    let name = out.finish(KIND, file.extra())?;
    Ok(Archive::new(name, archive.first, archive.count))
}
