//! Damaged bytes are refused: no panic, no wrong byte served.

use super::super::{
    FileKind, NoPacks, Pack, ROOT, Tree, TreeError, reachable_packs, read_snapshot, verify_snapshot, write_packs,
    write_snapshot,
};
use super::{PackStore, Random, create, random_op, write};
use crate::disk::Disk;
use crate::object::{Hash, Time, Writer};

fn some_tree(seed: u64) -> Tree {
    let (mut random, mut tree) = (Random(seed), Tree::default());
    for time in 0..80 {
        let _ = tree.apply(&random_op(&mut random, tree.next_inode()), Time(time), &NoPacks);
    }
    tree.drop_orphans();
    tree
}

#[test]
fn a_damaged_delta_gives_an_error_or_a_whole_tree() {
    for seed in 0..8 {
        let (base, tree) = (some_tree(seed), some_tree(seed + 1));
        let bytes = tree.delta_from(&base).unwrap();
        let mut random = Random(seed);
        for _ in 0..400 {
            let mut damaged = bytes.clone();
            for _ in 0..=random.below(3) {
                // Most of the bytes are contents; the structure is in front of and between them.
                let place =
                    if random.chance(2) { random.below(bytes.len()) } else { random.below(bytes.len().min(300)) };
                damaged[place] = random.below(256) as u8;
            }
            damaged.truncate(damaged.len() - if random.chance(5) { random.below(40).min(damaged.len()) } else { 0 });
            if let Ok(read) = base.with_delta(&damaged) {
                read.hash();
                read.changes(&base);
                for inode in read.inodes() {
                    assert_eq!(read.resolve(&read.path(inode).unwrap()).unwrap(), inode);
                }
            }
        }
    }
}

#[test]
fn a_circle_of_directories_is_refused() {
    let mut tree = Tree::default();
    let one = super::mkdir(&mut tree, ROOT, b"one");
    super::mkdir(&mut tree, one, b"two");
    let base = tree.clone();
    let bytes = tree.delta_from(&Tree::default()).unwrap();
    // `two` leads to `one` itself: its number is the only byte that is 3 behind that name.
    let place = bytes.windows(4).position(|four| four == b"two\x03").unwrap() + 3;
    let mut damaged = bytes.clone();
    damaged[place] = 2;
    assert!(matches!(Tree::default().with_delta(&damaged), Err(TreeError::Stored(_))));
    assert!(base.with_delta(&base.delta_from(&base).unwrap()).is_ok());
}

#[test]
fn an_inode_that_stands_twice_is_refused() {
    let mut base = Tree::default();
    let file = create(&mut base, ROOT, b"f");
    let mut tree = base.clone();
    write(&mut tree, file, 0, b"text");
    let bytes = tree.delta_from(&base).unwrap();
    // Version, next inode, no packs, none gone, one changed: a byte each.
    let (start, node) = (&bytes[..3], &bytes[5..]);
    let read = |lists: &[u8]| base.with_delta(&[start, lists].concat());
    assert_eq!(read(&[&[0, 1][..], node].concat()).unwrap().hash(), tree.hash());
    for twice in [[&[0, 2][..], node, node].concat(), [&[1, file as u8, 1][..], node].concat()] {
        assert!(matches!(read(&twice), Err(TreeError::Stored("an inode is there twice"))));
    }
}

/// Flips one bit of a file in the blob store.
fn flip(pack_store: &PackStore, name: &Hash, offset: u64, bit: usize) {
    let file = pack_store.disk.open_write(&pack_store.blobs.path(name)).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 1 << bit], offset).unwrap();
}

#[test]
fn a_damaged_pack_or_snapshot_never_gives_a_wrong_byte() {
    let pack_store = PackStore::new();
    let mut tree = Tree::default();
    let file = create(&mut tree, ROOT, b"f");
    let bytes: Vec<u8> = (0..70_000u32).map(|number| (number * 7 % 251) as u8 + 1).collect();
    write(&mut tree, file, 0, &bytes);
    let tree = write_packs(&pack_store.blobs, &pack_store, std::iter::once(&tree)).unwrap().sealed_tree(&tree);
    let pack = reachable_packs(std::iter::once(&tree)).into_iter().next().unwrap();
    let snapshot = write_snapshot(&pack_store.blobs, &tree).unwrap();
    let mut random = Random(4);
    for name in [pack, snapshot] {
        let length = pack_store.blobs.open(&name).unwrap().len().unwrap();
        for _ in 0..300 {
            let (offset, bit) = (random.below(length as usize) as u64, random.below(8));
            flip(&pack_store, &name, offset, bit);
            let fresh = Opened(&pack_store);
            match tree.read(file, 0, 80_000, &fresh) {
                Ok(read) => assert!(read == bytes),
                Err(error) => assert_eq!((super::variant(&error), name), ("Segment".to_owned(), pack)),
            }
            if let Ok(read) = read_snapshot(&pack_store.blobs, snapshot) {
                assert_eq!(read.hash(), tree.hash());
            }
            assert_eq!(verify_snapshot(&pack_store.blobs, snapshot).is_err(), name == snapshot, "byte {offset}");
            flip(&pack_store, &name, offset, bit);
        }
    }
    assert!(Pack::open(&pack_store.blobs, pack).unwrap().verify().is_ok());
    assert_eq!(tree.read(file, 0, 80_000, &pack_store).unwrap(), bytes);
    assert!(matches!(tree.read(file, 0, 1, &NoPacks), Err(TreeError::Segment(_))));
}

/// Opens a pack again each time, so that nothing counts as checked.
struct Opened<'a>(&'a PackStore);

impl super::super::Packs for Opened<'_> {
    fn pack(&self, name: &Hash) -> Result<std::sync::Arc<Pack>, crate::segment::SegmentError> {
        Pack::open(&self.0.blobs, *name).map(std::sync::Arc::new)
    }
}

#[test]
fn an_entry_that_leads_to_the_root_or_stands_twice_is_refused() {
    let stored = |entries: &[(&[u8], u64)]| {
        let mut out = Writer::new();
        out.byte(3).number(3).number(0).number(0).number(2);
        for (inode, kind) in [(ROOT, FileKind::Directory), (2, FileKind::Fifo)] {
            out.number(inode).byte(kind as u8).number(0o755).number(0).number(0).number(0);
            out.signed(0).signed(0).signed(0).signed(0).signed(0).number(0);
            if inode == ROOT {
                out.number(0).number(entries.len() as u64);
                entries.iter().fold(&mut out, |out, (name, inode)| out.bytes(name).number(*inode));
            }
        }
        Tree::default().with_delta(out.as_slice()).map(|tree| tree.totals().files)
    };
    assert_eq!(stored(&[(b"a", 2), (b"b", 2)]).unwrap(), 1);
    assert!(matches!(stored(&[(b"a", 2), (b"b", ROOT)]), Err(TreeError::Stored(_))));
    assert!(matches!(stored(&[(b"a", 2), (b"a", 2)]), Err(TreeError::Stored(_))));
}
