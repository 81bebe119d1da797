//! A neighbour graph over the vectors of a segment: built once, frozen to bytes, walked in place.
//!
//! [`build()`], or [`GraphBuilder`] a few rows at a time, links every row with some near ones and writes
//! that down as flat lists beside a coarse copy of the vectors. The crate hnsw_rs finds the
//! hierarchy over a sample of the rows, where building and walking begin. [`Graph`] walks the bytes
//! where they lie, usually in a mapped file: opening reads the header alone, and a query
//! allocates next to nothing.
//!
//! **Invariant: every row can be reached from every other.** A walk that is given enough room finds
//! all rows, hidden ones in between notwithstanding.
//!
//! **Invariant: damaged bytes mislead, and do no more.** Every number read is checked before it is
//! used, so that a walk ends without a panic whatever the bytes are. Telling that they are damaged
//! is the segment's business, which holds their hash.

mod build;
mod growing;
mod hierarchy;
mod layout;
mod order;
mod repair;
mod sample;
mod source;
mod space;
mod state;
mod walk;

#[cfg(test)]
mod real_tests;
#[cfg(test)]
mod tests;

pub use build::{GraphBuilder, build};
pub use layout::{Graph, GraphError};
pub use source::{Params, VectorRows};
pub use walk::{Beam, Slack, WalkScratch};
