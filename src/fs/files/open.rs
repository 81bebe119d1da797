//! Open files and directories in `files/`.

use std::ffi::OsStr;
use std::sync::Arc;

use super::opened::{InodeKey, OpenIntent};
use super::set::stripped;
use super::{Area, FileNames, FilesOf};
use crate::fs::Filesystem;
use crate::fs::attr::EntryAttr;
use crate::fs::directory::{ListName, Listing, More};
use crate::fs::errno::{Errno, Failure};
use crate::fs::handle::{File, Handle, Open};
use crate::fs::mount_context::{Caller, MountContext, check_changeable};
use crate::fs::node::FsNode;
use crate::fs::open::OpenFlags;
use crate::memory::{Attrs, FILES_ROOT, FileKind, FileNode, FileOp, Make, Tree, View};
use crate::sync::{Mutex, Rank};

/// What Linux keeps of a program's rights beside setuid; a write takes it away.
const CAPABILITY: &[u8] = b"security.capability";

impl Filesystem {
    /// Opens a file, and empties it where that is wished.
    pub(in crate::fs) fn open_file(
        &self,
        caller: Caller,
        of: &FilesOf,
        inode: u64,
        flags: OpenFlags,
    ) -> Result<u64, Failure> {
        if flags.write || flags.truncate {
            check_changeable(&of.view)?;
            self.mount.check_mount()?;
            self.check_writer(caller, of, inode)?;
        }
        // First the handle, then the look: what is there then stays for this handle.
        let mut file = OpenInode::new(&self.mount, caller, of, inode)?;
        let tree = self.mount.tree(of)?;
        let node = tree.node(inode)?;
        // The kernel keeps writers from a running program; who only empties it, it asks afterwards.
        if flags.truncate && !flags.write && self.mount.opened.any(&file.place, OpenIntent::Run) {
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
            let mode = (caller.uid != 0).then(|| stripped(node.mode)).filter(|mode| *mode != node.mode);
            file.edit(FileOp::SetAttr { inode, attrs: Attrs { size: Some(0), mode, ..Attrs::default() } })?;
        }
        Ok(self.add_file(caller, FsNode::File(of.clone(), inode), Open::File(Box::new(file))))
    }

    /// What a mapping stores is written when it is too late to refuse it to whoever stored it.
    fn check_writer(&self, caller: Caller, of: &FilesOf, inode: u64) -> Result<(), Failure> {
        match of.area {
            Area::Files => Ok(self.mount.memory.check_writer(&self.mount.actor(caller), of.view.branch(), inode)?),
            Area::Scratch => Ok(()),
        }
    }

    /// Opens the listing of a directory.
    pub(in crate::fs) fn open_files(&self, caller: Caller, of: &FilesOf, directory: u64) -> Result<u64, Failure> {
        let open = OpenInode::new(&self.mount, caller, of, directory)?;
        let tree = self.mount.tree(of)?;
        let node = FsNode::File(of.clone(), directory);
        let listing = match parent_of(&tree, of, directory) {
            Ok(above) => {
                let names = vec![
                    ListName { name: ".".into(), node: node.clone() },
                    ListName { name: "..".into(), node: above },
                ];
                Listing::new(names, More::Files(FileNames::new(open, tree)))
            }
            // Somebody's working directory that was removed: there is nothing in it.
            Err(_) if self.mount.removed.find(self.nodes.number(&node)).is_some() => {
                Listing::new(Vec::new(), More::Nothing)
            }
            Err(failure) => return Err(failure),
        };
        Ok(self.add_file(caller, node, Open::Directory(Box::new(Mutex::ranked(Rank::Handle, listing)))))
    }

    /// Makes a file and opens it; opens the one that is there, where that is not forbidden.
    pub(in crate::fs) fn create_file(
        &self,
        caller: Caller,
        of: &FilesOf,
        directory: u64,
        name: &OsStr,
        mode: u32,
        flags: OpenFlags,
    ) -> Result<(EntryAttr, u64), Failure> {
        let (inode, is_new) = match self.make_inode(caller, of, directory, name, Make::File, mode) {
            Ok(inode) => (inode, true),
            Err(Failure::Plain(Errno::EEXIST)) if !flags.exclusive => {
                (self.mount.tree(of)?.lookup(directory, name.as_encoded_bytes())?, false)
            }
            Err(failure) => return Err(failure),
        };
        let flags = OpenFlags { truncate: flags.truncate && !is_new, replace: flags.replace || is_new, ..flags };
        let handle = self.open_file(caller, of, inode, flags)?;
        let entry = self.present_entry(of, inode).inspect_err(|_| self.release(handle))?;
        Ok((entry, handle))
    }

    /// Adds a handle of something in `files/`; its path is worked out when it is needed.
    fn add_file(&self, caller: Caller, node: FsNode, open: Open) -> u64 {
        self.handles.add(Handle { node, number: 0, path: String::new(), caller, place: None, open })
    }
}

/// An inode that has a handle.
pub(in crate::fs) struct OpenInode {
    mount: Arc<MountContext>,
    caller: Caller,
    place: InodeKey,
    doing: Option<OpenIntent>,
    goes_past_pages: bool,
}

impl OpenInode {
    pub fn new(mount: &Arc<MountContext>, caller: Caller, of: &FilesOf, inode: u64) -> Result<OpenInode, Failure> {
        let place = (of.clone(), inode);
        if let View::Branch(_) = of.view {
            mount.opened.open(&place)?;
        }
        Ok(OpenInode { mount: mount.clone(), caller, place, doing: None, goes_past_pages: false })
    }

    /// Notes what the handle is for.
    fn begin(&mut self, flags: OpenFlags) {
        let opened = &self.mount.opened;
        self.doing = match flags {
            OpenFlags { run: true, .. } => Some(OpenIntent::Run),
            OpenFlags { read: true, write: true, .. } => Some(OpenIntent::Map),
            _ => None,
        };
        if let Some(doing) = self.doing {
            opened.begin(&self.place, doing);
        }
        let only_writes = flags.write && !flags.read && !flags.append;
        self.goes_past_pages = only_writes && flags.replace && !opened.any(&self.place, OpenIntent::Map);
    }

    /// Returns the tree of this moment.
    pub fn tree(&self) -> Result<Tree, Failure> {
        self.mount.tree(&self.place.0)
    }

    /// Returns its number in the tree.
    pub fn inode(&self) -> u64 {
        self.place.1
    }

    fn edit(&self, op: FileOp<'_>) -> Result<(), Failure> {
        self.mount.edit(self.caller, &self.place.0, op).map(drop)
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
        self.drop_capability(self.tree()?.node(self.inode())?)?;
        let written = self.edit(FileOp::Write { inode: self.inode(), offset, bytes: data.into() });
        match written {
            Ok(()) => Ok(data.len()),
            // It is done again, and the kernel holds its pages until then.
            Err(failure) if failure.gave_up() => Err(failure),
            Err(failure) => {
                self.mount.write_refused(&self.place);
                Err(failure)
            }
        }
    }

    fn goes_past_pages(&self) -> bool {
        self.goes_past_pages
    }

    fn drop_rights(&self) -> Result<(), Failure> {
        let tree = self.tree()?;
        let mode = tree.node(self.inode())?.mode;
        if stripped(mode) == mode {
            return Ok(());
        }
        let attrs = Attrs { mode: Some(stripped(mode)), ..Attrs::default() };
        self.edit(FileOp::SetAttr { inode: self.inode(), attrs })
    }
}

impl Drop for OpenInode {
    fn drop(&mut self) {
        if let Some(doing) = self.doing {
            self.mount.opened.end(&self.place, doing);
        }
        if self.mount.opened.close(&self.place) {
            self.mount.drop_file(self.caller, &self.place.0, self.inode());
        }
    }
}

/// Returns the directory that holds an inode.
pub(in crate::fs) fn parent_of(tree: &Tree, of: &FilesOf, inode: u64) -> Result<FsNode, Failure> {
    if inode == FILES_ROOT {
        return Ok(of.above());
    }
    // What has no name any more is its own parent: there is no way up from it.
    let parent = tree.node(inode)?.names().next().map_or(inode, |(parent, _)| parent);
    Ok(FsNode::File(of.clone(), parent))
}
