//! Bytes that were right when they were first read, and are wrong now: each reader of an open store finds them.

use std::sync::Arc;

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{Error, Export, Kind, Memory, Query, TreeError, View};

use crate::files::write;
use crate::support::{Chance, main_of, open, put};

const RECORDS: usize = 40;

/// One reading, by what it is.
type Reading = (String, Result<Vec<u8>, Error>);

/// An open store whose records are in a segment and whose files are in a pack.
fn store() -> (ForgetfulDisk, Arc<Memory>) {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let main = main_of(&memory);
    memory.set(&crate::support::who(), main, engramfs::memory::Setting::Keep, "0s").unwrap();
    let record = |n: usize| put(&id(n), Some(vec![n as f32 + 0.5, 1.0]), Some(&format!("the text numbered {n:03}")));
    memory.commit(&crate::support::who(), main, (0..RECORDS).map(record).collect()).unwrap();
    write(&memory, main, "notes/one.txt", &"the content of a file\n".repeat(20));
    write(&memory, main, "large.txt", &"a line of a large file\n".repeat(9_000));
    memory.seal().unwrap();
    (disk, memory)
}

fn id(n: usize) -> String {
    format!("record-{n:03}")
}

fn export(memory: &Memory, export: Export) -> Result<Vec<u8>, Error> {
    let snapshot = memory.snapshot(&View::Branch(main_of(memory)))?;
    let mut bytes = vec![0; snapshot.export_length(export) as usize];
    let count = snapshot.export_read(export, 0, &mut bytes)?;
    assert_eq!(count, bytes.len());
    Ok(bytes)
}

fn ask(memory: &Memory, query: &str) -> Result<Vec<u8>, Error> {
    let answer = memory.query(&View::Branch(main_of(memory)), &Query::parse(query).unwrap())?;
    // The first line says how long it took.
    Ok(answer.to_lines(0).lines().skip(1).collect::<String>().into())
}

fn file(memory: &Memory, path: &str) -> Result<Vec<u8>, Error> {
    let tree = memory.files(&View::Branch(main_of(memory)))?;
    let inode = tree.resolve(path.as_bytes()).unwrap();
    tree.read(inode, 0, 1 << 20, memory.packs()).map_err(|error| match error {
        TreeError::Segment(error) => error.into(),
        other => panic!("{other}"),
    })
}

fn read_all(memory: &Memory) -> Vec<Reading> {
    let mut all = Vec::new();
    for n in [0, 17, RECORDS - 1] {
        let snapshot = memory.snapshot(&View::Branch(main_of(memory))).unwrap();
        let document = snapshot.get(&id(n)).map(|record| record.unwrap().to_document());
        all.push((id(n), document));
    }
    for kind in [Export::Vectors, Export::Ids, Export::Records] {
        all.push((format!("{kind:?}"), export(memory, kind)));
    }
    let all_of_them = format!(r#"{{"vector":[1,1],"k":{RECORDS},"include":["vector"]}}"#);
    all.push(("hits".to_owned(), ask(memory, &all_of_them)));
    for path in ["notes/one.txt", "large.txt"] {
        all.push((path.to_owned(), file(memory, path)));
    }
    all
}

/// Where bytes stand in a file of the store.
fn place_of(disk: &ForgetfulDisk, bytes: &[u8]) -> (String, u64) {
    let mut found =
        disk.files().into_iter().filter(|(path, _)| path.starts_with("segments/")).filter_map(|(path, _)| {
            let content = disk.bytes(&path).unwrap();
            let at = content.windows(bytes.len()).position(|window| window == bytes)?;
            Some((path, at as u64))
        });
    found.next().unwrap_or_else(|| panic!("{bytes:?} stand nowhere"))
}

#[test]
fn damage_after_the_first_read_is_an_error_of_every_reader() {
    let (disk, memory) = store();
    let right: Vec<Vec<u8>> = read_all(&memory).into_iter().map(|(_, bytes)| bytes.unwrap()).collect();
    let vector = [17.5f32.to_le_bytes(), 1f32.to_le_bytes()].concat();
    let cases: [(&[u8], &[&str]); 5] = [
        (b"the text numbered 017", &["record-017", "Records", "hits"]),
        (&vector, &["record-017", "Vectors", "Records", "hits"]),
        // One that no entry names.
        (b"record-037", &["Ids"]),
        (b"the content of a file", &["notes/one.txt"]),
        (b"a line of a large file", &["large.txt"]),
    ];
    for (bytes, readers) in cases {
        let (path, at) = place_of(&disk, bytes);
        disk.flip(&path, at, 1).unwrap();
        let found = read_all(&memory);
        for reader in readers {
            let (_, outcome) = found.iter().find(|(name, _)| name == reader).unwrap();
            let error = outcome.as_ref().expect_err(reader);
            assert!(
                error.kind() == Kind::Damaged && path.contains(error.to_string().split(' ').nth(2).unwrap()),
                "{error}"
            );
        }
        disk.flip(&path, at, 1).unwrap();
        assert!(
            read_all(&memory).iter().zip(&right).all(|((_, now), right)| now.as_ref().is_ok_and(|now| now == right))
        );
    }
}

#[test]
fn no_byte_that_goes_wrong_while_the_store_is_open_is_served() {
    let (disk, memory) = store();
    let right: Vec<Vec<u8>> = read_all(&memory).into_iter().map(|(_, bytes)| bytes.unwrap()).collect();
    let (mut chance, mut errors) = (Chance(5), 0);
    for (path, length) in disk.files().into_iter().filter(|(path, _)| path.starts_with("segments/")) {
        for at in (chance.below(97) as u64..length).step_by(97) {
            let bit = 1 << chance.below(8);
            disk.flip(&path, at, bit).unwrap();
            for ((what, now), right) in read_all(&memory).into_iter().zip(&right) {
                match now {
                    Ok(now) => assert!(now == *right, "{path}, byte {at}: {what} reads wrong"),
                    Err(error) => {
                        assert_eq!(error.kind(), Kind::Damaged, "{path}, byte {at}: {what}: {error}");
                        errors += 1;
                    }
                }
            }
            disk.flip(&path, at, bit).unwrap();
        }
    }
    assert!(errors > 0);
}

#[test]
fn a_file_that_is_cut_short_while_the_store_is_open_is_damaged() {
    let (disk, memory) = store();
    read_all(&memory).into_iter().for_each(|(_, bytes)| drop(bytes.unwrap()));
    for bytes in [&b"the text numbered 017"[..], b"the content of a file"] {
        let (path, at) = place_of(&disk, bytes);
        engramfs::disk::Disk::open_write(&disk, &path).unwrap().set_len(at).unwrap();
    }
    for (what, now) in read_all(&memory) {
        if let Err(error) = now {
            assert!(error.kind() == Kind::Damaged && error.to_string().contains("cut off"), "{what}: {error}");
        } else {
            assert!(!["record-017", "Records", "hits", "notes/one.txt"].contains(&&*what), "{what} is served");
        }
    }
}

/// Rows of older segments are folded into new ones, whose hashes are right: a wrong byte must not get one.
#[test]
fn a_seal_does_not_fold_what_went_wrong() {
    let (disk, memory) = store();
    read_all(&memory).into_iter().for_each(|(_, bytes)| drop(bytes.unwrap()));
    let (path, at) = place_of(&disk, b"the text numbered 017");
    disk.flip(&path, at, 1).unwrap();
    // The smallest segments of a dimension are folded, once there are more than eight.
    let seal = |n: usize| {
        let record = |at| put(&format!("new-{n}-{at}"), Some(vec![1.0, at as f32]), Some("new"));
        memory.commit(&crate::support::who(), main_of(&memory), (0..2 * RECORDS).map(record).collect()).unwrap();
        memory.seal().unwrap();
    };
    let document = || {
        let snapshot = memory.snapshot(&View::Branch(main_of(&memory))).unwrap();
        snapshot.get("record-017").map(|record| record.unwrap().to_document())
    };
    (0..20).for_each(seal);
    let error = document().unwrap_err();
    assert_eq!(error.kind(), Kind::Damaged, "{error}");
    disk.flip(&path, at, 1).unwrap();
    document().unwrap();
    seal(20);
    assert!(disk.bytes(&path).is_err(), "a control: it is folded as soon as it is right");
    document().unwrap();
}
