//! `show`: looks something up by its hash, or an entry by its number.

use super::{
    Argument, Arguments, BranchRight, CliForm, CliHelp, ParentRight, Report, Rights, VerbAnswer, VerbContext, VerbSpec,
};
use crate::memory::{Error, ShowTarget};

const HASH: Argument = Argument::word(
    "HASH",
    "The hash, 64 hex digits as in `conflicts`, `lineage` and `engramfs log --json`, or the number of an entry",
)
.with_check(
    |text| ShowTarget::parse(text).is_some(),
    "is neither a hash nor the number of an entry",
    "write 64 lower-case hex digits, or the number of an entry, as in `engramfs log --json`",
);

const CHANGES: Argument = Argument::flag(
    "--changes",
    "Of an entry: also what it changed, one record or file a line with both versions, while they are kept",
);

pub(super) const SHOW: VerbSpec = VerbSpec {
    arguments: &[HASH, CHANGES],
    rights: Rights { branch: BranchRight::Enter, parent: ParentRight::Nothing },
    changes: false,
    report: Report::Object,
    command: CliForm::FromTable(CliHelp {
        about: "Prints a version of a record, an entry of the lineage or a head by its hash, as JSON; of a file its bytes. \
                An entry is found by its number, too",
        target: "The branch: its directory under a mount, or STORE:NAME-PATH",
        examples: "  engramfs show /mnt/memory/main 3b1f…64 hex digits
  engramfs show ~/memory:main 17 --changes
  engramfs show ~/memory:main \"$(engramfs log ~/memory:main --json | tail -1 | jq -r .entry)\"",
    }),
    ..VerbSpec::for_owner("show", show)
};

fn show(context: &VerbContext<'_>, arguments: &Arguments) -> Result<VerbAnswer, Error> {
    let wanted = ShowTarget::parse(arguments.required(&HASH)).expect("the argument accepts what can be looked up");
    let VerbContext { memory, actor, branch, viewer } = *context;
    Ok(VerbAnswer::Object(match arguments.is_set(&CHANGES) {
        true => memory.show_changes(actor, branch, wanted, viewer)?,
        false => memory.show(branch, wanted, viewer)?,
    }))
}
