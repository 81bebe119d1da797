//! Derived vectors: what makes vectors of the texts of records behind the writers' backs, where they are kept, and when
//! they count.
//!
//! Each embedder has a thread. Vectors of unsealed versions are in memory, found by the text's hash; those of a
//! segment's rows are in a file beside it, as its graph is, which a seal writes and the thread for older segments. The same
//! goes for passages of files and the segments of their index.
//! Both are shared by all branches. A vector belongs to a *set*: what one embedder made in one generation. The set that
//! counts below a root branch is named in a signed entry; `reembed` makes another one beside it, and then has that
//! count.

mod batch;
mod collect;
mod passages;
mod reembed;
mod slot;
mod status;
mod worker;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(in crate::memory) use slot::EmbedderSlot;
pub(in crate::memory) use status::{EmbeddingStatus, Obstacle};

use crate::embed::Embedder;
use crate::memory::Memory;
use crate::memory::catalog::Branch;
use crate::sync::Mutex;

/// All embedders of a store: one for each root branch that has its own, and one for the others.
#[derive(Default)]
pub(in crate::memory) struct Embedders {
    slots: Mutex<Vec<Arc<EmbedderSlot>>>,
    change_count: AtomicU64,
}

impl Embedders {
    /// Returns all that were set since the store was opened; none is ever taken out.
    pub fn slots(&self) -> Vec<Arc<EmbedderSlot>> {
        self.slots.lock().clone()
    }

    /// Returns the embedder of a root branch: its own, or that of all which have none of their own.
    pub fn find_slot(&self, root: &Branch) -> Option<Arc<EmbedderSlot>> {
        let slots = self.slots.lock();
        let named = slots.iter().find(|slot| slot.root() == Some(&*root.name));
        named.or_else(|| slots.iter().find(|slot| slot.root().is_none())).cloned()
    }

    /// Makes all embedders look for texts without a vector. Does not wait.
    pub fn wake(&self) {
        self.slots().iter().for_each(|slot| slot.wake());
    }

    /// Tells the threads to end, each after the batch at hand.
    pub fn stop(&self) {
        self.slots().iter().for_each(|slot| slot.stop());
    }

    /// Returns a number that grows as the work goes on: a cached `status` with a smaller one is outdated.
    pub fn change_count(&self) -> u64 {
        self.change_count.load(Ordering::Acquire)
    }

    fn note_change(&self) {
        self.change_count.fetch_add(1, Ordering::AcqRel);
    }
}

impl Memory {
    /// Sets the embedder of the root branch with this name, or with `None` of all root branches without one of their
    /// own, and starts the thread that embeds in the background. It replaces one that was set for the same.
    pub fn set_embedder(self: &Arc<Self>, root: Option<&str>, embedder: Box<dyn Embedder>) {
        let slot = Arc::new(EmbedderSlot::new(root, embedder));
        let replaced: Vec<_> = {
            let mut slots = self.maintenance.embedding.slots.lock();
            let replaced = slots.extract_if(.., |before| before.root() == root).collect();
            slots.push(slot.clone());
            replaced
        };
        // Not while the list is locked, since each slot has a lock of its own.
        replaced.iter().for_each(|slot| slot.stop());
        slot.wake();
        worker::start(self, slot);
    }

    /// Blocks until every text that can be embedded is, or the embedder does not answer. There is no time limit.
    pub fn wait_until_embedded(&self) {
        self.maintenance.embedding.slots().iter().for_each(|slot| slot.wait_until_idle());
    }
}
