//! Making a mount and taking that very mount away again.

use std::ffi::{CString, OsString};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{getegid, geteuid};

use super::error::MountError;
use super::fusermount;
use super::mountinfo::{source_name, topmost_at};
use super::probe::{Identity, identity, open_path_only};

/// The device that a FUSE mount is served by.
pub(super) const DEVICE: &str = "/dev/fuse";
/// Character device 10:229, everywhere on Linux.
pub(super) const DEVICE_NUMBER: (u32, u32) = (10, 229);

/// How and where to mount.
///
/// The kernel checks permissions in every mount (`default_permissions`). Read-only is not the kernel's business: engramfs enforces
/// it itself, so that `query` still takes queries.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// The source that `mount` and `df` show, beginning with `SOURCE_PREFIX`; any bytes, they are
    /// made harmless here.
    pub fsname: OsString,
    /// An existing directory; need not be empty or absolute.
    pub mountpoint: PathBuf,
    /// Lets other users in, as far as permissions do.
    pub allow_other: bool,
    /// A `/dev/fuse` descriptor that somebody else has mounted; it is taken over and closed, and never unmounted by us.
    pub fuse_fd: Option<RawFd>,
}

/// A mount that this process made.
#[derive(Debug)]
pub(super) struct OwnMount {
    /// Where it is, absolute.
    pub path: PathBuf,
    /// The identity of the mount, so that a later one at the same place is not taken for it.
    pub identity: Identity,
    source: String,
    /// Whether mount(2) was ours; else fusermount3 did it and has to undo it.
    is_direct: bool,
}

impl OwnMount {
    /// Mounts: root by mount(2), others (and root without the right to mount) by fusermount3. Fails if the mountpoint
    /// is not a directory, and with what mount(2) or the helper says.
    pub fn mount(options: &MountOptions) -> Result<(Self, OwnedFd), MountError> {
        let path = directory(&options.mountpoint)?;
        let (fd, is_direct) = match mount_directly(&path, options) {
            Ok(fd) => (fd, true),
            Err(e) if may_ask_helper(&e) => (fusermount::mount(&path, &helper_options(options))?, false),
            Err(e) => return Err(e),
        };
        match open_path_only(&path).and_then(|place| identity(&place)) {
            Ok(identity) => {
                let source = source_name(&options.fsname);
                Ok((Self { path, identity, source, is_direct }, fd))
            }
            Err(source) => {
                // Just made, so it is the topmost; no descriptor is left for a closer look.
                let _ = detach_path(&path, is_direct);
                Err(MountError::System { what: "looking at the new mount", source })
            }
        }
    }

    /// Stands for a mount that somebody has taken away already.
    #[cfg(test)]
    #[expect(clippy::unwrap_used, reason = "a test may panic")]
    pub fn already_unmounted() -> Self {
        let identity = identity(&open_path_only(Path::new("/")).unwrap()).unwrap();
        Self { path: "/proc/no mount".into(), identity, source: "none".into(), is_direct: true }
    }

    /// Unmounts it if it is still mounted, and logs the outcome.
    pub fn unmount(&self) {
        match self.detach() {
            Ok(true) => log::info!("unmounted {}", self.path.display()),
            Ok(false) => log::debug!("{} is not our mount any more", self.path.display()),
            Err(e) => log::error!("{} could not be unmounted: {e}; use umount -l", self.path.display()),
        }
    }

    /// Detaches the mount if it is still what the path leads to; false when it is not.
    ///
    /// After an umount from outside the path may belong to somebody else: that one is left alone. Before Linux 6.8 all of a
    /// mount's numbers may come again, so the source has to be ours, too.
    fn detach(&self) -> io::Result<bool> {
        let place = match open_path_only(&self.path) {
            Ok(place) => place,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(e),
        };
        // Looked at after the place is pinned, so that the mount compared is the one that is detached.
        let named = topmost_at(&self.path)?.is_some_and(|top| top.is_fuse() && top.source == *self.source);
        if !named || identity(&place)? != self.identity {
            return Ok(false);
        }
        if self.is_direct {
            detach_pinned(&place)?;
        } else {
            // Held on to, it would keep the mount busy.
            drop(place);
            detach_path(&self.path, false)?;
        }
        Ok(true)
    }
}

impl Drop for OwnMount {
    /// Covers panics and early returns: no way out leaves the mount behind.
    fn drop(&mut self) {
        self.unmount();
    }
}

/// Lazily unmounts exactly the mount that `directory` is on, whatever the path leads to by now. Fails like umount2(2).
pub(super) fn detach_pinned(directory: &OwnedFd) -> io::Result<()> {
    Ok(unmount(format!("/proc/self/fd/{}", directory.as_raw_fd()), UnmountFlags::DETACH)?)
}

fn detach_path(path: &Path, direct: bool) -> io::Result<()> {
    if direct { Ok(unmount(path, UnmountFlags::DETACH)?) } else { fusermount::unmount(path, true) }
}

/// Whether this process has root's number; whether it has root's powers too, only the kernel's answer tells.
pub(super) fn is_root() -> bool {
    geteuid().is_root()
}

fn directory(mountpoint: &Path) -> Result<PathBuf, MountError> {
    let mountpoint_error = |source| MountError::Mountpoint { path: mountpoint.to_owned(), source };
    let path = std::fs::canonicalize(mountpoint).map_err(mountpoint_error)?;
    if std::fs::metadata(&path).map_err(mountpoint_error)?.is_dir() {
        Ok(path)
    } else {
        Err(MountError::NotADirectory { path })
    }
}

/// Root without CAP_SYS_ADMIN (a container) and other users go by fusermount3, where there is one.
fn may_ask_helper(error: &MountError) -> bool {
    match error {
        MountError::Refused { source, .. } => {
            source.kind() == io::ErrorKind::PermissionDenied && (!is_root() || fusermount::find().is_some())
        }
        MountError::Device { source } => source.kind() == io::ErrorKind::PermissionDenied && !is_root(),
        _ => false,
    }
}

fn mount_directly(path: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let refused = |source| MountError::Refused { path: path.to_owned(), source };
    if !is_root() {
        return Err(refused(io::ErrorKind::PermissionDenied.into()));
    }
    let device =
        OpenOptions::new().read(true).write(true).open(DEVICE).map_err(|source| MountError::Device { source })?;
    let source = source_name(&options.fsname);
    let data = CString::new(kernel_options(device.as_raw_fd(), options.allow_other)).map_err(|e| refused(e.into()))?;
    // Files are written by whoever may: no setuid bit and no device in them is to give a right on this machine.
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount(source, path, "fuse", flags, data.as_c_str()).map_err(|e| refused(e.into()))?;
    Ok(device.into())
}

fn kernel_options(fd: RawFd, allow_other: bool) -> String {
    let (user, group) = (geteuid(), getegid());
    let other = if allow_other { ",allow_other" } else { "" };
    format!("fd={fd},rootmode=40000,user_id={user},group_id={group},default_permissions{other}")
}

fn helper_options(options: &MountOptions) -> String {
    let other = if options.allow_other { ",allow_other" } else { "" };
    format!("fsname={},nosuid,nodev,default_permissions{other}", source_name(&options.fsname))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn options(mountpoint: &Path) -> MountOptions {
        MountOptions {
            fsname: "engramfs:/a,allow_other".into(),
            mountpoint: mountpoint.to_owned(),
            allow_other: false,
            fuse_fd: None,
        }
    }

    #[test]
    fn permissions_are_checked_by_the_kernel_in_every_mount() {
        assert!(kernel_options(7, false).ends_with(",default_permissions"));
        assert!(kernel_options(7, true).ends_with(",default_permissions,allow_other"));
        assert!(helper_options(&options(Path::new("/"))).ends_with(",default_permissions"));
    }

    #[test]
    fn a_store_name_cannot_smuggle_options_in() {
        let text = helper_options(&options(Path::new("/")));
        assert!(text.starts_with("fsname=engramfs:/a%2Callow_other,"), "{text}");
    }

    #[test]
    fn a_missing_mountpoint_and_a_file_are_told_apart() {
        let missing = OwnMount::mount(&options(Path::new("/no/such/place"))).unwrap_err();
        assert!(matches!(missing, MountError::Mountpoint { .. }), "{missing}");
        let file = OwnMount::mount(&options(Path::new("/proc/version"))).unwrap_err();
        assert!(matches!(file, MountError::NotADirectory { .. }), "{file}");
    }

    #[test]
    fn a_mount_that_is_not_the_one_we_made_is_left_alone() {
        let identity = identity(&open_path_only(Path::new("/proc")).unwrap()).unwrap();
        for path in ["/", "/proc", "/no/such/place"] {
            let mount = OwnMount { path: path.into(), identity, source: "engramfs:/s".into(), is_direct: true };
            assert!(!mount.detach().unwrap(), "{path}");
        }
    }
}
