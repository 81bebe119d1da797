//! Long writes: the bytes of whole chunks stay in the journal until they are sealed.
//!
//! A write with a whole chunk is one frame of content: its head says what is written where, and the
//! hashes of the chunks behind the content vouch for it. They are those that the tree needs anyway. So
//! each byte is copied once and hashed once, and none of a whole chunk is kept in memory.

use super::files::{Author, EditError, FileOpRecord, FilesBefore, split_mac};
use super::transact::LogTail;
use crate::journal::{Frame, FrameKind, Journal, split_content};
use crate::memory::catalog::Catalog;
use crate::memory::command::log_record::COMMAND_BYTES;
use crate::memory::{Error, Memory};
use crate::object::{CodecError, Reader, Writer};
use crate::sync::allow_waiting;
use crate::workspace::{DirectWrite, FileOp, Packs, Tree, TreeError};

/// What counts towards a seal for each end of a long write, which keeps one chunk of 64 KiB in memory at
/// most: 64 MiB of them begin one. A seal in the middle of a long file takes time from who writes it.
const END_BYTES: u64 = 8 << 10;

/// What the head of a frame of content says: who writes, and where the content belongs.
struct ContentHeader {
    author: Author,
    inode: u64,
    offset: u64,
}

impl ContentHeader {
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::new();
        self.author.write(&mut out);
        out.number(self.inode).number(self.offset);
        out.finish()
    }

    fn from_bytes(bytes: &[u8]) -> Result<ContentHeader, CodecError> {
        let mut input = Reader::new(bytes);
        let head = ContentHeader { author: Author::read(&mut input)?, inode: input.number()?, offset: input.number()? };
        if input.is_empty() { Ok(head) } else { Err(CodecError::Number) }
    }
}

/// Returns whether the content of a frame is the one that was written; true of all other kinds.
pub(in crate::memory) fn has_whole_content(frame: &Frame<'_>) -> bool {
    frame.kind != FrameKind::Content
        || split_content(frame.payload).is_some_and(|(head, rest)| {
            // A head of another form is not an accident: replaying it says what is wrong.
            let head = split_mac(head).and_then(|(_, head)| ContentHeader::from_bytes(head).ok());
            head.is_none_or(|head| DirectWrite::from_verified(head.offset, rest).is_some())
        })
}

/// Returns what the code of a long write covers: the hashes in place of its content, without zeros at its end.
fn mac_input<'a>(head: &'a [u8], length: &'a [u8; 8], chunk_hashes: &'a [u8]) -> [&'a [u8]; 3] {
    [head, length, chunk_hashes]
}

fn length_bytes(direct: &DirectWrite<'_>) -> [u8; 8] {
    (direct.bytes().len() as u64).to_le_bytes()
}

impl LogTail {
    /// Writes an operation down as content, where it is a write with a whole chunk; returns the files after it. Fails
    /// like `Tree::write_partial_chunks`, and with the journal's error where the frame can't be appended: no operation
    /// is bound to a frame that was not written.
    pub(in crate::memory) fn write_content(
        &mut self,
        memory: &Memory,
        journal: &Journal,
        edit: &FileOpRecord<'_>,
        direct: &DirectWrite<'_>,
        files: FilesBefore,
    ) -> Result<Tree, EditError> {
        let FileOp::Write { inode, offset, bytes } = &edit.op else { return Ok(files.tree) };
        let time = edit.author.time;
        let mut after = files.tree.clone();
        // The half that can fail comes before the append: once the frame is written, the write has happened.
        after.write_partial_chunks(*inode, direct, time, memory.packs())?;
        let (head, chunk_hashes) =
            (ContentHeader { author: edit.author, inode: *inode, offset: *offset }.to_bytes(), direct.chunk_hashes());
        // Past this the write may have happened, so it can be given to no other thread, and this one may block.
        allow_waiting();
        let code = self.frame_mac(FrameKind::Content, &mac_input(&head, &length_bytes(direct), &chunk_hashes));
        let appended = journal.append_content(&[&code.0[..], &head].concat(), bytes, &chunk_hashes);
        let at = appended.map_err(|error| memory.note_full(error))?;
        // Only after the append: no later operation may be bound to a frame that was not written.
        self.link = code;
        after.place_chunks(*inode, direct, (journal.file(), at), time)?;
        self.note_content(edit.author, files, direct);
        Ok(after)
    }

    fn note_content(&mut self, author: Author, files: FilesBefore, direct: &DirectWrite<'_>) {
        self.written_bytes += direct.bytes().len() as u64;
        let unsealed_bytes = direct.partial_chunks().count() as u64 * END_BYTES + COMMAND_BYTES;
        self.note_pending(author, files, unsealed_bytes);
    }

    /// Carries out a write whose content is in the journal; returns false if it is not whole. Kind `Damaged` if the
    /// code does not follow from the frames before, or the head can't be read.
    pub(in crate::memory) fn replay_content(
        &mut self,
        catalog: &mut Catalog,
        packs: &dyn Packs,
        frame: &Frame<'_>,
    ) -> Result<bool, Error> {
        let damaged = |what: &str| Error::damaged(format!("a long write in the journal {what}"));
        let (head, rest) = split_content(frame.payload).ok_or_else(|| damaged("has no head"))?;
        let at = frame.position(frame.payload.len() - rest.len());
        let (code, bytes) = split_mac(head).ok_or_else(|| damaged("has no code"))?;
        let head = ContentHeader::from_bytes(bytes).map_err(|error| damaged(&format!("can't be read: {error}")))?;
        // Checked before the code: a content that is not whole may be a torn tail, which the caller judges, and no
        // forgery.
        let Some(direct) = DirectWrite::from_verified(head.offset, rest) else { return Ok(false) };
        // The code comes before the tree is touched, so that bytes that nobody of this store wrote change nothing.
        self.verify_and_advance(
            FrameKind::Content,
            &code,
            &mac_input(bytes, &length_bytes(&direct), &direct.chunk_hashes()),
        )?;
        let files = FilesBefore::from_catalog(catalog, head.author.branch)?;
        let (mut after, time) = (files.tree.clone(), head.author.time);
        let placed = after.write_partial_chunks(head.inode, &direct, time, packs);
        let placed = placed.and_then(|()| after.place_chunks(head.inode, &direct, (frame.file, at), time));
        match placed {
            Ok(()) => {}
            Err(TreeError::Segment(error)) => return Err(error.into()),
            Err(error) => return Err(damaged(&format!("does what can't be done: {error}"))),
        }
        self.note_content(head.author, files, &direct);
        catalog.edit(head.author.branch, after, time);
        Ok(true)
    }
}
