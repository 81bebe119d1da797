//! Writes with whole chunks, whose bytes stay in the journal until a seal: they are what short ones are.

use std::sync::Arc;

use engramfs::disk::{Disk, DiskCall, Fault, FaultyDisk, ForgetfulDisk};
use engramfs::memory::{BranchId, EditError, FILES_ROOT, FileName, FileOp, Kind, Memory, NewInode, View};

use crate::support::{Chance, environment, main_of, open, open_on, verify, who};

const CHUNK: usize = 64 << 10;

/// Bytes of which no two chunks are equal, with a chunk of zeros in between.
fn bytes(chunks: usize, seed: u64) -> Vec<u8> {
    let mut chance = Chance(seed);
    let mut bytes: Vec<u8> = (0..chunks * CHUNK).map(|_| chance.next() as u8).collect();
    if chunks > 2 {
        bytes[CHUNK..2 * CHUNK].fill(0);
    }
    bytes
}

fn create(memory: &Memory, branch: BranchId, name: &str) -> u64 {
    let name = FileName::new(name.as_bytes()).unwrap();
    let op = FileOp::Create { parent: FILES_ROOT, name, make: NewInode::File, mode: 0o644, uid: 1000, gid: 1000 };
    memory.edit(&who(), branch, op).unwrap().inode
}

fn write(memory: &Memory, branch: BranchId, inode: u64, offset: usize, bytes: &[u8]) -> Result<(), EditError> {
    memory.edit(&who(), branch, FileOp::Write { inode, offset: offset as u64, bytes: bytes.into() }).map(drop)
}

fn read(memory: &Memory, branch: BranchId, path: &str) -> Vec<u8> {
    let tree = memory.files(&View::Branch(branch)).unwrap();
    tree.read(tree.resolve(path.as_bytes()).unwrap(), 0, 64 << 20, memory.packs()).unwrap()
}

/// What a file becomes by a write.
fn overwritten(mut old: Vec<u8>, offset: usize, new: &[u8]) -> Vec<u8> {
    old.resize(old.len().max(offset + new.len()), 0);
    old[offset..offset + new.len()].copy_from_slice(new);
    old
}

fn head(memory: &Memory) -> engramfs::memory::Hash {
    memory.files(&View::Branch(main_of(memory))).unwrap().hash()
}

fn journal(disk: &ForgetfulDisk) -> String {
    let files = disk.files().into_iter().map(|(path, _)| path);
    files.filter(|path| path.starts_with("journal/")).max().unwrap()
}

/// A store with a file of twelve chunks that was synced, and its bytes.
fn store() -> (ForgetfulDisk, Arc<Memory>, u64, Vec<u8>) {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let (main, old) = (main_of(&memory), bytes(12, 1));
    let inode = create(&memory, main, "long");
    write(&memory, main, inode, 0, &old).unwrap();
    memory.sync().unwrap();
    (disk, memory, inode, old)
}

#[test]
fn a_long_write_is_what_many_short_ones_are_before_and_after_deaths_and_seals() {
    let (disk, memory, inode, mut expected) = store();
    let more = bytes(3, 2);
    write(&memory, main_of(&memory), inode, 11 * CHUNK, &more).unwrap();
    write(&memory, main_of(&memory), inode, 5 * CHUNK + 7, b"some bytes of a chunk").unwrap();
    expected = overwritten(expected, 11 * CHUNK, &more);
    expected = overwritten(expected, 5 * CHUNK + 7, b"some bytes of a chunk");
    // With ends in chunks of every kind: in the journal, in memory, none yet, and bytes missing before.
    for (seed, offset, length) in
        [(8, 100, 2 * CHUNK), (9, 6 * CHUNK - 3, CHUNK + 3), (10, 15 * CHUNK + 1, 2 * CHUNK + 5)]
    {
        let more = &bytes(3, seed)[..length];
        write(&memory, main_of(&memory), inode, offset, more).unwrap();
        expected = overwritten(expected, offset, more);
    }

    let other = open(&ForgetfulDisk::new()).unwrap();
    let pieces = create(&other, main_of(&other), "long");
    for (number, piece) in expected.chunks(10_000).enumerate() {
        write(&other, main_of(&other), pieces, number * 10_000, piece).unwrap();
    }
    assert_eq!(head(&memory), head(&other));

    let check = |memory: &Memory, when: &str| {
        assert!(read(memory, main_of(memory), "long") == expected, "{when}");
        assert_eq!(head(memory), head(&other), "{when}");
    };
    check(&memory, "at once");
    // The dead process's writes are the kernel's: nothing of them is lost.
    let left = disk.power_cut_keep_all();
    let memory = open(&left).unwrap();
    check(&memory, "after a death");
    verify(&left).unwrap();
    memory.seal().unwrap();
    check(&memory, "after a seal");
    memory.close().unwrap();
    drop(memory);
    check(&open(&left).unwrap(), "after a close");
}

#[test]
fn forks_keep_what_they_saw_of_a_long_write_when_the_journal_is_gone() {
    let (_disk, memory, inode, old) = store();
    let main = main_of(&memory);
    let fork = memory.fork(&who(), main, "fork", None).unwrap();
    let held = memory.files(&View::Branch(fork)).unwrap();
    let new = bytes(12, 5);
    write(&memory, main, inode, 0, &new).unwrap();
    memory.seal().unwrap();
    assert!(read(&memory, main, "long") == new && read(&memory, fork, "long") == old);
    // Who took the tree before the seal reads on in the file that has no name any longer.
    assert!(held.read(inode, 0, 64 << 20, memory.packs()).unwrap() == old);
}

#[test]
fn a_power_cut_leaves_all_of_a_long_write_or_nothing() {
    let (disk, memory, inode, old) = store();
    let (offset, more) = (CHUNK - 9, &bytes(12, 3)[..11 * CHUNK]);
    let new = overwritten(old.clone(), offset, more);
    write(&memory, main_of(&memory), inode, offset, more).unwrap();
    let (mut olds, mut news) = (0, 0);
    let cuts = (0..60).map(|seed| disk.power_cut(seed));
    for cut in cuts.chain([disk.power_cut_keep_nothing(), disk.power_cut_keep_all()]) {
        let memory = open(&cut).unwrap();
        let found = read(&memory, main_of(&memory), "long");
        assert!(found == old || found == new, "a mix of both");
        *(if found == old { &mut olds } else { &mut news }) += 1;
        write(&memory, main_of(&memory), inode, offset, more).unwrap();
        memory.sync().unwrap();
        drop(memory);
        let memory = open(&cut.power_cut_keep_nothing()).unwrap();
        assert!(read(&memory, main_of(&memory), "long") == new, "what was synced is lost");
    }
    assert!(olds > 0 && news > 0, "{olds} old, {news} new");
}

#[test]
fn a_wrong_byte_of_a_long_write_is_damage_where_it_was_flushed_and_a_torn_tail_where_not() {
    let (disk, memory, inode, old) = store();
    let path = journal(&disk);
    let flushed = disk.bytes(&path).unwrap();
    let new = bytes(12, 4);
    write(&memory, main_of(&memory), inode, 0, &new).unwrap();
    let (all, content) = (disk.bytes(&path).unwrap(), 12 * CHUNK);
    let first = (0..flushed.len()).find(|at| flushed[*at..].starts_with(&old[..64])).unwrap();
    let second = all.len() - content - 12 * 32;
    assert!(all[second..].starts_with(&new[..64]));
    // Bytes of the content, of its first and last chunk, of the zeros, of what vouches for it.
    for at in [0, 17 * 4096, content - 1, content, content + 32 + 3, content + 12 * 32 - 1] {
        let wrong = |at: usize| {
            let copy = disk.power_cut_keep_all();
            copy.flip(&path, at as u64, 4).unwrap();
            copy
        };
        let error = open(&wrong(first + at)).map(drop).unwrap_err();
        assert_eq!(error.kind(), Kind::Damaged, "byte {at}: {error}");
        assert_eq!(verify(&wrong(first + at)).unwrap_err().kind(), Kind::Damaged);
        let memory = open(&wrong(second + at)).unwrap();
        assert!(memory.warnings()[0].contains("cut away"), "byte {at}: {:?}", memory.warnings());
        assert!(read(&memory, main_of(&memory), "long") == old, "byte {at}");
    }
}

#[test]
fn a_long_write_that_fails_anywhere_has_not_happened_and_the_next_one_succeeds() {
    let more = bytes(12, 6);
    for (half, offset) in [(false, 0), (true, 0), (false, 77), (true, 77)] {
        for nth in 1.. {
            let (disk, memory, inode, old) = store();
            let new = overwritten(old.clone(), offset, &more);
            drop(memory);
            let faulty = FaultyDisk::new(disk.power_cut_keep_all());
            let memory = open_on(Arc::new(faulty.clone())).unwrap();
            let main = main_of(&memory);
            let kinds = &[DiskCall::Write];
            faulty.plan(Fault { nth, kinds, errno: libc::EIO, short_write: half, sticky: false });
            let done = write(&memory, main, inode, offset, &more);
            let hit = faulty.calls() >= nth;
            faulty.clear();
            assert_eq!(done.is_err(), hit, "call {nth}");
            assert!(read(&memory, main, "long") == if hit { old } else { new.clone() }, "call {nth}");
            write(&memory, main, inode, CHUNK, &more).unwrap();
            let expected = read(&memory, main, "long");
            drop(memory);
            let memory = open(&faulty.inner().power_cut_keep_all()).unwrap();
            assert!(read(&memory, main, "long") == expected, "call {nth}");
            if !hit {
                assert!(nth > 2, "a long write made {} calls", nth - 1);
                break;
            }
        }
    }
}

/// A seal reads the chunks back, and says so where they are not what was written.
#[test]
fn a_seal_does_not_take_over_what_is_not_what_was_written() {
    let (disk, memory, inode, old) = store();
    let path = journal(&disk);
    let at = disk.bytes(&path).unwrap().windows(64).position(|bytes| bytes == &old[..64]).unwrap();
    disk.flip(&path, at as u64 + 5, 1).unwrap();
    assert!(memory.seal().is_err());
    let tree = memory.files(&View::Branch(main_of(&memory))).unwrap();
    assert!(tree.read(inode, 0, 10, memory.packs()).is_err());
    assert!(tree.read(inode, 2 * CHUNK as u64, 10, memory.packs()).unwrap() == old[2 * CHUNK..][..10]);
}

#[test]
fn a_reader_beside_the_writer_sees_long_writes() {
    let (disk, _memory, _, old) = store();
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let reader = Memory::open_on(disk, engramfs::memory::OpenMode::ReadOnly, None, environment()).unwrap();
    assert!(read(&reader, main_of(&reader), "long") == old);
}
