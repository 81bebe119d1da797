//! What callers do to a store.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use super::act::{Change, Deed, Join};
use super::draft::{Draft, Edit};
use super::joining::{self, Outcome, Table};
use super::prepare::{check_vector, created};
use super::settings::Setting;
use super::world::{BranchId, World};
use super::{Actor, Error, Kind, Memory, Side, guard};
use crate::branch::check_record_id;
use crate::lineage::{Decision, SignedEntry};
use crate::object::{Hash, Time};
use crate::record::{Stamp, Version};
use crate::segment::{Row, write_segment};

/// Edits in one commit from which on the records go straight into a segment.
const BULK_EDITS: usize = 1024;

/// What a commit did.
#[derive(Clone, Debug)]
pub struct Receipt {
    /// Records written.
    pub put: u64,
    /// Records deleted.
    pub deleted: u64,
    /// The branch's head after it.
    pub head: Hash,
    /// The entry's hash.
    pub entry: Hash,
}

impl Receipt {
    fn of(entry: &SignedEntry) -> Receipt {
        let counts = entry.entry.counts;
        Receipt { put: counts.put, deleted: counts.deleted, head: entry.entry.head, entry: entry.hash }
    }

    /// Returns one line of JSON without its line end.
    pub fn to_json(&self) -> String {
        format!(
            "{{\"put\":{},\"deleted\":{},\"head\":\"{}\",\"entry\":\"{}\"}}",
            self.put, self.deleted, self.head, self.entry
        )
    }
}

impl Memory {
    /// Makes an empty root branch.
    pub fn create_root(&self, who: &Actor, name: &str) -> Result<BranchId, Error> {
        let entry = self.act(who, || Ok(Deed::Root(name.into())))?;
        Ok(BranchId(entry.entry.branch_id))
    }

    /// Forks a branch as it is now, or as it was at the checkpoint `from`.
    ///
    /// The cost depends on nothing that the branch holds. Kind `Exists` where the name is taken,
    /// `Invalid` where it is no name.
    pub fn fork(&self, who: &Actor, parent: BranchId, name: &str, from: Option<&str>) -> Result<BranchId, Error> {
        let deed = || Ok(Deed::Fork { parent, name: name.into(), from: from.map(Arc::from) });
        Ok(BranchId(self.act(who, deed)?.entry.branch_id))
    }

    /// Throws a branch away. Kind `NotEmpty` while it has child branches.
    pub fn discard(&self, who: &Actor, branch: BranchId) -> Result<(), Error> {
        self.act(who, || Ok(Deed::Discard(branch))).map(|_| ())
    }

    /// Gives a child branch another name.
    pub fn rename_branch(&self, who: &Actor, branch: BranchId, name: &str) -> Result<(), Error> {
        self.act(who, || Ok(Deed::Rename(branch, name.into()))).map(|_| ())
    }

    /// Carries out edits as one atomic entry; of several edits of one id the last counts.
    ///
    /// No edits make no entry: the receipt then names the present head and tip.
    pub fn commit(&self, who: &Actor, branch: BranchId, edits: Vec<Edit>) -> Result<Receipt, Error> {
        let edits = last_of_each(edits);
        if edits.is_empty() {
            let head = self.world().branch(branch)?.state.head();
            return Ok(Receipt { put: 0, deleted: 0, head, entry: self.tip() });
        }
        if edits.len() >= BULK_EDITS && !edits.iter().any(|edit| matches!(edit, Edit::Rename { .. })) {
            return self.commit_bulk(who, branch, edits);
        }
        let mut changes = Vec::with_capacity(edits.len());
        let mut renames = Vec::new();
        for edit in edits {
            match edit {
                Edit::Put { id, draft } => changes.push(Change::Put { id, content: draft.into_content(), from: None }),
                Edit::Delete { id } => changes.push(Change::Delete { id }),
                Edit::Rename { from, to } => renames.push((from, to)),
            }
        }
        let deed = || {
            for (from, to) in renames {
                changes.extend(self.renamed(branch, from, to)?);
            }
            Ok(Deed::Commit(branch, changes))
        };
        Ok(Receipt::of(&*self.act(who, deed)?))
    }

    /// Like [`Memory::commit`], but leaves records alone whose content is already so. An import that
    /// broke off can be repeated at little cost.
    pub fn import(&self, who: &Actor, branch: BranchId, edits: Vec<Edit>) -> Result<Receipt, Error> {
        let state = self.world().branch(branch)?.state.clone();
        let mut fresh = Vec::with_capacity(edits.len());
        for edit in edits {
            let same = match (&edit, state.totals().records) {
                (_, 0) => false,
                (Edit::Put { id, draft }, _) => match state.find(id)? {
                    Some(old) => old.hash()? == draft.clone().into_content().hash(id),
                    None => false,
                },
                _ => false,
            };
            if !same {
                fresh.push(edit);
            }
        }
        self.commit(who, branch, fresh)
    }

    /// The changes of a renaming: the content under the new id, and the old id gone.
    fn renamed(&self, branch: BranchId, from: Arc<str>, to: Arc<str>) -> Result<[Change; 2], Error> {
        let state = self.world().branch(branch)?.state.clone();
        let Some(row) = state.find(&from)? else {
            let message = format!("there is no record {from}");
            return Err(Error::new(Kind::NotFound, "no_such_record", message, "list the records with ls"));
        };
        let content = row.version()?.content.clone();
        Ok([Change::Put { id: to, content, from: Some(from.clone()) }, Change::Delete { id: from }])
    }

    /// Writes the records into a segment first; the entry then names it.
    fn commit_bulk(&self, who: &Actor, branch: BranchId, edits: Vec<Edit>) -> Result<Receipt, Error> {
        {
            let mut chain = self.chain();
            if let Some(reason) = chain.refusal() {
                return Err(Error::read_only(&reason));
            }
            self.introduce(&mut chain, who)?;
        }
        let (mut rows, mut deletes) = (Vec::with_capacity(edits.len()), Vec::new());
        let maker = Maker::new(self, who, branch)?;
        for edit in edits {
            match edit {
                Edit::Put { id, draft } => rows.push(Row::Loose(Arc::new(maker.version(id, draft)?))),
                Edit::Delete { id } | Edit::Rename { from: id, .. } => deletes.push(id),
            }
        }
        let dim = maker.check(&rows)?;
        let _named = self.naming.read().unwrap_or_else(PoisonError::into_inner);
        if rows.is_empty() {
            let changes = deletes.into_iter().map(|id| Change::Delete { id }).collect();
            return Ok(Receipt::of(&*self.act(who, || Ok(Deed::Commit(branch, changes)))?));
        }
        let name = write_segment(&self.segments.shelf, &rows, dim)?;
        drop(rows);
        self.segments.get_fresh(&name)?;
        let entry = self.act(who, || Ok(Deed::Bulk(branch, name, deletes)))?;
        self.indexer.wake();
        Ok(Receipt::of(&entry))
    }

    /// Fails as a commit of this one record would, and changes nothing.
    pub fn check(&self, branch: BranchId, draft: &Draft) -> Result<(), Error> {
        let world = self.world();
        let settings = world.shared_settings(world.branch(branch)?)?;
        let content = draft.clone().into_content();
        let norm = content.vector.as_deref().map_or(0.0, crate::vector::norm);
        check_vector(settings.dim(), settings.metric(), &content, norm)
    }

    /// Takes a checkpoint; `text` says why.
    pub fn checkpoint(&self, who: &Actor, branch: BranchId, label: &str, text: Option<&str>) -> Result<(), Error> {
        let deed = || Ok(Deed::Checkpoint { branch, label: label.into(), text: text.unwrap_or_default().into() });
        self.act(who, deed).map(|_| ())
    }

    /// Deletes a checkpoint.
    pub fn delete_checkpoint(&self, who: &Actor, branch: BranchId, label: &str) -> Result<(), Error> {
        self.act(who, || Ok(Deed::Uncheckpoint(branch, label.into()))).map(|_| ())
    }

    /// Makes a branch's records those of a checkpoint, as a new commit; the state before stays
    /// readable for as long as `config/keep` says.
    pub fn rollback(&self, who: &Actor, branch: BranchId, label: &str) -> Result<Receipt, Error> {
        Ok(Receipt::of(&*self.act(who, || Ok(Deed::Rollback(branch, label.into())))?))
    }

    /// Makes the files at some paths those of a checkpoint, and leaves all else. Patterns are those
    /// of `config/rules` behind `files/`; one that matches nothing changes nothing.
    pub fn rollback_files(
        &self,
        who: &Actor,
        branch: BranchId,
        label: &str,
        patterns: &[String],
    ) -> Result<Receipt, Error> {
        let patterns = patterns.iter().map(|pattern| pattern.as_str().into()).collect();
        let deed = || Ok(Deed::RollbackFiles { branch, label: label.into(), patterns });
        Ok(Receipt::of(&*self.act(who, deed)?))
    }

    /// Merges, promotes or pulls. With `dry_run` nothing changes, and what stands in the way is in
    /// the outcome; otherwise it is the error, and the refusal is an entry of the lineage.
    pub fn join(&self, who: &Actor, branch: BranchId, join: Join, dry_run: bool) -> Result<Outcome, Error> {
        if dry_run {
            return self.dry_run(who, branch, join);
        }
        let deed = || {
            self.check_rules(who, branch, join)?;
            Ok(Deed::Join(branch, join))
        };
        match self.act_on(who, Some(branch), deed) {
            Ok(entry) => Ok(merged(&entry)),
            Err(error) => {
                let is_verdict = matches!(error.kind, Kind::Conflict | Kind::NotEmpty | Kind::Refused);
                if is_verdict || matches!(error.kind, Kind::Denied | Kind::NotPermitted) {
                    self.note_refusal(who, branch, &error);
                }
                if error.kind == Kind::Conflict {
                    self.note_shown(who, branch, join);
                }
                Err(error)
            }
        }
    }

    /// Refuses what the rules of the parent forbid; a pull takes what they have let pass before.
    fn check_rules(&self, who: &Actor, branch: BranchId, join: Join) -> Result<(), Error> {
        let world = self.world().clone();
        let branch = world.branch(branch)?;
        let Some(parent) = branch.parent.filter(|_| join != Join::Pull) else { return Ok(()) };
        let parent = world.branch(parent)?;
        if !guard::guards(parent.settings.rules()) {
            return Ok(());
        }
        let worked = joining::work_out(self.table(&world), branch, join)?;
        let (rules, owner, packs) = (parent.settings.rules(), parent.uid, &self.trees);
        let (before, after) = (parent.state.files(), worked.merged.files());
        guard::check_merge(&guard::Received { rules, owner, before, after, packs }, who)
    }

    fn dry_run(&self, who: &Actor, branch: BranchId, join: Join) -> Result<Outcome, Error> {
        self.settle_written(branch);
        let forbidden = self.check_rules(who, branch, join).err();
        let world = self.world().clone();
        let branch = world.branch(branch)?;
        let table = Table { world: &world, packs: &self.trees, time: self.now() };
        let worked = joining::work_out(table, branch, join)?;
        let mut blockers = Vec::new();
        if join == Join::Merge {
            blockers.extend(joining::without_children(branch).err());
        }
        if worked.plan.is_blocked() {
            self.note_shown(who, branch.id, join);
            blockers.push(joining::conflict(&worked.plan));
        }
        blockers.extend(forbidden);
        let status = if blockers.is_empty() { "ready" } else { "blocked" };
        let conflicts = worked.plan.conflicts().cloned().collect();
        Ok(Outcome { status, counts: worked.counts, conflicts, blockers, head: worked.merged.head(), entry: None })
    }

    /// Writes a refusal into the lineage, at most one a second and branch.
    pub(super) fn note_refusal(&self, who: &Actor, branch: BranchId, error: &Error) {
        let now = self.now();
        {
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            let last = refused.insert(branch, now);
            if last.is_some_and(|last| now < last.after(1_000_000_000)) {
                return;
            }
        }
        let reason = format!("{}: {}", error.code, error.message);
        if let Err(error) = self.act(who, || Ok(Deed::Refuse(branch, reason.into()))) {
            log::warn!("a refusal could not be noted in the lineage: {error}");
        }
    }

    /// Gives a setting a value.
    pub fn set(&self, who: &Actor, branch: BranchId, setting: Setting, value: &str) -> Result<(), Error> {
        self.act(who, || Ok(Deed::Config(branch, setting, value.into()))).map(|_| ())
    }

    /// Gives a branch's directory permission bits.
    pub fn chmod(&self, who: &Actor, branch: BranchId, mode: u32) -> Result<(), Error> {
        self.act(who, || Ok(Deed::Mode(branch, mode & 0o7777))).map(|_| ())
    }
}

fn merged(entry: &SignedEntry) -> Outcome {
    let differing = |item: &&Decision| item.decision != Some(Side::Both);
    Outcome {
        status: "merged",
        counts: entry.entry.counts,
        conflicts: entry.entry.detail.conflicts.iter().filter(differing).cloned().collect(),
        blockers: Vec::new(),
        head: entry.entry.head,
        entry: Some(entry.hash),
    }
}

/// Keeps the last edit of each id, in order of ids.
fn last_of_each(edits: Vec<Edit>) -> Vec<Edit> {
    let mut last: HashMap<Arc<str>, usize> = HashMap::with_capacity(edits.len());
    for (index, edit) in edits.iter().enumerate() {
        last.insert(edit.id().clone(), index);
    }
    let mut kept: Vec<Edit> = Vec::with_capacity(last.len());
    for (index, edit) in edits.into_iter().enumerate() {
        if last.get(edit.id()) == Some(&index) {
            kept.push(edit);
        }
    }
    kept.sort_by(|a, b| a.id().cmp(b.id()));
    kept
}

/// Makes the versions of a bulk commit, outside the writer's lock.
struct Maker {
    world: World,
    branch: BranchId,
    stamp: Stamp,
}

impl Maker {
    fn new(memory: &Memory, who: &Actor, id: BranchId) -> Result<Maker, Error> {
        let world = memory.world().clone();
        let branch = world.branch(id)?;
        let agent = branch.settings.get(Setting::Agent);
        let agent = if agent.is_empty() { world.user(who.uid) } else { agent.clone() };
        let session = branch.settings.get(Setting::Session).clone();
        let now = memory.now();
        let stamp = Stamp { created: now, modified: now, branch: branch.path.clone(), agent, session };
        Ok(Maker { branch: id, stamp, world })
    }

    fn version(&self, id: Arc<str>, draft: Draft) -> Result<Version, Error> {
        let state = &self.world.branch(self.branch)?.state;
        let created: Time =
            if state.totals().records == 0 { self.stamp.created } else { created(state, self.stamp.created, &id)? };
        Ok(Version::new(id, draft.into_content(), Stamp { created, ..self.stamp.clone() }))
    }

    /// Checks all vectors and returns their dimension.
    fn check(&self, rows: &[Row]) -> Result<usize, Error> {
        let settings = self.world.shared_settings(self.world.branch(self.branch)?)?;
        let mut dim = settings.dim();
        for row in rows {
            let Row::Loose(version) = row else { continue };
            check_record_id(&version.id)?;
            let named = |error: Error| Error { message: format!("record {}: {}", version.id, error.message), ..error };
            check_vector(dim, settings.metric(), &version.content, version.norm).map_err(named)?;
            dim = dim.or(version.content.vector.as_ref().map(|vector| vector.len()));
        }
        let vectors = rows.iter().any(|row| matches!(row, Row::Loose(version) if version.content.vector.is_some()));
        Ok(if vectors { dim.unwrap_or(0) } else { 0 })
    }
}
