//! The one table from failures to errno.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;

use super::refusal::{Refusal, SpaceRefusal};
use crate::memory::{Advice, EditError, Error, Kind, TreeError};

/// An error number of the kernel, positive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident)*) => {
        impl Errno {
            $(#[doc = concat!("`", stringify!($name), "` of errno(3).")] pub const $name: Errno = Errno(libc::$name);)*

            /// Returns the number's name, as `errors` prints it; `E` for one that this module never
            /// gives.
            pub fn name(self) -> &'static str {
                match self {
                    $(Errno::$name => stringify!($name),)*
                    Errno(_) => "E",
                }
            }
        }
    };
}

errnos! {
    E2BIG EACCES EAGAIN EBADF EBUSY EDQUOT EEXIST EFBIG EINVAL EIO EISDIR EMLINK ENAMETOOLONG ENFILE ENODATA ENOENT ENOMEM ENOSPC ENOSYS ENOTDIR
    ENOTEMPTY ENOTTY ENXIO EOPNOTSUPP EPERM ERANGE EROFS ESTALE ETIMEDOUT ETXTBSY EXDEV
}

impl Errno {
    /// Returns what happened and what to do next, for whoever asked on a handle: `ctl` or a file that answers. Most
    /// requests there are refused for a reason of their own, which says more; these come from the branch's files, from
    /// memory, or from a branch that has ended.
    fn message_and_hint(self) -> (&'static str, &'static str) {
        match self {
            Errno::ESTALE => (
                "the branch of this file was merged or discarded",
                "see the parent's lineage: if it was merged, its records are in the parent",
            ),
            Errno::ENOMEM => (
                "the server has no memory for the answer",
                "free memory on the machine, or ask for less, then try again",
            ),
            Errno::ENOENT => ("there is no such file", "see with ls what is there; names are case-sensitive"),
            Errno::EEXIST => ("there is a file of that name", "choose another name, or remove the file first"),
            Errno::ENOTDIR => ("a part of the path is no directory", "see with ls -l on each part which one it is"),
            Errno::EISDIR => ("it is a directory", "name a file in it"),
            Errno::ENOTEMPTY => ("the directory is not empty", "remove what is in it first; ls -a shows all"),
            Errno::EPERM => ("the file may not be changed so", "ask its owner; ls -l shows who that is"),
            Errno::EACCES => ("you may not do this with this file", "ask its owner; ls -l shows owner and mode"),
            Errno::EROFS => {
                ("the mount is read-only", "write through the mount that is not, or mount without --read-only")
            }
            Errno::ENOSPC => {
                ("the branch's files have no room", "remove files, or ask for more room; df shows what is left")
            }
            Errno::EFBIG => ("the file would be too large", "split it, or keep it outside"),
            Errno::EBUSY => ("another merge or write changes the same files", "try again"),
            Errno::EINVAL => ("a name or value is malformed", "see the branch's README.md, which shows each verb"),
            // `Errno` holds any number, so the compiler asks for this arm. A number that no verb meets today is told by its name alone.
            _ => {
                ("the files of the branch refuse it", "look the number's name up in errno(3), and see the mount's log")
            }
        }
    }
}

impl From<Kind> for Errno {
    fn from(kind: Kind) -> Errno {
        match kind {
            Kind::NotFound => Errno::ENOENT,
            Kind::Exists => Errno::EEXIST,
            Kind::NotEmpty => Errno::ENOTEMPTY,
            Kind::Invalid => Errno::EINVAL,
            Kind::TooLarge => Errno::EFBIG,
            Kind::Busy | Kind::Conflict | Kind::Locked => Errno::EBUSY,
            Kind::Refused | Kind::NotPermitted => Errno::EPERM,
            Kind::Denied => Errno::EACCES,
            Kind::ReadOnly => Errno::EROFS,
            Kind::Gone => Errno::ESTALE,
            Kind::Timeout => Errno::ETIMEDOUT,
            Kind::Full => Errno::ENOSPC,
            Kind::Quota => Errno::EDQUOT,
            Kind::Unsupported => Errno::EOPNOTSUPP,
            Kind::Descriptors => Errno::ENFILE,
            Kind::Io | Kind::Damaged => Errno::EIO,
            // Never told to anybody: see `Failure::would_wait`.
            Kind::WouldWait => Errno::EAGAIN,
        }
    }
}

/// Why an operation failed: the first kind is told to the caller alone, the second is written to
/// the branch's `errors` too.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// A plain fact of files, such as a name that is not there.
    Plain(Errno),
    /// A rule was broken, or the store could not do it.
    Refused(Arc<Refusal>),
}

impl Failure {
    /// Returns why an operation gives up that would have to wait for another caller. Nobody is told: it is done again
    /// where it may wait.
    pub fn would_wait() -> Failure {
        Failure::Plain(Errno::EAGAIN)
    }

    /// Returns whether the operation gave up since it would have had to wait.
    pub fn is_would_wait(&self) -> bool {
        self.errno() == Errno::EAGAIN
    }

    /// Returns the refusal as a line of JSON, for whoever asked on a handle.
    pub fn to_line(&self) -> String {
        let errno = self.errno().name();
        let (code, message, hint) = match self {
            Failure::Plain(plain) => {
                let (message, hint) = plain.message_and_hint();
                (errno, message.into(), hint.into())
            }
            Failure::Refused(refusal) => {
                let Advice { code, hint, .. } = refusal.advice();
                (code, Cow::from(refusal.to_string()), hint)
            }
        };
        let line = RefusalAnswer { status: "refused", errno, code, message: &message, hint: &hint };
        serde_json::to_string(&line).unwrap_or_default() + "\n"
    }

    /// Returns the error number for the kernel; of a refusal that of its kind.
    pub fn errno(&self) -> Errno {
        match self {
            Failure::Plain(errno) => *errno,
            Failure::Refused(refusal) => refusal.kind().into(),
        }
    }
}

/// What `ctl` answers to a verb that is refused.
#[derive(Serialize)]
struct RefusalAnswer<'a> {
    status: &'a str,
    errno: &'a str,
    code: &'a str,
    message: &'a str,
    hint: &'a str,
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure::Plain(errno)
    }
}

/// What any file system refuses is told to the caller alone. In `errors` too is what its number alone would mislead about,
/// and bytes that can't be read, or are not those that were written.
impl From<TreeError> for Failure {
    fn from(error: TreeError) -> Failure {
        let errno = match error {
            TreeError::NotFound => Errno::ENOENT,
            TreeError::Exists => Errno::EEXIST,
            TreeError::NotDirectory => Errno::ENOTDIR,
            TreeError::IsDirectory => Errno::EISDIR,
            TreeError::NotEmpty => Errno::ENOTEMPTY,
            TreeError::Invalid(_) => Errno::EINVAL,
            TreeError::NotPermitted => Errno::EPERM,
            TreeError::TooManyLinks => Errno::EMLINK,
            TreeError::NameTooLong => Errno::ENAMETOOLONG,
            TreeError::NoAttribute => Errno::ENODATA,
            TreeError::AttributeTooLarge => Errno::E2BIG,
            TreeError::AttributeName => Errno::ERANGE,
            TreeError::NoSpace => return SpaceRefusal::Attributes.into(),
            TreeError::TooLarge => Errno::EFBIG,
            TreeError::Exceeded => Errno::EBUSY,
            TreeError::Stale => Errno::ESTALE,
            TreeError::Segment(error) => return Error::from(error).into(),
            TreeError::Codec(error) => return Error::from(error).into(),
            TreeError::Stored(what) => {
                return Error::Damaged(format!("the stored form of a tree is damaged: {what}")).into();
            }
        };
        Failure::Plain(errno)
    }
}

impl From<EditError> for Failure {
    fn from(error: EditError) -> Failure {
        match error {
            EditError::Tree(error) => error.into(),
            EditError::Refused(error) => error.into(),
        }
    }
}

impl<E: Into<Refusal>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Refused(Arc::new(error.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::refusal::InputRefusal;
    use super::*;

    #[test]
    fn numbers_have_the_names_that_people_look_up() {
        assert_eq!(Errno::EINVAL.name(), "EINVAL");
        assert_eq!(Errno::from(Kind::Gone).name(), "ESTALE");
        assert_eq!(Errno::from(Kind::Conflict), Errno(libc::EBUSY));
        assert_eq!(Errno(9999).name(), "E");
    }

    #[test]
    fn each_kind_has_the_errno_of_the_page() {
        let page = include_str!("../../docs/SEMANTICS.md");
        for (kind, words) in [
            (Kind::NotFound, "not found"),
            (Kind::Gone, "gone (merged, discarded)"),
            (Kind::Exists, "exists"),
            (Kind::NotEmpty, "not empty"),
            (Kind::Invalid, "invalid"),
            (Kind::TooLarge, "too large"),
            (Kind::Busy, "busy"),
            (Kind::Conflict, "conflict"),
            (Kind::Refused, "refused by a gate"),
            (Kind::NotPermitted, "not permitted"),
            (Kind::Denied, "denied"),
            (Kind::ReadOnly, "read-only"),
            (Kind::Timeout, "timeout"),
            (Kind::Full, "disk full"),
            (Kind::Quota, "quota of a branch, a user or the store's disk"),
            (Kind::Io, "disk failed"),
            (Kind::Unsupported, "unsupported"),
            (Kind::Damaged, "damaged"),
            (Kind::Locked, "locked by another process"),
            (Kind::Descriptors, "server or machine out of file descriptors"),
        ] {
            let row = format!("| {words} | {} |", Errno::from(kind).name());
            assert!(page.contains(&row), "docs/SEMANTICS.md has no {row}");
        }
    }

    #[test]
    fn a_refusal_keeps_its_reason_and_a_plain_failure_has_none() {
        let refused = Failure::from(InputRefusal::LineNotUtf8);
        assert_eq!(refused.errno(), Errno::EINVAL);
        assert!(matches!(refused, Failure::Refused(refusal) if refusal.advice().hint == "write text in UTF-8"));
        assert_eq!(Failure::from(Errno::ENOENT).errno(), Errno::ENOENT);
        let attributes = Failure::from(TreeError::NoSpace);
        assert_eq!(attributes.errno(), Errno::ENOSPC);
        assert!(matches!(attributes, Failure::Refused(refusal) if refusal.advice().code == "attributes_full"));
    }
}
