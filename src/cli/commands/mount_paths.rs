//! The two places of a mount: the store, and where it is shown.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;

use crate::cli::actor;
use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::{Output, warn};
use crate::cli::target::{access_error, find_mounted_store, open_error};
use crate::fuse::SOURCE_PREFIX;
use crate::memory::{Environment, Memory, OpenMode};

/// What is mounted where; both absolute, so that they stay true wherever the process goes.
pub struct MountPaths {
    /// The store's directory, which need not be there yet.
    pub store: PathBuf,
    /// The mountpoint.
    pub mnt: PathBuf,
}

impl MountPaths {
    /// Takes the paths as they were given. Fails if one is empty, or relative and the working directory is not known.
    pub fn new(store: &Path, mnt: &Path) -> Result<MountPaths, CommandError> {
        Ok(MountPaths { store: absolute(store)?, mnt: absolute(mnt)? })
    }

    /// Refuses what nothing can be mounted on, and a mount that would hide its own store or lie in it.
    pub fn check_mountpoint(&self) -> Result<(), CommandError> {
        let mnt = &self.mnt;
        if self.store.starts_with(mnt) || mnt.starts_with(&self.store) {
            let message = format!(
                "the mountpoint {} and the store {} lie within each other",
                mnt.display(),
                self.store.display()
            );
            return Err(CommandError::usage(message, "mount it at a directory beside the store"));
        }
        if let Some(error) = access_error(mnt) {
            return Err(error);
        }
        if mnt.is_dir() {
            return Ok(());
        }
        let (what, hint) = if mnt.exists() {
            ("is no directory", "give an existing directory".to_owned())
        } else {
            ("does not exist", format!("make it with mkdir -p {}", mnt.display()))
        };
        Err(CommandError::new(Exit::Failed, "mountpoint", format!("the mountpoint {} {what}", mnt.display()), hint))
    }

    /// Returns what the mount table shows. It leads back to the store, so that no byte of the path is replaced.
    pub fn source(&self) -> OsString {
        let mut source = OsString::from(SOURCE_PREFIX);
        source.push(&self.store);
        source
    }

    /// Opens the store, and tells what was found about it. A store is made where there is none, unless it is to be read
    /// only. Fails like `Memory::open`.
    pub fn open(&self, read_only: bool) -> Result<Arc<Memory>, CommandError> {
        let mode = if read_only { OpenMode::ReadOnly } else { OpenMode::Create };
        let holder = format!("process {}, mounted at {}", std::process::id(), self.mnt.display());
        let memory = Memory::open(&self.store, mode, &holder, Environment::real(actor::current()))
            .map_err(|error| open_error(&self.store, error))?;
        for warning in memory.warnings().iter().cloned().chain(self.warnings()) {
            warn(warning);
        }
        Ok(memory)
    }

    /// Returns what is not an error about where the store lies, and no good idea.
    fn warnings(&self) -> impl Iterator<Item = String> {
        let store = self.store.display();
        let outer = find_mounted_store(&self.store).ok().flatten().map(|outer| {
            let outer = outer.display();
            format!(
                "the store {store} lies in a mount of engramfs, of the store {outer}: each write is written there, too, and \
                 without that mount this one fails; keep it on a disk"
            )
        });
        outer.into_iter().chain(actor::foreign_owner_warning(&self.store, "serves"))
    }

    /// Tells programs that the mount answers; people see it by the prompt.
    pub fn announce(&self, out: &mut Output) {
        let [store, mnt] = [&self.store, &self.mnt].map(|path| path.to_string_lossy());
        let object = json!({ "store": store, "mountpoint": mnt, "pid": std::process::id() });
        // A closed standard output is not a reason to take the mount away again.
        let _ = out.json_only(&object).and_then(|()| out.flush());
    }
}

fn absolute(path: &Path) -> Result<PathBuf, CommandError> {
    // What is not there yet, or a dead mount, can't be resolved.
    path.canonicalize().or_else(|_| std::path::absolute(path)).map_err(|e| CommandError::file("found", path, &e))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn paths_are_absolute_also_where_nothing_is_yet() {
        let paths = MountPaths::new(Path::new("none/store"), Path::new("/tmp/..")).unwrap();
        assert!(paths.store.is_absolute() && paths.source().to_string_lossy().starts_with("engramfs:/"));
        assert_eq!(paths.mnt, Path::new("/"));
    }

    #[test]
    fn a_mountpoint_that_is_missing_says_how_to_make_it() {
        let check = |mnt: &str| MountPaths::new(Path::new("/s"), Path::new(mnt)).unwrap().check_mountpoint();
        assert!(check("/no/such/place").unwrap_err().hint.starts_with("make it with mkdir"));
        assert!(check("/proc/version").unwrap_err().message.contains("no directory"));
        assert_eq!(check("/proc"), Ok(()));
    }

    #[test]
    fn a_store_of_another_user_gets_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        let doubts = |store: &Path| MountPaths::new(store, Path::new("/proc")).unwrap().warnings().collect::<Vec<_>>();
        assert_eq!(doubts(dir.path()), Vec::<String>::new());
        if actor::current().uid == 0 {
            std::os::unix::fs::chown(dir.path(), Some(1001), None).unwrap();
            assert!(doubts(dir.path())[0].contains("belongs to uid 1001 and not to uid 0"));
        }
    }

    #[test]
    fn a_mount_never_hides_its_store() {
        let check = |store: &str| MountPaths::new(Path::new(store), Path::new("/proc")).unwrap().check_mountpoint();
        assert!(["/proc", "/proc/none", "/"].into_iter().all(|store| check(store).is_err()));
        assert_eq!(check("/procession"), Ok(()));
    }
}
