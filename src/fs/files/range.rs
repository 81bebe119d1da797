//! Ranges of files: holes, allocation, copies from file to file.

use super::FilesOf;
use crate::fs::Filesystem;
use crate::fs::errno::{Errno, Failure};
use crate::fs::handle::Handle;
use crate::fs::node::FsNode;
use crate::fs::refusal::RoomRefusal;
use crate::memory::{FileOp, RangeOp};

/// Most bytes that one copy takes: the reply's count has 32 bits. Copying goes on after it.
const COPY_BYTES_MAX: u32 = 1 << 31;

/// What fallocate(2) shall do, out of its mode; the file grows only where `keep_size` is not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Allocation {
    what: RangeOp,
    keep_size: bool,
}

impl Allocation {
    /// EOPNOTSUPP for what moves bytes about, or shares them.
    fn of(mode: i32) -> Result<Allocation, Errno> {
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let what = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => RangeOp::Allocate,
            libc::FALLOC_FL_PUNCH_HOLE if keep_size => RangeOp::Punch,
            libc::FALLOC_FL_ZERO_RANGE => RangeOp::Zero,
            _ => return Err(Errno::EOPNOTSUPP),
        };
        Ok(Allocation { what, keep_size })
    }
}

impl Filesystem {
    /// Makes room for a range of a file, or a hole, as fallocate(2) with `mode`; EOPNOTSUPP for
    /// what is not a file in `files/`.
    pub fn fallocate(&self, handle: u64, offset: u64, length: u64, mode: i32) -> Result<(), Errno> {
        self.on_inode(handle, Errno::EOPNOTSUPP, |handle, of, inode| {
            let Allocation { what, keep_size } = Allocation::of(mode)?;
            if what == RangeOp::Allocate {
                self.check_room(length)?;
            }
            let op = FileOp::Range { inode, what, offset, length, keep_size };
            self.mount.edit(handle.caller, of, op).map(drop)
        })
    }

    /// Returns where data (`SEEK_DATA`) or a hole (`SEEK_HOLE`) begins, from `offset` on; ENXIO
    /// behind the end. A generated file has no hole but the one behind its end.
    pub fn seek(&self, ino: u64, handle: u64, offset: u64, whence: i32) -> Result<u64, Errno> {
        let node = self.nodes.node(ino)?;
        let found = match &node {
            FsNode::File(of, inode) => self.mount.tree(of).and_then(|tree| {
                let node = tree.node(*inode)?;
                let found = match whence {
                    libc::SEEK_DATA => node.content().and_then(|content| content.next_data(offset)),
                    libc::SEEK_HOLE => node.content().and_then(|content| content.next_hole(offset)),
                    _ => return Err(Errno::EINVAL.into()),
                };
                Ok(found.ok_or(Errno::ENXIO)?)
            }),
            _ => self.attr_of(ino, &node, Some(handle)).and_then(|attr| match whence {
                _ if offset >= attr.size => Err(Errno::ENXIO.into()),
                libc::SEEK_DATA => Ok(offset),
                libc::SEEK_HOLE => Ok(attr.size),
                _ => Err(Errno::EINVAL.into()),
            }),
        };
        self.audit_node(None, &node, found)
    }

    /// Copies a range, each given by handle and offset, from file to file of one `files/`, sharing what is whole, and returns how many
    /// bytes that were: fewer at the end. EXDEV from one `files/` to another, EOPNOTSUPP for what is
    /// no file there: the caller then reads and writes.
    pub fn copy_range(&self, from: (u64, u64), to: (u64, u64), length: u64) -> Result<u32, Errno> {
        let source = self.handles.get(from.0)?;
        self.on_inode(to.0, Errno::EOPNOTSUPP, |handle, of, to_inode| {
            let FsNode::File(source_of, from_inode) = &source.node else { return Err(Errno::EOPNOTSUPP.into()) };
            if source_of != of {
                return Err(Errno::EXDEV.into());
            }
            let size = self.mount.tree(of)?.node(*from_inode)?.size();
            let length = length.min(size.saturating_sub(from.1)).min(COPY_BYTES_MAX.into());
            if length == 0 {
                return Ok(0);
            }
            let (from_offset, to_offset) = (from.1, to.1);
            let op = FileOp::Copy { from: *from_inode, from_offset, to: to_inode, to_offset, length };
            match self.mount.edit(handle.caller, of, op) {
                Ok(_) => Ok(u32::try_from(length).unwrap_or(COPY_BYTES_MAX)),
                // From a file without a name nothing can be shared.
                Err(Failure::Plain(Errno::ESTALE)) => Err(Errno::EOPNOTSUPP.into()),
                Err(failure) => Err(failure),
            }
        })
    }

    fn on_inode<T>(
        &self,
        handle: u64,
        otherwise: Errno,
        act: impl FnOnce(&Handle, &FilesOf, u64) -> Result<T, Failure>,
    ) -> Result<T, Errno> {
        let handle = self.handles.get(handle)?;
        let FsNode::File(of, inode) = &handle.node else { return Err(otherwise) };
        self.audit_node(handle.caller, &handle.node, act(&handle, of, *inode))
    }

    fn check_room(&self, length: u64) -> Result<(), Failure> {
        let (_, _, available) = self.mount.memory.space()?;
        if length <= available {
            return Ok(());
        }
        Err(RoomRefusal::Disk { length, available }.into())
    }
}
