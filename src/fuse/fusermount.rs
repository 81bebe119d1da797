//! fusermount3, the setuid helper that mounts and unmounts for users who may not.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::cmsg_space;
use rustix::io::retry_on_intr;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::error::MountError;

/// How long the helper may take to mount.
const HELPER_TIMEOUT: Duration = Duration::from_secs(15);
const NAMES: [&str; 2] = ["fusermount3", "fusermount"];
/// Looked through after `PATH`, which services often have cut short.
const USUAL_PLACES: [&str; 4] = ["/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin"];

/// Returns the path of fusermount3, or of its older namesake.
pub(super) fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> = std::env::split_paths(&path).chain(USUAL_PLACES.iter().map(PathBuf::from)).collect();
    NAMES.iter().flat_map(|name| dirs.iter().map(move |dir| dir.join(name))).find(|candidate| candidate.is_file())
}

/// Mounts at `path` and returns the FUSE descriptor that the helper sends back. `MountError::NoHelper` if it is not
/// installed, `MountError::Helper` with what it says where it refuses, or sends nothing for 15 s.
pub(super) fn mount(path: &Path, options: &str) -> Result<OwnedFd, MountError> {
    let helper = find().ok_or_else(|| MountError::NoHelper { path: path.to_owned() })?;
    let outcome = run(&helper, path, options, HELPER_TIMEOUT).unwrap_or_else(|e| Err(e.to_string()));
    outcome.map_err(|message| MountError::Helper { path: path.to_owned(), message })
}

/// Runs the helper; returns the descriptor, or what the helper says where it sends none within the limit.
fn run(helper: &Path, path: &Path, options: &str, limit: Duration) -> io::Result<Result<OwnedFd, String>> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_read_timeout(Some(limit))?;
    // The socket goes over as standard input, which needs no juggling with close-on-exec.
    let mut child = Command::new(helper)
        .args(["-o", options, "--"])
        .arg(path)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let received = receive_descriptor(&ours);
    drop(ours);
    if received.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
        child.kill()?;
        child.wait()?;
        return Ok(Err(format!("it sent no descriptor within {} s and was ended", limit.as_secs())));
    }
    let message = String::from_utf8_lossy(&child.wait_with_output()?.stderr).trim().replace('\n', " ");
    Ok(received.map_err(|e| if message.is_empty() { e.to_string() } else { message }))
}

/// Unmounts `path`; with `lazy` also when it is in use. EBUSY comes back as [`io::ErrorKind::ResourceBusy`].
pub(super) fn unmount(path: &Path, lazy: bool) -> io::Result<()> {
    let helper = find().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "fusermount3 is not installed"))?;
    let mode: &[&str] = if lazy { &["-u", "-z", "--"] } else { &["-u", "--"] };
    // Its messages are compared below, so they have to be in English.
    let output = Command::new(helper).args(mode).arg(path).env("LC_ALL", "C").stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
    let busy = message.contains("Device or resource busy");
    Err(io::Error::new(if busy { io::ErrorKind::ResourceBusy } else { io::ErrorKind::Other }, message))
}

/// Receives one descriptor (SCM_RIGHTS) that comes with one byte of data.
fn receive_descriptor(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0_u8];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut receive = || recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC);
    if retry_on_intr(&mut receive)?.bytes == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended without a word"));
    }
    let sent = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    sent.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it sent no descriptor"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::fuse::mountinfo::topmost_at;

    #[test]
    fn a_socket_that_closes_without_a_descriptor_is_an_error() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert_eq!(receive_descriptor(&ours).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_byte_without_a_descriptor_is_an_error() {
        use std::io::Write;
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&[0]).unwrap();
        assert_eq!(receive_descriptor(&ours).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_helper_that_hangs_is_ended() {
        let hanging = tempfile::tempdir().unwrap();
        let helper = hanging.path().join("fusermount3");
        std::fs::write(&helper, "#!/bin/sh\nexec sleep 600\n").unwrap();
        std::fs::set_permissions(&helper, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let outcome = run(&helper, Path::new("/mnt"), "ro", Duration::from_secs(1)).unwrap();
        assert_eq!(outcome.unwrap_err(), "it sent no descriptor within 1 s and was ended");
    }

    /// Root mounts without the helper, so nothing else tries the two together on the real kernel.
    #[test]
    fn the_helper_sends_a_descriptor_and_takes_the_mount_away() {
        let open = std::fs::File::options().read(true).write(true).open("/dev/fuse");
        if open.is_err() || find().is_none() {
            return;
        }
        let path = std::env::temp_dir().join(format!("fusermount-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let path = path.canonicalize().unwrap();
        let fd = mount(&path, "fsname=engramfs:/helper,nosuid,nodev,default_permissions");
        let entry = topmost_at(&path).unwrap();
        let gone = unmount(&path, true);
        assert!(fd.is_ok(), "{fd:?}");
        assert!(entry.is_some_and(|entry| entry.is_engramfs()));
        gone.unwrap();
        assert_eq!(topmost_at(&path).unwrap(), None);
        assert!(unmount(&path, false).is_err(), "nothing is there any more");
        std::fs::remove_dir(&path).unwrap();
    }

    #[test]
    fn a_refusal_is_told_in_the_helpers_words() {
        if find().is_none() {
            return;
        }
        let refused = mount(Path::new("/no/such/place"), "fsname=engramfs:/helper").unwrap_err();
        assert!(matches!(&refused, MountError::Helper { message, .. } if !message.is_empty()), "{refused}");
    }
}
