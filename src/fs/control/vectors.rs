//! Names in `vectors/`: records, and the temporaries beside them.

use std::ffi::OsStr;
use std::sync::Arc;

use crate::fs::errno::{Errno, Failure};
use crate::fs::handle::HandleTable;
use crate::fs::mount_context::OpenContext;
use crate::fs::node::FsNode;
use crate::fs::open_flags::OpenFlags;
use crate::fs::refusal::LayoutRefusal;
use crate::fs::vectors_name::VectorsName;
use crate::memory::{BranchError, Error, RecordEdit, RecordError, RecordPatch, check_record_id};

/// How often a record that others write to is set aside anew.
const ATTEMPTS_MAX: usize = 10;

/// Returns the id of the record that a name means; EINVAL if that can't be one.
fn record_id(name: &OsStr) -> Result<Arc<str>, Failure> {
    let text = name.to_str().ok_or(LayoutRefusal::RecordNotUtf8)?;
    let id = text.strip_suffix(".json").unwrap_or(text);
    check_record_id(id).map_err(Error::from)?;
    Ok(id.into())
}

fn no_record(name: &OsStr) -> Failure {
    LayoutRefusal::NotARecordsName(name.to_string_lossy().into_owned()).into()
}

/// Makes a temporary, or the node of a record to come. EEXIST if the name is taken and the open is exclusive, EROFS if
/// nothing may change, ENAMETOOLONG beyond 255 bytes, EINVAL for a name that neither can have.
pub(super) fn create(context: &OpenContext, name: &OsStr, mode: u32, flags: OpenFlags) -> Result<FsNode, Failure> {
    context.check_writable()?;
    if name.len() > 255 {
        return Err(Errno::ENAMETOOLONG.into());
    }
    match VectorsName::parse(name) {
        VectorsName::Other => Err(no_record(name)),
        VectorsName::Temporary | VectorsName::Backup => {
            let file = match context.state.temporaries.get(name) {
                Some(_) if flags.exclusive => return Err(Errno::EEXIST.into()),
                Some(file) => file,
                None => context.state.temporaries.create(
                    name,
                    context.buffer(),
                    mode,
                    context.caller,
                    context.memory().now(),
                )?,
            };
            Ok(FsNode::Temporary(context.branch(), file.number))
        }
        VectorsName::Record => {
            let id = record_id(name)?;
            if flags.exclusive && record_exists(context, &id)? {
                return Err(Errno::EEXIST.into());
            }
            Ok(FsNode::Record(context.view.clone(), id))
        }
    }
}

/// Removes a record in this branch, or a temporary. What is written to the record through open handles goes nowhere from
/// then on. EROFS if nothing can be changed, ENOENT if there is nothing with that name.
pub(super) fn unlink(context: &OpenContext, handles: &HandleTable, name: &OsStr) -> Result<(), Failure> {
    context.check_writable()?;
    if VectorsName::parse(name) != VectorsName::Record {
        return context.state.temporaries.remove(name).map(drop).ok_or(Errno::ENOENT.into());
    }
    let id = record_id(name)?;
    match record_exists(context, &id)? {
        true => {
            context.commit_record(RecordEdit::Delete { id: id.clone() }, None)?;
            handles.follow_record(context.branch(), &id, None);
            Ok(())
        }
        false => Err(Errno::ENOENT.into()),
    }
}

/// Renames within one `vectors/`; with a record on either side that is a commit. Open handles on a record that becomes
/// another one go with it. ENAMETOOLONG for a new name of more than 255 bytes, EEXIST if it is taken and `no_replace`,
/// ENOENT if there is nothing of the old one.
pub(super) fn rename(
    context: &OpenContext,
    handles: &HandleTable,
    (from, to): (&OsStr, &OsStr),
    no_replace: bool,
) -> Result<(), Failure> {
    context.check_writable()?;
    if to.len() > 255 {
        return Err(Errno::ENAMETOOLONG.into());
    }
    use VectorsName::{Backup, Other, Record};
    let kinds = (VectorsName::parse(from), VectorsName::parse(to));
    let temporaries = &context.state.temporaries;
    let taken = match kinds.1 {
        Record => record_exists(context, &record_id(to)?)?,
        _ => temporaries.get(to).is_some(),
    };
    if no_replace && taken {
        return Err(Errno::EEXIST.into());
    }
    match kinds {
        // ENOENT comes before any other error, as in rename(2).
        (Record, _) if !record_exists(context, &record_id(from)?)? => Err(Errno::ENOENT.into()),
        (kind, _) if kind != Record && temporaries.get(from).is_none() => Err(Errno::ENOENT.into()),
        (_, Other) => Err(no_record(to)),
        (Record, Record) => {
            let (from, to) = (record_id(from)?, record_id(to)?);
            // Asked again in the commit: another one may write that record after the look above.
            let absent = no_replace.then(|| to.clone());
            context.commit_record(RecordEdit::Rename { from: from.clone(), to: to.clone() }, absent.as_ref())?;
            if from != to {
                handles.follow_record(context.branch(), &to, None);
                handles.follow_record(context.branch(), &from, Some(&to));
            }
            Ok(())
        }
        (Record, Backup) => move_to_backup(context, &record_id(from)?, to),
        (Record, VectorsName::Temporary) => Err(no_record(to)),
        (_, Record) => commit_temporary(context, from, record_id(to)?, no_replace),
        (_, _) if temporaries.rename(from, to) => Ok(()),
        (_, _) => Err(Errno::ENOENT.into()),
    }
}

/// An atomic saver's last step: the temporary becomes the record.
fn commit_temporary(context: &OpenContext, from: &OsStr, id: Arc<str>, no_replace: bool) -> Result<(), Failure> {
    let file = context.state.temporaries.get(from).ok_or(Errno::ENOENT)?;
    let bytes = file.begin_commit()?;
    let become_record = || -> Result<(), Failure> {
        let patch = RecordPatch::parse(&id, &bytes)?.ok_or(RecordError::Empty)?;
        context.commit_record(RecordEdit::Correct { id: id.clone(), patch, line: 0 }, no_replace.then_some(&id))
    };
    become_record().inspect_err(|_| file.undo_commit())?;
    context.state.temporaries.remove(from);
    Ok(())
}

/// An editor's backup: the text goes to RAM first, so that it is nowhere missing. It is the text of the version that is
/// deleted: one that others write meanwhile is set aside in its place.
fn move_to_backup(context: &OpenContext, id: &str, to: &OsStr) -> Result<(), Failure> {
    let temporaries = &context.state.temporaries;
    for _ in 0..ATTEMPTS_MAX {
        let record = context.memory().snapshot(&context.view)?.get(id)?.ok_or(Errno::ENOENT)?;
        let replaced = temporaries.get(to);
        temporaries.create(
            to,
            context.count_buffer(record.to_document())?,
            0o644,
            context.caller,
            context.memory().now(),
        )?;
        let deleted = context.memory().delete_version(&context.actor(), context.branch(), &record);
        if let Ok(true) = deleted {
            return Ok(());
        }
        // Somebody wrote the record meanwhile, so the name gets back what it had until the next attempt.
        temporaries.restore(to, replaced);
        deleted?;
    }
    Err(Error::from(BranchError::Moves).into())
}

fn record_exists(context: &OpenContext, id: &str) -> Result<bool, Failure> {
    Ok(context.memory().snapshot(&context.view)?.stat(id)?.is_some())
}
