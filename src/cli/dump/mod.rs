//! A branch and all below it as a plain folder, which other tools can read: docs/FORMAT.md draws it.

mod files;
mod lines;
mod reading;
mod shared;
mod writing;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::exit::Exit;
use super::failure::CommandError;
use crate::memory::check_outside_stores;

pub use reading::import_all;
pub use writing::export_all;

/// What the manifest says that the folder is.
const FORMAT: &str = "engramfs dump";
/// Version of the layout.
const VERSION: u32 = 1;
/// Says what the folder is, and holds all heads.
const MANIFEST: &str = "manifest.json";
/// The records of a state, one a line.
const RECORDS: &str = "records.jsonl";
/// The contents of `files/` of a state, one path a line.
const INDEX: &str = "files.jsonl";
/// The contents of these files, each at its path.
const FILES: &str = "files";
/// The entries of a branch's own shared log, one a line.
const LOG: &str = "log.jsonl";
/// The logs of branches that have ended below it, one file each.
const CLOSED_LOGS: &str = "closed_logs";
/// The signals of its own shared log, one a line.
const SIGNALS: &str = "signals.jsonl";
/// The names of agents below the root branch, one a line, in the folder of the branch that was dumped.
const AGENTS: &str = "agents.jsonl";
const PROPOSAL: &str = "proposal";
/// The settings of a branch, one file each.
const CONFIG: &str = "config";

#[derive(Serialize, Deserialize)]
struct DumpManifest {
    format: String,
    version: u32,
    made_by: String,
    /// The tip of the store that it was taken from.
    tip: String,
    /// The branch that was dumped, with all below it; parents come before children.
    branches: Vec<DumpedBranch>,
    /// The folder of the state with each head that bases and checkpoints name.
    states: BTreeMap<String, PathBuf>,
    /// The name that each uid had when it was first seen.
    #[serde(default)]
    users: BTreeMap<u32, String>,
    /// How many names of agents there are; nothing in a dump of a release that wrote none.
    #[serde(default)]
    agents: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct DumpedBranch {
    path: String,
    /// Where its present state is stored.
    folder: PathBuf,
    owner: u32,
    /// In octal.
    mode: String,
    created: String,
    head: String,
    /// Head of the state of its parent that it was forked from or joined with last.
    base: String,
    checkpoints: Vec<DumpedCheckpoint>,
    /// Its own shared log, where that has entries.
    #[serde(default)]
    log: Option<DumpedLog>,
    /// The entry of its shared log up to which it has read.
    #[serde(default)]
    cursor: u64,
    /// The last entry of its shared log when it got its base.
    #[serde(default)]
    log_at_base: u64,
    #[serde(default)]
    closed_logs: Vec<DumpedClosedLog>,
    /// How many signals its own shared log has.
    #[serde(default)]
    signals: u64,
    #[serde(default)]
    proposal: Option<DumpedProposal>,
    /// Whether its rules came from a parent; nothing in a dump of a release that did not tell.
    #[serde(default)]
    inherits_rules: Option<bool>,
}

#[derive(Serialize, Deserialize)]
struct DumpedLog {
    entries: u64,
    /// Entries up to this one are archived.
    archived: u64,
    head: String,
}

#[derive(Serialize, Deserialize)]
struct DumpedClosedLog {
    /// That branch's name, `@` and the number of the entry that ended it.
    name: String,
    #[serde(flatten)]
    log: DumpedLog,
}

#[derive(Serialize, Deserialize)]
struct DumpedProposal {
    head: String,
    /// Head of the base that the branch had then.
    base: String,
    time: String,
    text: String,
}

#[derive(Serialize, Deserialize)]
struct DumpedCheckpoint {
    label: String,
    head: String,
    time: String,
    text: String,
}

impl DumpedBranch {
    /// Returns the base that it had first, as far as that is known: what it proposes keeps the one of then.
    fn first_base(&self) -> &str {
        self.proposal.as_ref().map_or(&self.base, |proposal| &proposal.base)
    }
}

impl DumpManifest {
    /// Refuses a file with another number of lines than there should be.
    fn check_lines(&self, file: &Path, counted: u64, expected: u64) -> Result<(), CommandError> {
        if counted == expected {
            return Ok(());
        }
        Err(damaged(format!("{} has {counted} lines, and {MANIFEST} says {expected}", file.display())))
    }

    fn state(&self, head: &str) -> Result<&Path, CommandError> {
        self.states
            .get(head)
            .map(PathBuf::as_path)
            .ok_or_else(|| damaged(format!("it names no folder for the state {head}")))
    }

    /// Refuses what leads out of the folder.
    fn check(&self) -> Result<(), CommandError> {
        if self.format != FORMAT || self.version != VERSION {
            let message = format!("the dump is of version {} and this is {VERSION}", self.version);
            return Err(CommandError::new(Exit::Failed, "dump_version", message, "use the release that made it"));
        }
        let folders = self.branches.iter().map(|branch| &branch.folder).chain(self.states.values());
        for folder in folders {
            if !folder.components().all(|part| matches!(part, Component::Normal(_))) {
                return Err(damaged(format!("the folder {} leads out of the dump", folder.display())));
            }
        }
        if self.branches.is_empty() { Err(damaged("it has no branch")) } else { Ok(()) }
    }
}

/// Lets `fill` fill a new folder beside `place`, which gets that name when all is there: what broke off is never taken for
/// whole. Nobody but its maker may enter it. Nothing that is there already is touched, and nothing made in a store.
fn create_atomically<T>(place: &Path, fill: impl FnOnce(&Path) -> Result<T, CommandError>) -> Result<T, CommandError> {
    // Without a slash behind it: the other name is beside it, and not in it.
    let place = &place.components().collect::<PathBuf>();
    let Some(name) = place.file_name() else {
        let message = format!("{} is no name for a new folder", place.display());
        return Err(CommandError::usage(message, "name a folder that is not there"));
    };
    let mut part = name.to_owned();
    part.push(".part");
    let part = place.with_file_name(part);
    let is_used = fs::read_dir(place).is_ok_and(|mut entries| entries.next().is_some());
    let found =
        [(place, is_used || place.is_file()), (&part, part.exists())].into_iter().find(|(_, is_there)| *is_there);
    if let Some((found, _)) = found {
        let message = format!("{} is there already", found.display());
        let hint = "name a folder that is not there, or remove what is left of an earlier try";
        return Err(CommandError::usage(message, hint));
    }
    check_outside_stores(place)?;
    create_private_dir(&part).map_err(|error| CommandError::file("made", &part, &error))?;
    let filled = fill(&part).and_then(|value| {
        // A folder that is empty may be there; rename(2) puts the new one in its place.
        fs::rename(&part, place).map_err(|error| CommandError::file("made", place, &error))?;
        Ok(value)
    });
    if filled.is_err() {
        let _ = fs::remove_dir_all(&part);
    }
    filled
}

/// Makes a folder that is its maker's alone, and those above it where they are missing: what is in branches and files that
/// are closed to others lies open in it, whatever the umask lets through.
fn create_private_dir(folder: &Path) -> io::Result<()> {
    if let Some(above) = folder.parent().filter(|above| !above.as_os_str().is_empty()) {
        fs::create_dir_all(above)?;
    }
    DirBuilder::new().mode(0o700).create(folder)
}

/// Returns the failure of a dump that is not as it was written.
fn damaged(what: impl std::fmt::Display) -> CommandError {
    CommandError::new(Exit::Damaged, "damaged_dump", format!("the dump is damaged: {what}"), "take the dump anew")
}
