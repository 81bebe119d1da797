//! Finds the store that a path belongs to in the mount table.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, major, minor, statx};

use crate::fuse::SOURCE_PREFIX;

/// Returns the store whose mount `path` lies on; `None` if that is not a mount of engramfs.
///
/// The mount is found by device number and not by the path's beginning, so that bind mounts of a branch count too.
/// Fails if the path or the table of mounts can't be read; a dead mount is one of these.
pub fn find_mounted_store(path: &Path) -> io::Result<Option<PathBuf>> {
    let device = std::fs::metadata(path)?.dev();
    store_of_device(major(device), minor(device))
}

/// Returns the store that is mounted at `mountpoint`, which a mount that hangs or is dead does not keep from being
/// told: the file system is asked nothing. Fails if the path or the table of mounts can't be read.
pub fn find_store_without_sync(mountpoint: &Path) -> io::Result<Option<PathBuf>> {
    let found = statx(CWD, mountpoint, AtFlags::STATX_DONT_SYNC, StatxFlags::BASIC_STATS)?;
    store_of_device(found.stx_dev_major, found.stx_dev_minor)
}

/// Returns whether the mount of engramfs that `path` lies on lets in users other than the one who mounted it; false for
/// all other places. Fails like [`find_mounted_store`].
pub fn allows_others(path: &Path) -> io::Result<bool> {
    let device = std::fs::metadata(path)?.dev();
    let (number, table) = (format!("{}:{}", major(device), minor(device)), std::fs::read("/proc/self/mountinfo")?);
    Ok(table.split(|&byte| byte == b'\n').any(|line| store_in(line, &number).is_some() && has_allow_other(line)))
}

/// Looks at the options of the file system, the third field behind the dash.
fn has_allow_other(line: &[u8]) -> bool {
    let options = line.split(|&byte| byte == b' ').skip_while(|field| *field != b"-").nth(3);
    options.is_some_and(|options| options.split(|&byte| byte == b',').any(|option| option == b"allow_other"))
}

fn store_of_device(major: u32, minor: u32) -> io::Result<Option<PathBuf>> {
    let (number, table) = (format!("{major}:{minor}"), std::fs::read("/proc/self/mountinfo")?);
    Ok(table.split(|&byte| byte == b'\n').find_map(|line| store_in(line, &number)))
}

/// Returns the mountpoint and the store of the mount of engramfs that `path` lies on; `None` if it lies on another one.
///
/// `path` is absolute and without links. The table of mounts alone is read, so that a dead mount is found, too.
pub fn find_mount_above(path: &Path) -> Option<(PathBuf, PathBuf)> {
    mount_above(&std::fs::read("/proc/self/mountinfo").ok()?, path)
}

fn mount_above(table: &[u8], path: &Path) -> Option<(PathBuf, PathBuf)> {
    let above = table.split(|&byte| byte == b'\n').filter_map(|line| {
        let mountpoint = line.split(|&byte| byte == b' ').nth(4)?;
        let mountpoint = PathBuf::from(OsString::from_vec(unescape(mountpoint, b'\\', 3, 8)));
        path.starts_with(&mountpoint).then_some((mountpoint, line))
    });
    // Of several at one place the last covers the others.
    let (mountpoint, line) = above.max_by_key(|(mountpoint, _)| mountpoint.components().count())?;
    Some((mountpoint, store_mounted_by(line)?))
}

fn store_in(line: &[u8], device: &str) -> Option<PathBuf> {
    let number = line.split(|&byte| byte == b' ').nth(2)?;
    if number == device.as_bytes() { store_mounted_by(line) } else { None }
}

/// Fields: id, parent, major:minor, root, mountpoint, options, optional tags, `-`, type, source, super options.
fn store_mounted_by(line: &[u8]) -> Option<PathBuf> {
    let mut rest = line.split(|&byte| byte == b' ').skip_while(|field| *field != b"-").skip(1);
    let fstype = rest.next()?;
    if fstype != b"fuse" && !fstype.starts_with(b"fuse.") {
        return None;
    }
    // Escaped twice: we percent-encode what would break mount options, and the kernel writes octal for what would break
    // its table.
    let source = unescape(rest.next()?, b'\\', 3, 8);
    let store = source.strip_prefix(SOURCE_PREFIX.as_bytes())?;
    Some(OsString::from_vec(unescape(store, b'%', 2, 16)).into())
}

/// Undoes an escaping that writes a byte as `mark` and a number of `digits` digits.
fn unescape(text: &[u8], mark: u8, digits: usize, radix: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        let code = tail.get(..digits).filter(|_| first == mark).and_then(|code| std::str::from_utf8(code).ok());
        if let Some(byte) = code.and_then(|code| u8::from_str_radix(code, radix).ok()) {
            out.push(byte);
            rest = &tail[digits..];
        } else {
            out.push(first);
            rest = tail;
        }
    }
    out
}

/// Returns whether `directory` shows a branch: it has what every branch has.
pub fn is_branch_directory(directory: &Path) -> bool {
    directory.join("status").is_file() && directory.join("ctl").exists()
}

/// Cuts `text` at the colon that ends the store's path: the first with an existing directory before it, else the first.
/// `None` if it has no colon.
///
/// Both sides may hold colons, since paths and branch names may.
pub fn split_at_store(text: &Path) -> Option<(PathBuf, String)> {
    let bytes = text.as_os_str().as_bytes();
    let colons = || bytes.iter().enumerate().filter(|(_, byte)| **byte == b':').map(|(at, _)| at);
    let path = |at: usize| PathBuf::from(OsString::from_vec(bytes[..at].to_vec()));
    let at = colons().find(|&at| path(at).is_dir()).or_else(|| colons().next())?;
    Some((path(at), String::from_utf8_lossy(&bytes[at + 1..]).into_owned()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn the_store_is_read_from_the_line_of_its_device() {
        let line = br"57 29 0:51 / /mnt/m rw,nosuid shared:9 - fuse engramfs:/data/my\040store%2C1 rw,user_id=0";
        assert_eq!(store_in(line, "0:51").unwrap(), Path::new("/data/my store,1"));
        assert_eq!(store_in(line, "0:5"), None);
        let other = br"57 29 0:51 / /mnt/m rw - fuse.sshfs host:/data rw";
        assert_eq!(store_in(other, "0:51"), None);
        let disguised = br"57 29 0:51 / /mnt/m rw - tmpfs engramfs:/data rw";
        assert_eq!(store_in(disguised, "0:51"), None);
    }

    #[test]
    fn the_mount_that_a_path_lies_on_is_the_innermost_and_of_those_at_one_place_the_last() {
        let table = concat!(
            "20 1 8:1 / / rw - ext4 /dev/sda rw\n",
            "57 20 0:51 / /mnt/m\\040x rw - fuse engramfs:/s1 rw\n",
            "58 57 0:52 / /mnt/m\\040x rw shared:9 - fuse engramfs:/s2 rw\n",
            "59 58 0:53 / /mnt/m\\040x/main/files/t rw - tmpfs tmpfs rw\n",
        );
        let found = |path: &str| mount_above(table.as_bytes(), Path::new(path));
        assert_eq!(found("/mnt/m x/main/branches/a"), Some(("/mnt/m x".into(), "/s2".into())));
        for path in ["/mnt/m", "/mnt/m xy", "/mnt/m x/main/files/t/u"] {
            assert_eq!(found(path), None, "{path}");
        }
    }

    #[test]
    fn whether_others_are_let_in_is_an_option_of_the_file_system() {
        let line = |options: &str| format!("57 29 0:51 / /mnt/m rw,allow_other - fuse engramfs:/s {options}");
        assert!(has_allow_other(line("rw,user_id=0,group_id=0,default_permissions,allow_other").as_bytes()));
        assert!(!has_allow_other(line("rw,user_id=0,group_id=0,default_permissions").as_bytes()));
        assert!(!allows_others(Path::new("/proc")).unwrap());
    }

    #[test]
    fn a_lone_escape_sign_stays() {
        assert_eq!(unescape(b"100%", b'%', 2, 16), b"100%");
        assert_eq!(unescape(b"%zz", b'%', 2, 16), b"%zz");
    }

    #[test]
    fn nothing_outside_a_mount_has_a_store() {
        assert_eq!(find_mounted_store(Path::new("/proc")).unwrap(), None);
        assert_eq!(find_store_without_sync(Path::new("/proc")).unwrap(), None);
        assert!(!is_branch_directory(Path::new("/proc")));
    }

    #[test]
    fn the_store_ends_at_the_first_colon_after_a_directory() {
        let split =
            |text: &str| split_at_store(Path::new(text)).map(|(store, name)| (store.display().to_string(), name));
        assert_eq!(split("/tmp:main/a:b"), Some(("/tmp".into(), "main/a:b".into())));
        assert_eq!(split("/no/such:main"), Some(("/no/such".into(), "main".into())));
        assert_eq!(split("/tmp/none"), None);
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join("a:b");
        std::fs::create_dir(&odd).unwrap();
        assert_eq!(split(&format!("{}:main", odd.display())).unwrap().1, "main");
    }
}
