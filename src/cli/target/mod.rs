//! What the verbs act on: a branch, through its directory under a mount or straight in its store.

mod attempt;
mod control;
mod find_store;
mod lineage;
mod mounted;
mod unmounted;
mod unreachable;

use std::fmt;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub use find_store::{allows_others, find_mounted_store, find_store_without_sync};
pub use mounted::MountedBranch;
pub use unmounted::open_store;
pub use unreachable::{access_error, open_error};

use super::actor;
use super::exit::Exit;
use super::failure::CommandError;
use super::formats::InputRow;
use crate::memory::{Document, Environment, Export, Memory, OpenMode, Revision};
use crate::verb::{Verb, VerbAnswer};
use lineage::Lineage;
use unmounted::UnmountedBranch;
use unreachable::{dead_mount, listing_error};

/// The root branch that every store has.
const MAIN: &str = "main";

/// The branch that a command is for, by the way that leads to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The branch's directory under a mount, absolute and without links.
    Mounted(PathBuf),
    /// A branch of a store that is not mounted.
    Unmounted {
        /// The store's directory.
        store: PathBuf,
        /// The branch's names from the root, as in `main/agent-7`.
        name_path: String,
    },
}

/// What a verb does with a branch that is not mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Looks only, and takes no lock: a process that serves the store may be at work.
    Read,
    /// Changes something, so that no other process may have the store.
    Write,
    /// Changes something, in a store that is made where it is not there yet.
    Create,
}

/// A branch, however it is reached: each verb is written once against this.
///
/// What the store refuses fails with the exit code of the error's kind; in a mount, with that of the errno and of what
/// the branch's `errors` says of it.
pub trait BranchAccess {
    /// Does a verb. Fails with what the store says of the refused verb; in a mount also with code `not_json` if `ctl`
    /// answers anything but JSON.
    fn run(&self, verb: &Verb) -> Result<VerbAnswer, CommandError>;
    /// Deletes a checkpoint. Fails with [`Exit::Missing`] if there is none with that label.
    fn delete_checkpoint(&self, label: &str) -> Result<(), CommandError>;
    /// Returns a generated document. Fails with [`Exit::Missing`] if the branch has ended.
    fn document(&self, document: Document) -> Result<String, CommandError>;
    /// Returns the branches below it, as `branches.jsonl` lists them. Fails with [`Exit::Missing`] if it has ended.
    fn branches(&self) -> Result<String, CommandError>;
    /// Returns its lineage. Fails with [`Exit::Missing`] if the branch has ended.
    fn lineage(&self) -> Result<Lineage, CommandError>;
    /// Returns whether a state of it that is named by a label, an entry or a time can be looked at. False for what is past
    /// `config/keep` and for what names nothing; fails if that can't be looked up.
    fn has_state(&self, revision: &Revision) -> Result<bool, CommandError>;
    /// Returns the lines of its lineage and of all branches ever forked below it, merged or not, oldest first. Fails if
    /// an archive is damaged; in a mount, where neither the store beside it nor its file `lineage` can be read.
    fn lineage_below(&self) -> Result<Vec<String>, CommandError>;
    /// Opens a session of queries and answers. Fails in a mount alone, where `query` can't be opened.
    fn open_session(&self) -> Result<Box<dyn QuerySession + '_>, CommandError>;
    /// Returns exports that all show the same state. Fails with [`Exit::Missing`] if the branch has ended; in a mount
    /// with code `changing` if its head moved between the opens ten times.
    fn exports(&self, wanted: &[Export]) -> Result<StateExports, CommandError>;
    /// Writes rows as one atomic commit, and returns its receipt. Fails with what the store says of the rows that it
    /// refuses, where it can with `line N: ` in front, counted from 1, and none is written then; in a mount also with code `not_json`.
    fn put(&self, rows: Vec<InputRow>) -> Result<Value, CommandError>;
    /// Returns how many bytes of rows, by [`InputRow::size`], one commit should take.
    fn batch_bytes(&self) -> usize;
}

/// Several exports of one state, although the branch may change while they are read.
pub struct StateExports {
    /// In the order in which they were asked for.
    pub readers: Vec<Box<dyn Read>>,
    /// How many records the state has.
    pub records: u64,
}

/// Queries and their answers in order.
pub trait QuerySession {
    /// Returns the answer to one query: a header line, then a line for each hit. Fails for a query that is none or that
    /// the store refuses; the session goes on.
    fn query(&mut self, query: &str) -> Result<String, CommandError>;
}

impl Target {
    /// Returns what `text` names.
    ///
    /// An existing path on a mount has to be a branch's directory; anything else is read as `STORE:NAME-PATH`. Fails
    /// with exit code 2 where a store is named without a branch, else where there is neither a branch's directory nor a
    /// store; with exit code 1 for what is closed to the caller, or on a mount whose server has ended. Nothing is opened yet.
    pub fn parse(text: &Path) -> Result<Target, CommandError> {
        if let Ok(path) = text.canonicalize()
            && let Ok(Some(_)) = find_mounted_store(&path)
        {
            return Target::in_mount(path);
        }
        match find_store::split_at_store(text) {
            Some((_, name_path)) if name_path.is_empty() => {
                let message = format!("{} names no branch", text.display());
                Err(CommandError::usage(message, format!("write {}main", text.display())))
            }
            Some((store, name_path)) => Ok(Target::Unmounted { store, name_path }),
            None => Err(access_error(text).unwrap_or_else(|| no_target(text))),
        }
    }

    fn in_mount(path: PathBuf) -> Result<Target, CommandError> {
        if find_store::is_branch_directory(&path) {
            return Ok(Target::Mounted(path));
        }
        if let Some(error) = listing_error(&path) {
            return Err(error);
        }
        let message = format!("{} is on a mount of engramfs but is no branch", path.display());
        Err(CommandError::new(Exit::Missing, "no_branch", message, "name a branch's directory, such as MNT/main"))
    }

    /// Returns the branch to ask about a whole store: `main` of the store or mount at `store`, or the branch whose
    /// directory `store` is. Fails if it is a mount whose server has ended; any other path that can't be looked at counts
    /// as a store.
    pub fn for_store(store: &Path) -> Result<Target, CommandError> {
        if let Some(dead) = dead_mount(store) {
            return Err(dead);
        }
        Ok(match find_mounted_store(store) {
            Ok(Some(_)) if find_store::is_branch_directory(store) => Target::Mounted(store.to_owned()),
            Ok(Some(_)) => Target::Mounted(store.join(MAIN)),
            _ => Target::Unmounted { store: store.to_owned(), name_path: MAIN.to_owned() },
        })
    }

    /// Opens the branch, lets `act` work with it and closes it again. An error of `act` comes before one of closing.
    /// Fails like opening the store, where it is not mounted.
    pub fn with_branch<T>(
        &self,
        access: Access,
        act: impl FnOnce(&dyn BranchAccess) -> Result<T, CommandError>,
    ) -> Result<T, CommandError> {
        match self {
            Target::Mounted(directory) => act(&MountedBranch::new(directory)),
            Target::Unmounted { store, name_path } => {
                let branch = UnmountedBranch::open(store, name_path, access)?;
                let result = act(&branch);
                let closed = branch.close();
                let value = result?;
                closed?;
                Ok(value)
            }
        }
    }

    /// Returns the store that the branch is in, and its name path there. Fails if the directory is on no mount any
    /// more, or its status can't be read.
    pub fn store_and_path(&self) -> Result<(PathBuf, String), CommandError> {
        match self {
            Target::Unmounted { store, name_path } => Ok((store.clone(), name_path.clone())),
            Target::Mounted(directory) => {
                let store = find_mounted_store(directory).ok().flatten().ok_or_else(|| no_target(directory))?;
                let status = MountedBranch::new(directory).document(Document::Status)?;
                let status: Value = serde_json::from_str(&status).unwrap_or_default();
                Ok((store, status["path"].as_str().unwrap_or_default().to_owned()))
            }
        }
    }

    /// Returns whether another target is reached the same way: in the same mount, or in the same store.
    pub fn is_in_same_store(&self, other: &Target) -> bool {
        match (self, other) {
            (Target::Mounted(one), Target::Mounted(other)) => {
                let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev()).ok();
                device(one).is_some() && device(one) == device(other)
            }
            (Target::Unmounted { store: one, .. }, Target::Unmounted { store: other, .. }) => one == other,
            _ => false,
        }
    }

    /// Returns the owner of the branch, if that is neither the caller nor a user as whom the caller may act; `None` also
    /// without a mount, where whoever can open the store may change all of it.
    pub fn foreign_owner(&self) -> Option<u32> {
        let Target::Mounted(directory) = self else { return None };
        let (owner, caller) = (std::fs::metadata(directory).ok()?.uid(), actor::current().uid);
        (caller != 0 && caller != owner).then_some(owner)
    }

    /// Returns the target of the branch's parent, and the branch's name; `None` for a root branch, and for one whose
    /// parent can't be reached above it.
    pub fn parent(&self) -> Option<(Target, String)> {
        match self {
            Target::Mounted(directory) => {
                let name = directory.file_name()?.to_str()?.to_owned();
                let parent = directory.parent().filter(|folder| folder.ends_with("branches"))?.parent()?;
                // A mount of this branch alone may be called alike.
                if !find_store::is_branch_directory(parent) {
                    return None;
                }
                Some((Target::Mounted(parent.to_owned()), name))
            }
            Target::Unmounted { store, name_path } => {
                let (parent, name) = name_path.rsplit_once('/')?;
                Some((Target::Unmounted { store: store.clone(), name_path: parent.to_owned() }, name.to_owned()))
            }
        }
    }

    /// Returns the target of a child branch; whether there is one is not looked at.
    pub fn child(&self, name: &str) -> Target {
        match self {
            Target::Mounted(directory) => Target::Mounted(directory.join("branches").join(name)),
            Target::Unmounted { store, name_path } => {
                Target::Unmounted { store: store.clone(), name_path: format!("{name_path}/{name}") }
            }
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Mounted(directory) => write!(f, "{}", directory.display()),
            Target::Unmounted { store, name_path } => write!(f, "{}:{name_path}", store.display()),
        }
    }
}

impl std::str::FromStr for Target {
    type Err = CommandError;

    fn from_str(text: &str) -> Result<Target, CommandError> {
        Target::parse(Path::new(text))
    }
}

fn no_target(text: &Path) -> CommandError {
    let shown = text.display();
    if let Some(message) = mounted::how_branch_ended(text) {
        return CommandError::new(Exit::Missing, "gone", message, "name another branch, or fork it again");
    }
    let (message, hint) = if text.is_dir() {
        (
            format!("{shown} is not under a mount of engramfs"),
            format!("for a store that is not mounted write {shown}:main"),
        )
    } else {
        (format!("there is no {shown}"), "name a branch's directory under a mount, or STORE:NAME-PATH".to_owned())
    };
    CommandError::new(Exit::Missing, "no_branch", message, hint)
}

/// Makes a new store and returns its tip. Fails if there is a store already; what was made is removed after any failure.
pub fn create_store(store: &Path) -> Result<String, CommandError> {
    let tip = Memory::create(store, &unmounted::holder(), Environment::real(actor::current()))?;
    Ok(tip.to_string())
}

/// Returns what the clock and the last entry of a store say; with `reset` times follow the clock again. Without `reset`
/// the store is only read. Fails like opening the store; with `reset` also where another process has it.
pub fn check_or_reset_clock(store: &Path, reset: bool) -> Result<Value, CommandError> {
    if !reset {
        return Ok(unmounted::open_store(store, OpenMode::ReadOnly)?.clock());
    }
    let memory = unmounted::open_store(store, OpenMode::Existing)?;
    let report = memory.reset_clock(&actor::current());
    let closed = memory.close();
    let report = report?;
    closed?;
    Ok(report)
}

/// Moves entries of a store that no process serves out of its lineage; returns what moved, or would with `dry_run`.
/// Fails if another process has the store, unless `dry_run` is given, and as `Memory::archive_lineage` does.
pub fn archive(store: &Path, before: &Revision, dry_run: bool) -> Result<Value, CommandError> {
    let mode = if dry_run { OpenMode::ReadOnly } else { OpenMode::Existing };
    let memory = unmounted::open_store(store, mode)?;
    let report = memory.archive_lineage(&actor::current(), before, dry_run);
    let closed = memory.close();
    let report = report?;
    closed?;
    Ok(report)
}

/// Calls `each` with the line of every entry of a store that was moved out; returns the ranges of numbers that no file
/// has. Fails if a file of the folder `archive` is damaged; `each` was called for entries before it.
pub fn archived_lines(store: &Path, each: impl FnMut(&str)) -> Result<Vec<(u64, u64)>, CommandError> {
    Ok(unmounted::open_store(store, OpenMode::ReadOnly)?.archived_lines(each)?)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_store_and_a_name_path_make_a_target() {
        let target: Target = "/no/such:main/x".parse().unwrap();
        assert_eq!(target, Target::Unmounted { store: "/no/such".into(), name_path: "main/x".into() });
        assert_eq!(target.to_string(), "/no/such:main/x");
        assert_eq!(target.child("y").to_string(), "/no/such:main/x/y");
    }

    #[test]
    fn what_is_no_branch_is_missing_and_says_what_to_write() {
        let directory = "/tmp".parse::<Target>().unwrap_err();
        assert_eq!((directory.exit, directory.hint.contains("/tmp:main")), (Exit::Missing, true));
        assert_eq!("/no/such".parse::<Target>().unwrap_err().exit, Exit::Missing);
        assert_eq!("/tmp:".parse::<Target>().unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn a_mounted_child_is_a_directory_below() {
        let target = Target::Mounted("/m/main".into());
        assert_eq!(target.child("x").to_string(), "/m/main/branches/x");
    }
}
