//! engramfs: agent memory as a filesystem.
//!
//! From the top down, each layer uses only those below it:
//!
//! - [`cli`] (the command line), [`fuse`] (the kernel's protocol)
//! - [`fs`] (names and handles become operations)
//! - [`verb`] (the table of verbs: parsed, written and run)
//! - [`memory`] (everything a caller does to a store)
//! - [`search`], [`merge`]
//! - [`branch`], [`file_index`], [`workspace`], [`lineage`]
//! - [`segment`], [`record`], [`journal`], [`object`], [`graph`], [`text`], [`embed`], [`facet`], [`vector`], [`disk`], [`sync`]
//!
//! `docs/ARCHITECTURE.md` says which module may use which, and a test checks the code against it.

#[cfg(target_endian = "big")]
compile_error!(
    "stores are little-endian and are mapped into memory as they are: engramfs does not build for big-endian hosts"
);

pub mod branch;
pub mod cli;
pub mod disk;
pub mod embed;
pub mod facet;
pub mod file_index;
pub mod fs;
pub mod fuse;
pub mod graph;
pub mod journal;
pub mod lineage;
pub mod memory;
pub mod merge;
pub mod object;
pub mod record;
pub mod search;
pub mod segment;
pub mod sync;
pub mod text;
pub mod vector;
pub mod verb;
pub mod workspace;
