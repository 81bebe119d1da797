//! A file of sections, each hashed block by block, named by the hash of its footer.
//!
//! ```text
//!  0          64
//!  +----------+-----------+-----------+-----+----------+------------------+----------+
//!  | magic,   | section 0 | section 1 |  …  | footer   | footer bytes u64 | magic    |
//!  | zeros    | 64-byte aligned, zeros between         |                  | 8 bytes  |
//!  +----------+-----------+-----------+-----+----------+------------------+----------+
//!
//!  footer:  kind · sections n · n × (offset, length, blocks × 32-byte hash) · extra bytes
//! ```
//!
//! A block is 64 KiB from the section's own beginning; the last one may be shorter. The name covers
//! the footer, and the footer covers every block, so a file is what its name says or it is refused.
//!
//! Bytes are read in two ways. What is searched is mapped, and its blocks are checked when they are first touched and
//! again by [`Container::recheck`] from time to time. What is served is read and checked each time, see [`Blocks`].

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Blocks, SegmentError};
use crate::disk::{DiskFile, Mapped};
use crate::object::{BlobStore, Context, Hash, Reader};

/// What every such file begins and ends with, whatever is in it.
pub(super) const MAGIC: &[u8; 8] = b"engrSEG1";
/// Sections begin at multiples of this, so that their numbers can be used where they are mapped.
pub(super) const ALIGN_BYTES: u64 = 64;
/// Bytes that are hashed together, and so the least that is read to check one of them.
pub(super) const BLOCK_BYTES: u64 = 64 * 1024;
/// Bytes behind the footer, at the end of the file: they say where it begins.
const TRAILER_BYTES: u64 = 16;
/// Keys the hash of a footer, which is the file's name.
pub(super) static FOOTER_CONTEXT: Context = Context::new("engramfs 2026 segment footer v1");
/// Keys the hashes of blocks, which the footer holds.
pub(super) static BLOCK_CONTEXT: Context = Context::new("engramfs 2026 segment block v1");

struct Section {
    offset: u64,
    length: u64,
    hashes: Vec<Hash>,
    /// One bit a block: set once its bytes were seen to match.
    checked: Vec<AtomicU64>,
    is_checked: AtomicBool,
}

/// An open, mapped file of sections.
pub struct Container {
    name: Hash,
    file: Box<dyn DiskFile>,
    map: Mapped,
    sections: Vec<Section>,
    extra: Vec<u8>,
    /// What was found wrong after blocks had been checked; from then on nothing more is handed out.
    damage: OnceLock<String>,
}

impl Container {
    /// Opens the file with that name and kind; reads and checks the footer, nothing else.
    ///
    /// [`SegmentError::Damaged`] if the footer does not hash to `name`, or is of another kind, as one of an earlier
    /// form is.
    pub fn open(blobs: &BlobStore, name: Hash, kind: u8) -> Result<Container, SegmentError> {
        let io = |what| move |source| SegmentError::Io { name: name.to_string(), what, source };
        let file = blobs.open(&name).map_err(io("opened"))?;
        let length = file.len().map_err(io("opened"))?;
        // Checked against the name before anything in it is parsed, so that the parser sees only bytes that a writer
        // made.
        let footer = read_footer(&*file, length, &name)?;
        let damaged = |reason: &str| SegmentError::Damaged { name: name.to_string(), reason: reason.to_owned() };
        let (sections, extra) =
            parse_footer(&footer, kind, length).ok_or_else(|| damaged("its footer is not of this version's form"))?;
        let map = file.map().map_err(io("mapped"))?;
        // The file may have been cut since its length was asked.
        if map.len() as u64 != length || map.get(..8) != Some(&MAGIC[..]) {
            return Err(damaged("its first bytes are not those of a segment"));
        }
        Ok(Container { name, file, map, sections, extra, damage: OnceLock::new() })
    }

    /// Returns the file's name, which is the hash of its footer.
    pub fn name(&self) -> Hash {
        self.name
    }

    /// Returns the length of the file on disk in bytes, its footer included.
    pub fn file_bytes(&self) -> u64 {
        self.map.len() as u64
    }

    /// Returns the bytes that the writer put into the footer: their form is that of the kind of file.
    pub fn extra(&self) -> &[u8] {
        &self.extra
    }

    /// Returns a whole section as it is mapped, every block checked at first touch. `SegmentError::Damaged` if the file
    /// has no such section, a block does not match its hash, or [`Container::recheck`] found damage anywhere in the
    /// file.
    pub fn section(&self, section: usize) -> Result<&[u8], SegmentError> {
        self.check_unbroken()?;
        let it = self.checked_section(section)?;
        if !it.is_checked.load(Ordering::Acquire) {
            self.map.prefetch(it.offset as usize..(it.offset + it.length) as usize);
            self.check(section, 0, it.length)?;
            // Set only once every block was seen to match, with Release, so that who reads it set may skip all of them.
            it.is_checked.store(true, Ordering::Release);
        }
        Ok(self.section_bytes(section))
    }

    /// Returns `length` bytes of a section from `start` on, as they are mapped; the blocks they lie in are checked at
    /// first touch. `SegmentError::Damaged` if the section ends before, a block does not match its hash, or
    /// [`Container::recheck`] found damage anywhere in the file.
    pub fn slice(&self, section: usize, start: u64, length: u64) -> Result<&[u8], SegmentError> {
        self.check_unbroken()?;
        let end = self.end(section, start, length)?;
        if !self.sections[section].is_checked.load(Ordering::Acquire) {
            self.check(section, start, end)?;
        }
        Ok(&self.section_bytes(section)[start as usize..end as usize])
    }

    /// Reads bytes of a section to serve them: each block is read and checked now, unless this reply has it. Fails like
    /// [`Container::slice`], and with `SegmentError::Io` if the disk fails.
    pub fn read(&self, section: usize, start: u64, length: u64, blocks: &mut Blocks) -> Result<Vec<u8>, SegmentError> {
        self.check_unbroken()?;
        let end = self.end(section, start, length)?;
        let mut bytes = Vec::with_capacity(length as usize);
        let mut at = start;
        while at < end {
            let block = at / BLOCK_BYTES;
            let (begin, stop) = (block * BLOCK_BYTES, end.min((block + 1) * BLOCK_BYTES));
            bytes.extend_from_slice(&blocks.get(self, section, block)?[(at - begin) as usize..(stop - begin) as usize]);
            at = stop;
        }
        Ok(bytes)
    }

    /// Reads a whole section, each block checked now. Fails like [`Container::read`].
    pub fn read_section(&self, section: usize) -> Result<Vec<u8>, SegmentError> {
        self.read(section, 0, self.section_length(section)?, &mut Blocks::default())
    }

    /// Reads bytes of a section that the caller checks by a hash of its own. It gives bytes even after
    /// [`Container::recheck`] found damage. `SegmentError::Damaged` if the section ends before or the file was cut off,
    /// `SegmentError::Io` if the disk fails.
    pub fn read_unchecked(&self, section: usize, start: u64, length: u64) -> Result<Vec<u8>, SegmentError> {
        self.end(section, start, length)?;
        let mut bytes = vec![0; length as usize];
        self.read_into(section, start, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the length of a section; an error where the file has none with that number.
    pub fn section_length(&self, section: usize) -> Result<u64, SegmentError> {
        self.checked_section(section).map(|section| section.length)
    }

    fn checked_section(&self, section: usize) -> Result<&Section, SegmentError> {
        self.sections.get(section).ok_or_else(|| self.damaged(section, "the file does not have it"))
    }

    /// Returns where bytes of a section end in it.
    fn end(&self, section: usize, start: u64, length: u64) -> Result<u64, SegmentError> {
        let whole = self.section_length(section)?;
        let end = start.checked_add(length).filter(|end| *end <= whole);
        end.ok_or_else(|| self.damaged(section, "a row points behind its end"))
    }

    /// Reads through the disk: that a disk fails, or a file was cut, is an error and not a signal.
    fn read_into(&self, section: usize, start: u64, bytes: &mut [u8]) -> Result<(), SegmentError> {
        let read = self.file.read_exact_at(bytes, self.sections[section].offset + start);
        read.map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged(section, "the file was cut off"),
            _ => self.io("read", source),
        })
    }

    /// Reads one block and checks it. `SegmentError::Damaged` if it does not match its hash or the file was cut off,
    /// `SegmentError::Io` if the disk fails.
    pub(super) fn read_block(&self, section: usize, block: u64, bytes: &mut Vec<u8>) -> Result<(), SegmentError> {
        let it = &self.sections[section];
        bytes.resize(BLOCK_BYTES.min(it.length - block * BLOCK_BYTES) as usize, 0);
        self.read_into(section, block * BLOCK_BYTES, bytes)?;
        if !cfg!(fuzzing) && Hash::digest(&BLOCK_CONTEXT, bytes) != it.hashes[block as usize] {
            return Err(self.damaged(section, &format!("block {block} does not match its hash")));
        }
        Ok(())
    }

    /// Checks the block with that number, counted through all sections, again, and returns its bytes; none after the
    /// last. A block that was right before and is wrong now ends all use of the file. Bytes are read from the disk and
    /// not taken from the mapping. The error of that is `SegmentError::Damaged`; `SegmentError::Io` if the disk fails
    /// ends nothing.
    pub fn recheck(&self, number: u64) -> Option<Result<u64, SegmentError>> {
        let mut block = number;
        for (section, it) in self.sections.iter().enumerate() {
            let blocks = it.hashes.len() as u64;
            if block < blocks {
                let mut bytes = Vec::new();
                let checked = self.read_block(section, block, &mut bytes).map(|()| bytes.len() as u64);
                if let Err(SegmentError::Damaged { reason, .. }) = &checked {
                    // The first reason stays; later ones follow from the same damage or add nothing for whoever is
                    // told.
                    let _ = self.damage.set(reason.clone());
                }
                return Some(checked);
            }
            block -= blocks;
        }
        None
    }

    fn check_unbroken(&self) -> Result<(), SegmentError> {
        match self.damage.get() {
            None => Ok(()),
            Some(reason) => Err(SegmentError::Damaged { name: self.name.to_string(), reason: reason.clone() }),
        }
    }

    /// Checks every byte of the file, those between the sections too. The first damage ends it:
    /// `SegmentError::Damaged`, or `SegmentError::Io` if the disk fails.
    pub fn verify(&self) -> Result<(), SegmentError> {
        let mut at = MAGIC.len() as u64;
        for (index, section) in self.sections.iter().enumerate() {
            let between = self.map.get(at as usize..section.offset as usize);
            if !between.is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0)) {
                return Err(self.damaged(index, "the bytes before it are not zero"));
            }
            // Blocks that were right at an earlier look would else be passed over.
            section.checked.iter().for_each(|bits| bits.store(0, Ordering::Release));
            self.check(index, 0, section.length)?;
            at = section.offset + section.length;
        }
        let footer = self.map.len() as u64 - TRAILER_BYTES - self.footer_length();
        let between = self.map.get(at as usize..footer as usize);
        if footer != at.next_multiple_of(ALIGN_BYTES)
            || !between.is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0))
        {
            return Err(self.damaged(self.sections.len(), "the bytes before the footer are not zero"));
        }
        Ok(())
    }

    fn footer_length(&self) -> u64 {
        let end = self.map.len();
        let bytes: [u8; 8] = self.map[end - 16..end - 8].try_into().unwrap_or_default();
        u64::from_le_bytes(bytes)
    }

    fn section_bytes(&self, section: usize) -> &[u8] {
        let it = &self.sections[section];
        &self.map[it.offset as usize..(it.offset + it.length) as usize]
    }

    /// Hashes the blocks that `start..end` touches, unless they were seen to match before.
    fn check(&self, section: usize, start: u64, end: u64) -> Result<(), SegmentError> {
        let it = &self.sections[section];
        let mut buffer = Vec::new();
        for block in start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES) {
            let (word, bit) = (&it.checked[block as usize / 64], 1 << (block % 64));
            if word.load(Ordering::Acquire) & bit == 0 {
                self.read_block(section, block, &mut buffer)?;
                // Several threads may check one block at the same time, and each sets the same bit.
                word.fetch_or(bit, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Returns the error for a section whose bytes are not what they should be.
    pub fn damaged(&self, section: usize, reason: &str) -> SegmentError {
        SegmentError::Damaged { name: self.name.to_string(), reason: format!("section {section}: {reason}") }
    }

    fn io(&self, what: &'static str, source: io::Error) -> SegmentError {
        SegmentError::Io { name: self.name.to_string(), what, source }
    }
}

/// Returns the kind byte of the file with that name, whose footer is checked. 0 if the footer is empty.
/// `SegmentError::Damaged` if the footer does not match the name, `SegmentError::Io` if the file is missing or can't be
/// read.
pub fn container_kind(blobs: &BlobStore, name: Hash) -> Result<u8, SegmentError> {
    let io = |what| move |source| SegmentError::Io { name: name.to_string(), what, source };
    let file = blobs.open(&name).map_err(io("opened"))?;
    let length = file.len().map_err(io("opened"))?;
    Ok(read_footer(&*file, length, &name)?.first().copied().unwrap_or_default())
}

fn read_footer(file: &dyn DiskFile, length: u64, name: &Hash) -> Result<Vec<u8>, SegmentError> {
    let damaged = |reason: &str| SegmentError::Damaged { name: name.to_string(), reason: reason.to_owned() };
    let io = |source| SegmentError::Io { name: name.to_string(), what: "read", source };
    if length < ALIGN_BYTES + TRAILER_BYTES {
        return Err(damaged("it is too short"));
    }
    let mut trailer = [0; TRAILER_BYTES as usize];
    file.read_exact_at(&mut trailer, length - TRAILER_BYTES).map_err(io)?;
    let (bytes, magic) = trailer.split_at(8);
    let footer = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    // `length` was compared above, so that this can't wrap; the footer's own length is not trusted before its hash.
    if magic != MAGIC || footer > length - ALIGN_BYTES - TRAILER_BYTES {
        return Err(damaged("its last bytes are not those of a segment"));
    }
    let mut bytes = vec![0; footer as usize];
    file.read_exact_at(&mut bytes, length - TRAILER_BYTES - footer).map_err(io)?;
    if !cfg!(fuzzing) && Hash::digest(&FOOTER_CONTEXT, &bytes) != *name {
        return Err(damaged("its footer does not match its name"));
    }
    Ok(bytes)
}

fn parse_footer(bytes: &[u8], kind: u8, length: u64) -> Option<(Vec<Section>, Vec<u8>)> {
    let mut input = Reader::new(bytes);
    if input.byte().ok()? != kind {
        return None;
    }
    let mut sections = Vec::new();
    for _ in 0..input.length().ok()? {
        let (offset, section_length) = (input.number().ok()?, input.number().ok()?);
        // Every later slice of the mapping relies on this: a section lies within the file.
        if offset.checked_add(section_length)? > length {
            return None;
        }
        let blocks = section_length.div_ceil(BLOCK_BYTES) as usize;
        let hashes = (0..blocks).map(|_| input.hash()).collect::<Result<Vec<_>, _>>().ok()?;
        let checked = (0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        // An empty section has no block that is ever checked.
        let is_checked = AtomicBool::new(section_length == 0);
        sections.push(Section { offset, length: section_length, hashes, checked, is_checked });
    }
    let extra = input.bytes().ok()?.to_vec();
    input.is_empty().then_some((sections, extra))
}
