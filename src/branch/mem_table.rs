//! The versions of a branch that are in no segment yet, most of them with their codes side by side.
//!
//! Versions are made one by one, so each lies elsewhere in memory, and a scan waits for memory once
//! a version. A [`CodeCache`] has their codes in a line, which costs a third of that. It never changes:
//! what is taken out is hidden, and what is put in stays uncached until a share of all is.

use std::sync::{Arc, OnceLock};

use imbl::OrdMap;
use imbl::ordmap::{DiffIter, RangedIter};
use imbl::shared_ptr::DefaultSharedPtr;

use super::VisibleRows;
use crate::record::Version;

/// The cache is never rebuilt for fewer uncached versions than this.
const UNCACHED_MIN: usize = 32;
/// The cache is rebuilt once one in this many versions is not in it. Each insert thus costs about this many copies,
/// spread over the inserts between two rebuilds.
const REBUILD_ONE_IN: usize = 16;

type ById = OrdMap<Arc<str>, Arc<Version>>;

/// Unsealed versions by id. A clone shares everything with its original until one of them changes.
#[derive(Clone)]
pub struct MemTable {
    by_id: ById,
    /// Those of them that are not in the cache.
    uncached: ById,
    cache: Arc<CodeCache>,
    /// The rows of the cache that were not taken out since.
    cached_rows: VisibleRows,
}

impl Default for MemTable {
    fn default() -> Self {
        MemTable { by_id: ById::new(), uncached: ById::new(), cache: Arc::default(), cached_rows: VisibleRows::none(0) }
    }
}

impl MemTable {
    /// Returns whether there are none: all that the branch sees is sealed.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Returns the version of a record; `None` if it has none here.
    pub fn get(&self, id: &str) -> Option<&Arc<Version>> {
        self.by_id.get(id)
    }

    /// Iterates over all in the order of their ids.
    pub fn values(&self) -> impl Iterator<Item = &Arc<Version>> {
        self.by_id.values()
    }

    /// Returns the cache, and which of its rows are still versions of this table.
    pub fn cached(&self) -> (&CodeCache, &VisibleRows) {
        (&self.cache, &self.cached_rows)
    }

    /// Goes through those that are not in the cache, in the order of their ids.
    pub fn uncached(&self) -> impl Iterator<Item = &Arc<Version>> {
        self.uncached.values()
    }

    /// Goes through those whose id is behind `after`, or through all.
    pub(super) fn range(&self, after: Option<&str>) -> RangedIter<'_, Arc<str>, Arc<Version>, DefaultSharedPtr> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.by_id.range::<_, str>((after.map_or(Unbounded, Excluded), Unbounded))
    }

    /// Iterates over the ids whose versions differ; what both tables share is passed over by address.
    pub(super) fn diff<'a>(&'a self, new: &'a MemTable) -> DiffIter<'a, 'a, Arc<str>, Arc<Version>, DefaultSharedPtr> {
        self.by_id.diff(&new.by_id)
    }

    /// Puts a version in, in the place of an older one.
    pub(super) fn insert(&mut self, version: Arc<Version>) {
        // Hides the old version in the cache, which would be found there beside the new one.
        self.remove(&version.id);
        self.by_id.insert(version.id.clone(), version.clone());
        self.uncached.insert(version.id.clone(), version);
        if self.uncached.len() > UNCACHED_MIN.max(self.by_id.len() / REBUILD_ONE_IN) {
            // A new cache, never a change of the old one, which clones of this table and queries may still read.
            self.cache =
                Arc::new(CodeCache { versions: self.by_id.values().cloned().collect(), codes: OnceLock::new() });
            self.cached_rows = VisibleRows::all(self.by_id.len() as u32);
            self.uncached = ById::new();
        }
    }

    /// Takes a version out, and hides it in the cache; an id that is not there changes nothing.
    pub(super) fn remove(&mut self, id: &str) {
        if self.by_id.remove(id).is_some()
            // A version is either uncached or a visible row of the cache, never both.
            && self.uncached.remove(id).is_none()
            && let Ok(row) = self.cache.versions.binary_search_by(|version| (*version.id).cmp(id))
        {
            self.cached_rows.set(row as u32, false);
        }
        // Nothing of the cache counts any longer, and it would keep all its versions in memory.
        if self.cached_rows.count() == 0 {
            (self.cache, self.cached_rows) = (Arc::default(), VisibleRows::none(0));
        }
    }
}

/// Versions in the order of their ids, with what a query is compared with in columns.
#[derive(Default)]
pub struct CodeCache {
    versions: Vec<Arc<Version>>,
    /// Made at the first vector query.
    codes: OnceLock<Codes>,
}

/// The compact copies of vectors as columns, laid out as in a segment.
#[derive(Default)]
pub struct Codes {
    /// One int8 a dimension, row by row.
    pub bytes: Vec<i8>,
    /// What a step of each row's code is worth.
    pub scales: Vec<f32>,
    /// The length of what each row's code leaves out.
    pub residuals: Vec<f32>,
    /// The length of each row's vector, -1 where there is none.
    pub norms: Vec<f32>,
}

impl CodeCache {
    /// Returns the version in a row. Panics for a row after the last.
    pub fn version(&self, row: u32) -> &Arc<Version> {
        &self.versions[row as usize]
    }

    /// Returns the columns. All vectors of a branch have one dimension.
    pub fn codes(&self) -> &Codes {
        self.codes.get_or_init(|| {
            let dim = self.versions.iter().find_map(|version| version.content.vector.as_ref()).map_or(0, |v| v.len());
            let mut codes = Codes::default();
            for version in &self.versions {
                let code = version.code();
                codes.scales.push(code.map_or(0.0, |code| code.scale));
                codes.residuals.push(code.map_or(0.0, |code| code.residual));
                codes.norms.push(code.map_or(-1.0, |_| version.norm));
                codes.bytes.extend_from_slice(code.map_or(&[], |code| code.bytes));
                // A version without a vector takes up a row as well, so that rows and versions stay parallel.
                codes.bytes.resize(codes.norms.len() * dim, 0);
            }
            codes
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Provenance, RecordContent};
    use std::collections::BTreeMap;

    fn version(id: &str, value: u32) -> Arc<Version> {
        let vector = (!value.is_multiple_of(5)).then(|| Arc::from([1.0, value as f32]));
        let content = RecordContent { vector, text: None, metadata: "{}".into() };
        Arc::new(Version::new(id.into(), content, Provenance::sample()))
    }

    /// All that a scan sees: rows of the table by their codes, and what lies apart.
    fn scanned(unsealed: &MemTable) -> BTreeMap<String, (f32, Vec<i8>)> {
        let (table, seen) = unsealed.cached();
        let codes = table.codes();
        let in_table = seen.iter().map(|row| {
            let (at, version) = (row as usize, table.version(row));
            let bytes = codes.bytes[2 * at..2 * at + 2].to_vec();
            assert_eq!(codes.norms[at] < 0.0, version.content.vector.is_none());
            (version.id.to_string(), (codes.norms[at].max(0.0), bytes))
        });
        let apart = unsealed.uncached().map(|version| {
            let bytes = version.code().map_or(vec![0; 2], |code| code.bytes.to_vec());
            (version.id.to_string(), (version.norm, bytes))
        });
        let all: Vec<_> = in_table.chain(apart).collect();
        let found: BTreeMap<_, _> = all.iter().cloned().collect();
        assert_eq!(found.len(), all.len(), "nothing is seen twice");
        found
    }

    #[test]
    fn table_and_what_lies_apart_are_the_versions_whatever_comes_and_goes() {
        let (mut unsealed, mut seed, mut kept) = (MemTable::default(), 3u64, Vec::new());
        for step in 0..3000u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let id = format!("r{}", (seed >> 33) % 600);
            match (seed >> 20) % 4 {
                0 => unsealed.remove(&id),
                _ => unsealed.insert(version(&id, step)),
            }
            if step.is_multiple_of(100) {
                let expected: BTreeMap<_, _> = unsealed
                    .values()
                    .map(|version| {
                        let bytes = version.code().map_or(vec![0; 2], |code| code.bytes.to_vec());
                        (version.id.to_string(), (version.norm, bytes))
                    })
                    .collect();
                assert_eq!(scanned(&unsealed), expected, "step {step}");
                kept.push((unsealed.clone(), expected));
            }
        }
        kept.iter()
            .for_each(|(unsealed, expected)| assert_eq!(scanned(unsealed), *expected, "a clone stays as it was"));
        let apart = unsealed.uncached().count();
        assert!(apart <= UNCACHED_MIN.max(unsealed.values().count() / REBUILD_ONE_IN), "{apart} lie apart");
        let ids: Vec<String> = unsealed.values().map(|version| version.id.to_string()).collect();
        ids.iter().for_each(|id| unsealed.remove(id));
        assert!(
            unsealed.is_empty() && unsealed.cached().0.versions.is_empty(),
            "an emptied table lets go of its versions"
        );
        assert!(kept.iter().any(|(unsealed, _)| unsealed.get("r1").is_some()));
    }
}
