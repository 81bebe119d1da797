//! Applies the changes to a copy of the parent's tree, and records each as one that the log can hold: the patch
//! replayed on the parent's tree gives the same tree.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::node_change::{NewBody, NodeChange};
use super::node_map::NodeId;
use super::resolver::Resolver;
use super::{FileMerge, Loser, NewOwner, ReaderGuard, Side};
use crate::object::Time;
use crate::workspace::{
    Attrs, FileKind, FileName, FileNode, FileOp, NewInode, ROOT, RenameMode, Tree, TreeChange, TreeError, TreePatch,
    XattrMode,
};

/// The merged tree while changes are applied to it.
///
/// Everything that moves first goes into a staging directory and then
/// to its new place: so two files can change places in any order.
pub(super) struct TreeEditor<'a, 'b> {
    /// The three sides, and where losers that are met while applying are noted.
    pub resolver: &'b mut Resolver<'a>,
    /// At first a copy of the parent's; the result once [`TreeEditor::build`] is done.
    pub tree: Tree,
    /// Everything that was done to the tree so far, in order: replayed on the parent's tree it gives this one.
    pub patch: TreePatch,
    time: Time,
    /// Who owns what is made; `None` if that stays as it is.
    new_owner: Option<NewOwner>,
    /// To whom no file may be opened that was closed to them; nobody where who asks may read all.
    pub guard: Option<ReaderGuard>,
    /// Inodes in the result of what the child alone has.
    grafted: HashMap<NodeId, u64>,
    /// Directories of the child in whose place the parent has something else, which was decided about.
    contested: BTreeSet<NodeId>,
    /// Where what moves waits: the directory, and the name of each.
    staging_directory: Option<u64>,
    staged_names: HashMap<NodeId, FileName>,
    /// Inodes that lost their last name, and are orphans in the tree.
    pub removed: Vec<u64>,
    /// Files that are not as in the parent any longer.
    pub files: BTreeSet<NodeId>,
}

impl<'a, 'b> TreeEditor<'a, 'b> {
    /// Begins with the parent's tree, where new inodes get numbers that are free in the child, too.
    pub(super) fn new(resolver: &'b mut Resolver<'a>, file_merge: &FileMerge<'_>) -> TreeEditor<'a, 'b> {
        let mut tree = resolver.trees.parent.clone();
        // New numbers are new to the child, too, whose open files may go by them after a pull.
        tree.reserve_inodes_below(resolver.trees.child.next_inode());
        let patch = TreePatch { next_inode: tree.next_inode(), writes: file_merge.writes, changes: Vec::new() };
        if resolver.trees.parent_is_base() {
            tree.seed_hashes_from(resolver.trees.child);
        }
        let (grafted, staged_names) = (HashMap::new(), HashMap::new());
        TreeEditor {
            resolver,
            tree,
            patch,
            time: file_merge.time,
            new_owner: file_merge.new_owner,
            guard: file_merge.guard,
            grafted,
            contested: BTreeSet::new(),
            staging_directory: None,
            staged_names,
            removed: Vec::new(),
            files: BTreeSet::new(),
        }
    }

    /// Carries out all changes; those of directories come before those of what is in them. Fails with the `TreeError`
    /// of the first change that the tree refuses; the tree is half changed then.
    pub(super) fn build(&mut self, changes: &[NodeChange]) -> Result<(), TreeError> {
        // Every name that goes is free before the first new one is given, whatever the order of the changes.
        changes.iter().try_for_each(|change| self.detach(change))?;
        // The innermost directories go first, since only an empty one can be removed.
        changes.iter().rev().try_for_each(|change| self.remove_directory(change))?;
        changes.iter().try_for_each(|change| self.attach(change))?;
        // Contents come after names: a file that lost its last name to another one is not written any more.
        changes.iter().filter(|change| !change.is_new).try_for_each(|change| self.change(change))?;
        self.close_places(changes)?;
        self.settle_directories(changes)?;
        self.remove_staging_directory()?;
        // What lost its last name may have got another one since, and is no orphan then.
        self.removed.retain(|inode| self.tree.node(*inode).is_ok_and(|node| node.nlink() == 0));
        Ok(())
    }

    /// The inode that a file has in the result; `None` if it is not there.
    pub(super) fn inode(&self, id: NodeId) -> Option<u64> {
        let inode = self.grafted.get(&id).copied().or_else(|| self.resolver.trees.parent_inode(id));
        inode.filter(|inode| self.tree.node(*inode).is_ok_and(|node| node.nlink() > 0))
    }

    /// Returns whether an inode of the result is a directory.
    pub(super) fn is_directory(&self, inode: u64) -> bool {
        self.tree.node(inode).is_ok_and(|node| node.kind() == FileKind::Directory)
    }

    /// Makes an operation and records it; returns the inode that it is about.
    /// Fails with the `TreeError` with which the tree refuses it.
    pub(super) fn apply(&mut self, op: FileOp<'static>) -> Result<u64, TreeError> {
        self.make_change(TreeChange::Op(op))
    }

    /// Makes a change and records it, if it can be made; returns the inode that it is about.
    fn make_change(&mut self, change: TreeChange) -> Result<u64, TreeError> {
        let from = (self.resolver.trees.child, self.patch.writes);
        let outcome = self.tree.make_change(&change, from, self.time, self.resolver.packs)?;
        self.patch.changes.push(change);
        self.removed.extend(outcome.unlinked);
        Ok(outcome.inode)
    }

    /// Takes away the names that a file loses. What will get others, waits.
    fn detach(&mut self, change: &NodeChange) -> Result<(), TreeError> {
        if change.is_new || change.remove.is_empty() {
            return Ok(());
        }
        let Some(inode) = self.inode(change.id) else { return Ok(()) };
        let is_directory = self.is_directory(inode);
        // A directory that goes is removed once everything is detached: what is in it may have to leave first.
        if is_directory && change.add.is_empty() {
            return Ok(());
        }
        if !is_directory {
            self.files.insert(change.id);
        }
        for (directory, name) in &change.remove {
            let Some(parent) = self.inode(*directory) else { continue };
            // One name is enough to keep the file while it waits; its other new names are links to it.
            if change.add.is_empty() || self.staged_names.contains_key(&change.id) {
                self.apply(FileOp::Unlink { parent, name: name.clone(), keep: true })?;
            } else {
                let staging = self.staging_directory()?;
                let temporary_name = FileName::new(self.staged_names.len().to_string().as_bytes())?;
                self.rename((parent, name), (staging, &temporary_name))?;
                self.staged_names.insert(change.id, temporary_name);
            }
        }
        Ok(())
    }

    fn rename(&mut self, from: (u64, &FileName), to: (u64, &FileName)) -> Result<u64, TreeError> {
        self.apply(FileOp::Rename {
            parent: from.0,
            name: from.1.clone(),
            new_parent: to.0,
            new_name: to.1.clone(),
            mode: RenameMode::NoReplace,
            keep: true,
        })
    }

    fn staging_directory(&mut self) -> Result<u64, TreeError> {
        if let Some(staging) = self.staging_directory {
            return Ok(staging);
        }
        let name = self.free_name(b".moving")?;
        let make = NewInode::Directory;
        let staging = self.apply(FileOp::Create { parent: ROOT, name, make, mode: 0o700, uid: 0, gid: 0 })?;
        self.staging_directory = Some(staging);
        Ok(staging)
    }

    /// A name that nothing in the root has.
    fn free_name(&self, stem: &[u8]) -> Result<FileName, TreeError> {
        let mut number = 0u64;
        loop {
            let name = FileName::new(&[stem, b"-", number.to_string().as_bytes()].concat())?;
            if self.tree.lookup(ROOT, &name).is_err() {
                return Ok(name);
            }
            number += 1;
        }
    }

    fn remove_staging_directory(&mut self) -> Result<(), TreeError> {
        let Some(staging) = self.staging_directory.take() else { return Ok(()) };
        let Some(name) = self.tree.node(staging)?.names().next().map(|(_, name)| name.clone()) else { return Ok(()) };
        self.apply(FileOp::Rmdir { parent: ROOT, name, keep: false }).map(drop)
    }

    /// Gives a file its new names; one that it can't get is refused, and the file goes back to where it was.
    fn attach(&mut self, change: &NodeChange) -> Result<(), TreeError> {
        for place in &change.add {
            let directory = self.directory(place.0)?;
            let done = match directory {
                Some(directory) if self.make_room(change, directory, &place.1)? => {
                    self.enter(change, directory, &place.1)?
                }
                Some(_) => false,
                None => self.refuse(change),
            };
            if !done {
                self.move_back(change)?;
            }
        }
        Ok(())
    }

    /// Puts a file to a free place; returns false if it can't be there.
    fn enter(&mut self, change: &NodeChange, parent: u64, name: &FileName) -> Result<bool, TreeError> {
        if let Some(temporary_name) = self.staged_names.get(&change.id).cloned() {
            let staging = self.staging_directory()?;
            return match self.rename((staging, &temporary_name), (parent, name)) {
                Ok(_) => Ok(self.staged_names.remove(&change.id).is_some()),
                // The other side moved that directory into this one.
                Err(TreeError::Invalid(_)) => Ok(self.refuse(change)),
                Err(error) => Err(error),
            };
        }
        let is_grafted = self.grafted.contains_key(&change.id);
        match self.inode(change.id).filter(|_| is_grafted || !change.is_new) {
            // A directory that something below it needed is there already.
            Some(inode) if self.is_directory(inode) => {}
            Some(inode) => drop(self.apply(FileOp::Link { inode, parent, name: name.clone() })?),
            None => drop(self.graft(change.id, parent, name)?),
        }
        Ok(true)
    }

    /// Makes the child's file in the result. Of a directory: without what is in it. Fails like [`TreeEditor::apply`].
    pub(super) fn graft(&mut self, id: NodeId, parent: u64, name: &FileName) -> Result<Option<u64>, TreeError> {
        let Some(node) = self.child_node(id) else { return Ok(None) };
        let Some(from) = self.resolver.trees.child_inode(id) else { return Ok(None) };
        let inode = self.make_change(TreeChange::Graft { from, parent, name: name.clone() })?;
        let uid = self.new_owner.and_then(|new_owner| new_owner.new_uid(&node, self.resolver.trees.child));
        if uid.is_some() {
            self.apply(FileOp::SetAttr { inode, attrs: Attrs { uid, ..Attrs::default() } })?;
        }
        self.grafted.insert(id, inode);
        if node.kind() != FileKind::Directory {
            self.files.insert(id);
        }
        Ok(Some(inode))
    }

    /// Returns a file as the child has it; `None` if it is not there.
    pub(super) fn child_node(&self, id: NodeId) -> Option<Arc<FileNode>> {
        self.resolver.trees.child.node(self.resolver.trees.child_inode(id)?).ok().cloned()
    }

    /// Returns the directory with that id, made again with those above it if it is not there; `None` if something else
    /// is in the way and stays.
    fn directory(&mut self, id: NodeId) -> Result<Option<u64>, TreeError> {
        let mut missing = Vec::new();
        let mut at = id;
        let mut directory = loop {
            if let Some(inode) = self.inode(at) {
                break inode;
            }
            let Some(node) = self.child_node(at) else { return Ok(None) };
            let above = node.names().next().map(|(above, name)| (above, name.clone()));
            let Some((above, name)) = above else { return Ok(None) };
            missing.push((at, name));
            let Some(above) = self.resolver.trees.id_in_child(above) else { return Ok(None) };
            at = above;
        };
        while let Some((id, name)) = missing.pop() {
            let there = self.tree.lookup(directory, &name).ok();
            directory = match there {
                // A directory of another origin does as well: the names below need one at that path, and not this one.
                Some(there) if self.is_directory(there) => {
                    self.grafted.insert(id, there);
                    there
                }
                Some(there) if !self.give_way(id, there, (directory, &name))? => return Ok(None),
                _ => match self.graft(id, directory, &name)? {
                    Some(inode) => inode,
                    None => return Ok(None),
                },
            };
        }
        Ok(self.is_directory(directory).then_some(directory))
    }

    /// Frees the place of a directory of the child that comes back for what the child put into it, if what the parent has there
    /// loses against it; returns false if that stays.
    fn give_way(&mut self, id: NodeId, there: u64, (parent, name): (u64, &FileName)) -> Result<bool, TreeError> {
        let old = self.tree.node(there)?.clone();
        let mut item = self.resolver.item(id);
        let Some(time) = item.child.as_ref().map(|child| child.node.ctime) else { return Ok(false) };
        item.parent = self.resolver.parent_version(&old, self.tree.node_hash(there));
        // It is decided once, and not again for each name below. Once it is decided for the child, nothing is in the way.
        let is_decided = !self.contested.insert(id);
        if is_decided || self.resolver.resolve(&item, [time, old.ctime]) != Some(Side::Child) {
            return Ok(false);
        }
        self.files.extend(self.resolver.trees.id_in_parent(there));
        self.apply(FileOp::Unlink { parent, name: name.clone(), keep: true })?;
        Ok(true)
    }

    /// Frees a place for a file of the child; returns false if what is there stays.
    ///
    /// What is there is decided about like two versions of a file; but a directory that holds something
    /// is never removed for the sake of a name.
    fn make_room(&mut self, change: &NodeChange, directory: u64, name: &FileName) -> Result<bool, TreeError> {
        let Ok(there) = self.tree.lookup(directory, name) else { return Ok(true) };
        if self.inode(change.id) == Some(there) {
            return Ok(true);
        }
        let old = self.tree.node(there)?.clone();
        let mut item = self.resolver.item(change.id);
        let Some(child) = item.child.as_ref().map(|child| child.node.clone()) else { return Ok(false) };
        // An empty directory and a full one, or a new directory and one that is there, are one directory.
        if child.kind() == FileKind::Directory && old.kind() == FileKind::Directory && change.is_new {
            self.grafted.insert(change.id, there);
            return Ok(true);
        }
        item.parent = self.resolver.parent_version(&old, self.tree.node_hash(there));
        // What a full directory holds was not decided about here, so it can't lose its place to one name.
        let winner = match old.directory() {
            Some(directory) if !directory.is_empty() => self.resolver.keep_parent(&item),
            _ => self.resolver.resolve(&item, [child.ctime, old.ctime]),
        };
        if winner != Some(Side::Child) {
            // What is below it is refused for that decision, too.
            self.contested.insert(change.id);
            return Ok(false);
        }
        let (parent, name) = (directory, name.clone());
        self.apply(match old.kind() {
            FileKind::Directory => FileOp::Rmdir { parent, name, keep: true },
            _ => FileOp::Unlink { parent, name, keep: true },
        })?;
        Ok(true)
    }

    fn refuse(&mut self, change: &NodeChange) -> bool {
        let item = self.resolver.item(change.id);
        self.resolver.keep_parent(&item);
        false
    }

    /// Moves a staged file back to where the parent has it; where that place is taken, the file is a loser.
    fn move_back(&mut self, change: &NodeChange) -> Result<(), TreeError> {
        let Some(temporary_name) = self.staged_names.remove(&change.id) else { return Ok(()) };
        let staging = self.staging_directory()?;
        for (directory, name) in &change.remove {
            let Some(directory) = self.inode(*directory) else { continue };
            match self.rename((staging, &temporary_name), (directory, name)) {
                Ok(_) => return Ok(()),
                Err(TreeError::Exists | TreeError::Invalid(_) | TreeError::NotDirectory | TreeError::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        let inode = self.tree.lookup(staging, &temporary_name)?;
        if self.is_directory(inode) {
            // A directory that fits nowhere goes to the root under a free name, since its content must not be lost.
            let name = self.free_name(b"moved")?;
            return self.rename((staging, &temporary_name), (ROOT, &name)).map(drop);
        }
        let path = self.resolver.item(change.id).to_decision(None).path;
        self.resolver.record_loser(path, Loser::File(Side::Parent));
        self.apply(FileOp::Unlink { parent: staging, name: temporary_name, keep: true }).map(drop)
    }

    /// Gives a file that the parent has its new content and attributes.
    fn change(&mut self, change: &NodeChange) -> Result<(), TreeError> {
        let Some(replaced) = self.inode(change.id) else { return Ok(()) };
        let before = self.tree.node(replaced)?.clone();
        // A change may amount to nothing; such a file is not counted among those that changed.
        let before_hash = before.hash();
        let closed = self.closed_source(change);
        let inode = self.renew(change, replaced)?;
        match &change.body {
            NewBody::Keep => {}
            // It came with the new file.
            NewBody::Child if inode != replaced => {}
            NewBody::Child => {
                let from = self.resolver.trees.child_inode(change.id);
                from.map_or(Ok(0), |from| self.make_change(TreeChange::Replace { from, inode }))?;
            }
            NewBody::Merged(bytes) => self.write(inode, bytes)?,
        }
        if let Some(mode) = change.mode {
            self.apply(FileOp::SetAttr { inode, attrs: Attrs { mode: Some(mode), ..Attrs::default() } })?;
        }
        let own = || before.xattrs().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        match (&change.xattrs, &change.body) {
            (Some(wanted), _) => self.set_xattrs(inode, wanted)?,
            (None, NewBody::Keep) if inode == replaced => {}
            // The child's body, or a new file, came with the child's attributes, of which the merge takes none: the file's
            // own are put back.
            (None, _) => self.set_xattrs(inode, &own())?,
        }
        match &closed {
            Some(source) => self.take_protection(change, inode, source)?,
            None if inode != replaced => self.keep_protection(change, inode, &before)?,
            None => self.give_back(change, inode, &before)?,
        }
        self.drop_set_id(change, inode)?;
        if self.tree.node(inode)?.hash() != before_hash {
            self.files.insert(change.id);
        }
        Ok(())
    }

    fn write(&mut self, inode: u64, bytes: &[u8]) -> Result<(), TreeError> {
        // Cut first: the merged content may be shorter than what is there.
        self.apply(FileOp::SetAttr { inode, attrs: Attrs { size: Some(0), ..Attrs::default() } })?;
        self.apply(FileOp::Write { inode, offset: 0, bytes: bytes.to_vec().into() }).map(drop)
    }

    /// Gives a file these attributes and takes all others away. Fails like [`TreeEditor::apply`].
    pub(super) fn set_xattrs(&mut self, inode: u64, wanted: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<(), TreeError> {
        let node = self.tree.node(inode)?.clone();
        for (name, _) in node.xattrs().filter(|(name, _)| !wanted.contains_key(*name)) {
            self.apply(FileOp::RemoveXattr { inode, name: name.to_vec() })?;
        }
        for (name, value) in wanted.iter().filter(|(name, value)| node.xattr(name) != Some(value)) {
            let (name, value, mode) = (name.clone(), value.clone(), XattrMode::Any);
            self.apply(FileOp::SetXattr { inode, name, value, mode })?;
        }
        Ok(())
    }

    /// Removes a directory that the child removed, if nothing is in it.
    fn remove_directory(&mut self, change: &NodeChange) -> Result<(), TreeError> {
        if change.is_new || change.remove.is_empty() || !change.add.is_empty() {
            return Ok(());
        }
        let Some(inode) = self.inode(change.id) else { return Ok(()) };
        for (directory, name) in &change.remove {
            // The parent may have put something in, for which the directory stays.
            let is_empty = self.tree.node(inode)?.directory().is_some_and(|directory| directory.is_empty());
            if let Some(parent) = self.inode(*directory).filter(|_| is_empty) {
                self.apply(FileOp::Rmdir { parent, name: name.clone(), keep: true })?;
            }
        }
        Ok(())
    }
}
