//! What can go wrong around a mount, each with the next thing to do.

use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;

use thiserror::Error;

/// Says why a mount could not be made, served or taken away.
#[derive(Debug, Error)]
pub enum MountError {
    /// The mountpoint can't be reached.
    #[error("the mountpoint {path} cannot be used: {source}")]
    Mountpoint {
        /// The mountpoint as it was given.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The mountpoint is there, but it is not a directory.
    #[error("the mountpoint {path} is no directory")]
    NotADirectory {
        /// The mountpoint, absolute and without links.
        path: PathBuf,
    },
    /// `/dev/fuse` is missing or closed to this user.
    #[error("/dev/fuse cannot be opened: {source}")]
    Device {
        /// What the kernel said.
        source: io::Error,
    },
    /// mount(2) failed.
    #[error("the kernel refused the mount at {path}: {source}")]
    Refused {
        /// The mountpoint, absolute and without links.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// This process may not mount, and there is no fusermount3 to do it.
    #[error("{path} needs fusermount3, which is not installed")]
    NoHelper {
        /// The mountpoint, absolute and without links.
        path: PathBuf,
    },
    /// fusermount3 ran and refused.
    #[error("fusermount3 refused {path}: {message}")]
    Helper {
        /// The mountpoint, absolute and without links.
        path: PathBuf,
        /// Its own words.
        message: String,
    },
    /// The descriptor given by `--fuse-fd` is not an open FUSE device.
    #[error("descriptor {fd} is no mounted FUSE device: {source}")]
    Descriptor {
        /// The descriptor's number.
        fd: RawFd,
        /// What the kernel said.
        source: io::Error,
    },
    /// The conversation with the kernel broke off.
    #[error("serving {path} ended with an error: {source}")]
    Session {
        /// The mountpoint as it was given.
        path: PathBuf,
        /// What the session said.
        source: io::Error,
    },
    /// The mount was made but its root did not answer.
    #[error("the mount at {path} does not answer: {source}")]
    NoAnswer {
        /// The mountpoint as it was given.
        path: PathBuf,
        /// A time-out, or what asking for the root's attributes gave.
        source: io::Error,
    },
    /// Nothing is mounted there.
    #[error("nothing is mounted at {path}")]
    NotMounted {
        /// The mountpoint, absolute and without links.
        path: PathBuf,
    },
    /// Something else than engramfs is mounted there.
    #[error("{found} is mounted at {path}, not engramfs")]
    NotOurs {
        /// The mountpoint, absolute and without links.
        path: PathBuf,
        /// Source and type of the mount found.
        found: String,
    },
    /// Some process uses the mount.
    #[error("{path} is in use by {holders}")]
    InUse {
        /// The mountpoint, absolute and without links.
        path: PathBuf,
        /// The processes seen with a file or their working directory there.
        holders: String,
    },
    /// An engramfs process serves this mountpoint already.
    #[error("{found} is mounted at {path} and in service")]
    AlreadyMounted {
        /// The mountpoint, absolute and without links.
        path: PathBuf,
        /// Source and type of the mount found.
        found: String,
    },
    /// umount(2) or fusermount3 failed for another reason than use.
    #[error("{path} could not be unmounted: {source}")]
    Unmount {
        /// The mountpoint, absolute and without links.
        path: PathBuf,
        /// What the kernel or fusermount3 said.
        source: io::Error,
    },
    /// The mount is gone, but its process has not let go of it in time.
    #[error("{path} is unmounted, but process {pid} still holds it after {seconds} s")]
    Lingers {
        /// The mountpoint, absolute and without links.
        path: PathBuf,
        /// The process that served the mount.
        pid: u32,
        /// How long was waited.
        seconds: u64,
    },
    /// The mount table or a signal handler could not be had.
    #[error("{what} failed: {source}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl MountError {
    /// Returns what the user can do next, as a command where there is one.
    pub fn hint(&self) -> String {
        match self {
            MountError::Mountpoint { .. } => "give an existing directory".into(),
            MountError::NotADirectory { .. } => "give an existing directory".into(),
            MountError::Device { .. } => "run `engramfs doctor`, which says what is missing".into(),
            MountError::Refused { .. } => "run `engramfs doctor`, which says what is missing".into(),
            MountError::NoHelper { .. } => "install it (apt-get install fuse3) or run as root".into(),
            MountError::Helper { .. } => "run `engramfs doctor`, which says what is missing".into(),
            MountError::Descriptor { .. } => "pass the /dev/fuse descriptor that was mounted".into(),
            MountError::Session { .. } => "mount it again".into(),
            MountError::NoAnswer { .. } => {
                "see the mount's log (mount --foreground prints it); the mount was taken away again".into()
            }
            MountError::NotMounted { path, .. } => {
                format!("run `engramfs doctor {}`, which shows its state", path.display())
            }
            MountError::NotOurs { .. } => "leave it, or unmount it yourself if it has to go".into(),
            MountError::InUse { .. } => "close what is open there, or use --lazy".into(),
            MountError::AlreadyMounted { path, .. } => format!("unmount it first (engramfs umount {})", path.display()),
            MountError::Unmount { .. } => "unmount it as the user who mounted it, or as root".into(),
            MountError::Lingers { pid, .. } => format!("wait for it, or end it: kill {pid}"),
            MountError::System { .. } => "check that /proc is mounted and descriptors are left (ulimit -n)".into(),
        }
    }
}
