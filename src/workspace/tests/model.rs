//! Random ops against the plain tree, errors included; and what must hold after each of them.

use super::super::{NoPacks, Op, Packs, Tree, write_packs};
use super::plain::{Plain, assert_alike};
use super::{Cellar, Random, added_up, random_op, variant};
use crate::object::Time;

/// Applies one op to both and compares what they say.
fn step(tree: &mut Tree, plain: &mut Plain, op: &Op, time: i64, packs: &dyn Packs) {
    let before = tree.clone();
    let done = tree.apply(op, Time(time), packs);
    let expected = plain.apply(op, time);
    match (&done, &expected) {
        (Ok(_), Ok(())) => {}
        (Err(error), Err(expected)) => {
            assert_eq!(variant(error), *expected, "{:.300}", format!("{op:?}"));
            assert_alike(&Plain::of(&before, packs), &Plain::of(tree, packs));
        }
        _ => panic!("{:.300}: {done:?} and {expected:?}", format!("{op:?}")),
    }
}

fn check(tree: &Tree, plain: &Plain, packs: &dyn Packs) {
    assert_alike(&Plain::of(tree, packs), plain);
    assert_eq!(tree.totals(), added_up(tree));
    for inode in plain.nodes.keys() {
        match tree.path(*inode) {
            Some(path) => assert_eq!(tree.resolve(&path).unwrap(), *inode),
            None => assert!(tree.orphans().any(|orphan| orphan == *inode)),
        }
        if let Some(content) = tree.node(*inode).unwrap().content() {
            let allocated: u64 =
                content.chunks.iter().map(|(_, chunk)| u64::from(chunk.length()).next_multiple_of(4096)).sum();
            assert_eq!(content.allocated(), allocated);
            let is_loose = content.is_loose();
            assert!(!is_loose || tree.loose.contains(inode));
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

#[test]
fn random_ops_do_the_same_when_chunks_are_sealed_now_and_then() {
    for seed in 100..120 {
        let (mut random, mut tree, mut plain) = (Random(seed), Tree::default(), Plain::new());
        let cellar = Cellar::new();
        for time in 1..250 {
            let op = random_op(&mut random, tree.next_inode());
            step(&mut tree, &mut plain, &op, time, &cellar);
            if random.chance(20) {
                let head = tree.hash();
                let mut packed = write_packs(&cellar.shelf, &cellar, std::iter::once(&tree)).unwrap();
                tree = packed.settle(&tree);
                assert!(!tree.is_loose());
                assert_eq!(tree.hash(), head);
                check(&tree, &plain, &cellar);
            }
        }
        check(&tree, &plain, &cellar);
    }
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
