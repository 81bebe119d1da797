//! `diff`: compares two states of a branch, or a state with another branch.

use super::{
    Argument, Arguments, BranchRight, CliForm, ParentRight, Report, Rights, VerbAnswer, VerbContext, VerbSpec,
};
use crate::memory::Error;

/// The older state; the present one where nothing is said.
pub const OLD: Argument =
    Argument::optional_word("A", "A label, an entry, a time, or / and the path of another branch");
/// The newer state; nothing for the present one.
pub const NEW: Argument = Argument::optional_word("B", "The same; the present state where nothing is said");

/// Answers in lines of JSON, one for each record and file that differs.
pub const DIFF: VerbSpec = VerbSpec {
    arguments: &[OLD, NEW],
    rights: Rights { branch: BranchRight::Read, parent: ParentRight::Nothing },
    changes: false,
    report: Report::Object,
    command: CliForm::OwnModule,
    ..VerbSpec::for_owner("diff", diff)
};

fn diff(context: &VerbContext<'_>, arguments: &Arguments) -> Result<VerbAnswer, Error> {
    let VerbContext { memory, actor, branch, viewer } = *context;
    let states = [arguments.get(&OLD), arguments.get(&NEW)];
    Ok(VerbAnswer::Object(memory.compare(actor, branch, states, viewer)?))
}
