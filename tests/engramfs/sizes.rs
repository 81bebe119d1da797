//! What things take in the journal, held against the table of costs in FORMAT.md.

use std::fs;
use std::path::Path;

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{FILES_ROOT, FileName, FileOp, Memory, NewInode, RecordEdit, RecordInput};

use crate::support::{main_of, open, who};

/// The numbers in the last cell of the row, in its order.
fn documented(row: &str) -> Vec<u64> {
    let format = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/FORMAT.md")).unwrap();
    let row = format.lines().find(|line| line.starts_with(&format!("| {row}"))).unwrap();
    let cell = row.trim_end_matches(" |").rsplit(" | ").next().unwrap().replace(',', "");
    cell.split(|char: char| !char.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
}

fn journal_bytes(disk: &ForgetfulDisk) -> u64 {
    disk.files().into_iter().filter(|(path, _)| path.starts_with("journal/")).map(|(_, bytes)| bytes).sum()
}

/// Returns by how much the journal grows.
fn growth<T>(disk: &ForgetfulDisk, change: impl FnOnce() -> T) -> u64 {
    let before = journal_bytes(disk);
    change();
    journal_bytes(disk) - before
}

/// The record of the page's examples: 384 numbers, an id of 10 bytes, a text of 108 and metadata of 32.
fn example(n: usize) -> RecordEdit {
    let metadata = format!("{{\"k\":\"{}\"}}", "m".repeat(24));
    assert_eq!(metadata.len(), 32);
    let vector = Some(vec![1.0 + n as f32; 384].into());
    let input = RecordInput { vector, text: Some("t".repeat(108).into()), metadata: metadata.into() };
    RecordEdit::Put { id: format!("{n:010}").into(), input }
}

const RAW_BYTES: u64 = 10 + 4 * 384 + 108 + 32;

fn with_file(memory: &Memory, name: &str) -> u64 {
    let name = FileName::new(name.as_bytes()).unwrap();
    let op = FileOp::Create { parent: FILES_ROOT, name, make: NewInode::File, mode: 0o644, uid: 1000, gid: 1000 };
    memory.edit(&who(), main_of(memory), op).unwrap().inode
}

#[test]
fn a_new_store_has_the_size_of_the_page() {
    let disk = ForgetfulDisk::new();
    let _memory = open(&disk).unwrap();
    let manifest = disk.bytes("manifest").unwrap().len() as u64;
    assert_eq!([manifest, journal_bytes(&disk)], documented("a new store")[..2]);
}

#[test]
fn log_records_have_the_sizes_of_the_page() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    let fork = growth(&disk, || memory.fork(&who(), main, "agent-7", None).unwrap());
    assert_eq!(fork, documented("a fork, name of 7 letters")[0]);
    assert_eq!(growth(&disk, || memory.sync().unwrap()), documented("the first sync")[0]);
    let record = growth(&disk, || memory.commit(&who(), main, vec![example(0)]).unwrap());
    assert_eq!(record, documented("a record, one a commit")[0]);
    let many = growth(&disk, || memory.commit(&who(), main, (1..=500).map(example).collect()).unwrap());
    assert_eq!(many / 500, documented("a record, 500 a commit")[0]);
    assert!((RAW_BYTES..RAW_BYTES + 200).contains(&record), "{record}");
}

#[test]
fn operations_on_files_have_the_sizes_of_the_page() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let (main, path) = (main_of(&memory), "files/plan.md");
    let inode = with_file(&memory, "plan.md");
    let bytes = b"hello";
    let op = FileOp::Write { inode, offset: 0, bytes: bytes.as_slice().into() };
    let write = growth(&disk, || memory.edit(&who(), main, op).unwrap());
    assert_eq!(write - bytes.len() as u64, documented("an operation on files")[0]);
    let entry = growth(&disk, || memory.fork(&who(), main, "agent-7", None).unwrap())
        - documented("a fork, name of 7 letters")[0];
    assert_eq!(entry - path.len() as u64 - 1, documented("the entry that commits operations")[0]);
}
