//! Why a path can't be looked at, or a store not opened: it is closed to the caller, on a mount whose server has ended, or
//! served by a process whose mount was taken away.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::find_store::find_mount_above;
use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::memory::{Error, OpenError};

/// Returns the error for a path that is closed to the caller, or on a dead mount; `None` for one that is not there.
pub fn access_error(path: &Path) -> Option<CommandError> {
    dead_mount(path).or_else(|| explain(path, &path.canonicalize().err()?))
}

/// Returns the error for a path on a mount whose server has ended; `None` for all others.
pub fn dead_mount(path: &Path) -> Option<CommandError> {
    // Names and attributes may be known for a second after the death; what a folder holds is asked for each time.
    let error = fs::read_dir(path).err()?;
    is_dead(&error).then(|| dead_mount_error(path))
}

/// Returns why what a directory holds can't be read; `None` if it can, or if it is none.
pub fn listing_error(directory: &Path) -> Option<CommandError> {
    explain(directory, &fs::read_dir(directory).err()?)
}

fn explain(path: &Path, error: &io::Error) -> Option<CommandError> {
    if is_dead(error) {
        return Some(dead_mount_error(path));
    }
    (error.kind() == io::ErrorKind::PermissionDenied).then(|| {
        let message = format!("{} can't be looked at: {error}", path.display());
        let hint = "ask its owner for access; tail -n 1 errors of the branch above may say more";
        CommandError::new(Exit::Failed, "permission_denied", message, hint)
    })
}

/// Returns the error for a path on a mount that was found dead: which one, and the command that mounts its store again.
pub fn dead_mount_error(path: &Path) -> CommandError {
    let (place, hint) = match real_path(path).and_then(|path| find_mount_above(&path)) {
        Some((mnt, store)) => {
            let command = format!("engramfs mount {} {}", store.display(), mnt.display());
            (mnt, format!("mount the store again, with the options that the mount had: {command}"))
        }
        // Of a mount that was taken away the path is not known any more.
        None => (path.to_owned(), "enter the directory anew with cd; mount the store again if that fails".to_owned()),
    };
    let message = format!("the mount at {} is dead: its server has ended", place.display());
    CommandError::new(Exit::Failed, "dead_mount", message, hint)
}

/// Returns why a store could not be opened, as the table of mounts explains the error.
pub fn open_error(store: &Path, error: Error) -> CommandError {
    if let Some(dead) = dead_mount(store) {
        return dead;
    }
    let lost_server = match &error {
        Error::Open(OpenError::Locked { holder, .. }) => server_without_mount(holder),
        _ => None,
    };
    let mut failure = CommandError::from(error);
    if let Some(pid) = lost_server {
        failure.hint = format!(
            "nothing is mounted there now: after umount --lazy its server goes on until what is open is closed; close \
             that, or end it: kill {pid}"
        );
    }
    failure
}

/// Returns the process of a store's holder, if that has a mountpoint at which nothing of engramfs is mounted.
fn server_without_mount(holder: &str) -> Option<u32> {
    let (pid, mnt) = holder.strip_prefix("process ")?.split_once(", mounted at ")?;
    let mnt = Path::new(mnt);
    let is_mounted = find_mount_above(mnt).is_some_and(|(found, _)| found == mnt);
    if is_mounted { None } else { pid.parse().ok() }
}

fn is_dead(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED))
}

/// Returns a path without the links on it, as far as it can be followed; `None` if the working directory is not known.
fn real_path(path: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(path).ok()?;
    let real = |above: &Path| Some(above.canonicalize().ok()?.join(absolute.strip_prefix(above).ok()?));
    absolute.ancestors().find_map(real)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_or_missing_is_neither_closed_nor_dead() {
        for path in ["/proc", "/proc/version", "/no/such/place"] {
            let path = Path::new(path);
            assert_eq!((access_error(path), dead_mount(path), listing_error(path)), (None, None, None));
        }
    }

    #[test]
    fn a_server_whose_mount_is_gone_is_told_to_end_and_not_to_be_unmounted() {
        let hint = |holder: &str| {
            let locked = OpenError::Locked { store: "/s".into(), holder: holder.to_owned() };
            open_error(Path::new("/s"), locked.into()).hint
        };
        assert!(hint("process 41, mounted at /no/such/mount").ends_with("kill 41"));
        for other in ["process 41 (a command of engramfs)", "another process"] {
            assert!(hint(other).contains("unmount it first"), "{other}");
        }
    }

    #[test]
    fn links_are_followed_as_far_as_there_is_something() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        fs::create_dir(real.join("there")).unwrap();
        std::os::unix::fs::symlink(real.join("there"), real.join("link")).unwrap();
        assert_eq!(real_path(&real.join("link/none/x")), Some(real.join("there/none/x")));
    }
}
