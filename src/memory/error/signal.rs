//! Why something is not done to a signal, or to the events that all branches share.

use thiserror::Error;

use super::{Advice, Kind};

/// Why a signal is not written or removed.
#[derive(Debug, Clone, Error)]
pub enum SignalError {
    /// The key is empty, longer than 200 bytes, or has other characters than letters, digits and `_.-:@`.
    #[error("'{0}' can't be the key of a signal")]
    BadKey(String),
    /// A value is longer than 64 KiB. Kind `TooLarge`.
    #[error("the signal has {0} bytes, and 64 KiB is the most")]
    TooLong(u64),
    /// There is a signal with that key. Kind `Exists`.
    #[error("there is a signal {0} already")]
    Exists(String),
    /// There is no signal with that key. Kind `NotFound`.
    #[error("there is no signal {0}")]
    Missing(String),
    /// The signal that was opened has ended since. Kind `Gone`.
    #[error("the signal {0} has ended, and what was written to it counts no more")]
    Ended(String),
    /// Only the owner of a branch writes through it. Kind `Denied`.
    #[error("uid {uid} does not own {path}, through which the signal would be written")]
    NotOwner {
        /// The uid that wanted to write.
        uid: u32,
        /// The branch's name path.
        path: String,
    },
    /// The key belongs to an agent of another name. Kind `NotPermitted`.
    #[error("{key} belongs to the agent {agent}, and this branch is at work for {other}")]
    OtherAgent {
        /// The key, which begins with `agent:NAME:`.
        key: String,
        /// The agent that the key names.
        agent: String,
        /// The agent of the branch through which it would be written.
        other: String,
    },
    /// The signal is to last as long as a lease, which nobody holds. Kind `Invalid`.
    #[error("nobody holds the lease of {0}, with which the signal would end")]
    NoLease(String),
    /// The text is no lifetime: no duration, not `lease`, and not empty. Kind `Invalid`.
    #[error("'{0}' is no lifetime of a signal")]
    BadLifetime(String),
    /// So many bytes of events were dropped before a reader came to them. Kind `Gone`.
    #[error("{0} bytes of events were dropped before they were read")]
    EventsDropped(u64),
}

impl SignalError {
    /// Returns kind, code and hint; there is no `_` arm, so a new variant does not compile without its own.
    pub fn advice(&self) -> Advice {
        match self {
            SignalError::BadKey(_) => {
                Advice::new(Kind::Invalid, "bad_signal_key", "use 1 to 200 bytes out of A-Z a-z 0-9 _ . - : @")
            }
            SignalError::TooLong(_) => Advice::new(
                Kind::TooLarge,
                "signal_too_long",
                "write the whole into a file of files/, and a signal that names it",
            ),
            SignalError::Exists(_) => Advice::new(Kind::Exists, "signal_exists", "wait until it ends, or take another"),
            SignalError::Missing(_) => {
                Advice::new(Kind::NotFound, "no_such_signal", "list them with ls in shared/signals")
            }
            SignalError::Ended(_) => Advice::new(
                Kind::Gone,
                "signal_ended",
                "claim it again, and set config/signal_ttl longer than the work takes",
            ),
            SignalError::NotOwner { .. } => {
                Advice::new(Kind::Denied, "not_branch_owner", "write through a branch of your own: fork one with mkdir")
            }
            SignalError::OtherAgent { .. } => Advice::new(
                Kind::NotPermitted,
                "agents_signal",
                "write it through a branch of that agent, or take another key",
            ),
            SignalError::NoLease(_) => {
                Advice::new(Kind::Invalid, "no_lease", "hold the branch's lease open first, or set a duration")
            }
            SignalError::BadLifetime(_) => {
                Advice::new(Kind::Invalid, "bad_lifetime", "write a duration such as 30s or 10m, lease, or nothing")
            }
            SignalError::EventsDropped(_) => Advice::new(
                Kind::Gone,
                "events_dropped",
                "open events.jsonl again: it begins with the oldest event that is kept; look at signals/ for what is so now",
            ),
        }
    }
}
