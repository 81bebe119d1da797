//! The chunks of one file by their number; numbers that are missing are holes.
//!
//! Whole chunks of zeros that take up space, one after the other, are one run: what fallocate(2) reserves costs the
//! same whatever its length.

use std::ops::Range;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use super::chunk::{CHUNK_BYTES, Chunk};

static WHOLE: Chunk = Chunk::Zeros(CHUNK_BYTES as u32);

/// The piece at a number.
#[derive(Clone, PartialEq)]
pub(super) enum Piece {
    /// A chunk of any kind, at that number alone.
    One(Chunk),
    /// So many whole chunks of zeros, from that number on.
    Run(u64),
}

/// A persistent sparse list. Most files have one chunk or none, which need no map.
#[derive(Clone)]
pub(super) enum Chunks {
    /// Chunk 0, or nothing.
    First(Option<Chunk>),
    /// Any chunks. No two pieces overlap.
    Many(OrdMap<u64, Piece>),
}

impl Piece {
    /// Returns how many numbers it covers.
    fn count(&self) -> u64 {
        match self {
            Piece::One(_) => 1,
            Piece::Run(count) => *count,
        }
    }

    fn chunk(&self) -> &Chunk {
        match self {
            Piece::One(chunk) => chunk,
            Piece::Run(_) => &WHOLE,
        }
    }

    /// Returns how many bytes it takes up, in whole blocks.
    pub fn allocated_bytes(&self) -> u64 {
        self.chunk().allocated_bytes() * self.count()
    }
}

impl Chunks {
    /// Returns a chunk, or `None` for a hole.
    pub fn get(&self, number: u64) -> Option<&Chunk> {
        match self {
            Chunks::First(chunk) => chunk.as_ref().filter(|_| number == 0),
            Chunks::Many(map) => find_covering(map, number).map(|(_, piece)| piece.chunk()),
        }
    }

    /// Returns the number behind the run that a number is in; `None` if it is in no run.
    pub fn run_end(&self, number: u64) -> Option<u64> {
        let Chunks::Many(map) = self else { return None };
        match find_covering(map, number)? {
            (start, Piece::Run(count)) => Some(start + count),
            (_, Piece::One(_)) => None,
        }
    }

    /// Returns a chunk for changes in place. A hole becomes an empty chunk.
    pub fn get_mut(&mut self, number: u64) -> &mut Chunk {
        if number != 0 {
            self.make_map();
        }
        match self {
            Chunks::First(first) => first.get_or_insert(Chunk::Zeros(0)),
            Chunks::Many(map) => {
                if split(map, number) {
                    // The run may go on behind the chunk, which is cut out of it on both sides.
                    split(map, number + 1);
                    map.insert(number, Piece::One(WHOLE.clone()));
                }
                match map.entry(number).or_insert(Piece::One(Chunk::Zeros(0))) {
                    Piece::One(chunk) => chunk,
                    Piece::Run(_) => unreachable!("the run was taken apart above"),
                }
            }
        }
    }

    /// Makes a hole; returns what was there, `None` if there was a hole already.
    pub fn remove(&mut self, number: u64) -> Option<Chunk> {
        match self {
            Chunks::First(first) => first.take_if(|_| number == 0),
            Chunks::Many(map) => {
                split(map, number);
                split(map, number + 1);
                map.remove(&number).map(|piece| piece.chunk().clone())
            }
        }
    }

    /// Makes a range a hole; returns how many bytes of it took up room before.
    pub fn clear(&mut self, range: Range<u64>) -> u64 {
        if let Chunks::First(first) = self {
            return first.take_if(|_| range.contains(&0)).map_or(0, |chunk| chunk.allocated_bytes());
        }
        let map = self.make_map();
        // Runs that reach over an end are cut in two, so that the range covers whole pieces.
        split(map, range.start);
        split(map, range.end);
        let numbers: Vec<u64> = map.range(range).map(|(number, _)| *number).collect();
        numbers.into_iter().filter_map(|number| map.remove(&number)).map(|piece| piece.allocated_bytes()).sum()
    }

    /// Makes all of a range take up space; returns how many bytes more it does.
    pub fn fill(&mut self, range: Range<u64>) -> u64 {
        let (mut at, mut more) = (range.start, 0);
        while at < range.end {
            if let Some(end) = self.run_end(at) {
                at = end;
            } else if let Some(chunk) = self.get(at) {
                if chunk.length() == CHUNK_BYTES as u32 {
                    at += 1;
                    continue;
                }
                let chunk = self.get_mut(at);
                let before = chunk.allocated_bytes();
                chunk.extend_to(CHUNK_BYTES as u32);
                more += chunk.allocated_bytes() - before;
                at += 1;
            } else {
                let end = self.next(at).map_or(range.end, |(next, _)| next.min(range.end));
                // The run ends where the next piece begins, since no two pieces may overlap.
                let run = Piece::Run(end - at);
                more += run.allocated_bytes();
                self.make_map().insert(at, run);
                at = end;
            }
        }
        more
    }

    /// Returns the first chunk whose number is not below `from`, with its number; none after the last.
    pub fn next(&self, from: u64) -> Option<(u64, &Chunk)> {
        match self {
            Chunks::First(first) => first.as_ref().filter(|_| from == 0).map(|chunk| (0, chunk)),
            Chunks::Many(map) => find_covering(map, from)
                .map(|(_, piece)| (from, piece))
                .or_else(|| map.range(from..).next().map(|(number, piece)| (*number, piece)))
                .map(|(number, piece)| (number, piece.chunk())),
        }
    }

    /// Iterates over all chunks in order but those in runs, which hold no bytes.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Chunk)> {
        let (first, many) = match self {
            Chunks::First(first) => (first.as_ref(), None),
            Chunks::Many(map) => (None, Some(map)),
        };
        let many = many.into_iter().flat_map(|map| map.iter());
        let ones = many.filter_map(|(number, piece)| match piece {
            Piece::One(chunk) => Some((*number, chunk)),
            Piece::Run(_) => None,
        });
        first.map(|chunk| (0, chunk)).into_iter().chain(ones)
    }

    /// Returns the piece at exactly that number: `None` if a run that began before it covers it.
    fn piece(&self, number: u64) -> Option<Piece> {
        match self {
            Chunks::First(chunk) => chunk.clone().filter(|_| number == 0).map(Piece::One),
            Chunks::Many(map) => map.get(&number).cloned(),
        }
    }

    fn pieces(&self) -> Vec<(u64, Piece)> {
        match self {
            Chunks::First(chunk) => chunk.iter().map(|chunk| (0, Piece::One(chunk.clone()))).collect(),
            Chunks::Many(map) => map.iter().map(|(number, piece)| (*number, piece.clone())).collect(),
        }
    }

    /// Returns every number at which `newer` has another piece, in order, and the piece there.
    pub fn differences(&self, newer: &Chunks) -> Vec<(u64, Option<Piece>)> {
        if let (Chunks::Many(old), Chunks::Many(new)) = (self, newer) {
            let item = |item| match item {
                DiffItem::Add(number, piece) | DiffItem::Update { new: (number, piece), .. } => {
                    (*number, Some(Piece::clone(piece)))
                }
                DiffItem::Remove(number, _) => (*number, None),
            };
            return old.diff(new).map(item).collect();
        }
        // One of the two is a file of one chunk at most, so this costs what differs, too.
        let old = self.pieces().into_iter().map(|(number, _)| number);
        let gone = old.filter(|number| newer.piece(*number).is_none()).map(|number| (number, None));
        let is_other = |(number, piece): &(u64, Piece)| self.piece(*number).as_ref() != Some(piece);
        let changed = newer.pieces().into_iter().filter(is_other).map(|(number, piece)| (number, Some(piece)));
        let mut all: Vec<_> = gone.chain(changed).collect();
        all.sort_unstable_by_key(|(number, _)| *number);
        all
    }

    /// Puts pieces at their numbers, as [`Chunks::differences`] gave them. Returns the bytes that all take up, or
    /// `None` if two overlap.
    pub fn apply_differences(&mut self, pieces: Vec<(u64, Option<Piece>)>) -> Option<u64> {
        let is_small = |(number, piece): &(u64, Option<Piece>)| *number == 0 && !matches!(piece, Some(Piece::Run(_)));
        if matches!(self, Chunks::First(_)) && pieces.iter().all(is_small) {
            for (_, piece) in pieces {
                *self = Chunks::First(piece.map(|piece| piece.chunk().clone()));
            }
        } else {
            let map = self.make_map();
            for (number, piece) in pieces {
                match piece {
                    Some(piece) => map.insert(number, piece),
                    None => map.remove(&number),
                };
            }
        }
        // All pieces are looked at: a new run may reach over one that the base had.
        let (mut end, mut space) = (0, 0);
        for (number, piece) in self.pieces() {
            if number < end {
                return None;
            }
            end = number + piece.count();
            space += piece.allocated_bytes();
        }
        Some(space)
    }

    fn make_map(&mut self) -> &mut OrdMap<u64, Piece> {
        if let Chunks::First(first) = self {
            *self = Chunks::Many(first.take().map(|chunk| (0u64, Piece::One(chunk))).into_iter().collect());
        }
        match self {
            Chunks::Many(map) => map,
            Chunks::First(_) => unreachable!("it was made a map above"),
        }
    }
}

impl Default for Chunks {
    fn default() -> Chunks {
        Chunks::First(None)
    }
}

/// Returns the piece that covers a number, and where it begins.
fn find_covering(map: &OrdMap<u64, Piece>, number: u64) -> Option<(u64, &Piece)> {
    let (start, piece) = map.range(..=number).next_back()?;
    (number < start + piece.count()).then_some((*start, piece))
}

/// Makes two runs of one that a number is in the middle of; returns whether it was in one.
fn split(map: &mut OrdMap<u64, Piece>, number: u64) -> bool {
    let Some((start, Piece::Run(count))) = find_covering(map, number).map(|(start, piece)| (start, piece.clone()))
    else {
        return false;
    };
    if start < number {
        map.insert(start, Piece::Run(number - start));
        map.insert(number, Piece::Run(start + count - number));
    }
    true
}
