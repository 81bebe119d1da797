//! Files without a name, which open handles keep alive: through seals and crashes, merges and rollbacks.

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{
    Attrs, BranchId, EditError, FILES_ROOT, FileName, FileOp, Hash, Memory, MergeVerb, NewInode, TreeError, View,
};

use crate::support::{main_of, open, verify, who};

fn name(name: &str) -> FileName {
    FileName::new(name.as_bytes()).unwrap()
}

fn make(memory: &Memory, branch: BranchId, path: &str, bytes: &str) -> u64 {
    let op = FileOp::Create {
        parent: FILES_ROOT,
        name: name(path),
        make: NewInode::File,
        mode: 0o644,
        uid: 1000,
        gid: 1000,
    };
    let inode = memory.edit(&who(), branch, op).unwrap().inode;
    memory.edit(&who(), branch, write(inode, 0, bytes)).unwrap();
    inode
}

fn write(inode: u64, offset: u64, bytes: &str) -> FileOp<'_> {
    FileOp::Write { inode, offset, bytes: bytes.as_bytes().into() }
}

fn unlink(memory: &Memory, branch: BranchId, path: &str) {
    memory.edit(&who(), branch, FileOp::Unlink { parent: FILES_ROOT, name: name(path), keep: true }).unwrap();
}

fn read(memory: &Memory, branch: BranchId, inode: u64) -> Result<String, TreeError> {
    let bytes = memory.files(&View::Branch(branch)).unwrap().read(inode, 0, 100, memory.packs())?;
    Ok(String::from_utf8(bytes).unwrap())
}

fn head(memory: &Memory, branch: BranchId) -> Hash {
    memory.snapshot(&View::Branch(branch)).unwrap().head()
}

/// A seal stores no file without a name, and what was done to one afterwards stood in the journal: the store could not
/// be opened after a crash.
#[test]
fn what_is_done_to_a_file_without_a_name_hinders_no_opening() {
    for seals in [false, true] {
        let disk = ForgetfulDisk::new();
        let memory = open(&disk).unwrap();
        let main = main_of(&memory);
        let gone = make(&memory, main, "gone", "abc");
        let stays = make(&memory, main, "stays", "abc");
        unlink(&memory, main, "gone");
        if seals {
            memory.seal().unwrap();
        }
        memory.edit(&who(), main, write(gone, 3, "def")).unwrap();
        let attrs = Attrs { mode: Some(0o600), size: Some(5), ..Attrs::default() };
        memory.edit(&who(), main, FileOp::SetAttr { inode: gone, attrs }).unwrap();
        assert_eq!(read(&memory, main, gone).unwrap(), "abcde");
        let copy = |from, to| FileOp::Copy { from, from_offset: 0, to, to_offset: 0, length: 3 };
        // Its bytes can't go where they would have to be found again.
        let refused = memory.edit(&who(), main, copy(gone, stays));
        assert!(matches!(refused, Err(EditError::Tree(TreeError::Stale))), "{refused:?}");
        memory.edit(&who(), main, copy(stays, gone)).unwrap();
        memory.edit(&who(), main, write(stays, 3, "d")).unwrap();
        memory.sync().unwrap();
        drop(memory);
        let disk = disk.power_cut_keep_all();
        let memory = open(&disk).unwrap();
        assert_eq!(read(&memory, main, stays).unwrap(), "abcd");
        assert!(matches!(read(&memory, main, gone), Err(TreeError::Stale)));
        memory.close().unwrap();
        verify(&disk).unwrap();
    }
}

/// Merge, pull and rollback take an open file's name; its handle reads on, and an opening knows nothing of it.
#[test]
fn what_takes_the_name_of_an_open_file_leaves_it_to_its_handles() {
    for how in ["merge", "pull", "promote", "rollback"] {
        let disk = ForgetfulDisk::new();
        let memory = open(&disk).unwrap();
        let main = main_of(&memory);
        memory.checkpoint(&who(), main, "empty", None).unwrap();
        let inode = make(&memory, main, "f", "text");
        make(&memory, main, "closed", "text");
        let fork = memory.fork(&who(), main, "x", None).unwrap();
        let receiver = if how == "pull" { fork } else { main };
        memory
            .set_open_files(Some(std::sync::Arc::new(move |of| if of == receiver { vec![inode] } else { Vec::new() })));
        for path in ["f", "closed"] {
            let giver = if how == "pull" { main } else { fork };
            memory.edit(&who(), giver, FileOp::Unlink { parent: FILES_ROOT, name: name(path), keep: false }).unwrap();
        }
        match how {
            "merge" => drop(memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap()),
            "pull" => drop(memory.merge(&who(), fork, MergeVerb::Pull, false).unwrap()),
            "promote" => drop(memory.merge(&who(), fork, MergeVerb::Promote, false).unwrap()),
            _ => drop(memory.rollback(&who(), main, "empty").unwrap()),
        }
        let tree = memory.files(&View::Branch(receiver)).unwrap();
        assert_eq!((tree.orphans().collect::<Vec<_>>(), tree.totals().files), (vec![inode], 0), "{how}");
        let before = head(&memory, receiver);
        memory.edit(&who(), receiver, write(inode, 4, " and more")).unwrap();
        assert_eq!(read(&memory, receiver, inode).unwrap(), "text and more", "{how}");
        assert_eq!(head(&memory, receiver), before, "{how}: what has no name is no content");
        memory.sync().unwrap();
        drop(memory);
        let disk = disk.power_cut_keep_all();
        let memory = open(&disk).unwrap();
        assert!(matches!(read(&memory, receiver, inode), Err(TreeError::Stale)), "{how}");
        assert_eq!(head(&memory, receiver), before, "{how}");
        memory.close().unwrap();
        verify(&disk).unwrap();
    }
}

/// More operations on a branch were counted as worked out than were pending, so that the number of those left was
/// below 0: a panic in a debug build, and a loop without end in a release build.
#[test]
fn what_is_done_to_a_file_without_a_name_is_never_pending() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    let (gone, stays) = (make(&memory, main, "gone", "abc"), make(&memory, main, "stays", "abc"));
    unlink(&memory, main, "gone");
    // So many that committing them is prepared without the writer lock.
    for at in 0..300 {
        memory.edit(&who(), main, write(stays, at, "x")).unwrap();
    }
    for at in 0..5 {
        memory.edit(&who(), main, write(gone, at, "y")).unwrap();
    }
    memory.seal().unwrap();
    assert_eq!(read(&memory, main, gone).unwrap(), "yyyyy");
    memory.edit(&who(), main, write(stays, 0, "z")).unwrap();
    memory.seal().unwrap();
    drop(memory);
    assert!(read(&open(&disk).unwrap(), main, stays).unwrap().starts_with('z'));
    verify(&disk).unwrap();
}
