//! The thread of an embedder.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::EmbedderSlot;
use super::batch::{BatchEmbedder, DOCUMENTS_TIMEOUT, KeyedText};
use super::collect::{EmbeddingGoal, EmbeddingTask};
use crate::embed::{EmbedError, EmbedderIdentity, vectors_match};
use crate::memory::catalog::{BranchId, Catalog, EmbedderRecord};
use crate::memory::transaction::commands::NoteEmbedder;
use crate::memory::{Error, Memory};
use crate::object::Hash;
use crate::segment::Segment;

/// How long is waited before an embedder that did not answer is asked again, at first and at most.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Vectors of a segment that are worth a file before all are there, if they are one in so many of those in the file before.
pub(super) const UNWRITTEN_MIN: usize = 4096;
const UNWRITTEN_ONE_IN: usize = 4;

/// What stopped the work: of the two only the embedder's failure is told to queries.
enum Interruption {
    Embedder(EmbedError),
    Store(Error),
}

impl From<Error> for Interruption {
    fn from(error: Error) -> Interruption {
        Interruption::Store(error)
    }
}

/// What the thread remembers between two steps.
struct EmbeddingWorker {
    memory: Weak<Memory>,
    slot: Arc<EmbedderSlot>,
    /// The segment at hand, and how many of its vectors are in memory alone.
    unwritten: Option<(Hash, usize)>,
    /// Files were written that no manifest names yet.
    has_unpublished: bool,
}

/// Starts the thread; it ends with the store. Where none can be started the slot counts as not reached.
pub(super) fn start(memory: &Arc<Memory>, slot: Arc<EmbedderSlot>) {
    let mut worker =
        EmbeddingWorker { memory: Arc::downgrade(memory), slot: slot.clone(), unwritten: None, has_unpublished: false };
    let life = move || {
        if let Err(error) = rustix::process::nice(10) {
            log::debug!("texts are embedded at the usual priority: {error}");
        }
        let mut retry = RETRY_MIN;
        while worker.slot.next() {
            match catch_unwind(AssertUnwindSafe(|| worker.work())) {
                Ok(Ok(())) => retry = RETRY_MIN,
                Ok(Err(interruption)) => {
                    // Noted before the pause, so that queries are told at once what is the matter.
                    worker.note_interruption(interruption);
                    if !worker.slot.pause(retry) {
                        return;
                    }
                    retry = (retry * 2).min(RETRY_MAX);
                }
                Err(_) => {
                    log::error!("embedding ended in an internal error and is tried again later");
                    if !worker.slot.pause(RETRY_MAX) {
                        return;
                    }
                }
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("embedder".to_owned()).spawn(life) {
        log::warn!("texts are not embedded, queries go by words: {error}");
        slot.mark_unreachable(EmbedError::Unreachable(error.to_string()));
        slot.stop();
    }
}

impl EmbeddingWorker {
    fn note_interruption(&self, interruption: Interruption) {
        match interruption {
            Interruption::Embedder(error) => {
                log::warn!("{error}; {}", error.hint());
                self.slot.mark_unreachable(error);
                if let Some(memory) = self.memory.upgrade() {
                    memory.maintenance.embedding.note_change();
                }
            }
            Interruption::Store(_) if self.slot.is_stopping() => {}
            Interruption::Store(error) => {
                log::warn!("derived vectors are not kept now, and tried again: {error}; {}", error.hint());
                self.slot.wake();
            }
        }
    }

    /// Works until there is nothing left to do, then has a manifest name what it wrote.
    fn work(&mut self) -> Result<(), Interruption> {
        if self.slot.identity().is_err() {
            let identity =
                EmbedderIdentity::probe(&*self.slot.embedder, DOCUMENTS_TIMEOUT).map_err(Interruption::Embedder)?;
            self.slot.set_identity(identity);
        }
        loop {
            self.slot.clear_has_work();
            let Some(memory) = self.memory.upgrade() else { return Ok(()) };
            let goals = memory.embedding_goals(&self.slot)?;
            memory.maintenance.embedding.note_change();
            // The embedder may take minutes, and the store could not be closed meanwhile.
            drop(memory);
            for goal in &goals {
                self.embed_set(goal)?;
            }
            if self.slot.is_stopping() || !self.slot.is_woken() {
                break;
            }
        }
        self.publish_files()
    }

    /// Embeds all texts for one set. New texts of other sets come in between at its end.
    fn embed_set(&mut self, goal: &EmbeddingGoal) -> Result<(), Interruption> {
        loop {
            let Some(memory) = self.memory.upgrade().filter(|_| !self.slot.is_stopping()) else { return Ok(()) };
            match memory.next_embedding(&self.slot, goal)? {
                None => {
                    if memory.finish_reembedding(&self.slot, goal)? {
                        self.has_unpublished = true;
                    }
                    return Ok(());
                }
                Some(EmbeddingTask::Write(segment)) => {
                    memory.write_derived(&self.slot, goal, &segment)?;
                    (self.unwritten, self.has_unpublished) = (None, true);
                }
                Some(EmbeddingTask::WritePassages(segment)) => {
                    memory.write_passages(&self.slot, goal, &segment)?;
                    self.has_unpublished = true;
                }
                Some(EmbeddingTask::Embed(texts, segment)) => {
                    drop(memory);
                    // Forgotten before the work: what is written from now on interrupts it.
                    self.slot.clear_has_work();
                    let count = self.embed(goal, &texts)?;
                    if let Some(segment) = segment {
                        self.count_unwritten(goal, &segment, count)?;
                    }
                }
            }
        }
    }

    /// Embeds texts in batches, each of which counts at once; stops where something was written meanwhile. The store is
    /// not held while the embedder works.
    fn embed(&self, goal: &EmbeddingGoal, texts: &[KeyedText]) -> Result<usize, Interruption> {
        let progress = || {
            if let Some(memory) = self.memory.upgrade() {
                memory.maintenance.embedding.note_change();
            }
        };
        let embedder = BatchEmbedder { slot: &self.slot, record: &goal.record, progress: &progress };
        let mut count = 0;
        for batch in texts.chunks(self.slot.embedder.batch_texts_max()) {
            count += embedder.embed(batch).map_err(Interruption::Embedder)?;
            if self.slot.is_woken() || self.slot.is_stopping() {
                break;
            }
        }
        Ok(count)
    }

    /// Writes what there is of a large segment from time to time, so that a crash costs part of the work.
    fn count_unwritten(
        &mut self,
        goal: &EmbeddingGoal,
        segment: &Arc<Segment>,
        count: usize,
    ) -> Result<(), Interruption> {
        let before = self.unwritten.filter(|(name, _)| *name == segment.name()).map_or(0, |(_, count)| count);
        let unwritten = before + count;
        let there = segment.derived().get(&goal.record.derived_set()).map_or(0, |file| file.counts().embedded as usize);
        self.unwritten = Some((segment.name(), unwritten));
        if unwritten >= UNWRITTEN_MIN.max(there / UNWRITTEN_ONE_IN)
            && let Some(memory) = self.memory.upgrade()
        {
            memory.write_derived(&self.slot, goal, segment)?;
            (self.unwritten, self.has_unpublished) = (None, true);
            drop(memory);
            self.publish_files()?;
        }
        Ok(())
    }

    /// Has a manifest name the files that were written, by a seal; no other opening would find them.
    fn publish_files(&mut self) -> Result<(), Interruption> {
        if self.has_unpublished
            && let Some(memory) = self.memory.upgrade().filter(|_| !self.slot.is_stopping())
        {
            memory.seal()?;
            self.has_unpublished = false;
        }
        Ok(())
    }
}

impl Memory {
    /// Returns the sets that an embedder works for, and makes it known where none was.
    fn embedding_goals(&self, slot: &EmbedderSlot) -> Result<Vec<EmbeddingGoal>, Error> {
        let (Ok(identity), false) = (slot.identity(), self.is_read_only()) else {
            self.compare_embedder(slot);
            return Ok(Vec::new());
        };
        let mut goals: Vec<EmbeddingGoal> = Vec::new();
        let mut add = |record: EmbedderRecord, root: BranchId| match goals
            .iter_mut()
            .find(|it| it.record.derived_set() == record.derived_set())
        {
            Some(goal) => goal.roots.push(root),
            None => goals.push(EmbeddingGoal { record, roots: vec![root] }),
        };
        for root in self.embedder_roots(slot) {
            // Anew for each root branch: recording an embedder changes the catalog.
            let catalog = self.catalog().clone();
            let Some(branch) = catalog.branches.get(&root) else { continue };
            if branch.settings.dim().is_some_and(|dim| dim != identity.dim) {
                continue;
            }
            let fresh = |generation| {
                EmbedderRecord::new(
                    &identity.name,
                    identity.dim,
                    &identity.description,
                    identity.probes.clone(),
                    generation,
                )
            };
            let Some(record) = whole_record(&catalog, root) else {
                let record = fresh(0);
                self.note_embedder(root, &record)?;
                slot.note_set_match(record.derived_set(), true);
                add(record, root);
                continue;
            };
            let same = record.identity == fresh(0).identity && vectors_match(&record.probes, &identity.probes);
            slot.note_set_match(record.derived_set(), same);
            // While vectors are made anew the set that is there is kept up, so that searches still have it.
            let generation = record.generation + 1;
            if same {
                add(record, root);
            }
            if slot.is_reembedding(root) {
                add(fresh(generation), root);
            }
        }
        Ok(goals)
    }

    /// Tells an embedder whether it is what entries say, where nothing can be written.
    fn compare_embedder(&self, slot: &EmbedderSlot) {
        let (catalog, Ok(identity)) = (self.catalog().clone(), slot.identity()) else { return };
        for record in self.embedder_roots(slot).into_iter().filter_map(|root| whole_record(&catalog, root)) {
            let now = EmbedderRecord::new("", identity.dim, &identity.description, Vec::new(), 0);
            let same = record.identity == now.identity && vectors_match(&record.probes, &identity.probes);
            slot.note_set_match(record.derived_set(), same);
        }
    }

    /// Returns the root branches that an embedder is for.
    fn embedder_roots(&self, slot: &EmbedderSlot) -> Vec<BranchId> {
        let catalog = self.catalog().clone();
        let roots = catalog.roots.values().filter_map(|root| catalog.branches.get(root));
        let is_its = |found: Option<Arc<EmbedderSlot>>| found.is_some_and(|it| std::ptr::eq(&*it, slot));
        roots.filter(|root| is_its(self.maintenance.embedding.find_slot(root))).map(|root| root.id).collect()
    }

    /// Has the vectors of an embedder count below a root branch, by a signed entry. Fails like any change, and with
    /// `Gone` if the root branch has ended.
    pub(super) fn note_embedder(&self, root: BranchId, record: &EmbedderRecord) -> Result<(), Error> {
        let command = || Ok(NoteEmbedder { root, value: record.to_text().into() });
        self.transact(&self.environment.owner, &[Some(root)], command).map(drop)
    }
}

fn whole_record(catalog: &Catalog, root: BranchId) -> Option<EmbedderRecord> {
    use crate::memory::catalog::settings::Setting;
    EmbedderRecord::parse(catalog.branches.get(&root)?.settings.get(Setting::Embedder))
}
