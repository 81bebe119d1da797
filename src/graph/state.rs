//! A build that is interrupted, as bytes, and its going on.

use super::build::Builder;
use super::growing::Growing;
use super::hierarchy::Hierarchy;
use super::layout::{number, numbers, put, put_all};
use super::source::{Params, Rows};
use super::space::Space;
use super::walk::Lists;
use crate::vector::Metric;

// All numbers are little-endian.
//
//   0   8  magic
//   8   8  fingerprint of rows, metric and parameters
//  16   8  steps done
//  24   4  bytes of the hierarchy
//  28   4  numbers that follow it
//  32      hierarchy; then for each node the number of its links and the links, u32 each

const MAGIC: [u8; 8] = *b"EFSBUILD";
const PRINT_AT: usize = MAGIC.len();
const DONE_AT: usize = PRINT_AT + 8;
const HIERARCHY_AT: usize = DONE_AT + 8;
const NUMBERS_AT: usize = HIERARCHY_AT + 4;
const HEADER_SIZE: usize = NUMBERS_AT + 4;

impl<'a> Builder<'a> {
    /// Returns what is done so far, for [`Builder::resume`].
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        let mut lists = Vec::new();
        for node in 0..self.growing.nodes() as u32 {
            let list = self.growing.list(node);
            lists.push(list.len() as u32);
            lists.extend(self.growing.neighbours(node));
        }
        let mut bytes = vec![0; HEADER_SIZE + self.section.len() + lists.len() * 4];
        bytes[..PRINT_AT].copy_from_slice(&MAGIC);
        bytes[PRINT_AT..DONE_AT].copy_from_slice(&fingerprint(&self.growing.space, self.params).to_le_bytes());
        bytes[DONE_AT..HIERARCHY_AT].copy_from_slice(&(self.done as u64).to_le_bytes());
        put(&mut bytes, HIERARCHY_AT, self.section.len() as u32);
        put(&mut bytes, NUMBERS_AT, lists.len() as u32);
        bytes[HEADER_SIZE..][..self.section.len()].copy_from_slice(&self.section);
        put_all(&mut bytes, HEADER_SIZE + self.section.len(), &lists);
        bytes
    }

    /// Goes on where a build was saved; the result is the same as without the interruption.
    ///
    /// `None` when the bytes are damaged or belong to other rows, another metric or other
    /// parameters: then begin anew. Only lengths and scales of the rows are compared, not the codes.
    #[must_use]
    pub fn resume(rows: Rows<'a>, metric: Metric, params: Params, bytes: &[u8]) -> Option<Self> {
        if bytes.len() < HEADER_SIZE || !bytes.starts_with(&MAGIC) {
            return None;
        }
        let params = params.limited();
        let space = Space::new(rows, metric);
        if bytes[PRINT_AT..DONE_AT] != fingerprint(&space, params).to_le_bytes() {
            return None;
        }
        let done = usize::try_from(u64::from_le_bytes(*bytes[DONE_AT..].first_chunk()?)).ok()?;
        let section = bytes.get(HEADER_SIZE..)?.get(..number(bytes, HIERARCHY_AT) as usize)?.to_vec();
        let hierarchy = Hierarchy::open(&section)?;
        let count = number(bytes, NUMBERS_AT) as usize;
        let saved = numbers(bytes, HEADER_SIZE + section.len(), count);
        let is_whole = saved.len() == count && bytes.len() == HEADER_SIZE + section.len() + count * 4;
        let mut growing = Growing::new(space, params.links);
        if !is_whole || !growing.restore(saved) {
            return None;
        }
        let builder = Self { params, growing, section, hierarchy, done, scratch: Default::default() };
        (done <= builder.total()).then_some(builder)
    }
}

/// Returns a number that other rows, metrics or parameters hardly share (FNV-1a).
fn fingerprint(space: &Space<'_>, params: Params) -> u64 {
    let rows = &space.rows;
    let columns = rows.norms.iter().chain(rows.scales).take(2 * rows.len()).map(|x| x.to_bits());
    let counts = [rows.len(), rows.dim, usize::from(space.metric.to_code()), params.links, params.ef, params.passes];
    let all = counts.into_iter().map(|count| count as u32).chain(columns);
    all.fold(0xCBF2_9CE4_8422_2325, |sum, x| (sum ^ u64::from(x)).wrapping_mul(0x0100_0000_01B3))
}
