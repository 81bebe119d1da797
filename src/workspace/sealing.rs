//! Moving chunks out of memory and journal into packs, and the trees that see them there. No content changes, so heads stay as
//! they are, and trees that shared nodes share them again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use imbl::OrdSet;

use super::chunk::{CHUNK_BYTES, Chunk, PackedChunk};
use super::hash::HashMemo;
use super::node::{Body, FileNode};
use super::nodes::{ChangedNode, Nodes};
use super::pack::{Pack, Packs, write_pack};
use super::{Tree, TreeError};
use crate::object::{BlobStore, Hash};

/// Turns trees into ones whose chunks are in packs. It finds the new place of a chunk by the address of the old one,
/// which it holds so that no other chunk gets that address.
pub struct TreeSealer {
    pack_name: Option<Hash>,
    places: HashMap<*const (), (Chunk, ChunkLocation)>,
    /// Nodes that were sealed before, so that trees that shared one share it again.
    nodes: HashMap<*const FileNode, (Arc<FileNode>, Arc<FileNode>)>,
    /// The last tree that was sealed, before and after: what the next shares with it stays shared.
    last: Option<(Nodes, Nodes)>,
}

/// Where the bytes of an unsealed chunk are now.
enum ChunkLocation {
    /// They were zeros all of them.
    AllZeros,
    Pack(PackedChunk),
}

/// Writes the unsealed chunks of all `trees` into at most one new pack in the blob store.
///
/// Equal chunks are written once, and not at all where a pack that the trees reach has them. Chunks are hashed here, so
/// a tree that is sealed afterwards has its head at once.
///
/// Fails if a chunk that is left in the journal can't be read or the disk refuses. A pack with known chunks that can't
/// be read is passed over: they are written again.
pub fn write_packs<'a>(
    blobs: &BlobStore,
    packs: &dyn Packs,
    trees: impl Iterator<Item = &'a Tree>,
) -> Result<TreeSealer, TreeError> {
    let trees: Vec<&Tree> = trees.collect();
    let unsealed = unsealed_chunks(&trees);
    let mut sealer = TreeSealer { pack_name: None, places: HashMap::new(), nodes: HashMap::new(), last: None };
    if unsealed.is_empty() {
        return Ok(sealer);
    }
    // Asked before anything is written: a chunk that some pack has must not be stored twice.
    let mut known = find_packed_chunks(packs, &trees, &unsealed)?;
    let mut fresh = Vec::new();
    let mut seen = HashSet::new();
    for chunk in &unsealed {
        if let Some(hash) = chunk.hash()
            && !known.contains_key(&hash)
            && seen.insert(hash)
        {
            fresh.push(chunk.clone());
        }
    }
    // Full chunks first, so that each lies in one block of the file. The sort keeps the order else.
    fresh.sort_by_key(|chunk| u64::from(chunk.length()) != CHUNK_BYTES);
    if !fresh.is_empty() {
        let (name, sealed) = write_pack(blobs, &fresh, packs)?;
        sealer.pack_name = Some(name);
        known.extend(sealed.into_iter().map(|it| (it.hash, it)));
    }
    for chunk in unsealed {
        let place = match chunk.hash() {
            None => ChunkLocation::AllZeros,
            Some(hash) => match known.get(&hash) {
                // Found by its hash alone: a chunk that some pack has already is not read again.
                Some(sealed) => ChunkLocation::Pack(sealed.clone()),
                None => continue,
            },
        };
        sealer.places.extend(chunk.address().map(|address| (address, (chunk, place))));
    }
    Ok(sealer)
}

/// Returns every unsealed chunk of some trees once.
fn unsealed_chunks(trees: &[&Tree]) -> Vec<Chunk> {
    let (mut nodes, mut chunks, mut found) = (HashSet::new(), HashSet::new(), Vec::new());
    for tree in trees {
        for node in tree.unsealed.iter().filter_map(|inode| tree.nodes.get(*inode)) {
            // Branches share most nodes with the ones that they were forked from.
            if !nodes.insert(Arc::as_ptr(node)) {
                continue;
            }
            for (_, chunk) in node.content().into_iter().flat_map(|content| content.chunks.iter()) {
                if chunk.address().is_some_and(|address| chunks.insert(address)) {
                    found.push(chunk.clone());
                }
            }
        }
    }
    found
}

/// Returns where packs that the trees reach have some of the chunks already.
fn find_packed_chunks(
    packs: &dyn Packs,
    trees: &[&Tree],
    unsealed: &[Chunk],
) -> Result<HashMap<Hash, PackedChunk>, TreeError> {
    let mut known = HashMap::new();
    // A pack that can't be read is not a reason not to write another.
    let open = reachable_packs(trees.iter().copied()).into_iter().filter_map(|name| packs.pack(&name).ok());
    let open: Vec<Arc<Pack>> = open.collect();
    for hash in unsealed.iter().filter_map(|chunk| chunk.hash()) {
        let found = open.iter().find_map(|pack| pack.find(&hash).ok().flatten());
        known.extend(found.map(|sealed| (hash, sealed)));
    }
    Ok(known)
}

/// Returns the names of all packs that some trees reach. Of each tree only what it does not share
/// with the one before is looked at.
pub fn reachable_packs<'a>(trees: impl Iterator<Item = &'a Tree>) -> HashSet<Hash> {
    let mut names = HashSet::new();
    let mut before = Nodes::default();
    for tree in trees {
        for node in before.diff(&tree.nodes).filter_map(|changed| changed.new) {
            for (_, chunk) in node.content().into_iter().flat_map(|content| content.chunks.iter()) {
                if let Chunk::Sealed(sealed) = chunk {
                    names.insert(sealed.pack);
                }
            }
        }
        // Held as a clone, so that the next `diff` passes over every block that both trees share.
        before = tree.nodes.clone();
    }
    names
}

impl TreeSealer {
    /// Returns the name of the new pack, if one was needed.
    pub fn pack_name(&self) -> Option<Hash> {
        self.pack_name
    }

    /// Returns a tree of equal content with its chunks in the pack; later chunks stay unsealed. Numbers, times and head
    /// are the same.
    pub fn sealed_tree(&mut self, tree: &Tree) -> Tree {
        let mut new = tree.clone();
        for inode in &tree.unsealed {
            // Asked node by node: a chunk that came in after the packs were written has no place and stays unsealed.
            let Some(node) = tree.nodes.get(*inode).map(|node| self.sealed_node(node)) else { continue };
            if !node.content().is_some_and(super::FileContent::is_unsealed) {
                new.unsealed.remove(inode);
            }
        }
        new.nodes = self.sealed_nodes(&tree.nodes, &tree.unsealed);
        if let Some(memo) = tree.hash_memo.get() {
            // The content is equal, so the hashes of directories hold for the new nodes, and the head need not be
            // worked out again.
            let directories = memo.directories.clone();
            new.hash_memo = Arc::new(HashMemo { nodes: new.nodes.clone(), directories }).into();
            new.older_hash_memo = None;
        }
        new
    }

    /// Returns a map of nodes with the unsealed ones sealed.
    fn sealed_nodes(&mut self, old: &Nodes, unsealed: &OrdSet<u64>) -> Nodes {
        // Beginning with what the last tree became keeps shared what both trees share, also among their sealed nodes.
        let mut new = self.starting_nodes(old, unsealed);
        let changed: Vec<(u64, Option<Arc<FileNode>>)> = match &self.last {
            Some((before, after)) if new.ptr_eq(after) => {
                before.diff(old).map(|ChangedNode { inode, new, .. }| (inode, new.cloned())).collect()
            }
            _ => unsealed.iter().map(|inode| (*inode, old.get(*inode).cloned())).collect(),
        };
        for (inode, node) in changed {
            match node {
                // In the last tree, from whose sealed nodes this map began, and not in this one.
                None => drop(new.remove(inode)),
                Some(node) if unsealed.contains(&inode) => new.insert(inode, self.sealed_node(&node)),
                Some(node) => new.insert(inode, node),
            }
        }
        self.last = Some((old.clone(), new.clone()));
        new
    }

    /// Returns what to begin with: the last sealed map where less differs from it than is unsealed.
    fn starting_nodes(&self, old: &Nodes, unsealed: &OrdSet<u64>) -> Nodes {
        match &self.last {
            Some((before, after)) if before.diff(old).nth(unsealed.len()).is_none() => after.clone(),
            _ => old.clone(),
        }
    }

    /// Returns a node with its chunks in the pack.
    fn sealed_node(&mut self, old: &Arc<FileNode>) -> Arc<FileNode> {
        if let Some((_, new)) = self.nodes.get(&Arc::as_ptr(old)) {
            return new.clone();
        }
        let mut node = FileNode::clone(old);
        if let Body::File(content) = &mut node.body {
            content.replace_chunks(|chunk| self.sealed_chunk(chunk));
        }
        let new = Arc::new(node);
        // The old node is held, or its address could be that of another one before all trees are done.
        self.nodes.insert(Arc::as_ptr(old), (old.clone(), new.clone()));
        new
    }

    /// Returns the chunk in the pack that a chunk in memory became.
    fn sealed_chunk(&self, chunk: &Chunk) -> Option<Chunk> {
        Some(match &self.places.get(&chunk.address()?)?.1 {
            ChunkLocation::AllZeros => Chunk::Zeros(chunk.length()),
            ChunkLocation::Pack(sealed) => {
                // The pack leaves out zeros at the end, so equal chunks may have other lengths: each keeps its own.
                Chunk::Sealed(Arc::new(PackedChunk { length_bytes: chunk.length(), ..sealed.clone() }))
            }
        })
    }
}
