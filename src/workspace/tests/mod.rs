//! What tests of this module share: chance from a seed, short hands for ops, and packs in memory.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod damage;
mod head;
mod laws;
mod model;
mod nodes;
mod owners;
mod plain;
mod review_tree;
mod rules;
mod storing;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::{
    Attrs, FileName, FileOp, NewInode, Pack, Packs, ROOT, RangeOp, RenameMode, Tree, TreeError, TreeTotals, XattrMode,
};
use crate::disk::ForgetfulDisk;
use crate::object::{BlobStore, Hash, Time};
use crate::segment::SegmentError;

/// A small generator; the same seed gives the same numbers.
pub(super) struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    /// Fewer than `bound` bytes, sometimes zeros.
    pub fn bytes(&mut self, bound: usize) -> Vec<u8> {
        let count = self.below(bound);
        let zeros = self.chance(4);
        (0..count).map(|_| if zeros { 0 } else { self.below(256) as u8 }).collect()
    }
}

pub(super) fn name(text: &[u8]) -> FileName {
    FileName::new(text).unwrap()
}

/// Makes a file.
pub(super) fn create(tree: &mut Tree, parent: u64, text: &[u8]) -> u64 {
    made(tree, parent, text, NewInode::File)
}

/// Makes a directory.
pub(super) fn mkdir(tree: &mut Tree, parent: u64, text: &[u8]) -> u64 {
    made(tree, parent, text, NewInode::Directory)
}

pub(super) fn made(tree: &mut Tree, parent: u64, text: &[u8], make: NewInode) -> u64 {
    let op = FileOp::Create { parent, name: name(text), make, mode: 0o644, uid: 0, gid: 0 };
    tree.apply(&op, Time(1), &super::NoPacks).unwrap().inode
}

pub(super) fn write(tree: &mut Tree, inode: u64, offset: u64, bytes: &[u8]) {
    let op = FileOp::Write { inode, offset, bytes: bytes.into() };
    tree.apply(&op, Time(2), &super::NoPacks).unwrap();
}

/// The totals of a tree, added up again.
pub(super) fn added_up(tree: &Tree) -> TreeTotals {
    let mut totals = TreeTotals::default();
    for (_, node) in tree.nodes.iter().filter(|(inode, node)| *inode != ROOT && !node.is_nameless()) {
        totals.add(TreeTotals::from_node(node));
    }
    totals
}

/// A blob store in memory and the packs on it.
pub(super) struct PackStore {
    pub disk: ForgetfulDisk,
    pub blobs: BlobStore,
    open: Mutex<HashMap<Hash, Arc<Pack>>>,
}

impl PackStore {
    pub fn new() -> PackStore {
        let disk = ForgetfulDisk::new();
        let blobs = BlobStore::new(Arc::new(disk.clone()), "segments").unwrap();
        PackStore { disk, blobs, open: Mutex::default() }
    }
}

impl Packs for PackStore {
    fn pack(&self, name: &Hash) -> Result<Arc<Pack>, SegmentError> {
        let mut open = self.open.lock().unwrap();
        if let Some(pack) = open.get(name) {
            return Ok(pack.clone());
        }
        let pack = Arc::new(Pack::open(&self.blobs, *name)?);
        open.insert(*name, pack.clone());
        Ok(pack)
    }
}

/// A random op about few inodes and names, so that most meet something.
pub(super) fn random_op(random: &mut Random, inodes: u64) -> FileOp<'static> {
    let inode = |random: &mut Random| 1 + random.below(inodes as usize) as u64;
    let short = |random: &mut Random| name(&[b'a' + random.below(6) as u8]);
    let attribute = |random: &mut Random| [&b"user.a"[..], b"user.b", b"trusted.c"][random.below(3)].to_vec();
    match random.below(20) {
        0..=4 => FileOp::Create {
            parent: inode(random),
            name: short(random),
            make: match random.below(8) {
                0..=2 => NewInode::File,
                3..=5 => NewInode::Directory,
                6 => NewInode::Symlink(b"target".to_vec()),
                _ => [NewInode::Fifo, NewInode::Socket, NewInode::CharDevice(7), NewInode::BlockDevice(8)]
                    [random.below(4)]
                .clone(),
            },
            mode: [0o644, 0o755, 0o2755][random.below(3)],
            uid: random.below(3) as u32,
            gid: random.below(3) as u32,
        },
        5 => FileOp::Link { inode: inode(random), parent: inode(random), name: short(random) },
        6 => FileOp::Unlink { parent: inode(random), name: short(random), keep: random.chance(2) },
        7 => FileOp::Rmdir { parent: inode(random), name: short(random), keep: random.chance(2) },
        8..=10 => FileOp::Rename {
            parent: inode(random),
            name: short(random),
            new_parent: inode(random),
            new_name: short(random),
            mode: [RenameMode::Plain, RenameMode::Plain, RenameMode::NoReplace, RenameMode::Exchange][random.below(4)],
            keep: random.chance(2),
        },
        11..=16 => {
            let inode = inode(random);
            random_change(random, inode)
        }
        17 => FileOp::SetXattr {
            inode: inode(random),
            name: attribute(random),
            value: random.bytes(20),
            mode: [XattrMode::Any, XattrMode::Create, XattrMode::Replace][random.below(3)],
        },
        18 => FileOp::RemoveXattr { inode: inode(random), name: attribute(random) },
        _ => FileOp::Drop { inode: inode(random) },
    }
}

/// A random op about one inode's attributes or content.
fn random_change(random: &mut Random, inode: u64) -> FileOp<'static> {
    let offset = |random: &mut Random| {
        let near = [0, 100, 65_536, 131_072, 200_000][random.below(5)];
        (near + random.below(200)) as u64
    };
    let long = |random: &mut Random| if random.chance(4) { random.below(150_000) } else { random.below(300) };
    match random.below(6) {
        0 => FileOp::SetAttr {
            inode,
            attrs: Attrs {
                mode: random.chance(2).then(|| random.below(0o10000) as u32),
                uid: random.chance(3).then(|| random.below(3) as u32),
                gid: random.chance(3).then(|| random.below(3) as u32),
                size: random.chance(2).then(|| offset(random)),
                atime: random.chance(3).then(|| Time(random.below(1000) as i64 - 500)),
                mtime: random.chance(3).then(|| Time(random.below(1000) as i64 - 500)),
            },
        },
        1..=3 => {
            let (offset, bound) = (offset(random), 1 + long(random));
            FileOp::Write { inode, offset, bytes: random.bytes(bound).into() }
        }
        4 => FileOp::Range {
            inode,
            what: [RangeOp::Punch, RangeOp::Zero, RangeOp::Allocate][random.below(3)],
            offset: offset(random),
            length: if random.chance(3) { random.below(800_000) } else { long(random) } as u64,
            keep_size: random.chance(2),
        },
        _ => FileOp::Copy {
            from: inode,
            from_offset: offset(random),
            to: if random.chance(3) { inode } else { 2 + random.below(10) as u64 },
            to_offset: offset(random),
            length: long(random) as u64,
        },
    }
}

/// The name of an error's variant.
pub(super) fn variant(error: &TreeError) -> String {
    let text = format!("{error:?}");
    text.split(['(', ' ']).next().unwrap_or_default().to_owned()
}
