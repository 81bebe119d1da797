//! `merge`, `promote` and `pull`: a branch and its parent come together.

use super::spec::DRY_RUN;
use super::{
    Arguments, BranchRight, CommandForm, CommandHelp, ParentRight, Report, Rights, VerbAnswer, VerbContext, VerbSpec,
};
use crate::memory::{Error, MergeKind};

/// A dry run tells of the parent.
const DRY_RUN_RIGHTS: Option<Rights> = Some(Rights { branch: BranchRight::Enter, parent: ParentRight::Read });

pub(super) const MERGE: VerbSpec = VerbSpec {
    arguments: &[DRY_RUN],
    // As by rename(2), who owns the parent may merge, too.
    rights: Rights { branch: BranchRight::OwnEither, parent: ParentRight::Write },
    dry_run: DRY_RUN_RIGHTS,
    ends_branch: true,
    report: Report::Merge,
    command: CommandForm::OfTable(CommandHelp {
        about: "Merges a branch into its parent, in one atomic commit; then the branch is gone",
        target: "The branch to merge: its own directory under a mount, or STORE:NAME-PATH",
        examples: "  engramfs merge /mnt/memory/main/branches/agent-7
  engramfs merge --dry-run ~/memory:main/agent-7      (exit code 3 where the merge would be refused)",
    }),
    ..VerbSpec::of_owner("merge", |context, arguments| run(context, MergeKind::Merge, arguments))
};

pub(super) const PROMOTE: VerbSpec = VerbSpec {
    arguments: &[DRY_RUN.in_ctl_alone()],
    // The branch has the parent's content afterwards.
    rights: Rights { branch: BranchRight::Own, parent: ParentRight::ReadWrite },
    dry_run: DRY_RUN_RIGHTS,
    report: Report::Merge,
    command: CommandForm::OfTable(CommandHelp {
        about: "Merges a branch into its parent; the branch lives on with the parent's new state",
        target: "The branch to promote: its own directory under a mount, or STORE:NAME-PATH",
        examples: "  engramfs promote /mnt/memory/main/branches/agent-7
  engramfs promote ~/memory:main/agent-7 --json",
    }),
    ..VerbSpec::of_owner("promote", |context, arguments| run(context, MergeKind::Promote, arguments))
};

pub(super) const PULL: VerbSpec = VerbSpec {
    arguments: &[DRY_RUN.in_ctl_alone()],
    rights: Rights { branch: BranchRight::Own, parent: ParentRight::Read },
    dry_run: DRY_RUN_RIGHTS,
    report: Report::Merge,
    command: CommandForm::OfTable(CommandHelp {
        about: "Merges the parent's present state into a branch",
        target: "The branch to bring up to date: its own directory under a mount, or STORE:NAME-PATH",
        examples: "  engramfs pull /mnt/memory/main/branches/agent-7
  engramfs pull ~/memory:main/agent-7",
    }),
    ..VerbSpec::of_owner("pull", |context, arguments| run(context, MergeKind::Pull, arguments))
};

fn run(context: &VerbContext<'_>, kind: MergeKind, arguments: &Arguments) -> Result<VerbAnswer, Error> {
    let result = context.memory.merge(context.actor, context.branch, kind, arguments.is_set(&DRY_RUN))?;
    Ok(VerbAnswer::Line(result.to_json()))
}
