//! The plan of a merge of trees: pure, from three trees to the one that the parent gets.

use std::collections::{BTreeSet, HashSet};

use super::apply::TreeEditor;
use super::node_change::NodeChange;
use super::node_map::{NodeId, NodeMap, never_merges};
use super::one_sided::OneSidedFinder;
use super::resolver::Resolver;
use super::unit_merge::{MemberRelevance, UnitOutcome, UnitPlan, UnitPlanner};
use super::{
    ContentMerger, Fallback, FileDecision, FileLoser, MERGED_BYTES_MAX, MergeAll, MergeTrees, NewOwner, ReaderGuard,
    Rules, Side, Strategy, UnitConflict,
};
use crate::object::{Context, Hash, Hasher, Time};
use crate::workspace::{FileOp, Packs, Tree, TreeChange, TreeDifference, TreeError, TreePatch};

/// What a merge does to the files of the branch that receives.
pub struct FilePlan {
    /// The resulting tree; the parent's own where the plan is blocked. Inode numbers are the
    /// parent's, and what the child added has numbers that neither side gave before.
    pub tree: Tree,
    /// What turns the parent's tree into that one.
    pub patch: TreePatch,
    /// Every file that both sides changed, in bytewise order of paths; of directories those where they
    /// contradict.
    pub both_changed: Vec<FileDecision>,
    /// The units among them that the sides have differently.
    pub units: Vec<UnitConflict>,
    /// What was not kept, with the path of its decision.
    pub losers: Vec<FileLoser>,
    /// Files that could not be merged by their kind, and why.
    pub fallbacks: Vec<(Vec<u8>, Fallback)>,
    /// Inodes that have no name any longer and are orphans in the tree: those that no handle has
    /// open are for `Op::Drop`.
    pub removed: Vec<u64>,
    /// How many files the receiving branch then has otherwise, or no longer; directories not counted.
    pub changed_files: u64,
    /// What the child changed and no rule left out: a hash over each path with its versions in base and child.
    pub taken_hash: Hash,
    /// Paths that the child changed and that a rule left out, in bytewise order. A directory is named where nothing in it
    /// differs.
    pub not_merged: Vec<Vec<u8>>,
}

static TAKEN: Context = Context::new("engramfs 2026 merge plan files v1");

impl FilePlan {
    /// Returns the files on which both sides contradict, whether they are decided or wait.
    pub fn conflicts(&self) -> impl Iterator<Item = &FileDecision> {
        self.both_changed.iter().filter(|item| item.decision != Some(Side::Both))
    }

    /// Returns the tree without what has no name any longer, and what turns the parent's tree into it. `packs` is not
    /// asked: dropping a node reads nothing. An error is that of [`Tree::apply`], which has none for such an op.
    pub fn without_removed(&self, time: Time, packs: &dyn Packs) -> Result<(Tree, TreePatch), TreeError> {
        let (mut tree, mut patch) = (self.tree.clone(), self.patch.clone());
        for inode in &self.removed {
            let op = FileOp::Drop { inode: *inode };
            tree.apply(&op, time, packs)?;
            patch.changes.push(TreeChange::Op(op));
        }
        Ok((tree, patch))
    }

    /// Returns whether a conflict waits for a manual decision. The tree is then that of the parent.
    pub fn is_blocked(&self) -> bool {
        self.both_changed.iter().any(|item| item.decision.is_none())
    }
}

/// How files are merged: rules, strategy, budget and time.
pub struct FileMerge<'a> {
    /// Which kind and strategy each path has.
    pub rules: &'a Rules,
    /// How conflicts are decided where the rule of a file does not say.
    pub strategy: Strategy,
    /// Gives the side chosen manually for a file whose versions are still those it was chosen for.
    /// Asked under `manual` only.
    pub resolved: &'a dyn Fn(&FileDecision) -> Option<Side>,
    /// Where sealed contents are read.
    pub packs: &'a dyn Packs,
    /// Where contents are merged that both sides changed; it may refuse more than its budget.
    pub merger: &'a dyn ContentMerger,
    /// How many paths the child may have changed; [`TreeError::Exceeded`] if it changed more.
    pub paths_max: usize,
    /// When the merge is done, which is the time of all changes of nodes.
    pub time: Time,
    /// Who owns what the child added; `None` if it keeps its owner.
    pub new_owner: Option<NewOwner>,
    /// To whom nothing may be opened that was closed to them; nobody where who asks may read all.
    pub guard: Option<ReaderGuard>,
    /// Whether contents that the child gives count as written at that time.
    pub writes: bool,
}

impl<'a> FileMerge<'a> {
    /// Takes all that the child has other than the base, where the parent is the base.
    pub fn fast_forward(rules: &'a Rules, packs: &'a dyn Packs, paths_max: usize, time: Time) -> FileMerge<'a> {
        FileMerge {
            rules,
            strategy: Strategy::ChildWins,
            resolved: &|_| None,
            packs,
            merger: &MergeAll,
            paths_max,
            time,
            new_owner: None,
            guard: None,
            writes: false,
        }
    }
}

/// Plans a merge of files. The same arguments always give the same tree.
///
/// Each file is followed by its inode, so that a rename on one side and a change on the other both
/// apply; content, mode, each `user.` attribute and the names merge for themselves. What only one
/// side changed is taken, content that both changed is merged by the kind that the rules give the
/// path, and the rest is decided by the rule's strategy or else `strategy`: different kinds of things
/// or different names, a delete against a change, two things at one name. Under `newest-wins` the
/// times compared are mtime where contents differ and ctime elsewhere; that of a delete is the mtime
/// of the directory it was in. A directory follows what is in it: removed on one side, it stays or comes
/// back for what the other put there, and one that holds something is never removed for a name.
/// Paths that do not merge stay as the parent has them.
///
/// It costs what the child changed. Fails only if a content that has to be merged can't be read, or if it is more than
/// was allowed.
pub fn plan_files(trees: MergeTrees<'_>, file_merge: &FileMerge<'_>) -> Result<FilePlan, TreeError> {
    plan_by(trees, file_merge, |files, difference| files.change(difference))
}

/// The same, where `alone` says which files the child alone changed; tests have it say none. `TreeError::Exceeded` if
/// more than `paths_max` paths differ or units bring along too many, `TreeError::Segment` if a content can't be read.
pub(super) fn plan_by(
    trees: MergeTrees<'_>,
    file_merge: &FileMerge<'_>,
    one_sided: impl Fn(&mut OneSidedFinder<'_, '_>, &TreeDifference) -> Option<Option<NodeChange>>,
) -> Result<FilePlan, TreeError> {
    let FileMerge { rules, strategy, resolved, packs, merger, paths_max, .. } = *file_merge;
    let (both_changed, losers, fallbacks) = Default::default();
    let mut resolver = Resolver {
        trees: NodeMap::new(trees),
        rules,
        strategy,
        resolved,
        packs,
        merger,
        guard: file_merge.guard,
        bytes_left: MERGED_BYTES_MAX,
        both_changed,
        losers,
        fallbacks,
    };
    let differences = trees.base.differences_at_most(trees.child, paths_max).ok_or(TreeError::Exceeded)?;
    let sorted = classify(&resolver, differences, one_sided)?;
    let (mut changes, mut units) = (sorted.changes, sorted.units);
    // A unit that is taken brings along members that the child did not change: up to 16 for each path of the budget.
    if units.outcomes.len() / 16 > paths_max {
        return Err(TreeError::Exceeded);
    }
    resolver.both_changed.append(&mut units.decisions);
    resolver.losers.append(&mut units.losers);
    // Units come first: what is decided for a unit holds for each member. The resolver passes over members that stay as
    // the parent has them, and sees those of a unit that is taken as changed by the child alone.
    for id in changed_by_child(&resolver.trees, &sorted.others, &units) {
        let mut item = resolver.item(id);
        match units.outcomes.get(&id) {
            Some(UnitOutcome::Parent) => continue,
            Some(UnitOutcome::Child) => item.base = item.parent.clone(),
            None => {}
        }
        changes.extend(resolver.decide(&item)?);
    }
    let mut builder = TreeEditor::new(&mut resolver, file_merge);
    builder.keep_closed(&mut changes);
    builder.build(&changes)?;
    builder.close_kept(&changes, [&sorted.left_out, &sorted.others])?;
    // Only the built tree shows whether each unit that was taken arrived whole: another file may have got the name of a
    // member.
    let torn = units.check_whole(&builder);
    builder.resolver.both_changed.extend(torn);
    let TreeEditor { tree, patch, removed, files, .. } = builder;
    let changed_files = files.len() as u64;
    let mut plan = FilePlan {
        tree,
        patch,
        both_changed: resolver.both_changed,
        units: units.conflicts,
        losers: resolver.losers,
        fallbacks: resolver.fallbacks,
        removed,
        changed_files,
        taken_hash: sorted.taken_hash,
        not_merged: left_out_paths(&sorted.left_out, trees.parent),
    };
    // After the tree is built, which adds decisions of its own where names collide.
    sort_and_dedup(&mut plan.both_changed);
    if plan.is_blocked() {
        // A blocked plan changes nothing, and nobody may take a half decided tree for the result.
        (plan.tree, plan.patch, plan.removed) = (trees.parent.clone(), TreePatch::default(), Vec::new());
    }
    Ok(plan)
}

/// What the child changed, sorted by how it is decided.
struct ClassifiedChanges {
    /// Files that the child alone changed, and that are at the same path on all sides: decided without a resolver.
    changes: Vec<NodeChange>,
    /// Differences that a rule excludes from the merge.
    left_out: Vec<TreeDifference>,
    units: UnitPlan,
    /// All other differences, which the resolver decides.
    others: Vec<TreeDifference>,
    /// The hash of all but what is left out.
    taken_hash: Hash,
}

fn classify(
    resolver: &Resolver<'_>,
    differences: Vec<TreeDifference>,
    one_sided: impl Fn(&mut OneSidedFinder<'_, '_>, &TreeDifference) -> Option<Option<NodeChange>>,
) -> Result<ClassifiedChanges, TreeError> {
    let (rules, packs) = (resolver.rules, resolver.packs);
    let (mut changes, mut left_out, mut others) = (Vec::new(), Vec::new(), Vec::new());
    let mut files = OneSidedFinder::new(&resolver.trees, rules);
    let mut units = UnitPlanner::new(&resolver.trees, rules, packs);
    let mut taken = Hasher::new(&TAKEN);
    for difference in differences {
        // Units first: a member follows its unit also where one side alone changed it.
        if let Some(member) = units.add_difference(&difference)? {
            if member == MemberRelevance::Relevant {
                add_versions(&mut taken, &difference);
            }
            continue;
        }
        let change = one_sided(&mut files, &difference);
        // A change that does nothing means that a rule left the file out.
        let is_left_out = match &change {
            Some(change) => change.is_none(),
            None => never_merges(rules, &difference.path, difference.is_directory()),
        };
        if is_left_out {
            // Only noted here: where the file has other names that merge, the resolver still decides about those.
            left_out.push(difference.clone());
        } else {
            add_versions(&mut taken, &difference);
        }
        match change {
            Some(change) => changes.extend(change),
            None => others.push(difference),
        }
    }
    Ok(ClassifiedChanges { changes, left_out, units: units.decide(resolver)?, others, taken_hash: taken.finish() })
}

fn add_versions(hasher: &mut Hasher, difference: &TreeDifference) {
    hasher.field(&difference.path);
    for version in difference.hashes() {
        hasher.update(&version.unwrap_or(Hash::ZERO).0);
    }
}

/// Returns the paths that were left out and that would have merged otherwise: those that the parent has differently.
fn left_out_paths(left_out: &[TreeDifference], parent: &Tree) -> Vec<Vec<u8>> {
    let holds_another = |directory: &TreeDifference| {
        let inside = [&directory.path[..], b"/"].concat();
        let next = left_out.partition_point(|other| other.path < inside);
        left_out.get(next).is_some_and(|other| other.path.starts_with(&inside))
    };
    let is_named = |it: &&TreeDifference| !(it.is_new_in(parent) || it.is_directory() && holds_another(it));
    left_out.iter().filter(is_named).map(|it| it.path.clone()).collect()
}

/// Everything that has to do with units or some differences between base and child, directories before what is in
/// them.
fn changed_by_child(trees: &NodeMap<'_>, differences: &[TreeDifference], units: &UnitPlan) -> Vec<NodeId> {
    let mut todo: Vec<NodeId> = units.outcomes.keys().copied().collect();
    for difference in differences {
        todo.extend(difference.old.as_ref().map(|(inode, _)| NodeId::Base(*inode)));
        todo.extend(difference.new.as_ref().and_then(|(inode, _)| trees.id_in_child(*inode)));
    }
    let mut seen = HashSet::new();
    let mut found: BTreeSet<(Vec<u8>, NodeId)> = BTreeSet::new();
    while let Some(id) = todo.pop() {
        // Files that replaced each other lead back to one another.
        if !seen.insert(id) {
            continue;
        }
        // Where a file was replaced by an equal one, paths show no difference.
        todo.extend(trees.replaced(id));
        let path = match (trees.child_inode(id), trees.base_inode(id)) {
            (Some(inode), _) => trees.child.path(inode),
            (None, Some(inode)) => trees.base.path(inode),
            (None, None) => trees.parent_inode(id).and_then(|inode| trees.parent.path(inode)),
        };
        found.extend(path.map(|path| (path, id)));
    }
    found.into_iter().map(|(_, id)| id).collect()
}

/// Brings decisions into order and leaves one a path: one that waits outdoes the others, one for a
/// side outdoes `Both`.
fn sort_and_dedup(decisions: &mut Vec<FileDecision>) {
    let weight = |decision: &FileDecision| match decision.decision {
        None => 0,
        Some(Side::Child | Side::Parent) => 1,
        Some(Side::Both) => 2,
    };
    decisions.sort_by(|a, b| a.path.cmp(&b.path).then(weight(a).cmp(&weight(b))));
    decisions.dedup_by(|later, first| later.path == first.path);
}
