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
const INLINE: usize = 22;

/// A name: 1 to 255 bytes without `/` and NUL, and neither `.` nor `..`.
///
/// Most names are short: they are kept in their place, so that a directory's entries are compared
/// and copied without a look elsewhere. Clones of a long one share its bytes.
#[derive(Clone)]
pub struct Name(Bytes);

#[derive(Clone)]
enum Bytes {
    Short(u8, [u8; INLINE]),
    Long(Arc<[u8]>),
}

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
        if bytes.len() > INLINE {
            return Ok(Name(Bytes::Long(bytes.into())));
        }
        let mut short = [0; INLINE];
        short[..bytes.len()].copy_from_slice(bytes);
        Ok(Name(Bytes::Short(bytes.len() as u8, short)))
    }
}

impl Deref for Name {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Short(length, bytes) => &bytes[..usize::from(*length)],
            Bytes::Long(bytes) => bytes,
        }
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        **self == **other
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Name) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self))
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

    #[test]
    fn short_and_long_names_are_ordered_by_their_bytes() {
        assert_eq!(size_of::<Name>(), 24);
        let mut names = Vec::new();
        for length in 1..=255 {
            names.push(Name::new(&vec![b'a'; length]));
            names.push(Name::new(&[&vec![b'a'; length - 1][..], b"b"].concat()));
        }
        let mut names: Vec<Name> = names.into_iter().flatten().collect();
        let mut plain: Vec<Vec<u8>> = names.iter().map(|name| name.to_vec()).collect();
        names.sort();
        plain.sort();
        assert!(names.iter().map(|name| &**name).eq(plain.iter().map(Vec::as_slice)));
        assert_eq!(names.len(), 510);
    }
}
