//! A command that passed the rules of the store: what its entry says, and what it changes in the catalog.

use std::sync::Arc;

use super::log_record::LogRecord;
use crate::branch::BranchVersion;
use crate::lineage::{Counts, Detail, EntryOp};
use crate::memory::Error;
use crate::memory::catalog::settings::Setting;
use crate::memory::catalog::{Branch, BranchId, Catalog, CatalogChange};
use crate::object::Hash;

/// A command that has passed every check, with its entry and its changes of the catalog. Nothing is written yet.
pub struct PreparedCommand {
    /// The step that the entry shows. It also says what label and text of the detail mean.
    pub op: EntryOp,
    /// Id of its branch: the new one for a fork, 0 if it concerns no branch.
    pub branch: BranchId,
    /// Name path of its branch; empty if it concerns no branch.
    pub path: Arc<str>,
    /// The branch above it and its name path; `None` for a root branch, and for what concerns no branch.
    pub parent: Option<(BranchId, Arc<str>)>,
    /// Head of the branch's base; zeros if it concerns no branch.
    pub base: Hash,
    /// Head of the branch afterwards. The entry names it, and a replay must give the same.
    pub head: Hash,
    /// Head stored in the log record, if any. At a replay it must equal [`PreparedCommand::head`].
    pub recorded_head: Option<Hash>,
    /// What the entry counts; 0 for what changes no content.
    pub counts: Counts,
    /// Further details of the entry; empty if there are none.
    pub detail: Detail,
    /// Labels of who acts: agent, session, task.
    pub labels: [Arc<str>; 3],
    /// The changes of the catalog, in the order in which they are carried out.
    pub changes: Vec<CatalogChange>,
}

/// Returns the entry of a command on a branch, without a change of the catalog; its head is the branch's present one.
pub(in crate::memory) fn prepare_on_branch(
    catalog: &Catalog,
    log_record: &LogRecord,
    branch: &Branch,
    op: EntryOp,
) -> PreparedCommand {
    let parent = branch.parent.and_then(|id| catalog.branches.get(&id));
    let parent = parent.map(|parent| (parent.id, parent.path.clone()));
    PreparedCommand {
        op,
        branch: branch.id,
        path: branch.path.clone(),
        parent,
        base: branch.base.head(),
        head: branch.state.head(),
        recorded_head: None,
        counts: Counts::default(),
        detail: Detail::default(),
        labels: labels(catalog, branch, log_record.uid),
        changes: Vec::new(),
    }
}

/// Returns the entry of a command that concerns no branch: ids, hashes and path are empty, the agent is the user.
pub(in crate::memory) fn prepare_on_store(
    op: EntryOp,
    detail: Detail,
    user: Arc<str>,
    change: CatalogChange,
) -> PreparedCommand {
    PreparedCommand {
        op,
        branch: BranchId(0),
        path: "".into(),
        parent: None,
        base: Hash::ZERO,
        head: Hash::ZERO,
        recorded_head: None,
        counts: Counts::default(),
        detail,
        labels: [user, "".into(), "".into()],
        changes: vec![change],
    }
}

impl PreparedCommand {
    /// Sets what the entry says beside its counts, in place of what was set before.
    pub(in crate::memory) fn with_detail(mut self, detail: Detail) -> PreparedCommand {
        self.detail = detail;
        self
    }

    /// Adds a change of the catalog, carried out behind the others.
    pub(in crate::memory) fn with_change(mut self, change: CatalogChange) -> PreparedCommand {
        self.changes.push(change);
        self
    }

    /// The branch's records and files become `state`, whose head the entry names.
    pub(in crate::memory) fn with_state(mut self, state: BranchVersion) -> PreparedCommand {
        self.head = state.head();
        let branch = self.branch;
        self.with_change(CatalogChange::State(branch, Arc::new(state)))
    }
}

/// Agent, session and task of who acts in a branch: session and task are empty if none is set.
pub(in crate::memory) fn labels(catalog: &Catalog, branch: &Branch, uid: u32) -> [Arc<str>; 3] {
    let agent = catalog.agent(branch, uid);
    [agent, branch.settings.get(Setting::Session).clone(), branch.settings.get(Setting::Task).clone()]
}

/// Fixes dimension and metric once there is a vector. Nothing is added where they are fixed already, or no record has a
/// vector. Fails with `Error::Gone` if the root branch is not in the catalog.
pub(in crate::memory) fn fix_dim_and_metric(
    catalog: &Catalog,
    branch: &Branch,
    dim: Option<usize>,
    vectors: bool,
    prepared: &mut PreparedCommand,
) -> Result<(), Error> {
    if let Some(dim) = dim
        && vectors
        && !catalog.branch(branch.root)?.vectors_fixed
    {
        prepared.changes.push(CatalogChange::Set(branch.root, Setting::Dim, dim.to_string().into()));
        prepared.changes.push(CatalogChange::FixDimAndMetric(branch.root));
    }
    Ok(())
}
