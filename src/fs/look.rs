//! Operations that look: names, attributes, room.

use std::ffi::OsStr;

use super::attr::{Attr, EntryAttr, attr, name_lifetime, unborn};
use super::errno::{Errno, Failure};
use super::files::FilesOf;
use super::mount_context::{Caller, check_changeable};
use super::node::{ControlNode, FsNode};
use super::refusal::ShapeRefusal;
use super::{Filesystem, tree};
use crate::memory::Time;

/// What setattr(2)-like calls ask for.
#[derive(Clone, Copy, Default, Debug)]
pub struct AttrChanges {
    /// Permission bits to set; like all fields, nothing where the caller leaves it.
    pub mode: Option<u32>,
    /// Owner to set.
    pub uid: Option<u32>,
    /// Group to set.
    pub gid: Option<u32>,
    /// Length.
    pub size: Option<u64>,
    /// Time of last reading.
    pub accessed: Option<TimeSet>,
    /// Time of last change.
    pub modified: Option<TimeSet>,
}

impl AttrChanges {
    /// Tells whether nothing is asked for.
    pub(super) fn is_empty(&self) -> bool {
        let rights = self.mode.or(self.uid).or(self.gid).is_some();
        !rights && self.size.is_none() && self.accessed.or(self.modified).is_none()
    }
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeSet {
    /// The present moment.
    Now,
    /// A moment that the caller names.
    At(Time),
}

/// Room on the store's device, in bytes, and inodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatFs {
    /// All of it.
    pub total: u64,
    /// What nobody uses.
    pub free: u64,
    /// What an unprivileged user may still use.
    pub available: u64,
    /// Inodes of the branch's files.
    pub inodes: u64,
}

impl Filesystem {
    /// Finds a name in a directory, and counts a look-up of what stands there.
    ///
    /// ENOENT, ENOTDIR, ENAMETOOLONG, or ESTALE when the directory's branch was merged or
    /// discarded.
    pub fn lookup(&self, caller: Caller, parent: u64, name: &OsStr) -> Result<EntryAttr, Errno> {
        let parent = self.nodes.node(parent)?;
        let found = match &parent {
            FsNode::File(of, directory) => self.lookup_file(of, *directory, name),
            _ => self.find(&parent, name).and_then(|node| self.entry(&node)),
        };
        self.audit_at(caller, &parent, name, found)
    }

    /// Takes back look-ups that [`EntryAttr`]s stood for.
    pub fn forget(&self, ino: u64, lookups: u64) {
        self.nodes.forget(ino, lookups);
        self.mount.removed.forget(ino);
    }

    /// Returns the attributes of a node; of an open file with the length that this handle sees.
    pub fn getattr(&self, caller: Caller, ino: u64, handle: Option<u64>) -> Result<Attr, Errno> {
        let node = self.nodes.node(ino)?;
        self.audit_node(caller, &node, self.attr_of(ino, &node, handle))
    }

    /// Changes attributes, as far as there is something to change.
    ///
    /// Records, `query` and the like accept what editors and archivers do to files, and keep what
    /// they are. A branch's directory takes permission bits; fixed names none (EPERM). A record is
    /// cut by its handle only (EINVAL).
    pub fn setattr(&self, caller: Caller, ino: u64, changes: AttrChanges, handle: Option<u64>) -> Result<Attr, Errno> {
        let node = self.nodes.node(ino)?;
        let set = self.set(caller, &node, changes, handle).and_then(|()| self.attr_of(ino, &node, handle));
        self.audit_node(caller, &node, set)
    }

    /// Returns the room on the store's device, and how many inodes the files of the branch have that
    /// `ino` belongs to.
    pub fn statfs(&self, ino: u64) -> Result<StatFs, Errno> {
        let node = self.nodes.node(ino)?;
        if let FsNode::File(of, _) = &node
            && node.is_in_ram()
        {
            return self.audit_node(None, &node, self.scratch_room(of));
        }
        let (total, free, available) = self.mount.memory.space().map_err(|error| Errno::from(error.kind()))?;
        let view = node.view();
        let totals = view.and_then(|view| self.mount.memory.files(&view).ok()).map(|files| files.totals());
        let inodes = totals.map_or(0, |totals| totals.files + totals.directories);
        Ok(StatFs { total, free, available, inodes })
    }

    fn scratch_room(&self, of: &FilesOf) -> Result<StatFs, Failure> {
        let (total, used) = self.mount.scratch_space(of)?;
        let totals = self.mount.tree(of)?.totals();
        let free = total.saturating_sub(used);
        Ok(StatFs { total, free, available: free, inodes: totals.files + totals.directories })
    }

    pub(super) fn find(&self, parent: &FsNode, name: &OsStr) -> Result<FsNode, Failure> {
        if let Some(view) = parent.view() {
            self.mount.memory.info(view.branch())?;
        }
        tree::find(&self.mount, parent, name)
    }

    /// Counts a look-up of `node`, unless it is not there.
    pub(super) fn entry(&self, node: &FsNode) -> Result<EntryAttr, Failure> {
        let attr = self.attr_of(self.nodes.number(node), node, None)?;
        let ino = self.nodes.remember(node);
        self.nodes.tell_length(ino, attr.size);
        Ok(EntryAttr { attr: Attr { ino, ..attr }, lifetime: name_lifetime(&self.mount, node) })
    }

    /// An open record has attributes while it is not committed yet, or not there any more.
    pub(super) fn attr_of(&self, ino: u64, node: &FsNode, handle: Option<u64>) -> Result<Attr, Failure> {
        if let FsNode::File(of, inode) = node {
            return self.file_attr(ino, of, *inode);
        }
        let handle = handle.map(|handle| self.handles.get(handle)).transpose()?;
        let found = attr(&self.mount, ino, node);
        let length = |handle: &super::handle::Handle| handle.file().ok().and_then(|file| file.length());
        match (found, node) {
            (Ok(attr), _) => {
                let handle = handle.filter(|_| !node.shows_no_length());
                let length = handle.and_then(|handle| length(&handle)).unwrap_or(attr.size);
                self.nodes.tell_length(ino, length);
                Ok(attr.sized(length))
            }
            (Err(Failure::Plain(Errno::ENOENT)), FsNode::Record(view, _)) => {
                let handle = handle.or_else(|| self.handles.on(node)).ok_or(Errno::ENOENT)?;
                unborn(&self.mount, ino, view.branch(), length(&handle).unwrap_or(0))
            }
            (Err(failure), _) => Err(failure),
        }
    }

    fn set(&self, caller: Caller, node: &FsNode, changes: AttrChanges, handle: Option<u64>) -> Result<(), Failure> {
        // Shells set the length of `query` before they write to it, also where nothing else may
        // change.
        if matches!(node, FsNode::Control(_, ControlNode::Query)) && changes.mode.is_none() {
            return Ok(());
        }
        if let FsNode::File(of, inode) = node {
            return self.set_file(caller, of, *inode, changes);
        }
        if let Some(view) = node.view() {
            check_changeable(&view)?;
        }
        self.mount.check_writable()?;
        if let Some(length) = changes.size {
            self.set_length(node, length, handle)?;
        }
        self.set_rights(caller, node, changes)
    }

    fn set_length(&self, node: &FsNode, length: u64, handle: Option<u64>) -> Result<(), Failure> {
        if let Some(handle) = handle {
            return self.handles.get(handle)?.file()?.truncate(length);
        }
        match node {
            FsNode::Temporary(branch, number) => {
                let file = self.mount.states.known(*branch).and_then(|state| state.temporaries.numbered(*number));
                file.ok_or(Errno::ENOENT)?.resize(length, self.mount.memory.now())
            }
            FsNode::Control(_, ControlNode::Ingest | ControlNode::Ctl) | FsNode::Setting(..) => Ok(()),
            FsNode::Record(..) => Err(ShapeRefusal::Truncate.into()),
            _ => Err(ShapeRefusal::Generated { hint: "it changes with the branch" }.into()),
        }
    }

    fn set_rights(&self, caller: Caller, node: &FsNode, changes: AttrChanges) -> Result<(), Failure> {
        let owner = changes.uid.or(changes.gid);
        match node {
            FsNode::Record(..) => Ok(()),
            FsNode::Temporary(branch, number) => {
                let file = self
                    .mount
                    .states
                    .known(*branch)
                    .and_then(|state| state.temporaries.numbered(*number))
                    .ok_or(Errno::ENOENT)?;
                changes.mode.inspect(|mode| file.set_mode(*mode));
                file.set_owner(changes.uid, changes.gid);
                Ok(())
            }
            FsNode::Branch(branch) if owner.is_none() => match changes.mode {
                Some(mode) => Ok(self.mount.memory.chmod(&self.mount.actor(caller), *branch, mode & 0o7777)?),
                None => Ok(()),
            },
            // cp -a, tar and shutil end by giving a directory what it has already.
            _ if self.changes_no_rights(node, changes)? => Ok(()),
            _ => Err(ShapeRefusal::FixedAttributes.into()),
        }
    }

    /// Tells whether owner, group and permission bits are those that the node has.
    fn changes_no_rights(&self, node: &FsNode, changes: AttrChanges) -> Result<bool, Failure> {
        let now = attr(&self.mount, self.nodes.number(node), node)?;
        let differs = |wanted: Option<u32>, has| wanted.is_some_and(|wanted| wanted != has);
        Ok(!differs(changes.uid, now.uid)
            && !differs(changes.gid, now.gid)
            && !differs(changes.mode.map(|mode| mode & 0o7777), now.mode))
    }
}
