//! Paths and handles become operations of the memory; no kernel is needed to use or test it.
//!
//! ```text
//! node_requests    lookup getattr open mkdir rename … ─┐  find the node or handle, call the operation,
//! handle_requests  read write flush readdir poll …    ─┤  note what was refused
//!                                                      │
//! operations       what can be asked of a node, and which of the two trees answers
//!                        ┌─────────────────────────────┴─────────────────┐
//! control/  branches, checkpoints, what is generated     files/  the POSIX files of `files/` and `scratch/`
//!           a File for each kind: record_file, temporary, query and ctl (line_session), ingest, …
//! ```
//!
//! [`Filesystem`] takes node and handle numbers as the kernel gives them and returns an [`Errno`].
//! What breaks a rule is written to the branch's `errors` in one place, [`Filesystem::audit`]. No
//! lock is held while another request is waited for; a handle's own lock is held during its commit,
//! so that one handle's writes and commits keep their order.
//!
//! Beside what a request says for itself: EBADF for a handle that is closed, EISDIR and ENOTDIR for one of the other
//! kind, ESTALE for a node that is not known and for what was in a branch that has ended, EROFS for a change of a
//! checkpoint, of a proposal, of an earlier state and in a mount that is read-only, EACCES for whoever may not enter
//! the branch any more, EAGAIN for what has to be done again on a thread that may wait. The rest follows from the kind
//! of the memory's error, by the table in `errno.rs`.

mod answer_offset;
mod attr;
mod batch;
mod config;
mod control;
mod counted_buffer;
mod directory;
mod ended_branches;
mod errno;
mod errors;
mod files;
mod handle;
mod handle_requests;
mod kernel_notifier;
mod last_answers;
mod line_session;
mod listing;
mod mount_branch_state;
mod mount_context;
mod node;
mod node_requests;
mod node_table;
mod open_flags;
mod operations;
mod record_file;
mod refusal;
mod refused_line;
mod rights;
mod search;
mod shared_events;
mod shared_log;
mod signal_file;
mod static_file;
mod temporary;
mod user;
mod vectors_name;

#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::sync::Arc;

pub use attr::{Attr, AttrChanges, EntryAttr, StatFs, TimeSet};
pub use errno::Errno;
pub use kernel_notifier::{Kernel, WakeCall};
pub use mount_context::Caller;
pub use user::User;

pub use crate::memory::{FileKind, Time};

use self::refusal::Refusal;
use crate::memory::{BranchId, Kind, LostTemporary, Memory, View};
use errno::Failure;
use handle::{Handle, HandleTable};
use mount_context::MountContext;
use node::FsNode;
use node_table::NodeTable;

/// How a mount shows the memory.
pub struct FsOptions {
    /// The branch that is the mount's root; nothing shows all root branches (default).
    pub branch: Option<BranchId>,
    /// Refuses every change with EROFS, while queries are still answered; off by default.
    pub read_only: bool,
    /// Returns who has a uid, asked once for each; by default nobody is known, and uid 7 is called
    /// `uid-7`.
    pub users: Box<dyn Fn(u32) -> Option<User> + Send + Sync>,
    /// Returns the supplementary groups of a process; by default they are not known, and what they might give or take away
    /// is not shown by queries.
    pub groups: Box<dyn Fn(u32) -> Option<Vec<u32>> + Send + Sync>,
}

impl Default for FsOptions {
    fn default() -> FsOptions {
        FsOptions { branch: None, read_only: false, users: Box::new(|_| None), groups: Box::new(|_| None) }
    }
}

/// The tree of a mount, over the memory.
///
/// All operations may be called from any thread at any time. Permission bits are checked by the
/// kernel (`default_permissions`) before it asks; what it can't see, such as a merge by way of
/// `ctl`, is checked here.
pub struct Filesystem {
    mount: Arc<MountContext>,
    nodes: NodeTable,
    handles: Arc<HandleTable>,
}

impl Filesystem {
    /// Makes the tree, with nothing open. It hears of the memory's changes until it is dropped.
    pub fn new(memory: Arc<Memory>, options: FsOptions) -> Filesystem {
        let root = options.branch.map_or(FsNode::Mount, FsNode::Branch);
        let mount = Arc::new(MountContext::new(memory.clone(), options));
        // Weak, or the memory and the mount would keep each other.
        let listener = Arc::downgrade(&mount);
        memory.on_change(Arc::new(move |change| {
            if let Some(mount) = listener.upgrade() {
                mount.on_branch_event(change);
            }
        }));
        // Before the first request: a merge in between would take files away that are open.
        memory.set_open_files(Some(Arc::new(files::MountOpenFiles(Arc::downgrade(&mount)))));
        let nodes = NodeTable::new(root, mount.inode_map.clone());
        let filesystem = Filesystem { mount, nodes, handles: Arc::default() };
        filesystem.report_lost();
        filesystem
    }

    /// Sets who takes notices from now on; nothing ends that. A mount sets it when it answers, and
    /// takes it away at its end.
    pub fn set_kernel(&self, kernel: Option<Arc<dyn Kernel>>) {
        self.mount.notifier.set_kernel(kernel);
    }

    /// Ends the tree: what is lost with it is written to the log, and to `errors` of the next mount.
    pub fn end(&self) {
        let (memory, mut lost) = (&self.mount.memory, Vec::new());
        let time = memory.now();
        for (branch, state) in self.mount.states.list() {
            for (name, uid) in state.temporaries.owners() {
                let name = name.to_string_lossy().into_owned();
                let path = memory.info(branch).map(|info| info.path.to_string()).unwrap_or_default();
                log::warn!("{path}/vectors/{name} was in RAM only and is lost with the mount");
                lost.push(LostTemporary { branch, uid, time, name });
            }
        }
        if let Err(error) = memory.keep_lost_temporaries(lost) {
            log::warn!("{error}; {}", error.hint());
        }
    }

    /// Returns what was lost with earlier mounts, once, in `errors` of the branches that are still there.
    fn report_lost(&self) {
        let lost = self.mount.memory.take_lost_temporaries().unwrap_or_else(|error| {
            log::warn!("{error}; {}", error.hint());
            Vec::new()
        });
        for LostTemporary { branch, uid, time, name } in lost {
            if self.mount.memory.info(branch).is_err() {
                continue;
            }
            let errors = &self.mount.states.get_or_insert(branch).errors;
            errors.add(time, Some(uid), &format!("vectors/{name}"), &Refusal::TemporaryLost);
        }
    }

    /// Turns a failure into its number; a refusal is written to `errors` of the branch that `view`
    /// belongs to, for whoever was refused.
    fn audit<T>(
        &self,
        who: Option<Caller>,
        view: Option<&View>,
        path: impl FnOnce() -> String,
        result: Result<T, Failure>,
    ) -> Result<T, Errno> {
        result.map_err(|failure| {
            let errno = failure.errno();
            if errno == Errno::ESTALE
                && let (Some(who), Some(view)) = (who, view)
            {
                self.report_end(who, view.branch());
            }
            if let Failure::Refused(error) = failure {
                self.log_refusal(who, view, &path(), &error);
            }
            errno
        })
    }

    fn log_refusal(&self, who: Option<Caller>, view: Option<&View>, path: &str, refusal: &Refusal) {
        // The request is repeated on a thread that may wait, and only what comes of that is told.
        if refusal.kind() == Kind::WouldWait {
            return;
        }
        log::debug!("{path}: {refusal}; {}", refusal.advice().hint);
        // Nobody can read the errors of a branch that is gone, and a mount's root has none.
        let Some(view) = view.filter(|view| self.mount.memory.info(view.branch()).is_ok()) else {
            return;
        };
        let errors = &self.mount.states.get_or_insert(view.branch()).errors;
        errors.add(self.mount.memory.now(), who.map(|caller| caller.uid), path, refusal);
    }

    /// Tells somebody what became of a branch that is gone, in `errors` of what is left above it: once.
    fn report_end(&self, who: Caller, branch: BranchId) {
        let Some((why, mut above)) = self.mount.ended_branches.take_unreported(branch, who.uid) else { return };
        while let Some(parent) = above {
            if self.mount.memory.info(parent).is_ok() {
                let errors = &self.mount.states.get_or_insert(parent).errors;
                return errors.add(self.mount.memory.now(), Some(who.uid), ".", &why);
            }
            above = self.mount.ended_branches.parent(parent);
        }
    }

    /// As [`Filesystem::audit`], for what was tried at a name in a directory.
    fn audit_at<T>(
        &self,
        who: impl Into<Option<Caller>>,
        parent: &FsNode,
        name: &OsStr,
        result: Result<T, Failure>,
    ) -> Result<T, Errno> {
        self.audit(who.into(), parent.view().as_ref(), || join_path(&self.operations(parent).path(), name), result)
    }

    /// As [`Filesystem::audit`], for what was tried with a node.
    fn audit_node<T>(
        &self,
        who: impl Into<Option<Caller>>,
        node: &FsNode,
        result: Result<T, Failure>,
    ) -> Result<T, Errno> {
        self.audit(who.into(), node.view().as_ref(), || self.operations(node).path(), result)
    }

    /// As [`Filesystem::audit`], for what was tried with an open file.
    fn audit_handle<T>(&self, handle: &Handle, result: Result<T, Failure>) -> Result<T, Errno> {
        let path = || if handle.path.is_empty() { self.operations(&handle.node).path() } else { handle.path.clone() };
        self.audit(Some(handle.caller), handle.node.view().as_ref(), path, result)
    }
}

/// Returns the path of a name in a directory, as `errors` shows it.
fn join_path(parent: &str, name: &OsStr) -> String {
    let name = name.to_string_lossy();
    if parent.is_empty() { name.into_owned() } else { format!("{parent}/{name}") }
}
