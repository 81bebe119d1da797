//! What differs between two states; it costs what changed, not what they hold.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::ordmap;

use super::BranchVersion;
use crate::segment::{Row, SegmentError};

/// One record that is not the same in two states.
pub struct RecordDifference {
    /// The id under which both states were searched.
    pub id: Arc<str>,
    /// Its version in the first state; `None` if that lacks the record.
    pub old: Option<Row>,
    /// Its version in the second state; `None` if that lacks the record.
    pub new: Option<Row>,
}

/// What is not the same in two states, in order of ids.
#[derive(Default)]
pub struct RecordDifferences {
    /// What differs by content.
    pub content: Vec<RecordDifference>,
    /// What has equal content, and differs in whether the vector is stale, which no hash covers.
    pub stale_flags: Vec<RecordDifference>,
}

/// Returns what differs by content between `old` and `new`, in order of ids. Versions of equal content, whoever wrote
/// them, do not differ. [`SegmentError::Io`] or [`SegmentError::Damaged`] if an id or a hash can't be read, or its
/// segment is damaged; no content is read.
pub fn differences(old: &BranchVersion, new: &BranchVersion) -> Result<Vec<RecordDifference>, SegmentError> {
    Ok(differences_at_most(old, new, usize::MAX)?.unwrap_or_default())
}

/// Like [`differences_at_most`], with those that differ in whether the vector is stale. The provenance is read of what is
/// stored elsewhere and equal. Fails like [`differences`], or if a provenance can't be read.
pub fn differences_with_flags_at_most(
    old: &BranchVersion,
    new: &BranchVersion,
    limit: usize,
) -> Result<Option<RecordDifferences>, SegmentError> {
    let mut stale_flags = Vec::new();
    let content = differences_and_equal(old, new, limit, |equal| {
        let is_stale = |row: &Option<Row>| -> Result<Option<bool>, SegmentError> {
            row.as_ref().map(|row| row.provenance().map(|provenance| provenance.vector_stale)).transpose()
        };
        if is_stale(&equal.old)? != is_stale(&equal.new)? {
            stale_flags.push(equal);
        }
        Ok(())
    })?;
    Ok(content.map(|content| RecordDifferences { content, stale_flags }))
}

/// Like [`differences`], but `None` if more than `limit` records may differ; the cost is bounded by `limit`. An id in
/// only one of the states counts, too. Fails like [`differences`].
pub fn differences_at_most(
    old: &BranchVersion,
    new: &BranchVersion,
    limit: usize,
) -> Result<Option<Vec<RecordDifference>>, SegmentError> {
    differences_and_equal(old, new, limit, |_| Ok(()))
}

/// Returns what differs by content, and calls `equal` with each of the others that the two states do not share.
fn differences_and_equal(
    old: &BranchVersion,
    new: &BranchVersion,
    limit: usize,
    mut equal: impl FnMut(RecordDifference) -> Result<(), SegmentError>,
) -> Result<Option<Vec<RecordDifference>>, SegmentError> {
    let mut found = Vec::new();
    // Everything is new, so that nothing has to be looked up.
    if old.totals().records == 0 {
        if new.totals().records > limit as u64 {
            return Ok(None);
        }
        for row in new.rows(None)? {
            let row = row?;
            let id = Arc::from(&*row.id()?);
            found.push(RecordDifference { id, old: None, new: Some(row) });
        }
        return Ok(Some(found));
    }
    let Some(candidates) = candidates(old, new, limit)? else { return Ok(None) };
    for id in candidates {
        let (before, after) = (old.find(&id)?, new.find(&id)?);
        let hash = |row: &Option<Row>| row.as_ref().map(Row::hash).transpose();
        // A record may be stored elsewhere or written anew and have the same content, which is no difference.
        let is_equal = hash(&before)? == hash(&after)?;
        let difference = RecordDifference { id, old: before, new: after };
        if is_equal { equal(difference)? } else { found.push(difference) }
    }
    Ok(Some(found))
}

/// Returns the ids of all records that differ between two states in content, provenance, place, or time of deletion;
/// `None` if there are more than `limit`. [`SegmentError::Io`] or [`SegmentError::Damaged`] if an id can't be read, or
/// its segment is damaged.
pub fn changed_ids_at_most(
    old: &BranchVersion,
    new: &BranchVersion,
    limit: usize,
) -> Result<Option<BTreeSet<Arc<str>>>, SegmentError> {
    let Some(mut ids) = candidates(old, new, limit)? else { return Ok(None) };
    for change in old.deletions.diff(&new.deletions) {
        ids.insert(changed_id(&change).clone());
        if ids.len() > limit {
            return Ok(None);
        }
    }
    Ok(Some(ids))
}

fn changed_id<'a, T>(change: &ordmap::DiffItem<'a, 'a, Arc<str>, T>) -> &'a Arc<str> {
    match change {
        ordmap::DiffItem::Add(id, _) | ordmap::DiffItem::Remove(id, _) => id,
        ordmap::DiffItem::Update { new: (id, _), .. } => id,
    }
}

/// Ids that may differ: everything that the two states do not share; `None` if there are more than `limit`.
fn candidates(
    old: &BranchVersion,
    new: &BranchVersion,
    limit: usize,
) -> Result<Option<BTreeSet<Arc<str>>>, SegmentError> {
    let mut ids = BTreeSet::new();
    for change in old.unsealed.diff(&new.unsealed) {
        ids.insert(changed_id(&change).clone());
        if ids.len() > limit {
            return Ok(None);
        }
    }
    for (mine, others) in [(old, new), (new, old)] {
        for layer in &mine.layers {
            // Only the bitmaps are compared where both see the same segment; the second pass finds the same rows, and
            // the set keeps one.
            let twin = others.layers.iter().find(|other| other.segment.name() == layer.segment.name());
            let mut rows = Vec::new();
            match twin {
                Some(twin) => layer.visible.differences(&twin.visible, |row| rows.push(row)),
                // Asked before the rows are listed: a call with a limit must not cost what the segment holds.
                None if layer.visible.count() as usize > limit => return Ok(None),
                None => rows.extend(layer.visible.iter()),
            }
            if rows.len() > limit {
                return Ok(None);
            }
            for row in rows {
                ids.insert(layer.segment.id(row)?.into());
            }
        }
    }
    Ok((ids.len() <= limit).then_some(ids))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::object::Time;
    use crate::record::{Provenance, RecordContent, Version};

    fn with_records(base: &BranchVersion, ids: &[&str]) -> BranchVersion {
        let mut state = base.clone();
        for id in ids {
            let content = RecordContent { vector: None, text: Some("a note".into()), metadata: "{}".into() };
            let version = Version::new((*id).into(), content, Provenance::sample());
            state.put(Row::Unsealed(Arc::new(version))).unwrap();
        }
        state
    }

    #[test]
    fn as_many_differences_as_the_limit_are_returned_and_one_more_is_too_many() {
        let empty = BranchVersion::default();
        let old = with_records(&empty, &["kept"]);
        let mut new = with_records(&old, &["a", "b"]);
        for (before, count) in [(&empty, 3), (&old, 2)] {
            let found = |limit| differences_at_most(before, &new, limit).unwrap().map(|found| found.len());
            assert_eq!([0, 1, count - 1].map(found), [None; 3]);
            assert_eq!([count, count + 1, usize::MAX].map(found), [Some(count); 3]);
        }
        new.note_deleted("gone", Time(1));
        let changed = |limit| changed_ids_at_most(&old, &new, limit).unwrap().map(|ids| ids.len());
        assert_eq!([0, 1, 2, 3].map(changed), [None, None, None, Some(3)]);
    }
}
