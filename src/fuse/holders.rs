//! Who uses a mount and who serves it, as `/proc` shows it; links are read, never followed, so a hung mount can't hang this.

use std::fs;
use std::path::{Path, PathBuf};

/// More are counted, not named.
const NAMED_MAX: usize = 5;

/// Returns the other processes with a file open, the working directory or the root below `path`, for a message.
///
/// Other users' processes are invisible without root.
pub(super) fn describe_users(path: &Path) -> String {
    let users: Vec<String> = other_processes().filter(|pid| uses(*pid, path)).map(describe).collect();
    match users.len() {
        0 => "a process that can't be seen from here".to_owned(),
        count if count > NAMED_MAX => {
            format!("{} and {} more", users.get(..NAMED_MAX).unwrap_or_default().join(", "), count - NAMED_MAX)
        }
        _ => users.join(", "),
    }
}

/// Returns the other process that serves the FUSE connection `minor`; `None` before Linux 6.12, which can't tell.
pub(super) fn find_server(minor: u32) -> Option<u32> {
    other_processes().find(|pid| serves(*pid, minor))
}

/// Whether `pid` has a `/dev/fuse` descriptor on connection `minor`.
pub(super) fn serves(pid: u32, minor: u32) -> bool {
    let line = format!("fuse_connection:\t{minor}\n");
    descriptor_links(pid).any(|(fd, target)| {
        target == Path::new(super::mount::DEVICE)
            && fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).is_ok_and(|info| info.contains(&line))
    })
}

fn other_processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|pid| *pid != std::process::id())
}

fn uses(pid: u32, path: &Path) -> bool {
    let own = ["cwd", "root"].iter().filter_map(|name| fs::read_link(format!("/proc/{pid}/{name}")).ok());
    let mut all = own.chain(descriptor_links(pid).map(|(_, target)| target));
    all.any(|target| target.starts_with(path))
}

fn descriptor_links(pid: u32) -> impl Iterator<Item = (String, PathBuf)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, fs::read_link(entry.path()).ok()?)))
}

fn describe(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{} (process {pid})", name.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen_using_the_root_directory() {
        assert!(uses(std::process::id(), Path::new("/")));
        assert!(!uses(std::process::id(), Path::new("/no/such/mount")));
        assert_eq!(describe_users(Path::new("/no/such/mount")), "a process that can't be seen from here");
    }

    #[test]
    fn nobody_serves_a_connection_that_does_not_exist() {
        assert_eq!(find_server(u32::MAX), None);
    }
}
