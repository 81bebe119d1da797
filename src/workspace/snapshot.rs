//! A whole tree in a file of its own.

use super::{Tree, TreeError};
use crate::object::{Hash, Shelf};
use crate::segment::{Container, ContainerWriter};

/// The kind of container that a snapshot is.
const KIND: u8 = 0x74;

/// Writes a tree into a new file on the shelf and returns its name: one section, the delta from an
/// empty tree. The tree should be settled first, or its loose chunks are in the file.
pub fn write_snapshot(shelf: &Shelf, tree: &Tree) -> Result<Hash, TreeError> {
    let mut out = ContainerWriter::new(shelf)?;
    out.begin()?;
    out.write(&tree.delta_from(&Tree::default())?)?;
    Ok(out.finish(KIND, &[])?)
}

/// Reads a tree back, every byte checked. Packs are not opened.
pub fn read_snapshot(shelf: &Shelf, name: Hash) -> Result<Tree, TreeError> {
    let file = Container::open(shelf, name, KIND)?;
    Tree::default().with_delta(&file.read_section(0)?)
}
