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
        Mount::with(Command::new(binary()), options)
    }

    /// Mounts a new store by a server with so much address space. Options that the program does not know are left out.
    pub fn limited(options: &[&str], address_space: u64) -> Mount {
        let mut server = Command::new("prlimit");
        server.arg(format!("--as={address_space}")).arg(binary());
        let help = Command::new(binary()).args(["mount", "--help"]).output().unwrap().stdout;
        let is_known = String::from_utf8_lossy(&help).contains(options[0]);
        Mount::with(server, if is_known { options } else { &[] })
    }

    fn with(server: Command, options: &[&str]) -> Mount {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        Mount::in_folder(folder, store, server, options)
    }

    /// Mounts a store that is somewhere else.
    pub fn over(store: PathBuf, options: &[&str]) -> Mount {
        Mount::in_folder(tempfile::tempdir().unwrap(), store, Command::new(binary()), options)
    }

    fn in_folder(folder: TempDir, store: PathBuf, server: Command, options: &[&str]) -> Mount {
        open_to_all(folder.path());
        let path = folder.path().join("mnt");
        fs::create_dir(&path).unwrap();
        let server = serve(server, &store, &path, options);
        Mount { server, store, path, folder: Some(folder) }
    }

    /// Returns the number of the server's process.
    pub fn server_id(&self) -> u32 {
        self.server.id()
    }

    /// Returns a path beside store and mountpoint, in a folder that all may enter.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.as_ref().unwrap().path().join(name)
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns how many bytes of anonymous memory the server takes; nothing when it is dead.
    pub fn anonymous_memory(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.server.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
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

fn serve(mut server: Command, store: &Path, path: &Path, options: &[&str]) -> Child {
    let mut server = server
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
    ask(&mut File::options().read(true).write(true).open(file)?, line)
}

/// Writes a line to an open control file and returns what it answers.
pub fn ask(control: &mut File, line: &str) -> std::io::Result<String> {
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
