//! What FUSE needs on this machine, what of it is here, and what to do about the rest. Looks only; it changes nothing.

mod mounts;
mod rights;

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{major, minor};
use rustix::mount::{FsOpenFlags, fsconfig_create, fsconfig_set_string, fsopen};

use super::mount::{DEVICE, DEVICE_NUMBER, is_root};

/// The FUSE ABI from which mmap works on files with direct I/O (Linux 6.6).
const MMAP_DIRECT_IO_ABI: (u32, u32) = (7, 39);

/// What was looked at, and how it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at; one word or two.
    pub name: &'static str,
    /// False where it keeps a mount from working.
    pub ok: bool,
    /// What was found; what to do about it is in `advice`.
    pub detail: String,
    /// What to do; also where all is well but something could be better.
    pub advice: Option<String>,
}

impl Finding {
    /// Says that nothing prevents it.
    pub(super) fn pass(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, ok: true, detail: detail.into(), advice: None }
    }

    /// Says that mounting fails for this, and what to do.
    pub(super) fn fail(name: &'static str, detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, ok: false, detail: detail.into(), advice: Some(advice.into()) }
    }

    /// Adds what to do where it is needed after all.
    pub(super) fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }
}

/// Returns what FUSE has and lacks here, and the state of `mountpoint` where one is given.
///
/// Takes no longer than some seconds, also where a mount hangs.
pub fn examine(mountpoint: Option<&Path>) -> Vec<Finding> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut findings = vec![
        device(),
        filesystem(),
        kernel(),
        rights::privilege(&status),
        rights::check_fusermount(&status),
        rights::allow_other(),
        rights::container(&status),
    ];
    match mountpoint {
        Some(path) => findings.extend(mounts::check_mountpoint(path)),
        None => findings.extend(mounts::check_all()),
    }
    findings
}

fn device() -> Finding {
    const NAME: &str = "device";
    let found = match fs::metadata(DEVICE) {
        Ok(found) => found,
        Err(e) => {
            let advice = "modprobe fuse; in a container, start it with --device /dev/fuse";
            return Finding::fail(NAME, format!("{DEVICE}: {e}"), advice);
        }
    };
    let number = (major(found.rdev()), minor(found.rdev()));
    if !found.file_type().is_char_device() || number != DEVICE_NUMBER {
        return Finding::fail(
            NAME,
            format!("{DEVICE} is not the FUSE device"),
            format!("rm {DEVICE}; mknod -m 666 {DEVICE} c 10 229"),
        );
    }
    match OpenOptions::new().read(true).write(true).open(DEVICE) {
        Ok(_) => Finding::pass(NAME, format!("{DEVICE} is there and opens")),
        Err(e) if is_root() => {
            Finding::fail(NAME, format!("{DEVICE}: {e}"), "in a container, start it with --device /dev/fuse")
        }
        Err(e) => Finding::fail(NAME, format!("{DEVICE}: {e}"), format!("chmod 666 {DEVICE} as root, or run as root")),
    }
}

fn filesystem() -> Finding {
    const NAME: &str = "file system";
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if known.lines().any(|line| line.split_whitespace().next_back() == Some("fuse")) {
        Finding::pass(NAME, "the kernel knows the type fuse")
    } else {
        Finding::fail(
            NAME,
            "the kernel does not know the type fuse",
            "modprobe fuse, or use a kernel built with CONFIG_FUSE_FS",
        )
    }
}

fn kernel() -> Finding {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    match offered_abi() {
        Ok((major, minor)) => {
            let finding = Finding::pass("kernel", format!("Linux {release}, FUSE ABI {major}.{minor}"));
            if (major, minor) < MMAP_DIRECT_IO_ABI {
                finding.advise("Linux 6.6 or later lets programs map control files into memory")
            } else {
                finding
            }
        }
        Err(e) => Finding::pass("kernel", format!("Linux {release}; the FUSE ABI can't be asked here ({e})")),
    }
}

/// Makes a FUSE instance that is attached nowhere, reads the kernel's greeting and lets both go. Needs root and Linux 5.2.
fn offered_abi() -> io::Result<(u32, u32)> {
    let mut device = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE)?;
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let fd = device.as_raw_fd().to_string();
    for (key, value) in [("fd", fd.as_str()), ("rootmode", "40000"), ("user_id", "0"), ("group_id", "0")] {
        fsconfig_set_string(&context, key, value)?;
    }
    fsconfig_create(&context)?;
    // The kernel wants room for its largest request, though the greeting is short: a header of 40 bytes, then the two numbers.
    let mut greeting = vec![0_u8; 256 * 1024];
    let length = device.read(&mut greeting)?;
    // The device goes first: that ends the connection, and nothing waits for an answer to the greeting.
    drop(device);
    let word = |at: usize| greeting.get(..length)?.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    word(40).zip(word(44)).ok_or_else(|| io::Error::other("the greeting is too short"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_bad_comes_with_advice() {
        for mountpoint in [None, Some(Path::new("/no/such/place")), Some(Path::new("/proc")), Some(Path::new("/usr"))] {
            for finding in examine(mountpoint) {
                assert!(finding.ok || finding.advice.is_some(), "{finding:?}");
            }
        }
    }

    #[test]
    fn asking_for_the_abi_leaves_no_mount_behind() {
        let count = || crate::fuse::mountinfo::entries().unwrap().len();
        let before = count();
        if let Ok((major, minor)) = offered_abi() {
            assert!(major == 7 && minor >= 6, "{major}.{minor}");
        }
        assert_eq!(count(), before);
    }
}
