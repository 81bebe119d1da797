//! The hash of a plan: over what a merge takes and decides. It stays the same while the other branch goes on without
//! touching that, so that somebody can agree to a merge that is done later.
//!
//! What joined lines come to is not in it, and neither are times and who merges.

use std::sync::Arc;

use crate::lineage::{Decision, Side};
use crate::memory::catalog::settings::Setting;
use crate::memory::catalog::{Branch, BranchId};
use crate::object::{Context, Hash, Hasher};

static CONTEXT: Context = Context::new("engramfs 2026 merge plan v1");

/// What of a plan is hashed. Where anything else changes, an approval still holds.
pub struct PlanParts<'a> {
    /// Hashes of what is taken, in a fixed order, or one plan would have several hashes.
    pub taken: &'a [Hash],
    /// Everything that both sides changed; of records the decisions are in `taken` already.
    pub both_changed: &'a [Decision],
    /// The paths that a rule left out, each with `files/` in front.
    pub not_merged: &'a [Arc<str>],
    /// The branch whose settings count: the one that receives.
    pub receiver: &'a Branch,
    /// The branch that is merged or pulls, so that the same change in another branch is another plan.
    pub child: BranchId,
}

impl PlanParts<'_> {
    /// Returns the plan's hash. It depends neither on times nor on who merges.
    pub fn hash(&self) -> Hash {
        let mut hasher = Hasher::new(&CONTEXT);
        // Each list begins with its length, so that no element can pass from one list to the next under the same hash.
        add_count(&mut hasher, self.taken.len());
        self.taken.iter().for_each(|hash| hasher.update(&hash.0));
        // Those of records are in what is taken, at their places.
        let on_files = || self.both_changed.iter().filter(|decision| decision.is_file());
        add_count(&mut hasher, on_files().count());
        on_files().for_each(|decision| add_decision(&mut hasher, decision));
        add_count(&mut hasher, self.not_merged.len());
        self.not_merged.iter().for_each(|path| hasher.field(path.as_bytes()));
        // Settings decide what a merge does later, too, so an agreement must not outlive a change of one of them.
        for setting in [Setting::Strategy, Setting::Rules, Setting::Gate] {
            hasher.field(self.receiver.settings.get(setting).as_bytes());
        }
        hasher.update(&self.child.0.to_le_bytes());
        hasher.finish()
    }
}

fn add_count(hasher: &mut Hasher, count: usize) {
    hasher.update(&(count as u64).to_le_bytes());
}

/// Adds a change that the merge takes without a decision: its name, and what base and child have.
pub fn add_change(hasher: &mut Hasher, name: &[u8], versions: [Option<Hash>; 2]) {
    hasher.field(name);
    // Zero stands for "taken without a decision"; `add_decision` begins at 1, so the two can't be mistaken for each
    // other.
    hasher.update(&[0]);
    versions.into_iter().for_each(|version| hasher.update(&version.unwrap_or(Hash::ZERO).0));
}

/// Adds what both sides changed: its name, all three versions and the decision.
pub fn add_decision(hasher: &mut Hasher, decision: &Decision) {
    hasher.field(decision.id.as_bytes());
    hasher.update(&[match decision.decision {
        None => 1,
        Some(Side::Child) => 2,
        Some(Side::Parent) => 3,
        Some(Side::Both) => 4,
    }]);
    hasher.field(decision.kept_as.as_deref().unwrap_or_default().as_bytes());
    for version in [decision.base, decision.child, decision.parent] {
        hasher.update(&version.unwrap_or(Hash::ZERO).0);
    }
}
