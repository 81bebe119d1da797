//! Carrying out what was decided, on a copy of the parent's tree.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::decide::Court;
use super::item::{Fate, NewBody};
use super::kin::Id;
use super::{Loser, Side};
use crate::object::Time;
use crate::workspace::{Attrs, Kind, Name, Node, Op, ROOT, RenameHow, Tree, TreeError, XattrHow};

/// The tree in the making.
///
/// Everything that moves first leaves its place, for a folder that is there for this alone, and then
/// takes its new one: so two files can change places, whatever the order.
pub(super) struct Builder<'a, 'b> {
    court: &'b mut Court<'a>,
    pub tree: Tree,
    time: Time,
    /// Inodes of what was grafted.
    grafted: HashMap<Id, u64>,
    /// Where what moves waits: the folder, and the name of each.
    waiting_room: Option<u64>,
    waiting: HashMap<Id, Name>,
    /// Inodes that lost their last name.
    pub removed: Vec<u64>,
    /// Files that are not as in the parent any longer.
    pub files: BTreeSet<Id>,
}

impl<'a, 'b> Builder<'a, 'b> {
    /// Begins with the parent's tree.
    pub(super) fn new(court: &'b mut Court<'a>, time: Time) -> Builder<'a, 'b> {
        let mut tree = court.trees.parent.clone();
        // New numbers are new to the child, too, whose open files may go by them after a pull.
        tree.reserve(court.trees.child.next_inode());
        if court.trees.parent_is_base() {
            tree.become_like(court.trees.child);
        }
        let (grafted, waiting) = (HashMap::new(), HashMap::new());
        Builder { court, tree, time, grafted, waiting_room: None, waiting, removed: Vec::new(), files: BTreeSet::new() }
    }

    /// Carries out all fates; those of folders come before those of what is in them.
    pub(super) fn build(&mut self, fates: &[Fate]) -> Result<(), TreeError> {
        fates.iter().try_for_each(|fate| self.detach(fate))?;
        // The innermost folders go first.
        fates.iter().rev().try_for_each(|fate| self.remove_folder(fate))?;
        fates.iter().try_for_each(|fate| self.attach(fate))?;
        fates.iter().filter(|fate| !fate.is_new).try_for_each(|fate| self.change(fate))?;
        self.leave_waiting_room()?;
        self.removed.retain(|inode| self.tree.node(*inode).is_ok_and(|node| node.nlink() == 0));
        Ok(())
    }

    /// The inode that a file has in the result.
    fn inode(&self, id: Id) -> Option<u64> {
        let inode = self.grafted.get(&id).copied().or_else(|| self.court.trees.in_parent(id));
        inode.filter(|inode| self.tree.node(*inode).is_ok_and(|node| node.nlink() > 0))
    }

    fn is_folder(&self, inode: u64) -> bool {
        self.tree.node(inode).is_ok_and(|node| node.kind() == Kind::Directory)
    }

    fn apply(&mut self, op: &Op) -> Result<u64, TreeError> {
        let outcome = self.tree.apply(op, self.time, self.court.packs)?;
        self.removed.extend(outcome.gone);
        Ok(outcome.inode)
    }

    /// Takes away the names that a file loses. What will get others, waits.
    fn detach(&mut self, fate: &Fate) -> Result<(), TreeError> {
        if fate.is_new || fate.remove.is_empty() {
            return Ok(());
        }
        let Some(inode) = self.inode(fate.id) else { return Ok(()) };
        let is_folder = self.is_folder(inode);
        if is_folder && fate.add.is_empty() {
            return Ok(());
        }
        if !is_folder {
            self.files.insert(fate.id);
        }
        for (folder, name) in &fate.remove {
            let Some(parent) = self.inode(*folder) else { continue };
            if fate.add.is_empty() || self.waiting.contains_key(&fate.id) {
                self.apply(&Op::Unlink { parent, name: name.clone(), keep: true })?;
            } else {
                let room = self.waiting_room()?;
                let seat = Name::new(self.waiting.len().to_string().as_bytes())?;
                self.rename((parent, name), (room, &seat))?;
                self.waiting.insert(fate.id, seat);
            }
        }
        Ok(())
    }

    fn rename(&mut self, from: (u64, &Name), to: (u64, &Name)) -> Result<u64, TreeError> {
        self.apply(&Op::Rename {
            parent: from.0,
            name: from.1.clone(),
            new_parent: to.0,
            new_name: to.1.clone(),
            how: RenameHow::NoReplace,
            keep: true,
        })
    }

    fn waiting_room(&mut self) -> Result<u64, TreeError> {
        if let Some(room) = self.waiting_room {
            return Ok(room);
        }
        let name = self.free_name(b".moving")?;
        let folder = Node::clone(self.tree.node(ROOT)?);
        let room = self.tree.graft(ROOT, &name, &folder, self.time)?;
        self.waiting_room = Some(room);
        Ok(room)
    }

    /// A name that nothing in the root has.
    fn free_name(&self, stem: &[u8]) -> Result<Name, TreeError> {
        let mut number = 0u64;
        loop {
            let name = Name::new(&[stem, b"-", number.to_string().as_bytes()].concat())?;
            if self.tree.lookup(ROOT, &name).is_err() {
                return Ok(name);
            }
            number += 1;
        }
    }

    fn leave_waiting_room(&mut self) -> Result<(), TreeError> {
        let Some(room) = self.waiting_room.take() else { return Ok(()) };
        let Some(name) = self.tree.node(room)?.names().next().map(|(_, name)| name.clone()) else { return Ok(()) };
        self.apply(&Op::Rmdir { parent: ROOT, name, keep: false }).map(drop)
    }

    /// Gives a file its new names.
    fn attach(&mut self, fate: &Fate) -> Result<(), TreeError> {
        for place in &fate.add {
            let folder = self.folder(place.0)?;
            let done = match folder {
                Some(folder) if self.make_room(fate, folder, &place.1)? => self.enter(fate, folder, &place.1)?,
                Some(_) => false,
                None => self.refuse(fate),
            };
            if !done {
                self.give_back(fate)?;
            }
        }
        Ok(())
    }

    /// Puts a file to a free place; returns false where it can't be there.
    fn enter(&mut self, fate: &Fate, parent: u64, name: &Name) -> Result<bool, TreeError> {
        if let Some(seat) = self.waiting.get(&fate.id).cloned() {
            let room = self.waiting_room()?;
            return match self.rename((room, &seat), (parent, name)) {
                Ok(_) => Ok(self.waiting.remove(&fate.id).is_some()),
                // The other side moved that folder into this one.
                Err(TreeError::Invalid(_)) => Ok(self.refuse(fate)),
                Err(error) => Err(error),
            };
        }
        let is_grafted = self.grafted.contains_key(&fate.id);
        match self.inode(fate.id).filter(|_| is_grafted || !fate.is_new) {
            // A folder that something below it needed is there already.
            Some(inode) if self.is_folder(inode) => {}
            Some(inode) => drop(self.apply(&Op::Link { inode, parent, name: name.clone() })?),
            None => drop(self.graft(fate.id, parent, name)?),
        }
        Ok(true)
    }

    /// Makes the child's file in the result. Of a folder: without what is in it.
    fn graft(&mut self, id: Id, parent: u64, name: &Name) -> Result<Option<u64>, TreeError> {
        let Some(node) = self.of_child(id) else { return Ok(None) };
        let inode = self.tree.graft(parent, name, &node, self.time)?;
        self.grafted.insert(id, inode);
        if node.kind() != Kind::Directory {
            self.files.insert(id);
        }
        Ok(Some(inode))
    }

    fn of_child(&self, id: Id) -> Option<Arc<Node>> {
        self.court.trees.child.node(self.court.trees.in_child(id)?).ok().cloned()
    }

    /// Returns the folder of that id, made anew with those above it if it is not there; none where
    /// something else is in the way.
    fn folder(&mut self, id: Id) -> Result<Option<u64>, TreeError> {
        let mut missing = Vec::new();
        let mut at = id;
        let mut folder = loop {
            if let Some(inode) = self.inode(at) {
                break inode;
            }
            let Some(node) = self.of_child(at) else { return Ok(None) };
            let above = node.names().next().map(|(above, name)| (above, name.clone()));
            let Some((above, name)) = above else { return Ok(None) };
            missing.push((at, name));
            let Some(above) = self.court.trees.id_in_child(above) else { return Ok(None) };
            at = above;
        };
        while let Some((id, name)) = missing.pop() {
            folder = match self.tree.lookup(folder, &name) {
                // A folder of another origin does as well.
                Ok(there) if self.is_folder(there) => {
                    self.grafted.insert(id, there);
                    there
                }
                Ok(_) => return Ok(None),
                Err(_) => match self.graft(id, folder, &name)? {
                    Some(inode) => inode,
                    None => return Ok(None),
                },
            };
        }
        Ok(self.is_folder(folder).then_some(folder))
    }

    /// Frees a place for a file of the child; returns false where what is there stays.
    ///
    /// What is there is decided about like two versions of a file; but a folder that holds something
    /// is never removed for the sake of a name.
    fn make_room(&mut self, fate: &Fate, folder: u64, name: &Name) -> Result<bool, TreeError> {
        let Ok(there) = self.tree.lookup(folder, name) else { return Ok(true) };
        if self.inode(fate.id) == Some(there) {
            return Ok(true);
        }
        let old = self.tree.node(there)?.clone();
        let mut item = self.court.item(fate.id);
        let Some(child) = item.child.as_ref().map(|child| child.node.clone()) else { return Ok(false) };
        // An empty folder and a full one, or a new folder and one that is there, are one folder.
        if child.kind() == Kind::Directory && old.kind() == Kind::Directory && fate.is_new {
            self.grafted.insert(fate.id, there);
            return Ok(true);
        }
        item.parent = self.court.stranger(&old, self.tree.hash_of(there));
        let winner = match old.directory() {
            Some(directory) if !directory.is_empty() => self.court.parent_stays(&item),
            _ => self.court.contradiction(&item, [child.ctime, old.ctime]),
        };
        if winner != Some(Side::Child) {
            return Ok(false);
        }
        let (parent, name) = (folder, name.clone());
        self.apply(&match old.kind() {
            Kind::Directory => Op::Rmdir { parent, name, keep: true },
            _ => Op::Unlink { parent, name, keep: true },
        })?;
        Ok(true)
    }

    /// Notes that the child's move can't be done.
    fn refuse(&mut self, fate: &Fate) -> bool {
        let item = self.court.item(fate.id);
        self.court.parent_stays(&item);
        false
    }

    /// Puts what waits back to where the parent has it, or if that is taken lets it go.
    fn give_back(&mut self, fate: &Fate) -> Result<(), TreeError> {
        let Some(seat) = self.waiting.remove(&fate.id) else { return Ok(()) };
        let room = self.waiting_room()?;
        for (folder, name) in &fate.remove {
            let Some(folder) = self.inode(*folder) else { continue };
            match self.rename((room, &seat), (folder, name)) {
                Ok(_) => return Ok(()),
                Err(TreeError::Exists | TreeError::Invalid(_) | TreeError::NotDirectory | TreeError::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        let inode = self.tree.lookup(room, &seat)?;
        if self.is_folder(inode) {
            // What is in it must not be lost for a name.
            let name = self.free_name(b"moved")?;
            return self.rename((room, &seat), (ROOT, &name)).map(drop);
        }
        let path = self.court.item(fate.id).undecided(None).path;
        self.court.lose(path, Loser::File(Side::Parent));
        self.apply(&Op::Unlink { parent: room, name: seat, keep: true }).map(drop)
    }

    /// Gives a file that the parent has its new content and attributes.
    fn change(&mut self, fate: &Fate) -> Result<(), TreeError> {
        let Some(inode) = self.inode(fate.id) else { return Ok(()) };
        let before = self.tree.node(inode)?.clone();
        let before_hash = before.hash();
        match &fate.body {
            NewBody::Keep => {}
            NewBody::Child => self.replace(fate.id, inode, &before)?,
            NewBody::Joined(bytes) => self.write(inode, bytes)?,
        }
        if let Some(mode) = fate.mode {
            self.apply(&Op::SetAttr { inode, attrs: Attrs { mode: Some(mode), ..Attrs::default() } })?;
        }
        let own = || before.xattrs().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        match (&fate.xattrs, &fate.body) {
            (Some(wanted), _) => self.set_xattrs(inode, wanted)?,
            (None, NewBody::Child) => self.set_xattrs(inode, &own())?,
            (None, _) => {}
        }
        if self.tree.node(inode)?.hash() != before_hash {
            self.files.insert(fate.id);
        }
        Ok(())
    }

    /// Gives a file the child's content and times; owner, mode and birth stay.
    fn replace(&mut self, id: Id, inode: u64, before: &Node) -> Result<(), TreeError> {
        let Some(child) = self.of_child(id) else { return Ok(()) };
        let mut node = Node::clone(&child);
        (node.mode, node.uid, node.gid, node.crtime) = (before.mode, before.uid, before.gid, before.crtime);
        self.tree.replace(inode, &node, self.time)
    }

    fn write(&mut self, inode: u64, bytes: &[u8]) -> Result<(), TreeError> {
        self.apply(&Op::SetAttr { inode, attrs: Attrs { size: Some(0), ..Attrs::default() } })?;
        self.apply(&Op::Write { inode, offset: 0, bytes: bytes.into() }).map(drop)
    }

    fn set_xattrs(&mut self, inode: u64, wanted: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<(), TreeError> {
        let node = self.tree.node(inode)?.clone();
        for (name, _) in node.xattrs().filter(|(name, _)| !wanted.contains_key(*name)) {
            self.apply(&Op::RemoveXattr { inode, name: name.to_vec() })?;
        }
        for (name, value) in wanted.iter().filter(|(name, value)| node.xattr(name) != Some(value)) {
            let (name, value, how) = (name.clone(), value.clone(), XattrHow::Any);
            self.apply(&Op::SetXattr { inode, name, value, how })?;
        }
        Ok(())
    }

    /// Removes a folder that the child removed, if nothing is in it.
    fn remove_folder(&mut self, fate: &Fate) -> Result<(), TreeError> {
        if fate.is_new || fate.remove.is_empty() || !fate.add.is_empty() {
            return Ok(());
        }
        let Some(inode) = self.inode(fate.id) else { return Ok(()) };
        for (folder, name) in &fate.remove {
            let is_empty = self.tree.node(inode)?.directory().is_some_and(|directory| directory.is_empty());
            if let Some(parent) = self.inode(*folder).filter(|_| is_empty) {
                self.apply(&Op::Rmdir { parent, name: name.clone(), keep: true })?;
            }
        }
        Ok(())
    }
}
