//! Packs, deltas and snapshots give back what was stored.

use super::super::{NoPacks, ROOT, Tree, reachable_packs, read_snapshot, write_packs, write_snapshot};
use super::plain::{Plain, assert_alike};
use super::{PackStore, Random, added_up, create, random_op, write};
use crate::object::Time;

/// Without orphans, which are not stored.
fn whole(tree: &Tree) -> Tree {
    let mut tree = tree.clone();
    tree.drop_orphans();
    tree
}

fn assert_same(one: &Tree, other: &Tree, pack_store: &PackStore) {
    assert_alike(&Plain::from_tree(one, pack_store), &Plain::from_tree(other, pack_store));
    assert_eq!((one.hash(), one.totals(), one.next_inode()), (other.hash(), other.totals(), other.next_inode()));
    assert_eq!(other.totals(), added_up(other));
}

#[test]
fn a_tree_comes_back_from_its_delta_and_from_a_snapshot() {
    let pack_store = PackStore::new();
    for seed in 0..40 {
        let (mut random, mut base) = (Random(seed), Tree::default());
        for time in 0..random.below(150) {
            let _ = base.apply(&random_op(&mut random, base.next_inode()), Time(time as i64), &pack_store);
        }
        base = whole(&base);
        // Two forks hand out the same numbers for different things.
        let mut forks = [base.clone(), base.clone()];
        for fork in &mut forks {
            for time in 0..random.below(100) {
                let _ = fork.apply(&random_op(&mut random, fork.next_inode()), Time(time as i64), &pack_store);
                if random.chance(40) {
                    *fork =
                        write_packs(&pack_store.blobs, &pack_store, std::iter::once(&*fork)).unwrap().sealed_tree(fork);
                }
            }
        }
        let forks = forks.map(|fork| whole(&fork));
        let all = [&base, &forks[0], &forks[1]];
        for from in all {
            for to in all {
                let delta = to.delta_from(from).unwrap();
                assert!(to.delta_within(from, delta.len()).unwrap().as_ref() == Some(&delta));
                assert_eq!(to.delta_within(from, delta.len() - 1).unwrap(), None, "one byte less than it takes");
                let back = from.with_delta(&delta).unwrap();
                assert_same(to, &back, &pack_store);
                assert!(back.delta_from(from).unwrap() == delta, "the same tree has another delta");
            }
        }
        let name = write_snapshot(&pack_store.blobs, &forks[0]).unwrap();
        assert_same(&forks[0], &read_snapshot(&pack_store.blobs, name).unwrap(), &pack_store);
    }
}

#[test]
fn a_delta_is_as_small_as_the_change() {
    let mut base = Tree::default();
    for number in 0..5000 {
        create(&mut base, ROOT, format!("file-{number}").as_bytes());
    }
    let mut tree = base.clone();
    let file = create(&mut tree, ROOT, b"new");
    write(&mut tree, file, 0, b"ten bytes!");
    assert!(tree.delta_from(&base).unwrap().len() < 250);
}

#[test]
fn equal_content_is_stored_once_also_across_packs() {
    let pack_store = PackStore::new();
    let mut random = Random(1);
    let block: Vec<u8> = (0..65_536).map(|_| random.below(256) as u8).collect();
    let mut tree = Tree::default();
    for number in 0..20u8 {
        let file = create(&mut tree, ROOT, &[b'a' + number]);
        write(&mut tree, file, 0, &block);
        write(&mut tree, file, 65_536 * 3, &block);
    }
    let mut sealer = write_packs(&pack_store.blobs, &pack_store, std::iter::once(&tree)).unwrap();
    let length = super::super::Pack::open(&pack_store.blobs, sealer.pack_name().unwrap()).unwrap().file_bytes();
    assert!(length < 70_000, "{length}");
    let mut tree = sealer.sealed_tree(&tree);
    let file = create(&mut tree, ROOT, b"later");
    write(&mut tree, file, 0, &block);
    write(&mut tree, file, 65_536, &[0; 65_536]);
    let mut sealer = write_packs(&pack_store.blobs, &pack_store, std::iter::once(&tree)).unwrap();
    assert_eq!(sealer.pack_name(), None);
    let tree = sealer.sealed_tree(&tree);
    assert!(!tree.is_unsealed());
    assert_eq!(reachable_packs(std::iter::once(&tree)).len(), 1);
    assert_eq!(tree.read(file, 0, 65_536, &pack_store).unwrap(), block);
    assert_eq!(tree.read(file, 65_536, 65_536, &pack_store).unwrap(), [0; 65_536]);
}

#[test]
fn trees_that_share_stay_shared_and_what_came_since_stays_loose() {
    let pack_store = PackStore::new();
    let mut base = Tree::default();
    for number in 0..1000 {
        let file = create(&mut base, ROOT, format!("{number}").as_bytes());
        write(&mut base, file, 0, &[(number % 250) as u8 + 1; 100]);
    }
    let (mut one, mut other) = (base.clone(), base.clone());
    let sealed = [base.clone(), one.clone()];
    let mut sealer = write_packs(&pack_store.blobs, &pack_store, sealed.iter()).unwrap();
    let (new, appended) = (create(&mut one, ROOT, b"new"), one.lookup(ROOT, b"5").unwrap());
    write(&mut one, new, 0, b"since");
    write(&mut one, appended, 100, b"since");
    create(&mut other, ROOT, b"empty");
    let (head_one, head_other) = (one.hash(), other.hash());
    let sealed = [&base, &one, &other].map(|tree| sealer.sealed_tree(tree));
    assert_eq!(sealed[1].unsealed.iter().copied().collect::<Vec<_>>(), [appended, new]);
    assert!(!sealed[0].is_unsealed() && !sealed[2].is_unsealed());
    assert_eq!((sealed[1].hash(), sealed[2].hash()), (head_one, head_other));
    assert!(sealed[0].nodes.diff(&sealed[1].nodes).count() <= 3);
    assert!(sealed[0].nodes.diff(&sealed[2].nodes).count() <= 2);
    assert_eq!(sealed[1].read(appended, 95, 50, &pack_store).unwrap(), b"\x06\x06\x06\x06\x06since");
    for (sealed, unsealed) in sealed.iter().zip([&base, &one, &other]) {
        assert_alike(&Plain::from_tree(sealed, &pack_store), &Plain::from_tree(unsealed, &NoPacks));
    }
}
