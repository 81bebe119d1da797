//! The table of verbs: what can be asked of a branch, by a line of `ctl` or as a command.
//!
//! A verb is one file here and one line of [`VERBS`]. From its [`VerbSpec`] come the grammar of its line in `ctl`, the words that say
//! what can be written there, its command with help, manual and completions, and the rights that a mount asks for. This module
//! parses and runs verbs; whoever runs one has checked the rights before.

mod agents;
mod archive_log;
mod argument;
mod checkpoint;
mod diff;
mod discard;
mod discarded;
mod fork;
mod gc;
mod line;
mod merging;
mod proposals;
mod purge;
mod reembed;
mod resolve;
mod revert;
mod rollback;
mod show;
mod spec;

#[cfg(test)]
mod tests;

use crate::memory::{Actor, BranchId, Error, Memory, ShownObject, Viewer};

pub use argument::{Argument, ArgumentError, ArgumentForm, Arguments};
pub use diff::{DIFF, NEW, OLD};
pub use spec::{BranchRight, Channel, CliForm, CliHelp, ParentRight, Report, Rights, VerbSpec};

/// All verbs. Commands are in the order in which help lists them.
pub const VERBS: &[&VerbSpec] = &[
    &fork::FORK,
    &merging::MERGE,
    &discard::DISCARD,
    &discarded::DISCARDED,
    &checkpoint::CHECKPOINT,
    &rollback::ROLLBACK,
    &revert::REVERT,
    &revert::UNDO,
    &revert::REDO,
    &merging::PULL,
    &merging::PROMOTE,
    &proposals::PROPOSE,
    &proposals::WITHDRAW,
    &proposals::APPROVE,
    &proposals::REFUSE,
    &diff::DIFF,
    &show::SHOW,
    &resolve::RESOLVE,
    &purge::PURGE,
    &archive_log::ARCHIVE_LOG,
    &agents::FREE_AGENT,
    &agents::BAR_AGENT,
    &reembed::REEMBED,
    &gc::GC,
];

/// A verb with arguments that fit it: [`Verb::new`] and [`Verb::parse`] refuse all others.
#[derive(Clone, Debug)]
pub struct Verb {
    spec: &'static VerbSpec,
    arguments: Arguments,
}

/// What a verb is run with; whoever fills it has checked the caller's rights.
pub struct VerbContext<'a> {
    /// The store that has the branch.
    pub memory: &'a Memory,
    /// Who asks for it, and is named in the entry that comes of it.
    pub actor: &'a Actor,
    /// The branch that it is asked of, in whose `ctl` the line was written.
    pub branch: BranchId,
    /// What the caller may be shown, for verbs that only look.
    pub viewer: Viewer<'a>,
}

/// What a verb answers that was done, or that a dry run has tried.
#[derive(Clone, Debug)]
pub enum VerbAnswer {
    /// A JSON object in one line, without its end.
    Line(String),
    /// What `show` found, or the lines of `diff`.
    Object(ShownObject),
}

impl VerbAnswer {
    /// Returns the lines that `ctl` answers with, each with its end.
    pub fn to_line(&self) -> String {
        match self {
            VerbAnswer::Line(line) => format!("{line}\n"),
            VerbAnswer::Object(object) => object.to_line(),
        }
    }
}

impl Verb {
    /// Returns a verb with these arguments. Fails with [`ArgumentError`] for the first argument, in the order of the
    /// spec, that is missing or has a value that is not accepted.
    pub fn new(spec: &'static VerbSpec, arguments: Arguments) -> Result<Verb, ArgumentError> {
        spec.arguments.iter().try_for_each(|argument| argument.check(&arguments))?;
        Ok(Verb { spec, arguments })
    }

    /// Parses a line of `ctl`; `None` if `ctl` has no such verb, or it takes other arguments.
    ///
    /// ```
    /// use engramfs::verb::Verb;
    ///
    /// let verb = Verb::parse("checkpoint v1 before the cleanup").unwrap();
    /// assert_eq!(verb.spec().name, "checkpoint");
    /// assert!(verb.changes());
    /// assert!(Verb::parse("checkpoint").is_none(), "it needs a name");
    /// ```
    pub fn parse(line: &str) -> Option<Verb> {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let spec = VERBS.iter().find(|spec| spec.name == word && spec.channel == Channel::Ctl)?;
        Verb::new(spec, line::parse(spec.arguments, rest.trim())?).ok()
    }

    /// Returns the line that asks `ctl` for it, without its end.
    pub fn to_line(&self) -> String {
        line::write(self.spec, &self.arguments)
    }

    /// Runs the verb, for a caller whose rights were checked. Fails like its method of [`Memory`]; a dry run fails only
    /// if it can't tell what would happen.
    pub fn run(&self, context: &VerbContext<'_>) -> Result<VerbAnswer, Error> {
        (self.spec.run)(context, &self.arguments)
    }

    /// Parses the line that `ctl` answered; `None` if it can't be an answer to this verb.
    pub fn parse_answer(&self, line: &str) -> Option<VerbAnswer> {
        match self.spec.report {
            Report::Object => ShownObject::parse(line).map(VerbAnswer::Object),
            _ => Some(line.trim_end()).filter(|line| !line.is_empty()).map(|line| VerbAnswer::Line(line.to_owned())),
        }
    }

    /// Returns its line of [`VERBS`].
    pub fn spec(&self) -> &'static VerbSpec {
        self.spec
    }

    /// Returns what it was given, checked against its spec.
    pub fn arguments(&self) -> &Arguments {
        &self.arguments
    }

    /// Returns whether it has `--dry-run`, and only says what it would do.
    pub fn is_dry_run(&self) -> bool {
        self.arguments.is_set(&spec::DRY_RUN)
    }

    /// Returns whether it changes the store, which a dry run never does.
    pub fn changes(&self) -> bool {
        self.spec.changes && !self.is_dry_run()
    }

    /// Returns whether it ends its branch; a dry run never does.
    pub fn ends_branch(&self) -> bool {
        self.spec.ends_branch && !self.is_dry_run()
    }

    /// Returns what its caller has to be allowed; for a dry run that may be something else.
    pub fn rights(&self) -> Rights {
        if self.is_dry_run() { self.spec.dry_run.unwrap_or(self.spec.rights) } else { self.spec.rights }
    }
}

/// Returns what can be written to `ctl` in place of a line that is no verb: the form of the verb with which it begins, and what is
/// wrong with an argument, else the form of each verb.
pub fn usage(line: &str) -> String {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let in_ctl = || VERBS.iter().copied().filter(|spec| spec.channel == Channel::Ctl);
    match in_ctl().find(|spec| spec.name == word) {
        Some(spec) => {
            let refused = line::parse(spec.arguments, rest.trim()).and_then(|given| Verb::new(spec, given).err());
            let why = refused.map(|error| format!("; {error}: {}", error.hint())).unwrap_or_default();
            format!("write {}{why}", line::usage(spec))
        }
        None => format!("write one of: {}", in_ctl().map(line::usage).collect::<Vec<_>>().join(", ")),
    }
}
