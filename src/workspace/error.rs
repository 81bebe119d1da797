//! Why something can't be done to a tree.

use thiserror::Error;

use crate::object::CodecError;
use crate::segment::SegmentError;

/// Says why a tree refused, one variant for each error number that POSIX has for it.
#[derive(Debug, Error)]
pub enum TreeError {
    /// ENOENT.
    #[error("there is nothing of that name; look at the path")]
    NotFound,
    /// EEXIST.
    #[error("the name is taken; choose another or remove what has it")]
    Exists,
    /// ENOTDIR.
    #[error("it is not a directory; look at the path")]
    NotDirectory,
    /// EISDIR.
    #[error("it is a directory; use what is meant for directories")]
    IsDirectory,
    /// ENOTEMPTY.
    #[error("the directory is not empty; remove what is in it first")]
    NotEmpty,
    /// EINVAL.
    #[error("this can't be done: {0}")]
    Invalid(&'static str),
    /// EPERM.
    #[error("a directory has one name only; link files instead")]
    NotPermitted,
    /// EMLINK.
    #[error("it has as many links as there may be; remove some first")]
    TooManyLinks,
    /// ENAMETOOLONG.
    #[error("a name has at most 255 bytes and a link's target at most 4095; shorten it")]
    NameTooLong,
    /// ENODATA.
    #[error("there is no extended attribute of that name; set it first")]
    NoAttribute,
    /// E2BIG.
    #[error("an extended attribute has at most 64 KiB; shorten it")]
    AttributeTooLarge,
    /// ERANGE.
    #[error("the name of an extended attribute has 1 to 255 bytes; change it")]
    AttributeName,
    /// ENOSPC.
    #[error("the extended attributes of one file have at most 1 MiB; remove some first")]
    NoSpace,
    /// EFBIG.
    #[error("a file has at most 16 TiB; write less")]
    TooLarge,
    /// It would take more work than may be done at once.
    #[error("this takes more work than may be done at once; try again")]
    Exceeded,
    /// ESTALE.
    #[error("it is gone; look it up again")]
    Stale,
    /// EIO: the bytes of a chunk can't be read, or are not those that were written.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// Stored bytes of a tree are not of the form they should be.
    #[error("the stored form of a tree is damaged: {0}; restore the store from a backup")]
    Stored(&'static str),
    /// The same, seen by the codec.
    #[error("the stored form of a tree is damaged: {0}; restore the store from a backup")]
    Codec(#[from] CodecError),
}
