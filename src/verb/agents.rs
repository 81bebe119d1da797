//! `free-agent` and `bar-agent`: who may use which names of agents.

use serde_json::json;

use super::{Argument, Arguments, VerbAnswer, VerbContext, VerbSpec};
use crate::memory::Error;

/// A phrase and no word, since a name may have blanks in it.
const NAME: Argument = Argument::phrase("NAME", "The agent's name, or uid:N");

pub(super) const FREE_AGENT: VerbSpec = VerbSpec {
    arguments: &[NAME],
    ..VerbSpec::for_owner("free-agent", |context, arguments| set_barred(context, arguments, false))
};

pub(super) const BAR_AGENT: VerbSpec = VerbSpec {
    arguments: &[NAME],
    ..VerbSpec::for_owner("bar-agent", |context, arguments| set_barred(context, arguments, true))
};

fn set_barred(context: &VerbContext<'_>, arguments: &Arguments, bars: bool) -> Result<VerbAnswer, Error> {
    let name = arguments.required(&NAME);
    let entry = context.memory.set_agent_name(context.actor, context.branch, name, bars)?;
    Ok(VerbAnswer::Line(json!({ "agent": name, "barred": bars, "entry": entry.to_string() }).to_string()))
}
