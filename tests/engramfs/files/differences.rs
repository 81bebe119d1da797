//! What `diff` lists of files, and what comparisons show of them.

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{Actor, FILES_ROOT, FileName, FileOp, Make, RenameHow, View, Viewer};
use serde_json::Value;

use super::{folders, write};
use crate::support::{main_of, open, who};

#[test]
fn diff_lists_a_renamed_file_at_both_names_and_directories_for_their_own_changes() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    for path in ["old", "stays/inside"] {
        write(&memory, main, path, "base");
    }
    let x = memory.fork(&who(), main, "x", None).unwrap();
    let named = |bytes: &[u8]| FileName::new(bytes).unwrap();
    let (name, new_name) = (named(b"old"), named(b"new"));
    let (parent, new_parent, how) = (FILES_ROOT, FILES_ROOT, RenameHow::Plain);
    memory.edit(&who(), x, FileOp::Rename { parent, name, new_parent, new_name, how, keep: false }).unwrap();
    write(&memory, x, "stays/inside", "changed");
    folders(&memory, x, "made");
    let (name, make) = (named(b"odd\xff"), Make::File);
    memory.edit(&who(), x, FileOp::Create { parent, name, make, mode: 0o644, uid: 0, gid: 0 }).unwrap();
    let diff = memory.diff(&View::Branch(x)).unwrap();
    let lines = std::str::from_utf8(&diff).unwrap().lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let listed: Vec<String> =
        lines.map(|line| format!("{} {}", line["path"].as_str().unwrap(), line["change"].as_str().unwrap())).collect();
    let expected = ["made added", "new added", "odd\u{fffd} added", "old deleted", "stays/inside modified"];
    assert_eq!(listed, expected.map(|line| format!("files/{line}")));
}

#[test]
fn a_comparison_shows_the_text_of_ones_own_files_up_to_64_kib() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let x = memory.fork(&who(), main, "x", None).unwrap();
    let limit = 64 << 10;
    for (path, length) in [("limit", limit), ("longer", limit + 1)] {
        write(&memory, x, path, &"t".repeat(length));
    }
    let shown = |uid: u32| -> Vec<(Value, Option<usize>)> {
        let asker = Actor { uid, gid: uid, name: "asker".into() };
        let found = memory.compare(&asker, x, [Some("/main"), None], Viewer::OF_STORE).unwrap();
        let lines = found.line.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|line| (line["after"]["size"].clone(), line["after"]["text"].as_str().map(str::len))).collect()
    };
    let sizes = [limit, limit + 1].map(Value::from);
    let expected = |texts: [Option<usize>; 2]| sizes.clone().into_iter().zip(texts).collect::<Vec<_>>();
    for (uid, text) in [(who().uid, Some(limit)), (0, Some(limit)), (4711, None)] {
        assert_eq!(shown(uid), expected([text, None]), "{uid}");
    }
}
