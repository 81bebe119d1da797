//! Ranges of files: holes, allocation, copies from file to file.

use super::FileOps;
use crate::fs::errno::{Errno, Failure};
use crate::fs::refusal::SpaceRefusal;
use crate::memory::{RangeOp, unshared_bytes};

/// Most bytes that one copy takes: the reply's count has 32 bits. Copying goes on after it.
pub(super) const COPY_BYTES_MAX: u32 = 1 << 31;
/// Most bytes that one copy takes which are read and written and not shared: as many as of a write. All other writers of the store
/// wait meanwhile.
const UNSHARED_BYTES_MAX: u64 = 1 << 20;

/// Returns how much of a copied range is copied at once; a caller goes on behind it.
pub(super) fn single_copy_bytes(from: u64, to: u64, length: u64) -> u64 {
    let length = length.min(COPY_BYTES_MAX.into());
    // Ranges that lie alike in their chunks share all but their ends, whatever their length.
    if unshared_bytes(from, to, length) > UNSHARED_BYTES_MAX { UNSHARED_BYTES_MAX } else { length }
}

/// What fallocate(2) shall do, out of its mode; the file grows only where `keep_size` is not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Allocation {
    /// What becomes of the bytes of the range.
    pub op: RangeOp,
    /// Whether the file stays as long as it is.
    pub keep_size: bool,
}

impl Allocation {
    /// Returns what a mode of fallocate(2) asks for. EOPNOTSUPP for modes that move bytes about or share them, and for
    /// a hole without `FALLOC_FL_KEEP_SIZE`.
    pub fn from_mode(mode: i32) -> Result<Allocation, Errno> {
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let op = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => RangeOp::Allocate,
            libc::FALLOC_FL_PUNCH_HOLE if keep_size => RangeOp::Punch,
            libc::FALLOC_FL_ZERO_RANGE => RangeOp::Zero,
            _ => return Err(Errno::EOPNOTSUPP),
        };
        Ok(Allocation { op, keep_size })
    }
}

impl FileOps<'_> {
    /// Refuses more bytes than the disk has free: what is made room for is not written yet, so nothing else would.
    /// ENOSPC.
    pub(super) fn check_room(&self, length: u64) -> Result<(), Failure> {
        let available = self.fs.mount.memory.disk_space()?.available_bytes;
        if length <= available {
            return Ok(());
        }
        Err(SpaceRefusal::Disk { length, available }.into())
    }
}
