//! `purge`: records, files and entries of logs go for good, with all their versions and from the disk.

use super::spec::DRY_RUN;
use super::{
    Argument, Arguments, BranchRight, CliForm, CliHelp, ParentRight, Rights, VerbAnswer, VerbContext, VerbSpec,
};
use crate::memory::{Error, PurgeOptions};

const ITEMS: Argument = Argument::words(
    "ID|files/PATH|shared/log/NUMBER|shared/signals/KEY",
    "Ids of records, paths of files or directories, numbers of entries of the shared log, and keys of signals",
)
.with_check(
    |item| !item.is_empty(),
    "is no id and no path",
    "write the id of a record, files/PATH, shared/log/NUMBER or shared/signals/KEY",
);

const COPIES: Argument = Argument::flag("--copies", "Takes what has the same content, too, whatever it is called");

pub(super) const PURGE: VerbSpec = VerbSpec {
    arguments: &[ITEMS, COPIES, DRY_RUN],
    // `Memory::purge` checks further rights, which depend on what all branches hold.
    rights: Rights { branch: BranchRight::Enter, parent: ParentRight::Nothing },
    command: CliForm::FromTable(CliHelp {
        about: "Takes records, files and entries of the log out of every state of every branch, with all their versions, and their bytes off the \
                disk; hashes and a signed entry stay. There is no way back",
        target: "The branch: its directory under a mount, or STORE:NAME-PATH",
        examples: "  engramfs purge /mnt/memory/main password
  engramfs purge --copies ~/memory:main files/.env files/keys
  engramfs purge --dry-run /mnt/memory/main shared/log/42",
    }),
    ..VerbSpec::for_owner("purge", purge)
};

fn purge(context: &VerbContext<'_>, arguments: &Arguments) -> Result<VerbAnswer, Error> {
    let VerbContext { memory, actor, branch, .. } = *context;
    let options = PurgeOptions { with_copies: arguments.is_set(&COPIES), dry_run: arguments.is_set(&DRY_RUN) };
    Ok(VerbAnswer::Line(memory.purge(actor, branch, arguments.values(&ITEMS), options)?.to_string()))
}
