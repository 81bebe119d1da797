//! A bubblewrap sandbox that shows one branch and the system's programs.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::{FdFlags, fcntl_setfd};

use super::exit::Exit;
use super::failure::CommandError;
use super::target::allows_others;
use crate::fuse::close_at_exec;

/// Where the branch is in the sandbox.
pub const MEMORY: &str = "/memory";
/// Where this program is in the sandbox, unless the system has one of its name, whose place it takes.
const PROGRAM: &str = "/run/engramfs/engramfs";
const SYSTEM_PROGRAM: &str = "/usr/bin/engramfs";
/// Beside /usr: links into it on most systems, folders on others.
const SYSTEM: [&str; 6] = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Where programs are found if nobody says so.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// What another user gets of the environment.
const PASSED_VARIABLES: [&str; 6] = ["TERM", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "NO_COLOR"];

/// Whose rights a sandboxed command has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SandboxUser {
    /// The uid that the command runs as.
    pub uid: u32,
    /// Its group: the one in the table of users, or the number of the uid where that has no user of it.
    pub gid: u32,
    /// Whether this process is another user, and has to become that one.
    pub is_other: bool,
}

/// What bwrap(1) is told: the branch's directory, the user, and whether there is a network.
pub struct Sandbox {
    bwrap: PathBuf,
    directory: PathBuf,
    user: SandboxUser,
    net: bool,
}

impl Sandbox {
    /// Prepares a sandbox for the branch's `directory`; refuses where bubblewrap is missing, or the user can't reach the branch.
    pub fn new(directory: &Path, user: SandboxUser, net: bool) -> Result<Sandbox, CommandError> {
        let bwrap = find_program("bwrap").ok_or_else(|| {
            let message = "there is no bwrap, which makes the sandbox";
            CommandError::new(Exit::Failed, "no_bwrap", message, "install the package bubblewrap")
        })?;
        let above = directory.parent().unwrap_or(directory);
        if let Some(closed) = closed_ancestor(above, user) {
            let message =
                format!("uid {} can't get to {}: {} is closed", user.uid, directory.display(), closed.display());
            return Err(CommandError::new(Exit::Failed, "unreachable", message, "let others search it: chmod o+x"));
        }
        // The kernel asks no permission there, but who mounted it.
        if user.is_other && !allows_others(above).unwrap_or(true) {
            let message = format!("uid {} can't get to {}: the mount lets no others in", user.uid, directory.display());
            return Err(CommandError::new(Exit::Failed, "unreachable", message, "mount the store with --allow-other"));
        }
        Ok(Sandbox { bwrap, directory: directory.to_owned(), user, net })
    }

    /// Returns the command that starts it, with what has to stay open until then. Fails if open files can't be listed,
    /// or the running program can't be bound into it.
    pub fn command(&self, command: &[OsString]) -> io::Result<(Command, Option<File>)> {
        // A folder that whoever started us has open would lead out of the sandbox.
        close_at_exec()?;
        let mut bwrap = Command::new(&self.bwrap);
        if self.user.is_other {
            // The environment of one user may hold keys, which another is not to get.
            bwrap
                .env_clear()
                .envs(std::env::vars_os().filter(|(name, _)| PASSED_VARIABLES.iter().any(|known| name == known)));
        }
        bwrap.args(["--unshare-all", "--die-with-parent", "--new-session"]);
        if self.net {
            // Names are looked up by a file there on systems with systemd.
            bwrap.args(["--share-net", "--ro-bind-try", "/run/systemd/resolve", "/run/systemd/resolve"]);
        }
        bwrap.args(["--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc"]);
        for path in SYSTEM {
            match fs::read_link(path) {
                Ok(target) => bwrap.arg("--symlink").arg(target).arg(path),
                Err(_) => bwrap.args(["--ro-bind-try", path, path]),
            };
        }
        bwrap.args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]);
        let program = self.bind_program(&mut bwrap)?;
        bwrap.arg("--bind").arg(&self.directory).args([MEMORY, "--chdir", MEMORY]);
        bwrap.arg("--").args(command);
        let path = std::env::var_os("PATH").filter(|path| !path.is_empty() && !self.user.is_other);
        let path = path.unwrap_or_else(|| PATH.into());
        let folder = Path::new(PROGRAM).parent().unwrap_or(Path::new("/"));
        let path: OsString = [&*path, OsStr::new(":"), folder.as_os_str()].into_iter().collect();
        bwrap.env("PATH", path);
        bwrap.env("ENGRAMFS_BRANCH", MEMORY).env("HOME", "/tmp");
        if self.user.is_other {
            // Before bwrap starts: by its own --uid the server would still see ours. Groups beside the one given go, too.
            bwrap.uid(self.user.uid).gid(self.user.gid);
        }
        Ok((bwrap, program))
    }

    /// Shows this program in the sandbox: its file, or a copy where the user can't reach that.
    fn bind_program(&self, bwrap: &mut Command) -> io::Result<Option<File>> {
        let place = if Path::new(SYSTEM_PROGRAM).exists() { SYSTEM_PROGRAM } else { PROGRAM };
        let path = std::env::current_exe()?;
        if path.exists() && closed_ancestor(&path, self.user).is_none() {
            bwrap.arg("--ro-bind").arg(path).arg(place);
            return Ok(None);
        }
        let file = File::open("/proc/self/exe")?;
        fcntl_setfd(&file, FdFlags::empty())?;
        bwrap.args(["--perms", "0555", "--ro-bind-data", &file.as_raw_fd().to_string(), place]);
        Ok(Some(file))
    }
}

fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| PATH.into());
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
}

/// Returns what on the way to a file or folder, itself included, keeps a user from getting through.
fn closed_ancestor(path: &Path, user: SandboxUser) -> Option<PathBuf> {
    let ways: Vec<&Path> = path.ancestors().collect();
    let is_closed = |path: &&&Path| fs::metadata(path).is_ok_and(|found| user.is_other && !may_pass(&found, user));
    ways.iter().rev().find(is_closed).map(|path| path.to_path_buf())
}

/// The bits for searching a folder are those for starting a program.
fn may_pass(found: &Metadata, user: SandboxUser) -> bool {
    let bits = if found.uid() == user.uid {
        found.mode() >> 6
    } else if found.gid() == user.gid {
        found.mode() >> 3
    } else {
        found.mode()
    };
    user.uid == 0 || bits & 0o1 != 0
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_that_others_may_not_search_is_in_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let other = SandboxUser { uid: 65_533, gid: 65_533, is_other: true };
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(closed_ancestor(&inner, other), Some(folder.path().to_owned()));
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o711)).unwrap();
        assert_eq!(closed_ancestor(&inner, other), None);
    }
}
