//! Power cuts, torn writes and the death of the process.

use std::sync::Arc;

use engramfs::disk::{Disk, DiskCall, Fault, FaultyDisk, ForgetfulDisk};
use engramfs::journal::{FILE_HEADER_BYTES, Frame, FrameKind, Journal, JournalError, Replay};
use engramfs::memory::Kind;

use crate::shrink::run_steps;
use crate::story::{Log, SCRIPT, Step, Story, random_steps, recover};
use crate::support::{Chance, main_of, open, put, rounds, stride, who};

/// Runs the steps up to the `nth` call that changes the disk: from there on nothing reaches it.
/// Returns the story, and whether all calls were made before.
fn run_until(disk: &ForgetfulDisk, steps: &[Step], seed: u64, nth: u64) -> (Story, bool) {
    let faulty = FaultyDisk::new(disk.clone());
    let mut story = Story::begin(&faulty, seed).unwrap();
    let half = nth.is_multiple_of(2);
    faulty.plan(Fault { nth, kinds: DiskCall::CHANGES, errno: libc::EIO, short_write: half, sticky: true });
    for step in steps {
        if story.step(*step).is_err() {
            break;
        }
    }
    let done = faulty.calls() < nth;
    (story, done)
}

/// Cuts the power at every call of a history, with several outcomes each, and lets the process die there; returns what went
/// wrong.
fn cut_everywhere(steps: &[Step], seed: u64, outcomes: u64, ignore_sync: bool, stride: usize) -> Vec<String> {
    let mut wrong = Vec::new();
    for nth in (1..).step_by(stride) {
        let disk = ForgetfulDisk::new();
        disk.ignore_sync(ignore_sync);
        let (story, done) = run_until(&disk, steps, seed, nth);
        let mut check = |outcome: &str, cut: ForgetfulDisk, log: &Log, least: u64| {
            if let Err(error) = recover(&cut, log, least) {
                wrong.push(format!("seed {seed}, call {nth}, {outcome}: {error}"));
            }
        };
        let (log, synced) = (&story.log, story.log.synced);
        check("nothing kept", disk.power_cut_keep_nothing(), log, synced);
        (0..outcomes).for_each(|cut| check(&format!("cut {cut}"), disk.power_cut(nth * 1000 + cut), log, synced));
        // The process died in the middle of a step, and the machine did not.
        check("all kept", disk.power_cut_keep_all(), &log.without_loss(), log.acknowledged);
        if done {
            return wrong;
        }
    }
    unreachable!("a history ends")
}

#[test]
fn what_was_synced_survives_a_power_cut_at_every_call_of_the_script() {
    let wrong = cut_everywhere(&SCRIPT, 1, rounds(2) as u64, false, stride(3));
    assert!(wrong.is_empty(), "{} of the cuts: {wrong:#?}", wrong.len());
}

#[test]
fn what_was_synced_survives_power_cuts_in_random_histories() {
    for seed in 0..rounds(8) as u64 {
        run_steps(seed, &random_steps(&mut Chance(seed), 30), |steps| {
            let wrong = cut_everywhere(steps, seed, 3, false, stride(3));
            assert!(wrong.is_empty(), "{} of the cuts: {wrong:#?}", wrong.len());
        });
    }
}

/// The negative control: with a drive that lies about syncs the same checks must find losses.
#[test]
fn a_drive_that_ignores_syncs_is_found_out() {
    let steps = random_steps(&mut Chance(3), 30);
    let wrong = cut_everywhere(&steps, 3, 3, true, 5);
    assert!(wrong.iter().any(|text| text.contains("were acknowledged as safe")), "{wrong:?}");
}

#[test]
fn the_death_of_the_process_loses_nothing_acknowledged() {
    for seed in 0..rounds(20) as u64 {
        run_steps(seed, &random_steps(&mut Chance(seed), 40), |steps| {
            let disk = ForgetfulDisk::new();
            let mut story = Story::begin(&disk, seed).unwrap();
            for step in steps {
                story.step(*step).unwrap();
                // The dead process's memory of files is the kernel's: nothing of it is lost.
                let log = story.log.without_loss();
                recover(&disk.power_cut_keep_all(), &log, log.acknowledged)
                    .unwrap_or_else(|error| panic!("{step:?}: {error}"));
            }
        });
    }
}

/// The negative control of the checks themselves: each thing that can be wrong with a recovered
/// store is found when it is wrong.
#[test]
fn the_check_finds_losses_other_entries_and_mixes() {
    let disk = ForgetfulDisk::new();
    let mut story = Story::begin(&disk, 6).unwrap();
    for step in [Step::Commit, Step::Sync, Step::Commit, Step::Signal] {
        story.step(step).unwrap();
    }
    let last = story.log.acknowledged;
    let fails = |disk: ForgetfulDisk, log: &Log, what: &str| {
        let error = recover(&disk, log, last).unwrap_err();
        assert!(error.contains(what), "{error}");
    };
    fails(disk.power_cut_keep_nothing(), &story.log, "acknowledged as safe");
    let mut without = story.log.clone();
    without.signals.get_mut(&last).unwrap().pop();
    fails(disk.power_cut_keep_all(), &without, "the signals at entry");
    let older = story.log.pictures[&(last - 1)].clone();
    let mut mixed = story.log.clone();
    mixed.pictures.get_mut(&last).unwrap().1 = older.1.clone();
    fails(disk.power_cut_keep_all(), &mixed, "a mix");
    mixed.pictures.insert(last, older);
    fails(disk.power_cut_keep_all(), &mixed, "another one");
    mixed.pictures.remove(&last);
    mixed.pictures.insert(last - 2, mixed.pictures[&(last - 1)].clone());
    fails(disk.power_cut_keep_all(), &mixed, "never acknowledged");
    assert_eq!(recover(&disk.power_cut_keep_all(), &story.log, last), Ok(last));
}

/// A store with synced commits and then unsynced ones: the disk, the length that was flushed, and
/// where each frame behind ends.
fn with_a_tail() -> (ForgetfulDisk, Story, u64, Vec<u64>) {
    let disk = ForgetfulDisk::new();
    let mut story = Story::begin(&disk, 8).unwrap();
    for _ in 0..4 {
        story.step(Step::Commit).unwrap();
    }
    let flushed = disk.bytes(&Journal::file_path(1)).unwrap().len() as u64;
    story.step(Step::Sync).unwrap();
    let mut ends = vec![disk.bytes(&Journal::file_path(1)).unwrap().len() as u64];
    for step in [Step::Commit, Step::Fork, Step::Commit, Step::Checkpoint, Step::Commit, Step::Commit] {
        story.step(step).unwrap();
        ends.push(disk.bytes(&Journal::file_path(1)).unwrap().len() as u64);
    }
    (disk, story, flushed, ends)
}

#[test]
fn a_journal_cut_at_any_byte_gives_the_state_of_its_last_whole_frame() {
    let (disk, story, _, ends) = with_a_tail();
    let bytes = disk.bytes(&Journal::file_path(1)).unwrap();
    for length in (ends[0]..=bytes.len() as u64).step_by(stride(3)) {
        let cut = disk.power_cut_keep_all();
        cut.replace(&Journal::file_path(1), bytes[..length as usize].to_vec()).unwrap();
        let whole = ends[1..].iter().filter(|end| **end <= length).count() as u64;
        assert_eq!(recover(&cut, &story.log, story.log.synced).unwrap(), story.log.synced + whole, "length {length}");
    }
}

#[test]
fn lost_sectors_give_an_old_state_and_never_a_mix() {
    let (disk, story, _, ends) = with_a_tail();
    let good = disk.bytes(&Journal::file_path(1)).unwrap();
    let first = ends[0] as usize;
    let sectors: Vec<_> = (first / 512..good.len().div_ceil(512))
        .map(|n| (n * 512).max(first)..((n + 1) * 512).min(good.len()))
        .collect();
    assert!((2..16).contains(&sectors.len()), "{}", sectors.len());
    for lost in 1..1usize << sectors.len() {
        let mut bytes = good.clone();
        let zeroed = sectors.iter().enumerate().filter(|(at, _)| lost & (1 << at) != 0);
        zeroed.for_each(|(_, sector)| bytes[sector.clone()].fill(0));
        let wrong = good.iter().zip(&bytes).position(|(good, byte)| good != byte).unwrap() as u64;
        let whole = ends[1..].iter().filter(|end| **end <= wrong).count() as u64;
        let cut = disk.power_cut_keep_all();
        cut.replace(&Journal::file_path(1), bytes).unwrap();
        let seq = recover(&cut, &story.log, story.log.synced).unwrap_or_else(|error| panic!("lost {lost:b}: {error}"));
        assert_eq!(seq, story.log.synced + whole, "lost {lost:b}");
    }
}

#[test]
fn damage_below_what_was_flushed_is_never_cut_away() {
    let (disk, _, flushed, _) = with_a_tail();
    let path = Journal::file_path(1);
    for at in 0..flushed {
        let broken = disk.power_cut_keep_all();
        broken.flip(&path, at, 1 << (at % 8)).unwrap();
        let before = broken.bytes(&path).unwrap();
        let error = open(&broken).err().unwrap_or_else(|| panic!("byte {at} goes unnoticed"));
        assert_eq!((error.kind(), broken.bytes(&path).unwrap() == before), (Kind::Damaged, true), "byte {at}");
    }
}

/// Syncing again and again with nothing new costs no flush and no bytes.
#[test]
fn a_sync_with_nothing_new_writes_nothing() {
    let (disk, story, ..) = with_a_tail();
    story.memory.sync().unwrap();
    let length = disk.bytes(&Journal::file_path(1)).unwrap().len();
    for _ in 0..10 {
        story.memory.sync().unwrap();
    }
    assert_eq!(disk.bytes(&Journal::file_path(1)).unwrap().len(), length);
}

/// Between the clean end's frame and its flush the power may fail: the frames before it may be torn
/// then, and must not pass for damage.
#[test]
fn a_power_cut_during_a_clean_end_is_no_damage() {
    let story = |seed| {
        let faulty = FaultyDisk::new(ForgetfulDisk::new());
        let mut story = Story::begin(&faulty, seed).unwrap();
        for step in [Step::Commit, Step::Sync, Step::Commit, Step::Commit] {
            story.step(step).unwrap();
        }
        (faulty, story)
    };
    let fault = |nth| Fault { sticky: true, ..Fault::once(nth, &[DiskCall::Sync], libc::EIO) };
    let (mut ends, mut torn) = (0, 0);
    for seed in 0..rounds(300) as u64 {
        let (whole, to_its_end) = story(seed);
        whole.plan(fault(u64::MAX));
        to_its_end.memory.close().unwrap();
        // A close seals, flushes what is left of the log records, writes the end and flushes that.
        let flushes = whole.calls();
        let nth = flushes - seed % flushes;
        let (faulty, story) = story(seed);
        faulty.plan(fault(nth));
        assert!(story.memory.close().is_err(), "seed {seed}, flush {nth} of {flushes}");
        let cut = faulty.inner().power_cut(seed);
        let is_written = has_end(&faulty.inner().power_cut_keep_all());
        ends += usize::from(is_written);
        torn += usize::from(is_written && !has_end(&cut));
        recover(&cut, &story.log, story.log.synced).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!(ends > torn && torn > 0, "{ends} closes wrote an end that was not flushed, of which {torn} were lost");
}

/// Returns whether the newest journal file has a clean end.
fn has_end(disk: &ForgetfulDisk) -> bool {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let names = disk.list("journal").unwrap();
    let newest = names.iter().filter_map(|name| Journal::parse_file_name(name)).max().unwrap();
    let mut has_end = false;
    let each = |frame: Frame<'_>| -> Result<bool, JournalError> {
        has_end |= frame.kind == FrameKind::End;
        Ok(true)
    };
    // One that is torn is of no matter here.
    let _ = Replay::open(&disk, newest).unwrap().for_each_frame(0, each);
    has_end
}

/// It is refused before a byte of it is read or written.
#[test]
fn a_frame_of_more_than_1_gib_is_refused_and_the_next_one_taken() {
    let disk: Arc<dyn Disk> = Arc::new(ForgetfulDisk::new());
    disk.create_dir("journal").unwrap();
    let journal = Journal::create(&disk, &[7; 16]).unwrap();
    let begin = journal.append(FrameKind::Command, &[b"x"]).unwrap();
    let part = vec![0; 64 << 20];
    let beyond: Vec<&[u8]> = std::iter::repeat_n(&part[..], 16).chain([&b"x"[..]]).collect();
    let error = journal.append(FrameKind::Command, &beyond).unwrap_err();
    assert!(error.to_string().contains("too large") || format!("{error:?}").contains("27"), "{error:?}");
    assert_eq!(journal.length(), begin);
    journal.append(FrameKind::Command, &[b"y"]).unwrap();
}

/// After a failed flush the kernel holds bytes that it will never write. Whoever opens the store
/// again reads them, and must write them anew before calling them durable.
#[test]
fn pages_lost_by_a_failed_flush_are_written_again_by_the_next_opening() {
    let faulty = FaultyDisk::losing_pages(ForgetfulDisk::new());
    let mut story = Story::begin(&faulty, 4).unwrap();
    story.step(Step::Commit).unwrap();
    story.step(Step::Sync).unwrap();
    story.step(Step::Commit).unwrap();
    story.step(Step::Commit).unwrap();
    faulty.plan(Fault::once(1, &[DiskCall::Sync], libc::EIO));
    story.memory.sync().unwrap_err();
    faulty.clear();
    story.step(Step::Die).unwrap();
    story.step(Step::Sync).unwrap();
    assert_eq!(story.log.synced, story.log.acknowledged);
    recover(&faulty.inner().power_cut_keep_nothing(), &story.log, story.log.synced).unwrap();
}

/// A bulk commit whose segment is there and whose entry is not: the records are absent, the file is no damage, and a
/// collection removes it.
#[test]
fn a_bulk_commit_is_whole_or_absent() {
    let faulty = FaultyDisk::new(ForgetfulDisk::new());
    let mut story = Story::begin(&faulty, 4).unwrap();
    story.step(Step::Commit).unwrap();
    let (mut failed, mut left, mut nth) = (0, 0, 1);
    loop {
        faulty.plan(Fault::once(nth, DiskCall::CHANGES, libc::EIO));
        let result = story.step(Step::Bulk);
        faulty.clear();
        let after = faulty.inner().power_cut_keep_all();
        recover(&after, &story.log, story.log.acknowledged).unwrap();
        if result.is_ok() {
            break;
        }
        let unreferenced = after.list("segments").unwrap();
        open(&after).unwrap().gc(&who(), None, false).unwrap();
        let kept = after.list("segments").unwrap();
        assert!(!unreferenced.iter().any(|name| kept.contains(name)), "call {nth}");
        left += unreferenced.len();
        (failed, nth) = (failed + 1, nth + 1);
    }
    assert!(failed >= 4 && left > 0, "{failed} failed, which left {left} files");
}

/// An agent may write a vector whose bytes are a whole frame that calls everything before it safe.
/// A process that dies while it writes that record must leave a store that opens.
#[test]
fn a_record_that_looks_like_a_frame_vouches_for_nothing() {
    let vector = (0u64..).map(frame_as_vector).find(|vector| vector.iter().all(|number| number.is_finite())).unwrap();
    let disk = ForgetfulDisk::new();
    let mut story = Story::begin(&disk, 5).unwrap();
    story.step(Step::Checkpoint).unwrap();
    let before = disk.bytes(&Journal::file_path(1)).unwrap().len();
    story
        .memory
        .commit(&who(), main_of(&story.memory), vec![put("trap", Some(vector), Some(&"x".repeat(50)))])
        .unwrap();
    let bytes = disk.bytes(&Journal::file_path(1)).unwrap();
    for length in before..bytes.len() {
        let cut = disk.power_cut_keep_all();
        cut.replace(&Journal::file_path(1), bytes[..length].to_vec()).unwrap();
        recover(&cut, &story.log, story.log.acknowledged)
            .unwrap_or_else(|error| panic!("{length} of {}: {error}", bytes.len()));
    }
}

/// A clean end's frame, read as numbers.
fn frame_as_vector(seed: u64) -> Vec<f32> {
    let desk: Arc<dyn Disk> = Arc::new(ForgetfulDisk::new());
    desk.create_dir("journal").unwrap();
    let payload = [seed.to_le_bytes().as_slice(), &[1; 7]].concat();
    let end =
        Journal::create(&desk, &u128::from(seed).to_le_bytes()).unwrap().append(FrameKind::End, &[&payload]).unwrap();
    let mut bytes = vec![0; end as usize - FILE_HEADER_BYTES as usize];
    desk.open(&Journal::file_path(1)).unwrap().read_exact_at(&mut bytes, FILE_HEADER_BYTES).unwrap();
    assert_eq!(bytes.len() % 4, 0);
    bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
}

/// Frames are what the tests above take them for.
#[test]
fn the_tail_of_the_test_store_is_made_of_whole_frames() {
    let (disk, _, flushed, ends) = with_a_tail();
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let mut starts = Vec::new();
    let each = |frame: Frame<'_>| -> Result<bool, JournalError> {
        starts.push((frame.offset, frame.kind));
        Ok(true)
    };
    assert_eq!(Replay::open(&disk, 1).unwrap().for_each_frame(0, each).unwrap(), None);
    assert!(starts.contains(&(flushed, FrameKind::Mark)));
    ends[..ends.len() - 1].iter().for_each(|end| assert!(starts.contains(&(*end, FrameKind::Command))));
}

/// Seals that were cut off leave files behind; the next collection takes them away.
#[test]
fn what_broken_seals_left_is_swept() {
    let faulty = FaultyDisk::new(ForgetfulDisk::new());
    let memory = crate::support::open_on(Arc::new(faulty.clone())).unwrap();
    for round in 0..6 {
        memory.commit(&who(), main_of(&memory), vec![put("a", None, Some(&format!("{round}")))]).unwrap();
        faulty.plan(Fault::once(1, &[DiskCall::Rename], libc::EIO));
        memory.seal().unwrap_err();
        faulty.plan(Fault::once(2 + round % 2, &[DiskCall::Rename], libc::EIO));
        memory.seal().unwrap_err();
    }
    faulty.clear();
    memory.gc(&who(), None, false).unwrap();
    let files = faulty.inner().files().into_iter().map(|(path, _)| path);
    let (journals, others): (Vec<_>, Vec<_>) = files.partition(|path| path.starts_with("journal/"));
    assert_eq!(journals.len(), 1, "{journals:?}");
    assert!(others.len() <= 4 + 6 && !others.iter().any(|path| path.contains("draft")), "{others:?}");
}
