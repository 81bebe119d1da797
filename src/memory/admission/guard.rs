//! What `config/rules` says of who may write where: `write=` and `append`.

use std::collections::BTreeSet;

use crate::memory::storage::trees::tree_error;
use crate::memory::{Actor, Error, RuleRefusal};
use crate::merge::files::{Rule, Rules};
use crate::workspace::{FileNode, FileOp, Packs, RangeOp, RenameMode, Tree, TreeDifference};

/// Refuses an operation that a rule of the branch forbids; only where its settings have binding rules does any.
///
/// A rule binds the paths that an operation makes, changes, moves or removes, with a directory all that
/// is in it; a file with several names is bound by the rules of all of them.
pub(in crate::memory) fn check(rules: &Rules, tree: &Tree, who: &Actor, op: &FileOp<'_>) -> Result<(), Error> {
    let touched = TouchedPaths { tree, op };
    for path in touched.paths() {
        let rule = rules.rule_for(&path);
        if !rule.allows(who.uid, &[who.gid]) {
            return Err(writer_refusal(&path, rule, who).into());
        }
        if rule.append && !touched.only_appends(&path) {
            return Err(append_refusal(&path, rule).into());
        }
    }
    Ok(())
}

struct TouchedPaths<'a> {
    tree: &'a Tree,
    op: &'a FileOp<'a>,
}

impl TouchedPaths<'_> {
    /// Returns the paths whose rules bind the operation.
    fn paths(&self) -> Vec<Vec<u8>> {
        match self.op {
            FileOp::Create { parent, name, .. }
            | FileOp::Unlink { parent, name, .. }
            | FileOp::Rmdir { parent, name, .. } => self.child_path(*parent, name).into_iter().collect(),
            FileOp::Link { inode, parent, name } => {
                self.names(*inode).into_iter().chain(self.child_path(*parent, name)).collect()
            }
            FileOp::Rename { parent, name, new_parent, new_name, mode, .. } => {
                let (from, to) = (self.child_path(*parent, name), self.child_path(*new_parent, new_name));
                // A directory without a path was removed, for which the operation fails by itself.
                let (Some(from), Some(to)) = (from, to) else { return Vec::new() };
                // Both the old and the new path bind, with all that is below: a move could else carry a file out of its
                // rule.
                let mut paths = self.moved_paths(&from, &to);
                if *mode == RenameMode::Exchange {
                    paths.extend(self.moved_paths(&to, &from));
                }
                paths
            }
            FileOp::Write { inode, .. }
            | FileOp::SetAttr { inode, .. }
            | FileOp::Range { inode, .. }
            | FileOp::SetXattr { inode, .. }
            | FileOp::RemoveXattr { inode, .. } => self.names(*inode),
            // Rules say who may write, so the file that is read binds nothing.
            FileOp::Copy { to, .. } => self.names(*to),
            FileOp::Drop { .. } => Vec::new(),
        }
    }

    fn child_path(&self, parent: u64, name: &[u8]) -> Option<Vec<u8>> {
        let path = self.tree.path(parent)?;
        Some(if path.is_empty() { name.to_vec() } else { [&path, &b"/"[..], name].concat() })
    }

    /// Returns the old and the new path of what is moved, and of all that is in it.
    fn moved_paths(&self, from: &[u8], to: &[u8]) -> Vec<Vec<u8>> {
        let mut paths = vec![from.to_vec(), to.to_vec()];
        let mut directories: Vec<(u64, Vec<u8>)> =
            self.tree.resolve(from).ok().into_iter().map(|inode| (inode, Vec::new())).collect();
        while let Some((directory, inside)) = directories.pop() {
            for (name, inode) in self.tree.entries(directory, None).into_iter().flatten() {
                let inside = [&inside[..], b"/", name].concat();
                paths.extend([[from, &inside].concat(), [to, &inside].concat()]);
                directories.push((inode, inside));
            }
        }
        paths
    }

    fn names(&self, inode: u64) -> Vec<Vec<u8>> {
        let Ok(node) = self.tree.node(inode) else { return Vec::new() };
        if node.directory().is_some() {
            return self.tree.path(inode).into_iter().collect();
        }
        node.names().filter_map(|(parent, name)| self.child_path(parent, name)).collect()
    }

    /// Returns whether the operation leaves all bytes that are at `path` where they are.
    fn only_appends(&self, path: &[u8]) -> bool {
        let size = |inode: u64| self.tree.node(inode).map_or(0, |node| node.size());
        let there = || self.tree.resolve(path).ok().and_then(|inode| self.tree.node(inode).ok());
        let is_file = |node: &FileNode| node.directory().is_none();
        match self.op {
            FileOp::Write { inode, offset, .. } => *offset >= size(*inode),
            FileOp::SetAttr { inode, attrs } => attrs.size.is_none_or(|wanted| wanted >= size(*inode)),
            FileOp::Copy { to, to_offset, .. } => *to_offset >= size(*to),
            FileOp::Range { what, .. } => matches!(what, RangeOp::Allocate),
            // The file at that name may neither go nor be replaced.
            FileOp::Unlink { .. } | FileOp::Rename { .. } => !there().is_some_and(|node| is_file(node)),
            FileOp::Create { .. }
            | FileOp::Link { .. }
            | FileOp::Rmdir { .. }
            | FileOp::SetXattr { .. }
            | FileOp::RemoveXattr { .. }
            | FileOp::Drop { .. } => true,
        }
    }
}

/// A branch that receives a merge, and what its rules are checked against.
pub(in crate::memory) struct MergeReceiver<'a> {
    /// What `config/rules` of that branch says, path by path.
    pub rules: &'a Rules,
    /// Its owner, who sets the rules and may therefore merge what others wrote.
    pub owner: u32,
    /// How its files would differ, by path.
    pub differences: Vec<TreeDifference>,
    /// Where contents are read: `append` compares bytes.
    pub packs: &'a dyn Packs,
}

/// Returns what the rules of the branch that receives a merge forbid of it: for each rule and what it forbids the first
/// path. Fails if a content can't be read.
pub(in crate::memory) fn merge_refusals(merge: &MergeReceiver<'_>, who: &Actor) -> Result<Vec<RuleRefusal>, Error> {
    let (mut refusals, mut told) = (Vec::new(), BTreeSet::new());
    for difference in &merge.differences {
        let rule = merge.rules.rule_for(&difference.path);
        let mut is_new = |forbids: &'static str| told.insert((rule.pattern.to_string(), forbids));
        if who.uid != merge.owner && !rule.allows(who.uid, &[who.gid]) && is_new("write") {
            refusals.push(writer_refusal(&difference.path, rule, who));
        }
        // The owner of the rules may pass over `write=` but not over `append`, which is about the bytes and not about
        // who.
        if rule.append && !is_append(difference, merge.packs)? && is_new("append") {
            refusals.push(append_refusal(&difference.path, rule));
        }
    }
    Ok(refusals)
}

/// Returns whether all bytes that a file has stay where they are; it may have to read contents.
fn is_append(difference: &TreeDifference, packs: &dyn Packs) -> Result<bool, Error> {
    let Some((_, old)) = difference.old.as_ref().filter(|(_, old)| old.directory().is_none()) else { return Ok(true) };
    let Some((_, new)) = difference.new.as_ref().filter(|(_, new)| new.kind() == old.kind()) else { return Ok(false) };
    if old.content().is_none() {
        return Ok(old.target() == new.target());
    }
    match (old.content(), new.content()) {
        (Some(old), Some(new)) => new.begins_with(old, packs).map_err(tree_error),
        _ => Ok(false),
    }
}

fn writer_refusal(path: &[u8], rule: &Rule, who: &Actor) -> RuleRefusal {
    RuleRefusal::Writer { uid: who.uid, path: lossy_path(path), pattern: rule.pattern.to_string() }
}

fn append_refusal(path: &[u8], rule: &Rule) -> RuleRefusal {
    RuleRefusal::Append { path: lossy_path(path), pattern: rule.pattern.to_string() }
}

fn lossy_path(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
