//! One embedder: what it is known as, what it made, and what it is asked to do.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::embed::{EmbedError, Embedder, EmbedderIdentity, TextKind};
use crate::memory::catalog::{BranchId, EmbedderRecord};
use crate::object::Hash;
use crate::record::DerivedVector;
use crate::search::DerivedVectors;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// One embedder: the root branches it serves, and what its thread shares with queries.
pub(in crate::memory) struct EmbedderSlot {
    root: Option<Arc<str>>,
    /// Makes the vectors; a call may take as long as its time limit.
    pub(super) embedder: Box<dyn Embedder>,
    state: Mutex<SlotState>,
    changed: Condvar,
}

#[derive(Default)]
struct SlotState {
    /// What it is; none until it answered, and again once it does not.
    identity: Option<Arc<EmbedderIdentity>>,
    /// Why it did not answer when it was last asked; none once it did.
    embed_error: Option<EmbedError>,
    /// Whether sets that entries name are of its vectors, as far as that was compared.
    set_matches: HashMap<Hash, bool>,
    sets: HashMap<Hash, DerivedVectors>,
    /// Texts that it refused: they are not sent again before the next mount, or a `reembed`.
    refused: HashSet<Hash>,
    reembed: HashSet<BranchId>,
    has_work: bool,
    is_busy: bool,
    stop: bool,
}

impl EmbedderSlot {
    /// Takes an embedder that was not asked what it is yet; `root` as for [`EmbedderSlot::root`].
    pub(super) fn new(root: Option<&str>, embedder: Box<dyn Embedder>) -> EmbedderSlot {
        EmbedderSlot { root: root.map(Arc::from), embedder, state: Mutex::default(), changed: Condvar::default() }
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock()
    }

    fn change(&self, change: impl FnOnce(&mut SlotState)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Returns the name of the root branch that it is for; `None` if it is for all.
    pub(super) fn root(&self) -> Option<&str> {
        self.root.as_deref()
    }

    /// Tells its thread that there may be something to do.
    pub(super) fn wake(&self) {
        self.change(|state| state.has_work = true);
    }

    /// Has its thread end, and nobody wait for it any longer.
    pub(super) fn stop(&self) {
        self.change(|state| state.stop = true);
    }

    /// Returns whether [`EmbedderSlot::stop`] was called, as long work asks between its parts.
    pub(super) fn is_stopping(&self) -> bool {
        self.lock().stop
    }

    /// Returns whether something was written since [`EmbedderSlot::clear_has_work`].
    pub(super) fn is_woken(&self) -> bool {
        self.lock().has_work
    }

    /// Waits for something to do; false to end. Only its thread calls it, which counts as idle meanwhile.
    pub(super) fn next(&self) -> bool {
        let mut state = self.lock();
        state.is_busy = false;
        self.changed.notify_all();
        let mut state = self.changed.wait_while(state, |state| !state.has_work && !state.stop);
        (state.has_work, state.is_busy) = (false, !state.stop);
        !state.stop
    }

    /// Forgets that something was written, before looking at all.
    pub(super) fn clear_has_work(&self) {
        self.lock().has_work = false;
    }

    /// Waits for that time, or until it is to end; false to end.
    pub(super) fn pause(&self, time: Duration) -> bool {
        let (state, _) = self.changed.wait_timeout_while(self.lock(), time, |state| !state.stop);
        !state.stop
    }

    /// Returns whether there may be texts without a vector: something was written, or is being looked at.
    pub(in crate::memory) fn is_working(&self) -> bool {
        let state = self.lock();
        state.has_work || state.is_busy
    }

    /// Waits until there is nothing to do, or the embedder does not answer.
    pub(super) fn wait_until_idle(&self) {
        let works =
            |state: &mut SlotState| (state.has_work || state.is_busy) && !state.stop && state.embed_error.is_none();
        drop(self.changed.wait_while(self.lock(), works));
    }

    /// Returns the embedder's identity, or why it does not answer. An error without a reason means that it has not
    /// answered yet.
    pub(in crate::memory) fn identity(&self) -> Result<Arc<EmbedderIdentity>, Option<EmbedError>> {
        let state = self.lock();
        match (&state.identity, &state.embed_error) {
            (Some(identity), None) => Ok(identity.clone()),
            (_, missing) => Err(missing.clone()),
        }
    }

    /// Notes what it is. Whether it still is what entries say has to be compared again.
    pub(super) fn set_identity(&self, identity: EmbedderIdentity) {
        self.change(|state| {
            (state.identity, state.embed_error) = (Some(Arc::new(identity)), None);
            state.set_matches.clear();
        });
    }

    /// Notes that the embedder does not answer. Once it does, its identity is checked.
    pub(in crate::memory) fn mark_unreachable(&self, error: EmbedError) {
        self.change(|state| {
            (state.identity, state.embed_error) = (None, Some(error));
            state.has_work = true;
        });
    }

    /// Returns the vector of a query, within a time limit. One of another length than `dim` is
    /// [`EmbedError::Unreachable`]: the embedder is then asked again what it is.
    pub(in crate::memory) fn embed_query(
        &self,
        text: &str,
        dim: usize,
        limit: Duration,
    ) -> Result<Vec<f32>, EmbedError> {
        let vector = self.embedder.embed(TextKind::Query, &[text], limit)?.pop().unwrap_or_default();
        if vector.len() == dim {
            return Ok(vector);
        }
        let error = EmbedError::Unreachable(format!("its vectors have {} numbers now, and had {dim}", vector.len()));
        self.mark_unreachable(error.clone());
        Err(error)
    }

    /// Notes whether it makes the vectors of a set, as its probe texts showed.
    pub(super) fn note_set_match(&self, set: Hash, is_match: bool) {
        self.change(|state| _ = state.set_matches.insert(set, is_match));
    }

    /// Returns whether a set is of its vectors; `None` if that was not compared yet.
    pub(in crate::memory) fn is_of_set(&self, set: &Hash) -> Option<bool> {
        self.lock().set_matches.get(set).copied()
    }

    /// Returns the vectors of a set, with none in memory where it has none.
    pub(in crate::memory) fn derived_vectors(&self, record: &EmbedderRecord) -> DerivedVectors {
        let set = record.derived_set();
        let known = self.lock().sets.get(&set).cloned();
        known.unwrap_or_else(|| DerivedVectors { embedder: set, dim: record.dim, recent: Default::default() })
    }

    /// Returns all sets that have, or had, vectors in memory.
    pub(super) fn sets(&self) -> Vec<DerivedVectors> {
        self.lock().sets.values().cloned().collect()
    }

    /// Takes vectors into a set, in memory until a file has them.
    pub(super) fn insert(&self, record: &EmbedderRecord, vectors: Vec<(Hash, Arc<DerivedVector>)>) {
        let none = || DerivedVectors { embedder: record.derived_set(), dim: record.dim, recent: Default::default() };
        self.change(|state| state.sets.entry(record.derived_set()).or_insert_with(none).recent.extend(vectors));
    }

    /// Lets go of vectors that are in files.
    pub(super) fn remove_written(&self, set: &Hash, texts: impl Iterator<Item = Hash>) {
        let mut state = self.lock();
        if let Some(vectors) = state.sets.get_mut(set) {
            texts.for_each(|text| _ = vectors.recent.remove(&text));
        }
    }

    /// Drops the vectors that it keeps in memory for sets of which `keep` says no.
    pub(super) fn drop_sets_unless(&self, keep: impl Fn(&Hash) -> bool) {
        self.lock().sets.retain(|set, _| keep(set));
    }

    /// Notes a text that it will not embed, so that it is not asked again before the next mount, or a `reembed`.
    pub(super) fn note_refused(&self, text: Hash) {
        self.lock().refused.insert(text);
    }

    /// Returns whether it refused a text, since it was last asked to embed all anew.
    pub(super) fn is_refused(&self, text: &Hash) -> bool {
        self.lock().refused.contains(text)
    }

    /// Asks for all vectors below a root branch to be made anew; texts that were refused are tried again.
    pub(super) fn request_reembed(&self, root: BranchId) {
        self.change(|state| {
            state.reembed.insert(root);
            state.refused.clear();
            state.has_work = true;
        });
    }

    /// Returns whether all vectors below a root branch are being made anew.
    pub(in crate::memory) fn is_reembedding(&self, root: BranchId) -> bool {
        self.lock().reembed.contains(&root)
    }

    /// Notes that all vectors below a root branch were made anew.
    pub(super) fn end_reembed(&self, root: BranchId) {
        self.lock().reembed.remove(&root);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Silent;

    impl Embedder for Silent {
        fn name(&self) -> &str {
            "silent"
        }

        fn description(&self) -> &[u8] {
            b""
        }

        fn batch_texts_max(&self) -> usize {
            1
        }

        fn embed(&self, _: TextKind, _: &[&str], _: Duration) -> Result<Vec<Vec<f32>>, EmbedError> {
            Err(EmbedError::TimedOut(1))
        }
    }

    #[test]
    fn sets_that_are_not_kept_are_dropped_from_memory() {
        let slot = EmbedderSlot::new(None, Box::new(Silent));
        let records = [0, 1].map(|generation| EmbedderRecord::new("silent", 2, b"", Vec::new(), generation));
        let vector = Arc::new(DerivedVector::new(vec![1.0, 2.0]));
        for record in &records {
            slot.insert(record, vec![(Hash([1; 32]), vector.clone())]);
        }
        assert_eq!(slot.sets().len(), 2);
        let kept = records[1].derived_set();
        slot.drop_sets_unless(|set| *set == kept);
        assert_eq!(slot.sets().iter().map(|set| set.embedder).collect::<Vec<_>>(), [kept]);
        assert_eq!(
            (slot.derived_vectors(&records[0]).recent.len(), slot.derived_vectors(&records[1]).recent.len()),
            (0, 1)
        );
    }
}
