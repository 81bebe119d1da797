//! The levels above the graph, through which a walk comes near its goal in a few steps.

use super::layout::{align_up, put_u32, put_u32s, u32_at, u32s_at};
use crate::vector::{CoarseQuery, CoarseRows, Estimates};

// Within the hierarchy's section, each part at the next multiple of 64:
//
//   0    4  levels, 0 to 16
//   4    4  entry: the place in the top level where a walk begins
//   8  128  for each level from the lowest: members (u32), links (u32); zero beyond the top
// 192       the lowest level: members, the nodes of the level; below, their places in the level
//           below; offsets, (members + 1) * u32; links, as places in members; then the next level,
//           and so on to the top
//
// The list of a member is links[offsets[i] .. offsets[i + 1]].

/// The most levels; hnsw_rs makes no more.
pub(super) const LEVELS_MAX: usize = 16;
const LEVELS_AT: usize = 0;
const ENTRY_AT: usize = LEVELS_AT + 4;
const COUNTS_AT: usize = ENTRY_AT + 4;
/// Bytes before the first level.
pub(super) const HEADER_BYTES: usize = align_up(COUNTS_AT + LEVELS_MAX * 8);

/// A list is at most twice 128 links long. What claims to be longer is damaged, and following it
/// could keep a walk busy for hours.
const LINKS_MAX: usize = 512;

/// One level in memory: its nodes and what each links to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Level {
    /// The nodes of the level, ascending.
    pub members: Vec<u32>,
    /// For each member the places of its neighbours in `members`, nearest first.
    pub lists: Vec<Vec<u32>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct LevelOffsets {
    members_at: usize,
    members: usize,
    below_at: usize,
    offsets_at: usize,
    links_at: usize,
    links: usize,
}

/// The memory of a descent, to be used again: what a place links to, as places of the level and as
/// nodes, and their scores.
#[derive(Clone, Debug, Default)]
pub(super) struct DescentScratch {
    places: Vec<u32>,
    nodes: Vec<u32>,
    estimates: Estimates,
}

/// Where the levels lie in the section: what its header says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hierarchy {
    levels: usize,
    entry: u32,
    offsets: [LevelOffsets; LEVELS_MAX],
}

impl Hierarchy {
    /// Reads the header of a section, `None` when it does not fit the section's length.
    pub fn open(section: &[u8]) -> Option<Self> {
        if section.len() < HEADER_BYTES {
            return None;
        }
        let (levels, entry) = (u32_at(section, LEVELS_AT) as usize, u32_at(section, ENTRY_AT));
        // Before the counts are read, which the header has room for this many of.
        if levels > LEVELS_MAX {
            return None;
        }
        let counts = |level| {
            let at = COUNTS_AT + level * 8;
            (u32_at(section, at) as usize, u32_at(section, at + 4) as usize)
        };
        let (offsets, size) = level_offsets(levels, counts);
        // The counts alone lay out the section: a wrong one mostly shows in its length, and each number is checked at
        // its use.
        (size == section.len()).then_some(Self { levels, entry, offsets })
    }

    /// Goes down the levels, in each to the best node near, and returns the last; `None` without
    /// levels.
    pub fn descend(
        &self,
        section: &[u8],
        query: &CoarseQuery,
        rows: CoarseRows<'_>,
        near: &mut DescentScratch,
    ) -> Option<u32> {
        let mut level = self.levels.checked_sub(1)?;
        let (mut place, mut node) = (self.entry, self.member(section, level, self.entry)?);
        let mut estimate = query.estimate(rows, node);
        loop {
            self.prefetch_neighbours(section, level, place, rows, near);
            query.estimate_many(rows, &near.nodes, &mut near.estimates);
            let all = near.estimates.scores.iter().zip(&near.places).zip(&near.nodes);
            // Of equal scores the lower number wins, so that a walk does not depend on the order of the list.
            let best = all.max_by(|a, b| a.0.0.total_cmp(b.0.0).then(b.1.cmp(a.1)));
            match best {
                // Only what is strictly better: with equal scores the walk could go round in circles.
                Some(((&better, &near), &found)) if better > estimate => {
                    (estimate, place, node) = (better, near, found)
                }
                _ if level == 0 => return Some(node),
                _ => {
                    let below = self.number(section, self.offsets[level].below_at, level, place)?;
                    level -= 1;
                    (place, node) = (below, self.member(section, level, below)?);
                    estimate = query.estimate(rows, node);
                }
            }
        }
    }

    /// Finds what one place of a level links to, and asks memory for it.
    fn prefetch_neighbours(
        &self,
        section: &[u8],
        level: usize,
        place: u32,
        rows: CoarseRows<'_>,
        near: &mut DescentScratch,
    ) {
        near.places.clear();
        near.nodes.clear();
        for &place in self.list(section, level, place) {
            let place = u32::from_le_bytes(place);
            if let Some(node) = self.member(section, level, place) {
                rows.prefetch(node);
                near.places.push(place);
                near.nodes.push(node);
            }
        }
    }

    /// Returns the places that one place of a level links to; empty if the bytes make no sense.
    fn list<'a>(&self, section: &'a [u8], level: usize, place: u32) -> &'a [[u8; 4]] {
        let (found, place) = (self.offsets[level], place as usize);
        // Checked here, since `u32s_at` would read on into what follows the offsets of the level.
        if place >= found.members {
            return &[];
        }
        let &[start, end] = u32s_at(section, found.offsets_at + place * 4, 2) else {
            return &[];
        };
        let (start, end) = (u32::from_le_bytes(start) as usize, u32::from_le_bytes(end) as usize);
        if start > end || end > found.links || end - start > LINKS_MAX {
            return &[];
        }
        u32s_at(section, found.links_at + start * 4, end - start)
    }

    /// Returns the node at a place of a level; none after the last member or the end of the bytes.
    fn member(&self, section: &[u8], level: usize, place: u32) -> Option<u32> {
        self.number(section, self.offsets[level].members_at, level, place)
    }

    /// Returns what is noted at `at` for a place of a level.
    fn number(&self, section: &[u8], at: usize, level: usize, place: u32) -> Option<u32> {
        let all = u32s_at(section, at, self.offsets[level].members);
        all.get(place as usize).map(|&number| u32::from_le_bytes(number))
    }

    /// Gives the nodes of all levels other numbers: node n gets `renumbered[n]`, or 0 if there are fewer. `section` is
    /// the one that was opened; places, links and the entry stay.
    pub fn renumber(&self, section: &mut [u8], renumbered: &[u32]) {
        for place in &self.offsets[..self.levels] {
            for at in (place.members_at..).step_by(4).take(place.members) {
                let node = u32_at(section, at) as usize;
                put_u32(section, at, renumbered.get(node).copied().unwrap_or_default());
            }
        }
    }
}

/// Writes levels down, the lowest first, as the section that [`Hierarchy::open`] reads.
pub(super) fn freeze(levels: &[Level]) -> Vec<u8> {
    let (places, size) = level_offsets(levels.len(), |level| {
        (levels[level].members.len(), levels[level].lists.iter().map(Vec::len).sum())
    });
    let mut section = vec![0; size];
    put_u32(&mut section, LEVELS_AT, levels.len() as u32);
    for (number, (level, place)) in levels.iter().zip(&places).enumerate() {
        put_u32(&mut section, COUNTS_AT + number * 8, place.members as u32);
        put_u32(&mut section, COUNTS_AT + number * 8 + 4, place.links as u32);
        put_u32s(&mut section, place.members_at, &level.members);
        if number > 0 {
            let below = |node| levels[number - 1].members.binary_search(node).expect("a level holds all above it");
            let below: Vec<u32> = level.members.iter().map(|node| below(node) as u32).collect();
            put_u32s(&mut section, place.below_at, &below);
        }
        let mut end = 0;
        for (i, list) in level.lists.iter().enumerate() {
            put_u32s(&mut section, place.links_at + end * 4, list);
            end += list.len();
            put_u32(&mut section, place.offsets_at + (i + 1) * 4, end as u32);
        }
    }
    section
}

/// Returns where each level lies, and the number of bytes in all.
///
/// Counts of u32 cannot overflow the sums: each level takes less than 2^36 bytes.
fn level_offsets(levels: usize, counts: impl Fn(usize) -> (usize, usize)) -> ([LevelOffsets; LEVELS_MAX], usize) {
    let mut places = [LevelOffsets::default(); LEVELS_MAX];
    let mut at = HEADER_BYTES;
    for (level, place) in places.iter_mut().enumerate().take(levels) {
        let (members, links) = counts(level);
        let (members_at, below_at) = (at, align_up(at + members * 4));
        let offsets_at = align_up(below_at + members * 4);
        let links_at = align_up(offsets_at + (members + 1) * 4);
        *place = LevelOffsets { members_at, members, below_at, offsets_at, links_at, links };
        at = align_up(links_at + links * 4);
    }
    (places, at)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::vector::{CoarseSource, Metric, PreparedVector, norm, quantize};

    /// Rows of one dimension: row n lies at n + 1.
    fn coarse_rows_on_a_line(count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count * CoarseRows::row_bytes(1)];
        for (row, place) in CoarseRows::rows_mut(&mut bytes, 1).enumerate() {
            let (vector, mut code) = ([row as f32 + 1.0], [0]);
            let (scale, _) = quantize(&vector, &mut code);
            let source = CoarseSource { bytes: &code, scale, norm: norm(&vector), extra_dimension: 0.0 };
            source.write(Metric::L2, place);
        }
        bytes
    }

    #[test]
    fn a_descent_goes_on_in_the_lowest_level_to_the_best_node_of_it() {
        // Nodes 0, 2, … 16 in a row, each linked to those beside it; above them 0, where a descent begins, and 8.
        let beside = |place: u32| [place.checked_sub(1), Some(place + 1).filter(|next| *next < 9)];
        let lists = (0..9).map(|place| beside(place).into_iter().flatten().collect()).collect();
        let lowest = Level { members: (0..9).map(|place| place * 2).collect(), lists };
        let top = Level { members: vec![0, 8], lists: vec![vec![1], vec![0]] };
        let section = freeze(&[lowest, top]);
        let hierarchy = Hierarchy::open(&section).unwrap();
        let bytes = coarse_rows_on_a_line(17);
        let (rows, mut near) = (CoarseRows::new(&bytes, 1), DescentScratch::default());
        for node in (0..17_u8).step_by(2) {
            let query = PreparedVector::new(Metric::L2, vec![f32::from(node) + 1.0]).coarse_query();
            assert_eq!(hierarchy.descend(&section, &query, rows, &mut near), Some(u32::from(node)));
        }
    }
}
