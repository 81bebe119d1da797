//! Trees that were given away as a whole.

use super::*;
use crate::workspace::{NoPacks, Transfers};

const ANN: u32 = 1001;
const BOB: u32 = 1002;

fn owner(tree: &Tree, inode: u64) -> u32 {
    tree.owner(tree.node(inode).unwrap())
}

fn chmod(tree: &mut Tree, inode: u64, mode: u32) {
    let attrs = Attrs { mode: Some(mode), ..Attrs::default() };
    tree.apply(&FileOp::SetAttr { inode, attrs }, Time(2), &NoPacks).unwrap();
}

#[test]
fn a_mode_that_changes_later_changes_no_owner() {
    let mut tree = Tree::default();
    let [open, closed] = [create(&mut tree, ROOT, b"open"), create(&mut tree, ROOT, b"closed")];
    chmod(&mut tree, closed, 0o600);
    let mut fork = tree.clone();
    fork.transfer_owner(0, ANN);
    assert_eq!((owner(&fork, open), owner(&fork, closed)), (ANN, 0));
    chmod(&mut fork, open, 0o600);
    chmod(&mut fork, closed, 0o644);
    assert_eq!((owner(&fork, open), owner(&fork, closed)), (ANN, 0));
    fork.transfer_owner(ANN, BOB);
    assert_eq!((owner(&fork, open), owner(&fork, closed)), (ANN, 0));
    fork.transfer_owner(0, BOB);
    assert_eq!((owner(&fork, open), owner(&fork, closed)), (ANN, BOB));
    assert_eq!(owner(&tree, open), 0);
}

/// Else a fork by another user would cost as much as there are files.
#[test]
fn a_tree_that_is_given_away_shares_all_its_files_with_the_one_it_came_from() {
    let mut tree = Tree::default();
    let inodes: Vec<u64> = (0..100).map(|number| create(&mut tree, ROOT, format!("f{number}").as_bytes())).collect();
    let mut fork = tree.clone();
    fork.transfer_owner(0, ANN);
    assert!(fork.nodes.ptr_eq(&tree.nodes));
    assert!(inodes.iter().all(|inode| owner(&fork, *inode) == ANN && owner(&tree, *inode) == 0));
}

#[test]
fn only_what_everybody_may_read_and_gives_no_rights_is_given() {
    let given = |make: NewInode, mode: u32| {
        let mut tree = Tree::default();
        let inode = made(&mut tree, ROOT, b"a", make);
        chmod(&mut tree, inode, mode);
        tree.transfer_owner(0, ANN);
        owner(&tree, inode) == ANN
    };
    for mode in [0o644, 0o444, 0o755, 0o2644, 0o1644] {
        assert!(given(NewInode::File, mode), "{mode:o}");
    }
    for mode in [0o600, 0o640, 0o604, 0o622, 0o711, 0o4755, 0o2755, 0o4644] {
        assert!(!given(NewInode::File, mode), "{mode:o}");
    }
    for (mode, expected) in
        [(0o755, true), (0o2775, true), (0o1777, true), (0o744, false), (0o711, false), (0o700, false)]
    {
        assert_eq!(given(NewInode::Directory, mode), expected, "{mode:o}");
    }
    assert!(given(NewInode::Symlink(b"x".to_vec()), 0o777) && given(NewInode::Fifo, 0o644));
    assert!(!given(NewInode::CharDevice(259), 0o666) && !given(NewInode::BlockDevice(259), 0o666));
    for (name, expected) in [(&b"security.capability"[..], false), (b"user.x", true)] {
        let mut tree = Tree::default();
        let inode = create(&mut tree, ROOT, b"a");
        let set = FileOp::SetXattr { inode, name: name.to_vec(), value: b"all".to_vec(), mode: XattrMode::Any };
        tree.apply(&set, Time(2), &NoPacks).unwrap();
        tree.transfer_owner(0, ANN);
        assert_eq!(owner(&tree, inode) == ANN, expected);
    }
}

#[test]
fn owners_of_random_histories_are_those_of_an_eager_tree_also_when_stored() {
    let mut chance = Random(7);
    let mut tree = Tree::default();
    let mut expected: Vec<(u64, u32, u32)> = Vec::new();
    for step in 0..3_000_u32 {
        let uid = chance.below(4) as u32;
        match chance.below(8) {
            0 | 1 => {
                let inode = create(&mut tree, ROOT, step.to_string().as_bytes());
                expected.push((inode, 0, 0o644));
            }
            2 | 3 if !expected.is_empty() => {
                let at = chance.below(expected.len());
                let (inode, owner, mode) = &mut expected[at];
                (*owner, *mode) = (uid, [0o600, 0o644][chance.below(2)]);
                let attrs = Attrs { uid: Some(uid), mode: Some(*mode), ..Attrs::default() };
                tree.apply(&FileOp::SetAttr { inode: *inode, attrs }, Time(2), &NoPacks).unwrap();
            }
            4 if !expected.is_empty() => {
                let at = chance.below(expected.len());
                write(&mut tree, expected[at].0, 0, b"x");
            }
            5 => {
                let to = chance.below(4) as u32;
                tree.transfer_owner(uid, to);
                for (_, owner, _) in expected.iter_mut().filter(|(_, owner, mode)| *owner == uid && *mode == 0o644) {
                    *owner = to;
                }
            }
            6 => {
                let bytes = tree.delta_from(&Tree::default()).unwrap();
                let mut out = crate::object::Writer::new();
                tree.transfers().write(&mut out);
                let transfers = Transfers::read(&mut crate::object::Reader::new(out.as_slice())).unwrap();
                tree = Tree::default().with_delta(&bytes).unwrap().with_transfers(transfers);
            }
            _ => {}
        }
    }
    assert!(expected.len() > 500);
    for (inode, uid, _) in expected {
        assert_eq!(owner(&tree, inode), uid);
    }
}
