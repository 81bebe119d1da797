//! Names of agents below a root branch: whoever uses one first has it there.

use std::sync::Arc;

use imbl::OrdMap;

use super::settings::Setting;
use super::{Branch, Catalog};
use crate::memory::AgentError;
use crate::object::{CodecError, Reader, Writer};

/// The most names that one user may have below a root branch.
pub const AGENT_NAMES_MAX: usize = 100;

/// The names of agents below a root branch, and who may use them.
pub type AgentNames = OrdMap<Arc<str>, AgentHolder>;

/// Who may use a name; one that is in no [`AgentNames`] is free for whoever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentHolder {
    /// The user of that uid alone, until the name is freed.
    User(u32),
    /// Nobody, until the name is freed.
    Barred,
}

impl AgentHolder {
    /// Appends the stored form: 0 and the uid, or 1.
    pub fn write<'a>(&self, out: &'a mut Writer) -> &'a mut Writer {
        match self {
            AgentHolder::User(uid) => out.byte(0).number(u64::from(*uid)),
            AgentHolder::Barred => out.byte(1),
        }
    }

    /// Reads the stored form. [`CodecError::Code`] for a sort of holder that this version does not know.
    pub fn read(input: &mut Reader<'_>) -> Result<AgentHolder, CodecError> {
        match input.byte()? {
            0 => Ok(AgentHolder::User(u32::try_from(input.number()?).map_err(|_| CodecError::Number)?)),
            1 => Ok(AgentHolder::Barred),
            code => Err(CodecError::Code(code)),
        }
    }
}

/// Returns the name of a user who may not have the one that entries would else carry.
fn fallback_agent_name(uid: u32) -> Arc<str> {
    format!("uid:{uid}").into()
}

impl Catalog {
    /// Returns the name under which a user acts through a branch: that of `config/agent`, or their own; `uid:N` where it is
    /// another's or barred.
    pub fn agent(&self, branch: &Branch, uid: u32) -> Arc<str> {
        let set = branch.settings.get(Setting::Agent);
        let (name, uid) = if set.is_empty() { (self.user(uid), uid) } else { (set.clone(), branch.uid) };
        let Some(root) = self.branches.get(&branch.root).filter(|root| !root.agents.is_empty()) else { return name };
        let is_own = match root.agents.get(&name) {
            Some(AgentHolder::User(holder)) => *holder == uid,
            Some(AgentHolder::Barred) => false,
            None => true,
        };
        let fallback = fallback_agent_name(uid);
        if is_own && root.agents.get(&fallback) != Some(&AgentHolder::Barred) { name } else { fallback }
    }

    /// Refuses a name of `config/agent` that the branch's owner may not use. `Barred`, `Taken` by another user,
    /// `TooMany` if the owner has all that one user may have.
    pub fn check_agent(&self, branch: &Branch, name: &str) -> Result<(), AgentError> {
        let (root, uid) = (&self.branches[&branch.root], branch.uid);
        let fallback = fallback_agent_name(uid);
        if [name, &*fallback].iter().any(|name| root.agents.get(*name) == Some(&AgentHolder::Barred)) {
            return Err(AgentError::Barred { name: name.to_owned(), uid });
        }
        let holder = match root.agents.get(name) {
            Some(AgentHolder::User(holder)) => Some(*holder),
            _ => name.strip_prefix("uid:").and_then(|number| number.parse().ok()),
        };
        // A user's own name is theirs, if nobody had it before.
        let holder = holder.or_else(|| self.users.iter().find_map(|(user, known)| (**known == *name).then_some(*user)));
        if holder.is_some_and(|holder| holder != uid) {
            return Err(AgentError::Taken(name.to_owned()));
        }
        let held = root.agents.values().filter(|holder| **holder == AgentHolder::User(uid)).count();
        if !root.agents.contains_key(name) && held >= AGENT_NAMES_MAX {
            return Err(AgentError::TooMany(uid));
        }
        Ok(())
    }
}
