//! How large the disk is.

use std::io;
use std::sync::Mutex;

use super::file::guard;
use super::names::{Names, SimulatedNode};
use crate::disk::DiskSpace;

/// What takes up room does so in units of this.
const BLOCK_BYTES: u64 = 4096;

/// How large the disk is, and what takes up room without a name.
#[derive(Default)]
pub(super) struct SimulatedSpace {
    limit: Mutex<Option<Limit>>,
    /// Files that were removed or replaced while handles were open on them.
    unlinked: Mutex<Vec<SimulatedNode>>,
}

#[derive(Clone, Copy)]
struct Limit {
    bytes: u64,
    files: u64,
}

/// What a disk without a limit claims to be.
const LARGE: Limit = Limit { bytes: 1 << 40, files: 1 << 20 };

/// Returns the room that a file of that many bytes takes up.
pub(super) fn allocated_bytes(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK_BYTES)
}

impl SimulatedSpace {
    /// Limits the disk to that many bytes, in whole blocks, and files.
    pub(super) fn limit(&self, bytes: u64, files: u64) {
        *guard(&self.limit) = Some(Limit { bytes, files });
    }

    fn is_limited(&self) -> bool {
        guard(&self.limit).is_some()
    }

    /// Returns the room of a disk of the same size.
    pub(super) fn with_same_limit(&self) -> SimulatedSpace {
        SimulatedSpace { limit: Mutex::new(*guard(&self.limit)), unlinked: Mutex::default() }
    }

    /// Notes a file that lost its name: it takes up room until its last handle is closed.
    pub(super) fn note_unlinked(&self, node: Option<SimulatedNode>) {
        let mut nameless = guard(&self.unlinked);
        nameless.retain(|node| guard(node).handles > 0);
        nameless.extend(node.filter(|node| guard(node).handles > 0));
    }

    /// ENOSPC if there is no room for one more file.
    pub(super) fn admit_file(&self, names: &Names) -> io::Result<()> {
        if self.is_limited() && self.space(names).inodes_free == 0 {
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        } else {
            Ok(())
        }
    }

    /// Returns how many bytes are free on a disk with a limit.
    pub(super) fn free_bytes(&self, names: &Names) -> Option<u64> {
        self.is_limited().then(|| self.space(names).free_bytes)
    }

    /// Returns how full the disk is; files without a name count as long as they are open.
    pub(super) fn space(&self, names: &Names) -> DiskSpace {
        let (mut bytes, mut files) = (0, 0);
        let mut add = |node: &SimulatedNode| {
            bytes += allocated_bytes(guard(node).live_bytes().len() as u64);
            files += 1;
        };
        names.files().for_each(|(_, node)| add(node));
        guard(&self.unlinked).iter().filter(|node| guard(node).handles > 0).for_each(add);
        let limit = guard(&self.limit).unwrap_or(LARGE);
        let free_bytes = limit.bytes.saturating_sub(bytes);
        let inodes_free = limit.files.saturating_sub(files);
        DiskSpace {
            total_bytes: limit.bytes,
            free_bytes,
            available_bytes: free_bytes,
            inodes_total: limit.files,
            inodes_free,
        }
    }
}
