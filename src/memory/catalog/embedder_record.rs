//! What a store remembers of the embedder whose vectors its branches have.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::object::{Context, Hash, Writer};

static IDENTITY: Context = Context::new("engramfs 2026 embedder identity v1");
static SET: Context = Context::new("engramfs 2026 derived set v1");

/// What an embedder was when its vectors were made: the value of `config/embedder` as it is stored.
///
/// ```text
/// name TAB dimension TAB identity TAB generation TAB probes, each f32 as 8 hex digits, one probe behind the other
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct EmbedderRecord {
    /// What people call it: at most 200 characters, no control characters.
    pub name: Arc<str>,
    /// Numbers in each vector of the set, at least 1.
    pub dim: usize,
    /// Hash of the dimension, and of all else that decides its vectors.
    pub identity: Hash,
    /// How often all vectors were made anew; 0 for the first set.
    pub generation: u64,
    /// The vectors of the probe texts; empty if only the head was read.
    pub probes: Vec<Vec<f32>>,
}

impl EmbedderRecord {
    /// Makes the record of an embedder. `description` has all that its vectors depend on, apart from the dimension.
    /// Control characters of the name are left out.
    pub fn new(name: &str, dim: usize, description: &[u8], probes: Vec<Vec<f32>>, generation: u64) -> EmbedderRecord {
        let mut out = Writer::new();
        out.number(dim as u64).bytes(description);
        let name: String = name.chars().filter(|letter| !letter.is_control()).take(200).collect();
        let identity = Hash::digest(&IDENTITY, out.as_slice());
        EmbedderRecord { name: name.into(), dim, identity, generation, probes }
    }

    /// Returns the name of the set of vectors. One embedder may have several.
    pub fn derived_set(&self) -> Hash {
        let mut out = Writer::new();
        out.hash(&self.identity).number(self.generation);
        Hash::digest(&SET, out.as_slice())
    }

    /// Returns the stored value, in the form drawn above.
    pub fn to_text(&self) -> String {
        let EmbedderRecord { name, dim, identity, generation, probes } = self;
        let mut text = format!("{name}\t{dim}\t{identity}\t{generation}\t");
        for number in probes.iter().flatten() {
            let _ = write!(text, "{:08x}", number.to_bits());
        }
        text
    }

    /// Reads a stored value, probes included; `None` if it is none.
    pub fn parse(text: &str) -> Option<EmbedderRecord> {
        let mut record = EmbedderRecord::parse_without_probes(text)?;
        let hex = text.rsplit('\t').next()?;
        let digits = hex.as_bytes().chunks(8).map(|digits| {
            let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == 8)?;
            u32::from_str_radix(digits, 16).ok().map(f32::from_bits).filter(|number| number.is_finite())
        });
        let numbers = digits.collect::<Option<Vec<f32>>>()?;
        if !numbers.len().is_multiple_of(record.dim) {
            return None;
        }
        record.probes = numbers.chunks(record.dim).map(<[f32]>::to_vec).collect();
        Some(record)
    }

    /// Reads all but the probes, which are most of its bytes; `None` if it is none.
    pub fn parse_without_probes(text: &str) -> Option<EmbedderRecord> {
        let mut fields = text.split('\t');
        let (name, dim) = (fields.next()?.into(), fields.next()?.parse().ok().filter(|dim| *dim > 0)?);
        let (identity, generation) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        fields.next()?;
        fields.next().is_none().then_some(EmbedderRecord { name, dim, identity, generation, probes: Vec::new() })
    }

    /// Returns what `config/embedder` shows: name, dimension and identity.
    pub fn describe(&self) -> String {
        format!("{} {} {}", self.name, self.dim, self.identity)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_from_its_text_and_nonsense_does_not() {
        let probes = vec![vec![0.5, -1.25], vec![1e-9, 3.0]];
        let record = EmbedderRecord::new("mini\tlm", 2, b"files", probes, 4);
        assert_eq!(EmbedderRecord::parse(&record.to_text()).unwrap(), record);
        assert_eq!(record.describe(), format!("minilm 2 {}", record.identity));
        let head = EmbedderRecord::parse_without_probes(&record.to_text()).unwrap();
        assert_eq!((head.derived_set(), head.probes.len()), (record.derived_set(), 0));
        let other = |change: &dyn Fn(&mut EmbedderRecord)| {
            let mut other = record.clone();
            change(&mut other);
            other.derived_set()
        };
        assert_ne!(other(&|record| record.generation = 5), record.derived_set());
        let text = record.to_text();
        for wrong in ["", "a\t2", &text[..text.len() - 1], &text.replace("\t2\t", "\t3\t"), &format!("{text}\tx")] {
            assert!(EmbedderRecord::parse(wrong).is_none(), "{wrong:?}");
        }
    }
}
