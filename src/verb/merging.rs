//! `merge`, `promote` and `pull`: a branch and its parent come together.

use super::spec::DRY_RUN;
use super::{
    Argument, Arguments, BranchRight, CliForm, CliHelp, ParentRight, Report, Rights, VerbAnswer, VerbContext, VerbSpec,
};
use crate::memory::{Error, Hash, MergeOptions, MergeVerb};

/// A dry run tells what the parent has, so its caller must be able to read that; it need not be the owner.
const DRY_RUN_RIGHTS: Option<Rights> = Some(Rights { branch: BranchRight::Enter, parent: ParentRight::Read });

/// `--if-plan HASH` of the verbs that work out a plan first: merge, promote, pull and revert.
pub(super) const IF_PLAN: Argument = Argument::option(
    "--if-plan",
    "HASH",
    "Does it only if its plan is still this one, the `plan` that a dry run printed; else it fails, and nothing changes",
)
.with_check(
    |text| text.parse::<Hash>().is_ok(),
    "is no hash of a plan",
    "write the 64 hex digits that a dry run gives as its plan",
);

const NOTE: Argument = Argument::note("NOTE", "Words about it, which its entry in the lineage holds");

pub(super) const MERGE: VerbSpec = VerbSpec {
    arguments: &[DRY_RUN, IF_PLAN, NOTE],
    // As by rename(2), who owns the parent may merge, too.
    rights: Rights { branch: BranchRight::OwnBranchOrParent, parent: ParentRight::WriteOrGate },
    dry_run: DRY_RUN_RIGHTS,
    ends_branch: true,
    report: Report::Merge,
    command: CliForm::FromTable(CliHelp {
        about: "Merges a branch into its parent, in one atomic commit; then the branch is gone",
        target: "The branch to merge: its own directory under a mount, or STORE:NAME-PATH",
        examples: "  engramfs merge /mnt/memory/main/branches/agent-7
  engramfs merge --dry-run ~/memory:main/agent-7      (exit code 3 where the merge would be refused)",
    }),
    ..VerbSpec::for_owner("merge", |context, arguments| run(context, MergeVerb::Merge, arguments))
};

pub(super) const PROMOTE: VerbSpec = VerbSpec {
    arguments: &[DRY_RUN, IF_PLAN, NOTE],
    // The branch has the parent's content afterwards.
    rights: Rights { branch: BranchRight::Own, parent: ParentRight::ReadWriteOrGate },
    dry_run: DRY_RUN_RIGHTS,
    report: Report::Merge,
    command: CliForm::FromTable(CliHelp {
        about: "Merges a branch into its parent; the branch lives on with the parent's new state",
        target: "The branch to promote: its own directory under a mount, or STORE:NAME-PATH",
        examples: "  engramfs promote /mnt/memory/main/branches/agent-7
  engramfs promote ~/memory:main/agent-7 --json",
    }),
    ..VerbSpec::for_owner("promote", |context, arguments| run(context, MergeVerb::Promote, arguments))
};

pub(super) const PULL: VerbSpec = VerbSpec {
    arguments: &[DRY_RUN, IF_PLAN],
    rights: Rights { branch: BranchRight::Own, parent: ParentRight::Read },
    dry_run: DRY_RUN_RIGHTS,
    report: Report::Merge,
    command: CliForm::FromTable(CliHelp {
        about: "Merges the parent's present state into a branch",
        target: "The branch to bring up to date: its own directory under a mount, or STORE:NAME-PATH",
        examples: "  engramfs pull /mnt/memory/main/branches/agent-7
  engramfs pull ~/memory:main/agent-7",
    }),
    ..VerbSpec::for_owner("pull", |context, arguments| run(context, MergeVerb::Pull, arguments))
};

fn run(context: &VerbContext<'_>, kind: MergeVerb, arguments: &Arguments) -> Result<VerbAnswer, Error> {
    let VerbContext { memory, actor, branch, .. } = *context;
    let options = options(arguments);
    let result = match arguments.is_set(&DRY_RUN) {
        true => memory.dry_run(actor, branch, kind, options.plan)?,
        false => memory.merge_with(actor, branch, kind, options)?,
    };
    Ok(VerbAnswer::Line(result.to_json()))
}

/// Returns what a merge is bound to: the plan that must still hold, none for any, and the words for its entry.
pub(super) fn options(arguments: &Arguments) -> MergeOptions {
    let plan = arguments.get(&IF_PLAN).and_then(|text| text.parse().ok());
    MergeOptions { plan, note: arguments.values(&NOTE).join(" ").into(), ..MergeOptions::default() }
}
