//! The plan of a merge: pure, from three states to what to do.

use std::sync::Arc;

use crate::branch::{BranchVersion, RECORD_ID_BYTES_MAX, RecordDifference};
use crate::lineage::Strategy;
use crate::lineage::{Decision, Side};
use crate::object::{Context, Hash, Time};
use crate::segment::{Row, SegmentError};

/// The three states of a merge. In a pull the child is the branch, too, although it receives.
pub struct Sides<'a> {
    /// The child's base, from which both sides started.
    pub base: &'a BranchVersion,
    /// The branch that is merged, or that pulls.
    pub child: &'a BranchVersion,
    /// The present version of the branch that the child was forked from.
    pub parent: &'a BranchVersion,
    /// The child's name. If both versions of a record are kept, the new id has it.
    pub name: &'a str,
}

/// One change of the child that the result takes over.
#[derive(Clone)]
pub struct Action {
    /// The id that the record has in the result.
    pub id: Arc<str>,
    /// The child's version; none deletes the record.
    pub take: Option<Row>,
    /// When the child deleted it; 0 if it did not, or that is not known.
    pub deleted_at: Time,
}

/// What a merge does: the parent's state with these actions is the result.
#[derive(Default)]
pub struct RecordPlan {
    /// What to take from the child, in order of ids.
    pub actions: Vec<Action>,
    /// Every record that both sides changed, in order of ids. Equal changes are decided for both.
    pub both_changed: Vec<Decision>,
}

impl RecordPlan {
    /// Returns the records that both sides changed differently, whether they are decided or wait.
    pub fn conflicts(&self) -> impl Iterator<Item = &Decision> {
        self.both_changed.iter().filter(|item| item.is_conflict())
    }

    /// Returns whether some conflict waits for a manual decision, so that the plan must not be applied.
    pub fn is_blocked(&self) -> bool {
        self.both_changed.iter().any(|item| item.decision.is_none())
    }

    /// Returns the parent's state with the actions applied. `parent` must be the state that was planned with.
    /// [`SegmentError::Io`] or [`SegmentError::Damaged`] if a version that an action takes or replaces can't be read.
    pub fn apply(&self, parent: &BranchVersion) -> Result<BranchVersion, SegmentError> {
        let mut merged = parent.clone();
        self.actions.iter().try_for_each(|action| action.apply(&mut merged))?;
        Ok(merged)
    }
}

impl Action {
    /// Takes over a change of the child, with the time of a delete for comparison in later merges.
    pub fn from_difference(change: &RecordDifference, child: &BranchVersion) -> Action {
        let deleted_at = child.deleted_at(&change.id).unwrap_or_default();
        Action { id: change.id.clone(), take: change.new.clone(), deleted_at }
    }

    /// Takes over a change of the child under another id; `None` if the child deleted the record. The version is read
    /// whole, and is unsealed under its new id. [`SegmentError::Io`] or [`SegmentError::Damaged`] if the version can't
    /// be read or is damaged.
    pub fn keep_under_id(change: &RecordDifference, id: Arc<str>) -> Result<Option<Action>, SegmentError> {
        let Some(row) = &change.new else { return Ok(None) };
        let version = Row::Unsealed(Arc::new(row.version()?.with_id(id.clone())));
        Ok(Some(Action { id, take: Some(version), deleted_at: Time::default() }))
    }

    /// Puts or deletes the record in `merged`. [`SegmentError::Io`] or [`SegmentError::Damaged`] if the version, or the
    /// one before it, can't be read.
    pub fn apply(&self, merged: &mut BranchVersion) -> Result<(), SegmentError> {
        match &self.take {
            Some(row) => merged.put(row.clone()),
            None => merged.delete(&self.id, self.deleted_at).map(drop),
        }
    }
}

/// Plans a merge of the records that differ between base and child.
///
/// What only the child changed is taken, what only the parent changed stays, and so does what both changed alike. The
/// rest is decided by `strategy`, or under [`Strategy::Manual`] by `resolved`, which returns the side chosen for an
/// item. It reads the hashes of records, the stamps of conflicts, and the child's version where both are kept.
/// [`SegmentError::Io`] or [`SegmentError::Damaged`] if one of these can't be read.
pub fn plan_records(
    changes: &[RecordDifference],
    sides: &Sides<'_>,
    strategy: Strategy,
    resolved: impl Fn(&Decision) -> Option<Side>,
) -> Result<RecordPlan, SegmentError> {
    let (mut plan, mut merged) = (RecordPlan::default(), sides.parent.clone());
    for change in changes {
        let (action, both_changed) = plan_one(change, sides, &merged, strategy, &resolved)?;
        // Done at once, so that the next record that is kept twice does not get an id that this one was given.
        action.iter().try_for_each(|action| action.apply(&mut merged))?;
        plan.actions.extend(action);
        plan.both_changed.extend(both_changed);
    }
    Ok(plan)
}

/// Plans one record that the child changed. It has a decision if the parent changed it, too. `merged` is the result so
/// far: its ids are taken. [`SegmentError::Io`] or [`SegmentError::Damaged`] if a hash, or a version that is kept under
/// another id, can't be read.
pub fn plan_one(
    change: &RecordDifference,
    sides: &Sides<'_>,
    merged: &BranchVersion,
    strategy: Strategy,
    resolved: impl Fn(&Decision) -> Option<Side>,
) -> Result<(Option<Action>, Option<Decision>), SegmentError> {
    let mut item = decision_on(change, sides)?;
    let both_changed = item.parent != item.base;
    let taken = || Action::from_difference(change, sides.child);
    if !both_changed {
        return Ok((Some(taken()), None));
    }
    if strategy == Strategy::KeepBoth && item.base.is_none() && item.child != item.parent {
        // Without a base, both sides added the record: a child without it would have changed nothing.
        let id = free_id(&item.id, sides, merged)?;
        (item.decision, item.kept_as) = (Some(Side::Both), Some(id.clone()));
        return Ok((Action::keep_under_id(change, id)?, Some(item)));
    }
    item.decision = decide(&item, change, sides, strategy, resolved)?;
    Ok(((item.decision == Some(Side::Child)).then(taken), Some(item)))
}

/// Plans one record of which the child changed nothing but whether its vector is stale: its version is taken, unless the
/// parent has changed the record. No hash covers the flag, so it is neither counted nor a conflict.
/// [`SegmentError::Io`] or [`SegmentError::Damaged`] if a hash or a provenance can't be read.
pub fn plan_stale_flag(change: &RecordDifference, sides: &Sides<'_>) -> Result<Option<Action>, SegmentError> {
    let parent = sides.parent.find(&change.id)?;
    let (Some(base), Some(parent)) = (&change.old, &parent) else { return Ok(None) };
    let is_as_base =
        parent.hash()? == base.hash()? && parent.provenance()?.vector_stale == base.provenance()?.vector_stale;
    Ok(is_as_base.then(|| Action::from_difference(change, sides.child)))
}

/// Returns the id that a record of the child gets beside the parent's: one that neither side has, nor the result.
fn free_id(id: &str, sides: &Sides<'_>, merged: &BranchVersion) -> Result<Arc<str>, SegmentError> {
    let mut number = 1u64;
    loop {
        let end = if number == 1 { format!("~{}", sides.name) } else { format!("~{}~{number}", sides.name) };
        let candidate = with_suffix(id, &end);
        // All three are asked: the result may have lost an id that the parent has, and may get one of the child's later
        // on.
        if merged.find(&candidate)?.is_none()
            && sides.parent.find(&candidate)?.is_none()
            && sides.child.find(&candidate)?.is_none()
        {
            return Ok(candidate.into());
        }
        number += 1;
    }
}

static LONG_ID: Context = Context::new("engramfs 2026 long record id v1");

/// Appends to an id. One that gets too long is cut, and its hash keeps it unique.
fn with_suffix(id: &str, end: &str) -> String {
    if id.len() + end.len() <= RECORD_ID_BYTES_MAX {
        return format!("{id}{end}");
    }
    let hash = Hash::digest(&LONG_ID, id.as_bytes()).to_string();
    let end = format!("~{}{end}", &hash[..16]);
    let most = RECORD_ID_BYTES_MAX - end.len();
    // Cut at the end of a character, as a slice that ends within one would panic.
    let cut = id.char_indices().map(|(at, char)| at + char.len_utf8()).take_while(|at| *at <= most).last();
    format!("{}{end}", &id[..cut.unwrap_or(0)])
}

/// Returns the versions of a changed record on all sides, undecided. Hashes are compared, no content is read.
/// [`SegmentError::Io`] or [`SegmentError::Damaged`] if one of the hashes can't be read.
pub fn decision_on(change: &RecordDifference, sides: &Sides<'_>) -> Result<Decision, SegmentError> {
    let hash = |row: &Option<Row>| -> Result<Option<Hash>, SegmentError> { row.as_ref().map(Row::hash).transpose() };
    Ok(Decision {
        id: change.id.clone(),
        base: hash(&change.old)?,
        child: hash(&change.new)?,
        parent: hash(&sides.parent.find(&change.id)?)?,
        ..Decision::default()
    })
}

fn decide(
    item: &Decision,
    change: &RecordDifference,
    sides: &Sides<'_>,
    strategy: Strategy,
    resolved: impl Fn(&Decision) -> Option<Side>,
) -> Result<Option<Side>, SegmentError> {
    // Equal results contradict nothing: even under `manual` nobody has to be asked.
    if item.child == item.parent {
        return Ok(Some(Side::Both));
    }
    let [mut child, mut parent] = [Time::default(); 2];
    if strategy.later_wins() {
        child = changed_at(sides.child, &item.id, change.new.as_ref())?;
        parent = changed_at(sides.parent, &item.id, sides.parent.find(&item.id)?.as_ref())?;
    }
    Ok(strategy.winner(child, parent).or_else(|| resolved(item)))
}

/// When a side last changed a record: `modified`, or when it was deleted.
fn changed_at(state: &BranchVersion, id: &str, row: Option<&Row>) -> Result<Time, SegmentError> {
    match row {
        Some(row) => Ok(row.provenance()?.modified),
        None => Ok(state.deleted_at(id).unwrap_or_default()),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::branch::differences;
    use crate::record::{Provenance, RecordContent, Version};

    fn planned(sides: &Sides<'_>, strategy: Strategy, side: Option<Side>) -> RecordPlan {
        plan_records(&differences(sides.base, sides.child).unwrap(), sides, strategy, |_| side).unwrap()
    }

    /// Puts "x" into a state as of `time`: a text, or a delete. Whoever writes it has the text in all labels.
    fn with(base: &BranchVersion, value: Option<&str>, time: i64) -> BranchVersion {
        let mut state = base.clone();
        match value {
            None => {
                state.delete("x", Time(time)).unwrap();
            }
            Some(text) => {
                let content = RecordContent { vector: None, text: Some(text.into()), metadata: "{}".into() };
                let provenance = Provenance {
                    created: Time(time),
                    modified: Time(time),
                    branch: format!("branch of {text}").into(),
                    agent: format!("agent of {text}").into(),
                    session: format!("session of {text}").into(),
                    task: format!("task of {text}").into(),
                    uid: 1000 + u32::from(text.as_bytes()[0]),
                    vector_stale: false,
                };
                let version = Version::new("x".into(), content, provenance);
                state.put(Row::Unsealed(Arc::new(version))).unwrap();
            }
        }
        state
    }

    fn record_text(state: &BranchVersion) -> Option<String> {
        text_at(state, "x")
    }

    fn text_at(state: &BranchVersion, id: &str) -> Option<String> {
        state.find(id).unwrap().map(|row| row.version().unwrap().content.text.clone().unwrap().to_string())
    }

    /// One row of the truth table of docs/SEMANTICS.md.
    fn check(
        base: Option<&str>,
        child: Option<&str>,
        parent: Option<&str>,
        strategy: Strategy,
        expect: (Option<&str>, Option<Option<Side>>),
    ) {
        let empty = BranchVersion::default();
        let start = base.map_or(empty.clone(), |text| with(&empty, Some(text), 1));
        let side = |value: Option<&str>, time| if value == base { start.clone() } else { with(&start, value, time) };
        // The parent acts later than the child.
        let (child_state, parent_state) = (side(child, 10), side(parent, 20));
        let sides = Sides { base: &start, child: &child_state, parent: &parent_state, name: "x" };
        let plan = planned(&sides, strategy, None);
        let merged = plan.apply(&parent_state).unwrap();
        let name = format!("{base:?} × {child:?} × {parent:?} under {strategy}");
        assert_eq!(record_text(&merged).as_deref(), expect.0, "{name}");
        assert_eq!(plan.both_changed.first().map(|item| item.decision), expect.1, "{name}");
    }

    #[test]
    fn the_truth_table_holds_row_by_row() {
        use Strategy::{ChildWins, KeepBoth, Manual, NewestWins, ParentWins};
        let all = Strategy::ALL;
        let both = Some(Some(Side::Both));
        for strategy in all {
            // base, child, parent -> result: no conflict whatever the strategy.
            check(None, None, None, strategy, (None, None));
            check(None, Some("c"), None, strategy, (Some("c"), None));
            check(None, None, Some("p"), strategy, (Some("p"), None));
            check(None, Some("s"), Some("s"), strategy, (Some("s"), both));
            check(Some("b"), Some("b"), Some("b"), strategy, (Some("b"), None));
            check(Some("b"), Some("c"), Some("b"), strategy, (Some("c"), None));
            check(Some("b"), Some("b"), Some("p"), strategy, (Some("p"), None));
            check(Some("b"), Some("s"), Some("s"), strategy, (Some("s"), both));
            check(Some("b"), None, Some("b"), strategy, (None, None));
            check(Some("b"), Some("b"), None, strategy, (None, None));
            check(Some("b"), None, None, strategy, (None, both));
        }
        let conflicts = [
            (None, Some("c"), Some("p")),
            (Some("b"), Some("c"), Some("p")),
            (Some("b"), Some("c"), None),
            (Some("b"), None, Some("p")),
        ];
        for (base, child, parent) in conflicts {
            check(base, child, parent, ChildWins, (child, Some(Some(Side::Child))));
            check(base, child, parent, ParentWins, (parent, Some(Some(Side::Parent))));
            // The parent's change is the later one here.
            check(base, child, parent, NewestWins, (parent, Some(Some(Side::Parent))));
            let kept = if base.is_none() { Side::Both } else { Side::Parent };
            check(base, child, parent, KeepBoth, (parent, Some(Some(kept))));
            // Undecided: the plan is blocked, and nothing of the child is taken.
            check(base, child, parent, Manual, (parent, Some(None)));
        }
    }

    #[test]
    fn keep_both_gives_what_the_child_added_another_id() {
        let start = BranchVersion::default();
        let (child, parent) = (with(&start, Some("c"), 30), with(&start, Some("p"), 20));
        let sides = Sides { base: &start, child: &child, parent: &parent, name: "try" };
        let first = planned(&sides, Strategy::KeepBoth, None);
        let merged = first.apply(&parent).unwrap();
        assert_eq!((text_at(&merged, "x"), text_at(&merged, "x~try")), (Some("p".into()), Some("c".into())));
        let [item] = &first.both_changed[..] else { panic!("{:?}", first.both_changed) };
        assert_eq!(
            (item.decision, item.kept_as.as_deref(), item.is_conflict()),
            (Some(Side::Both), Some("x~try"), true)
        );
        let stamp = |state: &BranchVersion, id| state.find(id).unwrap().unwrap().provenance().unwrap();
        assert_eq!(stamp(&merged, "x~try"), stamp(&child, "x"), "it is whose it was, and as old");
        assert_eq!(stamp(&merged, "x"), stamp(&parent, "x"));
        assert_ne!(stamp(&child, "x"), Provenance { modified: Time(30), created: Time(30), ..stamp(&parent, "x") });
        // The parent has that id by now.
        let sides = Sides { parent: &merged, ..sides };
        let again = planned(&sides, Strategy::KeepBoth, None);
        assert_eq!(again.both_changed[0].kept_as.as_deref(), Some("x~try~2"));
    }

    #[test]
    fn an_id_that_gets_too_long_is_cut_and_stays_its_own() {
        let (one, other) = (format!("{}1", "ä".repeat(90)), format!("{}2", "ä".repeat(90)));
        let ends = [&one, &other].map(|id| with_suffix(id, &format!("~{}", "b".repeat(64))));
        assert_ne!(ends[0], ends[1]);
        for id in ends {
            crate::branch::check_record_id(&id).unwrap();
            assert!(id.starts_with("ää") && id.ends_with("bbb"), "{id}");
        }
        assert_eq!(with_suffix("a", "~b"), "a~b");
        let just_fits = "a".repeat(198);
        assert_eq!(with_suffix(&just_fits, "~b"), format!("{just_fits}~b"));
        let cut = with_suffix(&"a".repeat(199), "~b");
        assert_eq!((cut.len(), cut.starts_with(&just_fits)), (200, false), "{cut}");
    }

    #[test]
    fn newest_wins_by_time_and_a_tie_goes_to_the_child() {
        let start = with(&BranchVersion::default(), Some("b"), 1);
        for (child_time, parent_time, expect) in [(10, 20, Some("p")), (20, 10, Some("c")), (15, 15, Some("c"))] {
            let (child, parent) = (with(&start, Some("c"), child_time), with(&start, Some("p"), parent_time));
            let plan =
                planned(&Sides { base: &start, child: &child, parent: &parent, name: "x" }, Strategy::NewestWins, None);
            assert_eq!(record_text(&plan.apply(&parent).unwrap()).as_deref(), expect);
        }
        // Rows 12, 14 and 15, with the child as the later side.
        let empty = BranchVersion::default();
        for (base, child_text, parent_text) in
            [(&empty, Some("c"), Some("p")), (&start, Some("c"), None), (&start, None, Some("p"))]
        {
            let (child, parent) = (with(base, child_text, 30), with(base, parent_text, 20));
            let plan = planned(&Sides { base, child: &child, parent: &parent, name: "x" }, Strategy::NewestWins, None);
            assert_eq!(record_text(&plan.apply(&parent).unwrap()).as_deref(), child_text, "over {parent_text:?}");
        }
    }

    #[test]
    fn a_resolution_by_hand_unblocks_the_plan() {
        let start = with(&BranchVersion::default(), Some("b"), 1);
        let (child, parent) = (with(&start, Some("c"), 2), with(&start, Some("p"), 3));
        let sides = Sides { base: &start, child: &child, parent: &parent, name: "x" };
        assert!(planned(&sides, Strategy::Manual, None).is_blocked());
        let resolved = planned(&sides, Strategy::Manual, Some(Side::Child));
        assert!(!resolved.is_blocked());
        assert_eq!(record_text(&resolved.apply(&parent).unwrap()).as_deref(), Some("c"));
        assert_eq!(resolved.conflicts().count(), 1);
    }
}
