//! engramfs: agent memory as a filesystem.
//!
//! You may walk down the stairs, never up:
//!
//! - street: [`cli`] (one file per verb; prints), [`fuse`] (the kernel's protocol)
//! - windows: [`fs`] (names and handles become operations)
//! - hall: [`verb`] (the table of verbs: parsed, written and run)
//! - front door: [`memory`] (everything a caller does to a store)
//! - living rooms: [`search`], [`merge`]
//! - ground floor: [`branch`], [`workspace`], [`lineage`]
//! - cellar: [`segment`], [`record`], [`journal`], [`object`], [`graph`], [`text`],
//!   [`facet`], [`vector`], [`disk`], [`sync`]
//!
//! `docs/ARCHITECTURE.md` says who may use whom, and a test holds the code against it.

pub mod branch;
pub mod cli;
pub mod disk;
pub mod facet;
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
