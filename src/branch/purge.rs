//! Taking records out of a state for good: no delete is noted, as if they had never been.

use std::collections::HashSet;
use std::sync::Arc;

use super::BranchVersion;
use crate::object::Hash;
use crate::segment::{Segment, SegmentError};

/// Returns the numbers of those rows of a segment whose content hash is one of the `hashes` that [`BranchVersion::purge`] was given,
/// in any order. Rows that the state does not show may be among them.
pub type RowFinder<'a> = &'a mut dyn FnMut(&Arc<Segment>) -> Result<Arc<[u32]>, SegmentError>;

impl BranchVersion {
    /// Takes out the records with some ids, and all versions with one of some hashes, which `rows_of` finds in a
    /// segment; returns ids and hashes of what went. After an error the state is unspecified: change a clone.
    pub fn purge(
        &mut self,
        ids: &[Arc<str>],
        hashes: &HashSet<Hash>,
        rows_of: RowFinder<'_>,
    ) -> Result<Vec<(Arc<str>, Hash)>, SegmentError> {
        let mut gone = Vec::new();
        for id in ids {
            if let Some(row) = self.find(id)? {
                gone.push((id.clone(), row.hash()?));
            }
        }
        // All that goes is found before the first is taken out, which changes the layers that are walked here.
        for layer in &self.layers {
            for row in rows_of(&layer.segment)?.iter().filter(|row| layer.visible.contains(**row)) {
                gone.push((layer.segment.id(*row)?.into(), layer.segment.hash(*row)?));
            }
        }
        let unsealed = self.unsealed.values().filter(|version| hashes.contains(&version.hash));
        gone.extend(unsealed.map(|version| (version.id.clone(), version.hash)));
        // A version may be named by its id and by its hash.
        gone.sort();
        gone.dedup();
        for (id, _) in &gone {
            // The visible version of the id is the one that was found, as no id is visible in two places.
            self.hide_record(id)?;
        }
        self.drop_invisible_layers();
        Ok(gone)
    }
}
