//! The manifest: the world at the moment a journal file began, signed.
//!
//! ```text
//!  "engrMAN1" · payload · signature (64 bytes) over the payload's hash
//!
//!  payload: journal number, seq, tip, time · archives · users · states · graphs · branches
//! ```
//!
//! It is replaced as a whole by an atomic rename. All versions in it are sealed. A state that
//! several branches, bases or checkpoints share is stored once.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::Error;
use super::history::Archive;
use super::open::read_file;
use super::segments::Segments;
use super::settings::Settings;
use super::trees::{StoredTree, Trees};
use super::world::{Branch, BranchId, BranchRef, Checkpoint, Kept, Resolution, World};
use crate::branch::State;
use crate::disk::Disk;
use crate::lineage::{Key, PublicKey, SIGNATURE_BYTES};
use crate::object::{CodecError, Context, Hash, Reader, Time, Writer};
use crate::segment::Segment;
use crate::workspace::Tree;

/// The file.
pub const PATH: &str = "manifest";
/// The file while it is being written.
pub const NEW_PATH: &str = "manifest.new";
const MAGIC: &[u8; 8] = b"engrMAN1";
static CONTEXT: Context = Context::new("engramfs 2026 manifest v1");

/// What a manifest holds.
pub struct Manifest {
    /// The journal file whose acts come on top.
    pub journal: u64,
    /// Number of the last entry before.
    pub seq: u64,
    /// Its hash.
    pub tip: Hash,
    /// Its time.
    pub time: Time,
    /// Files of the entries before.
    pub archives: Vec<Archive>,
    /// All branches at that moment.
    pub world: World,
}

impl Manifest {
    /// The manifest of a store without entries.
    pub fn empty() -> Manifest {
        Manifest { journal: 1, seq: 0, tip: Hash::ZERO, time: Time(0), archives: Vec::new(), world: World::default() }
    }

    fn to_bytes(&self, trees: &Trees) -> Result<Vec<u8>, Error> {
        let mut out = Writer::new();
        out.number(self.journal).number(self.seq).hash(&self.tip).signed(self.time.0);
        out.number(self.archives.len() as u64);
        for archive in &self.archives {
            out.hash(&archive.name).number(archive.count);
        }
        out.number(self.world.users.len() as u64);
        for (uid, name) in &self.world.users {
            out.number(u64::from(*uid)).text(name);
        }
        let mut states = States::default();
        let mut branches = Writer::new();
        let mut sorted: Vec<&Branch> = self.world.branches.values().map(|branch| &**branch).collect();
        sorted.sort_unstable_by_key(|branch| branch.id);
        branches.number(sorted.len() as u64);
        sorted.into_iter().for_each(|branch| write_branch(&mut branches, branch, &mut states));
        out.number(states.list.len() as u64);
        let mut snapshots = HashSet::new();
        for state in &states.list {
            let files = trees.store(state.files())?;
            snapshots.insert(files.snapshot);
            out.hash(&files.snapshot).bytes(&files.delta);
            state.write(&mut out);
        }
        let graphs = graphs_of(&states.list);
        out.number(graphs.len() as u64);
        graphs.iter().for_each(|name| {
            out.hash(name);
        });
        out.raw(branches.as_slice());
        trees.retain_snapshots(&snapshots);
        Ok(out.finish())
    }

    fn from_bytes(bytes: &[u8], files: &Files<'_>) -> Result<Manifest, CodecError> {
        let mut input = Reader::new(bytes);
        let (journal, seq, tip, time) = (input.number()?, input.number()?, input.hash()?, Time(input.signed()?));
        let mut archives = Vec::new();
        for _ in 0..input.length()? {
            archives.push(Archive { name: input.hash()?, count: input.number()? });
        }
        let mut world = World::default();
        for _ in 0..input.length()? {
            let uid = u32::try_from(input.number()?).map_err(|_| CodecError::Number)?;
            world.users.insert(uid, input.text()?.into());
        }
        let mut states = Vec::new();
        for _ in 0..input.length()? {
            let tree = StoredTree { snapshot: input.hash()?, delta: input.bytes()?.to_vec() };
            let tree = files.tree(&tree).ok_or(CodecError::Number)?;
            states.push(Arc::new(State::read(&mut input, |name| files.segment(name), tree)?));
        }
        for _ in 0..input.length()? {
            files.attach(&input.hash()?);
        }
        for _ in 0..input.length()? {
            let branch = read_branch(&mut input, &states)?;
            world.branches.insert(branch.id, BranchRef::new(branch));
        }
        link(&mut world);
        if input.is_empty() {
            Ok(Manifest { journal, seq, tip, time, archives, world })
        } else {
            Err(CodecError::Number)
        }
    }
}

/// Opens the files that a manifest names, and keeps the error where that fails.
struct Files<'a> {
    segments: &'a Segments,
    trees: &'a Trees,
    failure: RefCell<Option<Error>>,
}

impl Files<'_> {
    fn segment(&self, name: &Hash) -> Option<Arc<Segment>> {
        self.segments.get(name).map_err(|error| self.failure.replace(Some(error))).ok()
    }

    fn tree(&self, stored: &StoredTree) -> Option<Tree> {
        self.trees.load(stored).map_err(|error| self.failure.replace(Some(error))).ok()
    }

    fn attach(&self, name: &Hash) {
        if let Err(error) = self.segments.attach(name) {
            self.failure.replace(Some(error));
        }
    }
}

/// Returns the graphs of the segments that some states see, each once.
fn graphs_of(states: &[Arc<State>]) -> BTreeSet<Hash> {
    let layers = states.iter().flat_map(|state| state.layers());
    layers.flat_map(|layer| layer.segment.graphs()).map(|graph| graph.name()).collect()
}

/// Numbers the distinct states.
#[derive(Default)]
struct States {
    numbers: HashMap<*const State, u64>,
    list: Vec<Arc<State>>,
}

impl States {
    fn number(&mut self, state: &Arc<State>) -> u64 {
        *self.numbers.entry(Arc::as_ptr(state)).or_insert_with(|| {
            self.list.push(state.clone());
            self.list.len() as u64 - 1
        })
    }
}

fn write_branch(out: &mut Writer, branch: &Branch, states: &mut States) {
    out.number(branch.id.0).text(&branch.name).number(branch.parent.map_or(0, |id| id.0)).number(branch.root.0);
    out.number(u64::from(branch.uid)).number(u64::from(branch.mode));
    out.signed(branch.created.0).signed(branch.changed.0).number(branch.stamp).byte(u8::from(branch.vectors_fixed));
    out.number(states.number(&branch.state)).number(states.number(&branch.base));
    branch.settings.write(out);
    out.number(branch.checkpoints.len() as u64);
    for (label, checkpoint) in &branch.checkpoints {
        out.text(label).number(states.number(&checkpoint.state)).signed(checkpoint.time.0).text(&checkpoint.text);
    }
    out.number(branch.kept.len() as u64);
    for kept in &branch.kept {
        out.number(states.number(&kept.state)).signed(kept.time.0);
    }
    out.number(branch.resolutions.len() as u64);
    for (id, resolution) in &branch.resolutions {
        out.text(id);
        resolution.write(out);
    }
}

fn read_branch(input: &mut Reader<'_>, states: &[Arc<State>]) -> Result<Branch, CodecError> {
    let state = |number: u64| states.get(number as usize).cloned().ok_or(CodecError::Number);
    let bits = |number: u64| u32::try_from(number).map_err(|_| CodecError::Number);
    let mut branch = Branch {
        id: BranchId(input.number()?),
        name: input.text()?.into(),
        // Laid once all are there.
        path: "".into(),
        parent: Some(BranchId(input.number()?)).filter(|id| id.0 != 0),
        root: BranchId(input.number()?),
        uid: bits(input.number()?)?,
        mode: bits(input.number()?)?,
        created: Time(input.signed()?),
        changed: Time(input.signed()?),
        stamp: input.number()?,
        edits: 0,
        state_seq: 0,
        base_seq: 0,
        vectors_fixed: input.byte()? == 1,
        state: state(input.number()?)?,
        base: state(input.number()?)?,
        settings: Settings::read(input)?,
        checkpoints: Default::default(),
        children: Default::default(),
        kept: Default::default(),
        resolutions: Default::default(),
    };
    for _ in 0..input.length()? {
        let label = input.text()?.into();
        let checkpoint =
            Checkpoint { state: state(input.number()?)?, time: Time(input.signed()?), text: input.text()?.into() };
        branch.checkpoints.insert(label, checkpoint);
    }
    for _ in 0..input.length()? {
        branch.kept.push_back(Kept { state: state(input.number()?)?, time: Time(input.signed()?) });
    }
    for _ in 0..input.length()? {
        let id = input.text()?.into();
        branch.resolutions.insert(id, Resolution::read(input)?);
    }
    Ok(branch)
}

/// Derives roots and children, which are not stored.
fn link(world: &mut World) {
    let all: Vec<_> = world.branches.values().map(|branch| (branch.id, branch.parent, branch.name.clone())).collect();
    for (id, parent, name) in all {
        match parent.and_then(|parent| world.branches.get_mut(&parent)) {
            Some(parent) => parent.make_mut().children.insert(name, id),
            None => world.roots.insert(name, id),
        };
    }
    let roots: Vec<_> = world.roots.values().copied().collect();
    roots.into_iter().for_each(|root| world.lay_paths(root));
}

/// Replaces the manifest: data, then the name, then the folder.
pub fn write(disk: &Arc<dyn Disk>, manifest: &Manifest, key: &Key, trees: &Trees) -> Result<(), Error> {
    let payload = manifest.to_bytes(trees)?;
    let signature = key.sign(&Hash::of(&CONTEXT, &payload));
    let bytes = [&MAGIC[..], &payload, &signature].concat();
    let put = || -> std::io::Result<()> {
        match disk.remove(NEW_PATH) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = disk.create(NEW_PATH)?;
        file.write_all_at(&bytes, 0)?;
        file.sync()?;
        disk.rename(NEW_PATH, PATH)?;
        disk.sync_dir("")
    };
    put().map_err(|error| Error::io("the manifest could not be written", &error))
}

/// Reads the manifest and checks its signature.
pub fn read(disk: &dyn Disk, public: &PublicKey, segments: &Segments, trees: &Trees) -> Result<Manifest, Error> {
    let bytes = read_file(disk, PATH)?;
    let damaged = |what: &str| Error::damaged(format!("the manifest {what}"));
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| damaged("does not begin as one"))?;
    let (payload, signature) = rest.split_last_chunk::<SIGNATURE_BYTES>().ok_or_else(|| damaged("is too short"))?;
    if !public.verifies(&Hash::of(&CONTEXT, payload), signature) {
        return Err(damaged("is not signed by the store's key"));
    }
    let files = Files { segments, trees, failure: RefCell::default() };
    let manifest = Manifest::from_bytes(payload, &files);
    match (files.failure.into_inner(), manifest) {
        (Some(error), _) => Err(error),
        (None, manifest) => Ok(manifest?),
    }
}
