//! Writing signals, and removing them: a frame of the journal with a keyed hash, and no entry.

use std::sync::Arc;

use super::files::split_mac;
use super::shared_events::{EventOrigin, EventSubject, LogOwner};
use super::transact::LogTail;
use crate::journal::FrameKind;
use crate::memory::admission::disk_room::disk_cost_bytes;
use crate::memory::catalog::settings::{Setting, parse_duration_nanos};
use crate::memory::catalog::signals::{
    LEASE_LIFETIME, Publisher, SESSION_SCOPE, SIGNAL_BYTES_MAX, Signal, SignalChange, SignalId, SignalLifetime,
    check_signal_key, key_agent,
};
use crate::memory::catalog::{Branch, BranchId, Catalog};
use crate::memory::command::log_record::COMMAND_BYTES;
use crate::memory::command::prepared::labels;
use crate::memory::{Actor, BranchEvent, Error, Memory, SignalError};
use crate::object::{CodecError, Reader, Time, Writer};
use crate::sync::allow_waiting;

/// [`BranchEvent::op`] where signals changed; the branch is the one whose shared log they belong to.
const SIGNALS_CHANGED: &str = "signal";
/// Permission bits that a signal can have; others are cut off.
const MODE_BITS: u32 = 0o777;

/// One change of a signal, with the line that `events` gets once the frame is written.
struct PlannedChange {
    change: SignalChange,
    event: SignalEvent,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SignalEvent {
    Claimed,
    Written,
    Cleared(&'static str),
    /// Its attributes are others, of which no line tells.
    None,
}

impl SignalEvent {
    fn name(self) -> Option<&'static str> {
        match self {
            SignalEvent::Claimed => Some("claimed"),
            SignalEvent::Written => Some("signal"),
            SignalEvent::Cleared(_) => Some("cleared"),
            SignalEvent::None => None,
        }
    }
}

/// What a change of signals is planned on; the writer's lock is held.
struct SignalContext<'a> {
    memory: &'a Memory,
    catalog: &'a Catalog,
    who: &'a Actor,
    /// The branch through which it is done, whose settings and agent count.
    via: &'a Branch,
    /// The branch whose shared log the signals belong to.
    owner: &'a Branch,
    time: Time,
}

impl SignalContext<'_> {
    /// Returns a signal that has not ended; one that has may not be removed yet.
    fn find_live(&self, key: &str) -> Option<&Arc<Signal>> {
        self.owner.signals.get(key).filter(|signal| self.memory.is_live(signal, self.time))
    }

    /// Returns a signal that has ended and was not removed yet. Whoever gives its key away tells its end before.
    fn find_ended(&self, key: &str) -> Option<&Arc<Signal>> {
        self.owner.signals.get(key).filter(|signal| !self.memory.is_live(signal, self.time))
    }

    /// Returns the signal that was made at a time, where it has not ended.
    fn find_opened(&self, key: &str, created: Time) -> Result<&Signal, SignalError> {
        // The time of its making tells a signal from a later one of the same key, which is not what the handle was
        // opened on.
        let signal = self.find_live(key).filter(|signal| signal.created == created);
        Ok(&**signal.ok_or_else(|| SignalError::Ended(key.to_owned()))?)
    }

    /// Refuses all but the branch's owner and root, and for keys of an agent all but that agent's branches and root.
    fn check_permission(&self, key: &str) -> Result<(), SignalError> {
        let uid = self.who.uid;
        if uid != 0 && uid != self.via.uid {
            return Err(SignalError::NotOwner { uid, path: self.via.path.to_string() });
        }
        let [agent, ..] = labels(self.catalog, self.via, self.via.uid);
        match key_agent(key).filter(|name| uid != 0 && *name != &*agent) {
            Some(name) => {
                Err(SignalError::OtherAgent { key: key.to_owned(), agent: name.to_owned(), other: agent.to_string() })
            }
            None => Ok(()),
        }
    }

    fn publisher(&self) -> Publisher {
        let [agent, session, _] = labels(self.catalog, self.via, self.who.uid);
        Publisher { uid: self.who.uid, agent, session, branch: self.via.id }
    }

    /// Returns how long a signal lasts that is written through a branch, as that says.
    fn lifetime(&self, text: &str) -> Result<SignalLifetime, SignalError> {
        match text {
            "" => Ok(SignalLifetime::Unlimited),
            LEASE_LIFETIME => {
                let since = self.memory.leases.held_since(self.via.id);
                let since = since.ok_or_else(|| SignalError::NoLease(self.via.path.to_string()))?;
                Ok(SignalLifetime::Lease(since))
            }
            text => {
                let nanos = parse_duration_nanos(text).ok().filter(|nanos| *nanos > 0);
                nanos
                    .map(SignalLifetime::Nanos)
                    .ok_or_else(|| SignalError::BadLifetime(text.chars().take(80).collect()))
            }
        }
    }

    /// Returns a signal as this caller writes it now, in place of what it was.
    fn republish(&self, signal: &Signal) -> Result<Signal, SignalError> {
        let (publisher, mut signal) = (self.publisher(), signal.clone());
        // How long it lasts is a setting of the branch that writes it, so another branch brings its own.
        if signal.publisher.branch != publisher.branch {
            signal.lifetime = self.lifetime(self.via.settings.get(Setting::SignalTtl))?;
            signal.ends_with_session = self.ends_with_session();
        }
        Ok(Signal { publisher, written: self.time, ..signal })
    }

    fn ends_with_session(&self) -> bool {
        &**self.via.settings.get(Setting::SignalScope) == SESSION_SCOPE
    }

    fn claim(&self, key: &Arc<str>, mode: u32) -> Result<Signal, SignalError> {
        check_signal_key(key)?;
        if self.find_live(key).is_some() {
            return Err(SignalError::Exists(key.to_string()));
        }
        Ok(Signal {
            value: Arc::default(),
            owner: self.who.uid,
            mode: mode & MODE_BITS,
            created: self.time,
            written: self.time,
            publisher: self.publisher(),
            lifetime: self.lifetime(self.via.settings.get(Setting::SignalTtl))?,
            ends_with_session: self.ends_with_session(),
        })
    }
}

fn plan_set(key: &Arc<str>, signal: Signal, event: SignalEvent) -> PlannedChange {
    PlannedChange { change: SignalChange::Set(key.clone(), Arc::new(signal)), event }
}

fn plan_remove(key: &Arc<str>, reason: &'static str) -> PlannedChange {
    PlannedChange { change: SignalChange::Remove(key.clone()), event: SignalEvent::Cleared(reason) }
}

impl Memory {
    /// Makes an empty signal through the branch `via`, unless the key has one: only one caller can claim a key. Of
    /// `mode` the nine permission bits count.
    ///
    /// Kind `Exists` if there is one, `Denied` if the caller does not own the branch, `NotPermitted` if the key belongs
    /// to another agent. Kind `Invalid` if the key is not valid, or the signal shall last as long as a lease that the
    /// branch does not have.
    pub fn claim_signal(&self, who: &Actor, via: BranchId, key: &Arc<str>, mode: u32) -> Result<Arc<Signal>, Error> {
        let mut made = None;
        self.change_signals(who, via, key.len(), |context| {
            context.check_permission(key)?;
            let claimed = context.claim(key, mode)?;
            made = Some(Arc::new(claimed.clone()));
            let ended = context.find_ended(key).map(|ended| plan_remove(key, end_reason(ended)));
            Ok(ended.into_iter().chain([plan_set(key, claimed, SignalEvent::Claimed)]).collect())
        })?;
        made.ok_or(Error::Internal("a claim of a signal"))
    }

    /// Writes the value of a signal, up to [`SIGNAL_BYTES_MAX`] bytes, and renews its lifetime.
    ///
    /// Kind `Gone` if the signal has ended, `TooLarge` for a longer value, `Denied` if the caller does not own the
    /// branch, `NotPermitted` if the key belongs to another agent. Kind `Invalid` if it shall last as long as a lease
    /// that the branch does not have.
    pub fn write_signal(
        &self,
        who: &Actor,
        via: BranchId,
        SignalId { key, created }: SignalId<'_>,
        value: &[u8],
    ) -> Result<(), Error> {
        if value.len() > SIGNAL_BYTES_MAX {
            return Err(SignalError::TooLong(value.len() as u64).into());
        }
        self.change_signals(who, via, key.len() + value.len(), |context| {
            context.check_permission(key)?;
            let signal = context.republish(context.find_opened(key, created)?)?;
            Ok(vec![plan_set(key, Signal { value: value.into(), ..signal }, SignalEvent::Written)])
        })
    }

    /// Sets the permission bits of a signal: the lower nine of `mode`.
    ///
    /// Kind `Gone` if the signal has ended, `Denied` if the caller does not own the branch, `NotPermitted` if the key
    /// belongs to another agent.
    pub fn set_signal_mode(
        &self,
        who: &Actor,
        via: BranchId,
        SignalId { key, created }: SignalId<'_>,
        mode: u32,
    ) -> Result<(), Error> {
        self.change_signals(who, via, SIGNAL_BYTES_MAX, |context| {
            context.check_permission(key)?;
            let signal = Signal { mode: mode & MODE_BITS, ..context.find_opened(key, created)?.clone() };
            Ok(vec![plan_set(key, signal, SignalEvent::None)])
        })
    }

    /// Sets how long a signal lasts from now on: a duration such as `10m`, `lease`, or an empty text for no limit.
    ///
    /// Kind `Gone` if the signal has ended, `Denied` if the caller does not own the branch, `NotPermitted` if the key
    /// belongs to another agent. Kind `Invalid` for any other text, and for `lease` if the branch has none.
    pub fn set_signal_lifetime(
        &self,
        who: &Actor,
        via: BranchId,
        SignalId { key, created }: SignalId<'_>,
        lifetime: &str,
    ) -> Result<(), Error> {
        self.change_signals(who, via, SIGNAL_BYTES_MAX, |context| {
            context.check_permission(key)?;
            let signal = context.republish(context.find_opened(key, created)?)?;
            let signal = Signal { lifetime: context.lifetime(lifetime)?, ..signal };
            Ok(vec![plan_set(key, signal, SignalEvent::None)])
        })
    }

    /// Adds a signal of another store to the shared log that the branch `owner` owns. Returns whether it was added; one
    /// that has ended already is not. A time of writing in the future counts as now.
    ///
    /// Kind `Exists` if the key has a signal, `TooLarge` for a value over [`SIGNAL_BYTES_MAX`].
    pub fn import_signal(&self, who: &Actor, owner: BranchId, key: &Arc<str>, signal: &Signal) -> Result<bool, Error> {
        check_signal_key(key)?;
        if signal.value.len() > SIGNAL_BYTES_MAX {
            return Err(SignalError::TooLong(signal.value.len() as u64).into());
        }
        let mut is_live = false;
        self.change_signals(who, owner, key.len() + signal.value.len(), |context| {
            if context.owner.signals.contains_key(key) {
                return Err(SignalError::Exists(key.to_string()));
            }
            let (created, written) = (signal.created.min(context.time), signal.written.min(context.time));
            let signal = Signal { created, written, mode: signal.mode & MODE_BITS, ..signal.clone() };
            is_live = self.is_live(&signal, context.time);
            Ok(if is_live { vec![plan_set(key, signal, SignalEvent::None)] } else { Vec::new() })
        })?;
        Ok(is_live)
    }

    /// Removes a signal. Kind `NotFound` if there is none, `Denied` if the caller does not own the branch,
    /// `NotPermitted` if the key belongs to another agent, `Gone` if the branch has ended.
    pub fn remove_signal(&self, who: &Actor, via: BranchId, key: &Arc<str>) -> Result<(), Error> {
        self.change_signals(who, via, 0, |context| {
            context.check_permission(key)?;
            context.find_live(key).ok_or_else(|| SignalError::Missing(key.to_string()))?;
            Ok(vec![plan_remove(key, "removed")])
        })
    }

    /// Removes a signal, whichever agent's its key is, for its owner, the owner of the branch whose log it belongs to,
    /// or root. Kind `NotFound` if there is none, `Denied` for anybody else.
    pub(in crate::memory) fn purge_signal(&self, who: &Actor, via: BranchId, key: &Arc<str>) -> Result<(), Error> {
        self.change_signals(who, via, 0, |context| {
            let signal = context.find_live(key).ok_or_else(|| SignalError::Missing(key.to_string()))?;
            // Another signal may have got the key since the caller looked.
            if !signal.can_be_purged_by(context.who.uid, context.owner.uid) {
                let path = context.owner.path.to_string();
                return Err(SignalError::NotOwner { uid: context.who.uid, path });
            }
            Ok(vec![plan_remove(key, "removed")])
        })
    }

    /// Gives a signal another key. With `replace` it takes the place of a signal that has that key.
    ///
    /// Kind `NotFound` if there is no signal, `Exists` if the new key is taken, `Denied` if the caller does not own the
    /// branch, `NotPermitted` if one of the keys belongs to another agent. Kind `Invalid` if the new key is not valid,
    /// or the signal shall last as long as a lease that the branch does not have.
    pub fn rename_signal(
        &self,
        who: &Actor,
        via: BranchId,
        (from, to): (&Arc<str>, &Arc<str>),
        replace: bool,
    ) -> Result<(), Error> {
        check_signal_key(to)?;
        self.change_signals(who, via, SIGNAL_BYTES_MAX, |context| {
            context.check_permission(from)?;
            context.check_permission(to)?;
            let signal = context.find_live(from).ok_or_else(|| SignalError::Missing(from.to_string()))?;
            if context.find_live(to).is_some() && !replace {
                return Err(SignalError::Exists(to.to_string()));
            }
            let renamed = Signal { created: context.time, ..context.republish(signal)? };
            if from == to {
                return Ok(Vec::new());
            }
            let ended = context.find_ended(to).map(|ended| plan_remove(to, end_reason(ended)));
            let moved = [plan_remove(from, "renamed"), plan_set(to, renamed, SignalEvent::Written)];
            Ok(ended.into_iter().chain(moved).collect())
        })
    }

    /// Removes signals that have ended by themselves; returns when the next one ends. The first error ends it and is
    /// returned, signals removed until then stay removed; a branch that has ended meanwhile is passed over.
    pub(in crate::memory) fn expire_signals(&self) -> Result<Option<Time>, Error> {
        let catalog = self.catalog().clone();
        let now = self.now();
        let mut next: Option<Time> = None;
        for owner in catalog.branches.values().filter(|branch| !branch.signals.is_empty()) {
            let is_over = |signal: &Arc<Signal>| !self.is_live(signal, now);
            let ends =
                owner.signals.values().filter(|signal| !is_over(signal)).filter_map(|signal| signal.expires_at());
            next = ends.chain(next).min();
            if owner.signals.values().any(is_over) {
                self.expire_branch_signals(owner)?;
            }
        }
        Ok(next)
    }

    fn expire_branch_signals(&self, owner: &Branch) -> Result<(), Error> {
        let who = Actor { uid: owner.uid, gid: 0, name: self.catalog().user(owner.uid) };
        let swept = self.change_signals(&who, owner.id, 0, |context| {
            let over = context.owner.signals.iter().filter(|(_, signal)| !self.is_live(signal, context.time));
            Ok(over.map(|(key, signal)| plan_remove(key, end_reason(signal))).collect())
        });
        match swept {
            // The signal or its branch is gone already.
            Err(Error::Gone) => Ok(()),
            swept => swept,
        }
    }

    /// Returns whether a signal has not ended at `now`; one with a lease lives as long as that very lease is held.
    pub(in crate::memory) fn is_live(&self, signal: &Signal, now: Time) -> bool {
        match signal.lifetime {
            SignalLifetime::Lease(since) => self.leases.held_since(signal.publisher.branch) == Some(since),
            _ => signal.expires_at().is_none_or(|end| now < end),
        }
    }

    /// Plans changes of signals under the writer's lock, and does them; `bytes` is about what they take.
    fn change_signals(
        &self,
        who: &Actor,
        via: BranchId,
        bytes: usize,
        plan: impl FnOnce(&SignalContext<'_>) -> Result<Vec<PlannedChange>, SignalError>,
    ) -> Result<(), Error> {
        // Removing signals frees room, so a full disk must not refuse it.
        let frees_room = bytes == 0;
        let _room = match frees_room {
            true => self.ensure_room_to_free().map(|()| None)?,
            false => Some(self.reserve_room(disk_cost_bytes(bytes as u64, 0))?),
        };
        let owner = {
            let mut writer = self.writer_for(who, &[])?;
            let journal = writer.writable()?;
            let time = self.next_time(&mut writer)?;
            let catalog = self.catalog().clone();
            let via = catalog.branch(via)?;
            let owner = catalog.log_owner(via)?;
            let planned = plan(&SignalContext { memory: self, catalog: &catalog, who, via, owner, time })?;
            if planned.is_empty() {
                return Ok(());
            }
            let changes: Vec<SignalChange> = planned.iter().map(|planned| planned.change.clone()).collect();
            // The last check before the frame, as what a frame says has happened.
            self.admit_signals(&catalog, owner, &changes)?;
            let bytes = encode_changes(owner.id, time, &changes);
            let code = writer.frame_mac(FrameKind::Signals, &[&bytes]);
            allow_waiting();
            self.append(&journal, FrameKind::Signals, &[&code.0, &bytes], frees_room)?;
            // Both move only once the frame is written; a later operation is bound to this code and has to be later.
            (writer.link, writer.time) = (code, time);
            writer.unsealed_bytes += bytes.len() as u64 + COMMAND_BYTES;
            self.catalog.write().change_signals(owner.id, &changes);
            for planned in &planned {
                self.note_signal_event((owner, via), who, time, planned);
            }
            if let Some(end) = changes.iter().filter_map(end_time).min() {
                self.maintenance.signal_expiry.wake_at(end);
            }
            owner.id
        };
        self.notify(BranchEvent::for_root(owner, SIGNALS_CHANGED));
        Ok(())
    }

    fn note_signal_event(&self, (owner, via): (&Branch, &Branch), who: &Actor, time: Time, planned: &PlannedChange) {
        let Some(name) = planned.event.name() else { return };
        let key = planned.change.key();
        // `owner` is of the catalog before the change, which alone knows the signal that went.
        let before = owner.signals.get(key);
        let (about, publisher) = match (&planned.change, planned.event) {
            (SignalChange::Set(key, signal), SignalEvent::Written) => {
                (EventSubject::signal(key, signal), &signal.publisher)
            }
            (SignalChange::Set(key, signal), _) => (EventSubject::Key { key }, &signal.publisher),
            (SignalChange::Remove(key), SignalEvent::Cleared(reason)) => {
                let Some(before) = before else { return };
                (EventSubject::Ended { key, reason }, &before.publisher)
            }
            (SignalChange::Remove(_), _) => return,
        };
        let catalog = self.catalog();
        // Whoever removes a signal is named; one that ended by itself is told in the name of who wrote it.
        let is_removed = matches!(planned.event, SignalEvent::Cleared("removed" | "renamed"));
        let (branch, uid) = if is_removed { (via.id, who.uid) } else { (publisher.branch, publisher.uid) };
        let agent = if is_removed { labels(&catalog, via, who.uid)[0].clone() } else { publisher.agent.clone() };
        let path: Arc<str> = catalog.last_path(branch).unwrap_or_default().into();
        drop(catalog);
        self.note_event(
            LogOwner::from_branch(owner),
            name,
            &EventOrigin { time, branch: &path, agent: &agent, uid },
            about,
        );
    }
}

/// Returns why a signal has ended by itself, in the word of its event: `lease` or `expired`.
fn end_reason(signal: &Signal) -> &'static str {
    match signal.lifetime {
        SignalLifetime::Lease(_) => "lease",
        _ => "expired",
    }
}

fn end_time(change: &SignalChange) -> Option<Time> {
    match change {
        SignalChange::Set(_, signal) => signal.expires_at(),
        SignalChange::Remove(_) => None,
    }
}

fn encode_changes(owner: BranchId, time: Time, changes: &[SignalChange]) -> Vec<u8> {
    let mut out = Writer::new();
    out.number(owner.0).signed(time.0).number(changes.len() as u64);
    changes.iter().for_each(|change| change.write(&mut out));
    out.finish()
}

impl LogTail {
    /// Changes signals as the journal says. Kind `Damaged` if the code does not follow from the frames before, or the
    /// bytes can't be read.
    pub(in crate::memory) fn replay_signals(&mut self, catalog: &mut Catalog, bytes: &[u8]) -> Result<(), Error> {
        let damaged = |what: String| Error::damaged(format!("signals in the journal {what}"));
        let (code, bytes) = split_mac(bytes).ok_or_else(|| damaged("have no code".to_owned()))?;
        self.verify_and_advance(FrameKind::Signals, &code, &[bytes])?;
        let mut input = Reader::new(bytes);
        let mut read = || {
            let (owner, time) = (BranchId(input.number()?), Time(input.signed()?));
            let changes =
                (0..input.length()?).map(|_| SignalChange::read(&mut input)).collect::<Result<Vec<_>, _>>()?;
            Ok::<_, CodecError>((owner, time, changes))
        };
        let (owner, time, changes) = read().map_err(|error| damaged(format!("can't be read: {error}")))?;
        self.unsealed_bytes += bytes.len() as u64 + COMMAND_BYTES;
        // Signals have no entry, and yet the next entry must be later than the last thing that happened.
        self.time = self.time.max(time);
        catalog.change_signals(owner, &changes);
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
