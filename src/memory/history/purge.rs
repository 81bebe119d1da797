//! Taking the texts of lines that merges did not keep out of archives: hash and signature of each entry stay right, and so
//! do the offsets of lines.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::archive::{Archive, BRANCH_ROW, BRANCHES, ENTRIES, HASH_ROW, HASHES, KIND, STEP_ROW, STEPS};
use super::{History, HistoryReader};
use crate::memory::Error;
use crate::object::BlobStore;
use crate::segment::ContainerWriter;

/// Bytes that are copied at a time.
const COPIED: u64 = 1 << 20;

/// A decision of an entry whose lost lines go: the entry's number, and which of its decisions.
pub type Quote = (u64, u32);

impl History {
    /// Returns the decisions in all entries that quote a lost line, where `goes` says that it does.
    pub fn quotes(
        &self,
        blobs: &BlobStore,
        goes: impl Fn(&crate::lineage::Decision) -> bool,
    ) -> Result<Vec<Quote>, Error> {
        let (reader, mut quotes) = (HistoryReader::of(blobs, self.epoch()), Vec::new());
        for seq in 1..=reader.newest() {
            let signed = reader.entry(seq)?;
            for (decision, at) in signed.entry.detail.conflicts.iter().zip(0..) {
                if decision.lost.iter().any(|part| part.purged.is_none()) && goes(decision) {
                    quotes.push((seq, at));
                }
            }
        }
        Ok(quotes)
    }
}

/// Returns archives without some quotes; those that have none of them stay.
pub(in crate::memory) fn without_quotes(
    blobs: &BlobStore,
    archives: Vec<Arc<Archive>>,
    quotes: &[Quote],
) -> Result<Vec<Arc<Archive>>, Error> {
    let mut kept = Vec::with_capacity(archives.len());
    for archive in archives {
        let inside: BTreeSet<Quote> =
            quotes.iter().filter(|(seq, _)| (archive.first..=archive.last()).contains(seq)).copied().collect();
        kept.push(if inside.is_empty() { archive } else { Arc::new(rewritten(blobs, &archive, &inside)?) });
    }
    Ok(kept)
}

fn rewritten(blobs: &BlobStore, archive: &Archive, quotes: &BTreeSet<Quote>) -> Result<Archive, Error> {
    let (mut out, mut ends, mut end) = (ContainerWriter::new(blobs)?, Vec::new(), 0u64);
    let file = archive.file(blobs)?;
    out.begin()?;
    for place in 0..archive.count {
        let (start, stop) = archive.span(blobs, place)?;
        let bytes = file.slice(ENTRIES, start, stop - start)?.to_vec();
        let seq = archive.first + place;
        let mut of_entry = quotes.range((seq, 0)..=(seq, u32::MAX)).peekable();
        let bytes = if of_entry.peek().is_none() {
            bytes
        } else {
            let mut signed = archive.parse(&bytes)?;
            for (_, at) in of_entry {
                if let Some(decision) = signed.entry.detail.conflicts.get_mut(*at as usize) {
                    decision.purge_lost();
                }
            }
            [&signed.signature[..], &signed.entry.to_bytes()].concat()
        };
        out.write(&bytes)?;
        end += bytes.len() as u64;
        ends.push(end);
    }
    out.begin()?;
    ends.iter().try_for_each(|end| out.write(&end.to_le_bytes()))?;
    let (branches, steps) = archive.counts(blobs)?;
    for (section, length) in
        [(HASHES, archive.count * HASH_ROW), (BRANCHES, branches * BRANCH_ROW), (STEPS, steps * STEP_ROW)]
    {
        out.begin()?;
        for start in (0..length).step_by(COPIED as usize) {
            out.write(file.slice(section, start, COPIED.min(length - start))?)?;
        }
    }
    let name = out.finish(KIND, file.extra())?;
    Ok(Archive::new(name, archive.first, archive.count))
}
