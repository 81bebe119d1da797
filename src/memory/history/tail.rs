//! The entries that are in no archive yet, in little memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::timeline::{
    BranchAttrs, LineLengths, LineTotals, TimelinePoint, TimelineStep, advance, is_parent_event, needs_parent,
};
use crate::lineage::{SharedFields, SignedEntry};
use crate::object::{CodecError, Hash, Reader, Writer};

/// Entries of a chunk: reading one reads those before it in its chunk, since each needs the hash of the one before.
const CHUNK_ENTRIES: usize = 16;

/// Up to 16 consecutive entries, each without the hash of the one before, which follows from that one.
#[derive(Clone)]
pub(super) struct TailChunk {
    /// Hash of the entry before the first, which its own `prev` follows from.
    prev_hash: Hash,
    /// What some of them have in common, such as branch and agent, held once.
    shared_fields: Vec<Arc<SharedFields>>,
    /// For each the number of its [`SharedFields`], and the rest.
    rows: Vec<u8>,
}

impl TailChunk {
    /// Reads the entries, the first of which has the number `seq`. [`CodecError::Short`] if a row ends too early or
    /// refers to shared fields that are not there; else as `SignedEntry::read_unshared_fields`.
    pub fn entries(&self, mut seq: u64) -> Result<Vec<SignedEntry>, CodecError> {
        let (mut input, mut entries, mut prev) =
            (Reader::new(&self.rows), Vec::with_capacity(CHUNK_ENTRIES), self.prev_hash);
        while !input.is_empty() {
            let common = self.shared_fields.get(usize::from(input.byte()?)).ok_or(CodecError::Short)?;
            let signed = SignedEntry::read_unshared_fields(&mut input, common, seq, prev)?;
            prev = signed.hash;
            entries.push(signed);
            seq += 1;
        }
        Ok(entries)
    }

    fn push(&mut self, signed: &SignedEntry, common: Arc<SharedFields>) {
        let known = self.shared_fields.iter().position(|other| Arc::ptr_eq(other, &common));
        let number = known.unwrap_or_else(|| {
            self.shared_fields.push(common);
            self.shared_fields.len() - 1
        });
        let mut row = Writer::new();
        // A chunk has few entries, so the number of what one shares with others fits a byte.
        row.byte(number as u8);
        signed.write_unshared_fields(&mut row);
        self.rows.reserve_exact(row.as_slice().len());
        self.rows.extend_from_slice(row.as_slice());
    }
}

/// What seldom changes from step to step, held once for all steps that have it.
#[derive(Clone, Copy)]
struct TimelineRun {
    /// The first step that has it, from 0; the run holds up to the next one.
    first_step: u32,
    /// What the totals of its steps count from, so that those fit 32 bits.
    own_bytes: u64,
    event_bytes: u64,
    /// Bytes of `lineage` from the parent, which come before the branch's own.
    ahead_bytes: u64,
    merged_bytes: u64,
    attrs: BranchAttrs,
}

impl TimelineRun {
    fn new(first_step: u32, TimelinePoint { totals, attrs }: &TimelinePoint) -> TimelineRun {
        let ahead_bytes = totals.lineage_bytes - totals.own_bytes;
        TimelineRun {
            first_step,
            own_bytes: totals.own_bytes,
            event_bytes: totals.events_bytes,
            ahead_bytes,
            merged_bytes: totals.merged_bytes,
            attrs: *attrs,
        }
    }

    /// Returns the totals as counted from those of an earlier run, if nothing else is new.
    fn counts_since(&self, last: &TimelineRun) -> Option<(u32, u32)> {
        let is_same =
            (self.ahead_bytes, self.merged_bytes, self.attrs) == (last.ahead_bytes, last.merged_bytes, last.attrs);
        let (own, events) =
            (self.own_bytes.checked_sub(last.own_bytes)?, self.event_bytes.checked_sub(last.event_bytes)?);
        if is_same { Some((own.try_into().ok()?, events.try_into().ok()?)) } else { None }
    }
}

/// Adds a value, and an eighth of room at a time: vectors double else, and there are several for each branch.
fn push_compact<T>(vec: &mut Vec<T>, value: T) {
    if vec.len() == vec.capacity() {
        vec.reserve_exact(vec.len() / 8 + 1);
    }
    vec.push(value);
}

/// The steps of a branch since the newest archive.
struct Timeline {
    totals_before: LineTotals,
    runs: Vec<TimelineRun>,
    /// Entries by their place in the tail, and totals up to each, from those of its run.
    tail_indexes: Vec<u32>,
    own_bytes: Vec<u32>,
    event_bytes: Vec<u32>,
    common: Option<Arc<SharedFields>>,
}

impl Timeline {
    fn new(point: TimelinePoint) -> Timeline {
        Timeline {
            totals_before: point.totals,
            runs: vec![TimelineRun::new(0, &point)],
            tail_indexes: Vec::new(),
            own_bytes: Vec::new(),
            event_bytes: Vec::new(),
            common: None,
        }
    }

    fn run_at(&self, at: usize) -> &TimelineRun {
        let after = self.runs.partition_point(|run| run.first_step as usize <= at);
        &self.runs[after.max(1) - 1]
    }

    fn timeline_point(&self, at: usize) -> TimelinePoint {
        let run = self.run_at(at);
        let (own_bytes, events_bytes) =
            (run.own_bytes + u64::from(self.own_bytes[at]), run.event_bytes + u64::from(self.event_bytes[at]));
        let totals = LineTotals {
            own_bytes,
            merged_bytes: run.merged_bytes,
            lineage_bytes: own_bytes + run.ahead_bytes,
            events_bytes,
        };
        TimelinePoint { totals, attrs: run.attrs }
    }

    fn last(&self) -> TimelinePoint {
        match self.tail_indexes.len() {
            0 => TimelinePoint { totals: self.totals_before, attrs: self.runs[0].attrs },
            count => self.timeline_point(count - 1),
        }
    }

    fn push(&mut self, place: u32, point: TimelinePoint) {
        let run = TimelineRun::new(self.tail_indexes.len() as u32, &point);
        let from = self.runs.last().and_then(|last| run.counts_since(last));
        if from.is_none() {
            push_compact(&mut self.runs, run);
        }
        // A step that begins a run is what its totals count from, so it adds nothing.
        let (own, events) = from.unwrap_or_default();
        push_compact(&mut self.tail_indexes, place);
        push_compact(&mut self.own_bytes, own);
        push_compact(&mut self.event_bytes, events);
    }
}

/// The entries behind the newest archive, and the timelines of their branches.
pub(super) struct HistoryTail {
    /// Number of the first entry in `chunks`; those up to the end of the newest archive are not asked for.
    first: u64,
    chunks: Vec<Arc<TailChunk>>,
    /// The first four bytes of each entry's hash.
    hash_prefixes: Vec<u32>,
    timelines: HashMap<u64, Timeline>,
}

impl HistoryTail {
    /// Begins behind the entry before `first`.
    pub fn new(first: u64) -> HistoryTail {
        HistoryTail { first, chunks: Vec::new(), hash_prefixes: Vec::new(), timelines: HashMap::new() }
    }

    /// Returns what is left of a tail whose entries up to `sealed` are in an archive.
    pub fn after_seal(old: &HistoryTail, sealed: u64) -> HistoryTail {
        let gone =
            usize::try_from((sealed + 1).saturating_sub(old.first)).unwrap_or(usize::MAX).min(old.hash_prefixes.len());
        // Chunks are shared with readers and not cut, so some entries that are sealed stay in the first one.
        let whole = gone - gone % CHUNK_ENTRIES;
        let mut tail = HistoryTail::new(old.first + whole as u64);
        tail.chunks = old.chunks[whole / CHUNK_ENTRIES..].to_vec();
        tail.hash_prefixes = old.hash_prefixes[whole..].to_vec();
        for (branch, timeline) in &old.timelines {
            let kept = timeline.tail_indexes.partition_point(|place| (*place as usize) < gone);
            if kept == timeline.tail_indexes.len() {
                continue;
            }
            let before = if kept == 0 { None } else { Some(timeline.timeline_point(kept - 1)) };
            let before =
                before.unwrap_or(TimelinePoint { totals: timeline.totals_before, attrs: timeline.runs[0].attrs });
            let mut rest = Timeline::new(before);
            rest.common.clone_from(&timeline.common);
            for at in kept..timeline.tail_indexes.len() {
                rest.push(timeline.tail_indexes[at] - whole as u32, timeline.timeline_point(at));
            }
            tail.timelines.insert(*branch, rest);
        }
        tail
    }

    /// Returns the number that the next entry gets.
    pub fn next_seq(&self) -> u64 {
        self.first + self.hash_prefixes.len() as u64
    }

    /// Returns whether a branch's timeline point is known: it has steps here, or [`HistoryTail::begin`] noted it.
    pub fn has_attrs(&self, branch: u64) -> bool {
        self.timelines.contains_key(&branch)
    }

    /// Notes the timeline point that a branch had before the first entry here; a later call for it changes nothing.
    pub fn begin(&mut self, branch: u64, point: TimelinePoint) {
        self.timelines.entry(branch).or_insert_with(|| Timeline::new(point));
    }

    /// Adds the next entry. The timeline points of its branch, and of the parent if that matters, are known.
    pub fn push(&mut self, signed: &SignedEntry, lengths: LineLengths) {
        let (entry, place) = (&signed.entry, self.hash_prefixes.len());
        let common = self.intern_shared_fields(signed);
        if place.is_multiple_of(CHUNK_ENTRIES) {
            let mut room = 0;
            // A reader may hold the chunk, which then keeps its spare room. Its length tells what the next one needs.
            if let Some(full) = self.chunks.last_mut().and_then(Arc::get_mut) {
                full.shared_fields.shrink_to_fit();
                full.rows.shrink_to_fit();
                room = full.rows.len();
            }
            let rows = Vec::with_capacity(room);
            push_compact(
                &mut self.chunks,
                Arc::new(TailChunk { prev_hash: entry.prev, shared_fields: Vec::with_capacity(1), rows }),
            );
        }
        if let Some(chunk) = self.chunks.last_mut() {
            Arc::make_mut(chunk).push(signed, common);
        }
        push_compact(&mut self.hash_prefixes, hash_prefix(&signed.hash));
        // It is about the store as a whole, so it is a step of no branch.
        if entry.branch_id == 0 {
            return;
        }
        let last = |branch: u64| self.timelines.get(&branch).map(Timeline::last).unwrap_or_default();
        let mut branch = last(entry.branch_id);
        let mut parent = if needs_parent(entry) { last(entry.parent_id) } else { TimelinePoint::default() };
        advance(entry, lengths, &mut branch, &mut parent);
        self.push_step(entry.branch_id, place as u32, branch);
        if is_parent_event(entry) {
            self.push_step(entry.parent_id, place as u32, parent);
        }
    }

    fn push_step(&mut self, branch: u64, place: u32, point: TimelinePoint) {
        let timeline = self.timelines.entry(branch).or_insert_with(|| Timeline::new(TimelinePoint::default()));
        timeline.push(place, point);
    }

    fn intern_shared_fields(&mut self, signed: &SignedEntry) -> Arc<SharedFields> {
        let common = SharedFields::from_entry(&signed.entry);
        let timeline =
            self.timelines.entry(signed.entry.branch_id).or_insert_with(|| Timeline::new(TimelinePoint::default()));
        match &timeline.common {
            Some(known) if **known == common => known.clone(),
            _ => timeline.common.insert(Arc::new(common)).clone(),
        }
    }

    /// Returns the chunk that an entry is in, and the number of the chunk's first; `None` if the entry is not here.
    pub fn chunk(&self, seq: u64) -> Option<(u64, Arc<TailChunk>)> {
        let place = usize::try_from(seq.checked_sub(self.first)?).ok()? / CHUNK_ENTRIES;
        Some((self.first + (place * CHUNK_ENTRIES) as u64, self.chunks.get(place)?.clone()))
    }

    /// Returns the numbers of entries that may have a hash: those whose hashes begin with the same four bytes.
    pub fn candidates(&self, hash: &Hash) -> Vec<u64> {
        let wanted = hash_prefix(hash);
        let places = self.hash_prefixes.iter().enumerate().filter(|(_, prefix)| **prefix == wanted);
        places.map(|(place, _)| self.first + place as u64).collect()
    }

    /// Returns how many steps a branch has here, 0 for one without any.
    pub fn step_count(&self, branch: u64) -> u64 {
        self.timelines.get(&branch).map_or(0, |timeline| timeline.tail_indexes.len() as u64)
    }

    /// Returns a step of a branch, counted from 0 among those here; none after the last.
    pub fn step_at(&self, branch: u64, at: u64) -> Option<TimelineStep> {
        let (timeline, at) = (self.timelines.get(&branch)?, usize::try_from(at).ok()?);
        let place = timeline.tail_indexes.get(at)?;
        Some(TimelineStep { seq: self.first + u64::from(*place), totals: timeline.timeline_point(at).totals })
    }

    /// Returns what is known of a branch after its last step here; `None` for one without steps.
    pub fn attrs(&self, branch: u64) -> Option<BranchAttrs> {
        self.timelines
            .get(&branch)
            .filter(|timeline| !timeline.tail_indexes.is_empty())
            .map(|timeline| timeline.last().attrs)
    }

    /// Returns the steps of all branches up to an entry, by branch, with what was known of each then.
    pub fn steps_up_to(&self, seq: u64) -> BTreeMap<u64, (BranchAttrs, Vec<TimelineStep>)> {
        let steps_and_attrs = |timeline: &Timeline| {
            let step = |at: usize| TimelineStep {
                seq: self.first + u64::from(timeline.tail_indexes[at]),
                totals: timeline.timeline_point(at).totals,
            };
            let steps: Vec<TimelineStep> =
                (0..timeline.tail_indexes.len()).map(step).take_while(|step| step.seq <= seq).collect();
            let last = steps.len().checked_sub(1)?;
            Some((timeline.timeline_point(last).attrs, steps))
        };
        self.timelines.iter().filter_map(|(branch, timeline)| Some((*branch, steps_and_attrs(timeline)?))).collect()
    }
}

fn hash_prefix(hash: &Hash) -> u32 {
    u32::from_le_bytes([hash.0[0], hash.0[1], hash.0[2], hash.0[3]])
}
