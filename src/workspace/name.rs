//! The name of one entry of a directory.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::TreeError;

/// Longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// A name: 1 to 255 bytes without `/` and NUL, and neither `.` nor `..`. Clones share the bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<[u8]>);

impl Name {
    /// Checks the bytes: `NameTooLong`, or `Invalid` for what no entry can be called.
    pub fn new(bytes: &[u8]) -> Result<Name, TreeError> {
        if bytes.len() > NAME_BYTES_MAX {
            return Err(TreeError::NameTooLong);
        }
        let refused = bytes.is_empty() || bytes == b"." || bytes == b"..";
        if refused || bytes.iter().any(|byte| *byte == b'/' || *byte == 0) {
            return Err(TreeError::Invalid("a name has no '/' and no NUL, is not empty, '.' or '..'"));
        }
        Ok(Name(bytes.into()))
    }
}

impl Deref for Name {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_any_bytes_but_those_that_paths_need() {
        assert!(Name::new(&[0xff; 255]).is_ok());
        assert!(matches!(Name::new(&[b'a'; 256]), Err(TreeError::NameTooLong)));
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
            assert!(matches!(Name::new(bad), Err(TreeError::Invalid(_))), "{bad:?}");
        }
        assert!(Name::new(b"...").is_ok());
    }
}
