//! Notices to the kernel of what it must not remember.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

use fuser::{INodeNo, Notifier};

use crate::fs::{Filesystem, Kernel};

/// `FUSE_NOTIFY_INC_EPOCH` of the protocol, since Linux 6.16. fuser does not have it.
const INC_EPOCH: i32 = 8;
/// Bytes of the header that every message to the kernel begins with.
const HEADER_BYTES: u32 = 16;

/// The way to send notices over one connection to the kernel.
pub struct NoticeChannel {
    /// Sends the notices that fuser has.
    pub(super) notifier: Notifier,
    /// The same connection, to which the notices that fuser lacks are written.
    pub(super) device: File,
}

/// Lets `fs` send notices to the kernel from now on. To be called when the mount answers; at its
/// end `fs.set_kernel(None)` lets go.
pub fn connect(fs: &Filesystem, channel: NoticeChannel) {
    fs.set_kernel(Some(Arc::new(channel)));
}

impl NoticeChannel {
    /// Makes the kernel forget a node's attributes, and its pages from `offset` on.
    fn invalidate(&self, ino: u64, offset: i64) {
        if let Err(error) = self.notifier.inval_inode(INodeNo(ino), offset, 0) {
            log::debug!("the kernel did not take a notice: {error}");
        }
    }

    /// A message without a body: its length, the notice's code in place of an error, and no request that it answers.
    fn send(&self, code: i32) -> io::Result<()> {
        let mut message = Vec::with_capacity(HEADER_BYTES as usize);
        message.extend(HEADER_BYTES.to_ne_bytes());
        message.extend(code.to_ne_bytes());
        message.extend(0_u64.to_ne_bytes());
        (&self.device).write_all(&message)
    }
}

impl Kernel for NoticeChannel {
    fn forget_attributes(&self, ino: u64) {
        // From a negative offset no page is looked at, so nothing is waited for.
        self.invalidate(ino, -1);
    }

    fn forget_content(&self, ino: u64) {
        self.invalidate(ino, 0);
    }

    fn forget_names(&self) {
        if let Err(error) = self.send(INC_EPOCH) {
            log::debug!("the kernel looks names up again within a second: {error}");
        }
    }
}
