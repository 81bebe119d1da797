//! The doctor's second half: the state of a mountpoint, and of the connection behind it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Finding;
use crate::fuse::connection;
use crate::fuse::mountinfo::{MountEntry, absolute_path, entries, topmost_at};
use crate::fuse::probe::{ProbeAnswer, probe};

/// How long a mount may take to answer for its root.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// Returns the state of one mountpoint.
pub(super) fn check_mountpoint(mountpoint: &Path) -> Vec<Finding> {
    const NAME: &str = "mountpoint";
    let path = match absolute_path(mountpoint) {
        Ok(path) => path,
        Err(e) => {
            let shown = mountpoint.display();
            return vec![Finding::fail(NAME, format!("{shown}: {e}"), format!("mkdir -p {shown}"))];
        }
    };
    match topmost_at(&path) {
        Ok(Some(entry)) if entry.is_fuse() => check_mount_entry(&path, &entry),
        Ok(Some(entry)) => vec![Finding::pass(NAME, format!("{} is mounted at {}", entry.describe(), path.display()))],
        Ok(None) => vec![check_directory(&path)],
        Err(e) => vec![Finding::fail(NAME, format!("/proc/self/mountinfo: {e}"), "mount /proc")],
    }
}

fn check_directory(path: &Path) -> Finding {
    let shown = path.display();
    match fs::read_dir(path) {
        Ok(mut entries) => match entries.next() {
            None => Finding::pass("mountpoint", format!("{shown} is an empty directory")),
            Some(_) => Finding::pass("mountpoint", format!("{shown} is a directory, not empty"))
                .advise("a mount hides what is in it"),
        },
        Err(e) => Finding::fail("mountpoint", format!("{shown}: {e}"), "give an existing directory that you may read"),
    }
}

fn check_mount_entry(path: &Path, entry: &MountEntry) -> Vec<Finding> {
    let (what, shown) = (entry.describe(), path.display());
    let remedy = if entry.is_engramfs() {
        format!("engramfs umount --lazy {shown}")
    } else {
        format!("fusermount3 -u -z {shown}")
    };
    let state = match probe(path, PROBE_TIMEOUT) {
        Ok(ProbeAnswer::Alive) => Finding::pass("mountpoint", format!("{what} is mounted at {shown} and answers")),
        Ok(ProbeAnswer::Dead) => {
            Finding::fail("mountpoint", format!("{what} at {shown} is stale: its process is gone"), remedy)
        }
        Ok(ProbeAnswer::Denied) => Finding::pass("mountpoint", format!("{what} at {shown} belongs to another user")),
        Ok(ProbeAnswer::Silent) => {
            let advice =
                format!("end its connection: echo 1 > {}/{}/abort, then {remedy}", connection::CONTROL, entry.minor);
            Finding::fail("mountpoint", format!("{what} at {shown} does not answer within {PROBE_TIMEOUT:?}"), advice)
        }
        Ok(ProbeAnswer::Failed(errno)) => {
            Finding::fail("mountpoint", format!("{what} at {shown}: {}", io::Error::from_raw_os_error(errno)), remedy)
        }
        Err(e) => Finding::fail(
            "mountpoint",
            format!("{shown} can't be asked: {e}"),
            "end some processes, or raise ulimit -u and -n",
        ),
    };
    let answers = state.ok && entry.is_engramfs();
    let approvals = (answers && !entry.allows_others).then(|| approvals(path)).flatten();
    [state, requests(entry)].into_iter().chain(approvals).collect()
}

/// Returns where a gate asks for approvals and one user alone reaches the mount; it looks at the root branches.
fn approvals(path: &Path) -> Option<Finding> {
    let below = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let asks = |branch: &PathBuf| {
        fs::read_to_string(branch.join("config/gate"))
            .is_ok_and(|gate| gate.lines().any(|line| line.trim_start().starts_with("approval")))
    };
    let branch = below.chain([path.to_owned()]).find(asks)?;
    let detail = format!("{} asks for approvals, which mean nothing where one uid is all agents", branch.display());
    Some(Finding::pass("gate", detail).advise("mount it with --allow-other, and give each agent a uid of its own"))
}

/// Returns the state of each engramfs mount that is there.
pub(super) fn check_all() -> Vec<Finding> {
    let table = entries().unwrap_or_default();
    table
        .iter()
        .filter(|entry| entry.is_engramfs())
        .flat_map(|entry| check_mount_entry(&entry.mountpoint, entry))
        .collect()
}

fn requests(entry: &MountEntry) -> Finding {
    const NAME: &str = "connection";
    let number = entry.minor;
    let abort = format!("if it hangs, end it: echo 1 > {}/{number}/abort", connection::CONTROL);
    let control_seen = Path::new(connection::CONTROL).join(number.to_string()).exists();
    let abort = if control_seen { abort } else { format!("mount -t fusectl none {}; {abort}", connection::CONTROL) };
    match connection::waiting_requests(number) {
        Ok(0) => Finding::pass(NAME, format!("number {number}, no request waits")),
        Ok(count) => Finding::pass(NAME, format!("number {number}, {count} waiting request(s)")).advise(abort),
        Err(e) => Finding::pass(NAME, format!("number {number}; its requests can't be counted from here ({e})")),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_missing_mountpoint_is_named() {
        let findings = check_mountpoint(Path::new("/no/such/place"));
        let place = findings.first().unwrap();
        assert!(!place.ok && place.detail.contains("/no/such/place"), "{place:?}");
    }

    #[test]
    fn an_empty_directory_is_best_and_a_full_one_is_good_with_a_word() {
        let path = std::env::temp_dir().join(format!("doctor-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        assert_eq!(check_directory(&path).advice, None);
        fs::write(path.join("something"), "").unwrap();
        let full = check_directory(&path);
        assert!(full.ok && full.advice.is_some(), "{full:?}");
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn another_file_system_at_the_place_is_no_fault() {
        let findings = check_mountpoint(Path::new("/proc"));
        assert!(findings.iter().all(|finding| finding.ok), "{findings:?}");
    }
}
