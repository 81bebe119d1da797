//! Making all vectors below a root branch anew, while those before serve.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::EmbedderSlot;
use super::collect::EmbeddingGoal;
use crate::memory::catalog::BranchId;
use crate::memory::{EmbedderError, Error, Memory};
use crate::object::Hash;

impl Memory {
    /// Starts making all vectors below a branch's root branch anew, with the embedder that is set. Queries use the old
    /// vectors until the new ones are complete, which an entry then says.
    ///
    /// Returns an object with `reembed` (`started`), `root`, the `embedder`'s name, its `dim`, and the number of
    /// `records` of the branch.
    ///
    /// Kind `Unsupported` if no embedder is set, `Busy` if it does not answer, `Invalid` if its vectors have another
    /// length than those already stored.
    pub fn reembed(&self, branch: BranchId) -> Result<Value, Error> {
        let catalog = self.catalog().clone();
        let branch = catalog.branch(branch)?;
        let root = catalog.branch(branch.root)?;
        let slot = self.maintenance.embedding.find_slot(root).ok_or(EmbedderError::NotSet)?;
        let identity = match slot.identity() {
            Ok(identity) => identity,
            Err(error) => {
                let reason = error.map_or_else(|| "it was not reached yet".to_owned(), |error| error.to_string());
                return Err(EmbedderError::NotReached(reason).into());
            }
        };
        if let Some(expected) = root.settings.dim().filter(|dim| *dim != identity.dim) {
            return Err(EmbedderError::Dimension { found: identity.dim, expected }.into());
        }
        slot.request_reembed(root.id);
        self.maintenance.embedding.note_change();
        Ok(json!({
            "reembed": "started", "root": &*root.name, "embedder": identity.name, "dim": identity.dim,
            "records": branch.state.totals().records,
        }))
    }

    /// Has a set count that is complete, where `reembed` asked for it; returns whether one does now. Fails like the
    /// entry; root branches before it have the set then.
    pub(super) fn finish_reembedding(&self, slot: &EmbedderSlot, goal: &EmbeddingGoal) -> Result<bool, Error> {
        let catalog = self.catalog().clone();
        let mut finished = false;
        for root in goal.roots.iter().filter(|root| slot.is_reembedding(**root)) {
            let Some(branch) = catalog.branches.get(root) else { continue };
            if catalog.embedder(branch)?.is_some_and(|record| record.derived_set() == goal.record.derived_set()) {
                // The goal is the set that counts already, not the one that `reembed` asked for.
                continue;
            }
            self.note_embedder(*root, &goal.record)?;
            slot.note_set_match(goal.record.derived_set(), true);
            slot.end_reembed(*root);
            finished = true;
        }
        if finished {
            self.drop_old_sets();
            self.maintenance.embedding.note_change();
        }
        Ok(finished)
    }

    /// Lets go of the vectors of sets that count nowhere and are not being made.
    fn drop_old_sets(&self) {
        let slots = self.maintenance.embedding.slots();
        let catalog = self.catalog().clone();
        let roots: Vec<_> = catalog.roots.values().filter_map(|root| catalog.branches.get(root)).collect();
        // A set in the making is named by no entry yet, so it would seem to count nowhere.
        if roots.iter().any(|root| slots.iter().any(|slot| slot.is_reembedding(root.id))) {
            return;
        }
        let live: HashSet<Hash> = roots
            .into_iter()
            .filter_map(|root| catalog.embedder(root).ok().flatten())
            .map(|record| record.derived_set())
            .collect();
        slots.iter().for_each(|slot| slot.drop_sets_unless(|set| live.contains(set)));
        self.storage.segments.list().iter().for_each(|segment| segment.derived().drop_unless(|set| live.contains(set)));
        let index = self.storage.file_index.segment_set();
        index.segments.iter().for_each(|segment| segment.derived().drop_unless(|set| live.contains(set)));
    }
}
