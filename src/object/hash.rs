//! The 32-byte BLAKE3 hash that names objects, entries and heads.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use blake3::hazmat::{ContextKey, HasherExt, hash_derive_key_context};
use thiserror::Error;

/// A kind of content, by whose name all hashes of that kind are keyed.
///
/// The key is worked out once, which for short content would cost as much as its hash.
pub struct Context {
    name: &'static str,
    key: OnceLock<ContextKey>,
}

impl Context {
    /// Names a kind.
    ///
    /// Names are global: two kinds of one name would give equal bytes equal hashes.
    pub const fn new(name: &'static str) -> Context {
        Context { name, key: OnceLock::new() }
    }
}

/// Names content: a BLAKE3 hash in key-derivation mode, so that bytes of one kind never hash to a
/// name of another kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// The hash that means "nothing": the `prev` of a store's first entry.
    pub const ZERO: Hash = Hash([0; 32]);

    /// Returns the hash of `bytes` as content of the kind that `context` names.
    ///
    /// ```
    /// use engramfs::object::{Context, Hash};
    ///
    /// static NOTE: Context = Context::new("a note of an example");
    /// let name = Hash::digest(&NOTE, b"tea is at four");
    /// assert_eq!(name.to_string().parse(), Ok(name));
    /// assert_ne!(name, Hash::digest(&Context::new("another kind"), b"tea is at four"));
    /// ```
    pub fn digest(context: &Context, bytes: &[u8]) -> Hash {
        let mut hasher = Hasher::new(context);
        hasher.update(bytes);
        hasher.finish()
    }

    /// Returns the first 12 hex digits, for messages.
    pub fn short_hex(&self) -> String {
        self.to_string()[..12].to_owned()
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(blake3::Hash::from_bytes(self.0).to_hex().as_str())
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash({})", self.short_hex())
    }
}

/// Says that a text is not 64 lower-case hex digits.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("'{0}' is not a hash of 64 lower-case hex digits")]
pub struct ParseHashError(String);

impl FromStr for Hash {
    type Err = ParseHashError;

    fn from_str(text: &str) -> Result<Hash, ParseHashError> {
        let bad = || ParseHashError(text.chars().take(80).collect());
        if text.bytes().any(|b| b.is_ascii_uppercase()) {
            return Err(bad());
        }
        blake3::Hash::from_hex(text).map(|hash| Hash(*hash.as_bytes())).map_err(|_| bad())
    }
}

/// Hashes content that arrives in pieces.
pub struct Hasher(blake3::Hasher);

impl Hasher {
    /// Starts a hash of the kind that `context` names.
    pub fn new(context: &Context) -> Hasher {
        let key = context.key.get_or_init(|| hash_derive_key_context(context.name));
        Hasher(blake3::Hasher::new_from_context_key(key))
    }

    /// Adds the next bytes; into which pieces content is cut makes no difference.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Adds a field of variable length: its length as u64, then its bytes, so that neighbouring
    /// fields can't be shifted into each other.
    pub fn field(&mut self, bytes: &[u8]) {
        self.update(&(bytes.len() as u64).to_le_bytes());
        self.update(bytes);
    }

    /// Returns the hash of all that was added.
    pub fn finish(&self) -> Hash {
        Hash(*self.0.finalize().as_bytes())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_hash_reads_back_from_its_text() {
        let hash = Hash::digest(&Context::new("test"), b"content");
        assert_eq!(hash.to_string().parse::<Hash>().unwrap(), hash);
        assert_eq!(hash.to_string().len(), 64);
    }

    #[test]
    fn upper_case_and_short_texts_are_no_hashes() {
        let text = Hash::digest(&Context::new("test"), b"content").to_string();
        assert!(text.to_uppercase().parse::<Hash>().is_err());
        assert!(text[..63].parse::<Hash>().is_err());
    }

    #[test]
    fn a_hash_is_that_of_blake3_under_the_name_of_the_kind() {
        let context = Context::new("test");
        for _ in 0..2 {
            assert_eq!(Hash::digest(&context, b"content").0, blake3::derive_key("test", b"content"));
        }
    }

    #[test]
    fn the_kind_is_part_of_the_hash() {
        assert_ne!(Hash::digest(&Context::new("one kind"), b"x"), Hash::digest(&Context::new("another kind"), b"x"));
    }
}
