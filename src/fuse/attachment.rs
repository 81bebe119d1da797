//! Where a session's requests come from: a mount of our own, or a descriptor that somebody else has mounted.

use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use rustix::fs::{major, minor};

use super::error::MountError;
use super::mount::{DEVICE_NUMBER, MountOptions, OwnMount};

/// Where a session's requests come from.
#[derive(Debug)]
pub(super) enum Attachment {
    /// A mount of our own, which is taken away at the end.
    Mounted(OwnMount),
    /// A descriptor mounted by somebody else, whose mount is never taken away here.
    Adopted,
}

impl Attachment {
    /// Mounts, or adopts the descriptor given, and returns the descriptor to serve. Fails like `OwnMount::mount`, and
    /// with `MountError::Descriptor` if the descriptor is not one of `/dev/fuse`.
    pub fn open(options: &MountOptions) -> Result<(Self, OwnedFd), MountError> {
        match options.fuse_fd {
            Some(fd) => Ok((Self::Adopted, adopt(fd)?)),
            None => {
                let (mount, fd) = OwnMount::mount(options)?;
                Ok((Self::Mounted(mount), fd))
            }
        }
    }
}

/// Takes over a descriptor given by number, and keeps it from programs that are started.
fn adopt(fd: RawFd) -> Result<OwnedFd, MountError> {
    let descriptor_error = |source| MountError::Descriptor { fd, source };
    // rustix takes descriptors that are known to be open; this one is only a number that somebody gave.
    // SAFETY: F_SETFD touches no memory, and fails on a descriptor that is not open.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
        return Err(descriptor_error(io::Error::last_os_error()));
    }
    // SAFETY: it is open, and whoever passes its number gives it to us.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    let found = file.metadata().map_err(descriptor_error)?;
    let number = (major(found.rdev()), minor(found.rdev()));
    if found.file_type().is_char_device() && number == DEVICE_NUMBER {
        Ok(file.into())
    } else {
        Err(descriptor_error(io::Error::new(io::ErrorKind::InvalidInput, "it is another kind of file")))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::os::fd::IntoRawFd;

    use super::*;

    #[test]
    fn only_an_open_fuse_device_is_adopted() {
        assert!(matches!(adopt(1_000_000).unwrap_err(), MountError::Descriptor { fd: 1_000_000, .. }));
        let other = File::open("/dev/null").unwrap().into_raw_fd();
        assert!(matches!(adopt(other).unwrap_err(), MountError::Descriptor { .. }));
    }
}
