//! Taking away mounts of other processes: `engramfs umount`, and what a killed process left behind.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::mount::UnmountFlags;

use super::error::MountError;
use super::fusermount;
use super::holders;
use super::mount::{detach_pinned, is_root};
use super::mountinfo::{MountEntry, absolute_path, source_name, topmost_at};
use super::probe::{ProbeAnswer, identity, open_path_only, probe};

/// How long a process that has closed the connection is waited for: it may serve other mounts.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the process that served a mount may take to close the connection.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(10);
/// How long a mount in use is tried again: a process that has just been started has the open files of its parent for a moment.
const BUSY_TIMEOUT: Duration = Duration::from_millis(300);
/// A living file system answers for its root much faster than this.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// Unmounts the engramfs mount at `mountpoint`, and waits for its process to end: up to ten minutes, or 10 s once it
/// has closed the connection. Calls `waiting` from time to time.
///
/// Anything else that is mounted there is left alone (`NotOurs`). A mount still in use after 300 ms is `InUse`, unless `lazy`: then it
/// leaves the tree at once, and its process ends when the last user has gone, which is not waited for.
/// The process is only known on Linux 6.12 or later; before, this returns as soon as the mount has gone.
pub fn unmount(mountpoint: &Path, lazy: bool, waiting: impl FnMut()) -> Result<(), MountError> {
    let path =
        absolute_path(mountpoint).map_err(|source| MountError::Mountpoint { path: mountpoint.to_owned(), source })?;
    let entry = mount_at(&path)?.ok_or_else(|| MountError::NotMounted { path: path.clone() })?;
    if !entry.is_engramfs() {
        return Err(MountError::NotOurs { path, found: entry.describe() });
    }
    // Asked before the mount is taken away: afterwards nothing leads from the mount to its process.
    let server = holders::find_server(entry.minor);
    detach_mount(&path, lazy)?;
    match server {
        Some(pid) if !lazy => wait_for(pid, entry.minor, &path, waiting),
        _ => Ok(()),
    }
}

/// Takes dead mounts of the store `fsname` away from `mountpoint`, stacked ones too; true if there was one.
///
/// `fsname` is the one given to the mount. A mount is dead when its process is gone. Nobody else's mount is touched: a dead one
/// is `NotOurs`, an engramfs mount in service (or one that does not answer within 5 s) is `AlreadyMounted`, and
/// anything else living there is fine to mount upon.
pub fn clear_stale(mountpoint: &Path, fsname: &OsStr) -> Result<bool, MountError> {
    let path = match absolute_path(mountpoint) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other.map_err(|source| MountError::Mountpoint { path: mountpoint.to_owned(), source })?,
    };
    let ours = source_name(fsname);
    let mut cleared = false;
    while let Some(entry) = mount_at(&path)?.filter(MountEntry::is_fuse) {
        let answer =
            probe(&path, ASK_TIMEOUT).map_err(|source| MountError::System { what: "asking the mount", source })?;
        match answer {
            ProbeAnswer::Dead if entry.source == *ours => detach_dead(&path, entry.minor)?,
            ProbeAnswer::Dead => {
                return Err(MountError::NotOurs { path, found: entry.describe() });
            }
            _ if entry.is_engramfs() => {
                return Err(MountError::AlreadyMounted { path, found: entry.describe() });
            }
            _ => break,
        }
        // A mount that stays would be found again in each round, without end.
        if mount_at(&path)?.is_some_and(|now| now.id == entry.id) {
            return Err(MountError::Unmount { path, source: io::Error::other("the dead mount is still there") });
        }
        log::info!("took the stale mount of {ours} away from {}", path.display());
        cleared = true;
    }
    Ok(cleared)
}

fn mount_at(path: &Path) -> Result<Option<MountEntry>, MountError> {
    topmost_at(path).map_err(|source| MountError::System { what: "reading /proc/self/mountinfo", source })
}

/// Root unmounts the mount it has looked at, even if another one covers it by now.
fn detach_dead(path: &Path, minor: u32) -> Result<(), MountError> {
    // Compared on a descriptor, so that what is detached is what was looked at, even if another mount covers it by now.
    let pinned = || {
        let place = open_path_only(path)?;
        if identity(&place)?.minor == minor {
            detach_pinned(&place)
        } else {
            Err(io::Error::other("it changed meanwhile"))
        }
    };
    let detached = if is_root() { pinned() } else { fusermount::unmount(path, true) };
    detached.map_err(|source| MountError::Unmount { path: path.to_owned(), source })
}

fn detach_mount(path: &Path, lazy: bool) -> Result<(), MountError> {
    let flags = UnmountFlags::NOFOLLOW | if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    let detach = || {
        if is_root() {
            rustix::mount::unmount(path, flags).map_err(io::Error::from)
        } else {
            fusermount::unmount(path, lazy)
        }
    };
    retry_while_busy(detach).map_err(|source| match source.kind() {
        io::ErrorKind::ResourceBusy => {
            MountError::InUse { path: path.to_owned(), holders: holders::describe_users(path) }
        }
        _ => MountError::Unmount { path: path.to_owned(), source },
    })
}

fn retry_while_busy(mut call: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let begin = Instant::now();
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy && begin.elapsed() < BUSY_TIMEOUT => {
                std::thread::sleep(POLL);
            }
            done => return done,
        }
    }
}

/// Waits for the process to end; one that lives on but has closed the connection (it serves more than one mount) is fine too.
fn wait_for(pid: u32, minor: u32, path: &Path, mut waiting: impl FnMut()) -> Result<(), MountError> {
    let begin = Instant::now();
    while is_running(pid) {
        let waited = begin.elapsed();
        if waited >= END_TIMEOUT && !holders::serves(pid, minor) {
            return Ok(());
        }
        if waited >= RELEASE_TIMEOUT {
            return Err(MountError::Lingers { path: path.to_owned(), pid, seconds: waited.as_secs() });
        }
        waiting();
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// A process that has ended but was not waited for yet (Z) is not running.
fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may hold anything, so the state is looked for behind the last one.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_plain_directory_and_a_foreign_mount_are_refused() {
        assert!(matches!(unmount(Path::new("/usr"), false, || ()).unwrap_err(), MountError::NotMounted { .. }));
        assert!(matches!(unmount(Path::new("/proc"), true, || ()).unwrap_err(), MountError::NotOurs { .. }));
        assert!(matches!(
            unmount(Path::new("/no/such/place"), false, || ()).unwrap_err(),
            MountError::Mountpoint { .. }
        ));
    }

    #[test]
    fn nothing_stale_is_found_where_no_fuse_mount_is() {
        for path in ["/usr", "/proc", "/no/such/place"] {
            assert!(!clear_stale(Path::new(path), OsStr::new("engramfs:/s")).unwrap(), "{path}");
        }
    }

    #[test]
    fn an_ended_process_is_not_running_even_before_it_is_waited_for() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(is_running(child.id()));
        child.kill().unwrap();
        let end = Instant::now() + Duration::from_secs(5);
        while is_running(child.id()) && Instant::now() < end {
            std::thread::sleep(POLL);
        }
        assert!(!is_running(child.id()));
        child.wait().unwrap();
    }

    #[test]
    fn a_busy_mount_is_tried_again_for_a_while_and_another_failure_is_told_at_once() {
        let busy = || Err(io::ErrorKind::ResourceBusy.into());
        let mut calls = 0;
        let mut free_at_third = || {
            calls += 1;
            if calls < 3 { busy() } else { Ok(()) }
        };
        retry_while_busy(&mut free_at_third).unwrap();
        assert_eq!(calls, 3);
        assert_eq!(retry_while_busy(busy).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        let mut calls = 0;
        let mut denied = || {
            calls += 1;
            Err(io::ErrorKind::PermissionDenied.into())
        };
        assert_eq!(retry_while_busy(&mut denied).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(calls, 1);
    }
}
