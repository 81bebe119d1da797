//! A branch of a store that is not mounted, reached through the library.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::lineage::Lineage;
use super::unreachable::open_error;
use super::{Access, BranchAccess, MAIN, QuerySession, StateExports};
use crate::cli::actor;
use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::formats::InputRow;
use crate::memory::{
    Actor, BranchId, CommitOptions, Document, Environment, Error, Export, Kind, Memory, OpenMode, Query, RecordEdit,
    Revision, Snapshot, View, Viewer,
};
use crate::verb::{Verb, VerbAnswer, VerbContext};

/// Bytes that one commit of an import takes at the most.
const BATCH_BYTES: usize = 64 << 20;

/// A branch of a store that this process has opened by itself.
pub struct UnmountedBranch {
    memory: Arc<Memory>,
    branch: BranchId,
    who: Actor,
    /// Whether the store was opened for writing: only then closing it writes something, and can fail.
    writes: bool,
}

/// Opens the store at `path` for this process. Fails like `Memory::open`; the exit code says whether it is missing,
/// locked or not the user's, or that the path is on a mount whose server has ended.
pub fn open_store(path: &Path, mode: OpenMode) -> Result<Arc<Memory>, CommandError> {
    let memory = Memory::open(path, mode, &holder(), Environment::real(actor::current()))
        .map_err(|error| open_error(path, error))?;
    if mode != OpenMode::ReadOnly {
        // Read beside its writer, a store may end in a frame that is just being written.
        for warning in memory.warnings() {
            log::warn!("{warning}");
        }
    }
    Ok(memory)
}

/// Returns what the lock of a store says of a command.
pub fn holder() -> String {
    format!("process {} (a command of engramfs)", std::process::id())
}

impl UnmountedBranch {
    /// Opens the store and looks the branch up. Fails like [`open_store`], or if there is no branch with that name
    /// path; the store is closed again then.
    pub fn open(store: &Path, name_path: &str, access: Access) -> Result<UnmountedBranch, CommandError> {
        let mode = match access {
            Access::Read => OpenMode::ReadOnly,
            Access::Write => OpenMode::Existing,
            Access::Create => OpenMode::Create,
        };
        // Before a store is made in which it can't be.
        if access == Access::Create && name_path != MAIN && !store.join("manifest").exists() {
            let message = format!("a new store has the branch {MAIN} and no {name_path}");
            let hint = format!("write {}:{MAIN}, or make the branch first", store.display());
            return Err(CommandError::new(Exit::Missing, "no_such_branch", message, hint));
        }
        let memory = open_store(store, mode)?;
        let writes = access != Access::Read;
        match memory.resolve(name_path) {
            Ok(branch) => Ok(UnmountedBranch { memory, branch, who: actor::current(), writes }),
            Err(error) => {
                if writes {
                    memory.close()?;
                }
                Err(error.into())
            }
        }
    }

    /// Ends the work in good order; only here an error of the last writes can be seen.
    pub fn close(self) -> Result<(), CommandError> {
        if self.writes { Ok(self.memory.close()?) } else { Ok(()) }
    }

    fn view(&self) -> View {
        View::Branch(self.branch)
    }
}

impl BranchAccess for UnmountedBranch {
    fn run(&self, verb: &Verb) -> Result<VerbAnswer, CommandError> {
        let (actor, branch, viewer) = (&self.who, self.branch, Viewer::UNRESTRICTED);
        Ok(verb.run(&VerbContext { memory: &self.memory, actor, branch, viewer })?)
    }

    fn delete_checkpoint(&self, label: &str) -> Result<(), CommandError> {
        Ok(self.memory.delete_checkpoint(&self.who, self.branch, label)?)
    }

    fn document(&self, document: Document) -> Result<String, CommandError> {
        let bytes = self.memory.document(&self.view(), document)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn branches(&self) -> Result<String, CommandError> {
        let lines = self.memory.branches_below(self.branch, Viewer::UNRESTRICTED.may_read)?;
        Ok(String::from_utf8_lossy(&lines).into_owned())
    }

    fn lineage(&self) -> Result<Lineage, CommandError> {
        Lineage::from_store(&self.memory, self.branch)
    }

    fn has_state(&self, revision: &Revision) -> Result<bool, CommandError> {
        match self.memory.find_state(self.branch, revision) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == Kind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn lineage_below(&self) -> Result<Vec<String>, CommandError> {
        Ok(self.memory.lineage_lines(self.branch, true)?)
    }

    fn open_session(&self) -> Result<Box<dyn QuerySession + '_>, CommandError> {
        Ok(Box::new(UnmountedSession { branch: self, query_count: 0 }))
    }

    fn exports(&self, wanted: &[Export]) -> Result<StateExports, CommandError> {
        let snapshot = self.memory.snapshot(&self.view())?;
        let reader = |&export: &Export| -> Box<dyn Read> {
            Box::new(ExportReader { snapshot: snapshot.clone(), export, offset: 0 })
        };
        Ok(StateExports { readers: wanted.iter().map(reader).collect(), records: snapshot.count() })
    }

    fn put(&self, rows: Vec<InputRow>) -> Result<Value, CommandError> {
        let fresh_id = || self.memory.fresh_id();
        let edits = rows.into_iter().zip(1..).filter_map(|(row, number)| row.into_edit(number, &fresh_id).transpose());
        let edits: Vec<RecordEdit> = edits.collect::<Result<_, _>>()?;
        let options = CommitOptions { skip_unchanged: true, ..CommitOptions::default() };
        let receipt = self.memory.commit_with(&self.who, self.branch, edits, &options)?;
        parse(&receipt.to_json())
    }

    fn batch_bytes(&self) -> usize {
        BATCH_BYTES
    }
}

fn parse(json: &str) -> Result<Value, CommandError> {
    serde_json::from_str(json).map_err(|e| {
        CommandError::new(Exit::Failed, "result", format!("the result is no JSON: {e}"), "report this with the version")
    })
}

struct UnmountedSession<'a> {
    branch: &'a UnmountedBranch,
    query_count: usize,
}

impl QuerySession for UnmountedSession<'_> {
    fn query(&mut self, query: &str) -> Result<String, CommandError> {
        let query = Query::parse(query).map_err(Error::from)?;
        let answer = self.branch.memory.query(&self.branch.view(), &query)?;
        self.query_count += 1;
        Ok(answer.to_lines(self.query_count - 1))
    }
}

struct ExportReader {
    snapshot: Snapshot,
    export: Export,
    offset: u64,
}

impl Read for ExportReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.snapshot.export_read(self.export, self.offset, buffer).map_err(io::Error::other)?;
        self.offset += count as u64;
        Ok(count)
    }
}
