//! engramfs: agent memory as a filesystem.

pub mod branch;
pub mod cli;
pub mod disk;
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
pub mod text;
pub mod vector;
