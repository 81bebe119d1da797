//! Stores on the forgetting disk, a clock that ticks, chance from a seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use engramfs::disk::{Disk, DiskCall, Fault, FaultyDisk, ForgetfulDisk};
use engramfs::memory::{
    Actor, BranchId, EditError, Environment, Error, FILES_ROOT, FileName, FileOp, FileOutcome, Memory, NewInode,
    OpenMode, RecordEdit, RecordInput, View,
};

static TICKS: AtomicI64 = AtomicI64::new(1_700_000_000_000_000_000);

/// A clock that never stands still.
pub fn environment() -> Environment {
    Environment {
        clock: Box::new(|| engramfs::memory::Time(TICKS.fetch_add(1_000, Ordering::Relaxed))),
        uptime: Box::new(|| std::time::Duration::from_nanos(TICKS.load(Ordering::Relaxed).cast_unsigned())),
        entropy: Box::new(|bytes| bytes.fill(7)),
        graph_rows: u32::MAX,
        index_delay: std::time::Duration::ZERO,
        idle_interval: std::time::Duration::from_secs(60),
        // Calls of the disk are counted, and queries index for themselves.
        file_index_delay: std::time::Duration::from_secs(3_600),
        reserve_bytes: 0,
        owner: who(),
    }
}

pub fn open(disk: &ForgetfulDisk) -> Result<Arc<Memory>, Error> {
    open_on(Arc::new(disk.clone()))
}

pub fn open_on(disk: Arc<dyn Disk>) -> Result<Arc<Memory>, Error> {
    Memory::open_on(disk, OpenMode::Create, None, environment())
}

/// Closes a store of which the last seal fails: its log records stay in the journal, before a clean end.
pub fn close_unsealed(memory: &Memory, faulty: &FaultyDisk<ForgetfulDisk>) {
    faulty.plan(Fault { sticky: true, ..Fault::once(1, &[DiskCall::Create], libc::EIO) });
    memory.close().unwrap();
    faulty.clear();
}

pub fn verify(disk: &ForgetfulDisk) -> Result<serde_json::Value, Error> {
    engramfs::memory::verify_on(&(Arc::new(disk.clone()) as Arc<dyn Disk>), &Default::default())
}

/// Checks a store in a folder.
pub fn verify_folder(store: &std::path::Path) {
    engramfs::memory::verify(store, &Default::default()).unwrap();
}

/// The files of a store in which the bytes stand.
pub fn holding(disk: &ForgetfulDisk, needle: &str) -> Vec<String> {
    let holds = |path: &String| {
        let bytes = disk.bytes(path).unwrap();
        bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
    };
    disk.files().into_iter().map(|(path, _)| path).filter(holds).collect()
}

pub fn who() -> Actor {
    Actor { uid: 1000, gid: 1000, name: "ann".into() }
}

pub fn record_input(vector: Option<Vec<f32>>, text: Option<&str>) -> RecordInput {
    RecordInput { vector: vector.map(Arc::from), text: text.map(Arc::from), metadata: "{}".into() }
}

pub fn put(id: &str, vector: Option<Vec<f32>>, text: Option<&str>) -> RecordEdit {
    RecordEdit::Put { id: id.into(), input: record_input(vector, text) }
}

pub fn delete(id: &str) -> RecordEdit {
    RecordEdit::Delete { id: id.into() }
}

/// Makes an empty file in the root branch's `files/`.
pub fn make_file(memory: &Memory, name: &str) -> Result<FileOutcome, EditError> {
    let name = FileName::new(name.as_bytes()).unwrap();
    let op = FileOp::Create { parent: FILES_ROOT, name, make: NewInode::File, mode: 0o644, uid: 1000, gid: 1000 };
    memory.edit(&who(), main_of(memory), op)
}

/// The texts of a branch's records by id.
pub fn texts(memory: &Memory, view: &View) -> Vec<(String, String)> {
    let snapshot = memory.snapshot(view).unwrap();
    let ids = snapshot.ids_after(None, usize::MAX).unwrap();
    let text = |id: &Arc<str>| snapshot.get(id).unwrap().unwrap().text().unwrap_or_default().to_owned();
    ids.iter().map(|id| (id.to_string(), text(id))).collect()
}

pub fn main_of(memory: &Memory) -> BranchId {
    memory.root("main").unwrap()
}

/// SplitMix64 (Steele, Lea and Flood 2014).
pub struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn vector(&mut self, dim: usize) -> Vec<f32> {
        (0..dim).map(|_| (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0).collect()
    }
}

/// How many rounds a test runs: `ENGRAMFS_ROUNDS` times its usual number.
pub fn rounds(usual: usize) -> usize {
    let factor = std::env::var("ENGRAMFS_ROUNDS").ok().and_then(|text| text.parse::<usize>().ok());
    usual * factor.unwrap_or(1)
}

/// A test that goes through all calls or bytes takes every `usual`-th one, and all of them where `ENGRAMFS_ROUNDS` is as
/// large as that, as it is at night.
pub fn stride(usual: usize) -> usize {
    (usual / rounds(1)).max(1)
}
