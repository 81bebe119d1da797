//! Open files and directories in `files/`.

use std::ffi::OsStr;
use std::sync::Arc;

use super::opened::{Doing, Place};
use super::set::stripped;
use super::{Area, FileNames, FilesOf};
use crate::fs::Filesystem;
use crate::fs::attr::Entry;
use crate::fs::common::{Caller, Common, check_changeable};
use crate::fs::directory::{Listing, More, Name};
use crate::fs::errno::{Errno, Failure};
use crate::fs::handle::{File, Handle, Open};
use crate::fs::node::Node;
use crate::fs::open::Wish;
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
        wish: Wish,
    ) -> Result<u64, Failure> {
        if wish.write || wish.truncate {
            check_changeable(&of.view)?;
            self.common.check_mount()?;
            self.check_writer(caller, of, inode)?;
        }
        // First the handle, then the look: what is there then stays for this handle.
        let mut file = OpenInode::new(&self.common, caller, of, inode)?;
        let tree = self.common.tree(of)?;
        let node = tree.node(inode)?;
        // The kernel keeps writers from a running program; who only empties it, it asks afterwards.
        if wish.truncate && !wish.write && self.common.opened.any(&file.place, Doing::Run) {
            return Err(Errno::ETXTBSY.into());
        }
        file.begin(wish);
        match node.kind() {
            FileKind::File => {}
            FileKind::Directory => return Err(Errno::EISDIR.into()),
            _ => return Err(Errno::ENXIO.into()),
        }
        if wish.truncate {
            file.drop_capability(node)?;
            // The kernel does not say whether the caller may keep setuid; root may.
            let mode = (caller.uid != 0).then(|| stripped(node.mode)).filter(|mode| *mode != node.mode);
            file.edit(FileOp::SetAttr { inode, attrs: Attrs { size: Some(0), mode, ..Attrs::default() } })?;
        }
        Ok(self.add_file(caller, Node::File(of.clone(), inode), Open::File(Box::new(file))))
    }

    /// What a mapping stores is written when it is too late to refuse it to whoever stored it.
    fn check_writer(&self, caller: Caller, of: &FilesOf, inode: u64) -> Result<(), Failure> {
        match of.area {
            Area::Files => Ok(self.common.memory.check_writer(&self.common.actor(caller), of.view.branch(), inode)?),
            Area::Scratch => Ok(()),
        }
    }

    /// Opens the listing of a directory.
    pub(in crate::fs) fn open_files(&self, caller: Caller, of: &FilesOf, directory: u64) -> Result<u64, Failure> {
        let open = OpenInode::new(&self.common, caller, of, directory)?;
        let tree = self.common.tree(of)?;
        let node = Node::File(of.clone(), directory);
        let listing = match parent_of(&tree, of, directory) {
            Ok(above) => {
                let names =
                    vec![Name { name: ".".into(), node: node.clone() }, Name { name: "..".into(), node: above }];
                Listing::new(names, More::Files(FileNames::new(open, tree)))
            }
            // Somebody's working directory that was removed: there is nothing in it.
            Err(_) if self.common.removed.find(self.nodes.number(&node)).is_some() => {
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
        wish: Wish,
    ) -> Result<(Entry, u64), Failure> {
        let (inode, is_new) = match self.make_inode(caller, of, directory, name, Make::File, mode) {
            Ok(inode) => (inode, true),
            Err(Failure::Plain(Errno::EEXIST)) if !wish.exclusive => {
                (self.common.tree(of)?.lookup(directory, name.as_encoded_bytes())?, false)
            }
            Err(failure) => return Err(failure),
        };
        let wish = Wish { truncate: wish.truncate && !is_new, replace: wish.replace || is_new, ..wish };
        let handle = self.open_file(caller, of, inode, wish)?;
        let entry = self.present_entry(of, inode).inspect_err(|_| self.release(handle))?;
        Ok((entry, handle))
    }

    /// Adds a handle of something in `files/`; its path is worked out when it is needed.
    fn add_file(&self, caller: Caller, node: Node, open: Open) -> u64 {
        self.handles.add(Handle { node, number: 0, path: String::new(), caller, place: None, open })
    }
}

/// An inode that has a handle.
pub(in crate::fs) struct OpenInode {
    common: Arc<Common>,
    caller: Caller,
    place: Place,
    doing: Option<Doing>,
    goes_past_pages: bool,
}

impl OpenInode {
    pub fn new(common: &Arc<Common>, caller: Caller, of: &FilesOf, inode: u64) -> Result<OpenInode, Failure> {
        let place = (of.clone(), inode);
        if let View::Branch(_) = of.view {
            common.opened.open(&place)?;
        }
        Ok(OpenInode { common: common.clone(), caller, place, doing: None, goes_past_pages: false })
    }

    /// Notes what the handle is for.
    fn begin(&mut self, wish: Wish) {
        let opened = &self.common.opened;
        self.doing = match wish {
            Wish { run: true, .. } => Some(Doing::Run),
            Wish { read: true, write: true, .. } => Some(Doing::Map),
            _ => None,
        };
        if let Some(doing) = self.doing {
            opened.begin(&self.place, doing);
        }
        let only_writes = wish.write && !wish.read && !wish.append;
        self.goes_past_pages = only_writes && wish.replace && !opened.any(&self.place, Doing::Map);
    }

    /// Returns the tree of this moment.
    pub fn tree(&self) -> Result<Tree, Failure> {
        self.common.tree(&self.place.0)
    }

    /// Returns its number in the tree.
    pub fn inode(&self) -> u64 {
        self.place.1
    }

    fn edit(&self, op: FileOp<'_>) -> Result<(), Failure> {
        self.common.edit(self.caller, &self.place.0, op).map(drop)
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
        Ok(self.tree()?.read(self.inode(), offset, size, self.common.memory.packs())?)
    }

    /// The kernel has worked out where appending goes: it lets one writer of a file in at a time.
    fn write(&self, offset: u64, data: &[u8]) -> Result<usize, Failure> {
        self.drop_capability(self.tree()?.node(self.inode())?)?;
        let written = self.edit(FileOp::Write { inode: self.inode(), offset, bytes: data.into() });
        match written {
            Ok(()) => Ok(data.len()),
            // It is done anew, and the kernel holds its pages until then.
            Err(failure) if failure.gave_up() => Err(failure),
            Err(failure) => {
                self.common.write_refused(&self.place);
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
            self.common.opened.end(&self.place, doing);
        }
        if self.common.opened.close(&self.place) {
            self.common.drop_file(self.caller, &self.place.0, self.inode());
        }
    }
}

/// Returns the directory that holds an inode.
pub(in crate::fs) fn parent_of(tree: &Tree, of: &FilesOf, inode: u64) -> Result<Node, Failure> {
    if inode == FILES_ROOT {
        return Ok(of.above());
    }
    // What has no name any more is its own parent: there is no way up from it.
    let parent = tree.node(inode)?.names().next().map_or(inode, |(parent, _)| parent);
    Ok(Node::File(of.clone(), parent))
}
