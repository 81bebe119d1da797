//! Chunks that trees need which are stored as deltas: held by a tree of one file, so that they are marked, moved and stored as
//! those of any other tree are.

use std::collections::HashMap;
use std::sync::Arc;

use super::chunk::{CHUNK_BYTES, Chunk, PackedChunk};
use super::chunks::Piece;
use super::node::Body;
use super::tree::ROOT;
use super::{FileContent, FileName, FileNode, Tree, TreeError};
use crate::object::{Hash, Time};

const NAME: &[u8] = b"chunks";

/// Chunks in packs, by their hashes.
#[derive(Default)]
pub struct HeldChunks(HashMap<Hash, Arc<PackedChunk>>);

impl HeldChunks {
    /// Returns those that a tree of [`HeldChunks::tree`] holds.
    pub fn from_tree(tree: &Tree) -> HeldChunks {
        let mut held = HeldChunks::default();
        let node = tree.lookup(ROOT, NAME).ok().and_then(|inode| tree.nodes.get(inode));
        for (_, chunk) in node.and_then(|node| node.content()).into_iter().flat_map(|content| content.chunks.iter()) {
            if let Chunk::Sealed(sealed) = chunk {
                held.add(sealed);
            }
        }
        held
    }

    /// Adds a chunk; of equal chunks in several packs the first stays.
    pub(super) fn add(&mut self, chunk: &Arc<PackedChunk>) {
        self.0.entry(chunk.hash).or_insert_with(|| chunk.clone());
    }

    /// Returns where the chunk with that hash is.
    pub(super) fn find(&self, hash: &Hash) -> Option<&Arc<PackedChunk>> {
        self.0.get(hash)
    }

    /// Returns a tree that holds them: one file, in an order that does not vary. An error is that of entering its name,
    /// which an empty tree always takes.
    pub fn tree(&self) -> Result<Tree, TreeError> {
        let mut tree = Tree::default();
        if self.0.is_empty() {
            return Ok(tree);
        }
        let mut chunks: Vec<&Arc<PackedChunk>> = self.0.values().collect();
        chunks.sort_by_key(|chunk| chunk.hash);
        let mut content = FileContent::default();
        // Always fits together, as single chunks with consecutive numbers overlap nowhere.
        content.put_stored(
            chunks
                .iter()
                .zip(0..)
                .map(|(chunk, number)| (number, Some(Piece::One(Chunk::Sealed((*chunk).clone())))))
                .collect(),
        );
        content.resize(chunks.len() as u64 * CHUNK_BYTES);
        let inode = tree.add(FileNode::new(Body::File(content), 0o600, 0, 0, Time(0)));
        tree.add_name(ROOT, &FileName::new(NAME)?, inode, Time(0))?;
        Ok(tree)
    }
}
