//! What differs between two states; it costs what changed, not what they hold.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::ordmap;

use super::State;
use crate::segment::{Row, SegmentError};

/// One record that is not the same in two states.
pub struct Difference {
    /// The record's id.
    pub id: Arc<str>,
    /// Its version in the first state.
    pub old: Option<Row>,
    /// Its version in the second state.
    pub new: Option<Row>,
}

/// Returns what differs by content between `old` and `new`, in order of ids.
pub fn differences(old: &State, new: &State) -> Result<Vec<Difference>, SegmentError> {
    let mut found = Vec::new();
    if old.totals().records == 0 {
        for row in new.rows(None)? {
            let row = row?;
            let id = Arc::from(&*row.id()?);
            found.push(Difference { id, old: None, new: Some(row) });
        }
        return Ok(found);
    }
    for id in candidates(old, new)? {
        let (before, after) = (old.find(&id)?, new.find(&id)?);
        let hash = |row: &Option<Row>| row.as_ref().map(Row::hash).transpose();
        if hash(&before)? != hash(&after)? {
            found.push(Difference { id, old: before, new: after });
        }
    }
    Ok(found)
}

/// Ids that may differ: everything that the two states do not share.
fn candidates(old: &State, new: &State) -> Result<BTreeSet<Arc<str>>, SegmentError> {
    let mut ids = BTreeSet::new();
    for change in old.loose.diff(&new.loose) {
        let id = match change {
            ordmap::DiffItem::Add(id, _) | ordmap::DiffItem::Remove(id, _) => id,
            ordmap::DiffItem::Update { new: (id, _), .. } => id,
        };
        ids.insert(id.clone());
    }
    for (mine, others) in [(old, new), (new, old)] {
        for layer in &mine.layers {
            let twin = others.layers.iter().find(|other| other.segment.name() == layer.segment.name());
            let mut rows = Vec::new();
            match twin {
                Some(twin) => layer.visible.differences(&twin.visible, |row| rows.push(row)),
                None => rows.extend(layer.visible.iter()),
            }
            for row in rows {
                ids.insert(layer.segment.id(row)?.into());
            }
        }
    }
    Ok(ids)
}
