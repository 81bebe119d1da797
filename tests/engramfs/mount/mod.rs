//! The built program on real mounts: what the kernel, shells, editors and other users see.
//!
//! Each test has a store and a mountpoint of its own. A guard takes the mount away, and a watchdog ends a server that
//! a test waits for in vain.

/// Random operations beside an ordinary file system.
mod against_ext4;
/// Forks, merges, discards, checkpoints.
mod branches;
/// Files of a store that change under its mount.
mod bytes;
/// The death of the server while programs write files.
mod crash_files;
/// What a branch was, and taking back what was done.
mod earlier;
/// Embedders, and what is found by its meaning.
mod embedding;
/// Several candidates, of which the best is promoted.
mod explore;
/// What is refused, and what is said of it.
mod failures;
/// Notes that are found by their words, by who may read them.
mod file_search;
/// Ordinary files in `files/`.
mod files;
/// Steps that leave nothing behind where they fail.
mod guard;
/// Many users, each against all others.
mod isolation;
/// Starting, ending, dying, coming back.
mod lifecycle;
/// Whose files are in forks, after merges and after chown(2).
mod owners;
/// What is proposed, approved and let pass by gates.
mod proposals;
/// What leaked and must go.
mod purge;
/// Conversations with `query`, and `search/`.
mod queries;
/// Files in `vectors/`, and `ingest`.
mod records;
/// Stories of review and of what has to be taken back.
mod reviewed;
/// Commands in a sandbox that sees one branch alone.
mod run;
/// Editors and atomic savers, call by call.
mod savers;
/// Files in RAM.
mod scratch;
/// The log that all branches share.
mod shared_log;
mod signals;
mod swarm;
/// Editors, archivers and copiers.
mod tools;
/// Several uids on one mount.
mod users;

use std::ffi::CString;
use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

/// How long one server may be at work before the test counts as hung.
const WATCH: Duration = Duration::from_secs(180);

/// A store and a mountpoint, with nothing mounted yet.
pub struct Site {
    pub store: PathBuf,
    pub mnt: PathBuf,
    folder: TempDir,
}

impl Site {
    pub fn new() -> Site {
        let fuse = File::options().read(true).write(true).open("/dev/fuse");
        fuse.unwrap_or_else(|error| panic!("these tests mount for real, and /dev/fuse can't be opened: {error}"));
        let folder = tempfile::tempdir().unwrap();
        let (store, mnt) = (folder.path().join("store"), folder.path().join("mnt"));
        fs::create_dir(&mnt).unwrap();
        Site { store, mnt, folder }
    }

    /// A path beside store and mountpoint.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Serves the store until the guard is dropped; returns once the mount answers.
    pub fn serve(&self, options: &[&str]) -> Server {
        self.serve_with(options, &[])
    }

    /// The same with these environment variables.
    pub fn serve_with(&self, options: &[&str], variables: &[(&str, &str)]) -> Server {
        let mut program = engramfs(&[]);
        program.envs(variables.iter().copied());
        self.serve_by(program, options)
    }

    /// The same by a command that ends with the program, such as one that traces it.
    pub fn serve_by(&self, mut program: Command, options: &[&str]) -> Server {
        let mut child = program
            .args(["mount", "--foreground", "--json"])
            .args([&self.store, &self.mnt])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        if ready.is_empty() {
            let mut why = String::new();
            child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
            panic!("the mount never answered: {why}");
        }
        let watchdog = watch(child.id(), libc::minor(fs::metadata(&self.mnt).unwrap().dev()));
        Server { child, mnt: self.mnt.clone(), crashed: false, _watchdog: watchdog }
    }
}

impl Drop for Site {
    /// What a failed test left mounted must go before the folder does.
    fn drop(&mut self) {
        take_away(&self.mnt);
    }
}

/// A process that serves a mount; dropping it kills it and takes the mount away.
pub struct Server {
    child: Child,
    mnt: PathBuf,
    crashed: bool,
    _watchdog: Sender<()>,
}

impl Server {
    pub fn signal(&self, signal: i32) {
        // SAFETY: sends a signal to a child that was not waited for, so the number is its own.
        assert_eq!(unsafe { libc::kill(self.child.id().cast_signed(), signal) }, 0);
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Returns what it said on standard error; it has ended.
    pub fn stderr(&mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    /// Kills it as a crash does: the dead mount stays.
    pub fn crash(mut self) {
        self.signal(libc::SIGKILL);
        self.wait();
        self.crashed = true;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !self.crashed {
            take_away(&self.mnt);
        }
    }
}

/// Detaches whatever engramfs left mounted; quiet where there is nothing.
fn take_away(mnt: &Path) {
    let root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let mut command = if root { command("umount", &["-l"]) } else { command("fusermount3", &["-u", "-z"]) };
    let _ = command.arg(mnt).stderr(Stdio::null()).status();
}

/// Ends a server that is at work for too long, so that whoever waits for it gets an error.
#[expect(clippy::print_stderr, reason = "the one who looks at a failed test wants to know")]
fn watch(pid: u32, minor: u32) -> Sender<()> {
    let (alive, ended) = channel();
    std::thread::spawn(move || {
        if ended.recv_timeout(WATCH) == Err(RecvTimeoutError::Timeout) {
            eprintln!("a mount was in use for {WATCH:?}: its connection is aborted");
            let _ = fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1");
            let _ = command("kill", &["-9", &pid.to_string()]).status();
        }
    });
    alive
}

/// A mount of a new store, with what most tests want at hand.
pub struct Mounted {
    // Dropped first: the folder must not be removed through the mount.
    server: Server,
    site: Site,
}

impl Mounted {
    pub fn new() -> Mounted {
        Mounted::with(&[])
    }

    pub fn with(options: &[&str]) -> Mounted {
        let site = Site::new();
        Mounted { server: site.serve(options), site }
    }

    /// Ends the mount and serves its store anew.
    pub fn again(self, options: &[&str]) -> Mounted {
        let Mounted { server, site } = self;
        drop(server);
        Mounted { server: site.serve(options), site }
    }

    /// Ends the mount as `engramfs umount` does, and serves its store anew.
    pub fn unmounted_and_again(mut self) -> Mounted {
        self.server.signal(libc::SIGTERM);
        assert!(self.server.wait().success());
        self.again(&[])
    }

    /// A path below the mountpoint.
    pub fn at(&self, path: &str) -> PathBuf {
        self.site.mnt.join(path)
    }

    pub fn beside(&self, name: &str) -> PathBuf {
        self.site.beside(name)
    }

    /// The last line of `errors` in a branch.
    pub fn refusal(&self, branch: &str) -> Value {
        let lines = read(self.at(&format!("{branch}/errors")));
        serde_json::from_str(lines.lines().last().unwrap()).unwrap()
    }

    /// Runs a shell script at the root of the mount; panics with what it said when it fails.
    pub fn sh(&self, script: &str) -> String {
        self.shell("bash", script)
    }

    pub fn shell(&self, shell: &str, script: &str) -> String {
        succeed(command(shell, &["-ec", script]).current_dir(&self.site.mnt))
    }

    pub fn python(&self, code: &str) -> String {
        succeed(command("python3", &["-c", code]).current_dir(&self.site.mnt))
    }

    /// Writes verbs to a branch's `ctl` and reads what comes of them.
    pub fn ctl(&self, branch: &str, verb: &str) -> io::Result<Value> {
        let mut file = File::options().read(true).write(true).open(self.at(&format!("{branch}/ctl")))?;
        file.write_all(format!("{verb}\n").as_bytes())?;
        let mut answer = String::new();
        file.read_to_string(&mut answer)?;
        Ok(serde_json::from_str(&answer).unwrap())
    }

    pub fn status(&self, branch: &str) -> Value {
        json(self.at(&format!("{branch}/status")))
    }

    pub fn has(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    /// The text of a record.
    pub fn text(&self, path: &str) -> String {
        json(self.at(path))["text"].as_str().unwrap().to_owned()
    }

    /// Writes a record of this text.
    pub fn put(&self, path: &str, text: &str) {
        save(self.at(path), &format!("{{\"text\":\"{text}\"}}\n")).unwrap();
    }
}

pub fn engramfs(arguments: &[&str]) -> Command {
    command(env!("CARGO_BIN_EXE_engramfs"), arguments)
}

pub fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    command
}

pub fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?} could not be started: {error}"))
}

/// Runs a command that must succeed, and returns its standard output.
pub fn succeed(command: &mut Command) -> String {
    let done = output(command);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {}: {said}", done.status);
    String::from_utf8(done.stdout).unwrap()
}

/// Runs `engramfs` and returns its exit code with both outputs.
pub fn run(arguments: &[&str]) -> (i32, String, String) {
    let done = output(&mut engramfs(arguments));
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (done.status.code().unwrap(), text(done.stdout), text(done.stderr))
}

pub fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub fn json(path: impl AsRef<Path>) -> Value {
    serde_json::from_str(&read(path)).unwrap()
}

pub fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The names in a directory, in order.
pub fn names(path: impl AsRef<Path>) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Writes a file as a shell does, and tells what close(2) said, which dropping a file does not.
pub fn save(path: impl AsRef<Path>, content: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content.as_bytes())?;
    close(file)
}

pub fn close(file: File) -> io::Result<()> {
    // SAFETY: the descriptor belonged to `file`, which is gone.
    checked(unsafe { libc::close(file.into_raw_fd()) })
}

/// truncate(2), without a handle.
pub fn truncate(path: &Path, length: i64) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path is a string that ends with NUL and lives through the call.
    checked(unsafe { libc::truncate(path.as_ptr(), length) })
}

/// renameat2(2).
pub fn rename_with(from: &Path, to: &Path, flags: u32) -> io::Result<()> {
    let [from, to] = [from, to].map(|path| CString::new(path.as_os_str().as_bytes()).unwrap());
    // SAFETY: both paths are strings that end with NUL and live through the call.
    checked(unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) })
}

fn checked(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The errno of what must fail.
#[track_caller]
pub fn errno<T: Debug>(result: io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}
