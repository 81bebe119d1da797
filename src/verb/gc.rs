//! `gc`: lets go what nobody keeps any longer, in the whole store.

use std::time::Duration;

use super::spec::DRY_RUN;
use super::{Argument, Arguments, CliForm, VerbAnswer, VerbContext, VerbSpec};
use crate::memory::{Error, parse_duration_nanos};

const OLDER_THAN: Argument =
    Argument::option("--older-than", "AGE", "Lets only those branches go that were not written for so long")
        .with_check(|age| parse_age(age).is_some(), "is no time", "write a time such as 90m, 24h or 7d");

/// The command is in `cli/commands/gc.rs`: it takes a store or a mount, and no branch.
pub(super) const GC: VerbSpec = VerbSpec {
    arguments: &[OLDER_THAN, DRY_RUN],
    root_only: true,
    command: CliForm::OwnModule,
    ..VerbSpec::for_owner("gc", gc)
};

fn gc(context: &VerbContext<'_>, arguments: &Arguments) -> Result<VerbAnswer, Error> {
    let older_than = arguments.get(&OLDER_THAN).and_then(parse_age);
    let report = context.memory.gc(context.actor, older_than, arguments.is_set(&DRY_RUN))?;
    Ok(VerbAnswer::Line(report.to_string()))
}

fn parse_age(text: &str) -> Option<Duration> {
    Some(Duration::from_nanos(u64::try_from(parse_duration_nanos(text).ok()?).ok()?))
}
