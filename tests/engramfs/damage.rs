//! Bytes and files that are not what was written: `verify` must find each, and no read may return
//! a wrong byte.
//!
//! The file `lock` is left out: it holds only words for people about who has the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use engramfs::disk::{Disk, FaultyDisk, ForgetfulDisk};
use engramfs::memory::{Error, Hash, Kind, Memory, MergeVerb, OpenMode, Setting, VerifyOptions, View, verify_on};

use crate::support::{
    Chance, close_unsealed, delete, environment, main_of, make_file, open, open_on, put, stride, verify, who,
};

/// Bytes of a frame without payload: what stands behind the last frame and is shorter may always be
/// the beginning of a frame whose writer was killed.
const FRAME_HEADER_BYTES: u64 = engramfs::journal::FRAME_HEADER_BYTES as u64;

/// A small store with everything in it, closed, with log records in its journal; and its tip.
fn store() -> (ForgetfulDisk, Hash) {
    let faulty = FaultyDisk::new(ForgetfulDisk::new());
    let disk = faulty.inner().clone();
    let memory = open_on(Arc::new(faulty.clone())).unwrap();
    let main = main_of(&memory);
    let record = |id: &str, n: u32| put(id, Some(vec![n as f32, 1.0]), Some(&format!("text {n}")));
    memory.commit(&who(), main, (0..6).map(|n| record(&format!("r{n}"), n)).collect()).unwrap();
    memory.checkpoint(&who(), main, "first", Some("as it began")).unwrap();
    let lost = memory.fork(&who(), main, "lost", None).unwrap();
    memory.commit(&who(), lost, vec![record("r0", 70)]).unwrap();
    memory.discard(&who(), lost).unwrap();
    let child = memory.fork(&who(), main, "child", None).unwrap();
    memory.commit(&who(), child, vec![record("r1", 80), delete("r2")]).unwrap();
    memory.commit(&who(), main, vec![record("r1", 90), record("r2", 91)]).unwrap();
    assert_eq!(memory.merge(&who(), child, MergeVerb::Merge, false).unwrap().conflicts.len(), 2);
    memory.seal().unwrap();
    let alive = memory.fork(&who(), main, "alive", None).unwrap();
    memory.commit(&who(), alive, vec![record("r3", 100), put("words", None, Some("no vector"))]).unwrap();
    memory.seal().unwrap();
    memory.set(&who(), alive, Setting::Agent, "planner").unwrap();
    memory.commit(&who(), alive, vec![record("r9", 110), delete("r4")]).unwrap();
    memory.rollback(&who(), main, "first").unwrap();
    memory.commit(&who(), main, vec![record("r5", 120)]).unwrap();
    let tip = memory.tip();
    close_unsealed(&memory, &faulty);
    (disk, tip)
}

fn verify_tip(disk: &ForgetfulDisk, tip: Hash) -> Result<serde_json::Value, Error> {
    let options = VerifyOptions { expect_tip: Some(tip), ..Default::default() };
    verify_on(&(Arc::new(disk.clone()) as Arc<dyn Disk>), &options)
}

/// Everything that can be read, by what it is; opening changes nothing.
fn read_all(disk: &ForgetfulDisk) -> Vec<(String, Result<Vec<u8>, Error>)> {
    let opened = Memory::open_on(Arc::new(disk.clone()), OpenMode::ReadOnly, None, environment());
    let memory = match opened {
        Ok(memory) => memory,
        Err(error) => return vec![("open".to_owned(), Err(error))],
    };
    let mut all = Vec::new();
    let mut todo: Vec<_> = memory.roots().into_iter().map(|(_, id)| id).collect();
    while let Some(branch) = todo.pop() {
        todo.extend(memory.children(branch).unwrap().into_iter().map(|(_, id)| id));
        all.push((
            format!("{branch:?} lineage"),
            memory.lineage_lines(branch, true).map(|lines| lines.join("\n").into_bytes()),
        ));
        let history = memory.lineage_lines(branch, false);
        all.push((format!("{branch:?} history"), history.map(|lines| lines.join("\n").into_bytes())));
        let checkpoints = memory.checkpoints(branch).unwrap().into_iter().map(|label| View::Checkpoint(branch, label));
        for view in [View::Branch(branch)].into_iter().chain(checkpoints) {
            let snapshot = memory.snapshot(&view).unwrap();
            let ids = snapshot.ids_after(None, usize::MAX);
            all.push((format!("{view:?}"), ids.map(|ids| ids.join("\n").into_bytes())));
            for id in ["r0", "r1", "r2", "r3", "r4", "r5", "r9", "words"] {
                let document =
                    snapshot.get(id).map(|record| record.map(|record| record.to_document()).unwrap_or_default());
                all.push((format!("{view:?} {id}"), document));
            }
        }
    }
    all
}

fn right_content(disk: &ForgetfulDisk) -> BTreeMap<String, Vec<u8>> {
    read_all(disk).into_iter().map(|(what, bytes)| (what, bytes.unwrap())).collect()
}

/// Panics if anything reads as something else than it should.
fn check_reads(disk: &ForgetfulDisk, right: &BTreeMap<String, Vec<u8>>, what: &str) {
    for (place, bytes) in read_all(disk) {
        match bytes {
            Ok(bytes) => assert_eq!(Some(&bytes), right.get(&place), "{what}: {place} reads wrong"),
            Err(error) => assert!(is_right_kind(&error), "{what}: {place}: {:?} {error}", error.kind()),
        }
    }
}

fn is_right_kind(error: &Error) -> bool {
    matches!(error.kind(), Kind::Damaged | Kind::Denied | Kind::Unsupported)
}

fn files(disk: &ForgetfulDisk) -> Vec<(String, u64)> {
    disk.files().into_iter().filter(|(path, _)| path != "lock").collect()
}

/// Whether a message tells what is wrong: the file by its name, or an entry.
fn names_it(error: &Error, path: &str) -> bool {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    let newer_format = error.kind() == Kind::Unsupported && path == "format";
    newer_format
        || error.to_string().contains(name)
        || error.to_string().contains("entry ")
        || (path.starts_with("journal/") && error.to_string().contains("tip"))
}

#[test]
fn the_store_of_these_tests_has_everything_in_it() {
    let (disk, tip) = store();
    verify_tip(&disk, tip).unwrap();
    let files = files(&disk);
    let under = |folder: &str| files.iter().filter(|(path, _)| path.starts_with(folder)).count();
    assert!(under("segments/") >= 5 && under("journal/") == 1, "{files:?}");
    assert!(files.iter().all(|(_, length)| *length < 24 << 10), "{files:?}");
}

/// Bytes between sections hold nothing, so that only `verify` looks at them. A tree whose names take more than 256 KiB is a
/// file of its own, which the small store of the other tests has not got.
#[test]
fn a_wrong_byte_between_the_sections_of_any_file_is_found() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    memory.commit(&who(), main_of(&memory), vec![put("a", Some(vec![1.0, 2.0]), Some("text"))]).unwrap();
    for n in 0..1_300 {
        make_file(&memory, &format!("{n:0>220}")).unwrap();
    }
    memory.close().unwrap();
    verify(&disk).unwrap();
    let segments = || disk.files().into_iter().filter(|(path, _)| path.starts_with("segments/"));
    assert!(segments().any(|(_, length)| length > 256 << 10), "a tree is in a file of its own");
    for (path, _) in segments() {
        // The first section begins at 64, behind a mark of 8 bytes.
        disk.flip(&path, 20, 1).unwrap();
        let error = verify(&disk).err().unwrap_or_else(|| panic!("{path}: a wrong byte goes unnoticed"));
        assert!(is_right_kind(&error) && names_it(&error, &path), "{path}: {error}");
        disk.flip(&path, 20, 1).unwrap();
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let (disk, tip) = store();
    let mut chance = Chance(77);
    for (path, length) in files(&disk) {
        for at in 0..length {
            let bit = 1 << chance.below(8);
            disk.flip(&path, at, bit).unwrap();
            let error = verify(&disk).err().unwrap_or_else(|| panic!("{path}: byte {at}, bit {bit:#x} goes unnoticed"));
            assert!(is_right_kind(&error) && names_it(&error, &path), "{path}: byte {at}: {:?} {error}", error.kind());
            disk.flip(&path, at, bit).unwrap();
        }
    }
    verify_tip(&disk, tip).unwrap();
}

#[test]
fn no_flipped_bit_makes_a_read_return_a_wrong_byte() {
    let (disk, _) = store();
    let right = right_content(&disk);
    let mut chance = Chance(78);
    let stride = stride(9);
    for (path, length) in files(&disk) {
        for at in (chance.below(stride) as u64..length).step_by(stride) {
            let bit = 1 << chance.below(8);
            disk.flip(&path, at, bit).unwrap();
            check_reads(&disk, &right, &format!("{path}: byte {at}"));
            disk.flip(&path, at, bit).unwrap();
        }
    }
}

/// The negative control: a store that differs in one record is told from the right one.
#[test]
#[should_panic(expected = "reads wrong")]
fn a_wrong_byte_would_be_seen() {
    let (disk, _) = store();
    let mut right = right_content(&disk);
    let document = right.values_mut().find(|bytes| bytes.starts_with(b"{")).unwrap();
    document[20] ^= 1;
    check_reads(&disk, &right, "nothing flipped");
}

/// Where the journal's last command ends: what stands behind is the clean end, which says nothing that
/// anyone could miss.
fn last_command_end(disk: &ForgetfulDisk) -> (String, u64) {
    let (path, _) = files(disk).into_iter().find(|(path, _)| path.starts_with("journal/")).unwrap();
    let number = engramfs::journal::Journal::parse_file_name(path.trim_start_matches("journal/")).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut end = 0;
    let each = |frame: engramfs::journal::Frame<'_>| -> Result<bool, engramfs::journal::JournalError> {
        if frame.kind == engramfs::journal::FrameKind::Command {
            end = frame.offset + FRAME_HEADER_BYTES + frame.payload.len() as u64;
        }
        Ok(true)
    };
    engramfs::journal::Replay::open(&disk, number).unwrap().for_each_frame(0, each).unwrap();
    (path, end)
}

#[test]
fn every_cut_of_a_file_is_found() {
    let (disk, tip) = store();
    let (journal, end) = last_command_end(&disk);
    let right = right_content(&disk);
    for (path, length) in files(&disk) {
        let good = disk.bytes(&path).unwrap();
        for kept in [
            0,
            1,
            7,
            8,
            16,
            17,
            length / 3,
            length / 2,
            end.min(length) - 1,
            length - 64.min(length),
            length - 9.min(length),
            length - 1,
        ] {
            disk.replace(&path, good[..kept as usize].to_vec()).unwrap();
            if path == journal && kept >= end {
                verify_tip(&disk, tip).unwrap();
                check_reads(&disk, &right, &format!("{path} cut to {kept}"));
                continue;
            }
            let error = verify_tip(&disk, tip)
                .err()
                .unwrap_or_else(|| panic!("{path} cut to {kept} of {length} goes unnoticed"));
            assert!(is_right_kind(&error) && names_it(&error, &path), "{path} cut to {kept}: {error}");
        }
        disk.replace(&path, good).unwrap();
    }
}

/// A closed store has nothing to replay: what is cut off its journal, nobody can miss.
#[test]
fn a_sealed_store_is_read_whole_or_refused_wherever_its_journal_is_cut() {
    let (disk, tip) = store();
    let memory = open(&disk).unwrap();
    memory.close().unwrap();
    drop(memory);
    let (journal, end) = last_command_end(&disk);
    assert_eq!(end, 0, "a log record is left to replay");
    verify_tip(&disk, tip).unwrap();
    let (right, good) = (right_content(&disk), disk.bytes(&journal).unwrap());
    for kept in 0..good.len() {
        disk.replace(&journal, good[..kept].to_vec()).unwrap();
        match verify_tip(&disk, tip) {
            Ok(_) => check_reads(&disk, &right, &format!("{journal} cut to {kept}")),
            Err(error) => assert!(is_right_kind(&error) && names_it(&error, &journal), "cut to {kept}: {error}"),
        }
    }
}

#[test]
fn every_extension_of_a_file_is_found() {
    let (disk, tip) = store();
    let right = right_content(&disk);
    for (path, _) in files(&disk) {
        let good = disk.bytes(&path).unwrap();
        let tail = good[good.len() - good.len().min(512)..].to_vec();
        for more in [vec![0; 1], vec![b'\n'], vec![0; 64], vec![0; 4096], vec![0xA1; 100], tail] {
            disk.replace(&path, [good.clone(), more.clone()].concat()).unwrap();
            let result = verify_tip(&disk, tip);
            if path.starts_with("journal/") && (more.len() as u64) < FRAME_HEADER_BYTES {
                check_reads(&disk, &right, &format!("{path} with {} bytes more", more.len()));
                continue;
            }
            let error = result.err().unwrap_or_else(|| panic!("{path} with {} bytes more goes unnoticed", more.len()));
            assert!(is_right_kind(&error) && names_it(&error, &path), "{path} with {} bytes more: {error}", more.len());
        }
        disk.replace(&path, good).unwrap();
    }
}

/// Zeros put before the footer of a segment leave its name, its sections and its content as they are.
#[test]
fn zeros_put_into_a_segment_are_found() {
    let (disk, tip) = store();
    for (path, length) in files(&disk).into_iter().filter(|(path, _)| path.starts_with("segments/")) {
        let good = disk.bytes(&path).unwrap();
        let trailer: [u8; 8] = good[good.len() - 16..good.len() - 8].try_into().unwrap();
        let footer = (length - 16 - u64::from_le_bytes(trailer)) as usize;
        disk.replace(&path, [&good[..footer], &[0; 64], &good[footer..]].concat()).unwrap();
        let error = verify_tip(&disk, tip).expect_err(&path);
        assert!(names_it(&error, &path), "{error}");
        disk.replace(&path, good).unwrap();
    }
}

#[test]
fn a_missing_file_is_found_and_nothing_is_put_in_its_place() {
    let (disk, tip) = store();
    for (path, _) in files(&disk) {
        let broken = disk.power_cut_keep_all();
        broken.remove(&path).unwrap();
        let error = verify_tip(&broken, tip).expect_err(&path);
        assert!(is_right_kind(&error) && names_it(&error, &path), "{path}: {:?} {error}", error.kind());
        let before = broken.files();
        // A segment that only old states need is not opened before someone asks.
        if let Err(error) = open(&broken) {
            assert_eq!(error.kind(), Kind::Damaged, "{path}: {error}");
            assert_eq!(broken.files(), before, "{path}: opening changes files");
        } else {
            assert!(path.starts_with("segments/"), "{path}");
        }
        for (kept, _) in before.iter().filter(|(path, _)| !path.starts_with("journal/")) {
            assert_eq!(broken.bytes(kept).unwrap(), disk.bytes(kept).unwrap(), "{path}: {kept}");
        }
    }
}

#[test]
fn every_file_in_the_wrong_place_is_found() {
    let (disk, tip) = store();
    let all = files(&disk);
    let segments: Vec<&String> =
        all.iter().map(|(path, _)| path).filter(|path| path.starts_with("segments/")).collect();
    let found = |broken: &ForgetfulDisk, what: String| {
        let error = verify_tip(broken, tip).expect_err(&what);
        assert!(is_right_kind(&error), "{what}: {error}");
        error
    };
    for (at, one) in segments.iter().enumerate() {
        for other in &segments[at + 1..] {
            let broken = disk.power_cut_keep_all();
            broken.replace(one, disk.bytes(other).unwrap()).unwrap();
            broken.replace(other, disk.bytes(one).unwrap()).unwrap();
            let error = found(&broken, format!("{one} swapped with {other}"));
            assert!(names_it(&error, one) || names_it(&error, other), "{error}");
        }
        for name in [
            format!("segments/{}", "7".repeat(64)),
            "segments/x".to_owned(),
            "segments/.hidden".to_owned(),
            "copy".to_owned(),
        ] {
            let broken = disk.power_cut_keep_all();
            broken.replace(&name, disk.bytes(one).unwrap()).unwrap();
            let error = found(&broken, format!("{one} copied to {name}"));
            assert!(names_it(&error, &name), "{error}");
        }
    }
    let (journal, _) = last_command_end(&disk);
    for name in
        ["journal/0000000000000001", "journal/00000000000000ff", "journal/3", "journal/x", "journal/0000000000000004"]
    {
        let broken = disk.power_cut_keep_all();
        broken.replace(name, disk.bytes(&journal).unwrap()).unwrap();
        found(&broken, format!("the journal copied to {name}"));
    }
}

#[test]
fn an_older_version_of_a_file_is_found() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    let commit = |n: u32| memory.commit(&who(), main_of(&memory), vec![put("a", None, Some(&format!("{n}")))]).unwrap();
    let mut stages = Vec::new();
    for n in 0..6 {
        commit(n);
        if n % 2 == 1 {
            memory.seal().unwrap();
        }
        commit(10 + n);
        memory.sync().unwrap();
        stages.push((disk.power_cut_keep_all(), memory.tip()));
    }
    memory.close().unwrap();
    let tip = memory.tip();
    for (old, old_tip) in &stages[..5] {
        for path in ["manifest".to_owned(), last_command_end(old).0, last_command_end(&disk).0] {
            let Ok(bytes) = old.bytes(&path) else { continue };
            if bytes == disk.bytes(&path).unwrap_or_default() {
                continue;
            }
            let broken = disk.power_cut_keep_all();
            broken.replace(&path, bytes).unwrap();
            // An old journal file that a later manifest left behind is whole, and nobody reads it.
            let result = verify_tip(&broken, tip);
            let is_left_over = disk.bytes(&path).is_err();
            assert_eq!(result.is_err(), !is_left_over, "{path}: {result:?}");
        }
        // A whole store put back is whole: only a tip noted elsewhere tells.
        verify_tip(old, *old_tip).unwrap();
        assert_eq!(verify_tip(old, tip).unwrap_err().kind(), Kind::Damaged);
    }
}

#[test]
fn every_zeroed_page_is_found() {
    let (disk, tip) = store();
    let right = right_content(&disk);
    let (journal, last_command) = last_command_end(&disk);
    for (path, length) in files(&disk) {
        let good = disk.bytes(&path).unwrap();
        for start in (0..length as usize).step_by(512) {
            let mut bytes = good.clone();
            let end = (start + 512).min(bytes.len());
            bytes[start..end].fill(0);
            if bytes == good {
                continue;
            }
            disk.replace(&path, bytes).unwrap();
            let error = verify_tip(&disk, tip).expect_err(&path);
            assert!(is_right_kind(&error) && names_it(&error, &path), "{path} at {start}: {error}");
            // From within the last command to the end it looks as if that had never reached the device: only a tip
            // that was noted elsewhere tells.
            if path != journal || end < good.len() || start as u64 >= last_command {
                check_reads(&disk, &right, &format!("{path} zeroed at {start}"));
            }
        }
        disk.replace(&path, good).unwrap();
    }
}
