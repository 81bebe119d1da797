//! One line of the table: all that is known of a verb without its being asked for.

use serde_json::Value;

use super::{Argument, Arguments, VerbAnswer, VerbContext};
use crate::memory::Error;

/// Says what the verb would do, and changes nothing. A verb that takes it says in [`VerbSpec::dry_run`] who may.
pub(super) const DRY_RUN: Argument = Argument::flag("--dry-run", "Says what would be done, and changes nothing");

/// One verb. A new one names what it differs in from [`VerbSpec::for_owner`].
#[derive(Debug)]
pub struct VerbSpec {
    /// The word, in `ctl` and on the command line.
    pub name: &'static str,
    /// Its arguments, in the order in which they are written; empty by default.
    pub arguments: &'static [Argument],
    /// What its caller has to be allowed; by default to own the branch.
    pub rights: Rights,
    /// What the caller of a dry run has to be allowed; none, the default, for the same as `rights`.
    pub dry_run: Option<Rights>,
    /// Whether it changes the store, except for a dry run; true by default.
    pub changes: bool,
    /// Whether the branch is gone afterwards, except for a dry run; false by default.
    pub ends_branch: bool,
    /// Whether it is asked of root branches alone, since it concerns all below one, or the whole store; false by default.
    pub root_only: bool,
    /// How it is asked for in a mount; by default a line of `ctl`.
    pub channel: Channel,
    /// Whether it is a command of the program, too, and with which help; by default it is none.
    pub command: CliForm,
    /// What its command prints; by default the members of its answer.
    pub report: Report,
    /// Does it, for a caller whose rights were checked.
    pub run: Run,
}

/// How a verb is asked for in a mount; [`Verb::parse`](super::Verb::parse) knows those of `Ctl` alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// By a line of the branch's `ctl`, whose reader gets the answer.
    Ctl,
    /// By rmdir(2) of the branch's directory; `ctl` does not know the word.
    Rmdir,
}

/// Whether a verb is a command of the program, too, and who makes it.
#[derive(Clone, Copy, Debug)]
pub enum CliForm {
    /// It is none: only a mount has it.
    None,
    /// It takes a branch and the verb's arguments, and is made from the table.
    FromTable(CliHelp),
    /// It takes something else, and has a file of its own in `cli/commands/`.
    OwnModule,
}

/// The help of a command. Its sentences have no period at the end, as usual with clap.
#[derive(Clone, Copy, Debug)]
pub struct CliHelp {
    /// The first line of its help, also shown in the list of commands.
    pub about: &'static str,
    /// Help of the argument that names the branch.
    pub target: &'static str,
    /// Command lines, two blanks before each.
    pub examples: &'static str,
}

/// Runs a verb, once the rights of its caller were checked.
pub type Run = fn(&VerbContext<'_>, &Arguments) -> Result<VerbAnswer, Error>;

/// What a command prints when its verb was done.
#[derive(Clone, Copy, Debug)]
pub enum Report {
    /// The members of the answer's object; for programs the object itself.
    Facts,
    /// The result of a merge with its conflicts; exit code 3 where it is blocked.
    Merge,
    /// The state that the branch has again, and how that is taken back.
    Rollback,
    /// The target of the child branch whose name that argument has.
    Child(Argument),
    /// What was found: the bytes of a file as they are, else lines of JSON.
    Object,
    /// The target that is gone, and how it comes back.
    Discard,
    /// Nothing for people, and for programs an object made from the target.
    Silent(fn(target: &str, &Arguments) -> Value),
}

/// What a caller has to be allowed at the time of the call: a mount asks for it before it runs the verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// The rights that the verb needs in the branch it is given to.
    pub branch: BranchRight,
    /// What it takes at the parent, too; a root branch has none to ask.
    pub parent: ParentRight,
}

/// What a caller has to be allowed at a branch, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BranchRight {
    /// To enter its directory (execute).
    Enter,
    /// To enter and read its directory (execute and read).
    Read,
    /// To own it, or to be root.
    Own,
    /// To own it or its parent, or to be root.
    OwnBranchOrParent,
}

/// The rights that a verb needs in the branch's parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParentRight {
    /// None. The store may still refuse.
    Nothing,
    /// To enter and read its directory (execute and read).
    Read,
    /// To write to its directory, as rename(2) into it takes.
    Write,
    /// To enter and read its directory and to write to it.
    ReadWrite,
    /// To write to its directory, or to own the branch where the parent has a gate that is not open.
    WriteOrGate,
    /// `WriteOrGate`, and to read its directory.
    ReadWriteOrGate,
}

impl VerbSpec {
    /// Returns a verb of `ctl` that changes the store, by the branch's owner, and has neither arguments nor a command.
    pub const fn for_owner(name: &'static str, run: Run) -> VerbSpec {
        VerbSpec {
            name,
            arguments: &[],
            rights: Rights { branch: BranchRight::Own, parent: ParentRight::Nothing },
            dry_run: None,
            changes: true,
            ends_branch: false,
            root_only: false,
            channel: Channel::Ctl,
            command: CliForm::None,
            report: Report::Facts,
            run,
        }
    }
}
