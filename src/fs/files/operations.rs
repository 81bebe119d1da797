//! The answers of `files/` and `scratch/` to what can be asked of a node.

use std::ffi::OsStr;
use std::time::Duration;

use super::attr::{file_attr, name_lifetime};
use super::open::{OpenInode, parent_node};
use super::range::{Allocation, COPY_BYTES_MAX, single_copy_bytes};
use super::set::mode_after;
use super::xattr::{TRUSTED, check_supported};
use super::{Area, FileNames, FileOps, parse_name};
use crate::fs::attr::{Attr, AttrChanges, EntryAttr, StatFs, TimeSet};
use crate::fs::directory::{ListName, Listing, ListingTail};
use crate::fs::errno::{Errno, Failure};
use crate::fs::handle::{Handle, Open};
use crate::fs::listing::{EntrySink, NameSink};
use crate::fs::mount_context::Caller;
use crate::fs::node::{FsNode, NAME_BYTES_MAX};
use crate::fs::open_flags::OpenFlags;
use crate::fs::operations::{NodeOperations, ParentAndName, check_whiteout, fixed_node_refusal};
use crate::fs::refusal::InputRefusal;
use crate::memory::{Attrs, FILES_ROOT, FileKind, FileOp, NewInode, RangeOp, View, XattrMode};
use crate::sync::{Mutex, Rank};

impl NodeOperations for FileOps<'_> {
    /// What has no name any more is shown by its number.
    fn path(&self) -> String {
        let inside = self.tree().ok().and_then(|tree| tree.path(self.inode));
        let inside =
            inside.map_or_else(|| format!("#{}", self.inode), |path| String::from_utf8_lossy(&path).into_owned());
        let path = format!("{}/{inside}", self.files.area.name()).trim_end_matches('/').to_owned();
        match &self.files.view {
            View::Branch(_) => path,
            View::Checkpoint(_, label) => format!("checkpoints/{label}/{path}"),
            View::At(_, entry) => format!("at/{entry}/{path}"),
            View::Proposal(_, entry) => format!("proposal {entry}/{path}"),
        }
    }

    /// What is asked is done at once.
    fn may_block(&self) -> bool {
        false
    }

    fn find(&self, name: &OsStr) -> Result<FsNode, Failure> {
        self.fs.mount.memory.info(self.files.view.branch())?;
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let inode = self.tree()?.lookup(self.inode, name.as_encoded_bytes())?;
        Ok(self.with_inode(inode).node())
    }

    fn lookup(&self, name: &OsStr) -> Result<EntryAttr, Failure> {
        let tree = self.tree()?;
        let inode = tree.lookup(self.inode, name.as_encoded_bytes())?;
        self.with_inode(inode).entry_in(&tree)
    }

    fn entry(&self) -> Result<EntryAttr, Failure> {
        self.entry_in(&self.tree()?)
    }

    fn name_lifetime(&self) -> Duration {
        name_lifetime(self.files)
    }

    /// Also what is gone has attributes, while the kernel still holds it.
    fn attributes(&self, ino: u64, _handle: Option<u64>) -> Result<Attr, Failure> {
        let (mount, tree) = (&self.fs.mount, self.tree()?);
        if let Ok(node) = tree.node(self.inode) {
            return file_attr(mount, ino, self.files, self.inode, (&tree, node));
        }
        let node = mount.removed_inodes.find(ino).ok_or(Errno::ESTALE)?;
        Ok(Attr { links: 0, ..file_attr(mount, ino, self.files, self.inode, (&tree, &node))? })
    }

    /// The kernel has checked whether the caller may.
    fn set_attributes(&self, caller: Caller, changes: AttrChanges, _handle: Option<u64>) -> Result<(), Failure> {
        let tree = self.tree()?;
        let node = tree.node(self.inode)?;
        let (mut uid, mut gid) = (changes.uid, changes.gid);
        if self.inode == FILES_ROOT && (uid.is_some() || gid.is_some()) {
            self.check_owner((uid, gid))?;
            (uid, gid) = (None, None);
        }
        let time = |set: TimeSet| match set {
            TimeSet::Now => Ok(self.fs.mount.memory.now()),
            TimeSet::At(time) => Ok(time),
            TimeSet::OutOfRange => Err(InputRefusal::TimeOutOfRange),
        };
        let attrs = Attrs {
            mode: mode_after(caller, changes, node),
            uid,
            gid,
            size: changes.size,
            atime: changes.accessed.map(time).transpose()?,
            mtime: changes.modified.map(time).transpose()?,
        };
        self.edit(caller, FileOp::SetAttr { inode: self.inode, attrs }).map(drop)
    }

    fn statfs(&self) -> Result<StatFs, Failure> {
        match self.files.area {
            Area::Files => self.fs.mount.store_statfs(Some(self.files.view.clone())),
            Area::Scratch => self.fs.mount.scratch_statfs(self.files),
        }
    }

    fn sync(&self) -> Result<(), Failure> {
        // A branch that has ended fails here, or fsync(2) would vouch for files that went with it.
        self.tree()?;
        match self.files.area {
            Area::Files => self.fs.mount.sync(),
            Area::Scratch => Ok(()),
        }
    }

    /// Linux empties a file also for whoever opens it for reading.
    fn open(&self, caller: Caller, _ino: u64, flags: i32) -> Result<u64, Failure> {
        self.open_with(caller, OpenFlags { truncate: flags & libc::O_TRUNC != 0, ..OpenFlags::from_bits(flags) })
    }

    /// Opens the one that is there, where that is not forbidden. Linux empties a file also for whoever opens it for
    /// reading.
    fn create(&self, caller: Caller, name: &OsStr, mode: u32, flags: i32) -> Result<(EntryAttr, u64), Failure> {
        let flags = OpenFlags { truncate: flags & libc::O_TRUNC != 0, ..OpenFlags::from_bits(flags) };
        let (inode, is_new) = match self.create_inode(caller, name, NewInode::File, mode) {
            Ok(inode) => (inode, true),
            Err(Failure::Plain(Errno::EEXIST)) if !flags.exclusive => {
                (self.find_appeared_file(caller, name, flags)?, false)
            }
            Err(failure) => return Err(failure),
        };
        // A new file is empty already, so emptying it would only be one more operation.
        let flags = OpenFlags { truncate: flags.truncate && !is_new, replace: flags.replace || is_new, ..flags };
        let made = self.with_inode(inode);
        let handle = made.open_with(caller, flags)?;
        // Nobody hears of the handle then, so nobody else would close it.
        let entry = made.entry().inspect_err(|_| self.fs.release(handle))?;
        Ok((entry, handle))
    }

    fn open_directory(&self, caller: Caller, _ino: u64) -> Result<u64, Failure> {
        // Counted before the tree is read, as for a file: a directory that is removed now stays readable for this
        // handle.
        let open = OpenInode::new(&self.fs.mount, caller, (self.files, self.inode), false)?;
        let (tree, node) = (self.tree()?, self.node());
        let listing = match parent_node(&tree, self.files, self.inode) {
            Ok(above) => {
                let names = vec![ListName { name: ".".into(), node }, ListName { name: "..".into(), node: above }];
                Listing::new(names, ListingTail::Files(FileNames::new(open, &tree)?))
            }
            // Somebody's working directory that was removed: there is nothing in it.
            Err(_) if self.fs.mount.removed_inodes.find(self.fs.nodes.number(&node)).is_some() => {
                Listing::new(Vec::new(), ListingTail::Nothing)
            }
            Err(failure) => return Err(failure),
        };
        Ok(self.add_handle(caller, Open::Directory(Box::new(Mutex::with_rank(Rank::Handle, listing)))))
    }

    fn read_names(&self, handle: &Handle, offset: u64, sink: NameSink<'_>) -> Result<(), Failure> {
        let tree = self.tree()?;
        self.fs.emit_names(handle, offset, sink, |node| match node.file() {
            Some((_, inode)) => tree.node(inode).map(|node| node.kind()).ok(),
            None => Some(FileKind::Directory),
        })
    }

    /// The name has to lead to the file still: the kernel would believe in one that is not there any
    /// more.
    fn read_entries(&self, handle: &Handle, offset: u64, sink: EntrySink<'_>) -> Result<(), Failure> {
        let tree = self.tree()?;
        self.fs.emit_entries(handle, offset, sink, |node, name| {
            let (_, inode) = node.file()?;
            // The listing is of an earlier tree than the entries that the kernel is told of.
            let there = tree.lookup(self.inode, name.as_encoded_bytes()).ok()? == inode;
            there.then(|| self.with_inode(inode).entry_in(&tree).ok())?
        })
    }

    fn create_directory(&self, caller: Caller, name: &OsStr, mode: u32) -> Result<EntryAttr, Failure> {
        self.create_node(caller, name, NewInode::Directory, mode)
    }

    fn remove_directory(&self, caller: Caller, name: &OsStr) -> Result<(), Failure> {
        self.remove(caller, name, true)
    }

    fn unlink(&self, caller: Caller, name: &OsStr) -> Result<(), Failure> {
        self.remove(caller, name, false)
    }

    /// Renames within one `files/`, and from one to another not at all. A branch can't be moved
    /// there.
    fn rename(&self, caller: Caller, name: &OsStr, to: ParentAndName<'_>, flags: u32) -> Result<(), Failure> {
        check_whiteout(flags)?;
        match to.0.file() {
            Some((tree_id, directory)) if tree_id == self.files => {
                self.rename_within(caller, name, (directory, to.1), flags)
            }
            _ => self.fs.refuse_crossing((&self.node(), name), to, flags),
        }
    }

    fn link(&self, caller: Caller, (parent, name): ParentAndName<'_>) -> Result<EntryAttr, Failure> {
        let Some((_, parent)) = parent.file().filter(|(tree_id, _)| *tree_id == self.files) else {
            return Err(Errno::EXDEV.into());
        };
        let name = parse_name(name)?;
        self.edit(caller, FileOp::Link { inode: self.inode, parent, name })?;
        self.entry()
    }

    fn check_replaceable(&self, _name: &OsStr) -> Result<(), Failure> {
        if self.inode == FILES_ROOT { Err(fixed_node_refusal(&self.node())) } else { Ok(()) }
    }

    fn cross_tree_refusal(&self) -> Result<Failure, Failure> {
        Ok(if self.inode == FILES_ROOT { fixed_node_refusal(&self.node()) } else { Errno::EXDEV.into() })
    }

    fn seek(&self, _ino: u64, _handle: u64, offset: u64, whence: i32) -> Result<u64, Failure> {
        let tree = self.tree()?;
        let content = tree.node(self.inode)?.content();
        let found = match whence {
            libc::SEEK_DATA => content.and_then(|content| content.next_data(offset)),
            libc::SEEK_HOLE => content.and_then(|content| content.next_hole(offset)),
            _ => return Err(Errno::EINVAL.into()),
        };
        Ok(found.ok_or(Errno::ENXIO)?)
    }

    /// A directory with setgid passes its group on.
    fn create_node(&self, caller: Caller, name: &OsStr, make: NewInode, mode: u32) -> Result<EntryAttr, Failure> {
        let inode = self.create_inode(caller, name, make, mode)?;
        self.with_inode(inode).entry()
    }

    fn read_link(&self) -> Result<Vec<u8>, Failure> {
        let tree = self.tree()?;
        let node = tree.node(self.inode)?;
        let target = node.target().ok_or(Errno::EINVAL)?;
        // The kernel asks for no right to read a link, and only what a proposal does not show has no mode at all.
        if matches!(self.files.view, View::Proposal(..)) && node.mode == 0 {
            return Err(Errno::EACCES.into());
        }
        Ok(target.to_vec())
    }

    fn xattr(&self, name: &OsStr) -> Result<Vec<u8>, Failure> {
        let name = check_supported(name)?;
        let value = self.tree()?.node(self.inode)?.xattr(name).map(<[u8]>::to_vec);
        Ok(value.ok_or(Errno::ENODATA)?)
    }

    fn xattr_names(&self, caller: Caller) -> Result<Vec<u8>, Failure> {
        let tree = self.tree()?;
        let names = tree.node(self.inode)?.xattrs().map(|(name, _)| name);
        let seen = names.filter(|name| caller.uid == 0 || !name.starts_with(TRUSTED));
        Ok(seen.flat_map(|name| [name, b"\0"].concat()).collect())
    }

    fn set_xattr(&self, caller: Caller, name: &OsStr, value: &[u8], mode: XattrMode) -> Result<(), Failure> {
        let (inode, name) = (self.inode, check_supported(name)?.to_vec());
        self.edit(caller, FileOp::SetXattr { inode, name, value: value.to_vec(), mode }).map(drop)
    }

    fn remove_xattr(&self, caller: Caller, name: &OsStr) -> Result<(), Failure> {
        let (inode, name) = (self.inode, check_supported(name)?.to_vec());
        self.edit(caller, FileOp::RemoveXattr { inode, name }).map(drop)
    }

    fn allocate(&self, caller: Caller, offset: u64, length: u64, mode: i32) -> Result<(), Failure> {
        let Allocation { op, keep_size } = Allocation::from_mode(mode)?;
        if op == RangeOp::Allocate {
            self.check_room(length)?;
        }
        self.drop_privileges(caller)?;
        self.edit(caller, FileOp::Range { inode: self.inode, what: op, offset, length, keep_size }).map(drop)
    }

    /// Shares what is whole. EXDEV from one `files/` to another: the caller then reads and writes.
    fn copy_from(&self, caller: Caller, from: (&FsNode, u64), to_offset: u64, length: u64) -> Result<u32, Failure> {
        let (source, from_offset) = from;
        let (tree_id, inode) = source.file().ok_or(Errno::EOPNOTSUPP)?;
        if tree_id != self.files {
            return Err(Errno::EXDEV.into());
        }
        let size = self.tree()?.node(inode)?.size();
        // A short count is no error: copy_file_range(2) is called again for the rest.
        let length = single_copy_bytes(from_offset, to_offset, length.min(size.saturating_sub(from_offset)));
        if length == 0 {
            return Ok(0);
        }
        self.drop_privileges(caller)?;
        match self.edit(caller, FileOp::Copy { from: inode, from_offset, to: self.inode, to_offset, length }) {
            Ok(_) => Ok(u32::try_from(length).unwrap_or(COPY_BYTES_MAX)),
            // From a file without a name nothing can be shared.
            Err(Failure::Plain(Errno::ESTALE)) => Err(Errno::EOPNOTSUPP.into()),
            Err(failure) => Err(failure),
        }
    }
}
