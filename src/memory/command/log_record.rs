//! What can happen to a store, and its stored bytes: the payload of a journal frame.
//!
//! A command holds its outcome as far as it can't be derived. Replaying the commands in order gives the same catalog, the same
//! entries and so the same hashes; a signature over each entry's hash proves it.

use std::sync::Arc;

use super::command_code::CommandCode;
use super::imported::ImportedState;
use super::merge_kind::{MergeKind, RevertedEntries};
use super::merge_outcome::{MergeOutcome, RollbackOutcome};
use super::purge_selection::PurgeSelection;
use super::record_change::{RecordChange, SharedLogAppend};

use crate::memory::catalog::settings::{Setting, Settings};
use crate::memory::catalog::shared_log::{SharedLogCursor, SharedLogTotals};
use crate::memory::catalog::{BranchId, Resolution, Review, StateSource};
use crate::object::{CodecError, Hash, Reader, Time, Writer};

/// What each command counts beside its bytes: replaying 26,000 small ones takes a third of a second.
pub(in crate::memory) const COMMAND_BYTES: u64 = 512;
/// What each row of a bulk commit counts: replaying it costs time, so 65,536 of them ask for a seal.
pub(in crate::memory) const BULK_ROW_BYTES: u64 = 256;

/// What is done.
#[derive(Clone, Debug)]
pub enum Command {
    /// A root branch is made, with the settings that root branches have at that time.
    Root(Arc<str>, Settings),
    /// A branch is forked.
    Fork {
        parent: BranchId,
        /// The new branch's name.
        name: Arc<str>,
        /// The state of the parent it starts from, or the present one.
        from: Option<StateSource>,
        /// Whose it is; nothing for whoever forks.
        owner: Option<u32>,
    },
    /// Records are written and deleted.
    Commit(BranchId, Vec<RecordChange>),
    /// The same for many records, which are in a segment.
    Bulk {
        branch: BranchId,
        segment: Hash,
        /// The ids that go.
        deletes: Vec<Arc<str>>,
        /// How far the branch has read the shared log from then on, where that changes.
        cursor: Option<SharedLogCursor>,
    },
    /// A checkpoint is taken.
    Checkpoint {
        branch: BranchId,
        /// The checkpoint's name.
        label: Arc<str>,
        /// What is said about it.
        text: Arc<str>,
        /// What that becomes in the shared log.
        log: Option<SharedLogAppend>,
    },
    /// A checkpoint is deleted.
    Uncheckpoint(BranchId, Arc<str>),
    /// The branch goes back to an earlier state.
    Rollback(BranchId, StateSource),
    /// Some files go back to an earlier state.
    RollbackFiles {
        branch: BranchId,
        source: StateSource,
        /// Which files, each pattern beginning with `files/`.
        patterns: Vec<Arc<str>>,
        outcome: Arc<RollbackOutcome>,
    },
    /// States are merged.
    Merge(BranchId, MergeKind, Arc<MergeOutcome>),
    /// The branch is thrown away.
    Discard(BranchId),
    /// The branch gets another name.
    Rename(BranchId, Arc<str>),
    /// A setting gets a value.
    Config(BranchId, Setting, Arc<str>),
    /// The directory gets permission bits.
    Mode(BranchId, u32),
    /// The branch belongs to another user from now on.
    Owner(BranchId, u32),
    /// A conflict between two versions is resolved.
    Resolve {
        branch: BranchId,
        /// The record, or the file as `files/PATH`.
        id: Arc<str>,
        /// The side chosen, and the versions that it was chosen between.
        resolution: Resolution,
    },
    /// A merge was refused, and why.
    Refuse(BranchId, Arc<str>),
    /// Earlier states of all branches went, since the disk was full; each root branch gets an entry.
    KeptDropped(BranchId),
    /// Nobody holds the lease of a branch any longer.
    LeaseLost(BranchId),
    /// A name of an agent below a root branch is nobody's any longer, or barred.
    AgentName {
        /// The root branch.
        root: BranchId,
        /// The name.
        name: Arc<str>,
        /// Whether nobody may use it.
        bars: bool,
    },
    /// A branch proposes its state to its parent, with what is said about it.
    Propose(BranchId, Arc<str>),
    /// A branch takes back what it proposes.
    Withdraw(BranchId),
    /// Somebody says what a branch should do with what a branch below it proposes.
    Review {
        /// The branch that would get it.
        parent: BranchId,
        /// The branch that proposes.
        child: BranchId,
        /// What is said.
        review: Review,
    },
    /// Files were changed by operations that are in the journal already; so many paths differ, of which these are the
    /// first.
    Files(BranchId, u64, Vec<Arc<str>>),
    /// A user is seen for the first time.
    User(Arc<str>),
    /// Times follow the clock again, from this command's own on.
    Clock,
    /// The vectors of a root branch's embedder count from now on: what is remembered of it, as a setting's value.
    Embedder(BranchId, Arc<str>),
    /// A branch gets something that it had in the store that it comes from.
    Import(BranchId, ImportedState),
    /// Records and files go for good, from a branch and all that hold the same.
    Purge(BranchId, Arc<PurgeSelection>),
    /// Entries are appended to a shared log.
    Append {
        /// The branch whose log it is.
        owner: BranchId,
        /// The branch through which they come.
        via: BranchId,
        /// What comes.
        growth: SharedLogAppend,
    },
    /// Entries of a shared log are archived.
    ArchiveLog {
        /// The branch whose log it is.
        owner: BranchId,
        /// What the log holds then.
        totals: SharedLogTotals,
    },
    /// Entries up to a number, whose last has that hash, are in a file of their own.
    Archive(u64, Hash),
}

impl Command {
    /// Returns whether it may use the room that is kept for giving back: it makes less of something, or stands for what
    /// was written already.
    pub fn frees_room(&self) -> bool {
        match self {
            Command::Commit(_, changes) => changes.iter().all(|change| matches!(change, RecordChange::Delete { .. })),
            Command::Config(_, setting, _) => matches!(setting, Setting::Keep | Setting::Ttl),
            Command::Discard(_)
            | Command::Archive(..)
            | Command::ArchiveLog { .. }
            | Command::Files(..)
            | Command::KeptDropped(_)
            | Command::LeaseLost(_)
            | Command::Withdraw(_)
            | Command::Purge(..)
            | Command::Rollback(..)
            | Command::RollbackFiles { .. }
            | Command::Uncheckpoint(..)
            | Command::User(_) => true,
            _ => false,
        }
    }
}

/// Something that happens to a store.
#[derive(Clone, Debug)]
pub struct LogRecord {
    /// When it was done: later than the record before, but for one that resets the clock.
    pub time: Time,
    /// When its outcome was worked out: not later than `time`. Times in the outcome are this one, also
    /// when it is applied again.
    pub planned: Time,
    /// Who did it.
    pub uid: u32,
    /// What was done.
    pub command: Command,
}

impl LogRecord {
    /// Returns the stored bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::new();
        let age = self.time.0.saturating_sub(self.planned.0);
        out.byte(self.command.code().code())
            .signed(self.time.0)
            .number(age.max(0).cast_unsigned())
            .number(u64::from(self.uid));
        self.command.write(&mut out);
        out.finish()
    }

    /// Reads stored bytes. [`CodecError::Code`] for a command of a later version, [`CodecError::Number`] where bytes
    /// are left over.
    pub fn from_bytes(bytes: &[u8]) -> Result<LogRecord, CodecError> {
        let mut input = Reader::new(bytes);
        let code = CommandCode::from_code(input.byte()?)?;
        let time = Time(input.signed()?);
        let age = i64::try_from(input.number()?).map_err(|_| CodecError::Number)?;
        let planned = Time(time.0.checked_sub(age).ok_or(CodecError::Number)?);
        let uid = to_u32(input.number()?)?;
        let command = Command::read(code, &mut input)?;
        if input.is_empty() { Ok(LogRecord { time, planned, uid, command }) } else { Err(CodecError::Number) }
    }
}

impl Command {
    fn code(&self) -> CommandCode {
        match self {
            Command::Root(..) => CommandCode::Root,
            Command::Fork { .. } => CommandCode::Fork,
            Command::Commit(..) => CommandCode::Commit,
            Command::Bulk { .. } => CommandCode::Bulk,
            Command::Checkpoint { .. } => CommandCode::Checkpoint,
            Command::Uncheckpoint(..) => CommandCode::Uncheckpoint,
            Command::Rollback(..) => CommandCode::Rollback,
            Command::Merge(_, MergeKind::Merge, _) => CommandCode::Merge,
            Command::Merge(_, MergeKind::Promote, _) => CommandCode::Promote,
            Command::Merge(_, MergeKind::Pull, _) => CommandCode::Pull,
            Command::Merge(_, MergeKind::Revert(_), _) => CommandCode::Revert,
            Command::Discard(_) => CommandCode::Discard,
            Command::Rename(..) => CommandCode::Rename,
            Command::Config(..) => CommandCode::Config,
            Command::Mode(..) => CommandCode::Mode,
            Command::Owner(..) => CommandCode::Owner,
            Command::Resolve { .. } => CommandCode::Resolve,
            Command::Refuse(..) => CommandCode::Refuse,
            Command::KeptDropped(_) => CommandCode::KeptDropped,
            Command::LeaseLost(_) => CommandCode::LeaseLost,
            Command::AgentName { .. } => CommandCode::AgentName,
            Command::Propose(..) => CommandCode::Propose,
            Command::Withdraw(_) => CommandCode::Withdraw,
            Command::Review { .. } => CommandCode::Review,
            Command::User(_) => CommandCode::User,
            Command::Files(..) => CommandCode::Files,
            Command::RollbackFiles { .. } => CommandCode::RollbackFiles,
            Command::Clock => CommandCode::Clock,
            Command::Purge(..) => CommandCode::Purge,
            Command::Archive(..) => CommandCode::Archive,
            Command::Embedder(..) => CommandCode::Embedder,
            Command::Import(..) => CommandCode::Import,
            Command::Append { .. } => CommandCode::Append,
            Command::ArchiveLog { .. } => CommandCode::ArchiveLog,
        }
    }

    fn write(&self, out: &mut Writer) {
        match self {
            Command::Root(name, settings) => {
                settings.write(out.text(name));
                out
            }
            Command::User(name) => out.text(name),
            Command::Fork { parent, name, from, owner } => {
                out.number(parent.0).text(name);
                write_source(from.as_ref(), out).number(owner.map_or(0, |uid| u64::from(uid) + 1))
            }
            Command::Commit(branch, changes) => {
                out.number(branch.0).number(changes.len() as u64);
                changes.iter().for_each(|change| change.write(out));
                out
            }
            Command::Bulk { branch, segment, deletes, cursor } => {
                out.number(branch.0).hash(segment).number(deletes.len() as u64);
                deletes.iter().fold(&mut *out, |out, id| out.text(id)).byte(u8::from(cursor.is_some()));
                cursor.iter().fold(out, |out, cursor| cursor.write(out))
            }
            Command::Checkpoint { branch, label, text, log } => {
                out.number(branch.0).text(label).text(text).byte(u8::from(log.is_some()));
                log.iter().fold(out, |out, log| log.write(out))
            }
            Command::Merge(branch, merge, outcome) => {
                out.number(branch.0);
                if let MergeKind::Revert(entries) = merge {
                    entries.write(out);
                }
                outcome.write(*merge, out);
                out
            }
            Command::AgentName { root, name, bars } => out.number(root.0).text(name).byte(u8::from(*bars)),
            Command::Discard(branch)
            | Command::KeptDropped(branch)
            | Command::LeaseLost(branch)
            | Command::Withdraw(branch) => out.number(branch.0),
            Command::Review { parent, child, review } => review.write(out.number(parent.0).number(child.0)),
            Command::Uncheckpoint(branch, text)
            | Command::Rename(branch, text)
            | Command::Refuse(branch, text)
            | Command::Propose(branch, text)
            | Command::Embedder(branch, text) => out.number(branch.0).text(text),
            Command::Rollback(branch, source) => source.write(out.number(branch.0)),
            Command::Config(branch, setting, value) => out.number(branch.0).byte(setting.code()).text(value),
            Command::Files(branch, count, paths) => {
                out.number(branch.0).number(*count).number(paths.len() as u64);
                paths.iter().fold(out, |out, path| out.text(path))
            }
            Command::RollbackFiles { branch, source, patterns, outcome } => {
                source.write(out.number(branch.0)).number(patterns.len() as u64);
                outcome.write(patterns.iter().fold(&mut *out, |out, pattern| out.text(pattern)));
                out
            }
            Command::Clock => out,
            Command::Mode(branch, number) | Command::Owner(branch, number) => {
                out.number(branch.0).number(u64::from(*number))
            }
            Command::Append { owner, via, growth } => growth.write(out.number(owner.0).number(via.0)),
            Command::ArchiveLog { owner, totals } => totals.write(out.number(owner.0)),
            Command::Purge(branch, selection) => selection.write(out.number(branch.0)),
            Command::Import(branch, state) => state.write(out.number(branch.0)),
            Command::Archive(last, hash) => out.number(*last).hash(hash),
            Command::Resolve { branch, id, resolution } => {
                out.number(branch.0).text(id);
                resolution.write(out)
            }
        };
    }

    fn read(code: CommandCode, input: &mut Reader<'_>) -> Result<Command, CodecError> {
        Ok(match code {
            CommandCode::Root => Command::Root(input.text()?.into(), Settings::read(input)?),
            CommandCode::User => Command::User(input.text()?.into()),
            CommandCode::Clock => Command::Clock,
            CommandCode::Archive => Command::Archive(input.number()?, input.hash()?),
            CommandCode::Fork => read_fork(input)?,
            CommandCode::Commit => read_commit(input)?,
            CommandCode::Bulk => read_bulk(input)?,
            CommandCode::Checkpoint => read_checkpoint(input)?,
            CommandCode::Uncheckpoint => Command::Uncheckpoint(read_branch(input)?, input.text()?.into()),
            CommandCode::Rollback => Command::Rollback(read_branch(input)?, read_source(input)?),
            CommandCode::Merge => read_merge(MergeKind::Merge, input)?,
            CommandCode::Promote => read_merge(MergeKind::Promote, input)?,
            CommandCode::Pull => read_merge(MergeKind::Pull, input)?,
            CommandCode::Revert => read_revert(input)?,
            CommandCode::Discard => Command::Discard(read_branch(input)?),
            CommandCode::Purge => Command::Purge(read_branch(input)?, Arc::new(PurgeSelection::read(input)?)),
            CommandCode::Rename => Command::Rename(read_branch(input)?, input.text()?.into()),
            CommandCode::Config => {
                Command::Config(read_branch(input)?, Setting::from_code(input.byte()?)?, input.text()?.into())
            }
            CommandCode::Mode => Command::Mode(read_branch(input)?, to_u32(input.number()?)?),
            CommandCode::Owner => Command::Owner(read_branch(input)?, to_u32(input.number()?)?),
            CommandCode::Resolve => read_resolve(input)?,
            CommandCode::Files => read_files(input)?,
            CommandCode::RollbackFiles => read_rollback_of_files(input)?,
            CommandCode::Refuse => Command::Refuse(read_branch(input)?, input.text()?.into()),
            CommandCode::KeptDropped => Command::KeptDropped(read_branch(input)?),
            CommandCode::LeaseLost => Command::LeaseLost(read_branch(input)?),
            CommandCode::AgentName => read_agent_name(input)?,
            CommandCode::Propose => Command::Propose(read_branch(input)?, input.text()?.into()),
            CommandCode::Withdraw => Command::Withdraw(read_branch(input)?),
            CommandCode::Import => Command::Import(read_branch(input)?, ImportedState::read(input)?),
            CommandCode::Review => read_review(input)?,
            CommandCode::ArchiveLog => {
                Command::ArchiveLog { owner: read_branch(input)?, totals: SharedLogTotals::read(input)? }
            }
            CommandCode::Append => read_append(input)?,
            CommandCode::Embedder => Command::Embedder(read_branch(input)?, input.text()?.into()),
        })
    }
}

fn write_source<'a>(source: Option<&StateSource>, out: &'a mut Writer) -> &'a mut Writer {
    match source {
        None => out.byte(0),
        Some(source) => source.write(out),
    }
}

fn read_branch(input: &mut Reader<'_>) -> Result<BranchId, CodecError> {
    Ok(BranchId(input.number()?))
}

// Fields are read in the order of their lines, which is that of the bytes.

fn read_fork(input: &mut Reader<'_>) -> Result<Command, CodecError> {
    let (parent, name, from) = (read_branch(input)?, input.text()?.into(), StateSource::read(input)?);
    let owner = input.number()?.checked_sub(1).map(to_u32).transpose()?;
    Ok(Command::Fork { parent, name, from, owner })
}

fn read_commit(input: &mut Reader<'_>) -> Result<Command, CodecError> {
    let (branch, count) = (read_branch(input)?, input.length()?);
    Ok(Command::Commit(branch, (0..count).map(|_| RecordChange::read(input)).collect::<Result<_, _>>()?))
}

fn read_bulk(input: &mut Reader<'_>) -> Result<Command, CodecError> {
    let (branch, segment, deletes) = (read_branch(input)?, input.hash()?, read_texts(input)?);
    let cursor = if input.byte()? == 1 { Some(SharedLogCursor::read(input)?) } else { None };
    Ok(Command::Bulk { branch, segment, deletes, cursor })
}

fn read_resolve(input: &mut Reader<'_>) -> Result<Command, CodecError> {
    let (branch, id, resolution) = (read_branch(input)?, input.text()?.into(), Resolution::read(input)?);
    Ok(Command::Resolve { branch, id, resolution })
}

fn read_append(input: &mut Reader<'_>) -> Result<Command, CodecError> {
    let (owner, via, growth) = (read_branch(input)?, read_branch(input)?, SharedLogAppend::read(input)?);
    Ok(Command::Append { owner, via, growth })
}

fn read_files(input: &mut Reader<'_>) -> Result<Command, CodecError> {
    Ok(Command::Files(read_branch(input)?, input.number()?, read_texts(input)?))
}

fn read_agent_name(input: &mut Reader<'_>) -> Result<Command, CodecError> {
    Ok(Command::AgentName { root: read_branch(input)?, name: input.text()?.into(), bars: input.byte()? == 1 })
}

fn read_review(input: &mut Reader<'_>) -> Result<Command, CodecError> {
    Ok(Command::Review { parent: read_branch(input)?, child: read_branch(input)?, review: Review::read(input)? })
}

fn read_rollback_of_files(input: &mut Reader<'_>) -> Result<Command, CodecError> {
    let (branch, source, patterns) = (read_branch(input)?, read_source(input)?, read_texts(input)?);
    let outcome = Arc::new(RollbackOutcome::read(input)?);
    Ok(Command::RollbackFiles { branch, source, patterns, outcome })
}

fn read_texts(input: &mut Reader<'_>) -> Result<Vec<Arc<str>>, CodecError> {
    let count = input.length()?;
    (0..count).map(|_| input.text().map(Arc::from)).collect()
}

fn to_u32(number: u64) -> Result<u32, CodecError> {
    u32::try_from(number).map_err(|_| CodecError::Number)
}

fn read_checkpoint(input: &mut Reader<'_>) -> Result<Command, CodecError> {
    let (branch, label, text) = (read_branch(input)?, input.text()?.into(), input.text()?.into());
    let log = if input.byte()? == 1 { Some(SharedLogAppend::read(input)?) } else { None };
    Ok(Command::Checkpoint { branch, label, text, log })
}

fn read_merge(merge: MergeKind, input: &mut Reader<'_>) -> Result<Command, CodecError> {
    let branch = read_branch(input)?;
    Ok(Command::Merge(branch, merge, Arc::new(MergeOutcome::read(input, merge)?)))
}

fn read_revert(input: &mut Reader<'_>) -> Result<Command, CodecError> {
    let (branch, entries) = (read_branch(input)?, RevertedEntries::read(input)?);
    let merge = MergeKind::Revert(entries);
    Ok(Command::Merge(branch, merge, Arc::new(MergeOutcome::read(input, merge)?)))
}

fn read_source(input: &mut Reader<'_>) -> Result<StateSource, CodecError> {
    StateSource::read(input)?.ok_or(CodecError::Code(0))
}

#[cfg(test)]
mod tests;
