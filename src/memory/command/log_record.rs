//! What can happen to a store, and its stored bytes: the payload of a journal frame.
//!
//! A command holds its outcome where that can't be derived. Replaying the commands in order gives the same catalog, the
//! same entries and so the same hashes; a signature over each entry's hash proves it.

use std::fmt;
use std::sync::Arc;

use super::plan_context::PlanContext;
use super::prepared::PreparedCommand;
use super::record_change::RecordChange;
use crate::memory::Error;
use crate::memory::catalog::BranchId;
use crate::object::{CodecError, Hash, Reader, Time, Writer};

/// What each command counts beside its bytes: replaying 26,000 small ones takes a third of a second.
pub(in crate::memory) const COMMAND_BYTES: u64 = 512;
/// What each row of a bulk commit counts: replaying it costs time, so 65,536 of them ask for a seal.
pub(in crate::memory) const BULK_ROW_BYTES: u64 = 256;

/// What is known of a kind of command without one of them: a line of the table in `transaction/commands/`.
#[derive(Debug)]
pub struct CommandSpec {
    /// The first byte of its log record. No code is used again for something else.
    pub code: u8,
    /// Its name in docs/FORMAT.md, where its fields are listed.
    pub name: &'static str,
    /// Reads the fields that [`Command::write`] wrote.
    pub read: fn(&mut Reader<'_>) -> Result<Box<dyn Command>, CodecError>,
}

/// What is done to a store: its bytes in the log, and its rule. Beside these a command says only in what it differs from
/// most.
pub trait Command: fmt::Debug + Send + Sync + 'static {
    /// Returns its line of the table, by whose code a log record is read.
    fn spec(&self) -> &'static CommandSpec;

    /// Appends its fields, as they are stored behind code, times and user.
    fn write(&self, out: &mut Writer);

    /// Checks it against the rules of the store and works out its entry, and what it changes in the catalog.
    ///
    /// A log record is prepared again at each opening, and has to give the same entry for ever. Fails with the error of
    /// the rule that is broken, and with [`Error::Gone`] if a branch that it names has ended.
    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error>;

    /// Returns whether it may use the room that is kept for giving back: it makes less of something, or stands for what
    /// was written already.
    fn may_use_reserve(&self) -> bool {
        false
    }

    /// Returns whether it leaves something in memory for which room has to be found.
    fn takes_memory(&self) -> bool {
        false
    }

    /// Returns the branch whose operations on files are pending no more: it commits them, or ends the branch.
    fn committed_files_branch(&self) -> Option<BranchId> {
        None
    }

    /// Returns the segment that this log record alone names, which no sweep may remove before the next seal.
    fn segment(&self) -> Option<Hash> {
        None
    }

    /// Returns the branch of which no plan of a merge, and no conflict that was shown, holds any longer.
    fn invalidated_plans_branch(&self) -> Option<BranchId> {
        None
    }

    /// Returns what it is to those who share a log; none, as for most, where `events` get no line of it.
    fn shared_event(&self) -> Option<SharedEvent<'_>> {
        None
    }
}

/// What a command means to the users of a shared log. The lines of its `events` are made from this.
#[derive(Clone, Copy, Debug)]
pub enum SharedEvent<'a> {
    /// Entries are appended through a branch: one line for each.
    Appended(BranchId, &'a [RecordChange]),
    /// A branch is merged into its parent: one line `merge` or `promote`, with the counts.
    Merged(BranchId, &'static str),
    /// Signals that depend on a branch may end: one line for each that does.
    Changed(BranchId),
}

/// A command with its times and its user: what a frame of the journal holds behind the signature.
#[derive(Debug)]
pub struct LogRecord {
    /// When it was done: later than the record before, except for one that resets the clock.
    pub time: Time,
    /// When its outcome was worked out: not later than `time`, so that what was planned before the clock was set back is
    /// planned again. Times in the outcome are this one, also when it is applied again.
    pub planned: Time,
    /// The uid of the user who did it, stored as a varint.
    pub uid: u32,
    /// What was done, with its outcome where that can't be derived.
    pub command: Box<dyn Command>,
}

impl LogRecord {
    /// Returns the stored bytes: the command's code, `time`, how long before that it was planned, the uid, then the
    /// command's fields.
    pub fn to_bytes(&self) -> Vec<u8> {
        debug_assert!(self.planned <= self.time, "{:?} was planned after it was done", self.command);
        let mut out = Writer::new();
        let age = self.time.0.saturating_sub(self.planned.0);
        out.byte(self.command.spec().code)
            .signed(self.time.0)
            .number(age.max(0).cast_unsigned())
            .number(u64::from(self.uid));
        self.command.write(&mut out);
        out.finish()
    }

    /// Reads stored bytes of one of some commands. [`CodecError::Code`] if it is none of them, [`CodecError::Number`]
    /// if bytes are left over.
    pub fn read(bytes: &[u8], commands: &[&CommandSpec]) -> Result<LogRecord, CodecError> {
        let mut input = Reader::new(bytes);
        let code = input.byte()?;
        let spec = commands.iter().find(|spec| spec.code == code).ok_or(CodecError::Code(code))?;
        let time = Time(input.signed()?);
        let age = i64::try_from(input.number()?).map_err(|_| CodecError::Number)?;
        let planned = Time(time.0.checked_sub(age).ok_or(CodecError::Number)?);
        let uid = read_u32(&mut input)?;
        let command = (spec.read)(&mut input)?;
        if input.is_empty() { Ok(LogRecord { time, planned, uid, command }) } else { Err(CodecError::Number) }
    }
}

/// Reads a varint of 32 bits at most, else [`CodecError::Number`].
pub(in crate::memory) fn read_u32(input: &mut Reader<'_>) -> Result<u32, CodecError> {
    u32::try_from(input.number()?).map_err(|_| CodecError::Number)
}

/// Appends how many texts there are, and the texts, each behind its length.
pub(in crate::memory) fn write_texts<'a>(texts: &[Arc<str>], out: &'a mut Writer) -> &'a mut Writer {
    texts.iter().fold(out.number(texts.len() as u64), |out, text| out.text(text))
}

/// Reads what [`write_texts`] wrote. [`CodecError::Short`] if the bytes end before, [`CodecError::Text`] for one that
/// is not UTF-8.
pub(in crate::memory) fn read_texts(input: &mut Reader<'_>) -> Result<Vec<Arc<str>>, CodecError> {
    let count = input.length()?;
    (0..count).map(|_| input.text().map(Arc::from)).collect()
}
