//! What happens in a shared log and its signals, as lines that are kept in memory for those who follow it.
//!
//! Lines are made under the writer's lock, so that they are in the order in which things happened. The newest
//! [`BYTES_MAX`] bytes are kept for each shared log, counted in the share of its owner.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use serde::Serialize;

use crate::lineage::SignedEntry;
use crate::memory::catalog::shared_log::log_entry_number;
use crate::memory::catalog::signals::{Publisher, Signal, Signals};
use crate::memory::catalog::{Branch, BranchId};
use crate::memory::command::log_record::{Command, SharedEvent};
use crate::memory::command::record_change::RecordChange;
use crate::memory::{Error, Memory, SignalError};
use crate::object::Time;
use crate::sync::{MemoryBudget, Mutex, Reservation};

/// Bytes of events that are kept in memory of one shared log; the oldest go first.
const BYTES_MAX: usize = 8 << 20;
/// One part in so many of them goes at once where there is no more room.
const DROPPED_ONE_IN: usize = 8;
/// Steps in bytes by which what counts in the owner's share grows: not every line asks for more.
const RESERVATION_STEP_BYTES: usize = 64 << 10;
/// Bytes of the longest value or text that an event shows.
const SHOWN_BYTES_MAX: usize = 4 << 10;
/// The bit of a signal's mode that lets all read it.
const READABLE_BY_ALL: u32 = 0o4;

/// The events of all shared logs, by the branch whose log it is. They are not stored: an opening begins without any.
#[derive(Default)]
pub(in crate::memory) struct SharedEvents(Mutex<HashMap<BranchId, Arc<Mutex<EventLines>>>>);

/// The newest lines of one shared log, which end with a line feed each.
struct EventLines {
    bytes: VecDeque<u8>,
    /// How many bytes came before the first that is kept.
    dropped_bytes: u64,
    /// The number of the last event since the store was opened, 0 before the first.
    seq: u64,
    reservation: Reservation,
}

#[derive(Serialize)]
struct EventLine<'a> {
    seq: u64,
    time: String,
    event: &'a str,
    branch: &'a str,
    agent: &'a str,
    uid: u32,
    #[serde(flatten)]
    about: EventSubject<'a>,
}

/// What an event is about: the fields of its line that lines of all kinds do not have.
#[derive(Serialize)]
#[serde(untagged)]
pub(in crate::memory) enum EventSubject<'a> {
    /// A key whose signal is gone, or a barrier: what has no value.
    Key { key: &'a str },
    /// A key and what was written to it, or how long that is.
    Signal {
        /// The signal's key.
        key: &'a str,
        /// The value that was committed.
        #[serde(flatten)]
        value: EventValue<'a>,
    },
    /// A signal that ended by itself, and why: `lease`, `expired` or `session`.
    Ended { key: &'a str, reason: &'a str },
    /// An entry that was appended to the log, by its number.
    Entry {
        /// Its number in the log, from 1.
        entry_id: u64,
        /// What it says.
        #[serde(flatten)]
        text: EventValue<'a>,
    },
    /// A merge into the branch that has the log, by its entry, and how much it brought.
    Merge { entry: u64, put: u64, deleted: u64, files: u64 },
}

/// A value or text of 4 KiB at most, or how long it is.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::memory) enum EventValue<'a> {
    /// The value of a signal, where that is UTF-8 of 4 KiB at most that everybody may read.
    Value(&'a str),
    /// The text of an entry of the log, of 4 KiB at most.
    Text(&'a str),
    /// What is long, no text, or not for everybody: its length alone.
    Bytes(usize),
}

/// Who did something, where and when: what lines of all kinds have.
pub(in crate::memory) struct EventOrigin<'a> {
    /// When it was done.
    pub time: Time,
    /// Name path of the branch; the last one if it has ended, and empty if that is not kept any more.
    pub branch: &'a str,
    /// Its agent; empty for none.
    pub agent: &'a str,
    /// Uid of who did it.
    pub uid: u32,
}

impl<'a> EventSubject<'a> {
    /// What was written to a signal. If not everybody may read it, its length alone.
    pub fn signal(key: &'a str, signal: &'a Signal) -> EventSubject<'a> {
        let shows = signal.mode & READABLE_BY_ALL != 0 && signal.value.len() <= SHOWN_BYTES_MAX;
        let text = std::str::from_utf8(&signal.value).ok().filter(|_| shows);
        EventSubject::Signal { key, value: text.map_or(EventValue::Bytes(signal.value.len()), EventValue::Value) }
    }

    fn entry(entry_id: u64, text: &'a str) -> EventSubject<'a> {
        let text = if text.len() <= SHOWN_BYTES_MAX { EventValue::Text(text) } else { EventValue::Bytes(text.len()) };
        EventSubject::Entry { entry_id, text }
    }
}

impl EventLines {
    fn end(&self) -> u64 {
        self.dropped_bytes + self.bytes.len() as u64
    }

    fn push(&mut self, event: &str, origin: &EventOrigin<'_>, about: EventSubject<'_>) {
        self.seq += 1;
        let EventOrigin { time, branch, agent, uid } = *origin;
        let line = EventLine { seq: self.seq, time: time.to_string(), event, branch, agent, uid, about };
        let mut bytes = serde_json::to_vec(&line).expect("writing to memory does not fail");
        bytes.push(b'\n');
        // Room first: afterwards the line that was just added could be among those that go.
        self.drop_oldest(bytes.len());
        self.bytes.extend(&bytes);
    }

    /// Has the oldest lines go where there is no more room: that of all, or that of the owner.
    fn drop_oldest(&mut self, more: usize) {
        let wanted = (self.bytes.len() + more).next_multiple_of(RESERVATION_STEP_BYTES);
        let counts = wanted as u64 <= self.reservation.bytes();
        if wanted > BYTES_MAX || !(counts || self.reservation.resize(wanted as u64).is_ok()) {
            // More than is needed, so that not every line moves the buffer once it is full.
            let least = (self.bytes.len() / DROPPED_ONE_IN).max(more).min(self.bytes.len());
            let line_end = self.bytes.range(least..).position(|byte| *byte == b'\n');
            let dropped = line_end.map_or(self.bytes.len(), |end| least + end + 1);
            self.bytes.drain(..dropped);
            self.dropped_bytes += dropped as u64;
        }
    }
}

impl SharedEvents {
    fn event_lines(&self, budget: &Arc<MemoryBudget>, owner: LogOwner) -> Arc<Mutex<EventLines>> {
        let make = || {
            let reservation = budget.empty_reservation(owner.uid);
            Arc::new(Mutex::new(EventLines { bytes: VecDeque::new(), dropped_bytes: 0, seq: 0, reservation }))
        };
        self.0.lock().entry(owner.branch).or_insert_with(make).clone()
    }

    /// Drops the events that a log has so far; their offsets are not used again.
    pub fn drop_lines(&self, owner: BranchId) {
        let Some(lines) = self.0.lock().get(&owner).cloned() else { return };
        let mut lines = lines.lock();
        // Offsets go on, so that a reader who is behind is told that lines were dropped, and is not given others in
        // their place.
        lines.dropped_bytes = lines.end();
        lines.bytes = VecDeque::new();
        // Giving back is never refused.
        let _ = lines.reservation.resize(0);
    }

    /// Forgets the events of a branch that has ended, and what they took of its owner's share.
    pub fn forget(&self, owner: BranchId) {
        self.0.lock().remove(&owner);
    }
}

/// Which events a reader of them can see: from the first to the end, in bytes since the store was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRange {
    /// Byte offset of the first event that is kept; earlier ones were dropped.
    pub start: u64,
    /// Byte offset of the next event to come.
    pub end: u64,
}

impl Memory {
    fn event_lines(&self, owner: LogOwner) -> Arc<Mutex<EventLines>> {
        self.events.event_lines(&self.admission.budget, owner)
    }

    fn branch_event_lines(&self, branch: BranchId) -> Result<Arc<Mutex<EventLines>>, Error> {
        let owner = {
            let catalog = self.catalog();
            let owner = catalog.log_owner(catalog.branch(branch)?)?;
            LogOwner::from_branch(owner)
        };
        Ok(self.event_lines(owner))
    }

    /// Returns the range of events that a branch's shared log has, as byte offsets. At most 8 MiB are kept: older
    /// events are dropped. Fails with `Gone` if the branch has ended.
    pub fn shared_events(&self, branch: BranchId) -> Result<EventRange, Error> {
        let lines = self.branch_event_lines(branch)?;
        let lines = lines.lock();
        Ok(EventRange { start: lines.dropped_bytes, end: lines.end() })
    }

    /// Reads up to `size` bytes of the events of a branch's shared log, from byte `offset` on; fewer only at the end.
    ///
    /// Kind `Gone` if they were dropped since, or the branch has ended.
    pub fn read_shared_events(&self, branch: BranchId, offset: u64, size: usize) -> Result<Vec<u8>, Error> {
        let lines = self.branch_event_lines(branch)?;
        let lines = lines.lock();
        let from = offset
            .checked_sub(lines.dropped_bytes)
            .ok_or(SignalError::EventsDropped(lines.dropped_bytes.abs_diff(offset)))?;
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(lines.bytes.len());
        let to = from.saturating_add(size).min(lines.bytes.len());
        Ok(lines.bytes.range(from..to).copied().collect())
    }

    /// Notes an event of a shared log; the writer's lock is held.
    pub(in crate::memory) fn note_event(
        &self,
        owner: LogOwner,
        event: &str,
        origin: &EventOrigin<'_>,
        about: EventSubject<'_>,
    ) {
        self.event_lines(owner).lock().push(event, origin, about);
    }

    /// Notes that signals of a log ended with the session of the branch at a path; the writer's lock is held.
    fn note_ended_signals(&self, owner: LogOwner, before: &Signals, path: &str, time: Time) {
        let catalog = self.catalog().clone();
        // Asked after the swap of the catalog: what was there before and is not there now has ended.
        let Some(after) = catalog.branches.get(&owner.branch) else { return };
        for (key, signal) in before.iter().filter(|(key, _)| !after.signals.contains_key(&**key)) {
            let Publisher { agent, uid, .. } = &signal.publisher;
            let origin = EventOrigin { time, branch: path, agent, uid: *uid };
            self.note_event(owner, "cleared", &origin, EventSubject::Ended { key, reason: "session" });
        }
    }

    /// Returns what is to be known before a command of those who share its log, if it is anything to them.
    pub(in crate::memory) fn shared_event_context(&self, command: &dyn Command) -> Option<SharedEventContext> {
        let catalog = self.catalog();
        let event_context = |branch: BranchId, is_announced: &dyn Fn(&Branch, &Branch) -> bool| {
            let branch = catalog.branch(branch).ok()?;
            let owner = catalog.log_owner(branch).ok()?;
            let (path, is_announced) = (branch.path.clone(), is_announced(branch, owner));
            Some(SharedEventContext {
                owner: LogOwner::from_branch(owner),
                path,
                is_announced,
                signals: owner.signals.clone(),
            })
        };
        match command.shared_event()? {
            SharedEvent::Appended(via, _) => event_context(via, &|_, _| true),
            // A log of the child's own ends with the merge, of which those are told who share the parent's log.
            SharedEvent::Merged(child, _) => {
                let parent = catalog.branch(child).ok()?.parent?;
                let context = event_context(parent, &|parent, owner| parent.id == owner.id)?;
                Some(SharedEventContext { path: catalog.branch(child).ok()?.path.clone(), ..context })
            }
            SharedEvent::Changed(branch) => event_context(branch, &|_, _| false),
        }
    }

    /// Notes what a command did that was just carried out, for those who share a log; the writer's lock is held.
    pub(in crate::memory) fn note_shared_events(
        &self,
        SharedEventContext { owner, path, is_announced, signals }: &SharedEventContext,
        command: &dyn Command,
        entry: &SignedEntry,
    ) {
        let (signed, counts) = (&entry.entry, entry.entry.counts);
        let by = EventOrigin { time: signed.time, branch: path, agent: &signed.agent, uid: signed.uid };
        let event = command.shared_event();
        match event {
            Some(SharedEvent::Appended(_, changes)) => {
                for change in changes {
                    if let RecordChange::Put { id, content, .. } = change
                        && let Some(number) = log_entry_number(id)
                    {
                        let text = content.text.as_deref().unwrap_or_default();
                        self.note_event(*owner, "log", &by, EventSubject::entry(number, text));
                    }
                }
            }
            Some(SharedEvent::Merged(_, event)) if *is_announced => {
                let (put, deleted, files) = (counts.put, counts.deleted, counts.files);
                // After the entry is in the journal and the catalog swapped: no follower hears of a merge that did not
                // happen.
                self.note_event(*owner, event, &by, EventSubject::Merge { entry: signed.seq, put, deleted, files });
            }
            _ => {}
        }
        if !matches!(event, Some(SharedEvent::Appended(..))) && !signals.is_empty() {
            self.note_ended_signals(*owner, signals, path, signed.time);
        }
    }
}

/// The branch whose shared log it is, and the user in whose share its events count.
#[derive(Clone, Copy)]
pub(in crate::memory) struct LogOwner {
    branch: BranchId,
    uid: u32,
}

impl LogOwner {
    /// Takes a branch that has a log of its own; whether it has is not checked.
    pub fn from_branch(branch: &Branch) -> LogOwner {
        LogOwner { branch: branch.id, uid: branch.uid }
    }
}

/// What was so before a command that those who share a log hear of.
pub(in crate::memory) struct SharedEventContext {
    owner: LogOwner,
    /// Name path of the branch that does something, which a merge or discard ends.
    path: Arc<str>,
    /// Whether they hear of the command itself.
    is_announced: bool,
    signals: Signals,
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::memory::catalog::signals::SignalLifetime;
    use crate::memory::{Actor, Environment, MergeVerb, OpenMode, RecordEdit, RecordInput};

    fn lines(share: u64) -> EventLines {
        let budget = Arc::new(MemoryBudget::default());
        budget.limit(share, share);
        EventLines { bytes: VecDeque::new(), dropped_bytes: 0, seq: 0, reservation: budget.empty_reservation(7) }
    }

    fn push(lines: &mut EventLines, key: &str) {
        let origin = EventOrigin { time: Time(0), branch: "main", agent: "ann", uid: 7 };
        lines.push("claimed", &origin, EventSubject::Key { key });
    }

    fn kept(lines: &EventLines) -> Vec<u64> {
        let bytes: Vec<u8> = lines.bytes.iter().copied().collect();
        let seq = |line: &[u8]| serde_json::from_slice::<serde_json::Value>(line).unwrap()["seq"].as_u64().unwrap();
        bytes.split_inclusive(|byte| *byte == b'\n').map(seq).collect()
    }

    #[test]
    fn the_oldest_lines_go_whole_where_there_is_no_more_room() {
        assert_eq!(BYTES_MAX, 8 << 20);
        for share in [u64::MAX, 300 << 10] {
            let mut lines = lines(share);
            let (mut all, most) = (0, BYTES_MAX.min(share as usize));
            for number in 0..100_000 {
                let before = lines.end();
                push(&mut lines, &format!("key:{number}"));
                all += lines.end() - before;
                assert!(lines.bytes.len() <= most);
            }
            let kept = kept(&lines);
            assert_eq!(lines.end(), all, "offsets go on");
            assert_eq!((kept[0]..=100_000).collect::<Vec<_>>(), kept, "the newest stay, without gaps");
            assert!(lines.bytes.len() > most / 2);
        }
    }

    #[test]
    fn lines_that_are_dropped_count_for_nobody() {
        let (budget, events) = (Arc::new(MemoryBudget::default()), SharedEvents::default());
        let owner = LogOwner { branch: BranchId(3), uid: 7 };
        push(&mut events.event_lines(&budget, owner).lock(), "key");
        assert!(budget.held_bytes() > 0);
        events.drop_lines(owner.branch);
        assert_eq!(budget.held_bytes(), 0);
        push(&mut events.event_lines(&budget, owner).lock(), "key");
        assert!(budget.held_bytes() > 0, "what comes later counts again");
    }

    #[test]
    fn a_value_is_shown_that_is_short_and_for_everybody() {
        assert_eq!(SHOWN_BYTES_MAX, 4_096);
        for (mode, length, shows) in [
            (0o644, SHOWN_BYTES_MAX, true),
            (0o644, SHOWN_BYTES_MAX + 1, false),
            (0o640, 1, false),
            (0o640, SHOWN_BYTES_MAX + 1, false),
        ] {
            let signal = Signal {
                value: vec![b'x'; length].into(),
                owner: 7,
                mode,
                created: Time(1),
                written: Time(1),
                publisher: Publisher { uid: 7, agent: "".into(), session: "".into(), branch: BranchId(1) },
                lifetime: SignalLifetime::Unlimited,
                ends_with_session: false,
            };
            let about = serde_json::to_value(EventSubject::signal("k", &signal)).unwrap();
            assert_eq!(
                (about.get("value").is_some(), about.get("bytes").is_some()),
                (shows, !shows),
                "{mode:o} {length}"
            );
        }
    }

    #[test]
    fn a_merge_is_an_event_of_the_parents_log_with_the_path_of_the_child() {
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let disk = Arc::new(ForgetfulDisk::new());
        let memory = Memory::open_on(disk, OpenMode::Create, None, Environment::real(who.clone())).unwrap();
        let main = memory.root("main").unwrap();
        let child = memory.fork(&who, main, "child", None).unwrap();
        let input = RecordInput { vector: None, text: Some("x".into()), metadata: "{}".into() };
        memory.commit(&who, child, vec![RecordEdit::Put { id: "a".into(), input }]).unwrap();
        let start = memory.shared_events(main).unwrap().end;
        let path = memory.catalog().branch(child).unwrap().path.clone();
        memory.merge(&who, child, MergeVerb::Merge, false).unwrap();
        let line = memory.read_shared_events(main, start, usize::MAX).unwrap();
        let line: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!((&line["event"], &line["branch"], &line["put"]), (&"merge".into(), &(&*path).into(), &1.into()));
    }
}
