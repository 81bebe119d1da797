//! Names of agents and signals, a line each.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::damaged;
use super::files::JsonBytes;
use super::lines::{for_each_value, refused, write_values};
use crate::cli::failure::CommandError;
use crate::memory::{
    Actor, BranchId, Memory, OwnSignals, Publisher, Setting, Signal, SignalLifetime, Time, check_setting,
    parse_duration_nanos,
};

/// The name of an agent, and the uid that may use it; nobody may use one that is barred.
#[derive(Serialize, Deserialize)]
struct AgentLine {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    barred: bool,
}

#[derive(Serialize, Deserialize)]
struct SignalLine {
    key: String,
    value: JsonBytes,
    owner: u32,
    /// In octal, 9 bits.
    mode: String,
    claimed: String,
    /// When it was written last, and by whom.
    published: String,
    uid: u32,
    agent: String,
    session: String,
    /// The branch through which it was; nothing where that has ended.
    branch: Option<String>,
    /// A duration from then on; empty for no end.
    lifetime: String,
    /// What comes of it, for readers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ends: Option<String>,
    ends_with_session: bool,
}

/// Writes the names of agents below the root branch of a branch; returns how many there are. Fails if the file can't be
/// written, and leaves a part of it then.
pub fn write_agents(memory: &Memory, branch: BranchId, path: &Path) -> Result<u64, CommandError> {
    // What can't be an agent's name may have been barred, to no effect; the dump leaves it out.
    let names = memory.agents(branch)?.into_iter().filter(|(name, _)| is_agent_name(name));
    let line = |(name, uid): (Arc<str>, Option<u32>)| AgentLine { name: name.to_string(), uid, barred: uid.is_none() };
    write_values(path, names.map(|name| Ok(line(name))))
}

fn is_agent_name(name: &str) -> bool {
    !name.is_empty() && check_setting(Setting::Agent, name).is_ok()
}

/// Has the names of agents below a root branch be those of a file. Returns how many lines it has. `Exit::Damaged` for a
/// line that is not a name with either a uid or a bar, and for a name that stands there twice; nothing has changed
/// then.
pub fn read_agents(memory: &Memory, who: &Actor, root: BranchId, path: &Path) -> Result<u64, CommandError> {
    let mut names = BTreeMap::new();
    let count = for_each_value(path, |line: AgentLine, place| {
        if line.uid.is_some() == line.barred {
            return Err(damaged(format!("{place}: {:?} has either a uid or is barred", line.name)));
        }
        if !is_agent_name(&line.name) {
            let shown: String = line.name.chars().take(80).collect();
            return Err(damaged(format!("{place}: {shown:?} is no name of an agent: one line of 1 to 200 bytes")));
        }
        match names.insert(Arc::from(line.name.as_str()), line.uid) {
            Some(_) => Err(damaged(format!("{place}: {:?} stands there twice", line.name))),
            None => Ok(()),
        }
    })?;
    memory.import_agents(who, root, &names).map_err(|error| refused(path.display(), error))?;
    Ok(count)
}

/// Writes the signals of the log that a branch has of its own; returns how many those are, and how many it left out
/// since they end with a lease. No file is made where there are none. Fails if it can't be written, and leaves a part
/// of it then.
pub fn write_signals(memory: &Memory, branch: BranchId, path: &Path) -> Result<(u64, u64), CommandError> {
    let OwnSignals { signals, leased } = memory.own_signals(branch)?;
    if signals.is_empty() {
        return Ok((0, leased));
    }
    let line = |(key, signal): (Arc<str>, Arc<Signal>)| {
        let Signal { publisher, .. } = &*signal;
        Ok(SignalLine {
            key: key.to_string(),
            value: JsonBytes::from_bytes(&signal.value),
            owner: signal.owner,
            mode: format!("{:04o}", signal.mode),
            claimed: signal.created.to_string(),
            published: signal.written.to_string(),
            uid: publisher.uid,
            agent: publisher.agent.to_string(),
            session: publisher.session.to_string(),
            branch: memory.info(publisher.branch).ok().map(|branch| branch.path.to_string()),
            lifetime: signal.lifetime_text(),
            ends: signal.expires_at().map(|end| end.to_string()),
            ends_with_session: signal.ends_with_session,
        })
    };
    Ok((write_values(path, signals.into_iter().map(line))?, leased))
}

/// How many signals a file of a dump had, and how many came too late to be given.
#[derive(Default)]
pub struct SignalsRead {
    /// All lines of the file, those that had ended included.
    pub signals: u64,
    /// Those whose time was over, which were not given.
    pub ended: u64,
}

/// Gives the log that a branch has of its own the signals of a file, one a line, and counts them.
///
/// `Exit::Damaged` for the first line that is not a signal, or whose key has one already; those before it are given
/// then. Fails also where the file can't be read or the store takes no change.
pub fn read_signals(memory: &Memory, who: &Actor, branch: BranchId, path: &Path) -> Result<SignalsRead, CommandError> {
    let mut ended = 0;
    let signals = for_each_value(path, |line: SignalLine, place| {
        let key = Arc::from(line.key.as_str());
        let signal = signal(memory, line).map_err(|what| damaged(format!("{place}: {what}")))?;
        let is_live = memory.import_signal(who, branch, &key, &signal).map_err(|error| refused(place, error))?;
        ended += u64::from(!is_live);
        Ok(())
    })?;
    Ok(SignalsRead { signals, ended })
}

fn signal(memory: &Memory, line: SignalLine) -> Result<Signal, String> {
    let time = |text: &str| text.parse::<Time>().map_err(|_| format!("{text:?} is no time"));
    let lifetime = match line.lifetime.as_str() {
        "" => SignalLifetime::Unlimited,
        text => {
            let nanos = parse_duration_nanos(text).ok().filter(|nanos| *nanos > 0);
            SignalLifetime::Nanos(nanos.ok_or_else(|| format!("{text:?} is no lifetime"))?)
        }
    };
    check_setting(Setting::Agent, &line.agent).map_err(|error| error.to_string())?;
    check_setting(Setting::Session, &line.session).map_err(|error| error.to_string())?;
    let mode = u32::from_str_radix(&line.mode, 8).ok().filter(|mode| *mode <= 0o777);
    // The branch through which it was written may have ended.
    let branch = line.branch.and_then(|path| memory.resolve(&path).ok()).unwrap_or(BranchId(0));
    Ok(Signal {
        value: line.value.decode().ok_or("its value is no hex")?.into(),
        owner: line.owner,
        mode: mode.ok_or_else(|| format!("{:?} is no mode of a signal", line.mode))?,
        created: time(&line.claimed)?,
        written: time(&line.published)?,
        publisher: Publisher { uid: line.uid, agent: line.agent.into(), session: line.session.into(), branch },
        lifetime,
        ends_with_session: line.ends_with_session,
    })
}
