//! A whole tree in a file of its own.

use super::{Tree, TreeError};
use crate::object::{BlobStore, Hash};
use crate::segment::{Container, ContainerWriter};

/// Kind byte of a container that is a snapshot; one of another kind is not read as one.
const KIND: u8 = 0x74;

/// Writes a tree into a new file in the blob store and returns its name: one section, the delta from an empty tree.
///
/// The tree should be sealed first, or its unsealed chunks are read and are in the file. Fails if an unsealed chunk
/// can't be read, or the disk refuses.
pub fn write_snapshot(blobs: &BlobStore, tree: &Tree) -> Result<Hash, TreeError> {
    let mut out = ContainerWriter::new(blobs)?;
    out.begin()?;
    out.write(&tree.delta_from(&Tree::default())?)?;
    Ok(out.finish(KIND, &[])?)
}

/// As [`read_snapshot`], after a check of every byte of the file, those between its sections too. Fails like
/// [`read_snapshot`].
pub fn verify_snapshot(blobs: &BlobStore, name: Hash) -> Result<Tree, TreeError> {
    Container::open(blobs, name, KIND)?.verify()?;
    read_snapshot(blobs, name)
}

/// Reads a tree back, every byte of it checked; `Stored`, `Codec` or `Segment` if it is none. Packs are not opened.
pub fn read_snapshot(blobs: &BlobStore, name: Hash) -> Result<Tree, TreeError> {
    let file = Container::open(blobs, name, KIND)?;
    Tree::default().with_delta(&file.read_section(0)?)
}
