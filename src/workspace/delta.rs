//! The stored form of a tree: how it differs from a base.
//!
//! ```text
//!  version 3 · next inode · packs n, n × name · gone n, n × inode · changed n, n × node
//!  node       inode · kind · mode · uid · epoch · gid · atime · mtime · written - mtime · ctime · crtime
//!             · attributes n, n × (name, value) · body
//!  file       size · chunks n, n × (number, 0 = hole | 1 zeros length | 2 unsealed length, bytes | 3 sealed length,
//!             stored, pack's place, number in it, hash | 4 so many whole chunks of zeros): what differs from the
//!             base's file
//!  directory  removed n, n × name · set n, n × (name, inode): likewise
//!  link       target              device   number              fifo, socket   nothing
//! ```
//!
//! The transfers that an epoch counts are stored elsewhere. Names of inodes, numbers of links and totals follow from the
//! entries. Orphans are left out. Where chunks are named by their hashes, 5 stands for sealed: length, stored, hash.

use std::collections::HashMap;
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use super::chunk::{Chunk, trim_trailing_zeros};
use super::chunks::Piece;
use super::node::{Body, Directory, FileNode};
use super::nodes::ChangedNode;
use super::{FileContent, FileName, HeldChunks, Tree, TreeError};
use crate::object::{Hash, Writer};

/// First byte of the stored form.
pub(super) const VERSION: u8 = 3;

/// Codes of chunks.
pub(super) mod code {
    /// No chunk: its bytes read as zeros and take up no space.
    pub const HOLE: u8 = 0;
    /// A chunk of allocated zeros.
    pub const ZEROS: u8 = 1;
    /// Unsealed: the bytes themselves follow, without zeros at their end.
    pub const UNSEALED: u8 = 2;
    /// In a pack that the delta names.
    pub const SEALED: u8 = 3;
    /// Whole chunks of zeros that take up space, one after the other.
    pub const RUN: u8 = 4;
    /// In a pack that the reader has to find by the chunk's hash.
    pub const HELD: u8 = 5;
}

/// How a delta names chunks that are in packs.
enum ChunkNames<'a> {
    ByPlace(Table),
    /// By their hashes alone; the chunks go here.
    ByHash(&'a mut HeldChunks),
}

/// The packs that a delta names, in order of their first use.
#[derive(Default)]
struct Table {
    places: HashMap<Hash, u64>,
    names: Vec<Hash>,
}

impl Tree {
    /// Returns the difference of this tree from `base`, for [`Tree::with_delta`]. The cost depends on what differs.
    ///
    /// It includes the bytes of unsealed chunks, so seal the tree first; orphans are left out. Fails if an unsealed
    /// chunk can't be read.
    pub fn delta_from(&self, base: &Tree) -> Result<Vec<u8>, TreeError> {
        Ok(self.delta_within(base, usize::MAX)?.unwrap_or_default())
    }

    /// Like [`Tree::delta_from`], for a delta of up to `bytes_max`: `None` if it is longer. A longer one is not written
    /// to its end, so that comparing a tree with many others takes no more memory than that. Fails like
    /// [`Tree::delta_from`].
    pub fn delta_within(&self, base: &Tree, bytes_max: usize) -> Result<Option<Vec<u8>>, TreeError> {
        self.write_delta(base, ChunkNames::ByPlace(Table::default()), bytes_max)
    }

    /// Like [`Tree::delta_within`], for [`Tree::with_held_delta`]: names chunks by their hashes and adds them to
    /// `held`, so that moving them into other packs does not change it. If the delta is longer, `held` may have chunks
    /// that are not needed. Fails like [`Tree::delta_from`].
    pub fn held_delta_within(
        &self,
        base: &Tree,
        held: &mut HeldChunks,
        bytes_max: usize,
    ) -> Result<Option<Vec<u8>>, TreeError> {
        self.write_delta(base, ChunkNames::ByHash(held), bytes_max)
    }

    fn write_delta(
        &self,
        base: &Tree,
        mut names: ChunkNames<'_>,
        bytes_max: usize,
    ) -> Result<Option<Vec<u8>>, TreeError> {
        let (mut gone, mut changed) = (Vec::new(), Vec::new());
        // Orphans are not stored, so an inode that lost its last name counts as gone.
        let is_there = |tree: &Tree, inode: u64| tree.nodes.get(inode).is_some_and(|node| !node.is_nameless());
        for ChangedNode { inode, .. } in base.nodes.diff(&self.nodes) {
            match (is_there(base, inode), is_there(self, inode)) {
                // An orphan of the base counts as not there, so an inode that has got a name again is written whole.
                (_, true) => changed.push(inode),
                (true, false) => gone.push(inode),
                (false, false) => {}
            }
            // Each of them takes a byte at least: two large trees are not compared to their ends.
            if gone.len() + changed.len() > bytes_max {
                return Ok(None);
            }
        }
        // Written before the header, whose table of packs is complete only once all nodes are written.
        let mut nodes = Writer::new();
        nodes.number(changed.len() as u64);
        for inode in changed {
            let old = base.nodes.get(inode).filter(|node| !node.is_nameless()).map(Arc::as_ref);
            if let Some(new) = self.nodes.get(inode) {
                nodes.number(inode);
                write_node(old, new, &mut names, &mut nodes)?;
            }
            if nodes.as_slice().len() > bytes_max {
                return Ok(None);
            }
        }
        let mut out = Writer::new();
        let packs = if let ChunkNames::ByPlace(table) = names { table.names } else { Vec::new() };
        out.byte(VERSION).number(self.next_inode).number(packs.len() as u64);
        packs.iter().for_each(|name| {
            out.hash(name);
        });
        out.number(gone.len() as u64);
        gone.iter().for_each(|inode| {
            out.number(*inode);
        });
        out.raw(nodes.as_slice());
        Ok(Some(out.finish()).filter(|delta| delta.len() <= bytes_max))
    }
}

fn write_node(
    old: Option<&FileNode>,
    new: &FileNode,
    names: &mut ChunkNames<'_>,
    out: &mut Writer,
) -> Result<(), TreeError> {
    out.byte(new.kind() as u8).number(new.mode.into()).number(new.uid.into()).number(new.epoch.into());
    out.number(new.gid.into());
    // `written` is mostly equal to mtime, so that the difference takes one byte.
    out.signed(new.atime.0).signed(new.mtime.0).signed(new.written.0.wrapping_sub(new.mtime.0));
    out.signed(new.ctime.0).signed(new.crtime.0);
    out.number(new.xattrs.len() as u64);
    for (name, value) in new.xattrs() {
        out.bytes(name).bytes(value);
    }
    match (old.map(FileNode::body), new.body()) {
        // The reader applies a body to the base's only where both are of one kind, and begins with nothing otherwise.
        (Some(Body::File(old)), Body::File(new)) => write_content(old, new, names, out)?,
        (_, Body::File(new)) => write_content(&FileContent::default(), new, names, out)?,
        (Some(Body::Directory(old)), Body::Directory(new)) => write_entries(&old.entries, new, out),
        (_, Body::Directory(new)) => write_entries(&OrdMap::new(), new, out),
        (_, Body::Symlink(target)) => {
            out.bytes(target);
        }
        (_, Body::CharDevice(rdev) | Body::BlockDevice(rdev)) => {
            out.number((*rdev).into());
        }
        (_, Body::Fifo | Body::Socket) => {}
    }
    Ok(())
}

fn write_entries(old: &OrdMap<FileName, u64>, new: &Directory, out: &mut Writer) {
    let (mut removed, mut set) = (Vec::new(), Vec::new());
    for item in old.diff(&new.entries) {
        match item {
            DiffItem::Add(name, inode) | DiffItem::Update { new: (name, inode), .. } => set.push((name, *inode)),
            DiffItem::Remove(name, _) => removed.push(name),
        }
    }
    out.number(removed.len() as u64);
    removed.into_iter().for_each(|name| {
        out.bytes(name);
    });
    out.number(set.len() as u64);
    set.into_iter().for_each(|(name, inode)| {
        out.bytes(name).number(inode);
    });
}

fn write_content(
    old: &FileContent,
    new: &FileContent,
    names: &mut ChunkNames<'_>,
    out: &mut Writer,
) -> Result<(), TreeError> {
    let changed = old.chunks.differences(&new.chunks);
    out.number(new.size()).number(changed.len() as u64);
    for (number, piece) in changed {
        out.number(number);
        match piece {
            None => out.byte(code::HOLE),
            Some(Piece::Run(count)) => out.byte(code::RUN).number(count),
            Some(Piece::One(chunk)) => {
                write_chunk(&chunk, names, out)?;
                &mut *out
            }
        };
    }
    Ok(())
}

fn write_chunk(chunk: &Chunk, names: &mut ChunkNames<'_>, out: &mut Writer) -> Result<(), TreeError> {
    match chunk {
        Chunk::Zeros(length) => out.byte(code::ZEROS).number((*length).into()),
        Chunk::Unsealed(unsealed) => {
            out.byte(code::UNSEALED).number(unsealed.length().into());
            unsealed.with_bytes(|bytes| {
                out.bytes(trim_trailing_zeros(bytes));
            });
            out
        }
        Chunk::Appended(written) => {
            // The bytes themselves, since the file that they were written down in may be gone when the delta is read.
            let bytes = written.read()?;
            out.byte(code::UNSEALED).number(bytes.len() as u64).bytes(trim_trailing_zeros(&bytes))
        }
        Chunk::Sealed(sealed) => {
            let table = match names {
                ChunkNames::ByPlace(table) => table,
                ChunkNames::ByHash(held) => {
                    out.byte(code::HELD)
                        .number(sealed.length_bytes.into())
                        .number(sealed.stored_bytes.into())
                        .hash(&sealed.hash);
                    held.add(sealed);
                    return Ok(());
                }
            };
            let place = *table.places.entry(sealed.pack).or_insert_with(|| {
                table.names.push(sealed.pack);
                table.names.len() as u64 - 1
            });
            out.byte(code::SEALED).number(sealed.length_bytes.into()).number(sealed.stored_bytes.into());
            out.number(place).number(sealed.number.into()).hash(&sealed.hash)
        }
    };
    Ok(())
}
