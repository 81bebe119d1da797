//! What the page lists as known limits, so that it stays true, or the page learns when it is not.

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{Attrs, BranchId, FILES_ROOT, FileName, FileOp, Memory, MergeVerb, Setting, Time, View};

use crate::files::{read, write};
use crate::support::{main_of, open, who};

/// A file of `main`, and a fork with it.
fn forked(path: &str) -> (std::sync::Arc<Memory>, BranchId, BranchId) {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Rules, "** whole").unwrap();
    write(&memory, main, path, "of the base");
    let child = memory.fork(&who(), main, "child", None).unwrap();
    (memory, main, child)
}

fn set_time(memory: &Memory, branch: BranchId, path: &str, time: i64) {
    let inode = memory.files(&View::Branch(branch)).unwrap().resolve(path.as_bytes()).unwrap();
    let attrs = Attrs { mtime: Some(Time(time)), ..Attrs::default() };
    memory.edit(&who(), branch, FileOp::SetAttr { inode, attrs }).unwrap();
}

#[test]
fn in_a_pull_the_parents_file_wins_where_two_have_equal_times() {
    for (kind, of_main, of_child, expected) in [
        (MergeVerb::Pull, 5, 5, "of main"),
        (MergeVerb::Pull, 5, 6, "of the child"),
        (MergeVerb::Pull, 6, 5, "of main"),
        (MergeVerb::Promote, 5, 5, "of the child"),
        (MergeVerb::Promote, 6, 5, "of main"),
    ] {
        let (memory, main, child) = forked("f");
        for (branch, bytes, time) in [(main, "of main", of_main), (child, "of the child", of_child)] {
            write(&memory, branch, "f", bytes);
            set_time(&memory, branch, "f", time);
        }
        memory.merge(&who(), child, kind, false).unwrap();
        let received = if kind == MergeVerb::Pull { child } else { main };
        assert_eq!(read(&memory, received, "f").as_deref(), Some(expected), "{kind:?}, {of_main} and {of_child}");
    }
}

#[test]
fn a_later_name_in_its_directory_makes_a_delete_look_later() {
    for (later_name, expected) in [(false, Some("of main")), (true, None)] {
        let (memory, main, child) = forked("d/f");
        let parent = memory.files(&View::Branch(child)).unwrap().lookup(FILES_ROOT, b"d").unwrap();
        let name = FileName::new(b"f").unwrap();
        memory.edit(&who(), child, FileOp::Unlink { parent, name, keep: false }).unwrap();
        write(&memory, main, "d/f", "of main");
        if later_name {
            write(&memory, child, "d/other", "which has nothing to do with it");
        }
        memory.merge(&who(), child, MergeVerb::Merge, false).unwrap();
        assert_eq!(read(&memory, main, "d/f").as_deref(), expected, "a later name: {later_name}");
    }
}
