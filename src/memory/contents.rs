//! Long writes: the bytes of whole chunks stay in the journal until they are sealed.
//!
//! A write with a whole chunk is one frame of content: its head says what is written where, and the
//! hashes of the chunks behind the content vouch for it. They are those that the tree needs anyway. So
//! each byte is copied once and hashed once, and none of a whole chunk is kept in memory.

use super::chain::Chain;
use super::files::{Edit, EditError};
use super::world::{BranchId, World};
use super::{Error, seal};
use crate::journal::{Frame, Journal, Kind, content};
use crate::object::{CodecError, Reader, Time, Writer};
use crate::workspace::{Op, Packs, Stretch, Tree, TreeError};

/// What counts towards a seal for each end of a long write, which keeps one chunk of 64 KiB in memory at
/// most: 64 MiB of them begin one. A seal in the middle of a long file takes time from who writes it.
const END_BYTES: u64 = 8 << 10;

/// What the head of a frame of content says.
struct Head {
    branch: BranchId,
    time: Time,
    uid: u32,
    inode: u64,
    offset: u64,
}

impl Head {
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.number(self.branch.0).signed(self.time.0).number(u64::from(self.uid));
        out.number(self.inode).number(self.offset);
        out.finish()
    }

    fn from_bytes(bytes: &[u8]) -> Result<Head, CodecError> {
        let mut input = Reader::new(bytes);
        let (branch, time) = (BranchId(input.number()?), Time(input.signed()?));
        let uid = u32::try_from(input.number()?).map_err(|_| CodecError::Number)?;
        let head = Head { branch, time, uid, inode: input.number()?, offset: input.number()? };
        if input.is_empty() { Ok(head) } else { Err(CodecError::Number) }
    }
}

/// Returns whether the content of a frame is the one that was written; true of all other kinds.
pub(super) fn is_whole(frame: &Frame<'_>) -> bool {
    frame.kind != Kind::Content
        || content(frame.payload).is_some_and(|(head, rest)| {
            // A head of another form is no accident: replaying it says what is wrong.
            Head::from_bytes(head).map_or(true, |head| Stretch::vouched(head.offset, rest).is_some())
        })
}

impl Chain {
    /// Writes an operation down as content, if it is a write with a whole chunk; returns the files
    /// after it.
    pub(super) fn write_content(
        &mut self,
        journal: &Journal,
        edit: &Edit<'_>,
        before: &Tree,
        packs: &dyn Packs,
    ) -> Result<Option<Tree>, EditError> {
        let Op::Write { inode, offset, bytes } = &edit.op else { return Ok(None) };
        let Some(stretch) = Stretch::new(*offset, bytes) else { return Ok(None) };
        let mut after = before.clone();
        after.place_ends(*inode, &stretch, edit.time, packs)?;
        let head = Head { branch: edit.branch, time: edit.time, uid: edit.uid, inode: *inode, offset: *offset };
        let at = journal.append_content(&head.to_bytes(), bytes, &stretch.vouching()).map_err(Error::from)?;
        after.place(*inode, &stretch, (journal.file(), at), edit.time)?;
        self.note_content(&head, before.clone(), &stretch);
        Ok(Some(after))
    }

    fn note_content(&mut self, head: &Head, before: Tree, stretch: &Stretch<'_>) {
        self.written_bytes += stretch.bytes().len() as u64;
        let loose_bytes = stretch.ends().count() as u64 * END_BYTES + seal::ACT_BYTES;
        self.note(head.branch, head.uid, head.time, before, loose_bytes);
    }

    /// Carries out a write whose content stands in the journal; returns false if it is not whole.
    pub(super) fn replay_content(
        &mut self,
        world: &mut World,
        packs: &dyn Packs,
        frame: &Frame<'_>,
    ) -> Result<bool, Error> {
        let damaged = |what: &str| Error::damaged(format!("a long write in the journal {what}"));
        let (head, rest) = content(frame.payload).ok_or_else(|| damaged("has no head"))?;
        let at = frame.position(frame.payload.len() - rest.len());
        let head = Head::from_bytes(head).map_err(|error| damaged(&format!("can't be read: {error}")))?;
        let Some(stretch) = Stretch::vouched(head.offset, rest) else { return Ok(false) };
        let before = world.branch(head.branch)?.state.files().clone();
        let mut after = before.clone();
        let placed = after.place_ends(head.inode, &stretch, head.time, packs);
        let placed = placed.and_then(|()| after.place(head.inode, &stretch, (frame.file, at), head.time));
        match placed {
            Ok(()) => {}
            Err(TreeError::Segment(error)) => return Err(error.into()),
            Err(error) => return Err(damaged(&format!("does what can't be done: {error}"))),
        }
        self.note_content(&head, before, &stretch);
        world.edit(head.branch, after, head.time);
        Ok(true)
    }
}
