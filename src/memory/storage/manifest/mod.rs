//! The manifest: the catalog at the moment a journal file began, signed.
//!
//! ```text
//!  "engrMAN2" · payload · signature (64 bytes) over the payload's hash
//!
//!  payload: journal number, seq, tip, time · last branch number · first entry, hash before it · archives ·
//!           graphs and derived vectors · parts · files derived from others
//! ```
//!
//! The file `manifest` is small and replaced as a whole by an atomic rename. The catalog is in its parts, immutable
//! files in the blob store: the first holds all branches, each later one what a seal changed. Once the later ones have
//! outgrown the first, one is written again in place of all (as LSM stores do with theirs, such as RocksDB).

#[cfg(any(fuzzing, debug_assertions))]
pub mod fuzzing;
mod reading;
mod stored;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::read_file;
use super::segments::Segments;
use super::trees::{StoredTree, TreeStore};
use crate::branch::{StateFile, WrittenStates};
use crate::disk::Disk;
use crate::lineage::{Key, PublicKey, SIGNATURE_BYTES};
use crate::memory::Error;
use crate::memory::catalog::{Catalog, LineageStart, for_each_state};
use crate::memory::history::ArchiveName;
use crate::object::{BlobStore, CodecError, Context, Hash, Reader, Time, Writer};
use crate::segment::{Container, Segment};
use crate::workspace::Tree;
use reading::PartReader;
pub(in crate::memory) use stored::StoredManifest;

/// Replaced as a whole by a rename, never written in place.
pub const PATH: &str = "manifest";
/// Written and synced under this name, then renamed. A crash may leave it.
pub const NEW_PATH: &str = "manifest.new";
const MAGIC: &[u8; 8] = b"engrMAN2";
static CONTEXT: Context = Context::new("engramfs 2026 manifest v2");

/// Kind byte of a part's file; a container of another kind is refused.
const PART: u8 = 6;
/// What the names behind it are of: files that are derived from others.
const FILE_INDEX: u8 = 1;

/// One file of what the catalog consists of: the first says all, later ones what is other.
#[derive(Clone, Copy)]
pub(in crate::memory) struct ManifestPart {
    /// The file's name in the blob store.
    pub name: Hash,
    /// Bytes of its content. Their sum over the later parts decides when one is written in place of all.
    pub bytes: u64,
}

/// What a manifest holds: the store as it was when a journal file began.
pub struct Manifest {
    /// The journal file whose commands come on top.
    pub journal: u64,
    /// Number of the last entry before, 0 for none.
    pub seq: u64,
    /// Hash of that entry, which the next has as `prev`; zeros for none.
    pub tip: Hash,
    /// Time of that entry, 0 for none.
    pub time: Time,
    /// Archives of the entries before, oldest first.
    pub archives: Vec<ArchiveName>,
    /// Files of the index of files. One that is missing or damaged is made again.
    pub file_index: Vec<Hash>,
    /// All branches at that moment, put together from the parts.
    pub catalog: Catalog,
    /// Graphs and files of derived vectors of the segments that it sees.
    pub sidecars: BTreeSet<Hash>,
}

/// The file `manifest` alone, whose catalog is in the parts that it names.
struct Root {
    manifest: Manifest,
    parts: Vec<ManifestPart>,
}

impl Manifest {
    /// The manifest of a store without entries, with which a new one begins.
    pub fn empty() -> Manifest {
        Manifest {
            journal: 1,
            seq: 0,
            tip: Hash::ZERO,
            time: Time(0),
            archives: Vec::new(),
            file_index: Vec::new(),
            catalog: Catalog::default(),
            sidecars: BTreeSet::new(),
        }
    }

    fn to_bytes(&self, parts: &[ManifestPart]) -> Vec<u8> {
        let mut out = Writer::new();
        out.number(self.journal).number(self.seq).hash(&self.tip).signed(self.time.0);
        out.number(u64::from(self.catalog.numbers.last()));
        out.number(self.catalog.start.first_seq).hash(&self.catalog.start.prev);
        out.number(self.archives.len() as u64);
        for archive in &self.archives {
            out.hash(&archive.name).number(archive.count);
        }
        out.number(self.sidecars.len() as u64);
        self.sidecars.iter().for_each(|name| {
            out.hash(name);
        });
        out.number(parts.len() as u64);
        for part in parts {
            out.hash(&part.name).number(part.bytes);
        }
        // Kinds of derived files come last, each behind its code, so that one without files takes no byte.
        if !self.file_index.is_empty() {
            out.byte(FILE_INDEX).number(self.file_index.len() as u64);
            self.file_index.iter().for_each(|name| {
                out.hash(name);
            });
        }
        out.finish()
    }
}

impl Root {
    /// Reads the payload; the catalog comes from the parts.
    fn from_bytes(bytes: &[u8]) -> Result<Root, CodecError> {
        let mut input = Reader::new(bytes);
        let (journal, seq, tip, time) = (input.number()?, input.number()?, input.hash()?, Time(input.signed()?));
        let last_number = u32::try_from(input.number()?).map_err(|_| CodecError::Number)?;
        let start = LineageStart { first_seq: input.number()?, prev: input.hash()? };
        let mut archives = Vec::new();
        for _ in 0..input.length()? {
            archives.push(ArchiveName { name: input.hash()?, count: input.number()? });
        }
        let sidecars = (0..input.length()?).map(|_| input.hash()).collect::<Result<_, _>>()?;
        let mut parts = Vec::new();
        for _ in 0..input.length()? {
            parts.push(ManifestPart { name: input.hash()?, bytes: input.number()? });
        }
        let mut catalog = Catalog { start, ..Catalog::default() };
        catalog.numbers.resume_after(last_number);
        let mut manifest = Manifest { journal, seq, tip, time, archives, file_index: Vec::new(), catalog, sidecars };
        while !input.is_empty() {
            match input.byte()? {
                // A second one is refused: each kind is written once, and not without files.
                FILE_INDEX if manifest.file_index.is_empty() => {
                    manifest.file_index = (0..input.length()?).map(|_| input.hash()).collect::<Result<_, _>>()?;
                }
                other => return Err(CodecError::Code(other)),
            }
        }
        Ok(Root { manifest, parts })
    }
}

/// Opens the files that a manifest names, and keeps the error where that fails.
struct ManifestFiles<'a> {
    segments: &'a Segments,
    trees: &'a TreeStore,
    failure: RefCell<Option<Error>>,
}

impl ManifestFiles<'_> {
    fn segment(&self, name: &Hash) -> Option<Arc<Segment>> {
        self.segments.get(name).map_err(|error| self.failure.replace(Some(error))).ok()
    }

    fn state_file(&self, written: WrittenStates) -> Option<StateFile> {
        let opened = StateFile::open(&self.segments.blobs, written).map_err(Error::from);
        opened.map_err(|error| self.failure.replace(Some(error))).ok()
    }

    fn tree(&self, stored: &StoredTree) -> Option<Tree> {
        self.trees.load(stored).map_err(|error| self.failure.replace(Some(error))).ok()
    }
}

/// Returns the graphs and the files of derived vectors of the segments that the catalog sees, each once.
pub(in crate::memory) fn reachable_sidecars(catalog: &Catalog) -> BTreeSet<Hash> {
    let (mut seen, mut sidecars) = (HashSet::new(), BTreeSet::new());
    for_each_state(catalog, |state| {
        if seen.insert(Arc::as_ptr(state)) {
            let layers = state.layers().iter();
            sidecars.extend(layers.clone().flat_map(|layer| layer.segment.graphs()).map(|graph| graph.name()));
            sidecars.extend(layers.flat_map(|layer| layer.segment.derived().list()).map(|file| file.name()));
        }
    });
    sidecars
}

/// Replaces the manifest: data, then the name, then the folder. The parts are in the blob store already. Fails with
/// `Error::Disk`. The manifest before still counts then; where only the folder could not be made durable either of the
/// two may.
pub fn write(disk: &Arc<dyn Disk>, manifest: &Manifest, parts: &[ManifestPart], key: &Key) -> Result<(), Error> {
    let payload = manifest.to_bytes(parts);
    let signature = key.sign(&Hash::digest(&CONTEXT, &payload));
    let bytes = [&MAGIC[..], &payload, &signature].concat();
    let put = || -> std::io::Result<()> {
        // One may be left from a write that was cut off, and `create` refuses a name that is there.
        match disk.remove(NEW_PATH) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = disk.create(NEW_PATH)?;
        file.write_all_at(&bytes, 0)?;
        // Before the rename: a name that is durable before its data would leave a store without a manifest after a
        // power cut.
        file.sync()?;
        disk.rename(NEW_PATH, PATH)?;
        disk.sync_dir("")
    };
    put().map_err(|error| Error::io("the manifest could not be written", error))
}

/// Reads the manifest and checks its signature, and the hashes of its parts. Kind `Damaged` if the signature, a part's
/// hash or what the parts say is not right; and with the error of a segment, graph or file of states that can't be
/// opened.
pub(in crate::memory) fn read(
    disk: &dyn Disk,
    public: &PublicKey,
    segments: &Segments,
    trees: &TreeStore,
) -> Result<(Manifest, StoredManifest), Error> {
    let bytes = read_file(disk, PATH)?;
    let damaged = |what: &str| Error::damaged(format!("the manifest {what}"));
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| damaged("does not begin as one"))?;
    let (payload, signature) = rest.split_last_chunk::<SIGNATURE_BYTES>().ok_or_else(|| damaged("is too short"))?;
    // Before a byte of the payload is parsed; the hashes of the parts are in it, so they are vouched for, too.
    if !public.verifies(&Hash::digest(&CONTEXT, payload), signature) {
        return Err(damaged("is not signed by the store's key"));
    }
    let Root { mut manifest, parts } = Root::from_bytes(payload)?;
    let mut reading = PartReader::default();
    for part in &parts {
        let file = Container::open(&segments.blobs, part.name, PART)?;
        // Read whole at once, so that all of it is checked before anything of it is used.
        file.verify()?;
        reading.read_part(file.section(0)?)?;
    }
    let files = ManifestFiles { segments, trees, failure: RefCell::default() };
    let read = reading.finish(&files, parts);
    // Why a file could not be opened says more than the error of the codec that follows from it.
    match (files.failure.into_inner(), read) {
        (Some(error), _) => Err(error),
        (None, read) => {
            let mut stored = read?;
            let (last_number, start) = (manifest.catalog.numbers.last(), manifest.catalog.start);
            manifest.catalog = Catalog { start, ..stored.catalog().clone() };
            manifest.catalog.numbers.resume_after(last_number);
            // After the states are read, as a graph is attached to a segment that is open by then.
            manifest.sidecars.iter().try_for_each(|name| segments.attach(name))?;
            stored.note_sidecars(manifest.sidecars.clone());
            Ok((manifest, stored))
        }
    }
}

/// Checks a file of a manifest's part that nothing names any longer. `None` if it is not a part; `Damaged` if a block
/// of it is not what was written.
pub(in crate::memory) fn check_part(blobs: &BlobStore, name: Hash) -> Option<Result<(), Error>> {
    let file = Container::open(blobs, name, PART).ok()?;
    Some(file.verify().map_err(Error::from))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::disk::{DiskCall, Fault, FaultyDisk, ForgetfulDisk};
    use crate::memory::{Actor, Environment, Memory, OpenMode};

    /// If the rename came before the sync, a power cut between them could leave part of the new manifest, and the one
    /// before would be gone.
    #[test]
    fn a_manifest_that_a_power_cut_leaves_is_the_one_before_or_whole() {
        const FAILING: [&[DiskCall]; 2] = [&[DiskCall::Sync], &[DiskCall::SyncDir]];
        let key = Key::from_seed(&[7; 32]);
        let second = Manifest { journal: 2, ..Manifest::empty() };
        let (mut old, mut new) = (0, 0);
        for kinds in FAILING {
            let forgetful = ForgetfulDisk::new();
            let faulty = FaultyDisk::new(forgetful.clone());
            let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
            write(&disk, &second, &[], &key).unwrap();
            let second_bytes = forgetful.bytes(PATH).unwrap();
            write(&disk, &Manifest::empty(), &[], &key).unwrap();
            let first_bytes = forgetful.bytes(PATH).unwrap();
            faulty.plan(Fault::once(1, kinds, libc::EIO));
            write(&disk, &second, &[], &key).unwrap_err();
            for seed in 0..32 {
                let bytes = forgetful.power_cut(seed).bytes(PATH).unwrap();
                assert!(bytes == first_bytes || bytes == second_bytes, "{kinds:?} failed, seed {seed}");
                old += usize::from(bytes == first_bytes);
                new += usize::from(bytes == second_bytes);
            }
        }
        assert!(old > 0 && new > 0, "{old} cuts left the old manifest, {new} the new one");
    }

    /// The text of each may take 64 KiB, and parts that are too large have all written again.
    #[test]
    fn a_part_has_the_new_checkpoints_of_a_branch_and_not_those_before() {
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let environment = Environment { reserve_bytes: 0, ..Environment::real(who.clone()) };
        let disk = Arc::new(ForgetfulDisk::new());
        let memory = Memory::open_on(disk, OpenMode::Create, None, environment).unwrap();
        memory.stop_maintenance();
        let (main, text) = (memory.root("main").unwrap(), "x".repeat(10_000));
        let stored_bytes = || memory.storage.manifest.lock().bytes();
        let part_bytes = |numbers: Range<u32>| {
            let before = stored_bytes();
            for number in numbers {
                memory.import_checkpoint(&who, main, &format!("label-{number}"), Some(&text)).unwrap();
            }
            memory.seal().unwrap();
            stored_bytes() - before
        };
        let (ten, one) = (part_bytes(0..10), part_bytes(10..11));
        assert!(ten > 100_000 && one < 20_000, "{ten} bytes with ten checkpoints, {one} with one more");
    }
}
