//! `rollback`: brings a branch, or some of its files, back to a checkpoint.

use super::{Argument, Arguments, CommandForm, CommandHelp, VerbAnswer, VerbContext, VerbSpec};
use crate::memory::Error;

const LABEL: Argument = Argument::word("LABEL", "The checkpoint's name").naming();
const PATTERNS: Argument =
    Argument::list("files/PATTERN", "Only these files, such as files/notes/**; records and all other files stay");

pub(super) const ROLLBACK: VerbSpec = VerbSpec {
    arguments: &[LABEL, PATTERNS],
    command: CommandForm::OfTable(CommandHelp {
        about: "Makes a branch as it was at a checkpoint; the state before stays readable for a while (config/keep)",
        target: "The branch: its directory under a mount, or STORE:NAME-PATH",
        examples: "  engramfs rollback /mnt/memory/main before-cleanup
  engramfs rollback ~/memory:main/agent-7 v2 --json
  engramfs rollback /mnt/memory/main v2 -- 'files/notes/**'",
    }),
    ..VerbSpec::of_owner("rollback", rollback)
};

fn rollback(context: &VerbContext<'_>, arguments: &Arguments) -> Result<VerbAnswer, Error> {
    let VerbContext { memory, actor, branch, .. } = *context;
    let label = arguments.required(&LABEL);
    let receipt = match arguments.list(&PATTERNS) {
        [] => memory.rollback(actor, branch, label)?,
        patterns => memory.rollback_files(actor, branch, label, patterns)?,
    };
    Ok(VerbAnswer::Line(receipt.to_json()))
}
