//! Lineages that someone with access to the files has edited, every frame's check made right again:
//! the signatures must refuse each, and the first wrong entry must be named.

use std::sync::Arc;

use engramfs::disk::{Disk, FaultyDisk, ForgetfulDisk};
use engramfs::journal::{Frame, FrameKind, Journal, JournalError, Replay};
use engramfs::lineage::{Key, SIGNATURE_BYTES};
use engramfs::memory::{
    Environment, Error, FileOp, Hash, Kind, Memory, MergeVerb, OpenMode, ShowTarget, VerifyOptions, Viewer, verify_on,
};

use crate::support::{close_unsealed, delete, environment, main_of, make_file, put, who};

/// The payload of each command's frame: number 0 is entry 1.
type Acts = Vec<Vec<u8>>;

/// A store that was never sealed, made with the key of that seed; `word` stands in its records.
fn store(seed: u8, word: &str) -> (ForgetfulDisk, Hash) {
    let disk = ForgetfulDisk::new();
    let around = Environment { entropy: Box::new(move |bytes| bytes.fill(seed)), ..environment() };
    let memory = Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, around).unwrap();
    let main = main_of(&memory);
    let text = |id: &str, n: u32| put(id, Some(vec![n as f32, 1.0]), Some(&format!("{word} {n}")));
    memory.commit(&who(), main, vec![text("a", 1), text("b", 2)]).unwrap();
    let bad = memory.fork(&who(), main, "bad", None).unwrap();
    memory.commit(&who(), bad, vec![text("a", 3)]).unwrap();
    memory.discard(&who(), bad).unwrap();
    memory.commit(&who(), main, vec![text("c", 4)]).unwrap();
    let child = memory.fork(&who(), main, "child", None).unwrap();
    memory.commit(&who(), child, vec![text("a", 5), delete("b")]).unwrap();
    memory.commit(&who(), main, vec![text("a", 6)]).unwrap();
    memory.checkpoint(&who(), main, "now", None).unwrap();
    memory.merge(&who(), child, MergeVerb::Merge, false).unwrap();
    memory.rollback(&who(), main, "now").unwrap();
    memory.commit(&who(), main, vec![text("d", 7)]).unwrap();
    memory.sync().unwrap();
    (disk, memory.tip())
}

fn acts(disk: &ForgetfulDisk) -> Acts {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut acts = Vec::new();
    let each = |frame: Frame<'_>| -> Result<bool, JournalError> {
        if frame.kind == FrameKind::Command {
            acts.push(frame.payload.to_vec());
        }
        Ok(true)
    };
    assert_eq!(Replay::open(&disk, 1).unwrap().for_each_frame(0, each).unwrap(), None);
    acts
}

/// The store with a journal of these commands, each in a frame whose checks are right.
fn forged(disk: &ForgetfulDisk, acts: &Acts) -> ForgetfulDisk {
    with_journal(disk, |journal| {
        for act in acts {
            journal.append(FrameKind::Command, &[act]).unwrap();
        }
    })
}

/// The store with another journal.
fn with_journal(disk: &ForgetfulDisk, fill: impl FnOnce(&Journal)) -> ForgetfulDisk {
    let desk: Arc<dyn Disk> = Arc::new(ForgetfulDisk::new());
    desk.create_dir("journal").unwrap();
    fill(&Journal::create(&desk, &[7; 16]).unwrap());
    let file = desk.open(&Journal::file_path(1)).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let forged = disk.power_cut_keep_all();
    forged.replace(&Journal::file_path(1), bytes).unwrap();
    forged
}

fn verify(disk: &ForgetfulDisk, options: &VerifyOptions<'_>) -> Result<serde_json::Value, Error> {
    verify_on(&(Arc::new(disk.clone()) as Arc<dyn Disk>), options)
}

/// `verify` refuses and names that entry.
fn found(disk: &ForgetfulDisk, entry: usize, what: &str) {
    named(&verify(disk, &VerifyOptions::default()).expect_err(what), entry, what);
}

fn named(error: &Error, entry: usize, what: &str) {
    assert_eq!(error.kind(), Kind::Damaged, "{what}: {error}");
    assert!(error.to_string().contains(&format!("entry {entry} ")), "{what}: not entry {entry}: {error}");
}

/// `verify` and `open` refuse, and name that entry.
fn refused(disk: &ForgetfulDisk, entry: usize, what: &str) {
    found(disk, entry, what);
    let opened = Memory::open_on(Arc::new(disk.clone()), OpenMode::Existing, None, environment());
    named(&opened.err().unwrap_or_else(|| panic!("{what}: opens")), entry, what);
}

/// Without an edit the forger's tools give a store that passes: it is not they that are refused.
#[test]
fn a_journal_put_together_again_unchanged_is_accepted() {
    let (disk, tip) = store(7, "text");
    let acts = acts(&disk);
    assert!(acts.len() >= 14, "{}", acts.len());
    let options = VerifyOptions { expect_tip: Some(tip), ..Default::default() };
    let found = verify(&forged(&disk, &acts), &options).unwrap();
    assert_eq!(found["entries"], acts.len());
}

#[test]
fn a_dropped_entry_is_refused() {
    let (disk, tip) = store(7, "text");
    let good = acts(&disk);
    for at in 0..good.len() - 1 {
        let mut acts = good.clone();
        acts.remove(at);
        refused(&forged(&disk, &acts), at + 1, &format!("entry {} dropped", at + 1));
    }
    // What is cut off at the end leaves a store that was once so: only a noted tip tells.
    for kept in 3..good.len() {
        let cut = forged(&disk, &good[..kept].to_vec());
        verify(&cut, &VerifyOptions::default()).unwrap();
        let options = VerifyOptions { expect_tip: Some(tip), ..Default::default() };
        assert!(verify(&cut, &options).unwrap_err().to_string().contains("tip"));
    }
}

#[test]
fn reordered_entries_are_refused() {
    let (disk, _) = store(7, "text");
    let good = acts(&disk);
    for first in 0..good.len() {
        for second in first + 1..good.len() {
            let mut acts = good.clone();
            acts.swap(first, second);
            refused(&forged(&disk, &acts), first + 1, &format!("entries {} and {} swapped", first + 1, second + 1));
        }
    }
}

#[test]
fn a_replayed_entry_is_refused_wherever_it_is_put() {
    let (disk, _) = store(7, "text");
    let good = acts(&disk);
    for which in 0..good.len() {
        for place in which + 1..=good.len() {
            let mut acts = good.clone();
            acts.insert(place, good[which].clone());
            refused(&forged(&disk, &acts), place + 1, &format!("entry {} again as {}", which + 1, place + 1));
        }
    }
}

#[test]
fn an_entry_of_another_store_is_refused_even_with_the_same_key() {
    let (disk, _) = store(7, "text");
    let good = acts(&disk);
    for seed in [7, 8] {
        let (other, _) = store(seed, "other");
        let foreign = acts(&other);
        for at in 2..good.len() {
            let mut acts = good.clone();
            acts[at] = foreign[at].clone();
            refused(&forged(&disk, &acts), at + 1, &format!("entry {} of the store with key {seed}", at + 1));
        }
        let mut acts = good.clone();
        acts.push(foreign[good.len() - 1].clone());
        refused(&forged(&disk, &acts), good.len() + 1, "one more entry of another store");
    }
}

/// The checks of frames protect nothing here, as they are made anew: the signatures do.
#[test]
fn every_edited_byte_of_a_log_record_is_refused() {
    let (disk, _) = store(7, "text");
    let good = acts(&disk);
    for at in 0..good.len() {
        for byte in 0..good[at].len() {
            let mut acts = good.clone();
            acts[at][byte] ^= 1 << (byte % 8);
            let error = verify(&forged(&disk, &acts), &VerifyOptions::default());
            let error = error.err().unwrap_or_else(|| panic!("byte {byte} of entry {} goes unnoticed", at + 1));
            assert_eq!(error.kind(), Kind::Damaged, "byte {byte} of entry {}: {error}", at + 1);
            assert!(
                error.to_string().contains(&format!("entry {} ", at + 1)),
                "byte {byte} of entry {}: {error}",
                at + 1
            );
        }
    }
}

/// The hashes of the first `count` entries: what their signatures sign.
fn entry_hashes(disk: &ForgetfulDisk, count: usize) -> Vec<Hash> {
    let disk = Arc::new(disk.power_cut_keep_all());
    let memory = Memory::open_on(disk, OpenMode::Existing, None, environment()).unwrap();
    let hash = |entry| {
        let shown = memory.show(main_of(&memory), ShowTarget::Entry(entry), Viewer::UNRESTRICTED).unwrap();
        let line: serde_json::Value = serde_json::from_str(&shown.line).unwrap();
        line["entry"].as_str().unwrap().parse::<Hash>().unwrap()
    };
    (1..=count as u64).map(hash).collect()
}

#[test]
fn an_entry_without_or_with_another_signature_is_refused() {
    let (disk, _) = store(7, "text");
    let good = acts(&disk);
    let hashes = entry_hashes(&disk, good.len());
    let (owner, forger) = (Key::parse(&disk.bytes("key").unwrap()).unwrap(), Key::from_seed(&[9; 32]));
    for at in 0..good.len() {
        let act = &good[at][SIGNATURE_BYTES..];
        let signed = |signature: &[u8]| [signature, act].concat();
        let stolen = &good[(at + 1) % good.len()][..SIGNATURE_BYTES];
        // What the forger signs is right: only the key is another one.
        assert_eq!(signed(&owner.sign(&hashes[at])), good[at], "entry {}", at + 1);
        let own = forger.sign(&hashes[at]);
        for (what, payload) in [
            ("none", signed(&[])),
            ("zeros", signed(&[0; SIGNATURE_BYTES])),
            ("stolen", signed(stolen)),
            ("own", signed(&own)),
            ("empty", Vec::new()),
        ] {
            let mut acts = good.clone();
            acts[at] = payload;
            // To open a store, the newest signature is enough: it stands for every command before.
            let check = if at + 1 == good.len() { refused } else { found };
            check(&forged(&disk, &acts), at + 1, &format!("entry {} with signature: {what}", at + 1));
        }
    }
}

/// A branch that was tried and thrown away can't be made to have never been.
#[test]
fn a_discarded_branch_that_is_cut_out_is_refused() {
    let (disk, _) = store(7, "text");
    let good = acts(&disk);
    let position = good.iter().position(|act| act.windows(3).any(|name| name == b"bad")).unwrap();
    let mut acts = good.clone();
    acts.drain(position..position + 3);
    refused(&forged(&disk, &acts), position + 1, "the branch 'bad' cut out");
}

#[test]
fn another_key_is_refused() {
    let (disk, tip) = store(7, "text");
    let (other, _) = store(8, "text");
    let key = String::from_utf8(disk.bytes("key.pub").unwrap()).unwrap();
    let with_key = VerifyOptions { public_key: Some(&key), ..Default::default() };
    verify(&disk, &with_key).unwrap();
    // A whole store made by someone else is in itself right; the key noted elsewhere tells.
    verify(&other, &VerifyOptions::default()).unwrap();
    assert!(verify(&other, &with_key).unwrap_err().to_string().contains("another key"));
    assert!(verify(&other, &VerifyOptions { expect_tip: Some(tip), ..Default::default() }).is_err());
    for names in [
        &["key.pub"][..],
        &["key"],
        &["key", "key.pub"],
        &["manifest"],
        &["key", "key.pub", "manifest"],
        &["journal/0000000000000001"],
    ] {
        let mixed = disk.power_cut_keep_all();
        names.iter().for_each(|name| mixed.replace(name, other.bytes(name).unwrap()).unwrap());
        assert_eq!(verify(&mixed, &VerifyOptions::default()).expect_err(&format!("{names:?}")).kind(), Kind::Damaged);
    }
    for text in ["", "\n", "00", &"0".repeat(64), &format!("{}\n", "0".repeat(64)), &key.to_uppercase()] {
        assert!(verify(&disk, &VerifyOptions { public_key: Some(text), ..Default::default() }).is_err(), "{text:?}");
    }
}

/// A store with a long and some short operations on files behind its last entry, as a crash leaves it, and the frames
/// of its journal.
fn with_operations() -> (ForgetfulDisk, Vec<(FrameKind, Vec<u8>)>) {
    let disk = ForgetfulDisk::new();
    let memory = Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, environment()).unwrap();
    let main = main_of(&memory);
    let inode = make_file(&memory, "notes").unwrap().inode;
    for (offset, bytes) in [(0, vec![b'x'; 100]), (100, vec![b'y'; 50]), (200, vec![b'z'; 200_000])] {
        memory.edit(&who(), main, FileOp::Write { inode, offset, bytes: bytes.into() }).unwrap();
    }
    let crashed = disk.power_cut_keep_all();
    drop(memory);
    let frames = frames(&crashed);
    (crashed, frames)
}

fn frames(disk: &ForgetfulDisk) -> Vec<(FrameKind, Vec<u8>)> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut frames = Vec::new();
    let each = |frame: Frame<'_>| -> Result<bool, JournalError> {
        frames.push((frame.kind, frame.payload.to_vec()));
        Ok(true)
    };
    assert_eq!(Replay::open(&disk, 1).unwrap().for_each_frame(0, each).unwrap(), None);
    frames
}

/// The store with a journal of these frames, their checks made right.
fn with_frames(disk: &ForgetfulDisk, frames: &[(FrameKind, Vec<u8>)]) -> ForgetfulDisk {
    with_journal(disk, |journal| {
        for (kind, payload) in frames {
            match (kind, engramfs::journal::split_content(payload)) {
                (FrameKind::Content, Some((head, rest))) => drop(journal.append_content(head, rest, &[]).unwrap()),
                _ => drop(journal.append(*kind, &[payload]).unwrap()),
            }
        }
    })
}

/// `verify` and `open` call it damage, whatever the frame says.
fn damaged(disk: &ForgetfulDisk, what: &str) {
    let verified = verify(disk, &VerifyOptions::default()).err().unwrap_or_else(|| panic!("{what}: verifies"));
    assert_eq!(verified.kind(), Kind::Damaged, "{what}: {verified}");
    let opened = Memory::open_on(Arc::new(disk.clone()), OpenMode::Existing, None, environment()).err();
    let opened = opened.unwrap_or_else(|| panic!("{what}: opens"));
    assert_eq!(opened.kind(), Kind::Damaged, "{what}: {opened}");
}

#[test]
fn operations_behind_the_last_entry_are_counted_and_then_gathered() {
    let (disk, good) = with_operations();
    let untouched = with_frames(&disk, &good);
    assert_eq!(verify(&untouched, &VerifyOptions::default()).unwrap()["unsigned"], 4);
    let memory = Memory::open_on(Arc::new(untouched.clone()), OpenMode::Existing, None, environment()).unwrap();
    assert!(memory.warnings().iter().any(|warning| warning.starts_with("4 operations on files")));
    memory.close().unwrap();
    drop(memory);
    assert_eq!(verify(&untouched, &VerifyOptions::default()).unwrap()["unsigned"], 0);
}

#[test]
fn operations_that_are_dropped_reordered_repeated_or_changed_are_damage() {
    let (disk, good) = with_operations();
    let first = good.iter().position(|(kind, _)| *kind == FrameKind::FileOp).unwrap();
    assert_eq!(good.len() - first, 4, "{:?}", good.iter().map(|(kind, _)| kind).collect::<Vec<_>>());
    for at in first..good.len() {
        if at + 1 < good.len() {
            let mut frames = good.clone();
            frames.remove(at);
            damaged(&with_frames(&disk, &frames), &format!("operation {at} dropped"));
            let mut frames = good.clone();
            frames.swap(at, at + 1);
            damaged(&with_frames(&disk, &frames), &format!("operations {at} and the next swapped"));
        }
        let mut frames = good.clone();
        frames.push(good[at].clone());
        damaged(&with_frames(&disk, &frames), &format!("operation {at} again"));
        let covered = good[at].1.len().min(300);
        for byte in 0..covered {
            // The lengths of a long write decide which bytes are its head: they have tests of their own.
            if good[at].0 == FrameKind::Content && !(4..36).contains(&byte) {
                continue;
            }
            let mut frames = good.clone();
            frames[at].1[byte] ^= 1;
            damaged(&with_frames(&disk, &frames), &format!("byte {byte} of operation {at}"));
        }
    }
}

/// Without the key nobody writes an operation, in whatever place, of whatever branch.
#[test]
fn an_operation_that_was_made_without_the_key_is_damage_and_so_is_one_of_another_store() {
    let (disk, good) = with_operations();
    let other = ForgetfulDisk::new();
    let around = Environment { entropy: Box::new(|bytes| bytes.fill(8)), ..environment() };
    let memory = Memory::open_on(Arc::new(other.clone()), OpenMode::Create, None, around).unwrap();
    make_file(&memory, "forged").unwrap();
    let foreign = frames(&other).into_iter().find(|(kind, _)| *kind == FrameKind::FileOp).unwrap();
    for place in 1..=good.len() {
        let mut frames = good.clone();
        frames.insert(place, foreign.clone());
        damaged(&with_frames(&disk, &frames), &format!("an operation of another store as frame {place}"));
    }
    // A branch that is not there: no sentence about merged branches.
    let mut unknown = foreign.1.clone();
    unknown[32] = 99;
    for payload in [unknown, vec![0; 40], Vec::new()] {
        for kind in [FrameKind::FileOp, FrameKind::Content, FrameKind::End, FrameKind::Mark, FrameKind::Begin] {
            if kind == FrameKind::Mark && payload.is_empty() {
                continue;
            }
            let frames = [&good[..], &[(kind, payload.clone())]].concat();
            let forged = with_frames(&disk, &frames);
            let what = format!("{kind:?} of {} bytes", payload.len());
            let verified =
                verify(&forged, &VerifyOptions::default()).err().unwrap_or_else(|| panic!("{what} verifies"));
            assert_eq!(verified.kind(), Kind::Damaged, "{what}: {verified}");
        }
    }
}

#[test]
fn behind_a_clean_end_stands_nothing_that_was_there_before_it_or_was_made_without_the_key() {
    let (disk, good) = with_operations();
    let faulty = FaultyDisk::new(disk.clone());
    let memory = Memory::open_on(Arc::new(faulty.clone()), OpenMode::Existing, None, environment()).unwrap();
    close_unsealed(&memory, &faulty);
    drop(memory);
    let closed = frames(&disk);
    assert_eq!(closed.last().unwrap().0, FrameKind::End);
    verify(&with_frames(&disk, &closed), &VerifyOptions::default()).unwrap();
    for (kind, payload) in good.iter().filter(|(kind, _)| *kind != FrameKind::Mark) {
        let frames = [&closed[..], &[(*kind, payload.clone())]].concat();
        damaged(&with_frames(&disk, &frames), &format!("{kind:?} behind the clean end"));
    }
    // A clean end vouches for all before it, with a signature of the store's key over the tip and its own place.
    let (signature, before) = closed.split_last().unwrap();
    let with_end = |payload: Vec<u8>| with_frames(&disk, &[before, &[(FrameKind::End, payload)]].concat());
    verify(&with_end(signature.1.clone()), &VerifyOptions::default()).unwrap();
    for byte in [0, 31, 32, 63] {
        let mut forged = signature.1.clone();
        forged[byte] ^= 1;
        damaged(&with_end(forged), &format!("a clean end with byte {byte} of its signature changed"));
    }
    damaged(&with_end(signature.1[1..].to_vec()), "a clean end whose signature is too short");
    damaged(
        &with_frames(&disk, &[&[(FrameKind::Mark, Vec::new())], &closed[..]].concat()),
        "a clean end that was moved",
    );
    // What the next process writes behind it is bound to it: without the end it is damage.
    let memory = Memory::open_on(Arc::new(disk.clone()), OpenMode::Existing, None, environment()).unwrap();
    make_file(&memory, "later").unwrap();
    let mut later = frames(&disk.power_cut_keep_all());
    drop(memory);
    let end = later.iter().position(|(kind, _)| *kind == FrameKind::End).unwrap();
    assert_eq!(verify(&with_frames(&disk, &later), &VerifyOptions::default()).unwrap()["unsigned"], 1);
    later.remove(end);
    damaged(&with_frames(&disk, &later), "the clean end dropped");
}
