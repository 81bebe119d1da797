//! The control tree's answers to what can be asked of a node.

use std::ffi::OsStr;
use std::time::Duration;

use super::attr::{attr, listed_attr, name_lifetime, uncommitted_record_attr};
use super::{ControlNodeOps, branches, signals, tree, vectors};
use crate::fs::attr::{Attr, AttrChanges, EntryAttr, NOT_CACHED, StatFs};
use crate::fs::control::{ControlDirectory, ControlFile};
use crate::fs::errno::{Errno, Failure};
use crate::fs::handle::{Handle, Open};
use crate::fs::join_path;
use crate::fs::listing::{EntrySink, NameSink};
use crate::fs::mount_context::{Caller, OpenContext, check_changeable};
use crate::fs::node::{FsNode, SharedNode};
use crate::fs::open_flags::OpenFlags;
use crate::fs::operations::{NodeOperations, ParentAndName, fixed_node_refusal};
use crate::fs::refusal::LayoutRefusal;
use crate::memory::{BranchError, FileKind, SignalId, XattrMode};
use crate::sync::{Mutex, Rank};

impl NodeOperations for ControlNodeOps<'_> {
    fn path(&self) -> String {
        self.node.path()
    }

    /// What is generated is generated at its open. A rename may be a merge, and the kernel forgets
    /// what was open in a branch before its rmdir(2) returns.
    fn may_block(&self) -> bool {
        true
    }

    fn find(&self, name: &OsStr) -> Result<FsNode, Failure> {
        if let Some(view) = self.node.view() {
            self.fs.mount.memory.info(view.branch())?;
        }
        tree::find(&self.fs.mount, self.node, name)
    }

    fn lookup(&self, name: &OsStr) -> Result<EntryAttr, Failure> {
        let node = self.find(name)?;
        self.fs.operations(&node).entry()
    }

    fn entry(&self) -> Result<EntryAttr, Failure> {
        // Attributes come before the look-up is counted: where they fail the kernel never hears of the number.
        let attr = self.attributes(self.fs.nodes.number(self.node), None)?;
        let ino = self.fs.nodes.remember(self.node);
        self.fs.nodes.note_length(ino, attr.size);
        Ok(EntryAttr { attr: Attr { ino, ..attr }, generation: 0, lifetime: self.name_lifetime() })
    }

    fn name_lifetime(&self) -> Duration {
        name_lifetime(&self.fs.mount, self.node)
    }

    /// An open record has attributes while it is not committed yet, or not there any more.
    fn attributes(&self, ino: u64, handle: Option<u64>) -> Result<Attr, Failure> {
        let (fs, node) = (self.fs, self.node);
        let handle = handle.map(|handle| fs.handles.get(handle)).transpose()?;
        let found = attr(&fs.mount, ino, node);
        let length = |handle: &Handle| handle.file().ok().and_then(|file| file.length());
        match (found, node) {
            (Ok(attr), _) => {
                let handle = handle.filter(|_| !node.shows_no_length());
                let length = handle.and_then(|handle| length(&handle)).unwrap_or(attr.size);
                // The kernel is told this length now, and a listing may tell no other until it asks again.
                fs.nodes.note_length(ino, length);
                Ok(attr.with_size(length))
            }
            (Err(Failure::Plain(Errno::ENOENT)), FsNode::Record(view, _)) => {
                let handle = handle.or_else(|| fs.handles.find_by_node(node)).ok_or(Errno::ENOENT)?;
                uncommitted_record_attr(&fs.mount, ino, view.branch(), length(&handle).unwrap_or(0))
            }
            (Err(failure), _) => Err(failure),
        }
    }

    fn set_attributes(&self, caller: Caller, changes: AttrChanges, handle: Option<u64>) -> Result<(), Failure> {
        // Shells set the length of `query` before they write to it, also where nothing else may
        // change.
        if matches!(self.node, FsNode::Control(_, ControlFile::Query)) && changes.mode.is_none() {
            return Ok(());
        }
        if let Some(view) = self.node.view() {
            check_changeable(&view)?;
        }
        self.fs.mount.check_writable()?;
        if let Some(length) = changes.size {
            self.set_length(length, handle)?;
        }
        self.set_rights(caller, changes)
    }

    fn statfs(&self) -> Result<StatFs, Failure> {
        self.fs.mount.store_statfs(self.node.view())
    }

    fn sync(&self) -> Result<(), Failure> {
        self.fs.mount.sync()
    }

    fn open(&self, caller: Caller, ino: u64, flags: i32) -> Result<u64, Failure> {
        self.open_at(caller, ino, self.node.path(), OpenFlags::from_bits(flags))
    }

    fn create(&self, caller: Caller, name: &OsStr, mode: u32, flags: i32) -> Result<(EntryAttr, u64), Failure> {
        let flags = OpenFlags::from_bits(flags);
        let node = match self.node {
            FsNode::Directory(view, ControlDirectory::Vectors) => {
                vectors::create(&self.fs.mount.open_context(view, caller)?, name, mode, flags)?
            }
            FsNode::Shared(view, SharedNode::Signals) => {
                signals::create(&self.fs.mount.open_context(view, caller)?, name, mode, flags)?
            }
            _ => return Err(LayoutRefusal::NoFileHere.into()),
        };
        let made = ControlNodeOps { fs: self.fs, node: &node };
        let handle = made.open_at(caller, 0, join_path(&self.node.path(), name), flags)?;
        // Nobody hears of the handle then, so nobody else would close it.
        let entry = made.entry().inspect_err(|_| self.fs.release(handle))?;
        Ok((entry, handle))
    }

    fn open_directory(&self, caller: Caller, ino: u64) -> Result<u64, Failure> {
        let (fs, node) = (self.fs, self.node.clone());
        let context = self.open_context(caller)?;
        context.as_ref().map_or(Ok(()), OpenContext::check_enter)?;
        let open = Open::Directory(Box::new(Mutex::with_rank(Rank::Handle, tree::list(&fs.mount, &node)?)));
        let path = node.path();
        Ok(fs.handles.add(Handle { node, number: ino, path, caller, context, open }))
    }

    fn read_names(&self, handle: &Handle, offset: u64, sink: NameSink<'_>) -> Result<(), Failure> {
        self.fs.emit_names(handle, offset, sink, |node| {
            Some(if node.is_directory() { FileKind::Directory } else { FileKind::File })
        })
    }

    fn read_entries(&self, handle: &Handle, offset: u64, sink: EntrySink<'_>) -> Result<(), Failure> {
        self.fs.emit_entries(handle, offset, sink, |node, _| match node.is_directory() {
            true => self.fs.operations(node).entry().ok(),
            false => self.listing_entry(node).ok(),
        })
    }

    fn create_directory(&self, caller: Caller, name: &OsStr, _mode: u32) -> Result<EntryAttr, Failure> {
        let node = self.make(caller, name)?;
        self.fs.operations(&node).entry()
    }

    fn remove_directory(&self, caller: Caller, name: &OsStr) -> Result<(), Failure> {
        self.remove(caller, &self.find(name)?)
    }

    fn unlink(&self, caller: Caller, name: &OsStr) -> Result<(), Failure> {
        match self.node {
            FsNode::Directory(view, ControlDirectory::Vectors) => {
                vectors::unlink(&self.fs.mount.open_context(view, caller)?, &self.fs.handles, name)
            }
            FsNode::Shared(view, SharedNode::Signals) => {
                signals::unlink(&self.fs.mount.open_context(view, caller)?, name)
            }
            _ => Err(fixed_node_refusal(&self.find(name)?)),
        }
    }

    fn rename(&self, caller: Caller, name: &OsStr, to: ParentAndName<'_>, flags: u32) -> Result<(), Failure> {
        if to.0.file().is_some() {
            return self.fs.refuse_crossing((self.node, name), to, flags);
        }
        let node = self.find(name)?;
        let renamed = self.rename_node(caller, (name, &node), to, flags);
        renamed.inspect_err(|failure| self.log_refusal_for_branch(caller, &node, failure))
    }

    fn link(&self, _caller: Caller, (parent, _): ParentAndName<'_>) -> Result<EntryAttr, Failure> {
        Err(match parent.file() {
            Some(_) => Errno::EXDEV.into(),
            None => LayoutRefusal::OneName.into(),
        })
    }

    /// The kernel marks a directory that is replaced as dead for everybody, so that must never be.
    fn check_replaceable(&self, name: &OsStr) -> Result<(), Failure> {
        match self.node {
            FsNode::Branch(_) => Err(BranchError::Exists(name.to_string_lossy().into_owned()).into()),
            FsNode::Directory(..)
            | FsNode::Control(..)
            | FsNode::Setting(..)
            | FsNode::Shared(..)
            | FsNode::Export(..)
            | FsNode::Checkpoint { .. }
            | FsNode::At { .. } => Err(fixed_node_refusal(self.node)),
            _ => Ok(()),
        }
    }

    fn cross_tree_refusal(&self) -> Result<Failure, Failure> {
        Ok(match self.node {
            FsNode::Branch(branch) => branches::rename_refusal(&self.fs.mount.memory.info(*branch)?),
            FsNode::Record(..) | FsNode::Temporary(..) | FsNode::Signal(..) => Errno::EXDEV.into(),
            other => fixed_node_refusal(other),
        })
    }

    fn xattr(&self, name: &OsStr) -> Result<Vec<u8>, Failure> {
        match self.node {
            FsNode::Signal(view, key, created) => {
                signals::xattr(&self.fs.mount, view, SignalId { key, created: *created }, name)
            }
            _ => Err(Errno::ENODATA.into()),
        }
    }

    fn xattr_names(&self, _caller: Caller) -> Result<Vec<u8>, Failure> {
        Ok(if let FsNode::Signal(..) = self.node { signals::xattr_names() } else { Vec::new() })
    }

    fn set_xattr(&self, caller: Caller, name: &OsStr, value: &[u8], mode: XattrMode) -> Result<(), Failure> {
        match self.node {
            FsNode::Signal(view, key, created) => signals::set_xattr(
                &self.fs.mount.open_context(view, caller)?,
                SignalId { key, created: *created },
                name,
                (value, mode),
            ),
            _ => Err(Errno::EOPNOTSUPP.into()),
        }
    }

    fn remove_xattr(&self, caller: Caller, name: &OsStr) -> Result<(), Failure> {
        match self.node {
            // No lifetime is one without a limit.
            FsNode::Signal(..) => self.set_xattr(caller, name, b"", XattrMode::Any),
            _ => Err(Errno::ENODATA.into()),
        }
    }

    /// A generated file has no hole but the one past its end.
    fn seek(&self, ino: u64, handle: u64, offset: u64, whence: i32) -> Result<u64, Failure> {
        let size = self.attributes(ino, Some(handle))?.size;
        match whence {
            _ if offset >= size => Err(Errno::ENXIO.into()),
            libc::SEEK_DATA => Ok(offset),
            libc::SEEK_HOLE => Ok(size),
            _ => Err(Errno::EINVAL.into()),
        }
    }
}

impl ControlNodeOps<'_> {
    /// Returns the entry of what is generated as a listing tells it, and counts a look-up. Its length is worked out
    /// when somebody asks: until then it is the one that the kernel was told last, or 0 if it knows of none. Another
    /// one would cut off what somebody has mapped.
    fn listing_entry(&self, node: &FsNode) -> Result<EntryAttr, Failure> {
        let attr = listed_attr(&self.fs.mount, self.fs.nodes.number(node), node)?;
        let ino = self.fs.nodes.remember(node);
        let attr = Attr { ino, ..attr.with_size(self.fs.nodes.reported_length(ino)) };
        Ok(EntryAttr { attr, generation: 0, lifetime: NOT_CACHED })
    }
}
