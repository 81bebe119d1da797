//! `rollback`: brings a branch, or some of its files, back to an earlier state.

use super::{Argument, Arguments, CliForm, CliHelp, Report, VerbAnswer, VerbContext, VerbSpec};
use crate::memory::{Error, Revision};

const STATE: Argument =
    Argument::word("LABEL|ENTRY|TIME", "The checkpoint, the entry, or the time, such as -2h").checked_as_revision();
const PATTERNS: Argument =
    Argument::list("files/PATTERN", "Only these files, such as files/notes/**; records and all other files stay");

pub(super) const ROLLBACK: VerbSpec = VerbSpec {
    arguments: &[STATE, PATTERNS],
    command: CliForm::FromTable(CliHelp {
        about: "Makes a branch as it was at a checkpoint, after an entry or at a time; the state before stays readable for a while (config/keep)",
        target: "The branch: its directory under a mount, or STORE:NAME-PATH",
        examples: "  engramfs rollback /mnt/memory/main before-cleanup
  engramfs rollback ~/memory:main/agent-7 v2 --json
  engramfs rollback /mnt/memory/main -10m
  engramfs rollback /mnt/memory/main v2 -- 'files/notes/**'",
    }),
    report: Report::Rollback,
    ..VerbSpec::for_owner("rollback", rollback)
};

fn rollback(context: &VerbContext<'_>, arguments: &Arguments) -> Result<VerbAnswer, Error> {
    let VerbContext { memory, actor, branch, .. } = *context;
    let found = memory.find_state(branch, &Revision::parse(arguments.required(&STATE))?)?;
    let receipt = memory.rollback_to(actor, branch, &found, arguments.values(&PATTERNS))?;
    let line = receipt.to_json();
    // One line has one object, so the brace that ends the receipt gives way to a last field.
    let line = format!("{},\"from\":{}}}", line.trim_end().trim_end_matches('}'), found.to_json());
    Ok(VerbAnswer::Line(line))
}
