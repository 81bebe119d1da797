//! Signals: small values by key, which all branches that have one shared log have in common.
//!
//! They belong to the branch whose log it is, are in no head and no entry, and end by themselves: after a time, with the lease
//! or with the session of who published them.

use std::sync::Arc;

use imbl::OrdMap;

use super::{Branch, BranchId, Catalog};
use crate::memory::SignalError;
use crate::object::{CodecError, Reader, Time, Writer};

/// Bytes of the longest value; more is refused with `SignalError::TooLong`.
pub const SIGNAL_BYTES_MAX: usize = 64 << 10;
/// Bytes of the longest key, which is a file name in `shared/signals/`.
const KEY_BYTES_MAX: usize = 200;
/// Bytes that a signal is taken to need in memory beside its value.
const SIGNAL_OVERHEAD_BYTES: u64 = 512;

/// The value of `config/signal_ttl` and of the attribute by which a signal lasts as long as its writer's lease.
pub const LEASE_LIFETIME: &str = "lease";
/// The value of `config/signal_scope` by which a signal ends with its writer's session.
pub const SESSION_SCOPE: &str = "session";

/// The signals of a shared log by key, those that have ended and were not removed yet among them.
pub type Signals = OrdMap<Arc<str>, Arc<Signal>>;

/// Identifies a signal by its key and the time of its claim. A key that is claimed anew has another id.
#[derive(Clone, Copy, Debug)]
pub struct SignalId<'a> {
    /// The key, which is the name of its file.
    pub key: &'a Arc<str>,
    /// When the key was claimed, as in [`Signal::created`]; no two signals of a key have the same.
    pub created: Time,
}

/// One signal: the value of a key, which all branches with one shared log see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signal {
    /// The value: up to 64 KiB, empty until the first write.
    pub value: Arc<[u8]>,
    /// The uid of its owner, in whose share of memory it counts.
    pub owner: u32,
    /// Permission bits, the lower 9, as chmod(2) sets them.
    pub mode: u32,
    /// When its key was claimed. A later signal with the same key has another time.
    pub created: Time,
    /// When it was last written; its lifetime counts from here.
    pub written: Time,
    /// Who wrote it last. It may end with their lease or session.
    pub publisher: Publisher,
    /// How long it lasts; a write through another branch sets it anew.
    pub lifetime: SignalLifetime,
    /// Whether it ends when its publisher's session does.
    pub ends_with_session: bool,
}

/// Who wrote a signal last, through which branch: its end may depend on that branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publisher {
    /// The writer's uid, which may differ from the owner's.
    pub uid: u32,
    /// The name of the branch's agent at that time.
    pub agent: Arc<str>,
    /// The session of that branch; empty for none.
    pub session: Arc<str>,
    /// The branch through which it was written.
    pub branch: BranchId,
}

/// How long a signal lasts; [`SignalLifetime::Unlimited`] unless `config/signal_ttl` says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalLifetime {
    /// Until somebody removes it.
    Unlimited,
    /// This many nanoseconds after its last write, at least 1.
    Nanos(i64),
    /// While the lease is held that the publisher's branch took at that time. Leases end when the store is closed.
    Lease(Time),
}

/// A change of a signal, as the journal has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignalChange {
    /// The key has this signal from now on, in place of any other.
    Set(Arc<str>, Arc<Signal>),
    /// The key has no signal any more, and is free to be claimed.
    Remove(Arc<str>),
}

impl Signal {
    /// Returns whether a user may purge it: its owner, the owner of the branch that owns the shared log, and root.
    pub fn can_be_purged_by(&self, uid: u32, log_owner: u32) -> bool {
        [0, self.owner, log_owner].contains(&uid)
    }

    /// Returns when its lifetime in nanoseconds ends; `None` for an unlimited one, and for a lease.
    pub fn expires_at(&self) -> Option<Time> {
        match self.lifetime {
            SignalLifetime::Nanos(nanos) => Some(self.written.plus_nanos(nanos)),
            SignalLifetime::Unlimited | SignalLifetime::Lease(_) => None,
        }
    }

    /// Returns how many bytes of its owner's share of memory it takes: those of the value, and 512.
    pub fn bytes(&self) -> u64 {
        self.value.len() as u64 + SIGNAL_OVERHEAD_BYTES
    }

    /// Appends the stored form, without the key: value, attributes, publisher, lifetime.
    pub fn write(&self, out: &mut Writer) {
        out.bytes(&self.value).number(u64::from(self.owner)).number(u64::from(self.mode));
        out.signed(self.created.0).signed(self.written.0);
        let Publisher { uid, agent, session, branch } = &self.publisher;
        out.number(u64::from(*uid)).text(agent).text(session).number(branch.0);
        match self.lifetime {
            SignalLifetime::Unlimited => out.byte(0),
            SignalLifetime::Nanos(nanos) => out.byte(1).signed(nanos),
            SignalLifetime::Lease(since) => out.byte(2).signed(since.0),
        };
        out.byte(u8::from(self.ends_with_session));
    }

    /// Reads the stored form. [`CodecError::Code`] for a lifetime that this version does not know,
    /// [`CodecError::Number`] for a uid or a mode of more than 32 bits.
    pub fn read(input: &mut Reader<'_>) -> Result<Signal, CodecError> {
        let small = |number: u64| u32::try_from(number).map_err(|_| CodecError::Number);
        let value = input.bytes()?.into();
        let (owner, mode) = (small(input.number()?)?, small(input.number()?)?);
        let (created, written) = (Time(input.signed()?), Time(input.signed()?));
        let (uid, agent, session) = (small(input.number()?)?, input.text()?.into(), input.text()?.into());
        let publisher = Publisher { uid, agent, session, branch: BranchId(input.number()?) };
        let lifetime = match input.byte()? {
            0 => SignalLifetime::Unlimited,
            1 => SignalLifetime::Nanos(input.signed()?),
            2 => SignalLifetime::Lease(Time(input.signed()?)),
            code => return Err(CodecError::Code(code)),
        };
        let ends_with_session = input.byte()? == 1;
        Ok(Signal { value, owner, mode, created, written, publisher, lifetime, ends_with_session })
    }
}

impl SignalChange {
    /// Returns the key of the signal that is set or removed.
    pub fn key(&self) -> &Arc<str> {
        match self {
            SignalChange::Set(key, _) | SignalChange::Remove(key) => key,
        }
    }

    /// Appends the stored form: 1 for a set signal or 0, the key, and what [`Signal::write`] writes of a set one.
    pub fn write(&self, out: &mut Writer) {
        match self {
            SignalChange::Remove(key) => _ = out.byte(0).text(key),
            SignalChange::Set(key, signal) => signal.write(out.byte(1).text(key)),
        }
    }

    /// Reads the stored form. [`CodecError::Code`] for a change that this version does not know.
    pub fn read(input: &mut Reader<'_>) -> Result<SignalChange, CodecError> {
        let (code, key) = (input.byte()?, input.text()?.into());
        match code {
            0 => Ok(SignalChange::Remove(key)),
            1 => Ok(SignalChange::Set(key, Arc::new(Signal::read(input)?))),
            code => Err(CodecError::Code(code)),
        }
    }
}

/// Checks a key: 1 to 200 bytes out of letters, digits and `_.-:@`. [`SignalError::BadKey`] for any other.
pub fn check_signal_key(key: &str) -> Result<(), SignalError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-:@".contains(&byte);
    if key.is_empty() || key.len() > KEY_BYTES_MAX || !key.bytes().all(is_allowed) || [".", ".."].contains(&key) {
        return Err(SignalError::BadKey(key.chars().take(80).collect()));
    }
    Ok(())
}

/// Returns the agent to whom alone signals with that key belong: `agent:NAME:…`; `None` for any other key. A name may
/// have colons, what is behind it has none.
pub fn key_agent(key: &str) -> Option<&str> {
    key.strip_prefix("agent:")?.rsplit_once(':').map(|(name, _)| name).filter(|name| !name.is_empty())
}

impl Catalog {
    /// Changes signals of `owner`, whose shared log they belong to, and the sums of their owners.
    pub fn change_signals(&mut self, owner: BranchId, changes: &[SignalChange]) {
        for change in changes {
            let mut before = None;
            self.change(owner, |branch| {
                before = match change {
                    SignalChange::Set(key, signal) => branch.signals.insert(key.clone(), signal.clone()),
                    SignalChange::Remove(key) => branch.signals.remove(key),
                };
            });
            if let Some(before) = before {
                self.signal_bytes.replace(before.owner, before.bytes(), 0);
            }
            if let (SignalChange::Set(_, signal), true) = (change, self.branches.contains_key(&owner)) {
                self.signal_bytes.replace(signal.owner, 0, signal.bytes());
            }
        }
    }

    /// Has signals end that end with the session of a branch, or all that a branch has where it has ended itself.
    pub(super) fn end_session(&mut self, branch: &Branch) {
        let Ok(owner) = self.log_owner(branch).map(|owner| owner.id) else { return };
        let Some(signals) = self.branches.get(&owner).map(|owner| owner.signals.clone()) else { return };
        let ends = |signal: &Signal| signal.ends_with_session && signal.publisher.branch == branch.id;
        let ended = signals.iter().filter(|(_, signal)| ends(signal));
        let ended: Vec<_> = ended.map(|(key, _)| SignalChange::Remove(key.clone())).collect();
        self.change_signals(owner, &ended);
    }

    /// Takes the signals of a branch that has ended out of the sums of their owners.
    pub(super) fn uncount_signals(&mut self, ended: &Branch) {
        for signal in ended.signals.values() {
            self.signal_bytes.replace(signal.owner, signal.bytes(), 0);
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn keys_are_names_with_colons_and_say_whose_they_are() {
        for key in ["a", "task:42:claim", "main", "agent:x:busy", "_.-:@", &"k".repeat(200)] {
            assert!(check_signal_key(key).is_ok(), "{key}");
        }
        for key in ["", ".", "..", "a b", "a/b", "é", "a\n", &"k".repeat(201)] {
            assert!(check_signal_key(key).is_err(), "{key}");
        }
        assert_eq!(key_agent("agent:x:busy"), Some("x"));
        assert_eq!(key_agent("agent:x:y:z"), Some("x:y"), "names of agents may hold colons");
        assert_eq!([key_agent("agent:x"), key_agent("agent::x"), key_agent("task:1:claim")], [None; 3]);
    }

    #[test]
    fn a_change_reads_back_as_it_was_written() {
        let publisher = Publisher { uid: 7, agent: "ann".into(), session: "s".into(), branch: BranchId(3) };
        for lifetime in [SignalLifetime::Unlimited, SignalLifetime::Nanos(5), SignalLifetime::Lease(Time(9))] {
            let signal = Signal {
                value: (*b"v\0").into(),
                owner: 7,
                mode: 0o640,
                created: Time(1),
                written: Time(2),
                publisher: publisher.clone(),
                lifetime,
                ends_with_session: true,
            };
            for change in [SignalChange::Set("k".into(), Arc::new(signal)), SignalChange::Remove("k".into())] {
                let mut out = Writer::new();
                change.write(&mut out);
                let bytes = out.finish();
                assert_eq!(SignalChange::read(&mut Reader::new(&bytes)).unwrap(), change);
                assert!((0..bytes.len()).all(|end| SignalChange::read(&mut Reader::new(&bytes[..end])).is_err()));
            }
        }
    }
}
