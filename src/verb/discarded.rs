//! `discarded`: lists the children of a branch that ended and can be brought back.

use serde_json::json;

use super::{Arguments, BranchRight, CliForm, ParentRight, Report, Rights, VerbAnswer, VerbContext, VerbSpec};
use crate::memory::Error;

pub(super) const DISCARDED: VerbSpec = VerbSpec {
    rights: Rights { branch: BranchRight::Enter, parent: ParentRight::Nothing },
    changes: false,
    report: Report::Facts,
    command: CliForm::None,
    ..VerbSpec::for_owner("discarded", discarded)
};

fn discarded(context: &VerbContext<'_>, _: &Arguments) -> Result<VerbAnswer, Error> {
    let found = context.memory.ended_children(context.actor, context.branch)?;
    Ok(VerbAnswer::Line(json!({ "discarded": found }).to_string()))
}
