//! A branch and all below it as a plain folder, which other tools can read: docs/FORMAT.md draws it.

mod files;
mod reading;
mod writing;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::exit::Exit;
use super::failure::CommandError;

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
/// What stands in `files/` of a state, one path a line.
const INDEX: &str = "files.jsonl";
/// The contents of these files, each at its path.
const FILES: &str = "files";
/// The entries of a branch's own shared log, one a line.
const LOG: &str = "log.jsonl";
/// The settings of a branch, one file each.
const CONFIG: &str = "config";

/// What is in a dump.
#[derive(Serialize, Deserialize)]
struct Manifest {
    format: String,
    version: u32,
    made_by: String,
    /// The tip of the store that it was taken from.
    tip: String,
    /// The branch that was dumped, with all below it; parents come before children.
    branches: Vec<DumpedBranch>,
    /// The folder of the state with each head that bases and checkpoints name.
    states: BTreeMap<String, PathBuf>,
}

/// One branch.
#[derive(Serialize, Deserialize)]
struct DumpedBranch {
    /// Its name path.
    path: String,
    /// Where its present state stands.
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
}

/// A shared log.
#[derive(Serialize, Deserialize)]
struct DumpedLog {
    entries: u64,
    /// Entries up to this one are archived.
    archived: u64,
    head: String,
}

/// One checkpoint.
#[derive(Serialize, Deserialize)]
struct DumpedCheckpoint {
    label: String,
    head: String,
    time: String,
    text: String,
}

impl Manifest {
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
/// whole. Nothing that is there already is touched.
fn whole_or_not_at_all<T>(
    place: &Path,
    fill: impl FnOnce(&Path) -> Result<T, CommandError>,
) -> Result<T, CommandError> {
    let mut part = place.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let is_used = fs::read_dir(place).is_ok_and(|mut entries| entries.next().is_some());
    let found =
        [(place, is_used || place.is_file()), (&part, part.exists())].into_iter().find(|(_, is_there)| *is_there);
    if let Some((found, _)) = found {
        let message = format!("{} is there already", found.display());
        let hint = "name a folder that is not there, or remove what is left of an earlier try";
        return Err(CommandError::usage(message, hint));
    }
    fs::create_dir_all(&part).map_err(|error| CommandError::file("made", &part, &error))?;
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

/// Returns the failure of a dump that is not as it was written.
fn damaged(what: impl std::fmt::Display) -> CommandError {
    CommandError::new(Exit::Damaged, "damaged_dump", format!("the dump is damaged: {what}"), "take the dump anew")
}
