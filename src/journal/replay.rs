//! Reading a journal file back, and telling a torn tail from damage.

use std::sync::Arc;

use super::file_header::{FILE_HEADER_BYTES, FileHeader};
use super::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};
use super::{Journal, JournalError};
use crate::disk::{Disk, DiskFile};

/// How much is read at a time; a longer frame is read whole.
const WINDOW_BYTES: usize = 1 << 20;

/// Returns whether the store writes a frame of that header at that offset, in a file whose first frame is at
/// `frames_start`. If not, it is no accident: the header's check holds.
fn is_possible(header: &FrameHeader, offset: u64, frames_start: u64) -> bool {
    let fits = match header.kind {
        FrameKind::Mark => header.length_bytes == 0,
        FrameKind::Begin => offset == frames_start && header.length_bytes == 8,
        FrameKind::Command
        | FrameKind::End
        | FrameKind::FileOp
        | FrameKind::Content
        | FrameKind::Cursor
        | FrameKind::Signals
        | FrameKind::Lease
        | FrameKind::Unknown(_) => true,
    };
    fits && header.flushed_to <= offset
}

/// One whole frame: both its checks held.
pub struct Frame<'a> {
    /// What it is for.
    pub kind: FrameKind,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Its payload; the check held, which of content covers the head alone.
    pub payload: &'a [u8],
    /// The file that it is in: content is read later from where it stands there.
    pub file: &'a Arc<dyn DiskFile>,
}

impl Frame<'_> {
    /// Returns where in the file something in the payload begins.
    pub fn position(&self, at: usize) -> u64 {
        self.offset + (FRAME_HEADER_BYTES + at) as u64
    }
}

/// What was found after the last whole frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// Offset in bytes at which the last whole frame ends.
    pub offset: u64,
    /// How many bytes follow it.
    pub bytes: u64,
    /// Whether the file simply ends in the middle of a frame. Otherwise a frame is there whole by
    /// its length, and its bytes are not those that were written.
    pub cut_short: bool,
}

/// A journal file that is being read.
pub struct Replay {
    number: u64,
    path: String,
    file: Arc<dyn DiskFile>,
    header: FileHeader,
    length: u64,
    /// The largest flushed offset that a frame read so far tells of.
    flushed_to: u64,
    /// Whether a frame tells that all files before this one were flushed.
    is_previous_flushed: bool,
    window: Vec<u8>,
    window_start: u64,
}

impl Replay {
    /// Opens the file with that number for reading alone.
    ///
    /// [`JournalError::Damaged`] if its first bytes are not those of a journal file with that number.
    pub fn open(disk: &Arc<dyn Disk>, number: u64) -> Result<Replay, JournalError> {
        Replay::new(number, disk.open(&Journal::file_path(number)))
    }

    /// Opens the file with that number to continue it after the replay. Fails like [`Replay::open`].
    pub fn open_to_continue(disk: &Arc<dyn Disk>, number: u64) -> Result<Replay, JournalError> {
        Replay::new(number, disk.open_write(&Journal::file_path(number)))
    }

    fn new(number: u64, file: std::io::Result<Box<dyn DiskFile>>) -> Result<Replay, JournalError> {
        let path = Journal::file_path(number);
        let io = |what, source| JournalError::Io { path: Journal::file_path(number), what, source };
        let file: Arc<dyn DiskFile> = file.map_err(|source| io("opened", source))?.into();
        let length = file.len().map_err(|source| io("opened", source))?;
        let mut start = vec![0; length.min(FILE_HEADER_BYTES) as usize];
        file.read_exact_at(&mut start, 0).map_err(|source| io("read", source))?;
        let Some(header) = FileHeader::decode(number, &start) else {
            let reason = "its first bytes are not those of this journal file".to_owned();
            return Err(JournalError::Damaged { path, offset: 0, reason });
        };
        Ok(Replay {
            number,
            path,
            file,
            length,
            flushed_to: header.frames_start,
            header,
            is_previous_flushed: false,
            window: Vec::new(),
            window_start: 0,
        })
    }

    /// Returns whether a frame read so far tells that all files before this one were flushed.
    pub(super) fn is_previous_flushed(&self) -> bool {
        self.is_previous_flushed
    }

    /// Returns how many bytes the file before this one had when this one began; `None` if no frame says so. A frame
    /// that is not whole says nothing. Fails with `JournalError::Io` if the file can't be read.
    pub(super) fn length_before(&mut self) -> Result<Option<u64>, JournalError> {
        let FileHeader { frames_start: start, checksum } = self.header;
        let Some(header) = self.frame_header(start)?.filter(|header| header.kind == FrameKind::Begin) else {
            return Ok(None);
        };
        let total = FRAME_HEADER_BYTES + header.length_bytes;
        if start + total as u64 > self.length {
            return Ok(None);
        }
        let (head, payload) = self.bytes(start, total)?.split_at(FRAME_HEADER_BYTES);
        let length = payload.try_into().map(u64::from_le_bytes).ok();
        Ok(length.filter(|_| checksum.is_whole(&header, head, payload)))
    }

    /// Returns the number that name and header of the file have; the file behind it has the next one.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the offset of the first frame, in bytes.
    pub(super) fn frames_start(&self) -> u64 {
        self.header.frames_start
    }

    /// Returns the bytes of the file, with a torn tail until that is cut.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Writes again what no frame tells to be flushed, and flushes it. Fails with `JournalError::Io`.
    pub(super) fn rewrite_and_flush(mut self) -> Result<(), JournalError> {
        self.rewrite_unflushed()?;
        let Replay { path, file, .. } = self;
        file.sync().map_err(|source| JournalError::Io { path, what: "flushed", source })
    }

    /// Returns the path below the store's root, for messages: a replay opened it already.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Calls `each` with every whole frame in order, and returns the bytes after the last one. `each` returns false,
    /// and does nothing, where a frame's content is not the one that was written: such a frame is not whole.
    ///
    /// `synced` is a byte offset up to which the file is known to be whole. A bad frame below it, below the offset in
    /// any later frame, or before a clean end, is damage. A frame of a later version is skipped or is damage, depending
    /// on its code. An error of `each` is returned at once.
    pub fn for_each_frame<E: From<JournalError>>(
        &mut self,
        synced: u64,
        mut each: impl FnMut(Frame<'_>) -> Result<bool, E>,
    ) -> Result<Option<TornTail>, E> {
        let FileHeader { frames_start, checksum } = self.header;
        let mut offset = frames_start;
        while offset < self.length {
            let Some(header) = self.frame_header(offset)? else {
                return Ok(Some(self.classify_bad_frame(offset, synced)?));
            };
            if let FrameKind::Unknown(code) = header.kind
                && !header.kind.is_skipped()
            {
                let what = format!("a frame has the unknown kind {code:#x}, which may come from a newer version");
                return Err(self.damaged(offset, &what).into());
            }
            // Its own check held, so it is no torn frame; one that tells of more flushed bytes than there are was made
            // by nobody here.
            if !is_possible(&header, offset, frames_start) {
                return Err(self.damaged(offset, "a frame is none that the store writes there").into());
            }
            let total = FRAME_HEADER_BYTES + header.length_bytes;
            if offset + total as u64 > self.length {
                return Ok(Some(self.classify_bad_frame(offset, synced)?));
            }
            // Cloned before the bytes are borrowed, as `each` may keep the file to read content from it later.
            let file = self.file.clone();
            let bytes = self.bytes(offset, total)?;
            let (head, payload) = bytes.split_at(FRAME_HEADER_BYTES);
            let frame = Frame { kind: header.kind, offset, payload, file: &file };
            let is_whole = checksum.is_whole(&header, head, payload);
            if !is_whole || !(header.kind.is_skipped() || each(frame)?) {
                return Ok(Some(self.classify_bad_frame(offset, synced)?));
            }
            // Only of a whole frame: what a torn one tells may be anything.
            self.flushed_to = self.flushed_to.max(header.flushed_to);
            self.is_previous_flushed |= header.flushed_to >= frames_start;
            offset += total as u64;
        }
        if offset < synced {
            return Err(self.damaged(offset, "the file ends before what was acknowledged as synced").into());
        }
        Ok(None)
    }

    /// Cuts a torn tail and returns the journal, ready for the next frame.
    ///
    /// What no frame tells to be flushed is written again: after a failed flush of an earlier process
    /// the bytes may be readable and yet never reach the device, whatever later flushes say.
    pub fn resume(mut self, torn: Option<&TornTail>) -> Result<Journal, JournalError> {
        if let Some(torn) = torn {
            // Flushed before anything is appended: a power cut could else bring back the end of the tail behind a new
            // frame.
            let cut = self.file.set_len(torn.offset).and_then(|()| self.file.sync());
            cut.map_err(|source| JournalError::Io {
                path: self.path.clone(),
                what: "cut to its last whole frame",
                source,
            })?;
            self.length = torn.offset;
            // It may hold bytes that were cut.
            self.window.clear();
        }
        self.rewrite_unflushed()?;
        Ok(Journal::resume(self.number, self.path, self.file, self.header, self.length))
    }

    fn rewrite_unflushed(&mut self) -> Result<(), JournalError> {
        // Only what no frame vouches for: writing again what is safe would put it at risk for nothing.
        let mut at = self.flushed_to;
        while at < self.length {
            let count = (WINDOW_BYTES as u64).min(self.length - at) as usize;
            let bytes = self.bytes(at, count)?.to_vec();
            let written = self.file.write_all_at(&bytes, at);
            written.map_err(|source| JournalError::Io { path: self.path.clone(), what: "written again", source })?;
            at += count as u64;
        }
        Ok(())
    }

    /// Judges the bad bytes at `offset`: a torn tail, or damage to what was safe.
    fn classify_bad_frame(&mut self, offset: u64, synced: u64) -> Result<TornTail, JournalError> {
        // A whole frame behind the bad bytes is proof that they were flushed, where it tells so: then it is damage.
        let known = synced.max(self.flushed_behind(offset)?);
        if offset < known {
            return Err(self.damaged(offset, "a frame that was acknowledged as synced does not match its check"));
        }
        let cut_short = match self.frame_header(offset)? {
            Some(header) => offset + (FRAME_HEADER_BYTES + header.length_bytes) as u64 > self.length,
            None => self.length - offset < FRAME_HEADER_BYTES as u64,
        };
        Ok(TornTail { offset, bytes: self.length - offset, cut_short })
    }

    /// Returns the largest flushed offset that any whole frame behind `offset` tells of. A clean
    /// end vouches for everything before it.
    fn flushed_behind(&mut self, offset: u64) -> Result<u64, JournalError> {
        let checksum = self.header.checksum;
        let mut known = 0;
        // Bytes inside a payload may look like a frame: where the bad frame's length is known, the
        // search begins behind it.
        let mut at = self
            .frame_header(offset)?
            .map_or(offset + 1, |header| offset + (FRAME_HEADER_BYTES + header.length_bytes) as u64);
        while at + (FRAME_HEADER_BYTES as u64) <= self.length {
            let Some(header) = self.frame_header(at)? else {
                at += 1;
                continue;
            };
            let total = FRAME_HEADER_BYTES + header.length_bytes;
            let whole = at + total as u64 <= self.length && {
                let bytes = self.bytes(at, total)?;
                checksum.is_whole(&header, &bytes[..FRAME_HEADER_BYTES], &bytes[FRAME_HEADER_BYTES..])
            };
            if !whole {
                at += 1;
                continue;
            }
            known = known.max(if header.kind == FrameKind::End { at } else { header.flushed_to });
            at += total as u64;
        }
        Ok(known)
    }

    fn frame_header(&mut self, offset: u64) -> Result<Option<FrameHeader>, JournalError> {
        if offset + FRAME_HEADER_BYTES as u64 > self.length {
            return Ok(None);
        }
        let checksum = self.header.checksum;
        Ok(checksum.decode(offset, self.bytes(offset, FRAME_HEADER_BYTES)?))
    }

    /// Returns `count` bytes at `offset`, through a window that moves forward.
    fn bytes(&mut self, offset: u64, count: usize) -> Result<&[u8], JournalError> {
        let end = offset + count as u64;
        if offset < self.window_start || end > self.window_start + self.window.len() as u64 {
            // At most the file is read, whatever a length in it says: callers compare with `length` before they ask.
            let wanted = (WINDOW_BYTES.max(count) as u64).min(self.length - offset) as usize;
            self.window.resize(wanted, 0);
            self.window_start = offset;
            if let Err(source) = self.file.read_exact_at(&mut self.window, offset) {
                // A read that failed may have filled a part of it.
                self.window.clear();
                return Err(JournalError::Io { path: self.path.clone(), what: "read", source });
            }
        }
        let from = (offset - self.window_start) as usize;
        Ok(&self.window[from..from + count])
    }

    fn damaged(&self, offset: u64, reason: &str) -> JournalError {
        JournalError::Damaged { path: self.path.clone(), offset, reason: reason.to_owned() }
    }
}
