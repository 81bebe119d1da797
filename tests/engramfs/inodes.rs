//! Inode numbers: whatever is pulled, promoted, merged and rolled back, a number of a branch leads to one file for ever.
//! Handles and the kernel's pages go by it.

use std::collections::HashMap;

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{
    Attrs, BranchId, FILES_ROOT, FileName, FileOp, Memory, MergeVerb, NewInode, RenameMode, Setting, Time, View,
};

use crate::shrink::run_steps;
use crate::support::{Chance, main_of, open, rounds, who};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn name(chance: &mut Chance) -> FileName {
    FileName::new(NAMES[chance.below(NAMES.len())].as_bytes()).unwrap()
}

/// The inodes of a branch with their times of birth, which no two files of a store share.
fn births(memory: &Memory, branch: BranchId) -> HashMap<u64, Time> {
    let tree = memory.files(&View::Branch(branch)).unwrap();
    tree.inodes().map(|inode| (inode, tree.node(inode).unwrap().crtime)).collect()
}

/// Makes, writes, renames or removes one of the files; what can't be done is not.
fn edit(memory: &Memory, branch: BranchId, chance: &mut Chance) {
    let (one, other) = (name(chance), name(chance));
    let tree = memory.files(&View::Branch(branch)).unwrap();
    let there = tree.lookup(FILES_ROOT, &one).ok();
    let op = match (there, chance.below(4)) {
        (None, _) => {
            FileOp::Create { parent: FILES_ROOT, name: one, make: NewInode::File, mode: 0o644, uid: 1000, gid: 1000 }
        }
        (Some(_), 0) => FileOp::Unlink { parent: FILES_ROOT, name: one, keep: false },
        (Some(_), 1) => FileOp::Rename {
            parent: FILES_ROOT,
            name: one,
            new_parent: FILES_ROOT,
            new_name: other,
            mode: RenameMode::Plain,
            keep: false,
        },
        (Some(inode), 2) => FileOp::SetAttr { inode, attrs: Attrs { size: Some(0), ..Attrs::default() } },
        (Some(inode), _) => {
            let bytes = format!("{}\n", chance.below(1000)).into_bytes();
            FileOp::Write { inode, offset: 4 * chance.below(4) as u64, bytes: bytes.into() }
        }
    };
    let _ = memory.edit(&who(), branch, op);
}

/// A promote with nothing to do gave the branch its parent's numbers, under which it had other files.
#[test]
fn a_number_leads_to_one_file_for_ever() {
    for seed in 0..rounds(60) as u64 {
        let mut chance = Chance(seed);
        // What is done, and the seed of what it draws.
        let steps: Vec<(usize, u64)> = (0..40).map(|_| (chance.below(10), chance.next())).collect();
        run_steps(seed, &steps, |steps| watch_numbers(seed, steps));
    }
}

fn watch_numbers(seed: u64, steps: &[(usize, u64)]) {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let (main, mut chance) = (main_of(&memory), Chance(seed));
    memory.set(&who(), main, Setting::Rules, "** whole newest-wins\n").unwrap();
    (0..4).for_each(|_| edit(&memory, main, &mut chance));
    let x = memory.fork(&who(), main, "x", None).unwrap();
    memory.checkpoint(&who(), x, "v", None).unwrap();
    let mut known: [HashMap<u64, Time>; 2] = Default::default();
    for (n, (what, seed)) in steps.iter().enumerate() {
        let chance = &mut Chance(*seed);
        let before = births(&memory, x);
        let mut joins = false;
        match what {
            0 | 1 => joins = memory.merge(&who(), x, MergeVerb::Pull, false).is_ok(),
            2 | 3 => joins = memory.merge(&who(), x, MergeVerb::Promote, false).is_ok(),
            4 => drop(memory.rollback(&who(), x, "v").unwrap()),
            5 => {
                let y = memory.fork(&who(), main, "y", None).unwrap();
                (0..3).for_each(|_| edit(&memory, y, chance));
                memory.merge(&who(), y, MergeVerb::Merge, false).unwrap();
            }
            number => edit(&memory, if *number < 8 { main } else { x }, chance),
        }
        let now = births(&memory, x);
        for (branch, known) in [main, x].into_iter().zip(&mut known) {
            for (inode, born) in births(&memory, branch) {
                let first = *known.entry(inode).or_insert(born);
                assert_eq!(first, born, "step {n}: number {inode} leads to another file");
            }
        }
        let moved = |(inode, born): &(&u64, &Time)| {
            now.get(inode) != Some(*born) && now.iter().any(|(other, again)| other != *inode && again == *born)
        };
        let moved = before.iter().find(moved);
        assert!(!joins || moved.is_none(), "step {n}: a file got another number: {moved:?}");
    }
}

/// A branch's number is part of the inodes of its files: a mount that numbered the branches anew would give other ones.
#[test]
fn branches_keep_their_numbers_over_a_seal_and_an_opening() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    let [first, second] = ["first", "second"].map(|name| memory.fork(&who(), main, name, None).unwrap());
    memory.discard(&who(), first).unwrap();
    let number = memory.branch_number(second);
    memory.close().unwrap();
    let memory = open(&disk).unwrap();
    assert_eq!(memory.branch_number(second), number);
    let third = memory.fork(&who(), main, "third", None).unwrap();
    assert!(![number, memory.branch_number(main)].contains(&memory.branch_number(third)));
}
