//! Going through a state in the order of ids: layers and unsealed versions are merged as they are read, so that it
//! takes memory for one row of each.

use std::sync::Arc;

use imbl::ordmap;

use super::{BranchVersion, Layer};
use crate::record::Version;
use crate::segment::{Row, SegmentError};

/// The visible versions of a state in bytewise order of their ids.
pub struct RowIter<'a> {
    layers: Vec<Cursor<'a>>,
    unsealed: std::iter::Peekable<ordmap::RangedIter<'a, Arc<str>, Arc<Version>, imbl::shared_ptr::DefaultSharedPtr>>,
}

struct Cursor<'a> {
    layer: &'a Layer,
    next: Option<(&'a str, u32)>,
}

impl<'a> Cursor<'a> {
    fn move_to(&mut self, from: u32) -> Result<(), SegmentError> {
        let row = self.layer.visible.next(from);
        self.next = row.map(|row| self.layer.segment.id(row).map(|id| (id, row))).transpose()?;
        Ok(())
    }
}

impl BranchVersion {
    /// Iterates over the visible versions whose id is behind `after`, or through all. Whoever meets an error gives the
    /// iterator up.
    pub fn rows(&self, after: Option<&str>) -> Result<RowIter<'_>, SegmentError> {
        let mut layers = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            let mut cursor = Cursor { layer, next: None };
            let mut from = after.map_or(Ok(0), |id| layer.segment.lower_bound(id, 0))?;
            // One id may stand in several rows of a segment.
            while from < layer.segment.rows() && Some(layer.segment.id(from)?) == after {
                from += 1;
            }
            cursor.move_to(from)?;
            layers.push(cursor);
        }
        Ok(RowIter { layers, unsealed: self.unsealed.range(after).peekable() })
    }
}

impl RowIter<'_> {
    fn step(&mut self) -> Result<Option<Row>, SegmentError> {
        let mut best: Option<(usize, &str, u32)> = None;
        for (index, cursor) in self.layers.iter().enumerate() {
            if let Some((id, row)) = cursor.next
                && best.is_none_or(|(_, least, _)| id < least)
            {
                best = Some((index, id, row));
            }
        }
        // No id is visible in two places, so no two that are compared are equal.
        let loose_first = match (&best, self.unsealed.peek()) {
            (Some((_, id, _)), Some((key, _))) => ***key < **id,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if loose_first {
            return Ok(self.unsealed.next().map(|(_, version)| Row::Unsealed(version.clone())));
        }
        let Some((index, _, row)) = best else { return Ok(None) };
        let cursor = &mut self.layers[index];
        cursor.move_to(row + 1)?;
        Ok(Some(Row::Sealed(cursor.layer.segment.clone(), row)))
    }
}

impl Iterator for RowIter<'_> {
    type Item = Result<Row, SegmentError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}
