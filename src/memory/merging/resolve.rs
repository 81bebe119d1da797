//! Resolving conflicts: in words, or by writing the file that was shown to be in conflict.

use std::sync::Arc;

use super::file_decisions::file_id;
use super::merge_budget::MergeBudget;
use super::merge_plan::{MergeContext, MergePlan};
use crate::lineage::{Decision, Detail, EntryOp, Side};
use crate::memory::admission::disk_room::disk_cost_bytes;
use crate::memory::catalog::{BranchId, Catalog, CatalogChange, Resolution};
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord};
use crate::memory::command::merge_verb::MergeVerb;
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, prepare_on_branch};
use crate::memory::{Actor, Error, Memory, MergeError};
use crate::merge::files::UnitConflict;
use crate::object::{CodecError, Reader, Writer};

/// Somebody chose a side of a conflict: merges take that as long as both sides have the versions that were chosen
/// between.
#[derive(Debug)]
pub(in crate::memory) struct ResolveConflict {
    /// The branch that has the conflict with its parent.
    pub branch: BranchId,
    /// The record's id, or the file as `files/PATH`; the root of a unit stands for all of it.
    pub id: Arc<str>,
    /// The side chosen, and the versions that it was chosen between.
    pub resolution: Resolution,
}

pub(in crate::memory) const RESOLVE: CommandSpec =
    CommandSpec { code: 15, name: "resolve", read: |input| Ok(Box::new(ResolveConflict::read(input)?)) };

impl ResolveConflict {
    fn read(input: &mut Reader<'_>) -> Result<ResolveConflict, CodecError> {
        let (branch, id, resolution) = (BranchId::read(input)?, input.text()?.into(), Resolution::read(input)?);
        Ok(ResolveConflict { branch, id, resolution })
    }
}

impl Command for ResolveConflict {
    fn spec(&self) -> &'static CommandSpec {
        &RESOLVE
    }

    fn write(&self, out: &mut Writer) {
        self.resolution.write(out.number(self.branch.0).text(&self.id));
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let branch = context.catalog.branch(self.branch)?;
        context.catalog.parent(branch)?;
        let text = if self.resolution.side == Side::Child { "child" } else { "parent" };
        let detail = Detail { label: Some(self.id.clone()), text: Some(text.into()), ..Detail::default() };
        let prepared = prepare_on_branch(context.catalog, log_record, branch, EntryOp::Resolve).with_detail(detail);
        Ok(prepared.with_change(CatalogChange::Resolve(branch.id, self.id.clone(), self.resolution.clone())))
    }
}

#[derive(Clone)]
struct ResolvedConflict {
    uid: u32,
    id: Arc<str>,
    resolution: Resolution,
}

impl MergePlan {
    /// Returns the decision on the unit that a file is in, where the sides have it differently.
    pub fn unit_decision(&self, id: &str) -> Option<&Decision> {
        let unit = self.units_at(id).into_iter().next()?;
        self.conflicts().find(|item| item.id == unit)
    }

    /// Returns the ids of the units that a path is of: by the path of the unit itself, or else of a member that the sides
    /// have differently.
    fn units_at(&self, id: &str) -> Vec<Arc<str>> {
        let named = |path: &[u8]| *file_id(path) == *id;
        let ids = |is_it: &dyn Fn(&UnitConflict) -> bool| -> Vec<Arc<str>> {
            self.units().iter().filter(|unit| is_it(unit)).map(|unit| file_id(&unit.path)).collect()
        };
        let own = ids(&|unit| named(&unit.path));
        if own.is_empty() { ids(&|unit| unit.members.iter().any(|path| named(path))) } else { own }
    }

    /// Returns the conflict that an id names; a unit is decided as a whole, so the name of any of its files stands for it.
    /// [`MergeError::SeveralFiles`] if names that are not UTF-8 read alike.
    fn named_conflict(&self, id: &str) -> Result<Option<&Decision>, Error> {
        let mut ids = self.units_at(id);
        if ids.is_empty() {
            ids.push(id.into());
        }
        let mut items = self.conflicts().filter(|item| ids.contains(&item.id));
        let first = items.next();
        match items.next() {
            None => Ok(first),
            Some(_) => Err(MergeError::SeveralFiles(id.to_string()).into()),
        }
    }

    /// Returns the one conflict of a file that is between the same versions as another, whatever its path is; `None` if
    /// there are several.
    fn only_conflict_like(&self, other: &Decision) -> Option<&Decision> {
        let versions = |item: &Decision| (item.is_file(), item.base, item.child, item.parent);
        let mut items = self.conflicts().filter(|item| versions(item) == versions(other));
        items.next().filter(|_| items.next().is_none())
    }
}

impl Memory {
    /// Chooses a side in one conflict: a record id, or `files/PATH`. The choice holds until either side changes. It
    /// counts for merges under the strategy `manual`; if the receiving branch decides the conflict otherwise, by its
    /// strategy or a rule, the name of that strategy is returned, and `None` if the choice counts now.
    ///
    /// Kind `NotFound` if `id` is in no conflict. Kind `Invalid`, code `folder_in_the_way`, if what is in a directory
    /// prevents the choice, or code `several_files` if names that are not UTF-8 read alike.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use engramfs::disk::ForgetfulDisk;
    /// use engramfs::memory::{
    ///     Actor, Environment, Error, Kind, Memory, MergeVerb, OpenMode, RecordEdit, RecordInput, Setting, Side,
    ///     View,
    /// };
    ///
    /// # fn main() -> Result<(), Error> {
    /// # let ann = Actor { uid: 1000, gid: 1000, name: "ann".into() };
    /// # let environment = Environment::real(ann.clone());
    /// # let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, environment)?;
    /// # let main = memory.root("main").unwrap();
    /// # let put = |id: &str, text: &str| {
    /// #     let input = RecordInput { vector: None, text: Some(text.into()), metadata: "{}".into() };
    /// #     vec![RecordEdit::Put { id: id.into(), input }]
    /// # };
    /// memory.set(&ann, main, Setting::Strategy, "manual")?;
    /// let trial = memory.fork(&ann, main, "trial", None)?;
    /// memory.commit(&ann, main, put("tea", "tea is at four"))?;
    /// memory.commit(&ann, trial, put("tea", "tea is at five"))?;
    ///
    /// let planned = memory.dry_run(&ann, trial, MergeVerb::Merge, None)?;
    /// assert_eq!((planned.status, &*planned.conflicts[0].id), ("blocked", "tea"));
    /// let refused = memory.merge(&ann, trial, MergeVerb::Merge, false).unwrap_err();
    /// assert_eq!(refused.kind(), Kind::Conflict);
    ///
    /// memory.resolve_conflict(&ann, trial, "tea", Side::Child)?;
    /// memory.merge(&ann, trial, MergeVerb::Merge, false)?;
    /// let merged = memory.snapshot(&View::Branch(main))?;
    /// assert_eq!(merged.get("tea")?.unwrap().text(), Some("tea is at five"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn resolve_conflict(
        &self,
        who: &Actor,
        branch: BranchId,
        id: &str,
        side: Side,
    ) -> Result<Option<&'static str>, Error> {
        let catalog = {
            // Taken for its effect and let go of: pending writes become entries, so the versions resolved are those of
            // the heads.
            let _writer = self.writer_for(who, &[Some(branch), self.parent_branch(branch)])?;
            self.catalog().clone()
        };
        let (mut resolved, mut overruling) = (Vec::new(), None);
        for (item, merge) in self.find_conflicts(&catalog, branch, id, who.uid)? {
            let resolution = Resolution { side, child: item.child, parent: item.parent };
            let one = ResolvedConflict { uid: who.uid, id: item.id.clone(), resolution };
            // Tried on a copy of the catalog first: a resolution that no merge follows would leave the conflict open, or
            // to a strategy, without a word.
            let is_followed = item.decision == Some(side)
                || !self.applicable_decisions(&catalog, (branch, merge), vec![one.clone()])?.is_empty();
            if !is_followed && self.waits_unresolved(&catalog, (branch, merge), &item.id, who.uid)? {
                if resolved.is_empty() {
                    return Err(MergeError::FolderInTheWay(id.to_string()).into());
                }
                continue;
            }
            let child = catalog.branch(branch)?;
            let receiver = if merge == MergeVerb::Pull { child } else { catalog.parent(child)? };
            if resolved.is_empty() && !is_followed {
                overruling = Some(receiver.settings.strategy().name());
            }
            resolved.push(one);
        }
        let _room = self.reserve_room(disk_cost_bytes(0, 0))?;
        for ResolvedConflict { id, resolution, .. } in resolved {
            let change = {
                let mut writer = self.writer_for(who, &[Some(branch)])?;
                let (_, change) =
                    self.execute(&mut writer, who.uid, ResolveConflict { branch, id: id.clone(), resolution })?;
                // Words replace what a write would have said: one that came before them must not resolve it otherwise
                // later. Under the lock, as whoever resolves by writing looks there; and behind the entry, since what
                // has failed replaces nothing.
                self.merging.acks.remove(branch, &id);
                change
            };
            self.notify(change);
        }
        Ok(overruling)
    }

    /// Finds the conflict that an id names: where it waits, in a merge or else in a pull, or else where one of them
    /// decides it by itself. It comes twice where a merge and a pull have it under two paths, as one side renamed it.
    fn find_conflicts(
        &self,
        catalog: &Catalog,
        branch: BranchId,
        id: &str,
        uid: u32,
    ) -> Result<Vec<(Decision, MergeVerb)>, Error> {
        let merged = self.plan_whole(catalog, (branch, MergeVerb::Merge), uid)?;
        let in_merge = merged.named_conflict(id)?;
        // A record has one id in both.
        if let Some(item) = in_merge.filter(|item| item.decision.is_none() && !item.is_file()) {
            return Ok(vec![(item.clone(), MergeVerb::Merge)]);
        }
        let pulled = self.plan_whole(catalog, (branch, MergeVerb::Pull), uid)?;
        let in_pull = match pulled.named_conflict(id) {
            Err(error) if in_merge.is_none() => return Err(error),
            found => found.unwrap_or_default(),
        };
        let (merge, pull) = match (in_merge, in_pull) {
            (Some(item), None) => (Some(item), pulled.only_conflict_like(item)),
            (None, Some(item)) => (merged.only_conflict_like(item), Some(item)),
            both => both,
        };
        let found = [(merge, MergeVerb::Merge), (pull, MergeVerb::Pull)];
        let mut found: Vec<_> = found.into_iter().filter_map(|(item, merge)| Some((item?.clone(), merge))).collect();
        found.sort_by_key(|(item, _)| item.decision.is_some());
        found.dedup_by(|later, first| later.0.id == first.0.id);
        if found.is_empty() { Err(MergeError::NoConflict(id.to_string()).into()) } else { Ok(found) }
    }

    /// Returns whether a conflict would wait if nobody had resolved it: no strategy and no rule decides it. Fails like
    /// `Memory::plan_whole`.
    fn waits_unresolved(
        &self,
        catalog: &Catalog,
        (branch, merge): (BranchId, MergeVerb),
        id: &Arc<str>,
        uid: u32,
    ) -> Result<bool, Error> {
        let mut unresolved = catalog.clone();
        unresolved.change(branch, |branch| {
            branch.resolutions.remove(id);
        });
        let planned = self.plan_whole(&unresolved, (branch, merge), uid)?;
        Ok(planned.both_changed.iter().any(|item| item.id == *id && item.decision.is_none()))
    }

    /// Resolves for the child what was written in a branch by who was shown that it is in conflict. If that can't be
    /// done the conflict stays open. Fails with `Error::ReadOnly` if nothing can be written, or if the plan of one of
    /// the merges can't be made.
    pub(in crate::memory) fn resolve_written(&self, branch: BranchId) -> Result<(), Error> {
        if self.read_only || !self.merging.acks.has_any(branch) {
            return Ok(());
        }
        let (catalog, is_committed) = {
            let mut writer = self.writer()?;
            writer.writable()?;
            let is_pending = writer.pending.contains_key(&branch);
            self.commit_pending(&mut writer, branch)?;
            (self.catalog().clone(), is_pending)
        };
        if is_committed {
            self.announce_files(branch);
        }
        // After the commit above, which is what notes writes. They stay until they are resolved, for a failure in between
        // and for a second caller, whose merge needs them as well.
        let written = self.merging.acks.resolving_writes(branch);
        for merge in [MergeVerb::Merge, MergeVerb::Promote, MergeVerb::Pull] {
            let Some(first) = written.iter().find(|written| written.ack.merge == merge) else { continue };
            let planned = self.plan_whole(&catalog, (branch, merge), first.uid)?;
            // A unit is decided as one: a write to one member decides nothing.
            let open =
                planned.conflicts().filter(|item| item.decision.is_none() && planned.unit_decision(&item.id).is_none());
            let resolved = open.filter_map(|item| {
                let is_it = |shown: &Option<_>| *shown == item.parent;
                let found =
                    written.iter().find(|it| it.ack.merge == merge && it.id == item.id && is_it(&it.ack.parent))?;
                // Where names read alike nobody knows which of the files was written.
                planned.named_conflict(&item.id).ok()?;
                let resolution = Resolution { side: Side::Child, child: item.child, parent: item.parent };
                Some(ResolvedConflict { uid: found.uid, id: item.id.clone(), resolution })
            });
            let followed = self.applicable_decisions(&catalog, (branch, merge), resolved.collect())?;
            for ResolvedConflict { uid, id, resolution } in followed {
                let of_it: Vec<_> = written.iter().filter(|it| it.ack.merge == merge && it.id == id).cloned().collect();
                let change = {
                    // What changes between plan and lock does no harm: a resolution names its versions and counts for
                    // them alone.
                    let mut writer = self.writer()?;
                    // Asked under the lock, so that of two callers one resolves it.
                    if !of_it.iter().any(|one| self.merging.acks.is_unresolved(branch, one)) {
                        continue;
                    }
                    let (_, change) = self.execute(&mut writer, uid, ResolveConflict { branch, id, resolution })?;
                    self.merging.acks.remove_writes(branch, &of_it);
                    change
                };
                self.notify(change);
            }
        }
        self.merging.acks.remove_writes(branch, &written);
        Ok(())
    }

    /// Resolves what was written anywhere. A failure is logged, as there is nobody to tell.
    pub(in crate::memory) fn resolve_all_written(&self) {
        for branch in self.merging.acks.branches_with_writes() {
            if let Err(error) = self.resolve_written(branch) {
                log::warn!("what was written to resolve conflicts of a branch resolves none: {error}");
            }
        }
    }

    /// Returns those decisions that a merge would follow: a directory that holds something stays, whoever wants it away.
    fn applicable_decisions(
        &self,
        catalog: &Catalog,
        (branch, merge): (BranchId, MergeVerb),
        resolved: Vec<ResolvedConflict>,
    ) -> Result<Vec<ResolvedConflict>, Error> {
        let Some(first) = resolved.first() else { return Ok(resolved) };
        let mut tried = catalog.clone();
        tried.change(branch, |branch| {
            for it in &resolved {
                branch.resolutions.insert(it.id.clone(), it.resolution.clone());
            }
        });
        let planned = self.plan_whole(&tried, (branch, merge), first.uid)?;
        let is_followed = |it: &ResolvedConflict| {
            let same = |item: &&Decision| item.id == it.id;
            let decision = planned.both_changed.iter().find(same).and_then(|item| item.decision);
            decision.is_none_or(|taken| taken == it.resolution.side)
        };
        Ok(resolved.into_iter().filter(is_followed).collect())
    }

    /// Plans a merge of one version of the catalog, whatever it takes, in turns with what else a user computes. It
    /// knows no limit, and no rules are asked for whoever merges. Fails with `Error::Gone` if the branch or its parent
    /// is not in that catalog, or if what differs can't be read.
    pub(in crate::memory) fn plan_whole(
        &self,
        catalog: &Catalog,
        (branch, merge): (BranchId, MergeVerb),
        uid: u32,
    ) -> Result<MergePlan, Error> {
        let turn = self.admission.turns.wait_for_turn(uid);
        let pause = || turn.pause();
        let contents = self.merging.planner.contents(branch, merge);
        let merge_budget = MergeBudget { merger: &contents.merger(&pause), pause: &pause, ..MergeBudget::ALL };
        let context = MergeContext { catalog, packs: &self.storage.trees, time: self.now() };
        Ok(MergePlan::new(context, branch, merge, None, &merge_budget)?)
    }

    /// Returns the branch above; `None` for a root branch and for one that has ended.
    pub(in crate::memory) fn parent_branch(&self, branch: BranchId) -> Option<BranchId> {
        self.catalog().branches.get(&branch).and_then(|branch| branch.parent)
    }
}
