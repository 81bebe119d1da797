//! What the parts of the manifest on disk say, and the next one: what a newer catalog has other than that.
//!
//! ```text
//!  set hashes: count, each 2,048 bytes
//!  trees:      count, each (snapshot hash · delta, varint length and bytes)
//!  settings:   count, each 12 texts
//!  states:     count, each varint length and bytes (set hash no. · tree no. · totals · layers · deletes)
//!  users:      count, each (uid varint, name text)
//!  gone:       count, each a branch's number
//!  branches:   count, each (what it is · what its maps have other than before)
//! ```
//!
//! Set hashes, trees, settings and states are numbered from 0 on through all parts, and each distinct one is written once.
//! One that nothing refers to any longer is never looked at, so what it names may be gone.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use super::{ManifestPart, PART};
use crate::branch::BranchVersion;
use crate::memory::Error;
use crate::memory::catalog::{Branch, Catalog, Checkpoint, EndedBranch, RetainedStates};
use crate::memory::storage::trees::TreeStore;
use crate::object::{BlobStore, Context, Hash, Writer};
use crate::segment::ContainerWriter;

/// Parts beside the first that are read at an opening at most.
const PARTS_MAX: usize = 256;
/// Bytes of later parts that are always worth less than writing the first one again.
const LATER_BYTES_MIN: u64 = 1 << 20;

/// Later ones may have one byte for this many of the first one where they are to be few.
const EARLY_REWRITE_ONE_IN: u64 = 8;

static ITEM: Context = Context::new("engramfs 2026 manifest item v1");

/// Distinct byte strings, numbered in the order of their first use.
#[derive(Default)]
pub(super) struct InternTable {
    numbers: HashMap<Hash, u64>,
    fresh: Writer,
    fresh_count: u64,
}

impl InternTable {
    /// Returns the number of a byte string. One that is not known gets the next number, and goes into the next part.
    fn number(&mut self, bytes: &[u8]) -> u64 {
        let next = self.numbers.len() as u64;
        let number = *self.numbers.entry(Hash::digest(&ITEM, bytes)).or_insert(next);
        if number == next {
            self.fresh.raw(bytes);
            self.fresh_count += 1;
        }
        number
    }

    /// Notes one that is stored already, under the next number.
    pub fn note(&mut self, bytes: &[u8]) {
        let next = self.numbers.len() as u64;
        self.numbers.insert(Hash::digest(&ITEM, bytes), next);
    }

    /// Appends those that are new since the last part, and regards them as stored: where writing fails, all is numbered anew.
    fn take_fresh(&mut self, out: &mut Writer) {
        out.number(std::mem::take(&mut self.fresh_count)).raw(std::mem::take(&mut self.fresh).as_slice());
    }
}

struct StoredState {
    /// Keeps the allocation, so that no other state can get the address that it is found by.
    state: Weak<BranchVersion>,
    number: u64,
    /// The snapshot that its tree of files is stored against.
    snapshot: Hash,
}

/// What the manifest on disk says. The default is that of no parts, so that the next one says all.
#[derive(Default)]
pub struct StoredManifest {
    catalog: Catalog,
    parts: Vec<ManifestPart>,
    /// Set hashes of records by the numbers that parts name them by.
    pub(super) set_hashes: InternTable,
    /// Stored trees of files, by the numbers that parts name them by.
    pub(super) trees: InternTable,
    /// Values of all settings together, by the numbers that parts name them by.
    pub(super) settings: InternTable,
    /// Numbers of states that are in memory, by the state's address.
    states: HashMap<usize, StoredState>,
    /// States without transfers of files, those that nothing refers to any longer too.
    pub(super) plain_states: InternTable,
    /// Later parts are to be few and small.
    rewrites_early: bool,
    /// Whether the next part says all in any case.
    rewrites_all: bool,
    /// Graphs and files of derived vectors that the manifest on disk names, or may name.
    sidecars: BTreeSet<Hash>,
}

impl StoredManifest {
    /// What these parts say. The tables of numbers are filled by the `note` methods.
    pub(super) fn new(catalog: Catalog, parts: Vec<ManifestPart>) -> StoredManifest {
        StoredManifest { catalog, parts, ..StoredManifest::default() }
    }

    /// Returns the catalog that the parts add up to, with which the next one is compared.
    pub(super) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Returns the names of the parts, and of the graphs and files of derived vectors that the manifest names: one that
    /// another took the place of is needed until the next manifest.
    pub fn names(&self) -> impl Iterator<Item = Hash> {
        self.parts.iter().map(|part| part.name).chain(self.sidecars.iter().copied())
    }

    /// Returns the names of the graphs and files of derived vectors that the manifest names.
    pub fn sidecars(&self) -> &BTreeSet<Hash> {
        &self.sidecars
    }

    /// Notes which graphs and files of derived vectors the manifest on disk names.
    pub(in crate::memory) fn note_sidecars(&mut self, sidecars: BTreeSet<Hash>) {
        self.sidecars = sidecars;
    }

    /// Adds what a manifest names that is about to be written: until it is, files of both must stay.
    pub(in crate::memory) fn expect_sidecars(&mut self, sidecars: &BTreeSet<Hash>) {
        self.sidecars.extend(sidecars);
    }

    /// Returns how many bytes a part that says all takes at most: the sum of those there are.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// Says whether the next parts take the place of all as soon as that saves something, and not once they are many.
    pub fn set_rewrites_early(&mut self, rewrites_early: bool) {
        self.rewrites_early = rewrites_early;
    }

    /// Returns whether parts are rewritten early, as during a collection, which also sweeps by itself.
    pub fn rewrites_early(&self) -> bool {
        self.rewrites_early
    }

    /// Has the next part say all, so that what the parts say now can go.
    pub fn request_rewrite(&mut self) {
        self.rewrites_all = true;
    }

    /// Notes that the parts have a state under that number, so that later ones refer to it, and the snapshot that its
    /// files are stored against.
    pub(super) fn note_state(&mut self, state: &Arc<BranchVersion>, number: u64, snapshot: Hash) {
        self.states.insert(Arc::as_ptr(state).addr(), StoredState { state: Arc::downgrade(state), number, snapshot });
    }

    /// Stores a newer catalog: writes a part with what it has other than this one, or one with all of it where the
    /// later parts have outgrown the first, and has `write_root` name the parts.
    ///
    /// Returns whether there are files that the manifest no longer names. If this fails it is not known what the disk
    /// has, so that the next part says all.
    pub fn write_catalog(
        &mut self,
        catalog: &Catalog,
        blobs: &BlobStore,
        trees: &TreeStore,
        write_root: impl FnOnce(&[ManifestPart]) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        // Until the manifest is written the default stands here, by which the next part says all if this fails.
        let mut next = std::mem::take(self);
        let sidecars = std::mem::take(&mut next.sidecars);
        // A manifest that failed may be on the disk or not, so the files that either names are kept.
        self.sidecars = sidecars.clone();
        let mut part = next.encode_part(catalog, trees)?;
        let (rewrites_early, anew) = (next.rewrites_early, next.rewrites_all || next.is_outgrown(part.len() as u64));
        if anew {
            // Nothing is known of the old parts any longer, so that all is written and numbered anew.
            next = StoredManifest::default();
            part = next.encode_part(catalog, trees)?;
        }
        if !part.is_empty() {
            let name = write_part(blobs, &part)?;
            // Parts are only ever added behind the others, since numbers in a later part refer to rows of the earlier
            // ones.
            next.parts.push(ManifestPart { name, bytes: part.len() as u64 });
        }
        // After its parts, which have to be durable before a manifest names them.
        write_root(&next.parts)?;
        next.states.retain(|_, known| known.state.strong_count() > 0);
        // Only once the manifest is written: the one before names those that go.
        trees.drop_unnamed_snapshots(&next.states.values().map(|known| known.snapshot).collect());
        *self = StoredManifest { rewrites_early, sidecars, ..next };
        Ok(anew)
    }

    /// Returns whether all is better written again than with one more part of so many bytes.
    fn is_outgrown(&self, more: u64) -> bool {
        let Some((first, later)) = self.parts.split_first() else { return false };
        let bytes = later.iter().map(|part| part.bytes).sum::<u64>() + more;
        if self.rewrites_early && bytes > first.bytes / EARLY_REWRITE_ONE_IN {
            return true;
        }
        later.len() >= PARTS_MAX || bytes > first.bytes.max(LATER_BYTES_MIN)
    }

    /// Returns the bytes of a part that leads from the catalog so far to another one, which is the catalog from now on;
    /// none if they are the same.
    fn encode_part(&mut self, catalog: &Catalog, trees: &TreeStore) -> Result<Vec<u8>, Error> {
        // The new catalog is installed at once: where this fails `write_catalog` has the next part say all.
        let before = std::mem::replace(&mut self.catalog, catalog.clone());
        let mut users = (0, Writer::new());
        for item in before.users.diff(&catalog.users) {
            if let DiffItem::Add(uid, name) | DiffItem::Update { new: (uid, name), .. } = item {
                users.0 += 1;
                users.1.number(u64::from(*uid)).text(name);
            }
        }
        let (mut gone, mut branches) = ((0, Writer::new()), (0, Writer::new()));
        for item in before.branches.diff(&catalog.branches) {
            match item {
                DiffItem::Remove(id, _) => {
                    gone.0 += 1;
                    gone.1.number(id.0);
                }
                DiffItem::Add(_, new) => {
                    branches.0 += 1;
                    self.branch(&mut branches.1, None, new, trees)?;
                }
                DiffItem::Update { old: (_, old), new: (_, new) } => {
                    branches.0 += 1;
                    self.branch(&mut branches.1, Some(old), new, trees)?;
                }
            }
        }
        let files_changed = !Arc::ptr_eq(&before.retained.files, &catalog.retained.files);
        let ended_changed = before.retained.ended.diff(&catalog.retained.ended).next().is_some();
        if users.0 + gone.0 + branches.0 == 0 && !files_changed && !ended_changed {
            return Ok(Vec::new());
        }
        let mut retained = Writer::new();
        self.write_retained(&mut retained, &before.retained, &catalog.retained, trees)?;
        // The tables precede what refers to them, and are complete only now: writing branches and states adds
        // to them.
        let mut out = Writer::new();
        self.set_hashes.take_fresh(&mut out);
        self.trees.take_fresh(&mut out);
        self.settings.take_fresh(&mut out);
        self.plain_states.take_fresh(&mut out);
        for (count, bytes) in [users, gone, branches] {
            out.number(count).raw(bytes.as_slice());
        }
        out.raw(retained.as_slice());
        Ok(out.finish())
    }

    /// Appends the files of earlier states, where they are not the same, and what has changed of the branches that have ended.
    fn write_retained(
        &mut self,
        out: &mut Writer,
        old: &RetainedStates,
        new: &RetainedStates,
        trees: &TreeStore,
    ) -> Result<(), Error> {
        if Arc::ptr_eq(&old.files, &new.files) {
            out.byte(0);
        } else {
            out.byte(1).number(new.files.len() as u64);
            for file in new.files.iter() {
                out.hash(&file.name());
                self.write_state(out, file.held(), trees)?;
                out.number(file.full_states().len() as u64);
                file.full_states().iter().try_for_each(|full_state| self.write_state(out, full_state, trees))?;
            }
        }
        let write_ended = |out: &mut Writer, ended: &Arc<EndedBranch>| {
            let mut settings = Writer::new();
            ended.settings.write(&mut settings);
            ended.write(out).number(self.settings.number(settings.as_slice()));
            Ok(())
        };
        write_map_changes(out, &old.ended, &new.ended, |out, entry| _ = out.number(*entry), write_ended)
    }

    fn checkpoint(&mut self, out: &mut Writer, checkpoint: &Checkpoint, trees: &TreeStore) -> Result<(), Error> {
        self.write_state(out, &checkpoint.state, trees)?;
        self.write_state(out, &checkpoint.base, trees)?;
        out.number(checkpoint.seq).signed(checkpoint.time.0).text(&checkpoint.text);
        checkpoint.cursor.write(out);
        Ok(())
    }

    /// Appends what a branch is, and what its maps have other than before.
    fn branch(&mut self, out: &mut Writer, old: Option<&Branch>, new: &Branch, trees: &TreeStore) -> Result<(), Error> {
        // In the order of `ManifestRow::read`.
        out.number(new.id.0).text(&new.name).number(new.parent.map_or(0, |id| id.0)).number(new.root.0);
        out.number(u64::from(new.number)).number(u64::from(new.uid)).number(u64::from(new.mode));
        out.signed(new.created.0).signed(new.changed.0).number(new.last_entry_seq).number(new.state_entry);
        out.byte(u8::from(new.vectors_fixed));
        new.cursor.write(out).number(new.log.map_or(0, |log| log.0)).byte(u8::from(new.log_totals.is_some()));
        new.log_totals.inspect(|totals| _ = totals.write(out));
        new.lease.write(out).number(new.log_at_base).byte(u8::from(new.proposal.is_some()));
        if let Some(proposal) = &new.proposal {
            self.checkpoint(out, &proposal.frozen, trees)?;
            out.number(proposal.reviews.len() as u64);
            proposal.reviews.iter().for_each(|(uid, review)| _ = review.write(out.number(u64::from(*uid))));
        }
        self.write_state(out, &new.state, trees)?;
        self.write_state(out, &new.base, trees)?;
        let mut settings = Writer::new();
        new.settings.write(&mut settings);
        out.number(self.settings.number(settings.as_slice()));
        // Of maps only what differs from the part before is written; a reader adds parts up.
        let (checkpoints, resolutions, closed_logs, signals, agents) = Default::default();
        write_map_changes(
            out,
            old.map_or(&checkpoints, |old| &old.checkpoints),
            &new.checkpoints,
            |out, label| _ = out.text(label),
            |out, checkpoint| self.checkpoint(out, checkpoint, trees),
        )?;
        write_map_changes(
            out,
            old.map_or(&resolutions, |old| &old.resolutions),
            &new.resolutions,
            |out, id| _ = out.text(id),
            |out, resolution| {
                resolution.write(out);
                Ok(())
            },
        )?;
        write_map_changes(
            out,
            old.map_or(&closed_logs, |old| &old.closed_logs),
            &new.closed_logs,
            |out, name| _ = out.text(name),
            |out, log| {
                out.number(log.0);
                Ok(())
            },
        )?;
        write_map_changes(
            out,
            old.map_or(&signals, |old| &old.signals),
            &new.signals,
            |out, key| _ = out.text(key),
            |out, signal| {
                signal.write(out);
                Ok(())
            },
        )?;
        write_map_changes(
            out,
            old.map_or(&agents, |old| &old.agents),
            &new.agents,
            |out, name| _ = out.text(name),
            |out, holder| {
                holder.write(out);
                Ok(())
            },
        )
    }

    /// Appends which state it is, and to whom its files were given: what was only given away is stored once.
    fn write_state(&mut self, out: &mut Writer, state: &Arc<BranchVersion>, trees: &TreeStore) -> Result<(), Error> {
        out.number(self.state(state, trees)?);
        state.files().transfers().write(out);
        Ok(())
    }

    /// Returns the number of a state, which is written first if it is new.
    fn state(&mut self, state: &Arc<BranchVersion>, trees: &TreeStore) -> Result<u64, Error> {
        if let Some(known) = self.states.get(&Arc::as_ptr(state).addr())
            // The weak reference keeps the memory of the state, so no other state can have come to its address.
            && known.state.strong_count() > 0
        {
            return Ok(known.number);
        }
        // The tree first: the bytes of the state name it by its number.
        let files = trees.store(state.files())?;
        let (mut tree, mut bytes) = (Writer::new(), Writer::new());
        tree.hash(&files.snapshot).bytes(&files.delta);
        bytes
            .number(self.set_hashes.number(&state.record_set_hash().to_bytes()))
            .number(self.trees.number(tree.as_slice()));
        state.write(&mut bytes);
        let mut state_bytes = Writer::new();
        state_bytes.bytes(bytes.as_slice());
        let number = self.plain_states.number(state_bytes.as_slice());
        self.note_state(state, number, files.snapshot);
        Ok(number)
    }
}

/// Appends what a map has other than before: the keys that are gone, and what is new or another.
fn write_map_changes<K: Ord + Clone, V: Clone + PartialEq>(
    out: &mut Writer,
    old: &OrdMap<K, V>,
    new: &OrdMap<K, V>,
    write_key: impl Fn(&mut Writer, &K),
    mut write_value: impl FnMut(&mut Writer, &V) -> Result<(), Error>,
) -> Result<(), Error> {
    let (mut gone, mut set) = ((0, Writer::new()), (0, Writer::new()));
    for item in old.diff(new) {
        match item {
            DiffItem::Remove(key, _) => {
                gone.0 += 1;
                write_key(&mut gone.1, key);
            }
            DiffItem::Add(key, value) | DiffItem::Update { new: (key, value), .. } => {
                set.0 += 1;
                write_key(&mut set.1, key);
                write_value(&mut set.1, value)?;
            }
        }
    }
    for (count, bytes) in [gone, set] {
        out.number(count).raw(bytes.as_slice());
    }
    Ok(())
}

fn write_part(blobs: &BlobStore, bytes: &[u8]) -> Result<Hash, Error> {
    let mut out = ContainerWriter::new(blobs)?;
    out.begin()?;
    out.write(bytes)?;
    Ok(out.finish(PART, &[])?)
}
