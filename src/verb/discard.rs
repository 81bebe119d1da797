//! `discard`: throws a branch away. In a mount that is rmdir(2), where the kernel asks for the rights.

use serde_json::json;

use super::{
    Arguments, BranchRight, Channel, CliForm, CliHelp, ParentRight, Report, Rights, VerbAnswer, VerbContext, VerbSpec,
};
use crate::memory::Error;

pub(super) const DISCARD: VerbSpec = VerbSpec {
    rights: Rights { branch: BranchRight::OwnBranchOrParent, parent: ParentRight::Nothing },
    ends_branch: true,
    channel: Channel::Rmdir,
    report: Report::Discard,
    command: CliForm::FromTable(CliHelp {
        about: "Throws a branch away, with all that it holds",
        target: "The branch to discard: its own directory under a mount, or STORE:NAME-PATH",
        examples: "  engramfs discard /mnt/memory/main/branches/agent-7
  engramfs discard ~/memory:main/agent-7/try-1",
    }),
    ..VerbSpec::for_owner("discard", discard)
};

fn discard(context: &VerbContext<'_>, _: &Arguments) -> Result<VerbAnswer, Error> {
    context.memory.discard(context.actor, context.branch)?;
    Ok(VerbAnswer::Line(json!({"status": "discarded"}).to_string()))
}
