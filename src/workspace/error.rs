//! Why something can't be done to a tree.

use thiserror::Error;

use crate::object::CodecError;
use crate::segment::SegmentError;

/// Says why a tree refused, one variant for each error number that POSIX has for it.
#[derive(Debug, Error)]
pub enum TreeError {
    /// ENOENT.
    #[error("there is nothing of that name")]
    NotFound,
    /// EEXIST.
    #[error("the name is taken")]
    Exists,
    /// ENOTDIR.
    #[error("it is not a directory")]
    NotDirectory,
    /// EISDIR.
    #[error("it is a directory")]
    IsDirectory,
    /// ENOTEMPTY.
    #[error("the directory is not empty")]
    NotEmpty,
    /// EINVAL.
    #[error("this can't be done: {0}")]
    Invalid(&'static str),
    /// EPERM.
    #[error("a directory has one name only")]
    NotPermitted,
    /// EMLINK.
    #[error("it has as many links as there may be")]
    TooManyLinks,
    /// ENAMETOOLONG.
    #[error("a name has at most 255 bytes and a link's target at most 4095")]
    NameTooLong,
    /// ENODATA.
    #[error("there is no extended attribute of that name")]
    NoAttribute,
    /// E2BIG.
    #[error("an extended attribute has at most 64 KiB")]
    AttributeTooLarge,
    /// ERANGE.
    #[error("the name of an extended attribute has 1 to 255 bytes")]
    AttributeName,
    /// ENOSPC.
    #[error("the extended attributes of one file have at most 1 MiB")]
    NoSpace,
    /// EFBIG.
    #[error("a file has at most 16 TiB")]
    TooLarge,
    /// It would take more work than may be done at once.
    #[error("this takes more work than may be done at once")]
    Exceeded,
    /// ESTALE.
    #[error("it is gone")]
    Stale,
    /// EIO: the bytes of a chunk can't be read, or are not those that were written.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// Stored bytes of a tree are not of the form they should be.
    #[error("the stored form of a tree is damaged: {0}")]
    Stored(&'static str),
    /// The same, seen by the codec.
    #[error("the stored form of a tree is damaged: {0}")]
    Codec(#[from] CodecError),
}
