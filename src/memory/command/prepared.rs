//! A command that passed the rules of the store: what its entry says, and what it changes in the catalog.

use std::sync::Arc;

use super::log_record::LogRecord;
use crate::branch::BranchVersion;
use crate::lineage::{Counts, Detail, EntryOp};
use crate::memory::Error;
use crate::memory::catalog::settings::Setting;
use crate::memory::catalog::{Branch, BranchId, Catalog, CatalogChange};
use crate::object::Hash;

/// A command that has passed every check, with all that follows from it; nothing is written yet.
pub struct PreparedCommand {
    /// What the entry says was done, which also says what label and text of the detail mean.
    pub op: EntryOp,
    /// The branch it is about; the new one for a fork, 0 for what concerns no branch.
    pub branch: BranchId,
    /// Its name path; empty for what concerns no branch.
    pub path: Arc<str>,
    /// The branch above it and its name path; none for a root branch, and for what concerns no branch.
    pub parent: Option<(BranchId, Arc<str>)>,
    /// Head of its base; zeros for what concerns no branch.
    pub base: Hash,
    /// Head of the branch that results, which the entry names and a replay must lead to.
    pub head: Hash,
    /// Head that resulted when it was done, where the log holds it: at a replay it has to be [`PreparedCommand::head`].
    pub recorded_head: Option<Hash>,
    /// What the entry counts; 0 for what changes no content.
    pub counts: Counts,
    /// What the entry says beside that; empty where there is no more to say.
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

/// Agent, session and task of who acts in a branch: session and task are empty where none is set.
pub(in crate::memory) fn labels(catalog: &Catalog, branch: &Branch, uid: u32) -> [Arc<str>; 3] {
    let agent = catalog.agent(branch, uid);
    [agent, branch.settings.get(Setting::Session).clone(), branch.settings.get(Setting::Task).clone()]
}

/// Fixes dimension and metric once there is a vector. Nothing is added where they are fixed already, or no record has a
/// vector. Fails with `Error::Gone` where the root branch is not in the catalog.
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
