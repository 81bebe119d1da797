//! One line of the table: all that is known of a verb without its being asked for.

use serde_json::Value;

use super::{Argument, Arguments, VerbAnswer, VerbContext};
use crate::memory::Error;

/// Says what the verb would do, and changes nothing. A verb that takes it says in [`VerbSpec::dry_run`] who may.
pub(super) const DRY_RUN: Argument = Argument::flag("--dry-run", "Says what would be done, and changes nothing");

/// One verb. A new one names what it differs in from [`VerbSpec::of_owner`].
#[derive(Debug)]
pub struct VerbSpec {
    /// The word, in `ctl` and on the command line.
    pub name: &'static str,
    /// Its arguments, in the order in which they are written.
    pub arguments: &'static [Argument],
    /// What its caller has to be allowed.
    pub rights: Rights,
    /// The same for a dry run, where that asks for something else.
    pub dry_run: Option<Rights>,
    /// Whether it changes the store, but for a dry run.
    pub changes: bool,
    /// Whether the branch is gone afterwards, but for a dry run.
    pub ends_branch: bool,
    /// Whether it is asked for at root branches alone, since it concerns the whole store.
    pub root_only: bool,
    /// How it is asked for in a mount.
    pub channel: Channel,
    /// Whether it is a command of the program, too, and with which help.
    pub command: CliForm,
    /// What its command prints.
    pub report: Report,
    /// Does it, for a caller whose rights were checked.
    pub run: Run,
}

/// How a verb is asked for in a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// By a line of `ctl`.
    Ctl,
    /// By rmdir(2) of the branch's directory.
    Rmdir,
}

/// Whether a verb is a command, too.
#[derive(Clone, Copy, Debug)]
pub enum CliForm {
    /// It is none: only a mount has it.
    Lacking,
    /// It takes a branch and the verb's arguments.
    OfTable(CliHelp),
    /// It takes something else, and has a file of its own in `cli/commands/`.
    OwnFile,
}

/// What the help of a command says. None of the sentences ends in a period, as clap has it.
#[derive(Clone, Copy, Debug)]
pub struct CliHelp {
    /// What it does, as the list of commands and its own page begin.
    pub about: &'static str,
    /// Help of the argument that names the branch.
    pub target: &'static str,
    /// Command lines, two blanks before each.
    pub examples: &'static str,
}

/// Does a verb, once the rights of its caller were checked.
pub type Run = fn(&VerbContext<'_>, &Arguments) -> Result<VerbAnswer, Error>;

/// What a command prints when its verb was done.
#[derive(Clone, Copy, Debug)]
pub enum Report {
    /// The answer's members.
    Facts,
    /// The result of a merge with its conflicts; exit code 3 where it is blocked.
    Merge,
    /// The state that the branch has again, and how that is taken back.
    Rollback,
    /// The target of the child branch of that name.
    Child(Argument),
    /// What was found.
    Object,
    /// The target that is gone, and how it comes back.
    Discard,
    /// Nothing for people, and for programs an object made from the target.
    Silent(fn(target: &str, &Arguments) -> Value),
}

/// What a caller has to be allowed at the time of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// At the branch that it is asked of.
    pub branch: BranchRight,
    /// At its parent; a root branch has none to ask.
    pub parent: ParentRight,
}

/// What a caller has to be allowed at a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BranchRight {
    /// To enter its directory.
    Enter,
    /// To read its directory.
    Read,
    /// To own it.
    Own,
    /// To own it or its parent.
    OwnEither,
}

/// What a caller has to be allowed at a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParentRight {
    /// Nothing is asked of the mount; the memory may refuse for reasons of its own.
    Nothing,
    /// To read its directory.
    Read,
    /// To write to its directory.
    Write,
    /// Both.
    ReadWrite,
    /// To write to its directory, or to own the branch where the parent has a gate that is not open.
    WriteOrGate,
    /// The same, and to read its directory.
    ReadWriteOrGate,
}

impl VerbSpec {
    /// Returns a verb of `ctl` that changes the store, by the branch's owner, and has neither arguments nor a command.
    pub const fn of_owner(name: &'static str, run: Run) -> VerbSpec {
        VerbSpec {
            name,
            arguments: &[],
            rights: Rights { branch: BranchRight::Own, parent: ParentRight::Nothing },
            dry_run: None,
            changes: true,
            ends_branch: false,
            root_only: false,
            channel: Channel::Ctl,
            command: CliForm::Lacking,
            report: Report::Facts,
            run,
        }
    }
}
