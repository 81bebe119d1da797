//! What becomes of one file or directory: its places, its content, its attributes.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::conflict_policy::{ConflictPolicy, merge_names};
use super::content::{other_side, whole};
use super::node_change::{FileDecision, MergeItem, NewBody, NodeChange, NodeVersion, same_body};
use super::node_map::{NodeId, NodeMap, places};
use super::reader_guard::is_open_to_everybody;
use super::{
    CONTENT_BYTES_MAX, ContentChoice, ContentKey, ContentMerger, Contents, Fallback, Loser, MergedContent, ReaderGuard,
    Rules, Side, Strategy, merge_contents,
};
use crate::object::{Hash, Time};
use crate::workspace::{FileKind as NodeKind, FileNode, Packs, ROOT, Tree, TreeError};

/// A loser and whose path it had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLoser {
    /// The path of the [`FileDecision`] that tells of it.
    pub path: Vec<u8>,
    /// What was lost: the file, or a part of it.
    pub what: Loser,
}

/// Resolves each file on three sides, and records what was decided and what lost.
pub(super) struct Resolver<'a> {
    /// Base, child and parent, and which of their inodes are the same file.
    pub trees: NodeMap<'a>,
    /// The rules of the branch whose strategy it is: how each path merges.
    pub rules: &'a Rules,
    /// The branch's, for rules that have none.
    pub strategy: Strategy,
    /// The side that a person chose for a file whose versions are still those.
    pub resolved: &'a dyn Fn(&FileDecision) -> Option<Side>,
    /// Where contents that have to be read are.
    pub packs: &'a dyn Packs,
    /// Merges contents that both sides changed, or remembers how they merged before.
    pub merger: &'a dyn ContentMerger,
    /// To whom nothing may be opened that was closed to them; nobody where who asks may read all.
    pub guard: Option<ReaderGuard>,
    /// Bytes of contents that may still be merged by their kind; beyond that files are `whole`.
    pub bytes_left: u64,
    /// What both sides changed, in the order in which it was met.
    pub both_changed: Vec<FileDecision>,
    /// What was not taken, each with the path of its decision.
    pub losers: Vec<FileLoser>,
    /// Files that could not be merged by their kind, and why.
    pub fallbacks: Vec<(Vec<u8>, Fallback)>,
}

impl<'a> Resolver<'a> {
    /// Returns a file as all sides have it.
    pub(super) fn item(&self, id: NodeId) -> MergeItem {
        let trees = &self.trees;
        let base = self.version_on(trees.base, trees.base_inode(id), |inode| trees.id_in_base(inode));
        let mut child = self.version_on(trees.child, trees.child_inode(id), |inode| trees.id_in_child(inode));
        if let (Some(guard), Some(base), Some(child)) = (self.guard, &base, &mut child)
            && guard.is_mode_of_pull(trees, &base.node, &child.node)
        {
            // So it counts as unchanged, and contradicts nothing that the parent did.
            Arc::make_mut(&mut child.node).mode = base.node.mode;
        }
        let parent = match trees.parent_is_base() {
            // A parent that has nothing new has the version of the base, which need not be looked up again.
            true => base.clone(),
            false => self.version_on(trees.parent, trees.parent_inode(id), |inode| trees.id_in_parent(inode)),
        };
        MergeItem { id, base, child, parent }
    }

    fn version_on(&self, tree: &Tree, inode: Option<u64>, id: impl Fn(u64) -> Option<NodeId>) -> Option<NodeVersion> {
        let inode = inode?;
        let node = tree.node(inode).ok()?.clone();
        let (places, path) = places(tree, inode, self.rules, id);
        let path = if inode == ROOT { Vec::new() } else { path? };
        Some(NodeVersion { hash: tree.node_hash(inode), node, places, path })
    }

    /// Decides what becomes of a file that the child may have changed. Fails if contents that have to be merged can't
    /// be read.
    pub(super) fn decide(&mut self, item: &MergeItem) -> Result<Option<NodeChange>, TreeError> {
        let is_directory = item.is_directory();
        match (&item.base, &item.child, &item.parent) {
            (None, Some(child), None) => Ok(Some(item.add_all_names(child))),
            (Some(_), None, None) if !is_directory => {
                self.record_decision(item.to_decision(Some(Side::Both)));
                Ok(None)
            }
            // A directory goes when nothing is left in it, and comes back with what is put into it.
            (Some(_), None, Some(parent)) if is_directory => Ok(Some(item.remove_all_names(parent))),
            (Some(base), None, Some(parent)) if parent.is_unchanged_from(base) => {
                Ok(Some(item.remove_all_names(parent)))
            }
            (Some(base), None, Some(parent)) => {
                let times = [self.deleted_at(self.trees.child, base), parent.changed_at(base)];
                let winner = self.resolve(item, times);
                Ok((winner == Some(Side::Child)).then(|| item.remove_all_names(parent)))
            }
            (Some(base), Some(child), None) if !is_directory && !child.is_unchanged_from(base) => {
                let times = [child.changed_at(base), self.deleted_at(self.trees.parent, base)];
                let winner = self.resolve(item, times);
                Ok((winner == Some(Side::Child)).then(|| item.add_all_names(child)))
            }
            (base, Some(child), Some(parent)) => self.merge_node(item, base.as_ref(), child, parent).map(Some),
            _ => Ok(None),
        }
    }

    /// Decides between a delete and a change, or two things at one place; the other side loses.
    pub(super) fn resolve(&mut self, item: &MergeItem, times: [Time; 2]) -> Option<Side> {
        let winner = self.policy(item, times).winner();
        self.record_decision(item.to_decision(winner));
        if let (Some(winner), Some(path)) = (winner, item.path()) {
            let loser = other_side(winner);
            let is_there = if loser == Side::Child { item.child.is_some() } else { item.parent.is_some() };
            if is_there {
                self.record_loser(path.to_vec(), Loser::File(loser));
            }
        }
        winner
    }

    /// Notes that the child's file can't be where it should; the parent's way stays, unless a person
    /// has to see it first.
    pub(super) fn keep_parent(&mut self, item: &MergeItem) -> Option<Side> {
        let decision = self.policy(item, [Time::default(); 2]).winner().map(|_| Side::Parent);
        let undecided = item.to_decision(decision);
        if decision.is_some() {
            self.record_loser(undecided.path.clone(), Loser::File(Side::Child));
        }
        self.record_decision(undecided);
        decision
    }

    /// Notes what was lost, by the path of the decision that tells of it.
    pub(super) fn record_loser(&mut self, path: Vec<u8>, what: Loser) {
        self.losers.push(FileLoser { path, what });
    }

    /// Returns a file of the result that is where a file of the child should be.
    pub(super) fn parent_version(&self, node: &Arc<FileNode>, hash: Option<Hash>) -> Option<NodeVersion> {
        Some(NodeVersion { node: node.clone(), places: BTreeSet::new(), hash, path: Vec::new() })
    }

    fn policy(&self, item: &MergeItem, times: [Time; 2]) -> ConflictPolicy {
        let path = item.path().unwrap_or_default();
        let mut strategy = self.rules.rule_for(path).strategy(self.strategy);
        if strategy == Strategy::Manual {
            strategy = match (self.resolved)(&item.to_decision(None)) {
                Some(Side::Child) => Strategy::ChildWins,
                Some(Side::Parent) => Strategy::ParentWins,
                Some(Side::Both) | None => Strategy::Manual,
            };
        }
        ConflictPolicy { strategy, times, decision: Some(Side::Both) }
    }

    /// Adds a file that both sides changed, in the order in which they are met.
    pub(super) fn record_decision(&mut self, decision: FileDecision) {
        self.both_changed.push(decision);
    }

    /// Adds a decision on a directory that was closed, or stays so. It may stand where a rule lets nothing merge.
    pub(super) fn record_closing(&mut self, id: NodeId, side: Side) {
        let trees = &self.trees;
        let base = (trees.base, trees.base_inode(id));
        let child = (trees.child, trees.child_inode(id));
        let parent = (trees.parent, trees.parent_inode(id));
        let path = [child, parent, base].into_iter().find_map(|(tree, inode)| tree.path(inode?)).unwrap_or_default();
        let [base, child, parent] = [base, child, parent].map(|(tree, inode)| tree.node_hash(inode?));
        self.record_decision(FileDecision { path, base, child, parent, decision: Some(side) });
    }

    /// Merges content, attributes and places, each for itself.
    fn merge_node(
        &mut self,
        item: &MergeItem,
        base: Option<&NodeVersion>,
        child: &NodeVersion,
        parent: &NodeVersion,
    ) -> Result<NodeChange, TreeError> {
        let times = |time: fn(&FileNode) -> Time| [time(&child.node), time(&parent.node)];
        let is_same = same_body(&child.node, &parent.node);
        // Where the contents are equal only attributes or names can contradict, and changing those moves the ctime
        // alone.
        let mut policy = self.policy(item, if is_same { times(|node| node.ctime) } else { times(|node| node.mtime) });
        let mut change = NodeChange::empty(item.id);
        if !item.is_directory() {
            change.body = self.decide_body(item, base, &mut policy)?;
        }
        let mode = |seen: &NodeVersion| seen.node.mode;
        if policy.decide_for_child(base.map(mode), mode(child), mode(parent)) {
            change.mode = Some(mode(child));
        }
        change.xattrs = policy.xattrs(base.map(|base| &*base.node), &child.node, &parent.node);
        merge_names(&mut change, base, child, parent, &mut policy);
        let both = base.is_none_or(|base| !child.is_unchanged_from(base) && !parent.is_unchanged_from(base));
        if both && (!item.is_directory() || policy.decision != Some(Side::Both)) {
            self.record_decision(item.to_decision(policy.decision));
        }
        Ok(change)
    }

    /// Decides the content of a file: kept, the child's, or merged by its kind.
    fn decide_body(
        &mut self,
        item: &MergeItem,
        base: Option<&NodeVersion>,
        policy: &mut ConflictPolicy,
    ) -> Result<NewBody, TreeError> {
        let (Some(child), Some(parent)) = (&item.child, &item.parent) else { return Ok(NewBody::Keep) };
        let is_base = |side: &NodeVersion| base.is_some_and(|base| same_body(&base.node, &side.node));
        // The cheap answers come first: contents are read only where both sides have changed them differently.
        if same_body(&child.node, &parent.node) || is_base(child) {
            return Ok(NewBody::Keep);
        }
        if is_base(parent) {
            return Ok(NewBody::Child);
        }
        let path = item.path().unwrap_or_default();
        let merged = self.contents(path, base, child, parent, policy.strategy)?;
        policy.note(merged.decision);
        let losers = self.without_closed_lines(item.id, merged.losers);
        self.losers.extend(losers.into_iter().map(|what| FileLoser { path: path.to_vec(), what }));
        self.fallbacks.extend(merged.fallback.map(|fallback| (path.to_vec(), fallback)));
        Ok(match merged.choice {
            ContentChoice::Parent => NewBody::Keep,
            ContentChoice::Child => NewBody::Child,
            ContentChoice::Merged(bytes) => NewBody::Merged(bytes),
        })
    }

    /// Returns the losers without the lines of a file that is not open to everybody on both sides, of which only the number is
    /// told: the entry of a merge shows them to whoever reads the lineage, which has no modes.
    fn without_closed_lines(&self, id: NodeId, losers: Vec<Loser>) -> Vec<Loser> {
        let trees = &self.trees;
        // The mode of an item may be that of the base, where a pull has closed the child's file.
        let is_open = |tree: &Tree, inode: Option<u64>| {
            inode.and_then(|inode| tree.node(inode).ok()).is_none_or(|node| is_open_to_everybody(tree, node))
        };
        if is_open(trees.child, trees.child_inode(id)) && is_open(trees.parent, trees.parent_inode(id)) {
            return losers;
        }
        let without_line = |loser: Loser| match loser {
            Loser::Part { side, .. } => Loser::ClosedPart(side),
            loser => loser,
        };
        losers.into_iter().map(without_line).collect()
    }

    /// Merges two different contents; only kinds that look into them make it read them.
    fn contents(
        &mut self,
        path: &[u8],
        base: Option<&NodeVersion>,
        child: &NodeVersion,
        parent: &NodeVersion,
        strategy: Strategy,
    ) -> Result<MergedContent, TreeError> {
        let sides = [Some(child), Some(parent), base];
        let are_files = sides.iter().flatten().all(|seen| seen.node.kind() == NodeKind::File);
        // Sizes are known without reading, so that what is too large is refused before a byte of it is in memory.
        let is_short = sides.iter().flatten().all(|seen| seen.node.size() <= CONTENT_BYTES_MAX);
        let kind = &self.rules.rule_for(path).kind;
        let bytes = sides.iter().flatten().map(|seen| seen.node.size()).sum();
        let reads_content = kind.reads_content();
        if !are_files || !reads_content || !is_short || bytes > self.bytes_left {
            let contents =
                Contents { base: None, child: child.content_version(&[]), parent: parent.content_version(&[]) };
            let fallback = (are_files && reads_content).then_some(Fallback::TOO_LARGE);
            return Ok(MergedContent { fallback, ..whole(&contents, strategy) });
        }
        // Also where the merger has the result already: what is merged must not depend on what was kept.
        self.bytes_left -= bytes;
        let hash = |seen: &NodeVersion| seen.node.content_hash().unwrap_or(Hash::ZERO);
        let later = if parent.node.mtime > child.node.mtime { Side::Parent } else { Side::Child };
        let key = ContentKey {
            kind: kind.clone(),
            strategy,
            later,
            base: base.map(hash),
            child: hash(child),
            parent: hash(parent),
            bytes,
        };
        self.merger.merge(&key, &mut || {
            let read = |seen: &NodeVersion| seen.node.read(0, seen.node.size() as usize, self.packs);
            let base = base.map(read).transpose()?;
            let (ours, theirs) = (read(child)?, read(parent)?);
            let contents = Contents {
                base: base.as_deref(),
                child: child.content_version(&ours),
                parent: parent.content_version(&theirs),
            };
            Ok(merge_contents(kind, &contents, strategy))
        })
    }

    /// When a side deleted a file, as well as the tree knows: when the nearest directory that is left of
    /// those above it last lost or got an entry.
    fn deleted_at(&self, side: &Tree, base: &NodeVersion) -> Time {
        let mut directory = base.places.first().and_then(|(directory, _)| self.trees.base_inode(*directory));
        while let Some(inode) = directory {
            if let Some(node) = self.trees.successor(side, inode).and_then(|inode| side.node(inode).ok()) {
                return node.mtime;
            }
            directory =
                self.trees.base.node(inode).ok().and_then(|node| node.names().next().map(|(directory, _)| directory));
        }
        Time::default()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::super::test_files::TestFiles;
    use super::super::{MergeAll, MergeTrees};
    use super::*;
    use crate::workspace::NoPacks;

    #[test]
    fn contents_that_have_just_the_bytes_that_are_left_are_merged_and_no_longer_ones() {
        let mut base = TestFiles::new();
        base.write("a", "1\n2\n3\n").write("b", "1\n");
        let (mut child, mut parent) = (base.later(100), base.later(200));
        child.write("a", "one\n2\n3\n").write("b", "2\n");
        parent.write("a", "1\n2\nthree\n").write("b", "3\n");
        let rules = Rules::parse("** text").unwrap();
        let fallbacks = |bytes_left| {
            let (both_changed, losers, fallbacks) = Default::default();
            let mut resolver = Resolver {
                trees: NodeMap::new(MergeTrees { base: &base.tree, child: &child.tree, parent: &parent.tree }),
                rules: &rules,
                strategy: Strategy::Manual,
                resolved: &|_| None,
                packs: &NoPacks,
                merger: &MergeAll,
                guard: None,
                bytes_left,
                both_changed,
                losers,
                fallbacks,
            };
            for path in ["a", "b"] {
                let item = resolver.item(NodeId::Base(base.tree.resolve(path.as_bytes()).unwrap()));
                resolver.decide(&item).unwrap();
            }
            resolver.fallbacks
        };
        let too_large = |path: &str| vec![(path.as_bytes().to_vec(), Fallback::TOO_LARGE)];
        // Of `a` 6, 8 and 10 bytes, of `b` 6 together, which may still fit where `a` did not.
        assert_eq!([30, 29, 23].map(fallbacks), [vec![], too_large("b"), too_large("a")]);
    }
}
