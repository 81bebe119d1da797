//! Writing an archive out of the entries since the last one, and of older archives that are folded into it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::archive::{Archive, BRANCH_ROW, BranchRow, ENTRIES, HASH_ROW, KIND, STEP_ROW, prefix};
use super::timeline::{BranchFacts, TimelineStep};
use crate::lineage::SignedEntry;
use crate::memory::Error;
use crate::object::{BlobStore, Writer};
use crate::segment::ContainerWriter;

/// Bytes that are copied at a time.
const COPIED: u64 = 1 << 20;
/// Archives of about one size, each four times that of the next level, are folded into one when there are so many.
const FOLDED: usize = 4;

/// Entries that are in no archive yet.
pub(super) struct FreshSteps {
    /// Signatures and canonical bytes.
    bytes: Vec<u8>,
    ends: Vec<u64>,
    hashes: Vec<(u64, u32)>,
    branches: BTreeMap<u64, (BranchFacts, Vec<TimelineStep>)>,
}

impl FreshSteps {
    /// Takes the entries' steps; the entries are added one by one.
    pub fn new(branches: BTreeMap<u64, (BranchFacts, Vec<TimelineStep>)>) -> FreshSteps {
        FreshSteps { bytes: Vec::new(), ends: Vec::new(), hashes: Vec::new(), branches }
    }

    /// Adds the next entry.
    pub fn push(&mut self, signed: &SignedEntry) {
        self.bytes.extend_from_slice(&signed.signature);
        self.bytes.extend_from_slice(&signed.entry.to_bytes());
        self.hashes.push((prefix(&signed.hash), self.ends.len() as u32));
        self.ends.push(self.bytes.len() as u64);
    }

    /// Puts the hashes in order once all entries are there.
    pub fn sort(&mut self) {
        self.hashes.sort_unstable();
    }
}

/// Returns how many of the newest archives are folded into one of `fresh` new entries.
pub(super) fn folded(archives: &[Arc<Archive>], fresh: u64) -> usize {
    let level = |count: u64| count.max(1).ilog(4);
    let (mut taken, mut count) = (0, fresh);
    loop {
        let rest = archives[..archives.len() - taken].iter().rev();
        let alike: Vec<u64> = rest.map(|archive| archive.count).take_while(|one| level(*one) <= level(count)).collect();
        if alike.len() + 1 < FOLDED {
            return taken;
        }
        taken += alike.len();
        count += alike.iter().sum::<u64>();
    }
}

/// Writes one archive of older ones, which follow each other, and of the entries behind them.
pub(super) fn write(
    blobs: &BlobStore,
    older: &[Arc<Archive>],
    first: u64,
    fresh: &FreshSteps,
) -> Result<Archive, Error> {
    let count = older.iter().map(|archive| archive.count).sum::<u64>() + fresh.ends.len() as u64;
    let sources = Sources { blobs, older, fresh };
    let mut out = ContainerWriter::new(blobs)?;
    sources.entries(&mut out)?;
    sources.hashes(&mut out)?;
    let (branches, steps) = sources.branches(&mut out)?;
    sources.steps(&mut out)?;
    let mut extra = Writer::new();
    extra.number(first).number(count).number(branches).number(steps);
    let name = out.finish(KIND, extra.as_slice())?;
    Ok(Archive::new(name, first, count))
}

struct Sources<'a> {
    blobs: &'a BlobStore,
    older: &'a [Arc<Archive>],
    fresh: &'a FreshSteps,
}

/// The steps of one branch: in the archives that have some of them, and among the fresh ones.
struct BranchSteps<'a> {
    branch: u64,
    older: Vec<(&'a Archive, BranchRow)>,
    fresh: Option<&'a (BranchFacts, Vec<TimelineStep>)>,
}

impl Sources<'_> {
    fn entries(&self, out: &mut ContainerWriter<'_>) -> Result<(), Error> {
        out.begin()?;
        for archive in self.older {
            let (_, length) = archive.span(self.blobs, archive.count - 1)?;
            for start in (0..length).step_by(COPIED as usize) {
                let copied = COPIED.min(length - start);
                out.write(archive.file(self.blobs)?.slice(ENTRIES, start, copied)?)?;
            }
        }
        out.write(&self.fresh.bytes)?;
        out.begin()?;
        let mut before = 0;
        for archive in self.older {
            for place in 0..archive.count {
                let (_, end) = archive.span(self.blobs, place)?;
                out.write(&(before + end).to_le_bytes())?;
            }
            before += archive.span(self.blobs, archive.count - 1)?.1;
        }
        self.fresh.ends.iter().try_for_each(|end| out.write(&(before + end).to_le_bytes()))?;
        Ok(())
    }

    /// Merges the sorted hashes.
    fn hashes(&self, out: &mut ContainerWriter<'_>) -> Result<(), Error> {
        out.begin()?;
        let (mut at, mut before) = (vec![0; self.older.len() + 1], vec![0]);
        before.extend(self.older.iter().scan(0, |sum, archive| {
            *sum += archive.count as u32;
            Some(*sum)
        }));
        let head = |source: usize, at: u64| match self.older.get(source) {
            Some(archive) if at < archive.count => archive.hash_row(self.blobs, at).map(Some),
            Some(_) => Ok(None),
            None => Ok(self.fresh.hashes.get(at as usize).copied()),
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
            let mut row = [0; HASH_ROW as usize];
            row[..8].copy_from_slice(&hash.to_le_bytes());
            row[8..].copy_from_slice(&place.to_le_bytes());
            out.write(&row)?;
        }
    }

    /// Writes the branches' rows; returns how many there are, and steps.
    fn branches(&self, out: &mut ContainerWriter<'_>) -> Result<(u64, u64), Error> {
        out.begin()?;
        let (mut branches, mut steps) = (0, 0);
        self.each_branch(|gathered| {
            let older: u64 = gathered.older.iter().map(|(_, row)| row.end - row.start).sum();
            let fresh = gathered.fresh.map(|(facts, _)| *facts);
            let facts = fresh.or(gathered.older.last().map(|(_, row)| row.facts)).unwrap_or_default();
            steps += older + gathered.fresh.map_or(0, |(_, steps)| steps.len() as u64);
            branches += 1;
            let mut row = [0; BRANCH_ROW as usize];
            let rights = u64::from(facts.uid) | u64::from(facts.mode) << 32;
            fill(&mut row, [gathered.branch, steps, facts.parent, rights]);
            Ok(out.write(&row)?)
        })?;
        Ok((branches, steps))
    }

    fn steps(&self, out: &mut ContainerWriter<'_>) -> Result<(), Error> {
        out.begin()?;
        self.each_branch(|gathered| {
            for (archive, row) in &gathered.older {
                for at in row.start..row.end {
                    write_step(out, &archive.step(self.blobs, at)?)?;
                }
            }
            let fresh = gathered.fresh.map_or(&[][..], |(_, steps)| steps);
            fresh.iter().try_for_each(|step| write_step(out, step))
        })
    }

    /// Merges the branches' rows by number.
    fn each_branch(&self, mut each: impl FnMut(&BranchSteps<'_>) -> Result<(), Error>) -> Result<(), Error> {
        let mut at = vec![0; self.older.len()];
        let mut fresh = self.fresh.branches.iter().peekable();
        loop {
            let mut heads = Vec::with_capacity(self.older.len());
            for (archive, at) in self.older.iter().zip(&at) {
                let branches = archive.counts(self.blobs)?.0;
                heads.push(if *at < branches { Some(archive.row(self.blobs, *at)?) } else { None });
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
    let mut row = [0; STEP_ROW as usize];
    fill(&mut row, [step.seq, totals.own, totals.merged, totals.lineage, totals.events]);
    Ok(out.write(&row)?)
}

fn fill<const N: usize>(row: &mut [u8], numbers: [u64; N]) {
    for (bytes, number) in row.chunks_exact_mut(8).zip(numbers) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
}
