//! The frozen graph as bytes: writing, opening, and reading one list.

use super::adjacency::{Adjacency, Level};

// All numbers are little-endian. Sections follow one another in this order, each at the next
// multiple of 64, so that nothing but the counts in the header needs to be stored.
//
//   0    8  magic
//   8    4  version
//  12    4  rows
//  16    4  levels, 1 to 16
//  20    4  entry: the place in the top level where a walk begins
//  24    8  bytes in all
//  32  128  for each level, from 0: members (u32), links (u32); zero beyond the top
// 192       level 0: offsets, (rows + 1) * u32; then links, as row numbers
//           level 1: members, the rows of the level, ascending; offsets; links, as places in members
//           level 2: as level 1, and so on to the top
//
// The list of a member is links[offsets[i] .. offsets[i + 1]]. Level 0 needs no members: all rows
// are in it.

const MAGIC: [u8; 8] = *b"EFSGRAPH";
const VERSION: u32 = 1;
/// The most levels; hnsw_rs makes no more.
pub(super) const LEVELS_MAX: usize = 16;
const ALIGNMENT: usize = 64;
/// A list is at most four times 128 links long, and a few. What claims to be longer is damaged,
/// and following it could keep a walk busy for hours.
const LIST_MAX: usize = 1024;

const MAGIC_AT: usize = 0;
const VERSION_AT: usize = MAGIC_AT + MAGIC.len();
const ROWS_AT: usize = VERSION_AT + 4;
const LEVELS_AT: usize = ROWS_AT + 4;
const ENTRY_AT: usize = LEVELS_AT + 4;
const SIZE_AT: usize = ENTRY_AT + 4;
const COUNTS_AT: usize = SIZE_AT + 8;
const HEADER_SIZE: usize = aligned(COUNTS_AT + LEVELS_MAX * 8);

/// Says why bytes are not opened as a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// The bytes do not begin like a graph.
    #[error("these bytes are no search graph; build the segment's graph anew")]
    NotAGraph,
    /// The graph was written by a later version.
    #[error("the search graph has format {0}, this version reads {VERSION}; use a newer engramfs")]
    Newer(u32),
    /// The counts in the header contradict one another or the number of bytes.
    #[error("the search graph's header is damaged ({0}); build the segment's graph anew")]
    Damaged(&'static str),
}

/// Where one level lies in the bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    members_at: usize,
    members: usize,
    offsets_at: usize,
    links_at: usize,
    links: usize,
}

/// A frozen graph over bytes that someone else holds, usually a mapped file.
#[derive(Clone, Debug)]
pub struct Graph<B> {
    bytes: B,
    entry: u32,
    levels: usize,
    places: [Place; LEVELS_MAX],
}

impl<B: AsRef<[u8]>> Graph<B> {
    /// Opens a graph, which reads its header and nothing else.
    ///
    /// # Errors
    ///
    /// When the bytes are no graph, come from a later version, or have a header that does not fit
    /// their number. The lists themselves are checked as they are walked.
    pub fn open(bytes: B) -> Result<Self, GraphError> {
        let all = bytes.as_ref();
        if all.len() < HEADER_SIZE || !all.starts_with(&MAGIC) {
            return Err(GraphError::NotAGraph);
        }
        match number(all, VERSION_AT) {
            VERSION => {}
            newer @ VERSION.. => return Err(GraphError::Newer(newer)),
            _ => return Err(GraphError::NotAGraph),
        }
        let levels = number(all, LEVELS_AT) as usize;
        if levels == 0 || levels > LEVELS_MAX {
            return Err(GraphError::Damaged("number of levels"));
        }
        let (places, size) = places(levels, |level| counts(all, level));
        if size != all.len() as u64 || size != long_number(all, SIZE_AT) {
            return Err(GraphError::Damaged("number of bytes"));
        }
        let (entry, rows) = (number(all, ENTRY_AT), number(all, ROWS_AT));
        let top = places[levels - 1].members;
        if places[0].members != rows as usize || (entry as usize >= top && rows > 0) {
            return Err(GraphError::Damaged("number of rows"));
        }
        Ok(Self { bytes, entry, levels, places })
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.places[0].members as u32
    }

    /// Returns the number of links in level 0, a measure of what a walk costs.
    #[must_use]
    pub fn links(&self) -> usize {
        self.places[0].links
    }

    /// Returns how many numbers of four bytes from `at` on, shorter when the bytes end.
    #[inline]
    fn numbers(&self, at: usize, count: usize) -> &[[u8; 4]] {
        let bytes = self.bytes.as_ref().get(at..).unwrap_or_default();
        let all = bytes.as_chunks().0;
        all.get(..count).unwrap_or(all)
    }

    /// Returns the number of levels, level 0 included.
    pub(super) fn levels(&self) -> usize {
        self.levels
    }

    /// Returns the place in the top level where a walk begins.
    pub(super) fn entry(&self) -> u32 {
        self.entry
    }

    /// Returns the places that one place of a level links to; empty where the bytes make no sense.
    #[inline]
    pub(super) fn list(&self, level: usize, place: u32) -> &[[u8; 4]] {
        let found = self.places[level];
        let place = place as usize;
        if place >= found.members {
            return &[];
        }
        let &[start, end] = self.numbers(found.offsets_at + place * 4, 2) else {
            return &[];
        };
        let (start, end) = (u32::from_le_bytes(start) as usize, u32::from_le_bytes(end) as usize);
        if start > end || end > found.links || end - start > LIST_MAX {
            return &[];
        }
        self.numbers(found.links_at + start * 4, end - start)
    }

    /// Returns the row at a place of a level, `None` where there is none.
    pub(super) fn row(&self, level: usize, place: u32) -> Option<u32> {
        if level == 0 {
            return Some(place).filter(|&row| row < self.rows());
        }
        let found = self.places[level];
        let members = self.numbers(found.members_at, found.members);
        let row = u32::from_le_bytes(*members.get(place as usize)?);
        Some(row).filter(|&row| row < self.rows())
    }

    /// Returns the place of a row in a level, `None` when the row is not in it.
    pub(super) fn place(&self, level: usize, row: u32) -> Option<u32> {
        if level == 0 {
            return Some(row);
        }
        let found = self.places[level];
        let members = self.numbers(found.members_at, found.members);
        members.binary_search_by_key(&row, |&bytes| u32::from_le_bytes(bytes)).ok().map(|i| i as u32)
    }
}

/// Writes a graph down.
pub(super) fn freeze(graph: &Adjacency) -> Vec<u8> {
    let (places, size) = places(graph.levels.len(), |level| {
        let level = &graph.levels[level];
        (level.members.len(), level.lists.iter().map(Vec::len).sum())
    });
    let mut bytes = vec![0; size as usize];
    bytes[MAGIC_AT..VERSION_AT].copy_from_slice(&MAGIC);
    put(&mut bytes, VERSION_AT, VERSION);
    put(&mut bytes, ROWS_AT, places[0].members as u32);
    put(&mut bytes, LEVELS_AT, graph.levels.len() as u32);
    put(&mut bytes, ENTRY_AT, graph.entry);
    bytes[SIZE_AT..COUNTS_AT].copy_from_slice(&size.to_le_bytes());
    for (number, (level, place)) in graph.levels.iter().zip(&places).enumerate() {
        put(&mut bytes, COUNTS_AT + number * 8, place.members as u32);
        put(&mut bytes, COUNTS_AT + number * 8 + 4, place.links as u32);
        if number > 0 {
            put_all(&mut bytes, place.members_at, &level.members);
        }
        put_level(&mut bytes, place, level);
    }
    bytes
}

/// Writes the offsets and links of one level.
fn put_level(bytes: &mut [u8], place: &Place, level: &Level) {
    let mut end = 0;
    for (i, list) in level.lists.iter().enumerate() {
        put_all(bytes, place.links_at + end * 4, list);
        end += list.len();
        put(bytes, place.offsets_at + (i + 1) * 4, end as u32);
    }
}

/// Returns where each level lies, and the number of bytes in all.
///
/// Counts of u32 cannot overflow the sums: each level takes less than 2^36 bytes.
fn places(levels: usize, counts: impl Fn(usize) -> (usize, usize)) -> ([Place; LEVELS_MAX], u64) {
    let mut places = [Place::default(); LEVELS_MAX];
    let mut at = HEADER_SIZE;
    for (level, place) in places.iter_mut().enumerate().take(levels) {
        let (members, links) = counts(level);
        let members_at = at;
        let offsets_at = if level == 0 { at } else { aligned(members_at + members * 4) };
        let links_at = aligned(offsets_at + (members + 1) * 4);
        *place = Place { members_at, members, offsets_at, links_at, links };
        at = aligned(links_at + links * 4);
    }
    (places, at as u64)
}

/// Returns the numbers of members and links that the header names for a level.
fn counts(bytes: &[u8], level: usize) -> (usize, usize) {
    let at = COUNTS_AT + level * 8;
    (number(bytes, at) as usize, number(bytes, at + 4) as usize)
}

/// Returns the next multiple of the alignment.
const fn aligned(at: usize) -> usize {
    at.next_multiple_of(ALIGNMENT)
}

/// Returns the u32 at a place within the header.
fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("the header has been measured"))
}

/// Returns the u64 at a place within the header.
fn long_number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("the header has been measured"))
}

/// Writes one number.
fn put(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

/// Writes numbers one after the other.
fn put_all(bytes: &mut [u8], at: usize, numbers: &[u32]) {
    for (i, &number) in numbers.iter().enumerate() {
        put(bytes, at + i * 4, number);
    }
}
