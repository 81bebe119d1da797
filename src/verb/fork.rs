//! `fork`: makes a child branch.

use serde_json::json;

use super::{
    Argument, ArgumentError, Arguments, BranchRight, CliForm, CliHelp, ParentRight, Report, Rights, Verb, VerbAnswer,
    VerbContext, VerbSpec,
};
use crate::memory::{BranchError, Error, ForkOptions, Revision, Setting, check_setting};

const NAME: Argument = Argument::word("NAME", "The new branch's name").checked_as_name();
const FROM: Argument = Argument::option(
    "from",
    "LABEL|ENTRY|TIME",
    "Starts from this state of the branch: a checkpoint, an entry or a time",
)
.checked_as_revision();
/// Introduces the name of a branch that has ended.
pub(super) const FROM_DISCARDED: &str = "from-discarded";
const DISCARDED: Argument = Argument::option(
    FROM_DISCARDED,
    "NAME|SEQ",
    "Brings back a branch that was discarded or merged, with its own edits: its name, or the entry that ended it",
);
const OWNER: Argument = Argument::option("owner", "UID", "Has it belong to this user from the beginning; root may")
    .with_check(|uid| uid.parse::<u32>().is_ok_and(|uid| uid != u32::MAX), "is no uid", "write the number of a user");

const TTL: Argument = Argument::option(
    "ttl",
    "AGE",
    "Discards it when nothing was written and no lease held for so long",
)
.with_check(|age| check_setting(Setting::Ttl, age).is_ok(), "is no duration", "write a duration such as 1h or 7d");

pub(super) const FORK: VerbSpec = VerbSpec {
    arguments: &[NAME, FROM, DISCARDED, OWNER, TTL],
    rights: Rights { branch: BranchRight::Read, parent: ParentRight::Nothing },
    report: Report::Child(NAME),
    command: CliForm::FromTable(CliHelp {
        about: "Forks a branch, and prints where the new one is",
        target: "The branch to fork: its directory under a mount, or STORE:NAME-PATH",
        examples: "  engramfs fork /mnt/memory/main agent-7
  engramfs fork --owner 1001 /mnt/memory/main agent-7
  engramfs fork --from -2h ~/memory:main before-lunch
  engramfs fork --from-discarded try-1 /mnt/memory/main try-1",
    }),
    ..VerbSpec::for_owner("fork", fork)
};

impl Verb {
    /// Returns the verb that forks a child branch with that name. `owner` is its owner, by default the caller; `ttl`
    /// sets its `config/ttl`. Fails like [`Verb::new`].
    pub fn fork(name: &str, owner: Option<u32>, ttl: Option<&str>) -> Result<Verb, ArgumentError> {
        let mut arguments = Arguments::default();
        arguments.set(&NAME, vec![name.to_owned()]);
        if let Some(owner) = owner {
            arguments.set(&OWNER, vec![owner.to_string()]);
        }
        if let Some(ttl) = ttl {
            arguments.set(&TTL, vec![ttl.to_owned()]);
        }
        Verb::new(&FORK, arguments)
    }
}

fn fork(context: &VerbContext<'_>, arguments: &Arguments) -> Result<VerbAnswer, Error> {
    let VerbContext { memory, actor, branch, .. } = *context;
    let owner = arguments.get(&OWNER).and_then(|uid| uid.parse().ok());
    if owner.is_some_and(|owner| owner != actor.uid) && actor.uid != 0 {
        return Err(BranchError::OnlyRootSetsOwner.into());
    }
    let from = match (arguments.get(&FROM), arguments.get(&DISCARDED)) {
        (Some(_), Some(_)) => return Err(BranchError::TwoSources.into()),
        (Some(text), None) => Some(memory.find_state(branch, &Revision::parse(text)?)?),
        (None, Some(name)) => Some(memory.find_ended(actor, branch, name)?),
        (None, None) => None,
    };
    let options = ForkOptions { from: from.as_ref(), owner, ttl: arguments.get(&TTL) };
    let fork = memory.fork_with(actor, branch, arguments.required(&NAME), options)?;
    let mut answer = json!({"status": "forked", "branch": &*memory.info(fork)?.path});
    if let Some(from) = from {
        answer["from"] = from.to_json();
    }
    Ok(VerbAnswer::Line(answer.to_string()))
}
