//! A branch under a mount, reached through the files of its directory.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::de::IgnoredAny;
use serde_json::Value;

use super::attempt::Attempt;
use super::control;
use super::find_store::{find_mounted_store, is_branch_directory};
use super::lineage::Lineage;
use super::unmounted::UnmountedBranch;
use super::{Access, BranchAccess, QuerySession, StateExports};
use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::formats::InputRow;
use crate::memory::{Document, Export, Revision, SKIP_UNCHANGED_LINE};
use crate::verb::{Channel, Verb, VerbAnswer};

/// Bytes of rows in one batch; as JSON Lines, which the mount keeps until the commit, vectors take about three times as much.
const BATCH_BYTES: usize = 24 << 20;
/// How often exports are opened again because the branch changed between two of them.
const REOPENS_MAX: usize = 10;

/// How long a branch is tried to be discarded in which something is still being written.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(3);
/// How long to wait before the next try.
const PAUSE: Duration = Duration::from_millis(20);

/// What to do where a mount answers with something else than expected.
const VERSIONS_DIFFER_HINT: &str = "check that mount and program are of one version";

/// A branch as the files of its mount show it; nothing of the store is opened.
pub struct MountedBranch<'a> {
    directory: &'a Path,
}

impl<'a> MountedBranch<'a> {
    /// Takes the directory of a branch and looks at nothing yet.
    pub fn new(directory: &'a Path) -> MountedBranch<'a> {
        MountedBranch { directory }
    }

    fn attempt(&self, file: &str, what: &str) -> Attempt<'a> {
        Attempt::new(self.directory, file, format!("{what} {}", self.directory.display()))
    }

    fn read(&self, file: &str) -> Result<String, CommandError> {
        let attempt = self.attempt(file, &format!("reading {file} of"));
        fs::read_to_string(self.directory.join(file)).map_err(|e| attempt.failed(&e))
    }

    /// Writes a verb to `ctl` and returns what that answers.
    fn send_verb(&self, verb: &Verb) -> Result<VerbAnswer, CommandError> {
        verb.arguments().check_names(verb.spec().arguments)?;
        let attempt = self.attempt("ctl", &format!("the verb {} on", verb.spec().name));
        let answer = control::exchange(&self.directory.join("ctl"), format!("{}\n", verb.to_line()).as_bytes())
            .map_err(|refused| attempt.exchange_failed(&refused))?;
        for line in answer.lines() {
            serde_json::from_str::<IgnoredAny>(line).map_err(|e| not_json("ctl", &e))?;
        }
        let no_answer = || CommandError::new(Exit::Failed, "not_json", "the mount shows no JSON", VERSIONS_DIFFER_HINT);
        verb.parse_answer(&answer).ok_or_else(no_answer)
    }

    /// Returns a setting, empty if it is unset. Without a line end. Fails if the file can't be read.
    pub fn setting(&self, setting: &str) -> Result<String, CommandError> {
        Ok(self.read(&format!("config/{setting}"))?.trim_end().to_owned())
    }

    /// Sets a setting. Fails with what the mount says: a value that the setting can't have, or a user who may not set
    /// it.
    pub fn set(&self, setting: &str, value: &str) -> Result<(), CommandError> {
        let file = format!("config/{setting}");
        let attempt = self.attempt(&file, &format!("setting {setting} of"));
        fs::write(self.directory.join(&file), format!("{value}\n")).map_err(|e| attempt.failed(&e))
    }

    /// Holds its lease for as long as the file is open. Fails if the file can't be opened.
    pub fn lease(&self) -> Result<File, CommandError> {
        File::open(self.directory.join("lease")).map_err(|e| self.attempt("lease", "holding the lease of").failed(&e))
    }

    /// Appends an entry to its shared log. Fails with what the mount says of the refused line.
    pub fn append_to_log(&self, entry: &Value) -> Result<(), CommandError> {
        let attempt = self.attempt("shared/log/append", "appending to the shared log of");
        let path = self.directory.join("shared/log/append");
        control::exchange(&path, format!("{entry}\n").as_bytes())
            .map(drop)
            .map_err(|refused| attempt.exchange_failed(&refused))
    }

    /// Discards it with the branches below it, and waits a moment for files that processes had open which were killed.
    /// Fails like the last try.
    pub fn discard_when_closed(&self) -> Result<(), CommandError> {
        let end = Instant::now() + DISCARD_TIMEOUT;
        loop {
            match self.discard_all() {
                Err(error) if error.exit == Exit::Failed && Instant::now() < end => std::thread::sleep(PAUSE),
                done => return done,
            }
        }
    }

    fn discard_all(&self) -> Result<(), CommandError> {
        for child in fs::read_dir(self.directory.join("branches")).into_iter().flatten().flatten() {
            MountedBranch::new(&child.path()).discard_all()?;
        }
        self.discard()
    }

    fn discard(&self) -> Result<(), CommandError> {
        let mut attempt = self.attempt(".", "discarding");
        if let (Ok(parent), Some(name)) = (self.parent(), self.directory.file_name()) {
            attempt.add_branch(parent, format!("branches/{}", name.display()));
        }
        fs::remove_dir(self.directory).map_err(|e| match e.raw_os_error() {
            // The kernel refuses that itself, and the branch has no line of it.
            Some(libc::EBUSY) if is_mountpoint(self.directory) => CommandError::new(
                Exit::Failed,
                "not_permitted",
                "the branch that is mounted can't end while it is",
                "unmount it, then discard it as STORE:NAME-PATH, or discard it in a mount of its parent",
            ),
            _ => attempt.failed(&e),
        })
    }

    /// Writes a line to `ctl`, and returns the object that it answers. Fails with what the mount says of the refused
    /// line, or if the answer is not JSON.
    pub fn send_line(&self, line: &str) -> Result<Value, CommandError> {
        let word = line.split(' ').next().unwrap_or(line);
        let attempt = self.attempt("ctl", &format!("the verb {word} on"));
        let answer = control::exchange(&self.directory.join("ctl"), format!("{line}\n").as_bytes())
            .map_err(|refused| attempt.exchange_failed(&refused))?;
        serde_json::from_str(&answer).map_err(|e| not_json("ctl", &e))
    }

    /// Returns its status. Fails if it can't be read, or is not JSON.
    pub fn status(&self) -> Result<Value, CommandError> {
        serde_json::from_str(&self.read("status")?).map_err(|e| not_json("status", &e))
    }

    fn name_path(&self) -> Result<String, CommandError> {
        Ok(self.status()?.get("path").and_then(Value::as_str).unwrap_or_default().to_owned())
    }

    /// Returns the directory of the parent, which a merge renames into.
    fn parent(&self) -> Result<&'a Path, CommandError> {
        let siblings = self.directory.parent().filter(|above| above.ends_with("branches"));
        siblings.and_then(Path::parent).filter(|parent| is_branch_directory(parent)).ok_or_else(|| {
            let message = format!("{} has no parent that can be reached from here", self.directory.display());
            CommandError::new(
                Exit::Failed,
                "no_parent",
                message,
                "name a branch under branches/; in a mount of one branch use promote",
            )
        })
    }

    /// Opens the store beside the process that serves the mount, to look at what no file of the mount shows.
    fn open_store(&self) -> Result<UnmountedBranch, CommandError> {
        let attempt = self.attempt(".", "finding the store of");
        let store = find_mounted_store(self.directory).map_err(|e| attempt.failed(&e))?;
        let store = store.ok_or_else(|| attempt.failed(&io::ErrorKind::NotFound.into()))?;
        UnmountedBranch::open(&store, &self.name_path()?, Access::Read)
    }

    /// Adds the lines that `lineage` shows here and in the branches below, by their numbers.
    fn collect_lineage(&self, found: &mut BTreeMap<u64, String>) -> Result<(), CommandError> {
        for line in self.read("lineage")?.lines() {
            let entry: Value = serde_json::from_str(line).map_err(|e| not_json("lineage", &e))?;
            found.insert(entry["seq"].as_u64().unwrap_or_default(), line.to_owned());
        }
        let children = fs::read_dir(self.directory.join("branches")).into_iter().flatten().flatten();
        for child in children {
            // A branch that goes away meanwhile, or is not ours to read, is not a reason to show nothing.
            let _ = MountedBranch::new(&child.path()).collect_lineage(found);
        }
        Ok(())
    }

    fn open_exports(&self, wanted: &[Export]) -> Result<Vec<Box<dyn Read>>, CommandError> {
        let open = |export: &Export| -> Result<Box<dyn Read>, CommandError> {
            let path = format!("export/{}", export_file_name(*export));
            let attempt = self.attempt(&path, "exporting");
            Ok(Box::new(File::open(self.directory.join(path)).map_err(|e| attempt.failed(&e))?))
        };
        wanted.iter().map(open).collect()
    }
}

impl BranchAccess for MountedBranch<'_> {
    fn run(&self, verb: &Verb) -> Result<VerbAnswer, CommandError> {
        match verb.spec().channel {
            Channel::Rmdir => self.discard().map(|()| VerbAnswer::Line(String::new())),
            Channel::Ctl if verb.spec().changes => self.send_verb(verb),
            Channel::Ctl => {
                // A checkpoint takes no verb, and its branch knows all that is in it.
                let checkpoints = self.directory.parent().filter(|above| above.ends_with("checkpoints"));
                MountedBranch::new(checkpoints.and_then(Path::parent).unwrap_or(self.directory)).send_verb(verb)
            }
        }
    }

    fn delete_checkpoint(&self, label: &str) -> Result<(), CommandError> {
        let attempt = self.attempt(&format!("checkpoints/{label}"), &format!("deleting checkpoint {label} of"));
        fs::remove_dir(self.directory.join("checkpoints").join(label)).map_err(|e| attempt.failed(&e))
    }

    fn document(&self, document: Document) -> Result<String, CommandError> {
        self.read(document.file_name())
    }

    fn branches(&self) -> Result<String, CommandError> {
        self.read("branches.jsonl")
    }

    fn lineage(&self) -> Result<Lineage, CommandError> {
        let attempt = self.attempt("lineage", "reading lineage of");
        File::open(self.directory.join("lineage")).and_then(Lineage::from_file).map_err(|e| attempt.failed(&e))
    }

    fn has_state(&self, revision: &Revision) -> Result<bool, CommandError> {
        match self.directory.join("at").join(revision.to_string()).symlink_metadata() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.attempt("at", "looking at").failed(&error)),
        }
    }

    fn lineage_below(&self) -> Result<Vec<String>, CommandError> {
        self.open_store().and_then(|store| store.lineage_below()).or_else(|failure| {
            log::info!(
                "the store can't be read beside its mount ({}); discarded branches are left out",
                failure.message
            );
            let mut found = BTreeMap::new();
            self.collect_lineage(&mut found)?;
            Ok(found.into_values().collect())
        })
    }

    fn open_session(&self) -> Result<Box<dyn QuerySession + '_>, CommandError> {
        let attempt = self.attempt("query", "asking");
        let file = control::open(&self.directory.join("query")).map_err(|e| attempt.failed(&e))?;
        Ok(Box::new(MountedSession { branch: self, file }))
    }

    fn exports(&self, wanted: &[Export]) -> Result<StateExports, CommandError> {
        for _ in 0..REOPENS_MAX {
            // Each file shows the state at its open, so that all show one state if the head stayed meanwhile.
            let before = self.status()?;
            let readers = self.open_exports(wanted)?;
            if self.status()?["head"] == before["head"] {
                let records = before["records"].as_u64().unwrap_or_default();
                return Ok(StateExports { readers, records });
            }
        }
        let message = format!("{} changes too fast to be exported", self.directory.display());
        Err(CommandError::new(Exit::Failed, "changing", message, "take a checkpoint, fork it and export the fork"))
    }

    fn put(&self, rows: Vec<InputRow>) -> Result<Value, CommandError> {
        let write = |lines: &[u8]| {
            let attempt = self.attempt("ingest", "importing into");
            control::exchange(&self.directory.join("ingest"), lines)
                .map_err(|refused| attempt.exchange_failed(&refused))
        };
        let text = write_batch(rows, write)?;
        serde_json::from_str(&text).map_err(|e| not_json("ingest", &e))
    }

    fn batch_bytes(&self) -> usize {
        BATCH_BYTES
    }
}

/// Writes rows as one batch that leaves alone what is already so, and returns the answer.
fn write_batch(
    rows: Vec<InputRow>,
    write: impl Fn(&[u8]) -> Result<String, CommandError>,
) -> Result<String, CommandError> {
    // In front, so that what arrives before a break counts as of an import, too.
    let mut lines = SKIP_UNCHANGED_LINE.as_bytes().to_vec();
    lines.extend(rows.into_iter().flat_map(InputRow::into_line));
    match write(&lines) {
        // A server of an earlier version takes that line for a record with an unknown key, and has taken nothing.
        Err(failure) if failure.message.contains("skip_unchanged") => write(&lines[SKIP_UNCHANGED_LINE.len()..]),
        answer => answer,
    }
}

/// Returns whether something is mounted at a directory: what is above it lies on another file system then.
fn is_mountpoint(directory: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    device(directory) != device(&directory.join(".."))
}

/// Returns what became of a branch that was at a path; `None` if the path is no child branch's, or its parent's events
/// tell of no end.
pub fn how_branch_ended(path: &Path) -> Option<String> {
    let (name, parent) = (path.file_name()?.to_str()?, path.parent()?.parent()?);
    if !path.parent()?.ends_with("branches") || !is_branch_directory(parent) {
        return None;
    }
    let events = fs::read_to_string(parent.join("events.jsonl")).ok()?;
    let lines = events.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_it = |line: &Value| line["branch"].as_str().and_then(|path| path.rsplit('/').next()) == Some(name);
    let ends = [("merge", "was merged into its parent"), ("discard", "was discarded")];
    lines.into_iter().filter(is_it).find_map(|line| {
        let (_, end) = ends.iter().find(|(event, _)| line["event"] == *event)?;
        Some(format!("{} {end} at {}", line["branch"].as_str()?, line["time"].as_str()?))
    })
}

struct MountedSession<'a> {
    branch: &'a MountedBranch<'a>,
    file: File,
}

impl QuerySession for MountedSession<'_> {
    fn query(&mut self, query: &str) -> Result<String, CommandError> {
        let attempt = self.branch.attempt("query", "asking");
        let line = format!("{}\n", query.trim_end().replace('\n', " "));
        let answer = self.file.write_all(line.as_bytes()).and_then(|()| control::read_answer(&self.file));
        answer.map_err(|e| attempt.failed(&e))
    }
}

fn export_file_name(export: Export) -> &'static str {
    match export {
        Export::Vectors => "vectors.npy",
        Export::Ids => "ids.txt",
        Export::Records => "records.jsonl",
    }
}

fn not_json(file: &str, source: &serde_json::Error) -> CommandError {
    let message = format!("{file} of the mount holds no JSON: {source}");
    CommandError::new(Exit::Failed, "not_json", message, VERSIONS_DIFFER_HINT)
}

#[cfg(test)]
mod tests;
