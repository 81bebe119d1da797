//! A build that is interrupted, as bytes, and its going on.

use super::build::GraphBuilder;
use super::growing::GrowingGraph;
use super::hierarchy::Hierarchy;
use super::layout::{put_u32, put_u32s, u32_at};
use super::source::{Params, VectorRows};
use super::space::VectorSpace;
use super::walk::Adjacency;
use crate::vector::Metric;

// All numbers are little-endian.
//
//   0   8  magic
//   8   8  fingerprint of rows, metric and parameters
//  16   8  sum over all that follows
//  24   8  steps done
//  32   4  bytes of the hierarchy
//  36   4  zero
//  40      hierarchy; then for each node the number of its links and the links, u32 each

const MAGIC: [u8; 8] = *b"EFSBUILD";
const FINGERPRINT_AT: usize = MAGIC.len();
const CHECKSUM_AT: usize = FINGERPRINT_AT + 8;
const STEPS_DONE_AT: usize = CHECKSUM_AT + 8;
const HIERARCHY_AT: usize = STEPS_DONE_AT + 8;
const HEADER_BYTES: usize = HIERARCHY_AT + 8;

impl<'a> GraphBuilder<'a> {
    /// Returns what is done so far, for [`GraphBuilder::resume`].
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        let (space, mut lists) = (&self.growing.space, Vec::new());
        for node in 0..self.growing.nodes() as u32 {
            let list = self.growing.list(node);
            lists.push(list.len() as u32);
            lists.extend(self.growing.neighbours(node));
        }
        let mut bytes = vec![0; HEADER_BYTES + self.section.len() + lists.len() * 4];
        bytes[..FINGERPRINT_AT].copy_from_slice(&MAGIC);
        bytes[FINGERPRINT_AT..CHECKSUM_AT]
            .copy_from_slice(&fingerprint(space.rows, space.metric, self.params).to_le_bytes());
        bytes[STEPS_DONE_AT..HIERARCHY_AT].copy_from_slice(&(self.steps_done as u64).to_le_bytes());
        put_u32(&mut bytes, HIERARCHY_AT, self.section.len() as u32);
        bytes[HEADER_BYTES..][..self.section.len()].copy_from_slice(&self.section);
        put_u32s(&mut bytes, HEADER_BYTES + self.section.len(), &lists);
        // Last, as it covers all that was put behind it.
        let sum = body_checksum(&bytes).to_le_bytes();
        bytes[CHECKSUM_AT..STEPS_DONE_AT].copy_from_slice(&sum);
        bytes
    }

    /// Goes on where a build was saved; the result is the same as without the interruption.
    ///
    /// `None` when the bytes are damaged or belong to other rows, another metric or other
    /// parameters: then begin again. Only lengths and scales of the rows are compared, not the codes.
    #[must_use]
    pub fn resume(rows: VectorRows<'a>, metric: Metric, params: Params, bytes: &[u8]) -> Option<Self> {
        if bytes.len() < HEADER_BYTES || !bytes.starts_with(&MAGIC) {
            return None;
        }
        let params = params.clamped();
        let is_fitting = bytes[FINGERPRINT_AT..CHECKSUM_AT] == fingerprint(rows, metric, params).to_le_bytes();
        let is_whole = cfg!(fuzzing) || bytes[CHECKSUM_AT..STEPS_DONE_AT] == body_checksum(bytes).to_le_bytes();
        // Checked before anything is taken from the bytes: links of other rows would be within range, and wrong.
        if !is_fitting || !is_whole {
            return None;
        }
        let done = usize::try_from(u64::from_le_bytes(*bytes[STEPS_DONE_AT..].first_chunk()?)).ok()?;
        let section = bytes.get(HEADER_BYTES..)?.get(..u32_at(bytes, HIERARCHY_AT) as usize)?.to_vec();
        let hierarchy = Hierarchy::open(&section)?;
        let lists = bytes[HEADER_BYTES + section.len()..].as_chunks().0;
        let mut growing = GrowingGraph::new(VectorSpace::new(rows, metric), params.links);
        if !growing.restore(lists) {
            return None;
        }
        let builder = Self { params, growing, section, hierarchy, steps_done: done, scratch: Default::default() };
        // Beyond all steps the end would never be met, and `finish` would not return.
        (done <= builder.step_count()).then_some(builder)
    }
}

/// Returns a number that other rows, metrics or parameters hardly share.
fn fingerprint(rows: VectorRows<'_>, metric: Metric, params: Params) -> u64 {
    let columns = rows.norms.iter().chain(rows.scales).take(2 * rows.len()).map(|x| x.to_bits());
    let counts = [rows.len(), rows.dim, usize::from(metric.to_code()), params.links, params.ef, params.passes];
    checksum(counts.into_iter().map(|count| count as u32).chain(columns))
}

/// Returns a number that changes when a saved build's bytes behind the sum itself do.
fn body_checksum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes[STEPS_DONE_AT..].as_chunks();
    checksum(words.iter().map(|&word| u32::from_le_bytes(word)).chain(rest.iter().map(|&byte| u32::from(byte))))
}

/// Returns a sum over numbers and their order (FNV-1a).
fn checksum(numbers: impl Iterator<Item = u32>) -> u64 {
    numbers.fold(0xCBF2_9CE4_8422_2325, |sum, x| (sum ^ u64::from(x)).wrapping_mul(0x0100_0000_01B3))
}
