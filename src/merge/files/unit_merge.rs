//! Decides units, before the files that are in none: each is taken as a whole from one side.
//!
//! Of a unit that is taken from the child, the parent's version of each member is as a base that the child alone
//! changed; of one that stays as the parent has it nothing is done. So what becomes of members is a list of changes
//! like that of all other files.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::apply::TreeEditor;
use super::content::other_side;
use super::node_map::{NodeId, NodeMap};
use super::resolver::Resolver;
use super::unit::{UnitFinder, UnitLayout, UnitRoot};
use super::unit_diff::{MemberDifference, UnitVersion, diff_members};
use super::{FileDecision, FileLoser, Loser, Rules, Side, Strategy};
use crate::object::Time;
use crate::workspace::{FileNode, Packs, Tree, TreeDifference, TreeError};

/// A unit that both sides changed differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitConflict {
    /// The path of its decision: that of the main file or the directory.
    pub path: Vec<u8>,
    /// The paths of the members that the sides have differently.
    pub members: BTreeSet<Vec<u8>>,
}

/// What a difference in a unit says of the whole unit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MemberRelevance {
    /// The unit has changed.
    Relevant,
    /// Nothing that matters.
    Irrelevant,
}

/// Which side a unit is taken from, with all its members.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum UnitOutcome {
    /// The child's version is taken, and members that it lacks go.
    Child,
    /// It stays as the parent has it.
    Parent,
}

/// The units that have to do with what the child changed.
pub(super) struct UnitPlanner<'a, 'b> {
    trees: &'b NodeMap<'a>,
    /// Of base, child and parent.
    finders: [UnitFinder<'a>; 3],
    /// The members that were met, by the unit's root.
    members_by_root: HashMap<NodeId, BTreeSet<NodeId>>,
}

/// What was decided on all units that were met.
#[derive(Default)]
pub(super) struct UnitPlan {
    /// What becomes of each file that is in a unit.
    pub outcomes: HashMap<NodeId, UnitOutcome>,
    /// Units that both sides changed differently, with the members that differ.
    pub conflicts: Vec<UnitConflict>,
    /// What was decided of each unit that both sides changed.
    pub decisions: Vec<FileDecision>,
    /// The versions of units that were not taken.
    pub losers: Vec<FileLoser>,
    /// The roots of what is taken from the child, and its version.
    taken_roots: Vec<(NodeId, Option<UnitRoot>)>,
}

impl<'a, 'b> UnitPlanner<'a, 'b> {
    /// Prepares to find units in each of the three trees, and looks at none yet.
    pub(super) fn new(trees: &'b NodeMap<'a>, rules: &'a Rules, packs: &'a dyn Packs) -> UnitPlanner<'a, 'b> {
        let finders = [trees.base, trees.child, trees.parent].map(|tree| UnitFinder::new(tree, rules, packs));
        UnitPlanner { trees, finders, members_by_root: HashMap::new() }
    }

    /// Takes a difference between base and child where it is within a unit; returns what it says there. Fails if a file
    /// has to be looked into, to tell whether it begins a unit, and can't be read.
    pub(super) fn add_difference(&mut self, difference: &TreeDifference) -> Result<Option<MemberRelevance>, TreeError> {
        let (old, new) = (difference.old.as_ref(), difference.new.as_ref());
        let there = match old {
            Some((inode, _)) => self.trees.parent_inode(NodeId::Base(*inode)),
            None => self.trees.parent.resolve(&difference.path).ok(),
        };
        let node = there.and_then(|inode| self.trees.parent.node(inode).ok());
        // What one side alone changed is taken from it, in a unit or not, unless there is more to the unit.
        let alone = match (old, node) {
            (Some((_, old)), Some(node)) => !Arc::ptr_eq(old, node),
            (old, node) => old.is_some() || node.is_some(),
        };
        let mut inodes = [old.map(|(inode, _)| *inode), new.map(|(inode, _)| *inode), there];
        // What only has the path in the parent is another file. It is no member, or it would go with the parent's version
        // of the unit; where it is in the way of the child's, the editor of the tree sees to it.
        let ids = [1, 2].map(|side| inodes[side].and_then(|inode| self.id(side, inode)));
        if old.is_none() && ids[0].is_some() && ids[0] != ids[1] {
            inodes[2] = None;
        }
        let (mut roots, mut members, mut layout) = (BTreeSet::new(), BTreeSet::new(), None);
        for (side, inode) in inodes.into_iter().enumerate() {
            let root = match inode {
                Some(inode) => self.finders[side].root(inode, alone)?,
                None => self.finders[side].find_main(&difference.path)?,
            };
            layout = layout.or(root.map(|root| root.layout));
            roots.extend(root.and_then(|root| self.id(side, root.inode)));
            members.extend(inode.and_then(|inode| self.id(side, inode)));
        }
        if roots.is_empty() {
            return Ok(None);
        }
        for root in roots {
            self.members_by_root.entry(root).or_default().extend(members.iter().copied());
        }
        let layout = layout.unwrap_or(UnitLayout::Companions);
        let is_irrelevant = |side: usize, there: Option<&(u64, Arc<FileNode>)>| {
            there.is_none_or(|(inode, _)| self.finders[side].is_irrelevant(layout, *inode))
        };
        Ok(Some(if is_irrelevant(0, old) && is_irrelevant(1, new) {
            MemberRelevance::Irrelevant
        } else {
            MemberRelevance::Relevant
        }))
    }

    fn id(&self, side: usize, inode: u64) -> Option<NodeId> {
        match side {
            0 => self.trees.id_in_base(inode),
            1 => self.trees.id_in_child(inode),
            _ => self.trees.id_in_parent(inode),
        }
    }

    /// Returns the unit in each of the trees: one that is known by how a file begins may have lost that on a side.
    fn versions(&mut self, root: NodeId) -> Result<[Option<UnitRoot>; 3], TreeError> {
        let trees = self.trees;
        let inodes = [trees.base_inode(root), trees.child_inode(root), trees.parent_inode(root)];
        let mut layout = None;
        for side in [1, 0, 2] {
            let Some(inode) = inodes[side].filter(|_| layout.is_none()) else { continue };
            let found = self.finders[side].root(inode, true)?;
            layout = found.filter(|found| found.inode == inode).map(|found| found.layout);
        }
        Ok(inodes.map(|inode| Some(UnitRoot { inode: inode?, layout: layout? })))
    }

    /// Decides all units that were met. Fails like [`UnitPlanner::add_difference`].
    pub(super) fn decide(mut self, resolver: &Resolver<'_>) -> Result<UnitPlan, TreeError> {
        let mut plan = UnitPlan::default();
        for (root, met) in std::mem::take(&mut self.members_by_root) {
            let versions = self.versions(root)?;
            // The order of this map varies, so no result may depend on it: lists are sorted at the end, or by `sort_and_dedup`.
            let outcome = self.decide_unit(resolver, root, versions, &mut plan);
            let mut members: BTreeSet<NodeId> = met;
            members.insert(root);
            if outcome == UnitOutcome::Child {
                let [_, child, parent] = versions;
                for difference in diff_members((&self.finders[2], parent), (&self.finders[1], child)) {
                    members.extend(difference.old.and_then(|inode| self.id(2, inode)));
                    members.extend(difference.new.and_then(|inode| self.id(1, inode)));
                }
                members.extend(self.leftover_companions(child, parent));
                plan.taken_roots.push((root, child));
            }
            for member in members {
                // What was moved from one unit to another goes where it is taken to.
                let known = plan.outcomes.entry(member).or_insert(outcome);
                if outcome == UnitOutcome::Child {
                    *known = outcome;
                }
            }
        }
        plan.conflicts.sort_by(|a, b| a.path.cmp(&b.path));
        plan.losers.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(plan)
    }

    /// Returns the companions that the parent has where the child has a main file and the parent none: they fit no
    /// longer.
    fn leftover_companions(&self, child: Option<UnitRoot>, parent: Option<UnitRoot>) -> Vec<NodeId> {
        let main = child.filter(|child| parent.is_none() && child.layout == UnitLayout::Companions);
        let path = main.and_then(|main| self.trees.child.path(main.inode));
        let left = path.map(|path| self.finders[2].companions_at(&path)).unwrap_or_default();
        left.into_iter().filter_map(|inode| self.id(2, inode)).collect()
    }

    fn decide_unit(
        &self,
        resolver: &Resolver<'_>,
        root: NodeId,
        versions: [Option<UnitRoot>; 3],
        plan: &mut UnitPlan,
    ) -> UnitOutcome {
        let [base, child, parent] = [0, 1, 2].map(|side| (&self.finders[side], versions[side]));
        let (mut by_child, by_parent) = (diff_members(base, child), diff_members(base, parent));
        by_child.retain(|difference| !self.is_mode_of_pull(resolver, difference));
        let is_changed = |changes: &[MemberDifference], side: usize| {
            changes.iter().any(|change| change.is_relevant) || self.places(root, side) != self.places(root, 0)
        };
        if !is_changed(&by_child, 1) {
            return UnitOutcome::Parent;
        }
        if !is_changed(&by_parent, 2) {
            return UnitOutcome::Child;
        }
        let between = diff_members(parent, child);
        let hash = |(finder, root): UnitVersion<'_, '_>| root.and_then(|root| finder.hash(&root));
        let mut whole = FileDecision {
            base: hash(base),
            child: hash(child),
            parent: hash(parent),
            ..resolver.item(root).to_decision(Some(Side::Both))
        };
        // Both sides changed it to the same unit: that is listed, and no conflict.
        if !between.iter().any(|change| change.is_relevant) && self.places(root, 1) == self.places(root, 2) {
            plan.decisions.push(whole);
            return UnitOutcome::Parent;
        }
        let times = [(child.0.tree, &by_child), (parent.0.tree, &by_parent)]
            .map(|(tree, changes)| last_write_time(tree, changes));
        let layout = versions.iter().flatten().next().map_or(UnitLayout::Companions, |root| root.layout);
        whole.decision = winner(resolver, layout, &whole, times);
        let decided = whole.decision;
        self.record_conflict(&between, whole, plan);
        if decided == Some(Side::Child) { UnitOutcome::Child } else { UnitOutcome::Parent }
    }

    /// Returns whether a member differs in the branch that is merged only in that a pull closed it there.
    fn is_mode_of_pull(&self, resolver: &Resolver<'_>, difference: &MemberDifference) -> bool {
        let (Some(guard), true) = (resolver.guard, difference.is_of_mode_alone) else { return false };
        let base = difference.old.and_then(|inode| self.trees.base.node(inode).ok());
        let child = difference.new.and_then(|inode| self.trees.child.node(inode).ok());
        base.zip(child).is_some_and(|(base, child)| guard.is_mode_of_pull(self.trees, base, child))
    }

    /// Notes a conflict, the members that the sides have differently, and those of the side that loses, each with the
    /// hash of its version.
    fn record_conflict(&self, between: &[MemberDifference], whole: FileDecision, plan: &mut UnitPlan) {
        let [_, child, parent] = [&self.finders[0], &self.finders[1], &self.finders[2]].map(|finder| finder.tree);
        let mut members = BTreeSet::new();
        let mut lost = Vec::new();
        for difference in between.iter().filter(|difference| difference.is_relevant) {
            let paths = [(child, difference.new), (parent, difference.old)]
                .map(|(tree, inode)| inode.and_then(|inode| Some((tree.path(inode)?, tree.node(inode).ok()?.hash()))));
            let lost_path = whole.decision.and_then(|winner| paths[usize::from(winner == Side::Child)].as_ref());
            if let Some((path, Some(hash))) = lost_path {
                lost.push([path, &b" "[..], hash.to_string().as_bytes()].concat());
            }
            members.extend(paths.into_iter().flatten().map(|(path, _)| path));
        }
        if let Some(winner) = whole.decision {
            let loser = other_side(winner);
            let path = || whole.path.clone();
            plan.losers.push(FileLoser { path: path(), what: Loser::File(loser) });
            lost.sort();
            let parts = lost.into_iter().map(|bytes| Loser::Part { side: loser, bytes });
            plan.losers.extend(parts.map(|what| FileLoser { path: path(), what }));
        }
        plan.conflicts.push(UnitConflict { path: whole.path.clone(), members });
        plan.decisions.push(whole);
    }

    /// Returns the places of the root on a side, so that a move counts as a change of the unit.
    fn places(&self, root: NodeId, side: usize) -> BTreeSet<(Option<NodeId>, Vec<u8>)> {
        let tree = self.finders[side].tree;
        let inode = [self.trees.base_inode(root), self.trees.child_inode(root), self.trees.parent_inode(root)][side];
        let node = inode.and_then(|inode| tree.node(inode).ok());
        let names = node.into_iter().flat_map(|node| node.names());
        names.map(|(directory, name)| (self.id(side, directory), name.to_vec())).collect()
    }
}

/// When a side last wrote what it changed.
fn last_write_time(tree: &Tree, changes: &[MemberDifference]) -> Time {
    let nodes = changes.iter().filter(|change| change.is_relevant).filter_map(|change| tree.node(change.new?).ok());
    nodes.map(|node| node.mtime).max().unwrap_or_default()
}

/// Returns which side is taken of a unit that both changed: what the rule says, and without that nobody but a person.
fn winner(resolver: &Resolver<'_>, layout: UnitLayout, whole: &FileDecision, times: [Time; 2]) -> Option<Side> {
    let inside = if layout == UnitLayout::Companions { &b""[..] } else { b"/" };
    let mut rule = resolver.rules.rule_for(&[&whole.path[..], inside].concat());
    if !rule.kind.is_unit() && resolver.rules.rule_for(&whole.path).kind.is_unit() {
        rule = resolver.rules.rule_for(&whole.path);
    }
    match rule.strategy.unwrap_or(Strategy::Manual) {
        Strategy::Manual => {
            let chosen = (resolver.resolved)(&FileDecision { decision: None, ..whole.clone() });
            // A unit is taken as a whole, so that both sides of it can't be kept.
            chosen.filter(|side| *side != Side::Both)
        }
        strategy => strategy.winner(times[0], times[1]),
    }
}

impl UnitPlan {
    /// Blocks the merge where a unit did not get into the result as the child has it: another file has the name of a
    /// member.
    pub(super) fn check_whole(&mut self, editor: &TreeEditor<'_, '_>) -> Vec<FileDecision> {
        let (resolver, tree) = (&*editor.resolver, &editor.tree);
        let (rules, packs) = (resolver.rules, resolver.packs);
        let finders = [resolver.trees.child, tree].map(|tree| UnitFinder::new(tree, rules, packs));
        let mut torn = Vec::new();
        for (root, child) in std::mem::take(&mut self.taken_roots) {
            // A unit that the child deleted has no root on either side, and so nothing that could have been torn.
            let result = child.and_then(|child| Some(UnitRoot { inode: editor.inode(root)?, ..child }));
            let differing = diff_members((&finders[0], child), (&finders[1], result));
            // A member that has another mode alone is whole: the result keeps it closed to somebody.
            if differing.iter().any(|difference| difference.is_relevant && !difference.is_of_mode_alone) {
                torn.push(resolver.item(root).to_decision(None));
            }
        }
        torn
    }
}
