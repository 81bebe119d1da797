//! A hash of a set that does not depend on the order or the history of its making.

use super::{Context, Hash, Hasher};

/// Number of 16-bit lanes; 1,024 lanes give more than 200 bits of security.
const LANES: usize = 1024;
const BYTES: usize = LANES * 2;

/// The lattice set hash LtHash16 (Bellare and Micciancio 1997; Lewi, Kim, Maykov and Weis,
/// "Securing update propagation with homomorphic hashing", 2019).
///
/// Each element is stretched to 1,024 lanes of 16 bits, and lanes are added modulo 2^16. Adding and
/// removing cost the same whatever the set holds, and equal sets have equal sums. The whole 2 KiB
/// state is kept: a shorter sum could be forged.
///
/// ```
/// use engramfs::object::{Context, Hash, SetHash};
///
/// static CONTEXT: Context = Context::new("an example");
/// let [tea, coffee] = [b"tea", b"cof"].map(|bytes| Hash::digest(&CONTEXT, bytes));
/// let (mut one, mut other) = (SetHash::default(), SetHash::default());
/// one.add(&tea);
/// one.add(&coffee);
/// other.add(&coffee);
/// assert!(one != other);
/// other.add(&tea);
/// assert!(one == other, "the order does not count");
/// one.remove(&tea);
/// one.remove(&coffee);
/// assert!(one == SetHash::default());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct SetHash([u16; LANES]);

impl Default for SetHash {
    fn default() -> SetHash {
        SetHash([0; LANES])
    }
}

impl SetHash {
    /// Bytes of [`SetHash::to_bytes`].
    pub const BYTES: usize = BYTES;

    /// Adds the element that `hash` names; one that is there already counts twice from then on.
    pub fn add(&mut self, hash: &Hash) {
        let element = Element::from_hash(hash);
        for (lane, add) in self.0.iter_mut().zip(&element.0) {
            *lane = lane.wrapping_add(*add);
        }
    }

    /// Takes out the element that `hash` names; it must have been added before.
    pub fn remove(&mut self, hash: &Hash) {
        let element = Element::from_hash(hash);
        for (lane, sub) in self.0.iter_mut().zip(&element.0) {
            *lane = lane.wrapping_sub(*sub);
        }
    }

    /// Adds all elements of another, disjoint set.
    pub fn add_all(&mut self, other: &SetHash) {
        for (lane, add) in self.0.iter_mut().zip(other.0) {
            *lane = lane.wrapping_add(add);
        }
    }

    /// Returns the state, lanes in little-endian order.
    pub fn to_bytes(&self) -> [u8; BYTES] {
        let mut lanes = self.0;
        lanes.iter_mut().for_each(|lane| *lane = lane.to_le());
        bytemuck::cast(lanes)
    }

    /// Returns the state that [`SetHash::to_bytes`] gave, or `None` if the length is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Option<SetHash> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let mut sum = SetHash::default();
        for (lane, pair) in sum.0.iter_mut().zip(bytes.chunks_exact(2)) {
            *lane = u16::from_le_bytes([pair[0], pair[1]]);
        }
        Some(sum)
    }

    /// Returns the 32-byte name of the set, as content of the kind that `context` names.
    pub fn hash(&self, context: &Context) -> Hash {
        let mut hasher = Hasher::new(context);
        hasher.update(&self.to_bytes());
        hasher.finish()
    }
}

/// One element, stretched over all lanes by BLAKE3's extendable output.
struct Element([u16; LANES]);

impl Element {
    fn from_hash(hash: &Hash) -> Element {
        let mut lanes = [0_u16; LANES];
        blake3::Hasher::new_keyed(&hash.0).finalize_xof().fill(bytemuck::cast_slice_mut(&mut lanes));
        lanes.iter_mut().for_each(|lane| *lane = u16::from_le(*lane));
        Element(lanes)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn element(n: u32) -> Hash {
        Hash::digest(&Context::new("test element"), &n.to_le_bytes())
    }

    #[test]
    fn order_does_not_matter_and_removal_undoes_addition() {
        let mut forward = SetHash::default();
        let mut backward = SetHash::default();
        for n in 0..50 {
            forward.add(&element(n));
            backward.add(&element(49 - n));
        }
        assert!(forward == backward);
        forward.add(&element(99));
        assert!(forward != backward);
        forward.remove(&element(99));
        assert_eq!(forward.hash(&Context::new("test")), backward.hash(&Context::new("test")));
    }

    #[test]
    fn joining_equals_adding_one_by_one() {
        let (mut left, mut right, mut whole) = (SetHash::default(), SetHash::default(), SetHash::default());
        for n in 0..20 {
            if n % 3 == 0 {
                left.add(&element(n))
            } else {
                right.add(&element(n))
            }
            whole.add(&element(n));
        }
        left.add_all(&right);
        assert!(left == whole);
        assert!(SetHash::from_bytes(&whole.to_bytes()).unwrap() == whole);
    }
}
