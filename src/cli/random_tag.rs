//! Short names that nobody else has chosen.

use rustix::rand::{GetRandomFlags, getrandom};

/// Digits and letters that nobody takes for one another; 32 of them, so that five bits choose one.
const TAG_ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// Returns `length` random signs, at most 16, that the name of a branch may have.
pub fn random_tag(length: usize) -> String {
    let mut bytes = [0; 16];
    // The kernel has random bytes once it has booted; who finds a name taken chooses another one.
    let _ = getrandom(&mut bytes, GetRandomFlags::empty());
    bytes[..length.min(16)].iter().map(|byte| char::from(TAG_ALPHABET[usize::from(byte % 32)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_differ_and_have_their_length() {
        assert_eq!(random_tag(8).len(), 8);
        assert_ne!(random_tag(16), random_tag(16));
    }
}
