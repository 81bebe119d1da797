//! Reading the parts of a manifest, the first one and what later ones change.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use imbl::OrdMap;

use super::{ManifestFiles, ManifestPart, StoredManifest};
use crate::branch::{BranchVersion, WrittenStates};
use crate::memory::catalog::agents::AgentHolder;
use crate::memory::catalog::settings::Settings;
use crate::memory::catalog::shared_log::{SharedLogCursor, SharedLogTotals};
use crate::memory::catalog::signals::Signal;
use crate::memory::catalog::{
    Branch, BranchId, BranchRef, Catalog, Checkpoint, EndedBranch, LeaseState, Proposal, Resolution, Review, log_owner,
    name_path,
};
use crate::memory::storage::trees::StoredTree;
use crate::object::{CodecError, Hash, Reader, SetHash, Time, Writer};
use crate::workspace::{Transfers, Tree};

/// A state by its number, and to whom its files were given since: such states share all but the owners.
type StateRef = (u64, Transfers);

/// What was read so far. States are looked at once all is known: one that nothing refers to any longer may name
/// files that are gone.
#[derive(Default)]
pub struct PartReader {
    set_hashes: Vec<Arc<SetHash>>,
    trees: Vec<StoredTree>,
    settings: Vec<Settings>,
    states: Vec<Vec<u8>>,
    catalog: Catalog,
    /// Boxed, as a row is large and a map moves its values about while it grows.
    branches: BTreeMap<u64, Box<ManifestRow>>,
    retained: Vec<StateFileRow>,
    ended: BTreeMap<u64, EndedBranch>,
}

/// A file of earlier states, with what it needs by number.
struct StateFileRow {
    name: Hash,
    held: StateRef,
    full_states: Vec<StateRef>,
}

impl StateFileRow {
    fn read(input: &mut Reader<'_>) -> Result<StateFileRow, CodecError> {
        let (name, held) = (input.hash()?, read_state_ref(input)?);
        let full_states = (0..input.length()?).map(|_| read_state_ref(input)).collect::<Result<_, _>>()?;
        Ok(StateFileRow { name, held, full_states })
    }
}

/// A branch with its states by number, as the parts that were read so far add up to.
#[derive(Default)]
struct ManifestRow {
    number: u32,
    name: Arc<str>,
    parent: u64,
    root: u64,
    uid: u32,
    mode: u32,
    created: Time,
    changed: Time,
    last_entry_seq: u64,
    state_entry: u64,
    vectors_fixed: bool,
    cursor: SharedLogCursor,
    log: u64,
    log_totals: Option<SharedLogTotals>,
    lease: LeaseState,
    log_at_base: u64,
    proposal: Option<(CheckpointRow, Vec<(u32, Review)>)>,
    state: StateRef,
    base: StateRef,
    settings: Settings,
    checkpoints: BTreeMap<Arc<str>, CheckpointRow>,
    resolutions: BTreeMap<Arc<str>, Resolution>,
    closed_logs: BTreeMap<Arc<str>, u64>,
    signals: BTreeMap<Arc<str>, Arc<Signal>>,
    agents: BTreeMap<Arc<str>, AgentHolder>,
}

impl PartReader {
    /// Reads the next part. Fails with the [`CodecError`] of a value that is not of the expected form, and with
    /// [`CodecError::Number`] if bytes are left over.
    pub fn read_part(&mut self, bytes: &[u8]) -> Result<(), CodecError> {
        let mut input = Reader::new(bytes);
        // The tables come first: what follows refers to their rows by number, and the numbers go on from part to part.
        for _ in 0..input.length()? {
            let set_hash = SetHash::from_bytes(input.raw(SetHash::BYTES)?).ok_or(CodecError::Short)?;
            self.set_hashes.push(Arc::new(set_hash));
        }
        for _ in 0..input.length()? {
            self.trees.push(StoredTree { snapshot: input.hash()?, delta: input.bytes()?.to_vec() });
        }
        for _ in 0..input.length()? {
            self.settings.push(Settings::read(&mut input)?);
        }
        for _ in 0..input.length()? {
            self.states.push(input.bytes()?.to_vec());
        }
        for _ in 0..input.length()? {
            let uid = to_u32(input.number()?)?;
            self.catalog.users.insert(uid, input.text()?.into());
        }
        for _ in 0..input.length()? {
            // Those that went come before those that are new, as the writer has them.
            self.branches.remove(&input.number()?);
        }
        for _ in 0..input.length()? {
            let id = input.number()?;
            self.branches.entry(id).or_default().read(&mut input, &self.settings)?;
        }
        if input.byte()? == 1 {
            // The list replaces the one before as a whole: parts do not add to it.
            self.retained = (0..input.length()?).map(|_| StateFileRow::read(&mut input)).collect::<Result<_, _>>()?;
        }
        let settings = &self.settings;
        let ended = |input: &mut Reader<'_>| {
            let ended = EndedBranch::read(input)?;
            Ok(EndedBranch { settings: nth(settings, input.number()?)?.clone(), ..ended })
        };
        read_map_changes(&mut input, &mut self.ended, |input| input.number(), ended)?;
        if input.is_empty() { Ok(()) } else { Err(CodecError::Number) }
    }

    /// Returns what the parts say. [`CodecError::Number`] if two branches have one number, or a file that is named
    /// could not be opened; `files` then has the reason.
    pub fn finish(mut self, files: &ManifestFiles<'_>, parts: Vec<ManifestPart>) -> Result<StoredManifest, CodecError> {
        let (branches, mut catalog) = (std::mem::take(&mut self.branches), std::mem::take(&mut self.catalog));
        let (files_of_states, ended) = (std::mem::take(&mut self.retained), std::mem::take(&mut self.ended));
        let (plain, transferred) = (vec![None; self.states.len()], HashMap::new());
        let mut states = StateLoader { read: &self, files, plain, transferred, trees: HashMap::new() };
        for (id, row) in branches {
            let mut branch = row.into_branch(BranchId(id), &mut states)?;
            // Two branches with one number would give different files the same inode number.
            if !catalog.numbers.reserve(branch.number) {
                return Err(CodecError::Number);
            }
            // A branch is made after its parent and has a greater number, so that the parent is there by now.
            let parent = branch.parent.map(|parent| catalog.branches.get(&parent).ok_or(CodecError::Number));
            let parent = parent.transpose()?.map(|parent| &**parent);
            (branch.path, branch.log_owner) = (name_path(parent, &branch.name), log_owner(parent, &branch));
            catalog.branches.insert(branch.id, BranchRef::new(branch));
        }
        let mut retained = Vec::new();
        for StateFileRow { name, held, full_states } in files_of_states {
            let held = states.state(held)?;
            let full_states =
                full_states.into_iter().map(|full_state| states.state(full_state)).collect::<Result<_, _>>()?;
            retained
                .push(Arc::new(files.state_file(WrittenStates { name, held, full_states }).ok_or(CodecError::Number)?));
        }
        catalog.retained.files = Arc::new(retained);
        catalog.retained.ended = ended.into_iter().map(|(entry, ended)| (entry, Arc::new(ended))).collect();
        let StateLoader { plain, transferred, .. } = states;
        link_branches(&mut catalog);
        let mut stored = StoredManifest::new(catalog, parts);
        let plain = (0..).zip(plain).filter_map(|(number, state)| Some((number, state?)));
        for (number, (state, snapshot)) in
            plain.chain(transferred.into_iter().map(|((number, _), state)| (number, state)))
        {
            stored.note_state(&state, number, snapshot);
        }
        // Noted in the order in which they were read: their numbers go on in the next part.
        self.set_hashes.iter().for_each(|set_hash| stored.set_hashes.note(&set_hash.to_bytes()));
        for tree in &self.trees {
            let mut bytes = Writer::new();
            bytes.hash(&tree.snapshot).bytes(&tree.delta);
            stored.trees.note(bytes.as_slice());
        }
        for state in &self.states {
            let mut bytes = Writer::new();
            bytes.bytes(state);
            stored.plain_states.note(bytes.as_slice());
        }
        for settings in &self.settings {
            let mut bytes = Writer::new();
            settings.write(&mut bytes);
            stored.settings.note(bytes.as_slice());
        }
        Ok(stored)
    }
}

struct CheckpointRow {
    state: StateRef,
    base: StateRef,
    seq: u64,
    time: Time,
    text: Arc<str>,
    cursor: SharedLogCursor,
}

impl CheckpointRow {
    fn read(input: &mut Reader<'_>) -> Result<CheckpointRow, CodecError> {
        let (state, base, seq) = (read_state_ref(input)?, read_state_ref(input)?, input.number()?);
        let (time, text) = (Time(input.signed()?), input.text()?.into());
        Ok(CheckpointRow { state, base, seq, time, text, cursor: SharedLogCursor::read(input)? })
    }

    fn into_checkpoint(self, states: &mut StateLoader<'_>) -> Result<Checkpoint, CodecError> {
        let CheckpointRow { state, base, seq, time, text, cursor } = self;
        let (state, base) = (states.state(state)?, states.state(base)?);
        Ok(Checkpoint { state, base, seq, time, text, cursor })
    }
}

/// A state, with the snapshot of its tree.
type LoadedState = (Arc<BranchVersion>, Hash);

/// The states that branches refer to, each made once, and their trees likewise.
struct StateLoader<'a> {
    read: &'a PartReader,
    files: &'a ManifestFiles<'a>,
    /// By number, once they are loaded.
    plain: Vec<Option<LoadedState>>,
    /// Those whose files were given to other owners.
    transferred: HashMap<StateRef, LoadedState>,
    trees: HashMap<u64, Tree>,
}

impl StateLoader<'_> {
    fn state(&mut self, state_ref: StateRef) -> Result<Arc<BranchVersion>, CodecError> {
        if state_ref.1 == Transfers::default() {
            return Ok(self.plain_state(state_ref.0)?.0);
        }
        if let Some((state, _)) = self.transferred.get(&state_ref) {
            return Ok(state.clone());
        }
        // Made out of the state without transfers, so that both share all but the owners.
        let (plain, snapshot) = self.plain_state(state_ref.0)?;
        let (mut state, files) = (BranchVersion::clone(&plain), plain.files().clone());
        state.replace_by_equal_files(files.with_transfers(state_ref.1.clone()));
        let state = Arc::new(state);
        self.transferred.insert(state_ref, (state.clone(), snapshot));
        Ok(state)
    }

    fn plain_state(&mut self, number: u64) -> Result<LoadedState, CodecError> {
        if let Some(Some(state)) = usize::try_from(number).ok().and_then(|number| self.plain.get(number)) {
            return Ok(state.clone());
        }
        let mut input = Reader::new(nth(&self.read.states, number)?);
        let (set_hash, tree) = (nth(&self.read.set_hashes, input.number()?)?.clone(), input.number()?);
        let files = self.tree(tree)?;
        let state = Arc::new(BranchVersion::read(&mut input, |name| self.files.segment(name), set_hash, files)?);
        if !input.is_empty() {
            return Err(CodecError::Number);
        }
        let loaded = (state, nth(&self.read.trees, tree)?.snapshot);
        // It is the number of one of the states, as they were read above.
        self.plain[number as usize] = Some(loaded.clone());
        Ok(loaded)
    }

    fn tree(&mut self, number: u64) -> Result<Tree, CodecError> {
        if let Some(tree) = self.trees.get(&number) {
            return Ok(tree.clone());
        }
        let tree = self.files.tree(nth(&self.read.trees, number)?).ok_or(CodecError::Number)?;
        self.trees.insert(number, tree.clone());
        Ok(tree)
    }
}

impl ManifestRow {
    /// Reads what the branch is now, and what its maps have other than before.
    fn read(&mut self, input: &mut Reader<'_>, settings: &[Settings]) -> Result<(), CodecError> {
        (self.name, self.parent, self.root) = (input.text()?.into(), input.number()?, input.number()?);
        (self.number, self.uid, self.mode) =
            (to_u32(input.number()?)?, to_u32(input.number()?)?, to_u32(input.number()?)?);
        (self.created, self.changed) = (Time(input.signed()?), Time(input.signed()?));
        (self.last_entry_seq, self.state_entry, self.vectors_fixed) =
            (input.number()?, input.number()?, input.byte()? == 1);
        (self.cursor, self.log) = (SharedLogCursor::read(input)?, input.number()?);
        self.log_totals = if input.byte()? == 1 { Some(SharedLogTotals::read(input)?) } else { None };
        (self.lease, self.log_at_base) = (LeaseState::read(input)?, input.number()?);
        self.proposal = if input.byte()? == 1 { Some(read_proposal(input)?) } else { None };
        (self.state, self.base) = (read_state_ref(input)?, read_state_ref(input)?);
        self.settings = nth(settings, input.number()?)?.clone();
        let text = |input: &mut Reader<'_>| Ok(input.text()?.into());
        read_map_changes(input, &mut self.checkpoints, text, CheckpointRow::read)?;
        read_map_changes(input, &mut self.resolutions, text, Resolution::read)?;
        read_map_changes(input, &mut self.closed_logs, text, |input| input.number())?;
        read_map_changes(input, &mut self.signals, text, |input| Signal::read(input).map(Arc::new))?;
        read_map_changes(input, &mut self.agents, text, AgentHolder::read)
    }

    /// Returns the branch without its path, log owner and children, which follow from the other branches.
    fn into_branch(self, id: BranchId, states: &mut StateLoader<'_>) -> Result<Branch, CodecError> {
        let mut branch = Branch {
            id,
            number: self.number,
            name: self.name,
            path: Arc::default(),
            parent: Some(BranchId(self.parent)).filter(|id| id.0 != 0),
            root: BranchId(self.root),
            uid: self.uid,
            mode: self.mode,
            created: self.created,
            changed: self.changed,
            last_entry_seq: self.last_entry_seq,
            state_entry: self.state_entry,
            // These count from when the store was opened, so that no part holds them.
            file_op_count: 0,
            state_seq: 0,
            base_seq: 0,
            vectors_fixed: self.vectors_fixed,
            log_owner: id,
            log: Some(BranchId(self.log)).filter(|id| id.0 != 0),
            log_totals: self.log_totals,
            closed_logs: self.closed_logs.into_iter().map(|(name, log)| (name, BranchId(log))).collect(),
            cursor: self.cursor,
            lease: self.lease,
            log_at_base: self.log_at_base,
            proposal: None,
            agents: self.agents.into_iter().collect(),
            signals: self.signals.into_iter().collect(),
            state: states.state(self.state)?,
            base: states.state(self.base)?,
            settings: self.settings,
            checkpoints: Default::default(),
            children: Default::default(),
            resolutions: self.resolutions.into_iter().collect(),
        };
        for (label, checkpoint) in self.checkpoints {
            branch.checkpoints.insert(label, checkpoint.into_checkpoint(states)?);
        }
        if let Some((frozen, reviews)) = self.proposal {
            let (frozen, reviews) = (frozen.into_checkpoint(states)?, reviews.into_iter().collect());
            branch.proposal = Some(Arc::new(Proposal::with_reviews(frozen, reviews)));
        }
        Ok(branch)
    }
}

/// Reads what a branch proposes, and of each approver the last word by uid.
fn read_proposal(input: &mut Reader<'_>) -> Result<(CheckpointRow, Vec<(u32, Review)>), CodecError> {
    let (frozen, count) = (CheckpointRow::read(input)?, input.length()?);
    let review = |input: &mut Reader<'_>| Ok((to_u32(input.number()?)?, Review::read(input)?));
    Ok((frozen, (0..count).map(|_| review(input)).collect::<Result<_, CodecError>>()?))
}

/// Reads what a map has other than before: the keys that are gone, then those that are new or have another value.
fn read_map_changes<K: Ord, V>(
    input: &mut Reader<'_>,
    map: &mut BTreeMap<K, V>,
    read_key: impl Fn(&mut Reader<'_>) -> Result<K, CodecError>,
    read_value: impl Fn(&mut Reader<'_>) -> Result<V, CodecError>,
) -> Result<(), CodecError> {
    for _ in 0..input.length()? {
        map.remove(&read_key(input)?);
    }
    for _ in 0..input.length()? {
        let key = read_key(input)?;
        map.insert(key, read_value(input)?);
    }
    Ok(())
}

fn read_state_ref(input: &mut Reader<'_>) -> Result<StateRef, CodecError> {
    Ok((input.number()?, Transfers::read(input)?))
}

fn nth<T>(list: &[T], number: u64) -> Result<&T, CodecError> {
    usize::try_from(number).ok().and_then(|number| list.get(number)).ok_or(CodecError::Number)
}

fn to_u32(number: u64) -> Result<u32, CodecError> {
    u32::try_from(number).map_err(|_| CodecError::Number)
}

/// Derives roots and children, which are not stored.
fn link_branches(catalog: &mut Catalog) {
    // Those that hold the entries of logs are found by the branches whose logs they are.
    let named = catalog.branches.values().filter(|branch| branch.log_totals.is_none());
    let mut children: HashMap<BranchId, OrdMap<Arc<str>, BranchId>> = HashMap::new();
    for branch in named {
        let siblings = match branch.parent {
            Some(parent) => children.entry(parent).or_default(),
            None => &mut catalog.roots,
        };
        siblings.insert(branch.name.clone(), branch.id);
    }
    for (parent, children) in children {
        if let Some(parent) = catalog.branches.get_mut(&parent) {
            parent.make_mut().children = children;
        }
    }
}
