//! Shell-like commands over a [`Filesystem`] on a fresh store.

use std::ffi::OsStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use crate::fs::{Attr, AttrChanges, Caller, EntryAttr, Errno, FileKind, Filesystem, FsOptions};
use crate::memory::{Actor, Environment, Memory, OpenMode, Time};

pub const ROOT: Caller = Caller { uid: 0, gid: 0, pid: 0 };
pub const ANN: Caller = Caller { uid: 1000, gid: 1000, pid: 0 };
/// What `>` of a shell opens with.
pub const ANEW: i32 = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;

pub struct Rig {
    pub fs: Filesystem,
    pub memory: Arc<Memory>,
    pub who: Caller,
    _store: Option<tempfile::TempDir>,
}

impl Rig {
    pub fn new() -> Rig {
        Rig::with(|_| FsOptions::default())
    }

    pub fn with(options: impl FnOnce(&Memory) -> FsOptions) -> Rig {
        Rig::around(Environment::real(Actor { uid: 0, gid: 0, name: "root".into() }), options)
    }

    /// A store that asks another clock.
    pub fn with_clock(clock: impl Fn() -> Time + Send + Sync + 'static) -> Rig {
        let owner = Actor { uid: 0, gid: 0, name: "root".into() };
        Rig::around(Environment { clock: Box::new(clock), ..Environment::real(owner) }, |_| FsOptions::default())
    }

    /// A store at whose looks at the clock something else may happen.
    pub fn with_looks() -> (Rig, Arc<Looks>) {
        let looks = Arc::new(Looks::default());
        let looking = looks.clone();
        (Rig::with_clock(move || looking.look()), looks)
    }

    fn around(environment: Environment, options: impl FnOnce(&Memory) -> FsOptions) -> Rig {
        let store = tempfile::tempdir().unwrap();
        let memory = Memory::open(&store.path().join("store"), OpenMode::Create, "a test", environment).unwrap();
        let fs = Filesystem::new(memory.clone(), options(&memory));
        Rig { fs, memory, who: ROOT, _store: Some(store) }
    }

    /// The next mount of the same store.
    pub fn mounted_again(&self) -> Rig {
        Rig { fs: self.view(FsOptions::default()), memory: self.memory.clone(), who: self.who, _store: None }
    }

    /// A second view of the same store.
    pub fn view(&self, options: FsOptions) -> Filesystem {
        Filesystem::new(self.memory.clone(), options)
    }

    pub fn ino(&self, path: &str) -> Result<u64, Errno> {
        path.split('/')
            .filter(|name| !name.is_empty())
            .try_fold(1, |ino, name| Ok(self.fs.lookup(self.who, ino, OsStr::new(name))?.attr.ino))
    }

    fn parent<'a>(&self, path: &'a str) -> (u64, &'a OsStr) {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        (self.ino(parent).unwrap(), OsStr::new(name))
    }

    pub fn stat(&self, path: &str) -> Result<Attr, Errno> {
        self.fs.getattr(self.who, self.ino(path)?, None)
    }

    pub fn open(&self, path: &str, flags: i32) -> Result<u64, Errno> {
        match self.ino(path) {
            Ok(ino) => self.fs.open(self.who, ino, flags),
            Err(Errno::ENOENT) if flags & libc::O_CREAT != 0 => {
                let (parent, name) = self.parent(path);
                self.fs.create(self.who, parent, name, 0o644, flags).map(|(_, handle)| handle)
            }
            Err(errno) => Err(errno),
        }
    }

    /// As `printf … > path`: whatever fails, the file is closed.
    pub fn write(&self, path: &str, bytes: &str) -> Result<(), Errno> {
        let handle = self.open(path, ANEW)?;
        // The kernel passes no empty write on.
        let taken = if bytes.is_empty() { Ok(0) } else { self.fs.write(handle, 0, bytes.as_bytes()) };
        let written = taken.map(|taken| assert_eq!(taken as usize, bytes.len()));
        let flushed = self.fs.flush(handle);
        self.fs.release(handle);
        written.and(flushed)
    }

    /// As `cat`, and checks that stat(2) told the truth.
    pub fn read(&self, path: &str) -> Result<String, Errno> {
        let handle = self.open(path, libc::O_RDONLY)?;
        let text = self.read_on(handle, 0);
        self.fs.release(handle);
        text
    }

    pub fn read_on(&self, handle: u64, mut offset: u64) -> Result<String, Errno> {
        let mut bytes = Vec::new();
        loop {
            let more = self.fs.read(handle, offset, 100)?;
            if more.is_empty() {
                return Ok(String::from_utf8(bytes).unwrap());
            }
            offset += more.len() as u64;
            bytes.extend(more);
        }
    }

    pub fn list(&self, path: &str) -> Vec<String> {
        let handle = self.fs.opendir(self.who, self.ino(path).unwrap()).unwrap();
        let names = self.list_from(handle, 0).into_iter().map(|(name, _)| name);
        let names = names.filter(|name| name != "." && name != "..").collect();
        self.fs.release(handle);
        names
    }

    /// Names with the cookie behind each, fetched seven at a time.
    pub fn list_from(&self, handle: u64, mut cookie: u64) -> Vec<(String, u64)> {
        let mut all = Vec::new();
        loop {
            let (before, mut room) = (all.len(), 7);
            let mut sink = |_: u64, next: u64, _: FileKind, name: &OsStr| {
                if room == 0 {
                    return true;
                }
                room -= 1;
                all.push((name.to_str().unwrap().to_owned(), next));
                false
            };
            self.fs.readdir(handle, cookie, &mut sink).unwrap();
            if all.len() == before {
                return all;
            }
            cookie = all.last().unwrap().1;
        }
    }

    /// The attributes of all names but the dots, as one readdirplus gives them.
    pub fn entries(&self, path: &str) -> Vec<(String, Attr)> {
        let handle = self.fs.opendir(self.who, self.ino(path).unwrap()).unwrap();
        let mut all = Vec::new();
        let mut sink = |entry: &EntryAttr, _: u64, name: &OsStr| {
            all.push((name.to_str().unwrap().to_owned(), entry.attr));
            false
        };
        self.fs.readdirplus(handle, 0, &mut sink).unwrap();
        self.fs.release(handle);
        all.retain(|(name, _)| name != "." && name != "..");
        all
    }

    pub fn mkdir(&self, path: &str) -> Result<u64, Errno> {
        let (parent, name) = self.parent(path);
        self.fs.mkdir(self.who, parent, name, 0o755).map(|entry| entry.attr.ino)
    }

    pub fn rmdir(&self, path: &str) -> Result<(), Errno> {
        let (parent, name) = self.parent(path);
        self.fs.rmdir(self.who, parent, name)
    }

    pub fn rm(&self, path: &str) -> Result<(), Errno> {
        let (parent, name) = self.parent(path);
        self.fs.unlink(self.who, parent, name)
    }

    pub fn mv(&self, from: &str, to: &str) -> Result<(), Errno> {
        self.mv_flags(from, to, 0)
    }

    pub fn mv_flags(&self, from: &str, to: &str, flags: u32) -> Result<(), Errno> {
        self.rename(from, to, flags).map(drop)
    }

    pub fn rename(&self, from: &str, to: &str, flags: u32) -> Result<(), Errno> {
        self.fs.rename(self.who, self.parent(from), self.parent(to), flags)
    }

    pub fn truncate(&self, path: &str, size: u64) -> Result<(), Errno> {
        let changes = AttrChanges { size: Some(size), ..AttrChanges::default() };
        self.fs.setattr(self.who, self.ino(path)?, changes, None).map(drop)
    }

    pub fn ftruncate(&self, handle: u64, path: &str, size: u64) -> Result<(), Errno> {
        let changes = AttrChanges { size: Some(size), ..AttrChanges::default() };
        self.fs.setattr(self.who, self.ino(path)?, changes, Some(handle)).map(drop)
    }

    /// The newest line of a branch's `errors`.
    pub fn last_error(&self, branch: &str) -> serde_json::Value {
        let lines = self.read(&format!("{branch}/errors")).unwrap();
        serde_json::from_str(lines.lines().last().expect("a line in errors")).unwrap()
    }
}

/// The looks at the clock of a store.
#[derive(Default)]
pub struct Looks {
    ticks: AtomicUsize,
    /// How many looks are left until the one that is held; 0 for none.
    left: AtomicUsize,
    meeting: Mutex<Option<(Sender<bool>, Receiver<()>)>>,
}

impl Looks {
    fn look(&self) -> Time {
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if left == Ok(1)
            && let Some((came, go)) = self.meeting.lock().unwrap().take()
        {
            came.send(true).unwrap();
            // An error says that the other one failed.
            let _ = go.recv();
        }
        Time(1_700_000_000_000_000_000 + self.ticks.fetch_add(1, Ordering::Relaxed) as i64)
    }

    /// Does `work` on another thread, and `meanwhile` on this one while that stands at its `nth` look. Nothing is done
    /// meanwhile where it looks less often; tells whether it does not.
    pub fn during(&self, nth: usize, work: impl FnOnce() + Send, meanwhile: impl FnOnce()) -> bool {
        std::thread::scope(|scope| {
            let (came, comes) = channel();
            let (go, goes) = channel();
            *self.meeting.lock().unwrap() = Some((came.clone(), goes));
            self.left.store(nth, Ordering::Relaxed);
            let working = scope.spawn(move || {
                work();
                // Nobody listens where it was held.
                let _ = came.send(false);
            });
            let is_held = comes.recv().unwrap();
            if is_held {
                meanwhile();
            }
            self.left.store(0, Ordering::Relaxed);
            drop(go);
            working.join().unwrap();
            is_held
        })
    }
}

/// A whole record document.
pub fn document(text: &str) -> String {
    format!("{{\"vector\":[1,0,0.5],\"text\":\"{text}\"}}\n")
}
