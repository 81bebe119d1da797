//! Histories as the store tells them, against what all entries say.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::*;
use crate::disk::{Disk, ForgetfulDisk};
use crate::lineage::EntryOp;
use crate::memory::{
    Actor, BranchId, Environment, MergeVerb, OpenMode, RecordEdit, RecordInput, ShowTarget, Time, View, Viewer,
    verify_on,
};

static TICKS: AtomicI64 = AtomicI64::new(1_700_000_000_000_000_000);

fn who(uid: u32) -> Actor {
    Actor { uid, gid: uid, name: format!("u{uid}").into() }
}

fn open(disk: &ForgetfulDisk) -> Arc<Memory> {
    let environment = Environment {
        clock: Box::new(|| Time(TICKS.fetch_add(1_000, Ordering::Relaxed))),
        uptime: Box::new(|| std::time::Duration::from_nanos(TICKS.load(Ordering::Relaxed).cast_unsigned())),
        entropy: Box::new(|bytes| bytes.fill(7)),
        graph_rows: u32::MAX,
        reserve_bytes: 0,
        index_delay: std::time::Duration::ZERO,
        idle_interval: std::time::Duration::from_secs(60),
        file_index_delay: std::time::Duration::ZERO,
        owner: who(1),
    };
    Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, environment).unwrap()
}

fn put(memory: &Memory, uid: u32, branch: BranchId, id: &str, text: u64) {
    let input = RecordInput { vector: None, text: Some(format!("text {text}").into()), metadata: "{}".into() };
    memory.commit(&who(uid), branch, vec![RecordEdit::Put { id: id.into(), input }]).unwrap();
}

fn all_entries(memory: &Memory) -> Vec<Arc<SignedEntry>> {
    let reader = memory.history_reader();
    (reader.first()..=reader.newest()).map(|seq| reader.entry(seq).unwrap()).collect()
}

/// What the lineage of a branch holds, by walking from the newest entry back: `wanted` tells up to which entry each
/// branch's are shown.
fn expected_lineage(all: &[Arc<SignedEntry>], branch: u64) -> BTreeMap<u64, String> {
    let (mut wanted, mut chosen) = (HashMap::from([(branch, u64::MAX)]), BTreeMap::new());
    for signed in all.iter().rev() {
        let entry = &signed.entry;
        let reaches = |id: u64| wanted.get(&id).is_some_and(|upto| entry.seq <= *upto);
        let (own, joins) = (reaches(entry.branch_id), entry.merges_into_parent() && reaches(entry.parent_id));
        if !own && !joins {
            continue;
        }
        chosen.insert(entry.seq, signed.to_line());
        if joins {
            wanted.entry(entry.branch_id).or_insert(entry.seq);
        }
        if own && matches!(entry.op, EntryOp::Fork | EntryOp::Pull) && entry.parent_id != 0 {
            wanted.entry(entry.parent_id).or_insert(entry.seq);
        }
    }
    chosen
}

fn expected_events(all: &[Arc<SignedEntry>], branch: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for signed in all {
        let entry = &signed.entry;
        if entry.branch_id == branch || (entry.parent_id == branch && is_parent_event(entry)) {
            signed.write_event(&mut out);
        }
    }
    out
}

/// Returns a whole history, read in pieces of odd sizes.
fn read(memory: &Memory, branch: BranchId, file: HistoryFile, upto: u64, size: usize) -> Vec<u8> {
    let mut text = Vec::new();
    loop {
        let part = memory.read_history((branch, file, upto), text.len() as u64, size, &|_, _| true).unwrap();
        if part.is_empty() {
            assert_eq!(text.len() as u64, memory.history_length(branch, file, upto).unwrap());
            return text;
        }
        text.extend(part);
    }
}

fn check_branch(memory: &Memory, all: &[Arc<SignedEntry>], branch: BranchId, size: usize) -> Vec<u8> {
    let upto = memory.last_seq();
    let lineage = read(memory, branch, HistoryFile::Lineage, upto, size);
    let mut found = BTreeMap::new();
    for line in String::from_utf8(lineage.clone()).unwrap().lines() {
        let seq = serde_json::from_str::<serde_json::Value>(line).unwrap()["seq"].as_u64().unwrap();
        assert!(found.insert(seq, line.to_owned()).is_none(), "entry {seq} stands twice in the lineage of {branch:?}");
        assert!(!line.is_empty());
    }
    let expected = expected_lineage(all, branch.0);
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{branch:?}");
    assert_eq!(found, expected);
    let last = lineage.strip_suffix(b"\n").unwrap_or_default().rsplit(|byte| *byte == b'\n').next().unwrap();
    assert_eq!(last, expected.values().last().map_or("", |line| line).as_bytes(), "the newest entry stands last");
    assert!(read(memory, branch, HistoryFile::Events, upto, size) == expected_events(all, branch.0), "{branch:?}");
    lineage
}

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }
}

/// Does something with some branch.
fn random_step(memory: &Memory, chance: &mut Chance, branches: &[BranchId]) {
    static NAMES: AtomicU64 = AtomicU64::new(0);
    let (branch, number) = (branches[chance.below(branches.len())], NAMES.fetch_add(1, Ordering::Relaxed));
    let who = who(1 + chance.below(3) as u32);
    // What can't be done is refused, and that is as well.
    match chance.below(12) {
        0..3 => drop(memory.fork(&who, branch, &format!("b{number}"), None)),
        3..6 => put(memory, who.uid, branch, &format!("r{}", chance.below(4)), number),
        6 => drop(memory.merge(&who, branch, MergeVerb::Pull, false)),
        7 => drop(memory.merge(&who, branch, MergeVerb::Promote, false)),
        8 => drop(memory.merge(&who, branch, MergeVerb::Merge, false)),
        9 => drop(memory.checkpoint(&who, branch, &format!("c{number}"), Some("a \"text\"\n"))),
        10 => drop(memory.chmod(&who, branch, [0o700, 0o755][chance.below(2)])),
        _ => match chance.below(4) {
            0 => drop(memory.discard(&who, branch)),
            1 => drop(memory.rename_branch(&who, branch, &format!("n{number}"))),
            _ => memory.seal().unwrap(),
        },
    }
}

fn living(memory: &Memory) -> Vec<BranchId> {
    memory.catalog().branches.keys().copied().collect()
}

#[test]
fn histories_hold_what_all_entries_say_and_only_grow() {
    for seed in 0..5 {
        let (mut chance, disk) = (Chance(seed), ForgetfulDisk::new());
        let (mut memory, mut before) = (open(&disk), HashMap::<BranchId, Vec<u8>>::new());
        for round in 0..12 {
            for _ in 0..20 {
                random_step(&memory, &mut chance, &living(&memory));
            }
            let all = all_entries(&memory);
            for branch in living(&memory) {
                let lineage = check_branch(&memory, &all, branch, [97, 1000, 1 << 20][chance.below(3)]);
                let known = before.insert(branch, lineage.clone()).unwrap_or_default();
                assert!(
                    lineage.starts_with(&known),
                    "seed {seed}, round {round}: the lineage of {branch:?} only grows"
                );
            }
            if chance.below(3) == 0 {
                memory.close().unwrap();
                drop(memory);
                memory = open(&disk);
            }
        }
        memory.close().unwrap();
        drop(memory);
        verify_on(&(Arc::new(disk.clone()) as Arc<dyn Disk>), &Default::default()).unwrap();
    }
}

#[test]
fn entries_are_found_by_number_and_by_hash_wherever_they_are() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk);
    let main = memory.root("main").unwrap();
    let mut largest = 0;
    for round in 0..40 {
        (0..5).for_each(|n| put(&memory, 1, main, "r", round * 5 + n));
        memory.seal().unwrap();
        largest = largest.max(memory.history.archives().len());
    }
    put(&memory, 1, main, "r", 1000);
    assert!((2..12).contains(&largest), "small archives are merged into larger ones: {largest}");
    let reader = memory.history_reader();
    for signed in all_entries(&memory) {
        assert!(signed.verifies(&memory.public_key));
        assert_eq!(reader.find_by_hash(&signed.hash).unwrap().unwrap(), signed);
    }
    assert!(reader.entry(reader.newest() + 1).is_err() && reader.entry(0).is_err());
    assert_eq!(reader.find_by_hash(&crate::object::Hash([3; 32])).unwrap(), None);
    check_branch(&memory, &all_entries(&memory), main, 1 << 20);
}

#[test]
fn a_branch_keeps_the_number_of_the_entry_that_made_it_whatever_it_is_called() {
    let memory = open(&ForgetfulDisk::new());
    let main = memory.root("main").unwrap();
    let fork = memory.fork(&who(1), main, "x", None).unwrap();
    put(&memory, 1, fork, "r", 1);
    let reader = memory.history_reader();
    let made = [main, fork].map(|branch| reader.entry(branch.0).unwrap().entry.op);
    assert_eq!(made, [EntryOp::Root, EntryOp::Fork]);
    let figures = || {
        let mut status = memory.status(&View::Branch(fork)).unwrap();
        for key in ["name", "path", "tip"] {
            status.as_object_mut().unwrap().remove(key).unwrap();
        }
        status
    };
    let before = figures();
    memory.rename_branch(&who(1), fork, "y").unwrap();
    assert_eq!((memory.resolve("main/y").unwrap(), memory.resolve("main/x").is_err()), (fork, true));
    assert_eq!(figures(), before);
}

#[test]
fn a_checkpoint_shows_the_history_up_to_it() {
    let memory = open(&ForgetfulDisk::new());
    let main = memory.root("main").unwrap();
    put(&memory, 1, main, "a", 1);
    memory.checkpoint(&who(1), main, "one", None).unwrap();
    let upto = memory.last_seq();
    put(&memory, 1, main, "a", 2);
    let view = View::Checkpoint(main, "one".into());
    assert_eq!(memory.history_last_seq(&view).unwrap(), upto);
    assert_eq!(memory.history_last_seq(&View::Branch(main)).unwrap(), upto + 1);
    memory.seal().unwrap();
    assert_eq!(memory.history_last_seq(&view).unwrap(), upto);
    let text = String::from_utf8(read(&memory, main, HistoryFile::Lineage, upto, 100)).unwrap();
    assert!(text.lines().last().unwrap().contains("\"op\":\"checkpoint\""));
    memory.delete_checkpoint(&who(1), main, "one").unwrap();
    let text = String::from_utf8(read(&memory, main, HistoryFile::Lineage, memory.last_seq(), 100)).unwrap();
    let last = text.lines().last().unwrap();
    assert!(last.contains("\"op\":\"uncheckpoint\"") && last.contains("\"checkpoint\":\"one\""), "{last}");
}

#[test]
fn who_may_not_enter_a_branch_sees_little_of_its_entries_in_as_many_bytes() {
    let memory = open(&ForgetfulDisk::new());
    let main = memory.root("main").unwrap();
    let closed = memory.fork(&who(2), main, "closed", None).unwrap();
    put(&memory, 2, closed, "secret", 1);
    let below = memory.fork(&who(3), closed, "below", None).unwrap();
    memory.chmod(&who(3), below, 0o755).unwrap();
    memory.merge(&who(3), below, MergeVerb::Merge, false).unwrap();
    let open_one = memory.fork(&who(2), main, "open", None).unwrap();
    memory.chmod(&who(2), open_one, 0o755).unwrap();
    put(&memory, 2, open_one, "public", 1);
    let lines = |uid: u32| {
        let may_enter = |owner: u32, mode: u32| uid == owner || mode & 1 != 0;
        let part = (main, HistoryFile::Lineage, memory.last_seq());
        String::from_utf8(memory.read_history(part, 0, 1 << 20, &may_enter).unwrap()).unwrap()
    };
    let check = |when: &str| {
        let (all, some) = (lines(2), lines(9));
        assert_eq!(all.len(), some.len(), "{when}");
        for (all, some) in all.lines().zip(some.lines()) {
            let (all, some): (serde_json::Value, serde_json::Value) =
                (serde_json::from_str(all).unwrap(), serde_json::from_str(some).unwrap());
            let branch = all["branch"].as_str().unwrap();
            assert_eq!(branch.starts_with("main/closed"), some["hidden"] == true, "{when}: {branch}");
            let keys = some.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>();
            let few = ["entry", "hidden", "op", "prev", "seq", "sig", "time"];
            assert!(some["hidden"] != true || keys == few, "{when}: {keys:?}");
        }
        assert_eq!(some.matches("\"hidden\":true").count(), all.matches("\"branch\":\"main/closed").count(), "{when}");
    };
    memory.merge(&who(2), closed, MergeVerb::Promote, false).unwrap();
    check("while it lives");
    memory.merge(&who(2), closed, MergeVerb::Merge, false).unwrap();
    memory.merge(&who(2), open_one, MergeVerb::Merge, false).unwrap();
    check("when it has ended");
    memory.seal().unwrap();
    check("when that is sealed");
    assert!(lines(9).contains("main/open"));
}

#[test]
fn archives_that_cannot_be_merged_are_left_and_new_entries_are_sealed() {
    for damaged in [false, true] {
        let disk = ForgetfulDisk::new();
        let memory = open(&disk);
        let main = memory.root("main").unwrap();
        for round in 0..3 {
            (0..5).for_each(|n| put(&memory, 1, main, "r", round * 5 + n));
            memory.seal().unwrap();
        }
        let archives = memory.history.archives();
        memory.close().unwrap();
        drop(memory);
        if damaged {
            let path = format!("segments/{}", archives[0].name);
            disk.open_write(&path).unwrap().write_all_at(b"wrong", 100).unwrap();
        }
        let memory = open(&disk);
        (0..5).for_each(|n| put(&memory, 1, main, "r", 20 + n));
        memory.seal().unwrap();
        assert_eq!(memory.history.archives().len(), if damaged { 4 } else { 1 });
        let last = memory.history_reader().newest();
        assert!(memory.show(BranchId(1), ShowTarget::Entry(last), Viewer::UNRESTRICTED).is_ok());
        assert_eq!(memory.show(BranchId(1), ShowTarget::Entry(2), Viewer::UNRESTRICTED).is_err(), damaged);
    }
}

#[test]
fn an_index_that_leads_elsewhere_is_found_by_verify() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk);
    let main = memory.root("main").unwrap();
    (0..5).for_each(|n| put(&memory, 1, main, "r", n));
    memory.seal().unwrap();
    let (snapshot, reader) = (memory.history.snapshot(), memory.history_reader());
    let (blobs, archive) = (&memory.storage.segments.blobs, &snapshot.archives[0]);
    let mut check = ArchiveCheck::new(blobs, &snapshot.archives).unwrap();
    let entries: Vec<_> = (1..=archive.last()).map(|seq| reader.entry(seq).unwrap()).collect();
    entries.iter().for_each(|signed| check.check_entry(blobs, archive, signed).unwrap());
    let mut check = ArchiveCheck::new(blobs, &snapshot.archives).unwrap();
    check.check_entry(blobs, archive, &entries[0]).unwrap();
    assert!(check.check_entry(blobs, archive, &entries[2]).is_err(), "a step was passed over");
}

/// What one of a history's readers who may enter little sees of it.
fn seen_by_others(memory: &Memory, branch: BranchId) -> Vec<String> {
    let upto = memory.last_seq();
    let length = memory.history_length(branch, HistoryFile::Lineage, upto).unwrap();
    let part = (branch, HistoryFile::Lineage, upto);
    let text = memory.read_history(part, 0, length as usize + 1, &|owner, mode| owner == 1 || mode & 1 != 0).unwrap();
    String::from_utf8(text).unwrap().lines().map(str::to_owned).collect()
}

fn line_seq(line: &str) -> u64 {
    serde_json::from_str::<serde_json::Value>(line).unwrap()["seq"].as_u64().unwrap()
}

#[test]
fn what_is_left_of_histories_reads_as_before_and_goes_on() {
    for seed in 0..6 {
        let (mut chance, disk) = (Chance(seed), ForgetfulDisk::new());
        let (mut memory, mut lines) = (open(&disk), BTreeMap::new());
        for _ in 0..6 {
            for _ in 0..25 {
                random_step(&memory, &mut chance, &living(&memory));
            }
            let all = all_entries(&memory);
            lines.extend(all.iter().map(|signed| (signed.entry.seq, signed.to_line())));
            let cut = &all[chance.below(all.len())].entry;
            let seen: Vec<_> = living(&memory).into_iter().map(|id| (id, seen_by_others(&memory, id))).collect();
            let before = crate::memory::Revision::parse(&cut.time.to_string()).unwrap();
            let report = memory.archive_lineage(&who(1), &before, false).unwrap();
            let moved = cut.seq - all[0].entry.seq;
            assert_eq!(report["entries"], moved);
            for (branch, mut seen) in seen {
                seen.retain(|line| line_seq(line) >= cut.seq);
                assert_eq!(seen_by_others(&memory, branch), seen, "seed {seed}, cut at {}", cut.seq);
                check_branch(&memory, &all_entries(&memory), branch, 1 << 20);
            }
            assert_eq!(memory.history_reader().first(), cut.seq);
            assert!(cut.seq == 1 || memory.history_reader().entry(cut.seq - 1).is_err());
            if chance.below(2) == 0 {
                memory.close().unwrap();
                drop(memory);
                memory = open(&disk);
            }
        }
        let (first, mut archived) = (memory.history_reader().first(), Vec::new());
        assert_eq!(memory.archived_lines(|line| archived.push(line.to_owned())).unwrap(), []);
        assert!(archived.iter().eq(lines.range(..first).map(|(_, line)| line)));
        memory.close().unwrap();
        drop(memory);
        let report = verify_on(&(Arc::new(disk.clone()) as Arc<dyn Disk>), &Default::default()).unwrap();
        assert_eq!((&report["archived"], &report["archived_missing"]), (&(first - 1).into(), &serde_json::json!([])));
    }
}

/// With one archive alone: where several become one, those go in any case.
#[test]
fn the_archive_that_entries_moved_out_of_is_removed_with_the_seal_that_follows() {
    let memory = open(&ForgetfulDisk::new());
    let main = memory.root("main").unwrap();
    (0..5).for_each(|n| put(&memory, 1, main, "r", n));
    memory.seal().unwrap();
    let archives = memory.history.archives();
    assert_eq!(archives.len(), 1);
    let newest = all_entries(&memory).last().unwrap().entry.time.to_string();
    let before = crate::memory::Revision::parse(&newest).unwrap();
    memory.archive_lineage(&who(1), &before, false).unwrap();
    let (left, names) = (memory.history.archives(), memory.storage.segments.blobs.names().unwrap());
    assert!(names.contains(&left[0].name) && !names.contains(&archives[0].name));
}

/// Numbers that no archive has led to sums beyond 64 bits.
#[test]
fn an_archive_whose_numbers_are_not_those_of_its_rows_is_damaged() {
    let blobs = BlobStore::new(Arc::new(ForgetfulDisk::new()), crate::segment::FOLDER).unwrap();
    let forged = |numbers: [u64; 4], hashes: u64| {
        let mut out = crate::segment::ContainerWriter::new(&blobs).unwrap();
        for rows in [0, 0, hashes * archive::HASH_ROW_BYTES, 0, 0, 0] {
            out.begin().unwrap();
            out.write(&vec![0; rows as usize]).unwrap();
        }
        let mut extra = crate::object::Writer::new();
        numbers.into_iter().for_each(|number| _ = extra.number(number));
        Archive::from_file(&blobs, out.finish(archive::KIND, extra.as_slice()).unwrap())
    };
    assert_eq!(forged([5, 2, 0, 0], 2).unwrap().last(), 6);
    for numbers in [[0, 2, 0, 0], [u64::MAX, 2, 0, 0], [5, u64::MAX, 0, 0], [5, 3, 0, 0], [5, 2, 1, 0], [5, 2, 0, 1]] {
        assert!(forged(numbers, 2).is_err(), "{numbers:?}");
    }
    assert!(forged([5, 0, 0, 0], 0).is_err());
}

/// Returns the history of a store with one archive, in which a number of a step is another one.
fn forge_step(memory: &Memory, at: u64, number: u64) -> History {
    let (blobs, snapshot) = (&memory.storage.segments.blobs, memory.history.snapshot());
    let (whole, file) = (&snapshot.archives[0], snapshot.archives[0].file(blobs).unwrap());
    let mut out = crate::segment::ContainerWriter::new(blobs).unwrap();
    for section in 0..=archive::ATTRS_BEFORE {
        let mut bytes = file.read_section(section).unwrap();
        if section == archive::STEPS {
            bytes[at as usize..][..8].copy_from_slice(&number.to_le_bytes());
        }
        out.begin().unwrap();
        out.write(&bytes).unwrap();
    }
    let name = out.finish(archive::KIND, file.extra()).unwrap();
    History::new(&[ArchiveName { name, count: whole.count }], snapshot.start)
}

/// Found by a fuzz target: differences of such totals fell below zero.
#[test]
fn totals_that_contradict_one_another_lead_to_no_line() {
    let memory = open(&ForgetfulDisk::new());
    let main = memory.root("main").unwrap();
    let fork = memory.fork(&who(1), main, "x", None).unwrap();
    put(&memory, 1, fork, "a", 1);
    memory.merge(&who(1), fork, MergeVerb::Merge, false).unwrap();
    memory.seal().unwrap();
    let (blobs, snapshot) = (&memory.storage.segments.blobs, memory.history.snapshot());
    let (whole, file) = (&snapshot.archives[0], snapshot.archives[0].file(blobs).unwrap());
    let mut refused = 0;
    for (at, total) in
        (0..file.section_length(archive::STEPS).unwrap()).step_by(8).flat_map(|at| [(at, 0), (at, u64::MAX)])
    {
        let history = forge_step(&memory, at, total);
        let reader = HistoryReader::new(blobs, history.snapshot());
        for (branch, offset) in [(main, 0), (main, 900), (fork, 0), (fork, 900)] {
            let read = reader.lines((HistoryFile::Lineage, branch.0, whole.last()), offset, 4096, &|_| Ok(true));
            refused += usize::from(read.is_err());
        }
    }
    assert!(refused > 0);
}

/// Found by a fuzz target, for which lines led from branch to branch 65,536 times.
#[test]
fn steps_that_are_out_of_order_lead_to_no_later_entry() {
    let memory = open(&ForgetfulDisk::new());
    let main = memory.root("main").unwrap();
    (0..6).for_each(|number| put(&memory, 1, main, "a", number));
    memory.seal().unwrap();
    let (blobs, last) = (&memory.storage.segments.blobs, memory.last_seq());
    let steps = memory.history.snapshot().archives[0].file(blobs).unwrap().section_length(archive::STEPS).unwrap();
    let mut refused = 0;
    for at in (0..steps).step_by(archive::STEP_ROW_BYTES as usize) {
        for (seq, upto) in (1..=last).flat_map(|seq| (1..=last).map(move |upto| (seq, upto))) {
            let history = forge_step(&memory, at, seq);
            let reader = HistoryReader::new(blobs, history.snapshot());
            let newest = std::cell::Cell::new(0);
            let note_newest = |signed: &SignedEntry| {
                newest.set(newest.get().max(signed.entry.seq));
                Ok(true)
            };
            refused +=
                usize::from(reader.lines((HistoryFile::Lineage, main.0, upto), 0, 1 << 20, &note_newest).is_err());
            assert!(newest.get() <= upto, "entry {} up to {upto}, with {seq} at {at}", newest.get());
        }
    }
    assert!(refused > 0);
}
