//! A neighbour graph over the vectors of a segment: built once, frozen to bytes, walked in place.
//!
//! [`build`] lets the crate hnsw_rs find the neighbours, and writes them down as flat lists.
//! [`Graph`] walks these bytes where they lie, usually in a mapped file: opening reads the header
//! alone, and a question allocates nothing. What a row is worth to a question, and whether it may
//! be seen, the walk asks of a [`View`]; the graph itself holds row numbers only.
//!
//! **Invariant: every row can be reached from every other.** A walk that is given enough room finds
//! all rows, hidden ones in between notwithstanding.
//!
//! **Invariant: damaged bytes mislead, and do no more.** Every number read is checked before it is
//! used, so that a walk ends without a panic whatever the bytes are. Telling that they are damaged
//! is the segment's business, which holds their hash.

mod adjacency;
mod build;
mod distance;
mod layout;
mod mend;
mod source;
mod walk;

#[cfg(test)]
mod real_tests;
#[cfg(test)]
mod tests;

pub use build::build;
pub use layout::{Graph, GraphError};
pub use source::{Params, Rows};
pub use walk::{Scratch, View};
