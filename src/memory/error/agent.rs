//! Why an agent can't have a name.

use thiserror::Error;

use super::{Advice, Kind};

/// Why `config/agent` keeps its value, or a name its holder.
#[derive(Debug, Clone, Error)]
pub enum AgentError {
    /// Another user has the name. Kind `NotPermitted`.
    #[error("the agent {0} is another user's below this root branch")]
    Taken(String),
    /// Nobody may use the name, or the user may use none. Kind `NotPermitted`.
    #[error("uid {uid} may not be called {name} below this root branch: one of them is barred")]
    Barred {
        /// The name. It may be free: then the user is barred.
        name: String,
        /// The uid that wanted it.
        uid: u32,
    },
    /// A user has as many names as allowed. Kind `Quota`.
    #[error("uid {0} has 100 names of agents below this root branch, which is the most")]
    TooMany(u32),
    /// No user has that name, and it is not barred. Kind `NotFound`.
    #[error("no user has the agent's name {0} below this root branch")]
    Unknown(String),
}

impl AgentError {
    /// Returns kind, code and hint; there is no `_` arm, so a new variant does not compile without its own.
    pub fn advice(&self) -> Advice {
        match self {
            AgentError::Taken(_) => Advice::new(
                Kind::NotPermitted,
                "agent_taken",
                "choose another name, or have the root branch's owner write free-agent NAME to its ctl",
            ),
            AgentError::Barred { .. } => Advice::new(
                Kind::NotPermitted,
                "agent_barred",
                "ask the root branch's owner, who frees it with free-agent",
            ),
            AgentError::TooMany(_) => Advice::new(
                Kind::Quota,
                "too_many_agents",
                "use a name again, or have the root branch's owner free one with free-agent",
            ),
            AgentError::Unknown(_) => {
                Advice::new(Kind::NotFound, "no_such_agent", "see in branches.jsonl which agents there are")
            }
        }
    }
}
