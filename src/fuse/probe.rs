//! Asking a path which mount it is, without a word to the file system, and whether the file system answers, without hanging.

use std::ffi::{CStr, CString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, open, statx};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::stdio::{dup2_stdin, stdin};

/// The mount's number that is never given twice; rustix has no name for it yet.
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(libc::STATX_MNT_ID_UNIQUE);

/// Which mount an open path belongs to.
///
/// The device number alone is not enough: the kernel gives the lowest free one away again as soon as a mount is gone. The mount's
/// own number (never given twice since Linux 6.8) settles it; it is 0 before Linux 5.8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    /// The minor device number, by which its connection is found in /sys.
    pub minor: u32,
    major: u32,
    mount: u64,
}

/// Opens `path` as a place only: no request to the file system, and the mount seen is the mount kept. `NotADirectory`
/// or `NotFound` as in open(2).
pub(super) fn open_path_only(path: &Path) -> io::Result<OwnedFd> {
    Ok(open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Returns the identity of the mount that `directory` is on. Its mount is 0 if the kernel gives no unique number. Fails
/// like statx(2).
pub(super) fn identity(directory: &OwnedFd) -> io::Result<Identity> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let mask = StatxFlags::MNT_ID | MNT_ID_UNIQUE;
    let found = statx(directory, c"", flags, mask)?;
    let known = found.stx_mask & mask.bits() != 0;
    Ok(Identity {
        minor: found.stx_dev_minor,
        major: found.stx_dev_major,
        mount: if known { found.stx_mnt_id } else { 0 },
    })
}

/// What a file system said when asked for its root's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeAnswer {
    /// It answered.
    Alive,
    /// Its process is gone (ENOTCONN, ECONNABORTED).
    Dead,
    /// It belongs to another user, and the kernel does not let us ask.
    Denied,
    /// No answer in time.
    Silent,
    /// Another errno.
    Failed(i32),
}

/// Asks the file system at `path` for fresh attributes of that directory, and waits no longer than `limit`.
///
/// A child process does the asking, since a thread that waits for a FUSE reply can't be ended, and would keep this
/// process from ending. The child closes every descriptor that it inherits: a copy of `/dev/fuse` in it would keep a
/// dead connection alive. No answer within `limit` is `ProbeAnswer::Silent`. Fails if no child can be started, or
/// `path` holds a NUL.
pub(super) fn probe(path: &Path, limit: Duration) -> io::Result<ProbeAnswer> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let (mut result_pipe, writer) = io::pipe()?;
    // SAFETY: between fork and _exit the child makes system calls only; no allocation, no lock, no Rust destructor.
    let child = unsafe { libc::fork() };
    match child {
        -1 => return Err(io::Error::last_os_error()),
        // SAFETY: this is the child just forked, as `report` demands.
        0 => unsafe { report(&path, writer.as_fd()) },
        // The parent's end goes, or the pipe would never end where the child dies without a word.
        _ => drop(writer),
    }
    let mut errno = [0_u8; 4];
    let readable = readable_within(&result_pipe, limit);
    // The end of the pipe is readable, too; only four bytes are an answer.
    let answered = matches!(readable, Ok(true)) && result_pipe.read_exact(&mut errno).is_ok();
    // It has not been waited for, so the number can't be another process's.
    if let Some(child) = Pid::from_raw(child) {
        let _ = kill_process(child, Signal::KILL);
        // A child that hangs in the kernel can't be waited for; it is reaped when this process ends.
        let _ = waitpid(Some(child), if answered { WaitOptions::empty() } else { WaitOptions::NOHANG });
    }
    readable?;
    Ok(if answered { classify_errno(i32::from_le_bytes(errno)) } else { ProbeAnswer::Silent })
}

fn classify_errno(errno: i32) -> ProbeAnswer {
    match errno {
        0 => ProbeAnswer::Alive,
        libc::ENOTCONN | libc::ECONNABORTED => ProbeAnswer::Dead,
        libc::EACCES => ProbeAnswer::Denied,
        other => ProbeAnswer::Failed(other),
    }
}

/// Runs in the child: asks, writes the errno (little-endian i32), ends.
///
/// # Safety
/// Only for a freshly forked child: it closes all descriptors and never returns.
unsafe fn report(path: &CStr, result_pipe: BorrowedFd<'_>) -> ! {
    // The functions of rustix used here are bare system calls: they allocate nothing and take no lock.
    let _ = dup2_stdin(result_pipe);
    // SAFETY: the descriptors are of this child's own table, and nothing here uses one of them again.
    unsafe {
        if libc::syscall(libc::SYS_close_range, 1_u32, u32::MAX, 0_u32) != 0 {
            for fd in 1..1024 {
                libc::close(fd);
            }
        }
    }
    let answer = statx(CWD, path, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS);
    let errno = answer.err().map_or(0, Errno::raw_os_error);
    let _ = rustix::io::write(stdin(), &errno.to_le_bytes());
    // SAFETY: it ends the child without destructors, which would run a second time here.
    unsafe { libc::_exit(0) }
}

/// Waits until `fd` can be read or is at its end; false when `limit` is over first. Fails like poll(2), but not for an
/// interruption.
pub fn readable_within(fd: &impl AsFd, limit: Duration) -> io::Result<bool> {
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = left.try_into().map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            Ok(0) if Instant::now() < end => {}
            other => return Ok(other? > 0),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_living_directory_answers_and_a_missing_one_says_why() {
        assert_eq!(probe(Path::new("/"), Duration::from_secs(5)).unwrap(), ProbeAnswer::Alive);
        let missing = probe(Path::new("/no/such/place"), Duration::from_secs(5)).unwrap();
        assert_eq!(missing, ProbeAnswer::Failed(libc::ENOENT));
    }

    #[test]
    fn a_dead_connection_is_told_from_other_errors() {
        assert_eq!(classify_errno(libc::ENOTCONN), ProbeAnswer::Dead);
        assert_eq!(classify_errno(libc::ECONNABORTED), ProbeAnswer::Dead);
        assert_eq!(classify_errno(libc::EACCES), ProbeAnswer::Denied);
        assert_eq!(classify_errno(libc::EIO), ProbeAnswer::Failed(libc::EIO));
    }

    #[test]
    fn identity_is_stable_and_differs_between_mounts() {
        let root = identity(&open_path_only(Path::new("/")).unwrap()).unwrap();
        assert_eq!(root, identity(&open_path_only(Path::new("/")).unwrap()).unwrap());
        assert_ne!(root, identity(&open_path_only(Path::new("/proc")).unwrap()).unwrap());
    }

    #[test]
    fn waiting_for_a_silent_pipe_ends_in_time() {
        let (reader, _writer) = io::pipe().unwrap();
        let start = Instant::now();
        assert!(!readable_within(&reader, Duration::from_millis(30)).unwrap());
        assert!(start.elapsed() >= Duration::from_millis(30));
    }
}
