//! `shared/signals/`: small files by key, which a mount of any branch with the same shared log shows.

use std::ffi::OsStr;
use std::sync::Arc;

use crate::fs::attr::{Attr, AttrChanges};
use crate::fs::errno::{Errno, Failure};
use crate::fs::mount_context::{MountContext, OpenContext};
use crate::fs::node::FsNode;
use crate::fs::open_flags::OpenFlags;
use crate::fs::refusal::LayoutRefusal;
use crate::memory::{Error, Signal, SignalError, SignalId, Time, View, XattrMode};

/// What all its extended attributes begin with.
const PREFIX: &str = "user.engramfs.";
const PUBLISHER: &str = "publisher";
const UID: &str = "uid";
const SESSION: &str = "session";
const TTL: &str = "ttl";

fn parse_key(name: &OsStr) -> Result<Arc<str>, Failure> {
    Ok(name.to_str().ok_or(LayoutRefusal::NameNotUtf8)?.into())
}

/// What any file system answers has no reason beside its number.
fn errno_failure(error: Error) -> Failure {
    match error {
        Error::Signal(SignalError::Exists(_)) => Errno::EEXIST.into(),
        Error::Signal(SignalError::Missing(_)) => Errno::ENOENT.into(),
        error => error.into(),
    }
}

/// Returns a signal, where it is still the one that was looked up.
fn find(mount: &MountContext, view: &View, SignalId { key, created }: SignalId<'_>) -> Result<Arc<Signal>, Failure> {
    let signal = mount.memory.signal(view.branch(), key)?;
    Ok(signal.filter(|signal| signal.created == created).ok_or(Errno::ENOENT)?)
}

impl OpenContext {
    /// Returns a signal, where it is still the one that was looked up. ENOENT if it has ended, or another one has its
    /// key.
    pub fn signal(&self, key: &Arc<str>, created: Time) -> Result<Arc<Signal>, Failure> {
        find(&self.mount, &self.view, SignalId { key, created })
    }
}

/// Claims a key, or returns the signal that has it; EEXIST if the caller wants no other than a new one. ESTALE if the
/// one that is there may not be open to the caller: the kernel then looks it up, and decides by its mode.
pub(super) fn create(context: &OpenContext, name: &OsStr, mode: u32, flags: OpenFlags) -> Result<FsNode, Failure> {
    context.check_writable()?;
    context.check_enter()?;
    let key = parse_key(name)?;
    loop {
        match context.memory().claim_signal(&context.actor(), context.branch(), &key, mode) {
            Ok(signal) => return Ok(FsNode::Signal(context.view.clone(), key, signal.created)),
            Err(Error::Signal(SignalError::Exists(_))) if !flags.exclusive => {}
            Err(error) => return Err(errno_failure(error)),
        }
        // The other signal may have expired in between; then the key is claimed again.
        if let Some(signal) = context.memory().signal(context.branch(), &key)? {
            // The kernel takes what is opened for new, and checks nothing.
            if !context.mount.permits_mode(context.caller, (signal.owner, signal.mode), flags.rights()) {
                return Err(Errno::ESTALE.into());
            }
            return Ok(FsNode::Signal(context.view.clone(), key, signal.created));
        }
    }
}

/// Removes a signal. EROFS if nothing can be changed, ENOENT if there is none.
pub(super) fn unlink(context: &OpenContext, name: &OsStr) -> Result<(), Failure> {
    context.check_writable()?;
    context.memory().remove_signal(&context.actor(), context.branch(), &parse_key(name)?).map_err(errno_failure)
}

/// Gives a signal another key. EROFS if nothing can be changed, ENOENT if there is none, EEXIST if the key is taken and
/// `no_replace`.
pub(super) fn rename(context: &OpenContext, from: &Arc<str>, to: &OsStr, no_replace: bool) -> Result<(), Failure> {
    context.check_writable()?;
    let keys = (from, &parse_key(to)?);
    context.memory().rename_signal(&context.actor(), context.branch(), keys, !no_replace).map_err(errno_failure)
}

/// Returns the attributes of a signal. ENOENT if it has ended.
pub(super) fn attr(mount: &MountContext, base: Attr, view: &View, id: SignalId<'_>) -> Result<Attr, Failure> {
    let signal = find(mount, view, id)?;
    let (uid, gid) = (signal.owner, mount.user(signal.owner).gid);
    Ok(Attr { mode: signal.mode, uid, gid, ..base.with_size(signal.value.len() as u64).with_mtime(signal.written) })
}

/// Returns the attributes of `signals/`, which belongs to the owner of the branch whose shared log it is: who may
/// remove any signal. ESTALE if the branch has gone.
pub(super) fn directory_attr(mount: &MountContext, view: &View, base: Attr) -> Result<Attr, Failure> {
    let owner = mount.memory.info(mount.memory.shared_log(view.branch())?.owner)?;
    Ok(Attr { uid: owner.uid, gid: mount.user(owner.uid).gid, ..base })
}

/// Changes permission bits; a signal keeps its owner. Another owner or group than it has is refused.
pub(super) fn set_rights(context: &OpenContext, id: SignalId<'_>, changes: AttrChanges) -> Result<(), Failure> {
    let signal = find(&context.mount, &context.view, id)?;
    let gid = context.mount.user(signal.owner).gid;
    if changes.uid.is_some_and(|uid| uid != signal.owner) || changes.gid.is_some_and(|wanted| wanted != gid) {
        return Err(LayoutRefusal::FixedAttributes.into());
    }
    match changes.mode.filter(|mode| mode & 0o777 != signal.mode) {
        Some(mode) => Ok(context.memory().set_signal_mode(&context.actor(), context.branch(), id, mode)?),
        None => Ok(()),
    }
}

/// Returns an extended attribute of a signal. ENODATA for any other name, ENOENT if the signal has ended.
pub(super) fn xattr(mount: &MountContext, view: &View, id: SignalId<'_>, name: &OsStr) -> Result<Vec<u8>, Failure> {
    let signal = find(mount, view, id)?;
    let value = match name.to_str().and_then(|name| name.strip_prefix(PREFIX)) {
        Some(PUBLISHER) => signal.publisher.agent.to_string(),
        Some(UID) => signal.publisher.uid.to_string(),
        Some(SESSION) => signal.publisher.session.to_string(),
        Some(TTL) => signal.lifetime_text(),
        _ => return Err(Errno::ENODATA.into()),
    };
    Ok(value.into_bytes())
}

/// Returns the names of all extended attributes, each with a NUL behind it.
pub(super) fn xattr_names() -> Vec<u8> {
    [PUBLISHER, UID, SESSION, TTL].map(|name| format!("{PREFIX}{name}\0")).concat().into_bytes()
}

/// Sets a signal's lifetime; the other attributes say who wrote it. EPERM for those, EOPNOTSUPP for any other name,
/// EEXIST if the attribute must be new, as each signal has all of them; else as `Memory::set_signal_lifetime`.
pub(super) fn set_xattr(
    context: &OpenContext,
    id: SignalId<'_>,
    name: &OsStr,
    (value, mode): (&[u8], XattrMode),
) -> Result<(), Failure> {
    context.check_writable()?;
    match name.to_str().and_then(|name| name.strip_prefix(PREFIX)) {
        Some(TTL) if mode == XattrMode::Create => {
            find(&context.mount, &context.view, id)?;
            Err(Errno::EEXIST.into())
        }
        Some(TTL) => {
            let text = String::from_utf8_lossy(value);
            let text = text.trim_end_matches(['\n', '\0']);
            Ok(context.memory().set_signal_lifetime(&context.actor(), context.branch(), id, text)?)
        }
        Some(PUBLISHER | UID | SESSION) => Err(Errno::EPERM.into()),
        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}
