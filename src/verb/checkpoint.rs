//! `checkpoint`: names a branch's present state.

use serde_json::json;

use super::{Argument, Arguments, CliForm, CliHelp, Report, VerbAnswer, VerbContext, VerbSpec};
use crate::memory::Error;

const LABEL: Argument = Argument::word("LABEL", "The checkpoint's name").checked_as_name();
const TEXT: Argument = Argument::text("TEXT", "Words about it for the shared log");

pub(super) const CHECKPOINT: VerbSpec = VerbSpec {
    arguments: &[LABEL, TEXT],
    report: Report::Silent(|target, arguments| json!({ "target": target, "checkpoint": arguments.required(&LABEL) })),
    command: CliForm::FromTable(CliHelp {
        about: "Takes a checkpoint: a named, read-only state of a branch",
        target: "The branch: its directory under a mount, or STORE:NAME-PATH",
        examples: "  engramfs checkpoint /mnt/memory/main before-cleanup
  engramfs checkpoint ~/memory:main v2 \"all questions answered\"",
    }),
    ..VerbSpec::for_owner("checkpoint", checkpoint)
};

fn checkpoint(context: &VerbContext<'_>, arguments: &Arguments) -> Result<VerbAnswer, Error> {
    let label = arguments.required(&LABEL);
    let entry = context.memory.checkpoint_entry(context.actor, context.branch, label, arguments.get(&TEXT))?;
    Ok(VerbAnswer::Line(json!({"status": "taken", "checkpoint": label, "entry": entry.to_string()}).to_string()))
}
