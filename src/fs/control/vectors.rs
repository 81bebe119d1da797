//! Names in `vectors/`: records, and the temporaries beside them.

use std::ffi::OsStr;
use std::sync::Arc;

use crate::fs::errno::{Errno, Failure};
use crate::fs::mount_context::OpenContext;
use crate::fs::node::{FsNode, is_temporary};
use crate::fs::open_flags::OpenFlags;
use crate::fs::refusal::ShapeRefusal;
use crate::memory::{Error, RecordEdit, RecordInput, View, check_record_id};

/// What a name in `vectors/` stands for, whether it is there or not.
enum VectorsName<'a> {
    Temporary(&'a OsStr),
    Record(Arc<str>),
}

/// EINVAL for a name that can be neither.
fn parse(name: &OsStr) -> Result<VectorsName<'_>, Failure> {
    let record = match name.to_str() {
        Some(text) if is_temporary(text) => None,
        Some(text) => text.strip_suffix(".json"),
        None if name.as_encoded_bytes().ends_with(b".json") && !name.as_encoded_bytes().starts_with(b".") => {
            return Err(ShapeRefusal::RecordNotUtf8.into());
        }
        None => None,
    };
    let Some(id) = record else {
        return Ok(VectorsName::Temporary(name));
    };
    check_record_id(id).map_err(Error::from)?;
    Ok(VectorsName::Record(id.into()))
}

/// Makes a temporary, or the node of a record to come; EEXIST when something is there and the wish
/// is exclusive.
pub(super) fn create(place: &OpenContext, name: &OsStr, mode: u32, flags: OpenFlags) -> Result<FsNode, Failure> {
    place.check_writable()?;
    if name.len() > 255 {
        return Err(Errno::ENAMETOOLONG.into());
    }
    match parse(name)? {
        VectorsName::Temporary(name) => {
            let file = match place.state.temporaries.named(name) {
                Some(_) if flags.exclusive => return Err(Errno::EEXIST.into()),
                Some(file) => file,
                None => {
                    place.state.temporaries.create(name, place.buffer(), mode, place.caller, place.memory().now())?
                }
            };
            Ok(FsNode::Temporary(place.branch(), file.number))
        }
        VectorsName::Record(id) => {
            if flags.exclusive && is_there(place, &id)? {
                return Err(Errno::EEXIST.into());
            }
            Ok(FsNode::Record(place.view.clone(), id))
        }
    }
}

/// Removes a record in this branch, or a temporary.
pub(super) fn unlink(place: &OpenContext, name: &OsStr) -> Result<(), Failure> {
    place.check_writable()?;
    match parse(name)? {
        VectorsName::Temporary(name) => place.state.temporaries.remove(name).map(drop).ok_or(Errno::ENOENT.into()),
        VectorsName::Record(id) if is_there(place, &id)? => commit(place, RecordEdit::Delete { id }),
        VectorsName::Record(_) => Err(Errno::ENOENT.into()),
    }
}

/// Renames within one `vectors/`; with a record on either side that is a commit.
pub(super) fn rename(place: &OpenContext, from: &OsStr, to: &OsStr, no_replace: bool) -> Result<(), Failure> {
    place.check_writable()?;
    if to.len() > 255 {
        return Err(Errno::ENAMETOOLONG.into());
    }
    let (from, to) = (parse(from)?, parse(to)?);
    let taken = match &to {
        VectorsName::Temporary(name) => place.state.temporaries.named(name).is_some(),
        VectorsName::Record(id) => is_there(place, id)?,
    };
    if no_replace && taken {
        return Err(Errno::EEXIST.into());
    }
    match (from, to) {
        (VectorsName::Temporary(from), VectorsName::Temporary(to)) => {
            if place.state.temporaries.rename(from, to) {
                Ok(())
            } else {
                Err(Errno::ENOENT.into())
            }
        }
        (VectorsName::Temporary(from), VectorsName::Record(id)) => save(place, from, id),
        (VectorsName::Record(id), VectorsName::Temporary(to)) => set_aside(place, id, to),
        (VectorsName::Record(from), VectorsName::Record(to)) => commit(place, RecordEdit::Rename { from, to }),
    }
}

/// An atomic saver's last step: the temporary becomes the record.
fn save(place: &OpenContext, from: &OsStr, id: Arc<str>) -> Result<(), Failure> {
    let file = place.state.temporaries.named(from).ok_or(Errno::ENOENT)?;
    let draft = RecordInput::parse(&id, &file.bytes())?;
    commit(place, RecordEdit::Put { id, draft })?;
    file.retire();
    place.state.temporaries.remove(from);
    Ok(())
}

/// An editor's backup: the text goes to RAM first, so that it is nowhere missing.
fn set_aside(place: &OpenContext, id: Arc<str>, to: &OsStr) -> Result<(), Failure> {
    let record = place.memory().snapshot(&place.view)?.get(&id)?.ok_or(Errno::ENOENT)?;
    let temporaries = &place.state.temporaries;
    let replaced = temporaries.named(to);
    temporaries.create(to, place.counted(record.to_document())?, 0o644, place.caller, place.memory().now())?;
    commit(place, RecordEdit::Delete { id }).inspect_err(|_| temporaries.restore(to, replaced))
}

fn is_there(place: &OpenContext, id: &str) -> Result<bool, Failure> {
    Ok(place.memory().snapshot(&place.view)?.stat(id)?.is_some())
}

fn commit(place: &OpenContext, edit: RecordEdit) -> Result<(), Failure> {
    debug_assert!(matches!(place.view, View::Branch(_)), "a checkpoint takes no commit");
    place.memory().commit(&place.actor(), place.branch(), vec![edit])?;
    Ok(())
}
