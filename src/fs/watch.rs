//! `events.jsonl`: grows under its readers, and poll(2) tells when.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::common::Place;
use super::errno::Failure;
use super::handle::{File, part};
use crate::memory::Document;

/// A handle on the events of a branch. It counts as readable while there is more than it has seen.
pub(super) struct EventsFile {
    place: Place,
    seen: AtomicU64,
}

impl EventsFile {
    pub fn new(place: Place) -> EventsFile {
        EventsFile { place, seen: AtomicU64::new(0) }
    }

    fn events(&self) -> Result<Arc<[u8]>, Failure> {
        Ok(self.place.memory().document(&self.place.view, Document::Events)?)
    }
}

impl File for EventsFile {
    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Failure> {
        let bytes = part(&self.events()?, offset, size);
        self.seen.fetch_max(offset + bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes)
    }

    /// The kernel asks for the length by handle when somebody seeks to the end. He has then seen
    /// what is before it, and a poll(2) that called that readable would never block.
    fn length(&self) -> Option<u64> {
        let length = self.events().ok()?.len() as u64;
        self.seen.fetch_max(length, Ordering::Relaxed);
        Some(length)
    }

    fn is_readable(&self) -> bool {
        self.events().is_ok_and(|events| events.len() as u64 > self.seen.load(Ordering::Relaxed))
    }
}
