//! `revert`, `undo` and `redo`: take back what was done to a branch, and keep what came later.

use super::merging::{IF_PLAN, options};
use super::spec::{DRY_RUN, Run};
use super::{
    Argument, Arguments, BranchRight, CliForm, CliHelp, ParentRight, Report, Rights, VerbAnswer, VerbContext, VerbSpec,
};
use crate::memory::{Error, RevertVerb, Revision};

/// A dry run tells of the branch alone, so the parent is not asked.
const DRY_RUN_RIGHTS: Option<Rights> = Some(Rights { branch: BranchRight::Own, parent: ParentRight::Nothing });

const TARGET: &str = "The branch: its directory under a mount, or STORE:NAME-PATH";
const ENTRY: Argument =
    Argument::word("ENTRY", "The entry, by its number or hash, as log has them").checked_as_revision();
const COUNT: Argument = Argument::optional_word("N", "How many, the newest first; one where nothing is said")
    .with_check(
        |text| text.parse::<usize>().is_ok_and(|count| (1..=COUNT_MAX).contains(&count)),
        "is no number of entries",
        "write a number from 1 to 1000, or nothing for one",
    );
const COUNT_MAX: usize = 1_000;

pub(super) const REVERT: VerbSpec = VerbSpec {
    arguments: &[ENTRY, DRY_RUN, IF_PLAN],
    dry_run: DRY_RUN_RIGHTS,
    report: Report::Merge,
    command: CliForm::FromTable(CliHelp {
        about: "Takes back what an entry did to a branch, and keeps what came later",
        target: TARGET,
        examples: "  engramfs revert /mnt/memory/main 57
  engramfs revert --dry-run ~/memory:main 57      (exit code 3 where it would be refused)",
    }),
    ..VerbSpec::for_owner("revert", revert)
};

pub(super) const UNDO: VerbSpec = counted_verb(
    "undo",
    "Takes back the newest change that you made in a branch, or the last N of them",
    "  engramfs undo /mnt/memory/main
  engramfs undo ~/memory:main/agent-7 3",
    |context, arguments| undo(context, arguments, RevertVerb::Undo),
);

pub(super) const REDO: VerbSpec = counted_verb(
    "redo",
    "Does again what undo took back, the newest first",
    "  engramfs redo /mnt/memory/main
  engramfs redo ~/memory:main/agent-7 2",
    |context, arguments| undo(context, arguments, RevertVerb::Redo),
);

/// Returns a verb that takes back, or does again, a number of entries: one where nothing is said.
const fn counted_verb(name: &'static str, about: &'static str, examples: &'static str, run: Run) -> VerbSpec {
    VerbSpec {
        arguments: &[COUNT, DRY_RUN],
        dry_run: DRY_RUN_RIGHTS,
        report: Report::Merge,
        command: CliForm::FromTable(CliHelp { about, target: TARGET, examples }),
        ..VerbSpec::for_owner(name, run)
    }
}

fn revert(context: &VerbContext<'_>, arguments: &Arguments) -> Result<VerbAnswer, Error> {
    let VerbContext { memory, actor, branch, .. } = *context;
    let entry = Revision::parse(arguments.required(&ENTRY))?;
    let result = memory.revert(actor, branch, &entry, options(arguments), arguments.is_set(&DRY_RUN))?;
    Ok(VerbAnswer::Line(result.to_json()))
}

fn undo(context: &VerbContext<'_>, arguments: &Arguments, verb: RevertVerb) -> Result<VerbAnswer, Error> {
    let VerbContext { memory, actor, branch, .. } = *context;
    let count = arguments.get(&COUNT).and_then(|text| text.parse().ok()).unwrap_or(1);
    let result = memory.undo(actor, branch, verb, count, arguments.is_set(&DRY_RUN))?;
    Ok(VerbAnswer::Line(result.to_json()))
}
