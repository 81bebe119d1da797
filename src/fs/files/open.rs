//! Open files in `files/`.

use std::ffi::OsStr;
use std::sync::Arc;

use super::open_inodes::{InodeKey, OpenIntent};
use super::set::clear_set_id_bits;
use super::{Area, FileOps, FileTreeId};
use crate::fs::errno::{Errno, Failure};
use crate::fs::handle::{File, Handle, Open};
use crate::fs::mount_context::{Caller, MountContext, check_changeable};
use crate::fs::node::FsNode;
use crate::fs::open_flags::OpenFlags;
use crate::memory::{Attrs, FILES_ROOT, FileKind, FileNode, FileOp, Tree, View};

/// What Linux keeps of a program's rights beside setuid; a write takes it away.
const CAPABILITY: &[u8] = b"security.capability";

impl FileOps<'_> {
    /// Opens a file, and empties it where that is wished. ETXTBSY for an emptied file that a program runs from, EISDIR
    /// for a directory, ENXIO for a FIFO, socket or device; refused where it writes and the mount, the view or a rule
    /// for the file forbids that.
    pub(super) fn open_with(&self, caller: Caller, flags: OpenFlags) -> Result<u64, Failure> {
        let (tree_id, inode) = (self.files, self.inode);
        if flags.write || flags.truncate {
            check_changeable(&tree_id.view)?;
            self.fs.mount.check_not_read_only()?;
            // At the open, because stores of a mapping arrive with no caller that could be told of a refusal.
            self.check_writer(caller)?;
        }
        // Register the handle before the tree is read: from then on nothing that this handle sees is dropped.
        let mut file = OpenInode::new(&self.fs.mount, caller, (tree_id, inode), flags.write || flags.truncate)?;
        let tree = self.fs.mount.tree(tree_id)?;
        let node = tree.node(inode)?;
        // The kernel keeps writers from a running program; who only empties it, it asks afterwards.
        if flags.truncate && !flags.write && self.fs.mount.open_inodes.is_open_for(&file.key, OpenIntent::Run) {
            return Err(Errno::ETXTBSY.into());
        }
        file.begin(flags);
        match node.kind() {
            FileKind::File => {}
            FileKind::Directory => return Err(Errno::EISDIR.into()),
            _ => return Err(Errno::ENXIO.into()),
        }
        if flags.truncate {
            file.drop_capability(node)?;
            // The kernel does not say whether the caller may keep setuid; root may.
            let mode = (caller.uid != 0).then(|| clear_set_id_bits(node.mode)).filter(|mode| *mode != node.mode);
            file.edit(FileOp::SetAttr { inode, attrs: Attrs { size: Some(0), mode, ..Attrs::default() } })?;
        }
        Ok(self.add_handle(caller, Open::File(Box::new(file))))
    }

    /// Returns a file that appeared after the kernel had found nothing of its name: it takes what is opened for new,
    /// and checks nothing. ESTALE if it has gone again, is no file, or may not be open to the caller: the kernel then
    /// looks the name up once more, and decides by what is there.
    pub(super) fn find_appeared_file(&self, caller: Caller, name: &OsStr, flags: OpenFlags) -> Result<u64, Failure> {
        let tree = self.tree()?;
        let inode = tree.lookup(self.inode, name.as_encoded_bytes()).map_err(|_| Errno::ESTALE)?;
        let (node, reader) = (tree.node(inode)?, self.fs.mount.credentials(caller));
        let may = node.kind() == FileKind::File && reader.may_open(&tree, node, flags.rights());
        if may { Ok(inode) } else { Err(Errno::ESTALE.into()) }
    }

    /// Takes capabilities away from a file before its bytes change, and unless root changes them setuid and setgid. For
    /// writes the kernel says when; for copies and fallocate(2) it leaves this to us. Fails like a change of
    /// attributes.
    pub(super) fn drop_privileges(&self, caller: Caller) -> Result<(), Failure> {
        let tree = self.tree()?;
        let node = tree.node(self.inode)?;
        if node.xattr(CAPABILITY).is_some() {
            self.edit(caller, FileOp::RemoveXattr { inode: self.inode, name: CAPABILITY.to_vec() })?;
        }
        let mode = clear_set_id_bits(node.mode);
        if caller.uid == 0 || node.kind() != FileKind::File || mode == node.mode {
            return Ok(());
        }
        let attrs = Attrs { mode: Some(mode), ..Attrs::default() };
        self.edit(caller, FileOp::SetAttr { inode: self.inode, attrs }).map(drop)
    }

    /// What a mapping stores is written when it is too late to refuse it to whoever stored it.
    fn check_writer(&self, caller: Caller) -> Result<(), Failure> {
        let (mount, branch) = (&self.fs.mount, self.files.view.branch());
        match self.files.area {
            Area::Files => Ok(mount.memory.check_writer(&mount.actor(caller), branch, self.inode)?),
            Area::Scratch => Ok(()),
        }
    }

    /// Adds a handle; its path is worked out when it is needed.
    pub(super) fn add_handle(&self, caller: Caller, open: Open) -> u64 {
        self.fs.handles.add(Handle { node: self.node(), number: 0, path: String::new(), caller, context: None, open })
    }
}

/// An inode that has a handle.
pub(in crate::fs) struct OpenInode {
    mount: Arc<MountContext>,
    caller: Caller,
    key: InodeKey,
    writes: bool,
    intent: Option<OpenIntent>,
    writes_directly: bool,
}

impl OpenInode {
    /// Counts a handle; one that writes waits while a merge replaces files of the branch. Fails only on a thread that
    /// must not wait.
    pub fn new(
        mount: &Arc<MountContext>,
        caller: Caller,
        (tree_id, inode): (&FileTreeId, u64),
        writes: bool,
    ) -> Result<OpenInode, Failure> {
        let key = (tree_id.clone(), inode);
        if let View::Branch(_) = tree_id.view {
            mount.open_inodes.open(&key, writes)?;
        }
        Ok(OpenInode { mount: mount.clone(), caller, key, writes, intent: None, writes_directly: false })
    }

    /// Notes whether the handle runs the file or may map it for writing, until it is dropped.
    fn begin(&mut self, flags: OpenFlags) {
        let opened = &self.mount.open_inodes;
        self.intent = match flags {
            OpenFlags { run: true, .. } => Some(OpenIntent::Run),
            OpenFlags { read: true, write: true, .. } => Some(OpenIntent::Map),
            _ => None,
        };
        if let Some(intent) = self.intent {
            opened.begin(&self.key, intent);
        }
        let only_writes = flags.write && !flags.read && !flags.append;
        // Not where some handle may store by a mapping: its pages and what is written past them would disagree.
        self.writes_directly = only_writes && flags.replace && !opened.is_open_for(&self.key, OpenIntent::Map);
    }

    /// Returns the tree of this moment. Fails like `MountContext::tree`.
    pub fn tree(&self) -> Result<Tree, Failure> {
        self.mount.tree(&self.key.0)
    }

    /// Returns the tree that the inode is in; a handle keeps it when the inode has lost its names.
    pub fn tree_id(&self) -> &FileTreeId {
        &self.key.0
    }

    /// Returns the inode's number in its tree, which is not the one that the kernel has.
    pub fn inode(&self) -> u64 {
        self.key.1
    }

    fn edit(&self, op: FileOp<'_>) -> Result<(), Failure> {
        self.mount.edit(self.caller, &self.key.0, op).map(drop)
    }

    /// Takes the capabilities of a program away, before its bytes change.
    fn drop_capability(&self, node: &FileNode) -> Result<(), Failure> {
        if node.xattr(CAPABILITY).is_none() {
            return Ok(());
        }
        self.edit(FileOp::RemoveXattr { inode: self.inode(), name: CAPABILITY.to_vec() })
    }
}

impl File for OpenInode {
    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Failure> {
        Ok(self.tree()?.read(self.inode(), offset, size, self.mount.memory.packs())?)
    }

    /// The kernel has worked out where appending goes: it lets one writer of a file in at a time.
    fn write(&self, offset: u64, data: &[u8]) -> Result<usize, Failure> {
        // Before the bytes: a program whose bytes changed must never be seen with the capabilities of the old one.
        self.drop_capability(self.tree()?.node(self.inode())?)?;
        let written = self.edit(FileOp::Write { inode: self.inode(), offset, bytes: data.into() });
        match written {
            Ok(()) => Ok(data.len()),
            // The write is repeated on a thread that may wait; until then the kernel keeps its pages.
            Err(failure) if failure.is_would_wait() => Err(failure),
            Err(failure) => {
                self.mount.invalidate_pages(&self.key);
                Err(failure)
            }
        }
    }

    fn keeps_page_cache(&self) -> bool {
        true
    }

    fn writes_directly(&self) -> bool {
        self.writes_directly
    }

    fn drop_rights(&self) -> Result<(), Failure> {
        let tree = self.tree()?;
        let mode = tree.node(self.inode())?.mode;
        if clear_set_id_bits(mode) == mode {
            return Ok(());
        }
        let attrs = Attrs { mode: Some(clear_set_id_bits(mode)), ..Attrs::default() };
        self.edit(FileOp::SetAttr { inode: self.inode(), attrs })
    }
}

impl Drop for OpenInode {
    fn drop(&mut self) {
        if let Some(intent) = self.intent {
            // The intent ends before the handle does, since `close` forgets an inode of which nothing is open.
            self.mount.open_inodes.end(&self.key, intent);
        }
        if let Some(_unlink) = self.mount.open_inodes.close(&self.key, self.writes) {
            self.mount.drop_orphan(self.caller, &self.key.0, self.inode());
        }
    }
}

/// Returns the directory that holds an inode. ESTALE if the inode is not in the tree.
pub(super) fn parent_node(tree: &Tree, tree_id: &FileTreeId, inode: u64) -> Result<FsNode, Failure> {
    if inode == FILES_ROOT {
        return Ok(tree_id.parent());
    }
    // What has no name any more is its own parent: there is no way up from it.
    let parent = tree.node(inode)?.names().next().map_or(inode, |(parent, _)| parent);
    Ok(FsNode::File(tree_id.clone(), parent))
}
