//! What `config/rules` says of who may write where: `write=` and `append`.

use super::{Actor, Error, Kind};
use crate::merge::files::{Rule, Rules};
use crate::workspace::{Node, Op, RangeOp, Tree};

/// Refuses an operation that a rule of the branch forbids.
///
/// A rule binds the paths that an operation makes, changes, moves or removes; a file with several
/// names is bound by the rules of all of them.
pub(super) fn check(rules: &Rules, tree: &Tree, who: &Actor, op: &Op<'_>) -> Result<(), Error> {
    if !rules.iter().any(|rule| rule.write.is_some() || rule.append) {
        return Ok(());
    }
    let touched = Touched { tree, op };
    for path in touched.paths() {
        let rule = rules.of(&path);
        if !rule.allows(who.uid, &[who.gid]) {
            return Err(not_yours(&path, rule, who));
        }
        if rule.append && !touched.only_appends(&path) {
            return Err(only_append(&path, rule));
        }
    }
    Ok(())
}

/// An operation and the tree it is about to change.
struct Touched<'a> {
    tree: &'a Tree,
    op: &'a Op<'a>,
}

impl Touched<'_> {
    /// Returns the paths whose rules bind the operation.
    fn paths(&self) -> Vec<Vec<u8>> {
        match self.op {
            Op::Create { parent, name, .. } | Op::Unlink { parent, name, .. } | Op::Rmdir { parent, name, .. } => {
                self.below(*parent, name).into_iter().collect()
            }
            Op::Link { inode, parent, name } => {
                self.names(*inode).into_iter().chain(self.below(*parent, name)).collect()
            }
            Op::Rename { parent, name, new_parent, new_name, .. } => {
                self.below(*parent, name).into_iter().chain(self.below(*new_parent, new_name)).collect()
            }
            Op::Write { inode, .. }
            | Op::SetAttr { inode, .. }
            | Op::Range { inode, .. }
            | Op::SetXattr { inode, .. }
            | Op::RemoveXattr { inode, .. } => self.names(*inode),
            Op::Copy { to, .. } => self.names(*to),
            Op::Drop { .. } => Vec::new(),
        }
    }

    fn below(&self, parent: u64, name: &[u8]) -> Option<Vec<u8>> {
        let path = self.tree.path(parent)?;
        Some(if path.is_empty() { name.to_vec() } else { [&path, &b"/"[..], name].concat() })
    }

    fn names(&self, inode: u64) -> Vec<Vec<u8>> {
        let Ok(node) = self.tree.node(inode) else { return Vec::new() };
        if node.directory().is_some() {
            return self.tree.path(inode).into_iter().collect();
        }
        node.names().filter_map(|(parent, name)| self.below(parent, name)).collect()
    }

    /// Tells whether the operation leaves all bytes that are at `path` where they are.
    fn only_appends(&self, path: &[u8]) -> bool {
        let size = |inode: u64| self.tree.node(inode).map_or(0, |node| node.size());
        let there = || self.tree.resolve(path).ok().and_then(|inode| self.tree.node(inode).ok());
        let is_file = |node: &Node| node.directory().is_none();
        match self.op {
            Op::Write { inode, offset, .. } => *offset >= size(*inode),
            Op::SetAttr { inode, attrs } => attrs.size.is_none_or(|wanted| wanted >= size(*inode)),
            Op::Copy { to, to_offset, .. } => *to_offset >= size(*to),
            Op::Range { what, .. } => matches!(what, RangeOp::Allocate),
            // What stands there may not go, nor make room for something else.
            Op::Unlink { .. } | Op::Rename { .. } => !there().is_some_and(|node| is_file(node)),
            Op::Create { .. }
            | Op::Link { .. }
            | Op::Rmdir { .. }
            | Op::SetXattr { .. }
            | Op::RemoveXattr { .. }
            | Op::Drop { .. } => true,
        }
    }
}

fn not_yours(path: &[u8], rule: &Rule, who: &Actor) -> Error {
    let message =
        format!("uid {} may not write files/{}: the rule '{}' names others", who.uid, text(path), rule.pattern);
    Error::new(Kind::Denied, "write_rule", message, "write elsewhere, or have the owner change config/rules")
}

fn only_append(path: &[u8], rule: &Rule) -> Error {
    let message = format!("files/{} may only be appended to: the rule '{}' says so", text(path), rule.pattern);
    Error::new(Kind::NotPermitted, "append_rule", message, "append to it, or have the owner change config/rules")
}

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
