//! The mark: how much of which file the catalog needs, and what retained states alone hold.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::branch::{BranchVersion, StateInfo, VisibleRows};
use crate::memory::catalog::{BranchId, Catalog};
use crate::memory::{Error, Kind, Memory};
use crate::object::Hash;
use crate::segment::Segment;
use crate::sync::Mutex;
use crate::workspace::{PackMarks, Packs};

/// A segment or a pack in the blob store, and how much of it is needed.
pub(in crate::memory) struct FileUsage {
    /// The file's name in the blob store.
    pub name: Hash,
    /// Whether it has contents of files; else it has records.
    pub is_pack: bool,
    /// Bytes that it has now.
    pub length_bytes: u64,
    /// Bytes that it would have without what nothing needs, by its share of needed rows or chunks.
    pub needed_bytes: u64,
}

impl FileUsage {
    /// Returns about how many bytes would be free if it were written again; 0 if all of it is needed.
    pub fn freed_bytes(&self) -> u64 {
        self.length_bytes.saturating_sub(self.needed_bytes)
    }
}

/// Bytes that only retained states hold, by branch: known since the last mark.
#[derive(Default)]
pub(in crate::memory) struct RetainedBytes {
    branches: Mutex<HashMap<BranchId, u64>>,
    change_count: AtomicU64,
}

impl RetainedBytes {
    /// Returns the bytes that the retained states of a branch alone hold.
    pub fn for_branch(&self, branch: BranchId) -> u64 {
        self.branches.lock().get(&branch).copied().unwrap_or_default()
    }

    /// Returns the bytes that the retained states of a branch and of all below it alone hold.
    pub fn for_subtree(&self, catalog: &Catalog, top: BranchId) -> u64 {
        let is_below = |mut id: BranchId| loop {
            match catalog.branches.get(&id).and_then(|branch| branch.parent) {
                _ if id == top => return true,
                Some(parent) => id = parent,
                None => return false,
            }
        };
        self.branches.lock().iter().filter(|(id, _)| is_below(**id)).map(|(_, bytes)| bytes).sum()
    }

    /// Returns a number that grows when any of them changes: a cached `status` with a smaller one is outdated.
    pub fn change_count(&self) -> u64 {
        self.change_count.load(Ordering::Acquire)
    }

    fn set(&self, branches: HashMap<BranchId, u64>) {
        let mut there = self.branches.lock();
        if *there != branches {
            *there = branches;
            self.change_count.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// What the states that were looked at need: rows by segment, chunks by pack.
#[derive(Default)]
struct LiveSet {
    visited: HashSet<*const BranchVersion>,
    segments: BTreeMap<Hash, (Arc<Segment>, VisibleRows)>,
    packs: PackMarks,
}

impl LiveSet {
    /// Marks what some states need; returns the bytes of it that none before did.
    fn mark_counting_bytes<'a>(&mut self, states: impl Iterator<Item = &'a Arc<BranchVersion>>) -> u64 {
        let fresh: Vec<_> = states.filter(|state| self.visited.insert(Arc::as_ptr(state))).collect();
        let mut more = 0;
        for layer in fresh.iter().flat_map(|state| state.layers()) {
            let (rows, length) = (layer.segment.rows(), layer.segment.file_bytes());
            let none = || (layer.segment.clone(), VisibleRows::none(rows));
            let (_, marked) = self.segments.entry(layer.segment.name()).or_insert_with(none);
            let before = marked.count();
            marked.union_with(&layer.visible);
            more += share(length, marked.count() - before, rows);
        }
        more + self.packs.mark_counting_bytes(fresh.iter().map(|state| state.files()))
    }
}

fn share(length: u64, rows: u32, total_rows: u32) -> u64 {
    length * u64::from(rows) / u64::from(total_rows).max(1)
}

/// Shares the bytes that states hold out among the branches that they are of, or that the ended ones were children of.
fn share_out(catalog: &Catalog, infos: &[StateInfo], bytes: u64, shares: &mut HashMap<BranchId, u64>) {
    let ended = catalog.retained.ended.values();
    let parents: HashMap<BranchId, BranchId> = ended.filter_map(|ended| Some((ended.id, ended.parent?))).collect();
    for info in infos {
        let mut branch = BranchId(info.key.0);
        while !catalog.branches.contains_key(&branch) {
            let Some(parent) = parents.get(&branch) else { break };
            branch = *parent;
        }
        // By the number of states, since what they share can't be told apart; the last few bytes are lost in the
        // division.
        *shares.entry(branch).or_default() += bytes / infos.len() as u64;
    }
}

impl Memory {
    /// Marks what a catalog needs of each segment and pack that it reaches, and notes what retained states alone hold.
    /// What several branches retain counts for one of them. A damaged pack is left out. Kind `Io` or `Damaged` if a
    /// file of states or a pack can't be read.
    pub(in crate::memory) fn file_usage(&self, catalog: &Catalog) -> Result<Vec<FileUsage>, Error> {
        let mut marks = LiveSet::default();
        marks.mark_counting_bytes(catalog.branches.values().flat_map(|branch| {
            let frozen = branch.frozen_states().flat_map(|frozen| [&frozen.state, &frozen.base]);
            [&branch.state, &branch.base].into_iter().chain(frozen)
        }));
        // What branches need is marked by now, so that only what else is needed counts for retained states.
        let mut retained = HashMap::new();
        for file in catalog.retained.files.iter() {
            let bytes =
                file.file_bytes() + marks.mark_counting_bytes([file.held()].into_iter().chain(file.full_states()));
            share_out(catalog, &file.infos()?, bytes, &mut retained);
        }
        self.maintenance.retained.set(retained);
        let mut found = Vec::new();
        for (name, (segment, seen)) in &marks.segments {
            let (length_bytes, needed_bytes) =
                (segment.file_bytes(), share(segment.file_bytes(), seen.count(), segment.rows()));
            found.push(FileUsage { name: *name, is_pack: false, length_bytes, needed_bytes });
        }
        for (name, needed_bytes) in marks.packs.needed() {
            match self.storage.trees.pack(&name).map_err(Error::from) {
                Ok(pack) => {
                    found.push(FileUsage { name, is_pack: true, length_bytes: pack.file_bytes(), needed_bytes })
                }
                // A damaged file is reported to its readers, and must not keep the other files from being compacted.
                Err(error) if error.kind() == Kind::Damaged => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::memory::catalog::settings::Setting;
    use crate::memory::{Actor, Environment, OpenMode, RecordEdit, RecordInput, View};

    #[test]
    fn what_states_of_several_branches_hold_is_shared_out_by_the_number_of_states() {
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let environment = Environment { reserve_bytes: 0, ..Environment::real(who.clone()) };
        let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, environment).unwrap();
        let main = memory.root("main").unwrap();
        memory.set(&who, main, Setting::KeepEvery, "0s").unwrap();
        let branches = ["few", "many"].map(|name| memory.fork(&who, main, name, None).unwrap());
        for (branch, commits) in branches.into_iter().zip([2, 7]) {
            for number in 0..commits {
                let text = Some(format!("{number} of {}", branch.0).into());
                let input = RecordInput { vector: None, text, metadata: "{}".into() };
                memory.commit(&who, branch, vec![RecordEdit::Put { id: "a".into(), input }]).unwrap();
            }
        }
        memory.gc(&who, None, false).unwrap();
        let files: Vec<_> = memory.catalog().retained.files.iter().cloned().collect();
        let [file] = &files[..] else { panic!("one seal wrote them") };
        let (infos, bytes) =
            (file.infos().unwrap(), memory.maintenance.retained.for_subtree(&memory.catalog().clone(), main));
        let states = branches.map(|branch| infos.iter().filter(|info| info.key.0 == branch.0).count() as u64);
        assert!(states[0] > 0 && states[1] > states[0], "{states:?}");
        let one = bytes / infos.len() as u64;
        let kept = branches.map(|branch| memory.status(&View::Branch(branch)).unwrap()["bytes_kept"].as_u64().unwrap());
        assert_eq!(kept, states.map(|count| count * one));
        assert!(one > 0 && bytes >= file.file_bytes() / 2, "{bytes}");
    }
}
