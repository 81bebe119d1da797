//! Moving what is needed of packs of which little is, so that the rest can go.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::chunk::{Chunk, PackedChunk};
use super::hash::HashMemo;
use super::node::{Body, FileNode};
use super::nodes::{ChangedNode, Nodes};
use super::pack::{Packs, write_pack};
use super::{Tree, TreeError};
use crate::object::{BlobStore, Hash};

/// Nodes that may differ from the last tree for the next one to be moved like it.
const REUSED_DIFFERENCES_MAX: usize = 4096;

/// Bytes of a chunk's rows in the tables of a pack, and of a pack's footer.
const CHUNK_ROW_BYTES: u64 = 44;
const FOOTER_BYTES: u64 = 512;
/// Bytes of a pack for each hash that it holds.
const BYTES_PER_HASH: u64 = (64 << 10) / 32;

/// Which chunks of which packs some trees need.
#[derive(Default)]
pub struct PackMarks(HashMap<Hash, ChunkMarks>);

#[derive(Default)]
struct ChunkMarks {
    /// A bit for each chunk.
    marked: Vec<u64>,
    chunks: u64,
    bytes: u64,
}

impl ChunkMarks {
    /// Marks a chunk; returns whether it was not marked before.
    fn mark(&mut self, sealed: &PackedChunk) -> bool {
        let (word, bit) = (sealed.number as usize / 64, 1 << (sealed.number % 64));
        if self.marked.len() <= word {
            self.marked.resize(word + 1, 0);
        }
        let is_new = self.marked[word] & bit == 0;
        self.marked[word] |= bit;
        self.chunks += u64::from(is_new);
        self.bytes += if is_new { u64::from(sealed.stored_bytes) } else { 0 };
        is_new
    }

    fn file_bytes(&self) -> u64 {
        let bytes = self.bytes + self.chunks * CHUNK_ROW_BYTES;
        bytes + bytes / BYTES_PER_HASH + FOOTER_BYTES
    }
}

impl PackMarks {
    /// Marks what some trees need; returns the bytes of it that nothing before needed.
    pub fn mark_counting_bytes<'a>(&mut self, trees: impl Iterator<Item = &'a Tree>) -> u64 {
        let mut more = 0;
        for_each_sealed_chunk(trees, |sealed| {
            if self.0.entry(sealed.pack).or_default().mark(sealed) {
                more += u64::from(sealed.stored_bytes);
            }
        });
        more
    }

    /// Returns the marked packs, each with the bytes of its marked chunks.
    pub fn marked(&self) -> impl Iterator<Item = (Hash, u64)> {
        self.0.iter().map(|(name, marks)| (*name, marks.bytes))
    }

    /// Returns the marked packs, each with the bytes of a file of its marked chunks alone.
    pub fn needed(&self) -> impl Iterator<Item = (Hash, u64)> {
        self.0.iter().map(|(name, marks)| (*name, marks.file_bytes()))
    }
}

/// Calls `look` with the chunks of some trees that are in packs. Of each tree only what it does not share with the one
/// before is looked at.
fn for_each_sealed_chunk<'a>(trees: impl Iterator<Item = &'a Tree>, mut look: impl FnMut(&Arc<PackedChunk>)) {
    let mut before = Nodes::default();
    for tree in trees {
        for node in before.diff(&tree.nodes).filter_map(|changed| changed.new) {
            for (_, chunk) in node.content().into_iter().flat_map(|content| content.chunks.iter()) {
                if let Chunk::Sealed(sealed) = chunk {
                    look(sealed);
                }
            }
        }
        before = tree.nodes.clone();
    }
}

/// Turns trees into ones that need none of some old packs. It knows where the chunks of those are now.
pub struct TreeRelocator {
    old_packs: HashSet<Hash>,
    /// By their hashes.
    places: HashMap<Hash, PackedChunk>,
    /// Nodes that were moved before, so that trees that shared one share it again.
    nodes: HashMap<*const FileNode, (Arc<FileNode>, Arc<FileNode>)>,
    /// The last tree that was moved, before and after: what the next shares with it stays shared.
    last: Option<(Nodes, Nodes)>,
}

impl TreeRelocator {
    /// Copies the chunks of `old_packs` that the trees need into a new pack. Writes nothing if they need none.
    ///
    /// Each chunk is read and checked. After an error the old packs are as good as before.
    pub fn repack<'a>(
        blobs: &BlobStore,
        packs: &dyn Packs,
        trees: impl Iterator<Item = &'a Tree>,
        old_packs: HashSet<Hash>,
    ) -> Result<TreeRelocator, TreeError> {
        let mut chunks: HashMap<Hash, Chunk> = HashMap::new();
        for_each_sealed_chunk(trees, |sealed| {
            // Keyed by hash, since trees may name equal chunks in several of the old packs: one copy serves all.
            if old_packs.contains(&sealed.pack) {
                chunks.entry(sealed.hash).or_insert_with(|| {
                    let length = sealed.stored_bytes;
                    Chunk::Sealed(Arc::new(PackedChunk { length_bytes: length, ..PackedChunk::clone(sealed) }))
                });
            }
        });
        let mut chunks: Vec<Chunk> = chunks.into_values().collect();
        // Large ones first, so that they lie in whole blocks of the file, and in an order that does not vary.
        chunks.sort_by_key(|chunk| (std::cmp::Reverse(chunk.length()), chunk.hash()));
        let places = match chunks.is_empty() {
            true => HashMap::new(),
            false => {
                let (name, written) = write_pack(blobs, &chunks, packs)?;
                // Who reads an older tree finds its chunks there once the old packs are gone.
                packs.pack(&name)?;
                written.into_iter().map(|it| (it.hash, it)).collect()
            }
        };
        Ok(TreeRelocator { old_packs, places, nodes: HashMap::new(), last: None })
    }

    /// Returns a tree of equal content that needs none of the old packs. Numbers, times and head are the same.
    pub fn relocated_tree(&mut self, tree: &Tree) -> Tree {
        let mut new = tree.clone();
        new.nodes = self.relocated_nodes(&tree.nodes);
        if let Some(memo) = tree.hash_memo.get() {
            // The content is equal, so the hashes of directories hold for the new nodes, too.
            let directories = memo.directories.clone();
            new.hash_memo = Arc::new(HashMemo { nodes: new.nodes.clone(), directories }).into();
            new.older_hash_memo = None;
        }
        new
    }

    fn relocated_nodes(&mut self, old: &Nodes) -> Nodes {
        let (before, mut new) = match &self.last {
            Some((before, after)) if before.diff(old).nth(REUSED_DIFFERENCES_MAX).is_none() => {
                (before.clone(), after.clone())
            }
            _ => (Nodes::default(), old.clone()),
        };
        for ChangedNode { inode, new: node, .. } in before.diff(old) {
            match node {
                None => drop(new.remove(inode)),
                Some(node) => match self.relocated_node(node) {
                    Some(moved) => new.insert(inode, moved),
                    // Inserting the very same node would copy the blocks above it and share less.
                    None if new.get(inode).is_some_and(|there| Arc::ptr_eq(there, node)) => {}
                    None => new.insert(inode, node.clone()),
                },
            }
        }
        // Both are held, so that the addresses of their nodes stay theirs while later trees are compared with them.
        self.last = Some((old.clone(), new.clone()));
        new
    }

    /// Returns a node with its chunks in the new pack, if any has moved.
    fn relocated_node(&mut self, old: &Arc<FileNode>) -> Option<Arc<FileNode>> {
        if let Some((_, new)) = self.nodes.get(&Arc::as_ptr(old)) {
            return Some(new.clone());
        }
        let mut chunks = old.content()?.chunks.iter();
        // Asked before the node is cloned, so that a node with nothing in the old packs stays shared.
        chunks.find(|(_, chunk)| self.relocated_chunk(chunk).is_some())?;
        let mut node = FileNode::clone(old);
        if let Body::File(content) = &mut node.body {
            content.replace_chunks(|chunk| self.relocated_chunk(chunk));
        }
        let new = Arc::new(node);
        self.nodes.insert(Arc::as_ptr(old), (old.clone(), new.clone()));
        Some(new)
    }

    fn relocated_chunk(&self, chunk: &Chunk) -> Option<Chunk> {
        let Chunk::Sealed(sealed) = chunk else { return None };
        // A chunk that stays elsewhere keeps its place; the length is the file's own, as the pack leaves out zeros at
        // the end.
        let place = self.old_packs.contains(&sealed.pack).then(|| self.places.get(&sealed.hash))??;
        Some(Chunk::Sealed(Arc::new(PackedChunk { length_bytes: sealed.length_bytes, ..place.clone() })))
    }
}
