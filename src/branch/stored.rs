//! The stored form of a state whose versions are all sealed: it names rows of segments by their numbers, so it
//! holds only as long as those segments are kept.

use std::sync::{Arc, OnceLock};

use imbl::OrdMap;

use super::{BranchVersion, Layer, MemTable, VisibleRows};
use crate::object::{CodecError, Hash, Reader, SetHash, Time, Writer};
use crate::segment::{RowTotals, Segment};
use crate::workspace::Tree;

impl BranchVersion {
    /// Appends the stored form; unsealed versions are not in it, so there must be none, nor are files and the set hash.
    pub fn write(&self, out: &mut Writer) {
        self.totals.write(out);
        out.number(self.layers.len() as u64);
        for layer in &self.layers {
            out.hash(&layer.segment.name());
            layer.visible.write(out);
        }
        out.number(self.deletions.len() as u64);
        for (id, time) in &self.deletions {
            out.text(id).signed(time.0);
        }
    }

    /// Reads the stored form; `segment` gives the open segments by name, and set hash and files are stored elsewhere.
    /// [`CodecError::Number`] if `segment` does not have one that it names.
    pub fn read(
        input: &mut Reader<'_>,
        segment: impl Fn(&Hash) -> Option<Arc<Segment>>,
        record_set_hash: Arc<SetHash>,
        files: Tree,
    ) -> Result<BranchVersion, CodecError> {
        let totals = RowTotals::read(input)?;
        let mut layers = Vec::new();
        for _ in 0..input.length()? {
            let segment = segment(&input.hash()?).ok_or(CodecError::Number)?;
            layers.push(Layer { segment, visible: VisibleRows::read(input)? });
        }
        let mut deletions = OrdMap::new();
        for _ in 0..input.length()? {
            deletions.insert(input.text()?.into(), Time(input.signed()?));
        }
        Ok(BranchVersion {
            layers,
            unsealed: MemTable::default(),
            record_set_hash,
            totals,
            deletions,
            files,
            head: OnceLock::new(),
        })
    }
}
