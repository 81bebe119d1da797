//! `archive-log`: moves old entries of the shared log out of the way of queries.

use super::{Argument, Arguments, VerbAnswer, VerbContext, VerbSpec};
use crate::memory::Error;

const BEFORE: Argument = Argument::word("BEFORE_ID", "The first entry that stays").with_check(
    |word| word.parse::<u64>().is_ok(),
    "is no entry's id",
    "write the id of the first entry that is to stay, as in archive-log 1000",
);

pub(super) const ARCHIVE_LOG: VerbSpec =
    VerbSpec { arguments: &[BEFORE], ..VerbSpec::for_owner("archive-log", archive_log) };

fn archive_log(context: &VerbContext<'_>, arguments: &Arguments) -> Result<VerbAnswer, Error> {
    let before = arguments.required(&BEFORE).parse().expect("the argument accepts numbers alone");
    Ok(VerbAnswer::Line(context.memory.archive_log(context.actor, context.branch, before)?.to_string()))
}
