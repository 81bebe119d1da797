//! Extended attributes. Files have them; what is generated has none and takes none.

use std::ffi::OsStr;

use crate::fs::Filesystem;
use crate::fs::errno::Errno;
use crate::fs::mount_context::Caller;
use crate::fs::node::FsNode;
use crate::memory::{FileOp, XattrHow};

/// What only root sees in a list.
const TRUSTED: &[u8] = b"trusted.";
/// Whose attributes files have. Those in `system.` are lists of access and the like: the kernel
/// would have to act on them, and does not.
const NAMESPACES: [&[u8]; 3] = [b"user.", TRUSTED, b"security."];

impl Filesystem {
    /// Returns an extended attribute; ENODATA when there is none of that name.
    pub fn getxattr(&self, ino: u64, name: &OsStr) -> Result<Vec<u8>, Errno> {
        let node = self.nodes.node(ino)?;
        let FsNode::File(of, inode) = &node else { return Err(Errno::ENODATA) };
        let name = supported(name)?;
        let value = self.mount.tree(of).and_then(|tree| {
            let value = tree.node(*inode)?.xattr(name).map(<[u8]>::to_vec);
            Ok(value.ok_or(Errno::ENODATA)?)
        });
        self.audit_node(None, &node, value)
    }

    /// Returns the names of all extended attributes that `caller` may see, each with a NUL behind it.
    pub fn listxattr(&self, caller: Caller, ino: u64) -> Result<Vec<u8>, Errno> {
        let node = self.nodes.node(ino)?;
        let FsNode::File(of, inode) = &node else { return Ok(Vec::new()) };
        let names = self.mount.tree(of).and_then(|tree| {
            let names = tree.node(*inode)?.xattrs().map(|(name, _)| name);
            let seen = names.filter(|name| caller.uid == 0 || !name.starts_with(TRUSTED));
            Ok(seen.flat_map(|name| [name, b"\0"].concat()).collect())
        });
        self.audit_node(caller, &node, names)
    }

    /// Sets an extended attribute; `flags` are those of setxattr(2).
    ///
    /// EOPNOTSUPP for what is generated and for names in `system.` or in no namespace.
    pub fn setxattr(&self, caller: Caller, ino: u64, name: &OsStr, value: &[u8], flags: i32) -> Result<(), Errno> {
        let how = match flags {
            0 => XattrHow::Any,
            libc::XATTR_CREATE => XattrHow::Create,
            libc::XATTR_REPLACE => XattrHow::Replace,
            _ => return Err(Errno::EINVAL),
        };
        self.change_xattr(caller, ino, name, |inode, name| FileOp::SetXattr { inode, name, value: value.to_vec(), how })
    }

    /// Removes an extended attribute; ENODATA when there is none of that name.
    pub fn removexattr(&self, caller: Caller, ino: u64, name: &OsStr) -> Result<(), Errno> {
        if !self.is_file(ino) {
            return Err(Errno::ENODATA);
        }
        self.change_xattr(caller, ino, name, |inode, name| FileOp::RemoveXattr { inode, name })
    }

    fn change_xattr(
        &self,
        caller: Caller,
        ino: u64,
        name: &OsStr,
        op: impl FnOnce(u64, Vec<u8>) -> FileOp<'static>,
    ) -> Result<(), Errno> {
        let node = self.nodes.node(ino)?;
        let FsNode::File(of, inode) = &node else { return Err(Errno::EOPNOTSUPP) };
        let name = supported(name)?;
        let changed = self.mount.edit(caller, of, op(*inode, name.to_vec())).map(drop);
        self.audit_node(caller, &node, changed)
    }
}

/// Whether a name can be one at all comes before whether an attribute has it.
fn supported(name: &OsStr) -> Result<&[u8], Errno> {
    let name = name.as_encoded_bytes();
    match NAMESPACES.iter().find_map(|space| name.strip_prefix(*space)) {
        None => Err(Errno::EOPNOTSUPP),
        Some(b"") => Err(Errno::EINVAL),
        Some(_) => Ok(name),
    }
}
