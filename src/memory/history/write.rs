//! Writing an archive out of the entries since the last one, and of older archives that are merged into it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::archive::{
    ATTRS_BEFORE_ROW_BYTES, Archive, BRANCH_ROW_BYTES, BranchRow, HASH_ROW_BYTES, KIND, STEP_ROW_BYTES, hash_prefix,
};
use super::chunks::ArchiveEntriesWriter;
use super::read::HistoryReader;
use super::timeline::{BranchAttrs, TimelineStep};
use crate::memory::Error;
use crate::object::{BlobStore, Writer};
use crate::segment::ContainerWriter;

/// Archives of about one size, each four times that of the next level, are merged into one when there are so many.
const MERGE_FANOUT: usize = 4;

/// Entries that are in no archive yet, and the steps that they are.
#[derive(Default)]
pub(super) struct FreshEntries {
    /// Number of the first one; the others follow without a gap.
    pub first: u64,
    /// Number of the last one, inclusive.
    pub last: u64,
    /// By branch, what is known of it after its last step, and its steps in order.
    pub branches: BTreeMap<u64, (BranchAttrs, Vec<TimelineStep>)>,
    /// What was known of branches before the first entry, where entries before it were moved out.
    pub attrs_before: BTreeMap<u64, BranchAttrs>,
}

/// Returns how many of the newest archives are merged into one of `fresh` new entries.
pub(super) fn count_to_merge(archives: &[Arc<Archive>], fresh: u64) -> usize {
    let level = |count: u64| count.max(1).ilog(4);
    let (mut taken, mut count) = (0, fresh);
    loop {
        let rest = archives[..archives.len() - taken].iter().rev();
        let alike: Vec<u64> = rest.map(|archive| archive.count).take_while(|one| level(*one) <= level(count)).collect();
        if alike.len() + 1 < MERGE_FANOUT {
            return taken;
        }
        // The archive that these make may be one too many of the next level, so it is looked at again.
        taken += alike.len();
        count += alike.iter().sum::<u64>();
    }
}

/// Writes one archive of older ones, which follow each other, and of the entries behind them. It is durable then, and
/// nothing names it yet. Kind `Io` or `Damaged` if an older archive can't be read, `Full` or `Io` if the disk refuses
/// the new one.
pub(super) fn write(
    blobs: &BlobStore,
    reader: &HistoryReader<'_>,
    older: &[Arc<Archive>],
    fresh: &FreshEntries,
) -> Result<Archive, Error> {
    let first = older.first().map_or(fresh.first, |archive| archive.first);
    let count = fresh.last + 1 - first;
    let sources = Sources { blobs, older, fresh };
    let mut out = ContainerWriter::new(blobs)?;
    // Each of these begins a section, and sections get their numbers in that order.
    let hashes = sources.write_entries(reader, first, &mut out)?;
    sources.write_hashes(&hashes, &mut out)?;
    let (branches, steps) = sources.write_branches(&mut out)?;
    sources.write_steps(&mut out)?;
    sources.write_attrs(&mut out)?;
    let mut extra = Writer::new();
    extra.number(first).number(count).number(branches).number(steps);
    let name = out.finish(KIND, extra.as_slice())?;
    Ok(Archive::new(name, first, count))
}

struct Sources<'a> {
    blobs: &'a BlobStore,
    older: &'a [Arc<Archive>],
    fresh: &'a FreshEntries,
}

/// The steps of one branch: in the archives that have some of them, and among the fresh ones.
struct BranchSteps<'a> {
    branch: u64,
    older: Vec<(&'a Archive, BranchRow)>,
    fresh: Option<&'a (BranchAttrs, Vec<TimelineStep>)>,
}

impl Sources<'_> {
    /// Writes all entries; returns the sorted hashes of the fresh ones.
    fn write_entries(
        &self,
        reader: &HistoryReader<'_>,
        first: u64,
        out: &mut ContainerWriter<'_>,
    ) -> Result<Vec<(u64, u32)>, Error> {
        let (mut chunked, mut hashes) = (ArchiveEntriesWriter::default(), Vec::new());
        out.begin()?;
        for seq in first..=self.fresh.last {
            let signed = reader.entry(seq)?;
            chunked.push(out, &signed)?;
            if seq >= self.fresh.first {
                hashes.push((hash_prefix(&signed.hash), (seq - self.fresh.first) as u32));
            }
        }
        chunked.finish(out)?;
        hashes.sort_unstable();
        Ok(hashes)
    }

    /// Merges the sorted hashes of all sources, so that they stay sorted; places move up by the entries before.
    fn write_hashes(&self, fresh: &[(u64, u32)], out: &mut ContainerWriter<'_>) -> Result<(), Error> {
        out.begin()?;
        let (mut at, mut before) = (vec![0; self.older.len() + 1], vec![0]);
        // A row has the place of its entry within its own archive, which moves up by the entries of those before.
        before.extend(self.older.iter().scan(0, |sum, archive| {
            *sum += archive.count as u32;
            Some(*sum)
        }));
        let head = |source: usize, at: u64| match self.older.get(source) {
            Some(archive) if at < archive.count => archive.hash_row(self.blobs, at).map(Some),
            Some(_) => Ok(None),
            None => Ok(fresh.get(at as usize).copied()),
        };
        loop {
            let mut least = None;
            for source in 0..at.len() {
                if let Some((hash, place)) = head(source, at[source])? {
                    let row = (hash, before[source] + place);
                    least = Some(least.map_or((row, source), |least: ((u64, u32), usize)| least.min((row, source))));
                }
            }
            let Some(((hash, place), source)) = least else { return Ok(()) };
            at[source] += 1;
            let mut row = [0; HASH_ROW_BYTES as usize];
            row[..8].copy_from_slice(&hash.to_le_bytes());
            row[8..].copy_from_slice(&place.to_le_bytes());
            out.write(&row)?;
        }
    }

    /// Writes section 3, a row for each branch in order; returns how many there are, and how many steps.
    fn write_branches(&self, out: &mut ContainerWriter<'_>) -> Result<(u64, u64), Error> {
        out.begin()?;
        let (mut branches, mut steps) = (0, 0);
        self.for_each_branch(|gathered| {
            let older: u64 = gathered.older.iter().map(|(_, row)| row.end - row.start).sum();
            // A row tells what was known behind the last entry, so the newest source that has the branch counts.
            let fresh = gathered.fresh.map(|(attrs, _)| *attrs);
            let attrs = fresh.or(gathered.older.last().map(|(_, row)| row.attrs)).unwrap_or_default();
            steps += older + gathered.fresh.map_or(0, |(_, steps)| steps.len() as u64);
            branches += 1;
            let mut row = [0; BRANCH_ROW_BYTES as usize];
            fill(&mut row, [gathered.branch, steps, attrs.parent, packed_rights(&attrs)]);
            Ok(out.write(&row)?)
        })?;
        Ok((branches, steps))
    }

    fn write_steps(&self, out: &mut ContainerWriter<'_>) -> Result<(), Error> {
        out.begin()?;
        self.for_each_branch(|gathered| {
            for (archive, row) in &gathered.older {
                for at in row.start..row.end {
                    write_step(out, &archive.step(self.blobs, at)?)?;
                }
            }
            let fresh = gathered.fresh.map_or(&[][..], |(_, steps)| steps);
            fresh.iter().try_for_each(|step| write_step(out, step))
        })
    }

    fn write_attrs(&self, out: &mut ContainerWriter<'_>) -> Result<(), Error> {
        out.begin()?;
        let before = match self.older.first() {
            Some(archive) => &archive.load_attrs_before(self.blobs)?,
            None => &self.fresh.attrs_before,
        };
        before.iter().try_for_each(|(branch, attrs)| {
            let mut row = [0; ATTRS_BEFORE_ROW_BYTES as usize];
            fill(&mut row, [*branch, attrs.parent, packed_rights(attrs)]);
            Ok(out.write(&row)?)
        })
    }

    /// Calls `each` with the steps of every branch in order of numbers, whichever archives have some.
    fn for_each_branch(&self, mut each: impl FnMut(&BranchSteps<'_>) -> Result<(), Error>) -> Result<(), Error> {
        let mut at = vec![0; self.older.len()];
        let mut fresh = self.fresh.branches.iter().peekable();
        loop {
            let mut heads = Vec::with_capacity(self.older.len());
            for (archive, at) in self.older.iter().zip(&at) {
                let branches = archive.counts(self.blobs)?.0;
                heads.push(if *at < branches { Some(archive.branch_row(self.blobs, *at)?) } else { None });
            }
            let least =
                heads.iter().flatten().map(|row| row.branch).chain(fresh.peek().map(|(branch, _)| **branch)).min();
            let Some(branch) = least else { return Ok(()) };
            let mut gathered = BranchSteps { branch, older: Vec::new(), fresh: None };
            for (number, archive) in self.older.iter().enumerate() {
                if let Some(row) = heads[number].filter(|row| row.branch == branch) {
                    gathered.older.push((archive, row));
                    at[number] += 1;
                }
            }
            gathered.fresh = fresh.next_if(|(number, _)| **number == branch).map(|(_, steps)| steps);
            each(&gathered)?;
        }
    }
}

fn write_step(out: &mut ContainerWriter<'_>, step: &TimelineStep) -> Result<(), Error> {
    let totals = &step.totals;
    let mut row = [0; STEP_ROW_BYTES as usize];
    fill(&mut row, [step.seq, totals.own_bytes, totals.merged_bytes, totals.lineage_bytes, totals.events_bytes]);
    Ok(out.write(&row)?)
}

fn packed_rights(attrs: &BranchAttrs) -> u64 {
    u64::from(attrs.uid) | u64::from(attrs.mode) << 32
}

fn fill<const N: usize>(row: &mut [u8], numbers: [u64; N]) {
    for (bytes, number) in row.chunks_exact_mut(8).zip(numbers) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
}
