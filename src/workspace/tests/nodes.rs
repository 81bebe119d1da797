//! The map of nodes beside a plain one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::node::{Body, FileNode};
use super::super::nodes::{ChangedNode, Nodes};
use super::Random;
use crate::object::Time;

type Plain = BTreeMap<u64, Arc<FileNode>>;

/// Numbers as trees give them, and any others.
fn number(random: &mut Random) -> u64 {
    let bits = [3, 6, 11, 64][random.below(4)];
    u64::MAX >> (64 - bits) & (random.below(1 << 31) as u64).wrapping_mul(0x0000_0003_0000_0005)
}

fn same(one: Option<&Arc<FileNode>>, other: Option<&Arc<FileNode>>) -> bool {
    one.map(Arc::as_ptr) == other.map(Arc::as_ptr)
}

fn check(nodes: &Nodes, plain: &Plain) {
    assert!(
        nodes
            .iter()
            .map(|(inode, node)| (inode, Arc::as_ptr(node)))
            .eq(plain.iter().map(|it| (*it.0, Arc::as_ptr(it.1))))
    );
    for (inode, node) in plain {
        assert!(nodes.get(*inode).is_some_and(|found| Arc::ptr_eq(found, node)));
    }
}

fn check_diff((old, before): &(Nodes, Plain), (new, after): &(Nodes, Plain)) {
    let changed = |inode: &u64| !same(before.get(inode), after.get(inode));
    let mut expected: Vec<u64> = before.keys().chain(after.keys()).copied().filter(changed).collect();
    expected.sort_unstable();
    expected.dedup();
    let found: Vec<ChangedNode> = old.diff(new).collect();
    assert!(found.iter().map(|it| it.inode).eq(expected));
    for it in found {
        assert!(same(it.old, before.get(&it.inode)) && same(it.new, after.get(&it.inode)));
    }
}

#[test]
fn it_does_what_a_plain_map_does_and_clones_keep_what_they_had() {
    let mut random = Random(5);
    for _ in 0..20 {
        let mut kept = vec![(Nodes::default(), Plain::new())];
        let (mut nodes, mut plain) = kept[0].clone();
        for step in 0..600 {
            let inode = number(&mut random);
            let node = Arc::new(FileNode::new(Body::Fifo, 0, 0, 0, Time(step)));
            match random.below(5) {
                0 | 1 => {
                    nodes.insert(inode, node.clone());
                    plain.insert(inode, node);
                }
                2 => {
                    let any = plain.range(inode..).next().map_or(inode, |it| *it.0);
                    assert!(same(nodes.remove(any).as_ref(), plain.remove(&any).as_ref()));
                }
                3 => {
                    let places = (nodes.get_mut(inode), plain.get_mut(&inode));
                    assert_eq!(places.0.is_some(), places.1.is_some());
                    if let (Some(place), Some(other)) = places {
                        (*place, *other) = (node.clone(), node);
                    }
                }
                _ => assert_eq!(nodes.contains(inode), plain.contains_key(&inode)),
            }
            if step % 100 == 0 {
                kept.push((nodes.clone(), plain.clone()));
            }
        }
        for one in &kept {
            check(&one.0, &one.1);
            kept.iter().for_each(|other| check_diff(one, other));
        }
    }
}

#[test]
fn what_is_empty_takes_no_memory() {
    let mut nodes = Nodes::default();
    let node = Arc::new(FileNode::new(Body::Fifo, 0, 0, 0, Time(0)));
    (0..1000).for_each(|inode| nodes.insert(inode, node.clone()));
    (0..1000).for_each(|inode| drop(nodes.remove(inode)));
    assert!(nodes.ptr_eq(&Nodes::default()) && nodes.remove(7).is_none());
}
