//! Times follow the machine's clock, which may be wrong: what is done about it.
//!
//! Entries are ordered by their numbers. Their times only grow, so one that was written with the clock far ahead would
//! stamp all later ones. Two things stop that: a clock that is set while the store is served writes nothing, and after
//! an opening that finds the last entry in the future a signed entry lets times follow the clock again.

use std::time::Duration;

use serde_json::{Value, json};

use super::transact::LogTail;
use crate::lineage::{Detail, EntryOp};
use crate::memory::catalog::CatalogChange;
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, prepare_on_store};
use crate::memory::{Actor, ClockError, Environment, Error, Memory};
use crate::object::{Time, Writer};

const DAY_NANOS: i64 = 24 * 3600 * 1_000_000_000;

/// A moment by the clock, and by the time since the machine started.
#[derive(Clone, Copy, Default)]
pub(in crate::memory) struct ClockReading {
    clock: Time,
    uptime: Duration,
}

impl ClockReading {
    /// Reads the time and the uptime of the machine from the environment.
    pub fn now(environment: &Environment) -> ClockReading {
        ClockReading { clock: (environment.clock)(), uptime: (environment.uptime)() }
    }

    /// Returns by how many nanoseconds the clock was set since an earlier moment: below 0 if it was set back.
    fn nanos_set_since(&self, earlier: &ClockReading) -> i64 {
        let nanos = |uptime: Duration| i64::try_from(uptime.as_nanos()).unwrap_or(i64::MAX);
        let went_by = nanos(self.uptime).saturating_sub(nanos(earlier.uptime));
        self.clock.0.saturating_sub(earlier.clock.0).saturating_sub(went_by)
    }
}

/// Returns whether an entry with that time is more than a day in the future.
fn is_ahead(last: Time, now: Time) -> bool {
    last > now.plus_nanos(DAY_NANOS)
}

/// Returns what is said at an opening that finds the last entry more than a day in the future; none else.
pub(in crate::memory) fn ahead_warning(last: Time, now: Time) -> Option<String> {
    is_ahead(last, now).then(|| {
        format!(
            "the last entry is of {last} and the clock says {now}: times will not follow the clock; if the clock is \
             right, unmount and run engramfs clock STORE --reset"
        )
    })
}

/// Times follow the clock again, from this command's own on.
#[derive(Debug)]
pub(super) struct ResetClock;

pub(super) const CLOCK: CommandSpec = CommandSpec { code: 20, name: "clock", read: |_| Ok(Box::new(ResetClock)) };

impl Command for ResetClock {
    fn spec(&self) -> &'static CommandSpec {
        &CLOCK
    }

    fn write(&self, _: &mut Writer) {}

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let (user, change) = (context.catalog.user(log_record.uid), CatalogChange::Clock(log_record.time));
        Ok(prepare_on_store(EntryOp::Clock, Detail::default(), user, change))
    }
}

impl Memory {
    /// Returns the time of the next entry: the clock's, and later than the one before.
    ///
    /// Kind `Invalid`: code `clock_jumped` if the clock was set by more than a day since the last write, and
    /// `no_later_time` where no later time can be stored. A clock that is set right again is taken.
    pub(in crate::memory) fn next_time(&self, log_tail: &mut LogTail) -> Result<Time, Error> {
        let now = ClockReading::now(&self.environment);
        let jump = now.nanos_set_since(&log_tail.last_clock_reading);
        if jump.unsigned_abs() > DAY_NANOS.unsigned_abs() {
            let way = if jump > 0 { "forward" } else { "back" };
            return Err(ClockError::Jumped { way, days: jump.abs() / DAY_NANOS }.into());
        }
        if log_tail.time.0 == i64::MAX {
            return Err(ClockError::NoLaterTime.into());
        }
        // Noted only where the clock is believed, so that a jump is refused until the clock is set right again or the
        // store reopened.
        log_tail.last_clock_reading = now;
        Ok(now.clock.max(log_tail.time.plus_nanos(1)))
    }

    /// Returns the time of an entry about what was done before, whatever became of the clock since.
    pub(in crate::memory) fn pending_entry_time(&self, log_tail: &mut LogTail) -> Time {
        // What was done is in the journal already and has to get its entry, whatever the clock says now.
        self.next_time(log_tail).unwrap_or(log_tail.time.plus_nanos(1))
    }

    /// Fails like the next write, where the clock was set.
    pub(in crate::memory) fn check_clock(&self) -> Result<(), Error> {
        self.next_time(&mut *self.writer()?).map(drop)
    }

    /// Returns `ahead` if the last entry is more than a day in the future, otherwise `ok`.
    pub fn clock_state(&self) -> &'static str {
        if is_ahead(self.last_time(), self.now()) { "ahead" } else { "ok" }
    }

    /// Returns an object with `clock` ([`Memory::clock_state`]), the times `last` (of the last entry) and `now` in RFC
    /// 3339, and `reset` (false).
    pub fn clock(&self) -> Value {
        let (last, now) = (self.last_time().to_string(), self.now().to_string());
        json!({ "clock": self.clock_state(), "last": last, "now": now, "reset": false })
    }

    /// Lets the times of new entries follow the clock again if the last entry is in the future; this makes an entry.
    /// Returns the same object as [`Memory::clock`], with `reset` saying whether it was done. Otherwise nothing
    /// changes. Kind `ReadOnly` if nothing can be written.
    pub fn reset_clock(&self, who: &Actor) -> Result<Value, Error> {
        let mut report = self.clock();
        let change = {
            let mut writer = self.writer_with_nothing_pending()?;
            let now = self.now();
            // Asked under the writer lock: an entry that comes before this one may have moved the last time.
            if writer.time <= now {
                return Ok(report);
            }
            self.execute_at(&mut writer, now, who.uid, Box::new(ResetClock))?.1
        };
        self.notify(change);
        report["clock"] = self.clock_state().into();
        report["reset"] = true.into();
        Ok(report)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::memory::{
        BranchId, FILES_ROOT, FileName, FileOp, Kind, MergeVerb, NewInode, OpenMode, RecordEdit, RecordInput,
    };

    const HOUR_NANOS: i64 = 3600 * 1_000_000_000;
    /// Records, more than are merged or rolled back under the lock.
    const MANY: usize = 600;

    /// A clock that is an hour ahead for so many looks, and is then set back.
    #[derive(Clone, Default)]
    struct Machine(Arc<(AtomicI64, AtomicI64)>);

    impl Machine {
        fn be_ahead(&self, looks: i64) {
            self.0.1.store(looks, Ordering::Relaxed);
        }

        fn open(&self, disk: ForgetfulDisk, mode: OpenMode) -> Arc<Memory> {
            let clock = self.0.clone();
            let clock = move || {
                let lead = if clock.1.fetch_sub(1, Ordering::Relaxed) > 0 { HOUR_NANOS } else { 0 };
                Time(1_800_000_000_000_000_000 + clock.0.fetch_add(1_000, Ordering::Relaxed) + lead)
            };
            let environment = Environment {
                clock: Box::new(clock),
                uptime: Box::new(|| Duration::from_secs(1)),
                ..Environment::real(who())
            };
            Memory::open_on(Arc::new(disk), mode, None, environment).unwrap()
        }
    }

    fn who() -> Actor {
        Actor { uid: 0, gid: 0, name: "root".into() }
    }

    fn puts(tag: &str, count: usize) -> Vec<RecordEdit> {
        let input = RecordInput { vector: None, text: Some("x".into()), metadata: "{}".into() };
        (0..count).map(|n| RecordEdit::Put { id: format!("{tag}{n}").into(), input: input.clone() }).collect()
    }

    /// Returns when records of a branch were deleted, and the times of its files.
    fn times(memory: &Memory, branch: BranchId) -> (Vec<Option<Time>>, Vec<[Time; 4]>) {
        let state = memory.catalog().branch(branch).unwrap().state.clone();
        let nodes = state.files().inodes().map(|inode| state.files().node(inode).unwrap());
        let nodes = nodes.map(|node| [node.crtime, node.written, node.mtime, node.ctime]).collect();
        ((0..MANY).map(|n| state.deleted_at(&format!("r{n}"))).collect(), nodes)
    }

    /// Holds the times of `main` against those after another opening, wherever in `act` the clock is set back.
    fn check(prepare: impl Fn(&Memory, BranchId), act: impl Fn(&Memory, BranchId)) {
        for looks in 1..=12 {
            let (disk, machine) = (ForgetfulDisk::new(), Machine::default());
            let memory = machine.open(disk.clone(), OpenMode::Create);
            let main = memory.root("main").unwrap();
            prepare(&memory, main);
            memory.commit_all_pending().unwrap();
            let before = times(&memory, main);
            machine.be_ahead(looks);
            act(&memory, main);
            machine.be_ahead(0);
            memory.sync().unwrap();
            let live = times(&memory, main);
            assert_ne!(live, before, "the control");
            let again = machine.open(disk.power_cut_keep_all(), OpenMode::Existing);
            assert!(live == times(&again, main), "set back after {looks} looks");
        }
    }

    #[test]
    fn nothing_follows_the_last_time_that_can_be_stored() {
        let memory = Machine::default().open(ForgetfulDisk::new(), OpenMode::Create);
        let mut writer = memory.writer().unwrap();
        let before = std::mem::replace(&mut writer.time, Time(i64::MAX));
        let error = memory.next_time(&mut writer).unwrap_err();
        assert_eq!((error.kind(), error.code()), (Kind::Invalid, "no_later_time"), "{error}");
        writer.time = before;
        assert!(memory.next_time(&mut writer).unwrap() > before);
    }

    #[test]
    fn deletes_of_a_bulk_keep_their_times_where_the_clock_is_set_back() {
        let prepare = |memory: &Memory, main| {
            memory.commit(&who(), main, puts("r", MANY)).unwrap();
        };
        check(prepare, |memory, main| {
            let mut edits = puts("new", 1_100);
            edits.push(RecordEdit::Delete { id: "r7".into() });
            memory.commit(&who(), main, edits).unwrap();
        });
    }

    #[test]
    fn a_rollback_keeps_its_times_where_the_clock_is_set_back() {
        let prepare = |memory: &Memory, main| {
            memory.checkpoint(&who(), main, "v1", None).unwrap();
            memory.commit(&who(), main, puts("r", MANY)).unwrap();
        };
        check(prepare, |memory, main| {
            memory.rollback(&who(), main, "v1").unwrap();
        });
    }

    #[test]
    fn a_merge_keeps_its_times_where_the_clock_is_set_back() {
        let prepare = |memory: &Memory, main| {
            let child = memory.fork(&who(), main, "child", None).unwrap();
            memory.commit(&who(), child, puts("r", MANY)).unwrap();
            let name = FileName::new(b"file").unwrap();
            let op = FileOp::Create { parent: FILES_ROOT, name, make: NewInode::File, mode: 0o644, uid: 0, gid: 0 };
            memory.edit(&who(), child, op).unwrap();
        };
        check(prepare, |memory, main| {
            let child = memory.catalog().branch(main).unwrap().children["child"];
            memory.merge(&who(), child, MergeVerb::Merge, false).unwrap();
        });
    }
}
