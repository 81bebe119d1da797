//! What this process may do: mount by itself, by fusermount3, or not at all.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::Finding;
use crate::fuse::{fusermount, mount::is_root};

/// Linux's number for the right to mount.
const CAP_SYS_ADMIN: u32 = 21;

/// Returns whether this process may call mount(2); `status` is the text of /proc/self/status.
pub(super) fn privilege(status: &str) -> Finding {
    const NAME: &str = "privilege";
    match (is_root(), has_capability(status, CAP_SYS_ADMIN)) {
        (true, true) => Finding::pass(NAME, "root, may mount"),
        (true, false) => Finding::fail(
            NAME,
            "root without CAP_SYS_ADMIN: a container that may not mount",
            "start the container with --cap-add SYS_ADMIN --device /dev/fuse, or mount outside and pass --fuse-fd",
        ),
        (false, _) => Finding::pass(NAME, "not root: fusermount3 has to mount"),
    }
}

/// Returns whether fusermount3 is there and can gain root's rights.
pub(super) fn check_fusermount(status: &str) -> Finding {
    const NAME: &str = "fusermount3";
    const INSTALL: &str = "apt-get install fuse3, or run as root";
    let Some(path) = fusermount::find() else {
        let detail = "not installed";
        return if is_root() {
            Finding::pass(NAME, "not installed; root does without")
        } else {
            Finding::fail(NAME, detail, INSTALL)
        };
    };
    let setuid = fs::metadata(&path).is_ok_and(|found| found.mode() & libc::S_ISUID != 0 && found.uid() == 0);
    let shown = path.display();
    if is_root() {
        Finding::pass(NAME, format!("{shown}; root does without"))
    } else if !setuid {
        Finding::fail(NAME, format!("{shown} is not setuid root"), format!("chown root {shown}; chmod u+s {shown}"))
    } else if status_field(status, "NoNewPrivs") == Some("1") {
        let advice = "run outside of this sandbox, or pass a mounted descriptor with --fuse-fd";
        Finding::fail(NAME, format!("{shown} can't gain root's rights here (no_new_privs)"), advice)
    } else {
        Finding::pass(NAME, format!("{shown}, setuid root"))
    }
}

/// Returns whether other users may be let in.
pub(super) fn allow_other() -> Finding {
    const NAME: &str = "allow_other";
    let config = fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    if is_root() {
        Finding::pass(NAME, "root may always use --allow-other")
    } else if config.lines().any(|line| line.trim() == "user_allow_other") {
        Finding::pass(NAME, "/etc/fuse.conf has user_allow_other")
    } else {
        Finding::pass(NAME, "/etc/fuse.conf lacks user_allow_other")
            .advise("needed for --allow-other only: add the line user_allow_other to it")
    }
}

/// Tells of a container, a seccomp filter or a user namespace; none of them fails the check.
pub(super) fn container(status: &str) -> Finding {
    let mut hints = Vec::new();
    if Path::new("/.dockerenv").exists() || Path::new("/run/.containerenv").exists() {
        hints.push("a container");
    }
    if status_field(status, "Seccomp").is_some_and(|mode| mode != "0") {
        hints.push("a seccomp filter");
    }
    let ids = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    // All numbers mapped to themselves is what the first namespace of a machine has.
    if !ids.is_empty() && ids.split_whitespace().ne(["0", "0", "4294967295"]) {
        hints.push("a user namespace");
    }
    if hints.is_empty() {
        return Finding::pass("container", "no container seen");
    }
    Finding::pass("container", format!("inside {}", hints.join(", ")))
        .advise("where mounting is refused: --cap-add SYS_ADMIN --device /dev/fuse --security-opt apparmor=unconfined, or --fuse-fd")
}

fn status_field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn has_capability(status: &str, number: u32) -> bool {
    let mask = status_field(status, "CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    mask.is_some_and(|mask| mask >> number & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_right_field() {
        let status = "CapInh:\t0000000000200000\nCapEff:\t00000000a80425fb\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        assert!(!has_capability(status, CAP_SYS_ADMIN));
        assert!(has_capability("CapEff:\t0000000000200000\n", CAP_SYS_ADMIN));
        assert_eq!(status_field(status, "Seccomp"), Some("2"));
        assert!(!has_capability("", CAP_SYS_ADMIN));
    }
}
