//! The name of one entry of a directory.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use super::TreeError;

/// Longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Bytes of a name that needs no memory of its own: with length and tag it takes 24.
const INLINE_BYTES_MAX: usize = 22;

/// A name: 1 to 255 bytes without `/` and NUL, and neither `.` nor `..`.
///
/// Short names are stored inline, so that comparing and copying them follows no pointer. Clones of a long one share its
/// bytes.
#[derive(Clone)]
pub struct FileName(Bytes);

#[derive(Clone)]
enum Bytes {
    Short(u8, [u8; INLINE_BYTES_MAX]),
    Long(Arc<[u8]>),
}

impl FileName {
    /// Checks the bytes: `NameTooLong`, or `Invalid` for what no entry can be called. A name has 1 to 255 bytes without
    /// `/` and NUL, and is neither `.` nor `..`.
    pub fn new(bytes: &[u8]) -> Result<FileName, TreeError> {
        if bytes.len() > NAME_BYTES_MAX {
            return Err(TreeError::NameTooLong);
        }
        let refused = bytes.is_empty() || bytes == b"." || bytes == b"..";
        if refused || bytes.iter().any(|byte| *byte == b'/' || *byte == 0) {
            return Err(TreeError::Invalid("a name has no '/' and no NUL, is not empty, '.' or '..'"));
        }
        if bytes.len() > INLINE_BYTES_MAX {
            return Ok(FileName(Bytes::Long(bytes.into())));
        }
        let mut short = [0; INLINE_BYTES_MAX];
        short[..bytes.len()].copy_from_slice(bytes);
        Ok(FileName(Bytes::Short(bytes.len() as u8, short)))
    }
}

impl Deref for FileName {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Short(length, bytes) => &bytes[..usize::from(*length)],
            Bytes::Long(bytes) => bytes,
        }
    }
}

impl Borrow<[u8]> for FileName {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for FileName {
    fn eq(&self, other: &FileName) -> bool {
        **self == **other
    }
}

impl Eq for FileName {}

impl PartialOrd for FileName {
    fn partial_cmp(&self, other: &FileName) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for FileName {
    fn cmp(&self, other: &FileName) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for FileName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_any_bytes_but_those_that_paths_need() {
        assert!(FileName::new(&[0xff; 255]).is_ok());
        assert!(matches!(FileName::new(&[b'a'; 256]), Err(TreeError::NameTooLong)));
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
            assert!(matches!(FileName::new(bad), Err(TreeError::Invalid(_))), "{bad:?}");
        }
        assert!(FileName::new(b"...").is_ok());
    }

    #[test]
    fn short_and_long_names_are_ordered_by_their_bytes() {
        assert_eq!(size_of::<FileName>(), 24);
        let mut names = Vec::new();
        for length in 1..=255 {
            names.push(FileName::new(&vec![b'a'; length]));
            names.push(FileName::new(&[&vec![b'a'; length - 1][..], b"b"].concat()));
        }
        let mut names: Vec<FileName> = names.into_iter().flatten().collect();
        let mut plain: Vec<Vec<u8>> = names.iter().map(|name| name.to_vec()).collect();
        names.sort();
        plain.sort();
        assert!(names.iter().map(|name| &**name).eq(plain.iter().map(Vec::as_slice)));
        assert_eq!(names.len(), 510);
    }
}
