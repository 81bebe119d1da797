//! `engramfs umount`: takes a mount away and waits until its store is free.

use std::fs::{File, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::Output;
use crate::cli::progress::WaitingLine;
use crate::cli::target::find_store_without_sync;
use crate::fuse;

/// How long the serving process may take to write what is left and let the store go.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(10);

/// Unmounts, and returns when the store can be used by the next one.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs umount /mnt/memory
  engramfs umount --lazy /mnt/memory      (although something is open there)")]
pub struct Args {
    /// Where the store is mounted.
    mnt: PathBuf,
    /// Takes the mount out of the tree at once; it ends when the last file open there is closed.
    #[arg(long)]
    lazy: bool,
}

/// Takes a mount away and returns when its store is free; with `--lazy` at once. Fails if no mount of engramfs is
/// there, where it is in use, unless `--lazy` is given, or if its store stays locked.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    // A mount that hangs is to go, too, and would not answer.
    let store = find_store_without_sync(&args.mnt).ok().flatten();
    // A read-only mount holds no lock: if the store is locked, another mount has it and keeps it.
    let held = store.as_deref().zip(store.as_deref().and_then(|store| holder_at(store, &args.mnt)));
    let waiting = WaitingLine::new(format!("{} writes what is left to its store", args.mnt.display()), out.is_json());
    fuse::unmount(&args.mnt, args.lazy, || waiting.tick())?;
    if let Some((store, holder)) = held.filter(|_| !args.lazy) {
        wait_for_release(store, &holder, || waiting.tick())?;
    }
    drop(waiting);
    let store = store.as_ref().map(|store| store.to_string_lossy());
    out.json_only(&json!({ "unmounted": args.mnt.to_string_lossy(), "store": store }))?;
    Ok(Exit::Done)
}

/// Returns what the lock of a store says, if the mount at `mnt` is what has it.
fn holder_at(store: &Path, mnt: &Path) -> Option<String> {
    let mnt = mnt.canonicalize().ok()?;
    holder(store).filter(|holder| holder.contains(&format!(", mounted at {} #", mnt.display())))
}

fn holder(store: &Path) -> Option<String> {
    std::fs::read_to_string(store.join("lock")).ok()
}

/// The mount goes before its process has closed the store.
fn wait_for_release(store: &Path, held_by: &str, waiting: impl Fn()) -> Result<(), CommandError> {
    let end = Instant::now() + RELEASE_TIMEOUT;
    // Empty just before it is released; once it says something else another process has the store.
    let still_held = || holder(store).is_some_and(|now| now.is_empty() || now == held_by);
    while is_held(store) && still_held() {
        if Instant::now() >= end {
            return Err(not_released(store, held_by));
        }
        waiting();
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// The refusal where the store is not free in time, from what its lock says of who holds it.
fn not_released(store: &Path, held_by: &str) -> CommandError {
    let pid = held_by.strip_prefix("process ").and_then(|rest| rest.split(',').next()?.parse::<u32>().ok());
    let (process, hint) = match pid {
        Some(pid) => (format!("process {pid}"), format!("wait for it, or end it: kill {pid}")),
        None => ("its process".to_owned(), "look at that process and its log".to_owned()),
    };
    let message = format!("the mount is gone, but after {RELEASE_TIMEOUT:?} {process} still has {}", store.display());
    CommandError::new(Exit::Busy, "lingers", message, hint)
}

/// Returns whether a process has the store for writing. What can't be looked at counts as free: it is not ours to wait for.
fn is_held(store: &Path) -> bool {
    let mut options = File::options();
    // O_NONBLOCK, since an open of a FIFO that has the name would block.
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let Ok(lock) = options.open(store.join("lock")) else { return false };
    // A shared lock that lives for this line only: it tells, and is in nobody's way for longer.
    matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn only_the_mount_that_has_the_store_is_its_holder() {
        let (store, mnt) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = mnt.path().canonicalize().unwrap();
        let line = format!("process 7, mounted at {} #0123\n", path.display());
        std::fs::write(store.path().join("lock"), &line).unwrap();
        assert_eq!(holder_at(store.path(), mnt.path()), Some(line));
        assert_eq!(holder_at(store.path(), store.path()), None);
    }

    #[test]
    fn who_waits_in_vain_is_told_the_process_that_holds_the_store() {
        let said = |held_by: &str| {
            let error = not_released(Path::new("/s"), held_by);
            (error.message, error.hint)
        };
        let (message, hint) = said("process 41, mounted at /m #0123\n");
        assert_eq!(message, "the mount is gone, but after 600s process 41 still has /s");
        assert_eq!(hint, "wait for it, or end it: kill 41");
        let (message, hint) = said("somebody\n");
        assert!(message.contains("its process") && !hint.contains("kill"), "{message}; {hint}");
    }

    #[test]
    fn a_store_is_held_as_long_as_its_lock_is() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_held(dir.path()));
        let lock = File::create(dir.path().join("lock")).unwrap();
        lock.lock().unwrap();
        assert!(is_held(dir.path()));
        // Another mount has the store by now, so ours has released it.
        std::fs::write(dir.path().join("lock"), "process 8, mounted at /n #0\n").unwrap();
        wait_for_release(dir.path(), "process 7, mounted at /m #0\n", || ()).unwrap();
        drop(lock);
        assert!(!is_held(dir.path()));
        wait_for_release(dir.path(), "", || ()).unwrap();
    }
}
