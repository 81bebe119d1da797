//! The kernel's control file system for FUSE (fusectl): how many requests wait on a connection, and how to end it by force.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Where distributions mount fusectl; minimal systems and containers often don't.
pub(super) const CONTROL: &str = "/sys/fs/fuse/connections";

/// Returns how many requests wait for an answer on connection `minor`. Fails if the connection is gone, or its control
/// files can't be read.
pub(super) fn waiting_requests(minor: u32) -> io::Result<u64> {
    let mut text = String::new();
    open(minor, "waiting", OFlags::RDONLY)?.read_to_string(&mut text)?;
    text.trim().parse().map_err(io::Error::other)
}

/// Ends connection `minor`: each request on it fails, and its session sees the end.
pub(super) fn abort(minor: u32) -> io::Result<()> {
    open(minor, "abort", OFlags::WRONLY)?.write_all(b"1")
}

fn open(minor: u32, file: &str, flags: OFlags) -> io::Result<File> {
    let name = format!("{minor}/{file}");
    let flags = flags | OFlags::CLOEXEC;
    let found = match openat(CWD, format!("{CONTROL}/{name}"), flags, Mode::empty()) {
        Err(Errno::NOENT) => openat(mount_private_control()?, name, flags, Mode::empty()),
        other => other,
    };
    Ok(File::from(found?))
}

/// Mounts fusectl for this process alone, attached nowhere: nobody else sees it, and it goes with the descriptor. Needs root, Linux 5.2.
fn mount_private_control() -> io::Result<OwnedFd> {
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_is_not_there_is_an_error_and_nothing_else() {
        assert!(waiting_requests(u32::MAX).is_err());
        assert!(abort(u32::MAX).is_err());
    }

    #[test]
    fn an_unknown_file_system_type_is_refused() {
        fsopen("no-such-type", FsOpenFlags::FSOPEN_CLOEXEC).unwrap_err();
    }
}
