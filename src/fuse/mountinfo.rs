//! Reading `/proc/self/mountinfo`: what is mounted where. It asks no file system anything, so a hung mount can't hang it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Begins the source of each mount of ours, as `mount` and `df` show it; the store's path follows.
pub const SOURCE_PREFIX: &str = "engramfs:";

/// One line of the mount table, as far as anything here asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MountEntry {
    /// The mount's number, given again once it is gone.
    pub id: u32,
    /// The number of the mount that it is on.
    pub parent: u32,
    /// The minor device number; for FUSE it is also the connection's number.
    pub minor: u32,
    /// The mount point, as a path that this process sees.
    pub mountpoint: PathBuf,
    /// Such as `fuse` or `fuse.NAME`.
    pub fstype: String,
    /// What it is a mount of; begins with [`SOURCE_PREFIX`] where it is ours.
    pub source: OsString,
    /// Whether users other than the one who mounted it can use it.
    pub allows_others: bool,
}

impl MountEntry {
    /// Whether this is a FUSE mount, of whatever subtype; fusectl is none.
    pub fn is_fuse(&self) -> bool {
        self.fstype == "fuse" || self.fstype.starts_with("fuse.")
    }

    /// Whether engramfs made this mount: one of FUSE, with our prefix in its source.
    pub fn is_engramfs(&self) -> bool {
        self.is_fuse() && self.source.as_bytes().starts_with(SOURCE_PREFIX.as_bytes())
    }

    /// Source and type, for messages.
    pub fn describe(&self) -> String {
        format!("{} ({})", self.source.to_string_lossy(), self.fstype)
    }
}

/// Returns `fsname` escaped for a mount's options: each byte of `,`, `\`, `%`, control characters and what is not UTF-8 becomes
/// `%XX`.
///
/// Different names stay different, so that a stale mount is never mistaken for another store's. Apply it once.
pub fn source_name(fsname: impl AsRef<OsStr>) -> String {
    let bytes = fsname.as_ref().as_bytes();
    let mut name = String::with_capacity(bytes.len());
    let escape = |name: &mut String, bytes: &[u8]| bytes.iter().for_each(|byte| name.push_str(&format!("%{byte:02X}")));
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || matches!(c, ',' | '\\' | '%') {
                escape(&mut name, c.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                name.push(c);
            }
        }
        escape(&mut name, chunk.invalid());
    }
    name
}

/// Returns the mount that a path walk to `path` ends in, if `path` is a mountpoint. Fails if the table of mounts can't
/// be read.
pub(super) fn topmost_at(path: &Path) -> io::Result<Option<MountEntry>> {
    Ok(find_topmost(&entries()?, path).cloned())
}

/// Returns the whole mount table; lines that can't be read are left out. Fails if `/proc` can't be read.
pub(super) fn entries() -> io::Result<Vec<MountEntry>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(table.split(|&b| b == b'\n').filter_map(parse_line).collect())
}

/// Of several mounts stacked on one path the topmost is the one that carries no other.
fn find_topmost<'a>(entries: &'a [MountEntry], path: &Path) -> Option<&'a MountEntry> {
    let here = |e: &&MountEntry| e.mountpoint == path;
    entries
        .iter()
        .filter(here)
        .find(|e| !entries.iter().filter(here).any(|other| other.parent == e.id && other.id != e.id))
}

/// Fields: id, parent, major:minor, root, mountpoint, options, optional tags, `-`, type, source, super options.
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&b| b == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let minor = number(fields.next()?.splitn(2, |&b| b == b':').nth(1)?)?;
    let mountpoint = unescape(fields.nth(1)?);
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let fstype = String::from_utf8_lossy(rest.next()?).into_owned();
    let source = unescape(rest.next()?);
    let allows_others = rest.next().is_some_and(|all| all.split(|&b| b == b',').any(|one| one == b"allow_other"));
    Some(MountEntry { id, parent, minor, mountpoint: mountpoint.into(), fstype, source, allows_others })
}

fn number(field: &[u8]) -> Option<u32> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// The kernel writes blanks, backslashes and `#` as `\ooo`.
fn unescape(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = (first == b'\\').then(|| tail.get(..3)).flatten().and_then(octal_byte);
        match octal {
            Some(byte) => {
                out.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(out)
}

fn octal_byte(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

/// Returns `path` absolute and without links, also when a dead mount sits on it.
///
/// Some C libraries ask the last component for its attributes; a dead mount answers that with ENOTCONN, so then the
/// parent alone is resolved. Fails like realpath(3): `NotFound` if nothing is at `path`.
pub(super) fn absolute_path(path: &Path) -> io::Result<PathBuf> {
    match std::fs::canonicalize(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            let name = path.file_name().map(OsStr::to_owned).ok_or(e)?;
            let parent = match path.parent() {
                Some(p) if !p.as_os_str().is_empty() => p,
                _ => Path::new("."),
            };
            Ok(std::fs::canonicalize(parent)?.join(name))
        }
        other => other,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    const FUSE: &[u8] =
        b"54 27 0:41 / /mnt/my\\040dir rw,nosuid shared:7 master:1 - fuse engramfs:/s\\134x rw,user_id=0";

    #[test]
    fn a_line_with_optional_tags_and_escapes_is_read() {
        let entry = parse_line(FUSE).unwrap();
        assert_eq!((entry.id, entry.parent, entry.minor), (54, 27, 41));
        assert_eq!(entry.mountpoint, Path::new("/mnt/my dir"));
        assert_eq!(entry.source, OsStr::new("engramfs:/s\\x"));
        assert!(entry.is_engramfs());
    }

    #[test]
    fn a_foreign_mount_with_our_prefix_is_not_ours() {
        let mut entry = parse_line(FUSE).unwrap();
        entry.fstype = "tmpfs".into();
        assert!(!entry.is_engramfs());
        entry.fstype = "fusectl".into();
        assert!(!entry.is_engramfs());
        entry.fstype = "fuse.sub".into();
        assert!(entry.is_engramfs());
    }

    #[test]
    fn broken_lines_are_left_out() {
        assert_eq!(parse_line(b""), None);
        assert_eq!(parse_line(b"54 27 0:41 / /mnt rw"), None);
        assert_eq!(parse_line(b"x 27 0:41 / /mnt rw - fuse a rw"), None);
    }

    #[test]
    fn the_topmost_of_a_stack_is_found_in_any_order() {
        let low = parse_line(b"50 27 0:41 / /m rw - fuse engramfs:/a rw").unwrap();
        let high = parse_line(b"40 50 0:42 / /m rw - tmpfs none rw").unwrap();
        let beside = parse_line(b"60 27 0:43 / /n rw - tmpfs none rw").unwrap();
        for stack in [[low.clone(), high.clone(), beside.clone()], [beside, high.clone(), low]] {
            assert_eq!(find_topmost(&stack, Path::new("/m")), Some(&high));
            assert_eq!(find_topmost(&stack, Path::new("/elsewhere")), None);
        }
    }

    #[test]
    fn source_names_are_harmless_and_stay_different() {
        assert_eq!(source_name("engramfs:/a b/ü"), "engramfs:/a b/ü");
        assert_eq!(source_name("a,b\\c\n%"), "a%2Cb%5Cc%0A%25");
        assert_ne!(source_name("a,b"), source_name("a%2Cb"));
        assert_eq!(source_name(OsStr::from_bytes(b"a\xff\xc3/\xc2\x85")), "a%FF%C3/%C2%85");
    }

    #[test]
    fn the_root_file_system_is_in_the_table() {
        assert!(topmost_at(Path::new("/")).unwrap().is_some());
        assert_eq!(topmost_at(Path::new("/no/such/mount")).unwrap(), None);
    }
}
