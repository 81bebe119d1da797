//! Which call of a disk is to fail, and how.

/// A kind of call of a disk. The N-th call of a kind can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskCall {
    /// `create` and `create_dir`.
    Create,
    /// `open` and `open_write`.
    Open,
    /// `write_all_at`.
    Write,
    /// `sync` of a file; that of a folder is another kind.
    Sync,
    /// `sync_dir`.
    SyncDir,
    /// `rename`, one call also where it changes two folders.
    Rename,
    /// `remove`.
    Remove,
    /// `set_len`, whether it cuts or grows the file.
    SetLen,
    /// `read_exact_at`.
    Read,
    /// `list`.
    List,
    /// `map` itself; reads of what is mapped are no calls of a disk.
    Map,
}

impl DiskCall {
    /// Every kind; `len`, `mode` and `space` belong to none and never fail.
    pub const ALL: &'static [Self] = &[
        Self::Create,
        Self::Open,
        Self::Write,
        Self::Sync,
        Self::SyncDir,
        Self::Rename,
        Self::Remove,
        Self::SetLen,
        Self::Read,
        Self::List,
        Self::Map,
    ];

    /// The kinds that change the disk or make a change durable.
    pub const CHANGES: &'static [Self] =
        &[Self::Create, Self::Write, Self::Sync, Self::SyncDir, Self::Rename, Self::Remove, Self::SetLen];
}

/// Plans which call fails, and how.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Which of the calls of `kinds` fails, counted from 1 at [`FaultyDisk::plan`](super::FaultyDisk::plan);
    /// 0 only counts.
    pub nth: u64,
    /// Which calls count.
    pub kinds: &'static [DiskCall],
    /// The errno of the error, such as `libc::EIO`; it is not checked.
    pub errno: i32,
    /// Whether the first half of the bytes of a failing write still lands.
    pub short_write: bool,
    /// Whether every later call of `kinds` fails as well, like on a disk that is full or gone.
    pub sticky: bool,
}

impl Fault {
    /// Returns a fault that hits the `nth` of these calls, counted from 1, and no other; with 0 it hits none. A failing
    /// write leaves none of its bytes.
    pub fn once(nth: u64, kinds: &'static [DiskCall], errno: i32) -> Self {
        Self { nth, kinds, errno, short_write: false, sticky: false }
    }

    /// Returns whether the call with that number, counted from 1, is to fail.
    pub(super) fn hits(&self, call: u64) -> bool {
        self.nth != 0 && (call == self.nth || (self.sticky && call > self.nth))
    }
}
