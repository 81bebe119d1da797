//! A store that is mounted for all users.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// The program under attack.
pub fn binary() -> PathBuf {
    std::env::var_os("ENGRAMFS_BINARY").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_engramfs")), PathBuf::from)
}

/// A mount that ends with this.
pub struct Mount {
    server: Child,
    pub store: PathBuf,
    pub path: PathBuf,
    folder: Option<TempDir>,
}

impl Mount {
    /// Mounts a new store.
    pub fn new(options: &[&str]) -> Mount {
        let folder = tempfile::tempdir().unwrap();
        open_to_all(folder.path());
        let (store, path) = (folder.path().join("store"), folder.path().join("mnt"));
        fs::create_dir(&path).unwrap();
        let server = serve(&store, &path, options);
        Mount { server, store, path, folder: Some(folder) }
    }

    /// Returns a path beside store and mountpoint, in a folder that all may enter.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.as_ref().unwrap().path().join(name)
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new(binary()).arg("umount").arg(&self.path).stderr(Stdio::null()).status();
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = Command::new("umount").arg("-l").arg(&self.path).stderr(Stdio::null()).status();
    }
}

fn serve(store: &Path, path: &Path, options: &[&str]) -> Child {
    let mut server = Command::new(binary())
        .args(["mount", "--foreground", "--allow-other", "--json"])
        .args([store, path])
        .args(options)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    assert!(!ready.is_empty(), "the mount never answered");
    server
}

/// Lets all users enter a folder.
pub fn open_to_all(folder: &Path) {
    fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

/// Writes a line to a control file and returns what it answers.
pub fn say(file: &Path, line: &str) -> std::io::Result<String> {
    let mut control = File::options().read(true).write(true).open(file)?;
    control.write_all(format!("{line}\n").as_bytes())?;
    let mut answer = String::new();
    control.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Returns a command that is run as a user.
pub fn as_user(uid: u32, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.uid(uid).gid(uid);
    command
}
