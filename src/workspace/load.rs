//! Reading the stored form of a tree. Whatever the bytes are, the result is a whole tree or an error.

use std::collections::HashSet;
use std::sync::Arc;

use super::chunk::{CHUNK_BYTES, Chunk, PackedChunk, UnsealedChunk};
use super::chunks::Piece;
use super::delta::{VERSION, code};
use super::links::Links;
use super::node::{Body, Directory, FileNode};
use super::op_bytes::{read_name, read_u32};
use super::tree::ROOT;
use super::{FILE_BYTES_MAX, FileContent, FileKind, FileName, HeldChunks, Tree, TreeError, TreeTotals};
use crate::object::{CodecError, Hash, Reader, Time};

/// A name that was taken away or given: directory, name and inode.
pub(super) type EntryLink = (u64, FileName, u64);

/// What a delta does, gathered while its nodes are read.
#[derive(Default)]
pub(super) struct DeltaChanges<'a> {
    packs: Vec<Hash>,
    /// Where chunks are that are named by their hashes.
    held: Option<&'a HeldChunks>,
    /// Entries that are gone.
    pub removed: Vec<EntryLink>,
    /// Entries that are new or lead elsewhere.
    pub set: Vec<EntryLink>,
    /// Names that inodes had that are gone; no such entry may be left.
    pub removed_names: Vec<EntryLink>,
    /// Inodes that go, change or come, each once; those that are left must be looked at in the end.
    pub inodes: HashSet<u64>,
    /// Directories whose directories must be counted in the end.
    pub directories_to_count: HashSet<u64>,
}

impl Tree {
    /// Returns the tree that gave `bytes` by [`Tree::delta_from`] this one.
    ///
    /// `Codec` or `Stored` if the bytes are damaged or of another base.
    pub fn with_delta(&self, bytes: &[u8]) -> Result<Tree, TreeError> {
        self.read_delta(bytes, None)
    }

    /// Returns the tree that gave `bytes` by [`Tree::held_delta_within`] this one.
    ///
    /// `Stored` if `held` does not have a chunk that it names; else like [`Tree::with_delta`].
    pub fn with_held_delta(&self, bytes: &[u8], held: &HeldChunks) -> Result<Tree, TreeError> {
        self.read_delta(bytes, Some(held))
    }

    fn read_delta(&self, bytes: &[u8], held: Option<&HeldChunks>) -> Result<Tree, TreeError> {
        let mut tree = self.clone();
        // The writer left orphans out of the base, too.
        tree.drop_orphans();
        tree.invalidate_hashes();
        let (mut input, mut changes) = (Reader::new(bytes), DeltaChanges { held, ..DeltaChanges::default() });
        match input.byte()? {
            VERSION => {}
            other => return Err(CodecError::Code(other).into()),
        }
        tree.next_inode = input.number()?;
        // Read before the nodes, as their chunks name packs by places in this list.
        changes.packs = (0..input.length()?).map(|_| input.hash()).collect::<Result<_, _>>()?;
        for _ in 0..input.length()? {
            tree.remove_inode(input.number()?, &mut changes)?;
        }
        for _ in 0..input.length()? {
            let inode = input.number()?;
            tree.read_node(inode, &mut changes, &mut input)?;
        }
        if !input.is_empty() {
            return Err(TreeError::Stored("bytes follow its end"));
        }
        // Only now: an entry may lead to an inode that is read after its directory.
        tree.relink(&changes)?;
        tree.check_changes(&changes)?;
        // Counted last, when it is certain which entries lead to directories.
        let entries = changes.removed.iter().chain(&changes.set);
        let moved = entries.filter(|(_, _, inode)| self.is_directory(*inode) || tree.is_directory(*inode));
        changes.directories_to_count.extend(moved.map(|(parent, ..)| *parent));
        changes.directories_to_count.iter().for_each(|inode| tree.count_subdirectories(*inode));
        Ok(tree)
    }

    /// Removes an inode; that its names go, too, is seen in the end.
    fn remove_inode(&mut self, inode: u64, changes: &mut DeltaChanges<'_>) -> Result<(), TreeError> {
        let old = self.nodes.remove(inode).filter(|_| inode != ROOT);
        let old = old.ok_or(TreeError::Stored("an inode goes that is not there"))?;
        // A clone is changed, which an error drops: totals may be half done on the way.
        self.totals.subtract(TreeTotals::from_node(&old));
        self.unsealed.remove(&inode);
        changes.inodes.insert(inode);
        // Its entries go with it, so the inodes that they lead to have to lose those names.
        for (name, child) in old.directory().into_iter().flat_map(|directory| &directory.entries) {
            changes.removed.push((inode, name.clone(), *child));
        }
        changes.removed_names.extend(old.names().map(|(parent, name)| (parent, name.clone(), inode)));
        Ok(())
    }

    fn read_node(
        &mut self,
        inode: u64,
        changes: &mut DeltaChanges<'_>,
        input: &mut Reader<'_>,
    ) -> Result<(), TreeError> {
        // A second body would be applied to the first one, and `relink` would not know which names the base gave it.
        if !changes.inodes.insert(inode) {
            return Err(TreeError::Stored("an inode is there twice"));
        }
        let old = self.nodes.get(inode).cloned();
        let kind = input.byte()?;
        let (mode, uid, epoch, gid) = (read_u32(input)?, read_u32(input)?, read_u32(input)?, read_u32(input)?);
        let mut time = || input.signed().map(Time);
        let (atime, mtime, since, ctime, crtime) = (time()?, time()?, time()?, time()?, time()?);
        let mut node = FileNode::new(Body::Fifo, mode, uid, gid, crtime);
        (node.epoch, node.atime, node.mtime, node.ctime) = (epoch, atime, mtime, ctime);
        node.written = Time(mtime.0.wrapping_add(since.0));
        for _ in 0..input.length()? {
            let (name, value) = (input.bytes()?, input.bytes()?);
            node.xattrs.insert(name.into(), value.into());
        }
        node.body = read_body(kind, inode, old.as_deref(), changes, input)?;
        // Names are stored in directories alone: `relink` brings them up to date once all nodes are read.
        node.links = match (inode, &old) {
            (ROOT, _) => Links::Root,
            (_, Some(old)) => old.links.clone(),
            (_, None) => Links::None,
        };
        // From `next_inode` on numbers are given to new inodes, which would replace this one.
        if inode >= self.next_inode || inode == 0 || (inode == ROOT && node.kind() != FileKind::Directory) {
            return Err(TreeError::Stored("an inode has a number that it can't have"));
        }
        if let Some(old) = &old
            && old.directory().is_some() != node.directory().is_some()
        {
            changes.directories_to_count.extend(old.names().map(|(parent, _)| parent));
        }
        if node.content().is_some_and(FileContent::is_unsealed) {
            self.unsealed.insert(inode);
        } else {
            self.unsealed.remove(&inode);
        }
        // The root is in no totals.
        if inode != ROOT {
            self.totals
                .replace(old.as_deref().map(TreeTotals::from_node).unwrap_or_default(), TreeTotals::from_node(&node));
        }
        self.nodes.insert(inode, Arc::new(node));
        Ok(())
    }

    /// Gives inodes the names that entries have.
    fn relink(&mut self, changes: &DeltaChanges<'_>) -> Result<(), TreeError> {
        // Before names are given: an entry that is set again as it was is in both lists and has to be there in the end.
        // An inode that went itself needs to lose none.
        for (parent, name, inode) in &changes.removed {
            self.change_links(*inode, |links| links.remove(*parent, name));
        }
        for (parent, name, inode) in &changes.set {
            let linked = self.change_links(*inode, |links| links.insert(*parent, name.clone()));
            linked.ok_or(TreeError::Stored("an entry leads nowhere"))?;
        }
        Ok(())
    }

    fn change_links(&mut self, inode: u64, change: impl FnOnce(&mut Links)) -> Option<()> {
        let node = self.node_mut_keeping_stored_owner(inode).ok()?;
        let before = TreeTotals::from_node(node);
        change(&mut node.links);
        let after = TreeTotals::from_node(node);
        self.totals.replace(before, after);
        Some(())
    }
}

/// Changes an inode; `None` if it is not there.
pub(super) fn change_node(tree: &mut Tree, inode: u64, change: impl FnOnce(&mut FileNode)) -> Option<()> {
    tree.node_mut_keeping_stored_owner(inode).ok().map(change)
}

fn read_body(
    kind: u8,
    inode: u64,
    old: Option<&FileNode>,
    changes: &mut DeltaChanges<'_>,
    input: &mut Reader<'_>,
) -> Result<Body, TreeError> {
    const FILE: u8 = FileKind::File as u8;
    const DIRECTORY: u8 = FileKind::Directory as u8;
    let old_entries = old.and_then(FileNode::directory);
    if kind != DIRECTORY {
        // A directory that becomes something else loses its entries.
        let entries = old_entries.into_iter().flat_map(|directory| &directory.entries);
        changes.removed.extend(entries.map(|(name, child)| (inode, name.clone(), *child)));
    }
    Ok(match kind {
        FILE => Body::File(read_content(old.and_then(FileNode::content), changes, input)?),
        DIRECTORY => Body::Directory(read_entries(inode, old_entries, changes, input)?),
        3 => Body::Symlink(input.bytes()?.into()),
        4 => Body::Fifo,
        5 => Body::Socket,
        6 => Body::CharDevice(read_u32(input)?),
        7 => Body::BlockDevice(read_u32(input)?),
        other => return Err(CodecError::Code(other).into()),
    })
}

fn read_entries(
    inode: u64,
    old: Option<&Directory>,
    changes: &mut DeltaChanges<'_>,
    input: &mut Reader<'_>,
) -> Result<Directory, TreeError> {
    let mut directory = old.cloned().unwrap_or_default();
    for _ in 0..input.length()? {
        let name = read_name(input)?;
        let child = directory.entries.remove(&*name).ok_or(TreeError::Stored("a name goes that is not there"))?;
        changes.removed.push((inode, name, child));
    }
    // Removals are applied before all sets, so a name that is set twice would leave its first inode with a link too
    // many.
    let mut given = HashSet::new();
    for _ in 0..input.length()? {
        let (name, child) = (read_name(input)?, input.number()?);
        if child == ROOT || !given.insert(name.clone()) {
            return Err(TreeError::Stored("an entry leads to the root, or is there twice"));
        }
        if let Some(before) = directory.entries.insert(name.clone(), child) {
            changes.removed.push((inode, name.clone(), before));
        }
        changes.set.push((inode, name, child));
    }
    Ok(directory)
}

fn read_content(
    old: Option<&FileContent>,
    changes: &DeltaChanges<'_>,
    input: &mut Reader<'_>,
) -> Result<FileContent, TreeError> {
    let mut content = old.cloned().unwrap_or_default();
    let size = input.number()?;
    if size > FILE_BYTES_MAX {
        return Err(TreeError::Stored("a file is too large"));
    }
    let mut pieces = Vec::new();
    for _ in 0..input.length()? {
        let number = input.number()?;
        let piece = read_piece(changes, input)?;
        let count = if let Some(Piece::Run(count)) = piece { count } else { 1 };
        // Checked once here, so that no later sum of chunk numbers or offsets can overflow.
        let end = number.checked_add(count).and_then(|end| end.checked_mul(CHUNK_BYTES));
        end.filter(|end| *end <= FILE_BYTES_MAX).ok_or(TreeError::Stored("a chunk lies too far behind"))?;
        pieces.push((number, piece));
    }
    if !content.put_stored(pieces) {
        return Err(TreeError::Stored("two chunks overlap"));
    }
    content.resize(size);
    Ok(content)
}

fn read_piece(changes: &DeltaChanges<'_>, input: &mut Reader<'_>) -> Result<Option<Piece>, TreeError> {
    match input.byte()? {
        code::HOLE => Ok(None),
        // A run of no chunks would be a piece that covers not even its own number.
        code::RUN => Ok(Some(Piece::Run(input.number()?.max(1)))),
        code => Ok(Some(Piece::One(read_chunk(code, changes, input)?))),
    }
}

fn read_chunk(code: u8, changes: &DeltaChanges<'_>, input: &mut Reader<'_>) -> Result<Chunk, TreeError> {
    let length = read_u32(input)?;
    if length == 0 || u64::from(length) > CHUNK_BYTES {
        return Err(TreeError::Stored("a chunk has no length that it can have"));
    }
    // The fields of each kind are read in the order in which `write_chunk` writes them.
    Ok(match code {
        code::ZEROS => Chunk::Zeros(length),
        code::UNSEALED => {
            let bytes = input.bytes()?;
            if bytes.len() > length as usize {
                return Err(TreeError::Stored("a chunk has more bytes than its length"));
            }
            Chunk::Unsealed(Arc::new(UnsealedChunk::zero_extended(bytes.to_vec(), length)))
        }
        code::SEALED => {
            let stored = read_u32(input)?;
            let pack = usize::try_from(input.number()?).ok().and_then(|place| changes.packs.get(place));
            let pack = *pack.ok_or(TreeError::Stored("a chunk is in a pack that is not named"))?;
            if stored > length {
                return Err(TreeError::Stored("a chunk has more bytes than its length"));
            }
            Chunk::Sealed(Arc::new(PackedChunk {
                pack,
                number: read_u32(input)?,
                stored_bytes: stored,
                length_bytes: length,
                hash: input.hash()?,
            }))
        }
        code::HELD => {
            let (stored, hash) = (read_u32(input)?, input.hash()?);
            // The hash covers exactly the stored bytes, so that another number of them is damage.
            let found = changes.held.and_then(|held| held.find(&hash)).filter(|found| found.stored_bytes == stored);
            let found = found.ok_or(TreeError::Stored("a chunk is not where its holder has chunks"))?;
            if stored > length {
                return Err(TreeError::Stored("a chunk has more bytes than its length"));
            }
            Chunk::Sealed(Arc::new(PackedChunk { length_bytes: length, ..PackedChunk::clone(found) }))
        }
        other => return Err(CodecError::Code(other).into()),
    })
}
