//! Who owns the files of a tree that was given to somebody else as a whole, by a fork or by chown(2) of a branch.
//!
//! Giving costs the same whatever the tree holds: it only notes a [`Transfer`]. A node says how many of them there were
//! when it was written last (its *epoch*), so its owner follows from the stored one and from those that came later. They
//! go by the mode that the node has, which is the one that it had then, since every write of a node stores the owner it
//! has by now.

use std::sync::Arc;

use super::{FileKind, FileNode};
use crate::object::{CodecError, Reader, Writer};

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
const GROUP_RUNS: u32 = 0o010;
/// Holds the rights that a program has beside those of whoever runs it.
const CAPABILITIES: &[u8] = b"security.capability";

/// What one user owned and others could read belongs to another user from then on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Transfer {
    from_uid: u32,
    to_uid: u32,
}

/// The transfers of a tree, oldest first. A clone shares them.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct Transfers(Arc<[Transfer]>);

impl Transfers {
    /// Returns the epoch of what is written now.
    pub(super) fn epoch(&self) -> u32 {
        self.0.len() as u32
    }

    /// Returns who owns a node by now. Transfers since it was written count only where others may read it.
    pub(super) fn current_owner(&self, node: &FileNode) -> u32 {
        // The epoch of a detached node lies behind all transfers, so that it keeps its owner.
        let later = self.0.get(node.epoch as usize..).unwrap_or_default();
        if later.is_empty() || !node.is_open_to_others() {
            return node.uid;
        }
        later.iter().fold(node.uid, |owner, transfer| if owner == transfer.from_uid { transfer.to_uid } else { owner })
    }

    /// Returns these and one more. From a user to the same one it is none.
    pub(super) fn with_transfer(&self, from_uid: u32, to_uid: u32) -> Transfers {
        if from_uid == to_uid {
            return self.clone();
        }
        Transfers(self.0.iter().copied().chain([Transfer { from_uid, to_uid }]).collect())
    }

    /// Appends the stored form: how many there are, then both uids of each.
    pub fn write(&self, out: &mut Writer) {
        out.number(self.0.len() as u64);
        for Transfer { from_uid, to_uid } in self.0.iter() {
            out.number((*from_uid).into()).number((*to_uid).into());
        }
    }

    /// Reads the stored form. [`CodecError::Number`] for a uid of more than 32 bits.
    pub fn read(input: &mut Reader<'_>) -> Result<Transfers, CodecError> {
        let uid = |input: &mut Reader<'_>| u32::try_from(input.number()?).map_err(|_| CodecError::Number);
        let transfer = |input: &mut Reader<'_>| Ok(Transfer { from_uid: uid(input)?, to_uid: uid(input)? });
        match input.length()? {
            // Most trees have none, and the empty list is shared.
            0 => Ok(Transfers::default()),
            count => (0..count).map(|_| transfer(input)).collect::<Result<_, _>>().map(Transfers),
        }
    }
}

impl FileNode {
    /// Returns whether everybody may read it, and a directory search it, and it can be given to others.
    pub fn is_open_to_others(&self) -> bool {
        let needed = if self.kind() == FileKind::Directory { 0o5 } else { 0o4 };
        // Where the group may less than others, the mode is there to shut its members out.
        let everybody = self.mode & self.mode >> 3;
        everybody & needed == needed && self.is_transferable()
    }

    /// Returns whether another owner changes no more than who may change it: not so of programs that run with the rights of
    /// their owner or group, or with capabilities, and of devices.
    pub fn is_transferable(&self) -> bool {
        match self.kind() {
            FileKind::CharDevice | FileKind::BlockDevice => false,
            FileKind::File => {
                let as_group = self.mode & (SETGID | GROUP_RUNS) == SETGID | GROUP_RUNS;
                self.mode & SETUID == 0 && !as_group && self.xattr(CAPABILITIES).is_none()
            }
            FileKind::Directory | FileKind::Symlink | FileKind::Fifo | FileKind::Socket => true,
        }
    }
}
