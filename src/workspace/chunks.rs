//! The chunks of one file by their number; numbers that are missing are holes.

use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use super::chunk::Chunk;

/// A persistent sparse list. Most files have one chunk or none, which need no map.
#[derive(Clone)]
pub(super) enum Chunks {
    /// Chunk 0, or nothing.
    First(Option<Chunk>),
    /// Any chunks.
    Many(OrdMap<u64, Chunk>),
}

impl Chunks {
    /// Returns a chunk, or nothing for a hole.
    pub fn get(&self, number: u64) -> Option<&Chunk> {
        match self {
            Chunks::First(chunk) => chunk.as_ref().filter(|_| number == 0),
            Chunks::Many(map) => map.get(&number),
        }
    }

    /// Returns a chunk to change it in its place; a hole becomes a chunk without bytes.
    pub fn get_mut(&mut self, number: u64) -> &mut Chunk {
        if let Chunks::First(first) = self
            && number != 0
        {
            *self = Chunks::Many(first.take().map(|chunk| (0u64, chunk)).into_iter().collect());
        }
        match self {
            Chunks::First(first) => first.get_or_insert(Chunk::Zeros(0)),
            Chunks::Many(map) => map.entry(number).or_insert(Chunk::Zeros(0)),
        }
    }

    /// Makes a hole; returns what was there.
    pub fn remove(&mut self, number: u64) -> Option<Chunk> {
        match self {
            Chunks::First(first) => first.take_if(|_| number == 0),
            Chunks::Many(map) => map.remove(&number),
        }
    }

    /// Returns the first chunk whose number is not below `from`.
    pub fn next(&self, from: u64) -> Option<(u64, &Chunk)> {
        match self {
            Chunks::First(first) => first.as_ref().filter(|_| from == 0).map(|chunk| (0, chunk)),
            Chunks::Many(map) => map.range(from..).next().map(|(number, chunk)| (*number, chunk)),
        }
    }

    /// Goes through all chunks in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Chunk)> {
        let (first, many) = match self {
            Chunks::First(first) => (first.as_ref(), None),
            Chunks::Many(map) => (None, Some(map)),
        };
        let many = many.into_iter().flat_map(|map| map.iter().map(|(number, chunk)| (*number, chunk)));
        first.map(|chunk| (0, chunk)).into_iter().chain(many)
    }

    /// Returns every number whose chunk is not the same in `newer`, in order, and the chunk there.
    pub fn differences<'a>(&'a self, newer: &'a Chunks) -> Vec<(u64, Option<&'a Chunk>)> {
        if let (Chunks::Many(old), Chunks::Many(new)) = (self, newer) {
            let item = |item| match item {
                DiffItem::Add(number, chunk) | DiffItem::Update { new: (number, chunk), .. } => (*number, Some(chunk)),
                DiffItem::Remove(number, _) => (*number, None),
            };
            return old.diff(new).map(item).collect();
        }
        // One of the two is a file of one chunk at most, so this costs what differs, too.
        let gone = self.iter().filter(|(number, _)| newer.get(*number).is_none()).map(|(number, _)| (number, None));
        let changed = newer.iter().filter(|(number, chunk)| self.get(*number) != Some(chunk));
        let mut all: Vec<_> = gone.chain(changed.map(|(number, chunk)| (number, Some(chunk)))).collect();
        all.sort_unstable_by_key(|(number, _)| *number);
        all
    }
}

impl Default for Chunks {
    fn default() -> Chunks {
        Chunks::First(None)
    }
}
