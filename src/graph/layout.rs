//! The frozen graph as bytes: writing, opening, and reading one list.

use super::hierarchy::Hierarchy;
use super::walk::{Adjacency, AllVisible, Beam, RankedNode, Visibility, WalkScratch, walk};
use crate::vector::{CoarseRowMut, CoarseRows, Metric, PreparedVector, prefetch};

// All numbers are little-endian. Sections follow one another in this order, each at the next
// multiple of 64, so that nothing but the counts in the header needs to be stored.
//
//   0    8  magic
//   8    4  version
//  12    4  rows, those without a vector included
//  16    4  nodes: the rows with a vector, numbered again so that what is near lies near
//  20    4  dimension
//  24    4  metric's code
//  28    4  slots: links that a node has room for
//  32    8  bytes in all
//  64       coarse copies: nodes * row_bytes(dimension), see `vector::CoarseRows`
//           links: nodes * slots * u32, as nodes; an empty slot is u32::MAX
//           rows: nodes * u32, the row that each node stands for
//           hierarchy, to the end

const MAGIC: [u8; 8] = *b"EFSGRAPH";
const VERSION: u32 = 3;
const ALIGNMENT_BYTES: usize = 64;
/// Fills a slot without a link: no node has this number.
pub(super) const EMPTY: [u8; 4] = u32::MAX.to_le_bytes();
/// The most slots; what claims more is damaged.
const SLOTS_MAX: usize = 256;

const MAGIC_AT: usize = 0;
const VERSION_AT: usize = MAGIC_AT + MAGIC.len();
const ROWS_AT: usize = VERSION_AT + 4;
const NODES_AT: usize = ROWS_AT + 4;
const DIM_AT: usize = NODES_AT + 4;
const METRIC_AT: usize = DIM_AT + 4;
const SLOTS_AT: usize = METRIC_AT + 4;
const SIZE_AT: usize = SLOTS_AT + 4;
const HEADER_BYTES: usize = align_up(SIZE_AT + 8);

/// Says why bytes are not opened as a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// The bytes do not begin with the magic, or are shorter than a header.
    #[error("these bytes are no search graph")]
    NotAGraph,
    /// The graph was written by another version of the layout, which has this number.
    #[error("the search graph has format {0}, this version reads {VERSION}")]
    OtherVersion(u32),
    /// The counts in the header contradict one another or the number of bytes.
    #[error("the search graph's header is damaged ({0})")]
    Damaged(&'static str),
}

#[derive(Clone, Copy, Debug)]
struct Sections {
    coarse_end: usize,
    links_at: usize,
    rows_at: usize,
    hierarchy_at: usize,
}

impl Sections {
    /// Returns the places of the sections, `None` when they exceed what memory can hold.
    fn new(nodes: usize, dim: usize, slots: usize) -> Option<Self> {
        let coarse_end = nodes.checked_mul(CoarseRows::row_bytes(dim))?.checked_add(HEADER_BYTES)?;
        let links_at = coarse_end.checked_next_multiple_of(ALIGNMENT_BYTES)?;
        let rows_at = nodes.checked_mul(slots * 4)?.checked_add(links_at)?.checked_next_multiple_of(ALIGNMENT_BYTES)?;
        let hierarchy_at = rows_at.checked_add(nodes.checked_mul(4)?)?.checked_next_multiple_of(ALIGNMENT_BYTES)?;
        Some(Self { coarse_end, links_at, rows_at, hierarchy_at })
    }
}

/// A frozen graph over bytes that someone else holds, usually a mapped file.
#[derive(Clone, Debug)]
pub struct Graph<B> {
    bytes: B,
    rows: u32,
    nodes: usize,
    dim: usize,
    slots: usize,
    metric: Metric,
    sections: Sections,
    hierarchy: Hierarchy,
}

impl<B: AsRef<[u8]>> Graph<B> {
    /// Opens a graph, which reads its header and nothing else.
    ///
    /// # Errors
    ///
    /// When the bytes are not a graph, come from another version, or have a header that does not fit
    /// their number. The lists themselves are checked as they are walked.
    pub fn open(bytes: B) -> Result<Self, GraphError> {
        let all = bytes.as_ref();
        if all.len() < HEADER_BYTES || !all.starts_with(&MAGIC) {
            return Err(GraphError::NotAGraph);
        }
        if u32_at(all, VERSION_AT) != VERSION {
            return Err(GraphError::OtherVersion(u32_at(all, VERSION_AT)));
        }
        let count = |at| u32_at(all, at) as usize;
        let (rows, nodes, dim, slots) = (u32_at(all, ROWS_AT), count(NODES_AT), count(DIM_AT), count(SLOTS_AT));
        let metric = u8::try_from(u32_at(all, METRIC_AT)).ok().and_then(Metric::from_code);
        let metric = metric.ok_or(GraphError::Damaged("metric"))?;
        // Bounded before `Sections::new`, which computes what one node takes without a check.
        if nodes > rows as usize || slots > SLOTS_MAX || dim > crate::vector::DIM_MAX {
            return Err(GraphError::Damaged("counts"));
        }
        let size = u64::from_le_bytes(*all[SIZE_AT..].first_chunk().expect("the header has been measured"));
        let sections = Sections::new(nodes, dim, slots).ok_or(GraphError::Damaged("counts"))?;
        if size != all.len() as u64 || sections.hierarchy_at > all.len() {
            return Err(GraphError::Damaged("number of bytes"));
        }
        let hierarchy = Hierarchy::open(&all[sections.hierarchy_at..]).ok_or(GraphError::Damaged("hierarchy"))?;
        Ok(Self { bytes, rows, nodes, dim, slots, metric, sections, hierarchy })
    }

    /// Returns the number of rows that the graph was built over, those without a vector included.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Returns the number of rows that can be found: those with a vector.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Returns the metric under which the graph was built: a query under another one finds nothing.
    #[must_use]
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Returns the dimension of the vectors: a query of another one finds nothing.
    #[must_use]
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Puts the best visible rows into `found`, best first, and returns the score below which no more
    /// than the least of the beam were kept.
    ///
    /// Each comes with about its score, from four bits a dimension: whoever needs the true order
    /// scores them. Keeps going until no open row can beat what is held, of which the beam tells
    /// how much that is, or all rows have been visited: fewer than `beam.kept_min` come back only where
    /// fewer are visible; without `visible` all are. The larger the beam, the more of the true
    /// nearest are among them, at a cost that grows in proportion; so it does with the share of hidden
    /// rows, which are walked through and never returned. What was in `found` is dropped. A query of
    /// another dimension or metric finds nothing.
    pub fn walk(
        &self,
        query: &PreparedVector,
        visible: Option<impl Fn(u32) -> bool>,
        beam: Beam,
        found: &mut Vec<(f32, u32)>,
        scratch: &mut WalkScratch,
    ) -> f32 {
        found.clear();
        if query.vector().len() != self.dim || query.metric() != self.metric {
            return beam.floor;
        }
        let query = query.coarse_query();
        let section = &self.bytes.as_ref()[self.sections.hierarchy_at..];
        let Some(start) = self.hierarchy.descend(section, &query, self.coarse_rows(), &mut scratch.descent) else {
            return beam.floor;
        };
        let mut ranked = scratch.take_ranked();
        let floor = match visible {
            // Rows are looked up for those nodes alone that are found.
            None => walk(self, &query, &AllVisible, (start, beam), &mut ranked, scratch),
            Some(visible) => {
                walk(self, &query, &VisibleNodes { graph: self, visible }, (start, beam), &mut ranked, scratch)
            }
        };
        found.extend(ranked.iter().filter_map(|ranked| Some((ranked.score(), self.row(ranked.node())?))));
        // Sorted again: equal scores go by the lower row for whoever asks, and the walk knew nodes only.
        found.sort_unstable_by_key(|&(score, row)| std::cmp::Reverse(RankedNode::new(score, row)));
        scratch.reuse_ranked(ranked);
        floor
    }

    /// Returns the row of a node; none after the last node, or where damage gives a number that no row has.
    #[inline]
    fn row(&self, node: u32) -> Option<u32> {
        self.row_numbers().get(node as usize).map(|&row| u32::from_le_bytes(row)).filter(|&row| row < self.rows)
    }

    #[inline]
    fn row_numbers(&self) -> &[[u8; 4]] {
        u32s_at(self.bytes.as_ref(), self.sections.rows_at, self.nodes)
    }
}

struct VisibleNodes<'a, B, F> {
    graph: &'a Graph<B>,
    visible: F,
}

impl<B: AsRef<[u8]>, F: Fn(u32) -> bool> Visibility for VisibleNodes<'_, B, F> {
    #[inline]
    fn prefetch(&self, node: u32) {
        prefetch(self.graph.row_numbers().get(node as usize..=node as usize).unwrap_or_default());
    }

    #[inline]
    fn is_visible(&self, node: u32) -> bool {
        self.graph.row(node).is_some_and(&self.visible)
    }
}

impl<B: AsRef<[u8]>> Adjacency for Graph<B> {
    #[inline]
    fn nodes(&self) -> usize {
        self.nodes
    }

    #[inline]
    fn coarse_rows(&self) -> CoarseRows<'_> {
        CoarseRows::new(self.bytes.as_ref().get(HEADER_BYTES..self.sections.coarse_end).unwrap_or_default(), self.dim)
    }

    #[inline]
    fn list(&self, node: u32) -> &[[u8; 4]] {
        u32s_at(self.bytes.as_ref(), self.sections.links_at + node as usize * self.slots * 4, self.slots)
    }
}

/// What [`freeze`] writes a graph of, except for links and coarse copies, which its `fill` puts in place.
pub(super) struct GraphParts<'a> {
    /// Rows of the segment, those without a vector too: what [`Graph::rows`] tells, and a bound on `nodes`.
    pub rows: usize,
    /// Numbers of each vector, as many as a coarse copy has.
    pub dim: usize,
    /// Whose distances the links were chosen by.
    pub metric: Metric,
    /// How many links each node has room for; shorter lists end in [`EMPTY`].
    pub slots: usize,
    /// For each node the row that it stands for, in the order of the renumbered nodes, not of the rows.
    pub nodes: &'a [u32],
    /// The bytes of the last section, as [`hierarchy::freeze`](super::hierarchy::freeze) makes them.
    pub hierarchy: &'a [u8],
}

/// Writes a graph down. `fill` is given each node with its coarse copy and its slots to fill.
pub(super) fn freeze(parts: &GraphParts<'_>, mut fill: impl FnMut(u32, CoarseRowMut<'_>, &mut [[u8; 4]])) -> Vec<u8> {
    let nodes = parts.nodes.len();
    let sections = Sections::new(nodes, parts.dim, parts.slots).expect("what is in memory fits in memory");
    let mut bytes = vec![0; sections.hierarchy_at + parts.hierarchy.len()];
    bytes[MAGIC_AT..VERSION_AT].copy_from_slice(&MAGIC);
    put_u32(&mut bytes, VERSION_AT, VERSION);
    put_u32(&mut bytes, ROWS_AT, parts.rows as u32);
    put_u32(&mut bytes, NODES_AT, nodes as u32);
    put_u32(&mut bytes, DIM_AT, parts.dim as u32);
    put_u32(&mut bytes, METRIC_AT, u32::from(parts.metric.to_code()));
    put_u32(&mut bytes, SLOTS_AT, parts.slots as u32);
    let size = bytes.len() as u64;
    bytes[SIZE_AT..SIZE_AT + 8].copy_from_slice(&size.to_le_bytes());
    let (coarse, links) = bytes[..sections.rows_at].split_at_mut(sections.links_at);
    let coarse = CoarseRows::rows_mut(&mut coarse[HEADER_BYTES..sections.coarse_end], parts.dim);
    let places = coarse.zip(links.as_chunks_mut::<4>().0.chunks_exact_mut(parts.slots));
    for (node, (coarse, links)) in places.take(nodes).enumerate() {
        // Zeros would be links to node 0, and lists may be shorter than their slots.
        links.fill(EMPTY);
        fill(node as u32, coarse, links);
    }
    put_u32s(&mut bytes, sections.rows_at, parts.nodes);
    bytes[sections.hierarchy_at..].copy_from_slice(parts.hierarchy);
    bytes
}

/// Returns the next offset that is a multiple of 64, where a section may begin.
pub(super) const fn align_up(at: usize) -> usize {
    at.next_multiple_of(ALIGNMENT_BYTES)
}

/// Returns how many numbers of four bytes from `at` on, fewer when the bytes end.
#[inline]
pub(super) fn u32s_at(bytes: &[u8], at: usize, count: usize) -> &[[u8; 4]] {
    let all = bytes.get(at..).unwrap_or_default().as_chunks().0;
    all.get(..count).unwrap_or(all)
}

/// Returns the u32 at a place within a header that has been measured.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("the header has been measured"))
}

/// Writes one number in 4 bytes, which are there.
pub(super) fn put_u32(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

/// Writes numbers one after the other, 4 bytes each, from `at` on.
pub(super) fn put_u32s(bytes: &mut [u8], at: usize, numbers: &[u32]) {
    for (i, &number) in numbers.iter().enumerate() {
        put_u32(bytes, at + i * 4, number);
    }
}
