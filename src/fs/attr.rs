//! What stat(2) and statfs(2) show, how long the kernel may believe it, and what can be changed of it.

use std::time::Duration;

use crate::memory::{FileKind, Time};

/// How long the kernel keeps names that are always there, and what does not change by itself.
pub(super) const STABLE_NAME_LIFETIME: Duration = Duration::from_secs(1);
/// For what a merge, a rollback or another client may change at any moment.
pub(super) const NOT_CACHED: Duration = Duration::ZERO;

/// The attributes of a node, as stat(2) shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    /// The inode number (`st_ino`); no other node has it while this one exists. An `inode` is a file's number in its
    /// tree.
    pub ino: u64,
    /// What it is; outside of `files/` a directory or a regular file.
    pub kind: FileKind,
    /// Bytes: exact, except for `status`, which is padded, and for what would have to be worked out, where it is 0.
    pub size: u64,
    /// Space, in units of 512 bytes.
    pub blocks: u64,
    /// Permission bits, with setuid, setgid and the sticky bit.
    pub mode: u32,
    /// Number of names; outside of `files/` 1, which tells find(1) not to count on it.
    pub links: u32,
    /// Owner; of a directory that is always there, who made the branch.
    pub uid: u32,
    /// Gid: the group of that user, or of the file in `files/`.
    pub gid: u32,
    /// Number of a device, as the kernel gave it.
    pub device: u32,
    /// Last reading, as somebody set it; nothing is noted when files are read.
    pub accessed: Time,
    /// Last change of the content.
    pub modified: Time,
    /// Last change of anything.
    pub changed: Time,
    /// How long the kernel may believe this; zero where it has to ask each time.
    pub lifetime: Duration,
}

impl Attr {
    /// Returns attributes of what is generated or in RAM: everything follows from these.
    pub(super) fn generated(ino: u64, directory: bool, modified: Time, (uid, gid): (u32, u32)) -> Attr {
        Attr {
            ino,
            kind: if directory { FileKind::Directory } else { FileKind::File },
            size: 0,
            blocks: 0,
            mode: 0o644,
            links: 1,
            uid,
            gid,
            device: 0,
            accessed: modified,
            modified,
            changed: modified,
            lifetime: NOT_CACHED,
        }
    }

    /// The same with another length.
    pub(super) fn with_size(self, size: u64) -> Attr {
        Attr { size, blocks: size.div_ceil(512), ..self }
    }

    /// The same as a proposal shows what is no file: all who may see it may read it, and each look asks whether they may.
    pub(super) fn for_proposal(self) -> Attr {
        let mode = match self.kind {
            FileKind::Directory => 0o555,
            FileKind::Symlink => 0o777,
            _ => 0o444,
        };
        Attr { mode, lifetime: NOT_CACHED, ..self }
    }

    /// The same of a file in a proposal: what everybody may read shows as all else in it does, and what keeps its owner
    /// and mode there shows these.
    pub(super) fn for_proposed_file(self) -> Attr {
        let everybody = if self.kind == FileKind::Directory { 0o555 } else { 0o444 };
        if self.mode & everybody == everybody { self.for_proposal() } else { Attr { lifetime: NOT_CACHED, ..self } }
    }

    /// The same with another time.
    pub(super) fn with_mtime(self, modified: Time) -> Attr {
        Attr { accessed: modified, modified, changed: modified, ..self }
    }
}

/// A name that was found. The kernel counts each that it is given, and takes them back by `forget`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryAttr {
    /// The node at that name; how long its attributes may be believed is in them.
    pub attr: Attr,
    /// Tells the node from an earlier one of the same number, in `files/`.
    pub generation: u64,
    /// How long the kernel may cache that it is there.
    pub lifetime: Duration,
}

/// What setattr(2)-like calls ask for.
#[derive(Clone, Copy, Default, Debug)]
pub struct AttrChanges {
    /// Permission bits to set; like all fields, `None` if the caller leaves it.
    pub mode: Option<u32>,
    /// Uid of the new owner; only root may set that of a branch.
    pub uid: Option<u32>,
    /// Gid of the new group; a branch always has its owner's group.
    pub gid: Option<u32>,
    /// Length in bytes to set.
    pub size: Option<u64>,
    /// Time of last reading to set, as utimensat(2) gives it.
    pub accessed: Option<TimeSet>,
    /// Time of last change of the content to set, as utimensat(2) gives it.
    pub modified: Option<TimeSet>,
}

impl AttrChanges {
    /// Returns whether no field is given, so that nothing is to be changed.
    pub(super) fn is_empty(&self) -> bool {
        let rights = self.mode.or(self.uid).or(self.gid).is_some();
        !rights && self.size.is_none() && self.accessed.or(self.modified).is_none()
    }
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeSet {
    /// The moment at which the change is made, by the store's clock.
    Now,
    /// A moment that the caller names.
    At(Time),
    /// A moment before 1677-09-21 or after 2262-04-11: 64 bits of nanoseconds do not reach it.
    OutOfRange,
}

/// Room on the store's device, in bytes, and inodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatFs {
    /// Size of the disk in bytes; for `scratch/` its limit.
    pub total_bytes: u64,
    /// Unused bytes, including those reserved for root.
    pub free_bytes: u64,
    /// Bytes that an unprivileged user may still use.
    pub available_bytes: u64,
    /// Inodes of the view's `files/` or `scratch/`; 0 if there is no such view.
    pub inodes: u64,
}
