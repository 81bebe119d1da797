//! The fixed names of a branch's directory, and how each control file shows its length and opens.
//!
//! A control file is either a [`Document`], which is listed and opened without a change here, or a variant of [`ControlFile`] with
//! a row of [`FIXED`] and an arm of [`ControlFile::has_length`], [`ControlFile::has_slow_writes`] and [`ControlFile::open`].

mod ctl;
mod history;
mod ingest;
mod lease;
mod query;

use std::sync::Arc;

pub(super) use ctl::{check_no_uncommitted, set_ctl_answer};

use self::ctl::Ctl;
use self::history::{EventsFile, LineageFile};
use self::ingest::Ingest;
use self::lease::LeaseFile;
use self::query::QueryFile;

use crate::fs::errno::Failure;
use crate::fs::handle::{File, HandleTable};
use crate::fs::line_session::LineSession;
use crate::fs::mount_context::{MountContext, OpenContext, check_changeable};
use crate::fs::node::FsNode;
use crate::fs::open_flags::OpenFlags;
use crate::fs::refusal::LayoutRefusal;
use crate::fs::rights::{READ, SEARCH};
use crate::fs::static_file::StaticFile;
use crate::memory::{BranchInfo, Document, HistoryFile, LiveStatus, View};

/// A directory that every branch has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::fs) enum ControlDirectory {
    /// `vectors/`: the records.
    Vectors,
    /// `branches/`: the child branches.
    Branches,
    /// `checkpoints/`, where mkdir(2) takes one.
    Checkpoints,
    /// `search/`: each name in it is a query.
    Search,
    /// `at/`: earlier states.
    At,
    /// `proposals/`: what child branches propose.
    Proposals,
    /// `export/`: the records as an array and as lines.
    Exports,
    /// `config/`: a file for each setting.
    Config,
    /// `shared/`: the log and the signals of all branches.
    Shared,
}

/// A file that every branch has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::fs) enum ControlFile {
    /// `query`, which takes queries and gives their answers.
    Query,
    /// `ingest`, which takes many records in one commit.
    Ingest,
    /// `ctl`, which takes verbs.
    Ctl,
    /// `errors`: what was refused last.
    Errors,
    /// `branches.jsonl`: the branches below, at any depth.
    BranchList,
    /// `lease`, held as long as it is open.
    Lease,
    /// `plan`, of a proposal alone.
    Plan,
    /// A document that changes with the branch alone.
    Document(Document),
    /// `lineage` or `events.jsonl`, read out of the history at any offset.
    History(HistoryFile),
}

#[derive(Clone, Copy)]
struct FixedName {
    name: &'static str,
    node: FixedNode,
    /// Permission bits; the owner is the branch's.
    mode: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FixedNode {
    Directory(ControlDirectory),
    File(ControlFile),
}

const fn directory(name: &'static str, directory: ControlDirectory, mode: u32) -> FixedName {
    FixedName { name, node: FixedNode::Directory(directory), mode }
}

const fn file(name: &'static str, file: ControlFile, mode: u32) -> FixedName {
    FixedName { name, node: FixedNode::File(file), mode }
}

/// What the directory of a branch has beside documents, in the order of its listing.
const FIXED: [FixedName; 17] = [
    directory("vectors", ControlDirectory::Vectors, 0o755),
    // Everybody who reaches a branch may fork it, and only the owner of a child may take it away again.
    directory("branches", ControlDirectory::Branches, 0o1777),
    file("branches.jsonl", ControlFile::BranchList, 0o444),
    // For the owner alone: holding the lease says that a process of the owner is alive.
    file("lease", ControlFile::Lease, 0o600),
    directory("checkpoints", ControlDirectory::Checkpoints, 0o755),
    directory("search", ControlDirectory::Search, 0o755),
    directory("shared", ControlDirectory::Shared, 0o755),
    directory("at", ControlDirectory::At, 0o755),
    directory("proposals", ControlDirectory::Proposals, 0o755),
    directory("export", ControlDirectory::Exports, 0o755),
    // Everybody may write: each query and verb checks its caller's rights itself.
    file("query", ControlFile::Query, 0o666),
    file("ingest", ControlFile::Ingest, 0o644),
    file("ctl", ControlFile::Ctl, 0o666),
    directory("config", ControlDirectory::Config, 0o755),
    file("lineage", ControlFile::History(HistoryFile::Lineage), 0o444),
    file("events.jsonl", ControlFile::History(HistoryFile::Events), 0o444),
    file("errors", ControlFile::Errors, 0o444),
];

/// What a proposal has beside these.
const PLAN: FixedName = file("plan", ControlFile::Plan, 0o444);

fn document(document: Document) -> FixedName {
    file(document.file_name(), ControlFile::Document(document), 0o444)
}

/// Returns the names of a view's directory, in the order of its listing.
fn directory_names(view: &View) -> impl Iterator<Item = FixedName> {
    let documents = Document::ALL.into_iter().map(document);
    documents.chain(FIXED.iter().copied()).chain(matches!(view, View::Proposal(..)).then_some(PLAN))
}

fn fixed_name(node: FixedNode) -> FixedName {
    match node {
        FixedNode::File(ControlFile::Document(one)) => document(one),
        _ => FIXED.iter().find(|fixed| fixed.node == node).copied().unwrap_or(PLAN),
    }
}

impl FixedName {
    fn fs_node(&self, view: &View) -> FsNode {
        match self.node {
            FixedNode::Directory(directory) => FsNode::Directory(view.clone(), directory),
            FixedNode::File(file) => FsNode::Control(view.clone(), file),
        }
    }
}

/// Returns what the directory of a view has, with its names, in the order of its listing.
pub(super) fn all_nodes(view: &View) -> impl Iterator<Item = (&'static str, FsNode)> {
    directory_names(view).map(|fixed| (fixed.name, fixed.fs_node(view)))
}

/// Returns the fixed node of a name in the directory of a view; `None` for any other name.
pub(super) fn find_node(view: &View, name: &str) -> Option<FsNode> {
    directory_names(view).find(|fixed| fixed.name == name).map(|fixed| fixed.fs_node(view))
}

impl ControlDirectory {
    /// Returns its name in the branch's directory.
    pub fn name(self) -> &'static str {
        fixed_name(FixedNode::Directory(self)).name
    }

    /// Returns the permission bits of its row in `FIXED`; the owner is the branch's.
    pub fn mode(self) -> u32 {
        fixed_name(FixedNode::Directory(self)).mode
    }
}

impl ControlFile {
    /// Returns its name in the branch's directory.
    pub fn name(self) -> &'static str {
        fixed_name(FixedNode::File(self)).name
    }

    /// Returns the permission bits of its row in `FIXED`; the owner is the branch's.
    pub fn mode(self) -> u32 {
        fixed_name(FixedNode::File(self)).mode
    }

    /// Returns whether its permission bits let anybody write, if only the owner.
    pub(super) fn is_writable(self) -> bool {
        self.mode() & 0o222 != 0
    }

    /// Returns whether stat(2) shows its length in bytes. Otherwise it shows 0, as in /proc: the content depends on the
    /// reader, or is expensive to make.
    pub fn has_length(self) -> bool {
        match self {
            ControlFile::Document(document) => document.has_length(),
            ControlFile::History(_) => true,
            ControlFile::Query
            | ControlFile::Ingest
            | ControlFile::Ctl
            | ControlFile::Errors
            | ControlFile::BranchList
            | ControlFile::Lease
            | ControlFile::Plan => false,
        }
    }

    /// Returns whether a write may take long, so that no two handles should share an inode.
    pub fn has_slow_writes(self) -> bool {
        match self {
            ControlFile::Query | ControlFile::Ctl | ControlFile::Ingest => true,
            ControlFile::Document(_)
            | ControlFile::History(_)
            | ControlFile::Errors
            | ControlFile::BranchList
            | ControlFile::Lease
            | ControlFile::Plan => false,
        }
    }

    /// Returns the length that stat(2) shows. In bytes; 0 for what is generated while it is read. ESTALE if the branch
    /// has ended, ENOENT if its checkpoint or earlier state is gone.
    pub(super) fn length(self, mount: &MountContext, view: &View, info: &BranchInfo) -> Result<u64, Failure> {
        let memory = &mount.memory;
        match self {
            ControlFile::Document(Document::Status) => Ok(info.status_bytes()),
            ControlFile::Document(document) if self.has_length() => Ok(memory.document(view, document)?.len() as u64),
            ControlFile::History(file) => {
                Ok(memory.history_length(view.branch(), file, memory.history_last_seq(view)?)?)
            }
            _ => Ok(0),
        }
    }

    /// Opens the file. EACCES for a caller who may not read what it shows, EROFS if nothing may change, and what
    /// [`refuse_writing`] says for writing to what is generated.
    pub(super) fn open(
        self,
        context: &OpenContext,
        handles: &Arc<HandleTable>,
        flags: OpenFlags,
    ) -> Result<Box<dyn File>, Failure> {
        if flags.write && !self.is_writable() {
            return Err(refuse_writing(context));
        }
        let bytes = match self {
            ControlFile::Query => return Ok(Box::new(LineSession::new(context.clone(), QueryFile::new(context)))),
            ControlFile::Ctl => return open_ctl(context, handles, flags),
            ControlFile::Ingest => return open_ingest(context, flags),
            ControlFile::Lease => return open_lease(context, flags),
            ControlFile::History(HistoryFile::Events) => return Ok(Box::new(EventsFile::open(context.clone())?)),
            ControlFile::History(HistoryFile::Lineage) => return Ok(Box::new(LineageFile::open(context.clone())?)),
            ControlFile::Plan => context.memory().plan_page(context.branch())?,
            ControlFile::Errors => context.state.errors.text(context.error_reader()?),
            ControlFile::BranchList => branches_below(context)?,
            ControlFile::Document(Document::Status) => status(context)?,
            ControlFile::Document(document) => document_bytes(context, document)?,
        };
        Ok(Box::new(StaticFile(context.count_buffer(bytes)?)))
    }
}

fn open_ctl(context: &OpenContext, handles: &Arc<HandleTable>, flags: OpenFlags) -> Result<Box<dyn File>, Failure> {
    if flags.write {
        check_changeable(&context.view)?;
    }
    let ctl = Ctl { handles: handles.clone(), reader: context.credentials() };
    Ok(Box::new(LineSession::new(context.clone(), ctl)))
}

fn open_ingest(context: &OpenContext, flags: OpenFlags) -> Result<Box<dyn File>, Failure> {
    if flags.write {
        context.check_writable()?;
    }
    Ok(Box::new(Ingest::new(context.clone())))
}

fn open_lease(context: &OpenContext, flags: OpenFlags) -> Result<Box<dyn File>, Failure> {
    // Nobody can hold a lease in a read-only state, so the file is empty.
    if !flags.write && context.check_writable().is_err() {
        return Ok(Box::new(StaticFile(context.count_buffer(Vec::new())?)));
    }
    Ok(Box::new(LeaseFile::open(context.clone())?))
}

fn status(context: &OpenContext) -> Result<Vec<u8>, Failure> {
    let is_live = matches!(context.view, View::Branch(_));
    let live = LiveStatus {
        temporaries: if is_live { context.state.temporaries.count() } else { 0 },
        last_error: context.state.errors.last(context.error_reader()?),
    };
    Ok(context.memory().status_with(&context.view, live)?)
}

fn document_bytes(context: &OpenContext, document: Document) -> Result<Vec<u8>, Failure> {
    if document.shows_parent() {
        context.check_parent(READ | SEARCH)?;
    }
    let (memory, view) = (context.memory(), &context.view);
    let bytes = match document {
        Document::Diff => memory.diff_for(view, &context.credentials())?,
        Document::Readme | Document::Status | Document::Conflicts => memory.document(view, document)?,
    };
    Ok(bytes.to_vec())
}

/// Returns the lines of `branches.jsonl`; a checkpoint has no branches.
fn branches_below(context: &OpenContext) -> Result<Vec<u8>, Failure> {
    let View::Branch(branch) = context.view else { return Ok(Vec::new()) };
    let memory = context.memory();
    let may_enter = |branch| memory.info(branch).is_ok_and(|info| context.mount.permits(context.caller, &info, SEARCH));
    Ok(memory.branches_below(branch, &may_enter)?)
}

/// Returns why a generated file is not opened for writing: EROFS if nothing may change, else a refusal with the files
/// that can be written.
pub(super) fn refuse_writing(context: &OpenContext) -> Failure {
    let hint = "write records to vectors/ or ingest, verbs to ctl, settings to config/, entries to shared/log/append, signals to shared/signals/";
    context.check_writable().err().unwrap_or_else(|| LayoutRefusal::Generated { hint }.into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::fs::files::Area;
    use crate::memory::{BranchId, check_name};

    fn branch_names() -> BTreeSet<&'static str> {
        let fixed = directory_names(&View::Branch(BranchId(1))).map(|fixed| fixed.name);
        fixed.chain(Area::ALL.map(Area::name)).collect()
    }

    #[test]
    fn no_branch_can_have_the_name_of_a_node() {
        for name in branch_names() {
            assert!(check_name(name).is_err(), "{name} belongs into RESERVED of branch/names.rs");
        }
    }

    #[test]
    fn the_readme_lists_the_directory_of_a_branch() {
        let page = include_str!("../../../../README.md");
        let (_, listing) = page.split_once("\n$ ls\n").expect("its session lists a branch");
        let (listing, _) = listing.split_once("\n$ ").expect("its session goes on");
        assert_eq!(listing.split_whitespace().collect::<BTreeSet<&str>>(), branch_names());
    }

    #[test]
    fn every_fixed_name_leads_to_its_node_and_back() {
        let view = View::Branch(BranchId(1));
        for (name, node) in all_nodes(&view) {
            assert_eq!(node.path(), name);
            assert_eq!(find_node(&view, name), Some(node));
        }
        assert_eq!(find_node(&view, "plan"), None);
        let proposal = View::Proposal(BranchId(1), 7);
        assert_eq!(find_node(&proposal, "plan"), Some(FsNode::Control(proposal.clone(), ControlFile::Plan)));
    }
}
