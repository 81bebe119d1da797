//! Clocks that jump, and stores whose last entry is in the future.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{
    EditError, Environment, Error, HistoryFile, Kind, Memory, OpenMode, Query, Setting, ShowTarget, Time, View, Viewer,
};

use crate::support::{environment, main_of, make_file, put, verify, who};

const NOW: i64 = 1_800_000_000_000_000_000;
const DAY_NANOS: i64 = 24 * 3600 * 1_000_000_000;
const CENTURY_NANOS: i64 = 36_500 * DAY_NANOS;

/// What the clock says, and by how much it is wrong.
#[derive(Clone, Default)]
struct Machine(Arc<(AtomicI64, AtomicI64)>);

impl Machine {
    fn set(&self, wrong_by: i64) {
        self.0.1.store(wrong_by, Ordering::Relaxed);
    }

    fn wait(&self, nanos: i64) {
        self.0.0.fetch_add(nanos, Ordering::Relaxed);
    }

    fn open(&self, disk: &ForgetfulDisk) -> Arc<Memory> {
        let (clock, uptime) = (self.0.clone(), self.0.clone());
        let around = Environment {
            clock: Box::new(move || Time(NOW + clock.0.load(Ordering::Relaxed) + clock.1.load(Ordering::Relaxed))),
            uptime: Box::new(move || Duration::from_nanos(uptime.0.load(Ordering::Relaxed).cast_unsigned())),
            ..environment()
        };
        Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, around).unwrap()
    }
}

fn commit(memory: &Memory, id: &str) -> Result<(), Error> {
    memory.commit(&who(), main_of(memory), vec![put(id, None, Some(id))]).map(drop)
}

fn clock_of(memory: &Memory) -> String {
    memory.status(&View::Branch(main_of(memory))).unwrap()["clock"].as_str().unwrap().to_owned()
}

#[test]
fn a_clock_that_is_set_while_serving_writes_nothing_until_it_is_right_again() {
    let (disk, machine) = (ForgetfulDisk::new(), Machine::default());
    let memory = machine.open(&disk);
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Keep, "1h").unwrap();
    commit(&memory, "a").unwrap();
    memory.checkpoint(&who(), main, "one", None).unwrap();
    commit(&memory, "b").unwrap();
    let kept = memory.status(&View::Branch(main)).unwrap()["head"].as_str().unwrap().parse().unwrap();
    memory.rollback(&who(), main, "one").unwrap();
    machine.wait(10 * DAY_NANOS);
    commit(&memory, "after ten days").unwrap();
    memory.rollback(&who(), main, "one").unwrap();
    for wrong_by in [CENTURY_NANOS, DAY_NANOS + 1, -DAY_NANOS - 1, i64::MAX - NOW - 20 * DAY_NANOS] {
        machine.set(wrong_by);
        let tip = memory.tip();
        let error = commit(&memory, "b").unwrap_err();
        assert_eq!((error.kind(), error.code()), (Kind::Invalid, "clock_jumped"), "{wrong_by}: {error}");
        let Err(EditError::Refused(error)) = make_file(&memory, "f") else { panic!("{wrong_by}: it is written") };
        assert_eq!(error.code(), "clock_jumped");
        memory.rollback(&who(), main, "one").unwrap_err();
        memory.fork(&who(), main, "fork", None).unwrap_err();
        assert_eq!(memory.gc(&who(), None, false).unwrap_err().code(), "clock_jumped");
        assert_eq!(memory.tip(), tip);
    }
    memory.show(main, ShowTarget::Hash(kept), Viewer::UNRESTRICTED).unwrap();
    machine.set(DAY_NANOS);
    commit(&memory, "a day").unwrap();
    machine.set(0);
    commit(&memory, "again").unwrap();
    memory.close().unwrap();
    drop(memory);
    verify(&disk).unwrap();
}

#[test]
fn entries_are_a_nanosecond_apart_where_the_clock_stands_still_or_goes_back() {
    let (disk, machine) = (ForgetfulDisk::new(), Machine::default());
    let memory = machine.open(&disk);
    for (id, wrong_by) in
        [("a", 0), ("b", 0), ("c", 0), ("d", -DAY_NANOS / 2), ("e", -DAY_NANOS / 2), ("f", DAY_NANOS / 2)]
    {
        machine.set(wrong_by);
        commit(&memory, id).unwrap();
    }
    let nanos = |line: &String| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let time: jiff::Timestamp = line["time"].as_str().unwrap().parse().unwrap();
        i64::try_from(time.as_nanosecond()).unwrap()
    };
    let times: Vec<i64> = memory.lineage_lines(main_of(&memory), false).unwrap().iter().map(nanos).collect();
    let last = times[times.len() - 6..].windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>();
    assert_eq!(last[..4], [1; 4], "the clock stood still, and then went back");
    assert_eq!(times[times.len() - 1], NOW + DAY_NANOS / 2, "it is ahead of the last entry again");
}

#[test]
fn operations_of_before_the_jump_are_gathered_after_it() {
    let (disk, machine) = (ForgetfulDisk::new(), Machine::default());
    let memory = machine.open(&disk);
    make_file(&memory, "f").unwrap();
    machine.set(CENTURY_NANOS);
    memory.close().unwrap();
    drop(memory);
    assert_eq!(verify(&disk).unwrap()["unsigned"], 0);
}

#[test]
fn a_store_that_was_written_a_century_ahead_is_found_and_follows_the_clock_again_after_a_reset() {
    let (disk, machine) = (ForgetfulDisk::new(), Machine::default());
    machine.set(CENTURY_NANOS);
    let memory = machine.open(&disk);
    commit(&memory, "wrong").unwrap();
    memory.checkpoint(&who(), main_of(&memory), "then", None).unwrap();
    assert_eq!(clock_of(&memory), "ok", "nothing tells");
    drop(memory);
    machine.set(0);
    let memory = machine.open(&disk);
    assert_eq!(clock_of(&memory), "ahead");
    assert!(memory.warnings().iter().any(|warning| warning.contains("clock STORE --reset")));
    let time = |memory: &Memory| memory.lineage_lines(main_of(memory), false).unwrap().pop().unwrap();
    commit(&memory, "still").unwrap();
    assert!(time(&memory).contains("\"time\":\"2126-"), "{}", time(&memory));
    let report = memory.reset_clock(&who()).unwrap();
    assert_eq!((report["clock"].as_str(), report["reset"].as_bool()), (Some("ok"), Some(true)));
    assert_eq!(memory.reset_clock(&who()).unwrap()["reset"], false);
    commit(&memory, "right").unwrap();
    assert!(time(&memory).contains("\"time\":\"2027-"), "{}", time(&memory));
    let at_checkpoint = View::Checkpoint(main_of(&memory), "then".into());
    let history = (main_of(&memory), HistoryFile::Lineage, memory.history_last_seq(&at_checkpoint).unwrap());
    let lineage = memory.read_history(history, 0, 1 << 20, &|_, _| true).unwrap();
    let last = String::from_utf8_lossy(&lineage).lines().last().unwrap().to_owned();
    assert!(last.contains("\"op\":\"checkpoint\""), "by number and not by time: {last}");
    drop(memory);
    for _ in 0..2 {
        let memory = machine.open(&disk);
        assert_eq!((clock_of(&memory).as_str(), memory.warnings().len()), ("ok", 0));
        memory.seal().unwrap();
        drop(memory);
        verify(&disk).unwrap();
    }
}

#[test]
fn a_branch_that_was_made_while_the_clock_was_ahead_expires_once_its_ttl_is_over_after_a_reset() {
    let (disk, machine) = (ForgetfulDisk::new(), Machine::default());
    machine.set(CENTURY_NANOS);
    let memory = machine.open(&disk);
    let child = memory.fork(&who(), main_of(&memory), "child", None).unwrap();
    memory.set(&who(), child, Setting::Ttl, "1d").unwrap();
    drop(memory);
    machine.set(0);
    let memory = machine.open(&disk);
    assert_eq!(memory.reset_clock(&who()).unwrap()["reset"], true);
    memory.gc(&who(), None, false).unwrap();
    assert!(memory.info(child).is_ok(), "its day begins with the reset");
    machine.wait(2 * DAY_NANOS);
    memory.gc(&who(), None, false).unwrap();
    assert!(memory.info(child).is_err(), "its day is over");
}

#[test]
fn a_clock_is_ahead_from_a_day_on() {
    const SECOND_NANOS: i64 = 1_000_000_000;
    for (wrong_by, told) in [(DAY_NANOS - SECOND_NANOS, "ok"), (DAY_NANOS + SECOND_NANOS, "ahead")] {
        let (disk, machine) = (ForgetfulDisk::new(), Machine::default());
        machine.set(wrong_by);
        let memory = machine.open(&disk);
        commit(&memory, "early").unwrap();
        drop(memory);
        machine.set(0);
        assert_eq!(clock_of(&machine.open(&disk)), told, "{wrong_by}");
    }
}

#[test]
fn a_query_whose_time_is_over_fails_and_returns_nothing() {
    // Each look at a clock takes a millisecond. Somebody may set the clock back meanwhile.
    for clock_step in [1_000_000, -1_000_000] {
        let (clock, uptime) = (AtomicI64::new(NOW), AtomicI64::new(NOW));
        let around = Environment {
            clock: Box::new(move || Time(clock.fetch_add(clock_step, Ordering::Relaxed))),
            uptime: Box::new(move || {
                Duration::from_nanos(uptime.fetch_add(1_000_000, Ordering::Relaxed).cast_unsigned())
            }),
            ..environment()
        };
        let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, around).unwrap();
        let main = main_of(&memory);
        memory.commit(&who(), main, vec![put("a", None, Some("a heron"))]).unwrap();
        let ask = |timeout_ms: u64| {
            let query = serde_json::json!({ "text": "heron", "timeout_ms": timeout_ms }).to_string();
            memory.query(&View::Branch(main), &Query::parse(&query).unwrap())
        };
        assert_eq!(ask(600_000).unwrap().hits.len(), 1);
        let error = ask(1).map(|answer| answer.hits.len()).unwrap_err();
        assert_eq!((error.kind(), error.code()), (Kind::Timeout, "timeout"));
    }
}
