//! The least that a FUSE file system can do: names, modes and lengths in RAM behind one lock, contents nowhere.
//!
//! Mounted as engramfs mounts itself: the same threads, options, flags and lifetimes. So what it takes is what the
//! kernel and the protocol take. With `keep` it keeps contents as well, each file in one `Vec`.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, SessionACL,
    TimeOrNow, WriteFlags,
};

/// The first word on the command line that makes the bench serve this file system.
pub const WORD: &str = "serve-bare";

const LIFETIME: Duration = Duration::from_secs(1);
const GENERATION: Generation = Generation(0);
const OPEN: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE.union(FopenFlags::FOPEN_NOFLUSH);

/// A mounted one, in a process of its own as engramfs is.
pub struct Bare {
    process: Child,
    pub path: PathBuf,
}

impl Bare {
    pub fn new(path: &Path, keep: bool) -> Bare {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let process = command.arg(WORD).arg(path).args(keep.then_some("keep")).spawn().unwrap();
        let start = Instant::now();
        while !path.join("there").exists() {
            assert!(start.elapsed() < Duration::from_secs(20), "the bare file system does not answer");
            std::thread::sleep(Duration::from_millis(1));
        }
        Bare { process, path: path.to_owned() }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
        let _ = self.process.wait();
    }
}

/// Serves until it is unmounted.
pub fn serve(path: &Path, keep: bool) {
    let mut config = Config::default();
    let name = MountOption::FSName("bare".to_owned());
    config.mount_options = vec![name, MountOption::DefaultPermissions, MountOption::NoSuid, MountOption::NoDev];
    config.acl = SessionACL::All;
    config.n_threads = Some(std::thread::available_parallelism().map_or(1, |count| count.get()) + 2);
    fuser::mount(Ram::new(keep), path, &config).unwrap();
}

struct Ram {
    keep: bool,
    tree: Mutex<Tree>,
}

#[derive(Default)]
struct Tree {
    nodes: HashMap<u64, Node>,
    last: u64,
}

struct Node {
    attr: FileAttr,
    names: BTreeMap<OsString, u64>,
    bytes: Vec<u8>,
}

impl Ram {
    fn new(keep: bool) -> Ram {
        let mut tree = Tree::default();
        tree.add(FileType::Directory, 0o755);
        // Whoever waits for the mount looks for this.
        let there = tree.add(FileType::Directory, 0o755).ino.0;
        tree.nodes.get_mut(&1).unwrap().names.insert("there".into(), there);
        Ram { keep, tree: Mutex::new(tree) }
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap()
    }

    fn make(&self, parent: INodeNo, name: &OsStr, kind: FileType, mode: u32) -> FileAttr {
        let mut tree = self.tree();
        let attr = tree.add(kind, mode);
        tree.nodes.get_mut(&parent.0).unwrap().names.insert(name.to_owned(), attr.ino.0);
        attr
    }

    fn remove(&self, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut tree = self.tree();
        let removed = tree.nodes.get_mut(&parent.0).and_then(|node| node.names.remove(name));
        let gone = removed.and_then(|ino| tree.nodes.remove(&ino));
        drop(tree);
        if gone.is_some() { reply.ok() } else { reply.error(Errno::ENOENT) }
    }
}

impl Tree {
    fn add(&mut self, kind: FileType, mode: u32) -> FileAttr {
        self.last += 1;
        let now = SystemTime::now();
        let attr = FileAttr {
            ino: INodeNo(self.last),
            size: 0,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            kind,
            perm: (mode & 0o7777) as u16,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        };
        self.nodes.insert(self.last, Node { attr, names: BTreeMap::new(), bytes: Vec::new() });
        attr
    }

    fn named(&self, parent: INodeNo, name: &OsStr) -> Option<FileAttr> {
        let ino = self.nodes.get(&parent.0)?.names.get(name)?;
        Some(self.nodes.get(ino)?.attr)
    }
}

impl Filesystem for Ram {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for flag in [
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_EXPLICIT_INVAL_DATA,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        ] {
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.tree().named(parent, name) {
            Some(attr) => reply.entry(&LIFETIME, &attr, GENERATION),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.tree().nodes.get(&ino.0) {
            Some(node) => reply.attr(&LIFETIME, &node.attr),
            None => reply.error(Errno::ESTALE),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut tree = self.tree();
        let Some(node) = tree.nodes.get_mut(&ino.0) else { return reply.error(Errno::ESTALE) };
        if let Some(size) = size {
            node.attr.size = size;
            node.bytes.truncate(size as usize);
        }
        reply.attr(&LIFETIME, &node.attr);
    }

    fn mkdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        reply.entry(&LIFETIME, &self.make(parent, name, FileType::Directory, mode & !umask), GENERATION);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, reply);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut tree = self.tree();
        let Some(ino) = tree.nodes.get_mut(&parent.0).and_then(|node| node.names.remove(name)) else {
            return reply.error(Errno::ENOENT);
        };
        tree.nodes.get_mut(&new_parent.0).unwrap().names.insert(new_name.to_owned(), ino);
        drop(tree);
        reply.ok();
    }

    fn create(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let attr = self.make(parent, name, FileType::RegularFile, mode & !umask);
        reply.created(&LIFETIME, &attr, GENERATION, FileHandle(0), OPEN);
    }

    fn open(&self, _request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.0 & libc::O_TRUNC != 0
            && let Some(node) = self.tree().nodes.get_mut(&ino.0)
        {
            node.attr.size = 0;
            node.bytes.clear();
        }
        reply.opened(FileHandle(0), OPEN);
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let tree = self.tree();
        let Some(node) = tree.nodes.get(&ino.0) else { return reply.error(Errno::ESTALE) };
        let (start, end) = (offset.min(node.attr.size), (offset + u64::from(size)).min(node.attr.size));
        if self.keep {
            let end = node.bytes.len().min(end as usize);
            return reply.data(&node.bytes[(start as usize).min(end)..end]);
        }
        drop(tree);
        reply.data(&vec![0; (end - start) as usize]);
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut tree = self.tree();
        let Some(node) = tree.nodes.get_mut(&ino.0) else { return reply.error(Errno::ESTALE) };
        let end = offset + data.len() as u64;
        node.attr.size = node.attr.size.max(end);
        if self.keep {
            node.bytes.resize(node.attr.size as usize, 0);
            node.bytes[offset as usize..end as usize].copy_from_slice(data);
        }
        drop(tree);
        reply.written(data.len() as u32);
    }

    fn release(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn opendir(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn readdir(&self, _request: &Request, ino: INodeNo, _handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let tree = self.tree();
        for (place, (name, ino)) in tree.nodes[&ino.0].names.iter().enumerate().skip(offset as usize) {
            if reply.add(INodeNo(*ino), place as u64 + 1, tree.nodes[ino].attr.kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let tree = self.tree();
        for (place, (name, ino)) in tree.nodes[&ino.0].names.iter().enumerate().skip(offset as usize) {
            if reply.add(INodeNo(*ino), place as u64 + 1, name, &LIFETIME, &tree.nodes[ino].attr, GENERATION) {
                break;
            }
        }
        reply.ok();
    }

    fn access(&self, _request: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }
}
