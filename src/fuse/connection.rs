//! The kernel's control file system for FUSE (fusectl): how many requests wait on a connection, and how to end it by force.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Where distributions mount fusectl; minimal systems and containers often don't.
pub(super) const CONTROL: &str = "/sys/fs/fuse/connections";

const SET_STRING: libc::c_uint = 1;
const COMMAND_CREATE: libc::c_uint = 6;
const CLOSE_ON_EXEC: libc::c_uint = 1;

/// Returns how many requests wait for an answer on connection `minor`.
pub(super) fn waiting(minor: u32) -> io::Result<u64> {
    let mut text = String::new();
    open(minor, "waiting", libc::O_RDONLY)?.read_to_string(&mut text)?;
    text.trim().parse().map_err(io::Error::other)
}

/// Ends connection `minor`: each request on it fails, and its session sees the end.
pub(super) fn abort(minor: u32) -> io::Result<()> {
    open(minor, "abort", libc::O_WRONLY)?.write_all(b"1")
}

fn open(minor: u32, file: &str, flags: i32) -> io::Result<File> {
    let name = CString::new(format!("{minor}/{file}"))?;
    match File::open(CONTROL).and_then(|dir| open_below(&dir, &name, flags)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => open_below(&private_control()?, &name, flags),
        other => other,
    }
}

fn open_below(dir: &impl AsRawFd, name: &CStr, flags: i32) -> io::Result<File> {
    // SAFETY: `name` ends in NUL, and `dir` is open for the call.
    let fd = unsafe { libc::openat(dir.as_raw_fd(), name.as_ptr(), flags | libc::O_CLOEXEC) };
    // SAFETY: `adopt` checks for -1; the descriptor is new and nobody else's.
    Ok(File::from(unsafe { adopt(fd.into()) }?))
}

/// Mounts fusectl for this process alone, attached nowhere: nobody else sees it, and it goes with the descriptor. Needs root, Linux 5.2.
fn private_control() -> io::Result<OwnedFd> {
    let context = FsContext::open(c"fusectl")?;
    context.create()?;
    // SAFETY: the arguments are a descriptor and two flag words.
    let fd = unsafe { libc::syscall(libc::SYS_fsmount, context.0.as_raw_fd(), CLOSE_ON_EXEC, 0) };
    // SAFETY: `adopt` checks for -1; the descriptor is new and nobody else's.
    unsafe { adopt(fd) }
}

/// A file system in the making, attached nowhere (fsopen(2)).
#[derive(Debug)]
pub(super) struct FsContext(OwnedFd);

impl FsContext {
    pub fn open(fstype: &CStr) -> io::Result<Self> {
        // SAFETY: `fstype` ends in NUL.
        let fd = unsafe { libc::syscall(libc::SYS_fsopen, fstype.as_ptr(), CLOSE_ON_EXEC) };
        // SAFETY: `adopt` checks for -1; the descriptor is new and nobody else's.
        Ok(Self(unsafe { adopt(fd) }?))
    }

    pub fn set(&self, key: &CStr, value: &CStr) -> io::Result<()> {
        self.configure(SET_STRING, key.as_ptr(), value.as_ptr())
    }

    pub fn create(&self) -> io::Result<()> {
        self.configure(COMMAND_CREATE, std::ptr::null(), std::ptr::null())
    }

    fn configure(&self, command: libc::c_uint, key: *const libc::c_char, value: *const libc::c_char) -> io::Result<()> {
        // SAFETY: both pointers are null or end in NUL, as the two commands used here want them.
        let code = unsafe { libc::syscall(libc::SYS_fsconfig, self.0.as_raw_fd(), command, key, value, 0) };
        if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// # Safety
/// `fd` is -1 with errno set, or a new descriptor that nothing else owns.
unsafe fn adopt(fd: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(fd) {
        // SAFETY: the caller vouches for it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_is_not_there_is_an_error_and_nothing_else() {
        assert!(waiting(u32::MAX).is_err());
        assert!(abort(u32::MAX).is_err());
    }

    #[test]
    fn an_unknown_file_system_type_is_refused() {
        FsContext::open(c"no-such-type").unwrap_err();
    }
}
