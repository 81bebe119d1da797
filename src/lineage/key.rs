//! The store's signing key and its public half.

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use thiserror::Error;

use crate::object::{Context, Hash};

/// Bytes of an ed25519 signature.
pub const SIGNATURE_BYTES: usize = 64;

static CONTEXT: Context = Context::new("engramfs 2026 public key v1");
/// Derives the key of [`MacKey`] from the seed of the signing key.
const MAC_CONTEXT: &str = "engramfs 2026 operation mac key v1";

/// Says why a key can't be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum KeyError {
    /// The text is not 64 lower-case hex digits and a line end, or the key is one under which signatures hold that
    /// nobody made.
    #[error("{0} does not hold an ed25519 key (64 hex digits and a line end)")]
    Malformed(&'static str),
    /// The two halves do not belong together.
    #[error("key.pub is not the public half of key")]
    Mismatch,
    /// Others could read the signing key: its file has this mode.
    #[error("the signing key's mode is {0:04o}, so others can read it")]
    TooOpen(u32),
}

impl KeyError {
    /// Returns what to do next, which is never in the error's text.
    pub fn hint(&self) -> String {
        match self {
            KeyError::Malformed(..) => "put the right file back".into(),
            KeyError::Mismatch => "put the right files back".into(),
            KeyError::TooOpen(..) => "run chmod 600 on the file 'key' in the store".into(),
        }
    }
}

/// The ed25519 signing key; it never leaves the store.
///
/// ```
/// use engramfs::lineage::{Key, KeyError, PublicKey};
/// use engramfs::object::Hash;
///
/// let key = Key::from_seed(&[0xab; 32]);
/// let signature = key.sign(&Hash([1; 32]));
/// let public = PublicKey::parse(key.public_key().to_text().as_bytes())?;
/// assert!(public.verifies(&Hash([1; 32]), &signature));
/// assert!(!public.verifies(&Hash([2; 32]), &signature));
///
/// // The text has one form, so that no changed byte reads as the same key.
/// let upper = key.to_text().to_uppercase();
/// assert_eq!(Key::parse(upper.as_bytes()).err(), Some(KeyError::Malformed("the file 'key'")));
/// # Ok::<(), KeyError>(())
/// ```
pub struct Key(SigningKey);

impl Key {
    /// Makes the key out of 32 bytes, which the caller draws at random. The same bytes give the same key.
    pub fn from_seed(seed: &[u8; 32]) -> Key {
        Key(SigningKey::from_bytes(seed))
    }

    /// Reads the key from the text of the file `key`. [`KeyError::Malformed`] unless that is 64 lower-case hex digits
    /// and one line end. Who may read the file is not asked here.
    pub fn parse(text: &[u8]) -> Result<Key, KeyError> {
        Ok(Key::from_seed(&parse_hex(text).ok_or(KeyError::Malformed("the file 'key'"))?))
    }

    /// Returns the text of the file `key`: 64 hex digits of the seed and a line end.
    pub fn to_text(&self) -> String {
        format!("{}\n", Hash(self.0.to_bytes()))
    }

    /// Returns the public half, which the file `key.pub` holds.
    pub fn public_key(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    /// Returns the key for codes of operations on files, which are too frequent to be signed. It follows from this one.
    pub fn mac_key(&self) -> MacKey {
        MacKey(blake3::derive_key(MAC_CONTEXT, &self.0.to_bytes()))
    }

    /// Signs a hash. The same hash always gets the same signature.
    pub fn sign(&self, hash: &Hash) -> [u8; SIGNATURE_BYTES] {
        self.0.sign(&hash.0).to_bytes()
    }
}

/// Makes message authentication codes: keyed hashes that only who has the signing key can make.
#[derive(Clone)]
pub struct MacKey([u8; 32]);

impl MacKey {
    /// Returns the code of a message, the concatenation of `parts`, chained to the code before it.
    pub fn mac(&self, before: &Hash, parts: &[&[u8]]) -> Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&before.0);
        parts.iter().for_each(|part| _ = hasher.update(part));
        Hash(*hasher.finalize().as_bytes())
    }
}

/// The public half: checks signatures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// Reads the key from the text of the file `key.pub`. [`KeyError::Malformed`] also for a key under which signatures
    /// hold that nobody made.
    pub fn parse(text: &[u8]) -> Result<PublicKey, KeyError> {
        let bytes = parse_hex(text).ok_or(KeyError::Malformed("key.pub"))?;
        let key = VerifyingKey::from_bytes(&bytes).map_err(|_| KeyError::Malformed("key.pub"))?;
        // A key of small order accepts signatures that nobody made.
        if key.is_weak() { Err(KeyError::Malformed("key.pub")) } else { Ok(PublicKey(key)) }
    }

    /// Returns the text of the file `key.pub`: 64 hex digits and a line end.
    pub fn to_text(&self) -> String {
        format!("{}\n", Hash(self.0.to_bytes()))
    }

    /// Returns the hash that entries name the key by.
    pub fn hash(&self) -> Hash {
        Hash::digest(&CONTEXT, self.0.as_bytes())
    }

    /// Returns whether `signature` over `hash` was made by this key (strict verification).
    pub fn verifies(&self, hash: &Hash, signature: &[u8; SIGNATURE_BYTES]) -> bool {
        self.0.verify_strict(&hash.0, &Signature::from_bytes(signature)).is_ok()
    }
}

/// Exactly 64 lower-case hex digits and one line end, so that no flipped byte reads as the same key.
fn parse_hex(text: &[u8]) -> Option<[u8; 32]> {
    let text = std::str::from_utf8(text).ok()?;
    let digits = text.strip_suffix('\n')?;
    Some(digits.parse::<Hash>().ok()?.0)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_signature_holds_for_its_hash_and_key_alone() {
        let key = Key::from_seed(&[1; 32]);
        let hash = Hash::digest(&Context::new("test"), b"entry");
        let signature = key.sign(&hash);
        assert!(key.public_key().verifies(&hash, &signature));
        assert!(!key.public_key().verifies(&Hash::digest(&Context::new("test"), b"other"), &signature));
        assert!(!Key::from_seed(&[2; 32]).public_key().verifies(&hash, &signature));
    }

    #[test]
    fn a_code_holds_for_its_message_place_and_key_alone() {
        let (key, before) = (Key::from_seed(&[1; 32]).mac_key(), Hash([5; 32]));
        let code = key.mac(&before, &[b"a", b"b"]);
        assert_eq!(code, key.mac(&before, &[b"ab"]));
        assert_ne!(code, key.mac(&before, &[b"ba"]));
        assert_ne!(code, key.mac(&Hash::ZERO, &[b"ab"]));
        assert_ne!(code, Key::from_seed(&[2; 32]).mac_key().mac(&before, &[b"ab"]));
    }

    #[test]
    fn keys_read_back_from_their_files() {
        let key = Key::from_seed(&[3; 32]);
        assert_eq!(Key::parse(key.to_text().as_bytes()).unwrap().public_key(), key.public_key());
        assert_eq!(PublicKey::parse(key.public_key().to_text().as_bytes()).unwrap(), key.public_key());
        assert!(PublicKey::parse(&[b'0'; 65]).is_err());
    }
}
