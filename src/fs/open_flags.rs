//! What a caller wants to do with a file.

use super::rights::{READ, WRITE};

/// The flags of open(2), as far as they mean something here.
#[derive(Clone, Copy)]
pub(super) struct OpenFlags {
    /// Whether it may be read through the handle; not with O_WRONLY.
    pub read: bool,
    /// Whether it may be written through the handle; not with O_RDONLY.
    pub write: bool,
    /// Each write goes to the end, whatever its offset.
    pub append: bool,
    /// It is emptied at the open; only who may write can ask for that outside of `files/` and `scratch/`.
    pub truncate: bool,
    /// The file is made or emptied, to be written whole.
    pub replace: bool,
    /// It must not be there before.
    pub exclusive: bool,
    /// It is about to run as a program, which must not be emptied meanwhile.
    pub run: bool,
}

/// What Linux adds to the flags of open(2) for a program that is about to run (`FMODE_EXEC`).
const RUN: i32 = 0x20;

impl OpenFlags {
    /// Returns the rights in the file that the open needs: [`READ`], [`WRITE`] or both.
    pub fn rights(self) -> u32 {
        let right_if = |wanted, right| if wanted { right } else { 0 };
        right_if(self.read, READ) | right_if(self.write || self.truncate, WRITE)
    }

    /// Takes the flags as the kernel sends them.
    pub fn from_bits(flags: i32) -> OpenFlags {
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
