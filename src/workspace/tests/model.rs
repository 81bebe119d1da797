//! Random ops against the plain tree, errors included; and what must hold after each of them.

use std::sync::Arc;

use super::super::chunks::Chunks;
use super::super::{DirectWrite, FileOp, NoPacks, Packs, Tree, TreeError, write_packs};
use super::plain::{Plain, assert_alike};
use super::{PackStore, Random, added_up, random_op, variant};
use crate::disk::{Disk, DiskFile, ForgetfulDisk};
use crate::object::Time;

/// Applies one op to both and compares what they say.
fn step(tree: &mut Tree, plain: &mut Plain, op: &FileOp, time: i64, packs: &dyn Packs) {
    let before = tree.clone();
    let done = tree.apply(op, Time(time), packs).map(|_| ());
    compare((&before, tree), plain, op, time, done, packs);
}

/// Applies an op to the plain tree and compares what was done with what it says.
fn compare(
    (before, tree): (&Tree, &Tree),
    plain: &mut Plain,
    op: &FileOp,
    time: i64,
    done: Result<(), TreeError>,
    packs: &dyn Packs,
) {
    let expected = plain.apply(op, time);
    match (&done, &expected) {
        (Ok(()), Ok(())) => {}
        (Err(error), Err(expected)) => {
            assert_eq!(variant(error), *expected, "{:.300}", format!("{op:?}"));
            assert_alike(&Plain::from_tree(before, packs), &Plain::from_tree(tree, packs));
        }
        _ => panic!("{:.300}: {done:?} and {expected:?}", format!("{op:?}")),
    }
}

fn check(tree: &Tree, plain: &Plain, packs: &dyn Packs) {
    assert_alike(&Plain::from_tree(tree, packs), plain);
    assert_eq!(tree.totals(), added_up(tree));
    for inode in plain.nodes.keys() {
        match tree.path(*inode) {
            Some(path) => assert_eq!(tree.resolve(&path).unwrap(), *inode),
            None => assert!(tree.orphans().any(|orphan| orphan == *inode)),
        }
        if let Some(content) = tree.node(*inode).unwrap().content() {
            let mut chunks = Chunks::default();
            let allocated = chunks.apply_differences(Chunks::default().differences(&content.chunks)).unwrap();
            assert_eq!(content.allocated_bytes(), allocated);
            let is_unsealed = content.is_unsealed();
            assert!(!is_unsealed || tree.unsealed.contains(inode));
        }
    }
}

#[test]
fn random_ops_do_what_a_plain_tree_does_and_fail_where_it_fails() {
    for seed in 0..40 {
        let (mut random, mut tree, mut plain) = (Random(seed), Tree::default(), Plain::new());
        for time in 1..250 {
            let op = random_op(&mut random, tree.next_inode());
            step(&mut tree, &mut plain, &op, time, &NoPacks);
            if random.chance(10) {
                check(&tree, &plain, &NoPacks);
            }
        }
        check(&tree, &plain, &NoPacks);
    }
}

/// Returns the same tree with all its chunks in packs.
fn sealed(tree: &Tree, pack_store: &PackStore) -> Tree {
    let sealed = write_packs(&pack_store.blobs, pack_store, std::iter::once(tree)).unwrap().sealed_tree(tree);
    assert!(!sealed.is_unsealed());
    assert_eq!(sealed.hash(), tree.hash());
    sealed
}

#[test]
fn random_ops_do_the_same_when_chunks_are_sealed_now_and_then() {
    for seed in 100..120 {
        let (mut random, mut tree, mut plain) = (Random(seed), Tree::default(), Plain::new());
        let pack_store = PackStore::new();
        for time in 1..250 {
            let op = random_op(&mut random, tree.next_inode());
            step(&mut tree, &mut plain, &op, time, &pack_store);
            if random.chance(20) {
                tree = sealed(&tree, &pack_store);
                check(&tree, &plain, &pack_store);
            }
        }
        check(&tree, &plain, &pack_store);
    }
}

/// Writes with whole chunks, whose bytes stay in a file, as in the journal.
struct Stays {
    file: Arc<dyn DiskFile>,
    length: u64,
}

impl Stays {
    fn new(disk: &ForgetfulDisk) -> Stays {
        Stays { file: disk.create("long").unwrap().into(), length: 0 }
    }

    /// Does what a write does, if it has a whole chunk.
    fn write(
        &mut self,
        tree: &mut Tree,
        op: &FileOp,
        time: i64,
        pack_store: &PackStore,
    ) -> Option<Result<(), TreeError>> {
        let FileOp::Write { inode, offset, bytes } = op else { return None };
        let direct = DirectWrite::new(*offset, bytes)?;
        let mut content = [bytes, &direct.chunk_hashes()[..]].concat();
        assert_eq!(DirectWrite::from_verified(*offset, &content).unwrap().bytes(), &bytes[..]);
        self.file.write_all_at(&content, self.length).unwrap();
        let ends = tree.write_partial_chunks(*inode, &direct, Time(time), pack_store);
        let done = ends.and_then(|()| tree.place_chunks(*inode, &direct, (&self.file, self.length), Time(time)));
        self.length += content.len() as u64;
        let zeros = bytes.iter().all(|byte| *byte == 0);
        assert!(zeros || DirectWrite::from_verified(offset + 1, &content).is_none(), "it begins elsewhere");
        let middle = content.len() / 2;
        content[middle] ^= 1;
        assert!(DirectWrite::from_verified(*offset, &content).is_none(), "nothing vouches for that");
        assert!(DirectWrite::from_verified(0, &vec![0; content.len()]).is_none(), "nothing was written there");
        Some(done)
    }
}

fn long_write(random: &mut Random, inode: u64) -> FileOp<'static> {
    let (chunks, zeros) = (1 + random.below(3), random.chance(4));
    // Most begin or end within a chunk.
    let mut odd = || [0, 1, 4096, 65_535, random.below(65_536)][random.below(5)];
    let (before, behind) = (odd(), odd());
    let byte = |at: usize, seed: usize| if zeros && at < 65_536 { 0 } else { ((at * seed) >> 7) as u8 };
    let seed = 1 + random.below(1000);
    let bytes: Vec<u8> = (0..before + chunks * 65_536 + behind).map(|at| byte(at, seed)).collect();
    FileOp::Write { inode, offset: (65_536 * (1 + random.below(4)) - before) as u64, bytes: bytes.into() }
}

#[test]
fn random_ops_do_the_same_when_long_writes_stay_in_a_file() {
    let mut stayed = 0;
    for seed in 200..220 {
        let (mut random, mut tree, mut plain) = (Random(seed), Tree::default(), Plain::new());
        let pack_store = PackStore::new();
        let mut stays = Stays::new(&ForgetfulDisk::new());
        for time in 1..250 {
            let op = match random.chance(6) {
                true => long_write(&mut random, 1 + tree.next_inode().min(12) / 2),
                false => random_op(&mut random, tree.next_inode()),
            };
            let before = tree.clone();
            match stays.write(&mut tree, &op, time, &pack_store) {
                Some(done) => {
                    stayed += u32::from(done.is_ok());
                    compare((&before, &tree), &mut plain, &op, time, done, &pack_store);
                }
                None => step(&mut tree, &mut plain, &op, time, &pack_store),
            }
            if random.chance(20) {
                tree = sealed(&tree, &pack_store);
            }
            if random.chance(20) {
                check(&tree, &plain, &pack_store);
            }
        }
        check(&tree, &plain, &pack_store);
    }
    assert!(stayed > 100, "only {stayed} writes stayed in the file");
}

#[test]
fn what_is_wrong_in_the_file_is_refused_and_never_read_nor_sealed() {
    let (mut tree, pack_store, disk) = (Tree::default(), PackStore::new(), ForgetfulDisk::new());
    let inode = super::create(&mut tree, super::super::ROOT, b"long");
    let mut stays = Stays::new(&disk);
    let bytes = [[7; 65_536], [8; 65_536]].concat();
    let op = FileOp::Write { inode, offset: 0, bytes: bytes.clone().into() };
    stays.write(&mut tree, &op, 1, &pack_store).unwrap().unwrap();
    assert_eq!(tree.read(inode, 65_530, 9, &pack_store).unwrap(), [7, 7, 7, 7, 7, 7, 8, 8, 8]);
    disk.flip("long", 65_536 + 9, 1).unwrap();
    assert_eq!(tree.read(inode, 0, 65_536, &pack_store).unwrap(), &bytes[..65_536]);
    for refused in [
        tree.read(inode, 65_530, 20, &pack_store).map(drop),
        tree.clone()
            .apply(&FileOp::Write { inode, offset: 65_540, bytes: vec![1].into() }, Time(2), &pack_store)
            .map(drop),
        tree.delta_from(&Tree::default()).map(drop),
        write_packs(&pack_store.blobs, &pack_store, std::iter::once(&tree)).map(drop),
    ] {
        assert!(matches!(refused, Err(TreeError::Segment(_))), "{refused:?}");
    }
    // What keeps none of its bytes does not look at them.
    tree.apply(&FileOp::Write { inode, offset: 65_536, bytes: vec![1; 65_536].into() }, Time(3), &pack_store).unwrap();
    assert_eq!(tree.read(inode, 65_530, 7, &pack_store).unwrap(), [7, 7, 7, 7, 7, 7, 1]);
}

#[test]
fn clones_stay_apart() {
    let mut random = Random(9);
    let mut all = vec![(Tree::default(), Plain::new())];
    for time in 1..3000 {
        if random.chance(150) {
            let copy = all[random.below(all.len())].clone();
            all.push(copy);
        }
        let chosen = random.below(all.len());
        let (tree, plain) = &mut all[chosen];
        let op = random_op(&mut random, tree.next_inode().min(60));
        step(tree, plain, &op, time, &NoPacks);
    }
    assert!(all.len() > 10);
    all.iter().for_each(|(tree, plain)| check(tree, plain, &NoPacks));
}
