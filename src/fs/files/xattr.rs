//! Names of extended attributes. Files have them; what is generated has none and takes none.

use std::ffi::OsStr;

use crate::fs::errno::Errno;

/// What only root sees in a list.
pub(super) const TRUSTED: &[u8] = b"trusted.";
/// Whose attributes files have. Those in `system.` are lists of access and the like: the kernel
/// would have to act on them, and does not.
const NAMESPACES: [&[u8]; 3] = [b"user.", TRUSTED, b"security."];

/// Whether a name can be one at all comes before whether an attribute has it. EOPNOTSUPP for one outside of the known
/// namespaces, EINVAL for a namespace alone.
pub(super) fn check_supported(name: &OsStr) -> Result<&[u8], Errno> {
    let name = name.as_encoded_bytes();
    match NAMESPACES.iter().find_map(|space| name.strip_prefix(*space)) {
        None => Err(Errno::EOPNOTSUPP),
        Some(b"") => Err(Errno::EINVAL),
        Some(_) => Ok(name),
    }
}
