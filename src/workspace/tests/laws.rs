//! Replay, canonical bytes, and differences, on random histories.

use std::collections::BTreeSet;

use super::super::{ChangeKind, FileOp, NoPacks, Tree};
use super::plain::{Plain, assert_alike};
use super::{Random, random_op};
use crate::object::Time;

#[test]
fn replayed_ops_give_the_same_tree_numbers_and_head() {
    for seed in 0..10 {
        let (mut random, mut tree, mut again) = (Random(seed), Tree::default(), Tree::default());
        for time in 1..300 {
            let op = random_op(&mut random, tree.next_inode());
            let bytes = op.to_bytes();
            let read = FileOp::from_bytes(&bytes).unwrap();
            assert_eq!((&read, &read.to_bytes()), (&op, &bytes));
            let (one, other) = (tree.apply(&op, Time(time), &NoPacks), again.apply(&read, Time(time), &NoPacks));
            assert_eq!(one.ok(), other.ok());
        }
        assert_eq!(tree.hash(), again.hash());
        assert_alike(&Plain::from_tree(&tree, &NoPacks), &Plain::from_tree(&again, &NoPacks));
    }
}

#[test]
fn a_cut_or_foreign_op_is_refused_or_another_op() {
    let mut random = Random(3);
    for _ in 0..300 {
        let bytes = random_op(&mut random, 20).to_bytes();
        let cut = random.below(bytes.len());
        assert!(FileOp::from_bytes(&bytes[..cut]).map_or(true, |op| op.to_bytes() != bytes));
        let mut damaged = bytes.clone();
        damaged[cut] ^= 1 << random.below(8);
        assert!(FileOp::from_bytes(&damaged).map_or(true, |op| op.to_bytes() != bytes));
    }
}

#[test]
fn the_head_and_the_differences_are_those_of_what_is_visible() {
    for seed in 0..60 {
        let (mut random, mut old) = (Random(seed), Tree::default());
        let (before, after) = (random.below(120), random.below(60));
        for time in 0..before {
            let _ = old.apply(&random_op(&mut random, old.next_inode()), Time(time as i64), &NoPacks);
        }
        if random.chance(2) {
            old.hash();
        }
        let mut new = old.clone();
        for time in 0..after {
            let _ = new.apply(&random_op(&mut random, new.next_inode()), Time(time as i64), &NoPacks);
        }
        compare(&old, &new);
        compare(&new, &old);
        compare(&Tree::default(), &new);
    }
}

fn compare(old: &Tree, new: &Tree) {
    let (was, is) = (Plain::from_tree(old, &NoPacks).visible(), Plain::from_tree(new, &NoPacks).visible());
    assert_eq!(old.hash() == new.hash(), was == is);
    let paths: BTreeSet<&Vec<u8>> = was.keys().chain(is.keys()).collect();
    let mut expected = Vec::new();
    for path in paths {
        let kind = match (was.get(path), is.get(path)) {
            (None, _) => ChangeKind::Added,
            (_, None) => ChangeKind::Deleted,
            (old, new) if old != new => ChangeKind::Modified,
            _ => continue,
        };
        expected.push((path.strip_prefix(b"/").unwrap_or_default().to_vec(), kind));
    }
    expected.sort();
    let found: Vec<_> = old.changes(new).into_iter().map(|change| (change.path, change.kind)).collect();
    assert_eq!(found, expected);
}

impl PartialOrd for ChangeKind {
    fn partial_cmp(&self, other: &ChangeKind) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ChangeKind {
    fn cmp(&self, other: &ChangeKind) -> std::cmp::Ordering {
        (*self as u8).cmp(&(*other as u8))
    }
}
