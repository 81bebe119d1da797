//! Compaction: rewrites segments and packs without the rows and chunks that nothing references.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::relocations::Compaction;
use crate::branch::Visible;
use crate::memory::catalog::Catalog;
use crate::memory::catalog::each_state;
use crate::memory::storage::manifest::Stored;
use crate::memory::{Error, Memory};
use crate::object::Hash;
use crate::segment::Segment;
use crate::workspace::{Packs, needed_of_packs};

/// Compaction writes so often again at most what the disk has room for at once.
const STEPS_MAX: usize = 32;
/// What is less is not worth a seal.
const BYTES_MIN: u64 = 64 << 10;

/// Files to rewrite, without what nothing references.
#[derive(Default, PartialEq, Eq)]
pub(in crate::memory) struct Sparse {
    /// Segments.
    pub segments: HashSet<Hash>,
    /// Packs.
    pub packs: HashSet<Hash>,
}

/// A file in the blob store.
struct CompactionCandidate {
    name: Hash,
    is_pack: bool,
    length: u64,
    needed: u64,
}

impl CompactionCandidate {
    fn freed(&self) -> u64 {
        self.length.saturating_sub(self.needed)
    }
}

impl Memory {
    /// Writes files again of which at least one in `share` bytes is needed by nobody, in steps that each free more than
    /// they take; returns how many bytes that freed. For who holds `sealing`.
    pub(in crate::memory) fn compact(&self, stored: &mut Stored, share: u64) -> Result<u64, Error> {
        let mut freed = 0;
        for _ in 0..STEPS_MAX {
            let sparse = self.sparse(&self.catalog().clone(), share);
            if sparse == Sparse::default() {
                break;
            }
            let sealed = self.seal_alone(stored, &Compaction::Sparse(Arc::new(sparse)))?;
            freed += self.sweep(stored, &sealed)?;
        }
        Ok(freed)
    }

    /// Returns the files that are worth a step: those of which the least is needed, as many as there is room for.
    fn sparse(&self, catalog: &Catalog, share: u64) -> Sparse {
        let mut candidates = self.candidates(catalog);
        candidates.retain(|file| file.freed() >= BYTES_MIN && file.freed().saturating_mul(share) >= file.length);
        candidates.sort_by_key(|file| (file.needed, file.name));
        let (mut spare, mut sparse) = (self.compactable_bytes(), Sparse::default());
        for CompactionCandidate { name, is_pack, needed, .. } in candidates {
            let Some(left) = spare.checked_sub(needed) else { break };
            spare = left;
            if is_pack {
                sparse.packs.insert(name)
            } else {
                sparse.segments.insert(name)
            };
        }
        sparse
    }

    fn candidates(&self, catalog: &Catalog) -> Vec<CompactionCandidate> {
        let (mut segments, mut states): (BTreeMap<Hash, (Arc<Segment>, Visible)>, _) = (BTreeMap::new(), Vec::new());
        each_state(catalog, |state| {
            for layer in state.layers() {
                let none = || (layer.segment.clone(), Visible::none(layer.segment.rows()));
                let (_, seen) = segments.entry(layer.segment.name()).or_insert_with(none);
                seen.join(&layer.visible);
            }
            states.push(state.clone());
        });
        let mut found = Vec::new();
        for (name, (segment, seen)) in segments {
            let length = segment.length();
            let needed = length * u64::from(seen.count()) / u64::from(segment.rows()).max(1);
            found.push(CompactionCandidate { name, is_pack: false, length, needed });
        }
        let needed: HashMap<Hash, u64> = needed_of_packs(states.iter().map(|state| state.files()));
        for (name, needed) in needed {
            // One that can't be read is told of where somebody reads it.
            let Ok(pack) = self.storage.trees.pack(&name) else { continue };
            found.push(CompactionCandidate { name, is_pack: true, length: pack.length(), needed });
        }
        found
    }
}
