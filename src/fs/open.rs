//! Operations on open files and directories.

use std::ffi::OsStr;

use super::attr::EntryAttr;
use super::config::{SettingFile, shown};
use super::ctl::Ctl;
use super::errno::{Errno, Failure};
use super::handle::{File, Handle, Open};
use super::history_files::{EventsFile, LineageFile};
use super::ingest::Ingest;
use super::kernel_notifier::WakeCall;
use super::line_session::LineSession;
use super::mount_context::{Caller, OpenContext, check_changeable};
use super::node::{ControlNode, FsNode};
use super::query::QueryFile;
use super::record_file::RecordFile;
use super::refusal::ShapeRefusal;
use super::rights::{READ, SEARCH};
use super::static_file::{ExportFile, StaticFile};
use super::temporary::TemporaryFile;
use super::{Filesystem, path_of, search, tree, vectors};
use crate::memory::{Document, FileKind, HistoryFile};
use crate::sync::{Mutex, Rank};

/// What a caller wants to do with a file, out of the flags of open(2).
#[derive(Clone, Copy)]
pub(super) struct OpenFlags {
    pub read: bool,
    pub write: bool,
    pub append: bool,
    pub truncate: bool,
    /// The file is made or emptied, to be written whole.
    pub replace: bool,
    pub exclusive: bool,
    pub run: bool,
}

/// What Linux adds to the flags of open(2) for a program that is about to run (`FMODE_EXEC`).
const RUN: i32 = 0x20;

impl OpenFlags {
    fn of(flags: i32) -> OpenFlags {
        let has = |flag| flags & flag != 0;
        let write = flags & libc::O_ACCMODE != libc::O_RDONLY;
        OpenFlags {
            read: flags & libc::O_ACCMODE != libc::O_WRONLY,
            write,
            append: has(libc::O_APPEND),
            truncate: has(libc::O_TRUNC) && write,
            replace: has(libc::O_TRUNC) && write,
            exclusive: has(libc::O_EXCL),
            run: has(RUN),
        }
    }
}

impl Filesystem {
    /// Opens a file and returns the handle. `flags` are those of open(2).
    ///
    /// Generated files show the state of this moment. EPERM for writing to one, EROFS for writing
    /// where nothing changes. What is wrong with the query of `search/<text>` is told here.
    pub fn open(&self, caller: Caller, ino: u64, flags: i32) -> Result<u64, Errno> {
        let node = self.nodes.node(ino)?;
        let opened = match &node {
            // Linux empties a file also for who opens it for reading.
            FsNode::File(of, inode) => {
                let flags = OpenFlags { truncate: flags & libc::O_TRUNC != 0, ..OpenFlags::of(flags) };
                self.open_file(caller, of, *inode, flags)
            }
            _ => self.open_node(caller, (&node, ino), node.path(), OpenFlags::of(flags)),
        };
        self.audit_node(caller, &node, opened)
    }

    /// Makes a file in `files/` or `vectors/` and opens it. A record is there once a commit took its
    /// document.
    pub fn create(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> Result<(EntryAttr, u64), Errno> {
        let parent = self.nodes.node(parent)?;
        let created = self.create_in(caller, &parent, name, mode, OpenFlags::of(flags));
        self.audit_at(caller, &parent, name, created)
    }

    /// Tells whether reading, writing or closing an open file may take more than a moment: queries,
    /// verbs and bulk writes do.
    pub fn takes_long(&self, handle: u64) -> bool {
        self.handles.get(handle).is_ok_and(|handle| handle.file().is_ok_and(File::takes_long))
    }

    /// Reads up to `size` bytes at `offset`; fewer only at the end.
    pub fn read(&self, handle: u64, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        self.on_handle(handle, |handle, file| {
            if !file.outlives_branch() {
                handle.check_alive()?;
            }
            if file.is_live() {
                handle.place.as_ref().map_or(Ok(()), OpenContext::check_entered)?;
            }
            file.read(offset, size as usize)
        })
    }

    /// Writes, and returns how many bytes were taken; fewer than given when a later line of `query`
    /// or `ctl` fails.
    pub fn write(&self, handle: u64, offset: u64, data: &[u8]) -> Result<u32, Errno> {
        let taken = self.on_handle(handle, |handle, file| {
            handle.check_alive()?;
            file.write(offset, data)
        })?;
        // The kernel sends no more than fits.
        Ok(u32::try_from(taken).unwrap_or(u32::MAX))
    }

    /// Tells whether what a handle writes may go past the kernel's pages.
    pub fn goes_past_pages(&self, handle: u64) -> bool {
        self.handles.get(handle).is_ok_and(|handle| handle.file().is_ok_and(|file| file.goes_past_pages()))
    }

    /// Takes setuid and setgid away from an open file, where they are rights: before a write by
    /// somebody who may not keep them.
    pub fn drop_rights(&self, handle: u64) -> Result<(), Errno> {
        self.on_handle(handle, |_, file| file.drop_rights())
    }

    /// Commits what the handle wrote since its last commit: at each close(2) of a descriptor. With
    /// nothing new it does nothing.
    pub fn flush(&self, handle: u64) -> Result<(), Errno> {
        self.on_handle(handle, |_, file| file.commit())
    }

    /// Commits as [`Filesystem::flush`] does, and makes all that was acknowledged in the store
    /// durable.
    pub fn fsync(&self, handle: u64) -> Result<(), Errno> {
        self.on_handle(handle, |open, file| {
            file.commit()?;
            self.sync_node(&open.node)
        })
    }

    /// Drops a handle, with what no commit took.
    pub fn release(&self, handle: u64) {
        let Some(open) = self.handles.remove(handle) else { return };
        if open.node.stands_apart() {
            self.nodes.closed(open.number);
        }
        if let Some(place) = &open.place {
            place.state.leave(handle);
        }
    }

    /// Tells whether a read would find something. `waker` is called once when that may have
    /// changed, on a thread of its own.
    pub fn poll(&self, handle: u64, waker: Option<WakeCall>) -> Result<bool, Errno> {
        let open = self.handles.get(handle)?;
        // First the waker, then the look: what happens between them is seen.
        if let (Some(waker), Some(place)) = (waker, &open.place) {
            place.state.wait(handle, waker);
        }
        let alive = open.check_alive().is_ok();
        Ok(!alive || open.file().map_err(|failure| failure.errno())?.is_readable())
    }

    /// Opens a directory and returns the handle. Its listing stays as it is now; in `files/`, until
    /// it is read from the beginning again.
    pub fn opendir(&self, caller: Caller, ino: u64) -> Result<u64, Errno> {
        let node = self.nodes.node(ino)?;
        let opened = match &node {
            FsNode::File(of, inode) => self.open_files(caller, of, *inode),
            _ => self.place_of(&node, caller).and_then(|place| {
                place.as_ref().map_or(Ok(()), OpenContext::check_entered)?;
                let open = Open::Directory(Box::new(Mutex::ranked(Rank::Handle, tree::list(&self.mount, &node)?)));
                Ok(self.handles.add(Handle { node: node.clone(), number: ino, path: node.path(), caller, place, open }))
            }),
        };
        self.audit_node(caller, &node, opened)
    }

    /// Gives the names from the cookie `offset` on to `sink`, until it returns true for "full".
    ///
    /// `sink` takes a node number, the cookie of the next name, what it is, and the name.
    pub fn readdir(
        &self,
        handle: u64,
        offset: u64,
        sink: &mut dyn FnMut(u64, u64, FileKind, &OsStr) -> bool,
    ) -> Result<(), Errno> {
        let handle = self.handles.get(handle)?;
        let read = handle.check_alive().and_then(|()| self.fill(&handle, offset, sink));
        self.audit_handle(&handle, read)
    }

    /// The same with the attributes of what stands there, and a look-up is counted for each but `.`
    /// and `..`. Attributes that are not at hand are left out: the kernel asks for them when they
    /// are needed.
    pub fn readdirplus(
        &self,
        handle: u64,
        offset: u64,
        sink: &mut dyn FnMut(&EntryAttr, u64, &OsStr) -> bool,
    ) -> Result<(), Errno> {
        let handle = self.handles.get(handle)?;
        let read = handle.check_alive().and_then(|()| self.fill_plus(&handle, offset, sink));
        self.audit_handle(&handle, read)
    }

    /// Makes all that was acknowledged in the store durable, on behalf of a directory.
    pub fn fsyncdir(&self, handle: u64) -> Result<(), Errno> {
        let handle = self.handles.get(handle)?;
        self.audit_handle(&handle, self.sync_node(&handle.node))
    }

    fn sync_node(&self, node: &FsNode) -> Result<(), Failure> {
        if let FsNode::File(of, _) = node {
            // What is gone was not made durable.
            self.mount.tree(of)?;
        }
        if node.is_in_ram() { Ok(()) } else { self.mount.sync() }
    }

    fn on_handle<T>(
        &self,
        handle: u64,
        act: impl FnOnce(&Handle, &dyn File) -> Result<T, Failure>,
    ) -> Result<T, Errno> {
        let handle = self.handles.get(handle)?;
        let done = handle.file().and_then(|file| act(&handle, file));
        self.audit_handle(&handle, done)
    }

    pub(super) fn place_of(&self, node: &FsNode, caller: Caller) -> Result<Option<OpenContext>, Failure> {
        node.view().map(|view| self.mount.place(&view, caller)).transpose()
    }

    fn create_in(
        &self,
        caller: Caller,
        parent: &FsNode,
        name: &OsStr,
        mode: u32,
        flags: OpenFlags,
    ) -> Result<(EntryAttr, u64), Failure> {
        if let FsNode::File(of, directory) = parent {
            return self.create_file(caller, of, *directory, name, mode, flags);
        }
        let FsNode::Control(view, ControlNode::Vectors) = parent else {
            return Err(ShapeRefusal::NoFileHere.into());
        };
        let place = self.mount.place(view, caller)?;
        let node = vectors::create(&place, name, mode, flags)?;
        let handle = self.open_node(caller, (&node, 0), path_of(&parent.path(), name), flags)?;
        let entry = self.entry(&node).inspect_err(|_| self.release(handle))?;
        Ok((entry, handle))
    }

    fn open_node(&self, caller: Caller, known: (&FsNode, u64), path: String, flags: OpenFlags) -> Result<u64, Failure> {
        let (node, number) = known;
        let place = self.place_of(node, caller)?.ok_or(Errno::EISDIR)?;
        place.check_entered()?;
        let file = self.file(node, &place, flags)?;
        if flags.truncate {
            file.truncate(0)?;
        }
        if node.stands_apart() {
            self.nodes.opened(number);
        }
        let open = Open::File(file);
        Ok(self.handles.add(Handle { node: node.clone(), number, path, caller, place: Some(place), open }))
    }

    /// The one place that says how each kind of file behaves when it is open.
    fn file(&self, node: &FsNode, place: &OpenContext, flags: OpenFlags) -> Result<Box<dyn File>, Failure> {
        let memory = place.memory();
        let frozen =
            |bytes: Vec<u8>| -> Result<Box<dyn File>, Failure> { Ok(Box::new(StaticFile(place.counted(bytes)?))) };
        Ok(match node {
            // Those in files/ have a way of their own.
            FsNode::Mount | FsNode::Branch(_) | FsNode::Checkpoint { .. } | FsNode::File(..) => {
                return Err(Errno::EISDIR.into());
            }
            FsNode::Control(_, fixed) => self.fixed_file(*fixed, place, flags)?,
            FsNode::Record(_, id) if flags.write => Box::new(RecordFile::open(place.clone(), id, flags.append)?),
            FsNode::Record(view, id) => frozen(memory.snapshot(view)?.get(id)?.ok_or(Errno::ENOENT)?.to_document())?,
            FsNode::Temporary(_, number) => {
                let file = place.state.temporaries.numbered(*number).ok_or(Errno::ENOENT)?;
                if flags.write {
                    place.check_writable()?;
                }
                Box::new(TemporaryFile { place: place.clone(), file, append: flags.append })
            }
            FsNode::Setting(_, setting) if flags.write => {
                Box::new(SettingFile::open(place.clone(), *setting, flags.append)?)
            }
            FsNode::Setting(view, setting) => frozen(shown(&memory.setting(view, *setting)?).into_bytes())?,
            FsNode::Query(..) | FsNode::Export(..) if flags.write => return Err(generated(place)),
            FsNode::Query(_, text) => frozen(search::answer(place, text)?)?,
            FsNode::Export(view, export) => Box::new(ExportFile { snapshot: memory.snapshot(view)?, export: *export }),
        })
    }

    fn fixed_file(&self, fixed: ControlNode, place: &OpenContext, flags: OpenFlags) -> Result<Box<dyn File>, Failure> {
        Ok(match fixed {
            ControlNode::Query => Box::new(LineSession::new(place.clone(), QueryFile)),
            ControlNode::Ctl => {
                if flags.write {
                    check_changeable(&place.view)?;
                }
                Box::new(LineSession::new(place.clone(), Ctl { handles: self.handles.clone() }))
            }
            ControlNode::Ingest => {
                if flags.write {
                    place.check_writable()?;
                }
                Box::new(Ingest::new(place.clone()))
            }
            ControlNode::Errors | ControlNode::Document(_) | ControlNode::History(_) if flags.write => {
                return Err(generated(place));
            }
            ControlNode::Errors => Box::new(StaticFile(place.counted(place.state.errors.text(place.reader()?))?)),
            ControlNode::History(HistoryFile::Events) => Box::new(EventsFile::open(place.clone())?),
            ControlNode::History(HistoryFile::Lineage) => Box::new(LineageFile::open(place.clone())?),
            ControlNode::Document(Document::Status) => {
                let last = place.state.errors.last(place.reader()?);
                Box::new(StaticFile(place.counted(place.memory().status_with(&place.view, last)?)?))
            }
            ControlNode::Document(document) => {
                if document == Document::Conflicts {
                    // It shows what the parent holds.
                    place.check_parent(READ | SEARCH)?;
                }
                Box::new(StaticFile(place.counted(place.memory().document(&place.view, document)?.to_vec())?))
            }
            ControlNode::Vectors
            | ControlNode::Branches
            | ControlNode::Checkpoints
            | ControlNode::Search
            | ControlNode::Exports
            | ControlNode::Config => {
                return Err(Errno::EISDIR.into());
            }
        })
    }
}

/// Returns why a generated file is not opened for writing.
fn generated(place: &OpenContext) -> Failure {
    let hint = "write records to vectors/ or ingest, verbs to ctl, settings to config/";
    place.check_writable().err().unwrap_or_else(|| ShapeRefusal::Generated { hint }.into())
}
