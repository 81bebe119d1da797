//! From an errno of a mount to the reason: the branch's `errors` says what the number can't.
//!
//! The line must be about the same path. Who doesn't own the branch sees their own lines alone; to the owner and to root a line about
//! somebody else can be the newest.

use std::io;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::cli::failure::{CommandError, exit_for_errno};
use crate::cli::target::control::ExchangeError;
use crate::cli::target::unreachable::dead_mount_error;
use crate::fs::Errno;

/// Times of two processes may be cut to different digits.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(1);

/// An act on a mounted branch, to be explained should it fail.
pub struct Attempt<'a> {
    /// The directories whose `errors` may hold the reason, and the path that it is about there.
    error_logs: Vec<(&'a Path, String)>,
    /// What was attempted, as in `forking main`.
    action: String,
    started: Timestamp,
}

impl<'a> Attempt<'a> {
    /// Begins an attempt: only lines of `errors` from now on explain it. `path` is as `errors` shows it.
    pub fn new(branch: &'a Path, path: &str, what: impl Into<String>) -> Attempt<'a> {
        Attempt { error_logs: vec![(branch, path.to_owned())], action: what.into(), started: Timestamp::now() }
    }

    /// Adds a branch whose `errors` may hold the reason, too.
    pub fn add_branch(&mut self, branch: &'a Path, path: String) {
        self.error_logs.push((branch, path));
    }

    /// Returns the failure that `error` means: by the line of `errors` that tells of it, else by its errno.
    pub fn failed(&self, error: &io::Error) -> CommandError {
        let errno = error.raw_os_error().unwrap_or(0);
        let line = |(branch, path): &(&Path, String)| {
            let text = std::fs::read_to_string(branch.join("errors")).ok()?;
            newest_line(&text, path, errno_name(errno), self.started)
        };
        match self.error_logs.iter().find_map(line) {
            Some(line) => parse_failure(errno, &line),
            None => self.kernel_refusal(error, errno),
        }
    }

    /// Returns the failure of an exchange with a control file: what its handle answered, if it did.
    pub fn exchange_failed(&self, refused: &ExchangeError) -> CommandError {
        match &refused.answer {
            Some(line) => parse_failure(refused.error.raw_os_error().unwrap_or(0), line),
            None => self.failed(&refused.error),
        }
    }

    /// The kernel refuses some acts itself, without asking engramfs.
    fn kernel_refusal(&self, error: &io::Error, errno: i32) -> CommandError {
        if let (libc::ENOTCONN, Some((branch, _))) = (errno, self.error_logs.first()) {
            return dead_mount_error(branch);
        }
        let hint = match errno {
            libc::EEXIST => "choose another name",
            libc::ENOENT | libc::ESTALE => "check the name; the branch may have been merged or discarded",
            libc::EACCES | libc::EPERM => "ask the branch's owner",
            libc::EROFS => "mount it without --read-only, or use a branch instead of a checkpoint",
            libc::EBUSY => "close what is open there and try again",
            libc::ENOTEMPTY => "merge or discard its child branches first",
            // The server logs refusals at level debug alone, so the log would tell nothing of these.
            libc::ENOSPC => "remove something, or free space on the store's disk; df shows what is left",
            libc::EDQUOT => "close or remove something, or ask for a larger quota",
            libc::EFBIG => "split it, or keep it outside",
            libc::EINVAL => "check the name and the value; the branch's README.md shows what may be written",
            _ => "look at the mount's log",
        };
        let code = errno_name(errno).to_lowercase();
        CommandError::new(
            exit_for_errno(errno, &code),
            code,
            format!("{} failed: {}", self.action, without_number(error)),
            hint,
        )
    }
}

/// Returns the failure that a refusal in `errors`, or in the answer of a handle, tells of.
fn parse_failure(errno: i32, line: &Value) -> CommandError {
    let code = string_field(line, "code");
    CommandError::new(exit_for_errno(errno, &code), code, string_field(line, "message"), string_field(line, "hint"))
}

/// Returns the kernel's words alone: the code says the number already.
fn without_number(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// Lines are in the order of time, so the last one that fits is the newest.
fn newest_line(errors: &str, path: &str, errno: &str, since: Timestamp) -> Option<Value> {
    errors.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok()).find(|line| {
        let time: Option<Timestamp> = string_field(line, "time").parse().ok();
        string_field(line, "errno") == errno
            && string_field(line, "path") == path
            && time.is_some_and(|time| time.saturating_add(CLOCK_TOLERANCE).is_ok_and(|time| time >= since))
    })
}

fn string_field(line: &Value, key: &str) -> String {
    line.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Returns the errno's name as `errors` has it; the number's absence and what engramfs never gives are `EIO`.
fn errno_name(errno: i32) -> &'static str {
    match Errno(errno).name() {
        "E" if errno == libc::ENOTCONN => "ENOTCONN",
        "E" => "EIO",
        name => name,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::cli::exit::Exit;

    fn line(seconds: i64, errno: &str, code: &str) -> String {
        let time = Timestamp::from_second(seconds).unwrap();
        format!(
            "{{\"time\":\"{time}\",\"path\":\"branches/x\",\"errno\":\"{errno}\",\"code\":\"{code}\",\"message\":\"m {code}\",\"hint\":\"h\"}}\n"
        )
    }

    #[test]
    fn the_newest_fitting_line_is_the_reason() {
        let text = line(10, "EBUSY", "old") + &line(20, "EBUSY", "conflict") + &line(21, "EINVAL", "other");
        let since = Timestamp::from_second(20).unwrap();
        assert_eq!(newest_line(&text, "branches/x", "EBUSY", since).unwrap()["code"], "conflict");
    }

    #[test]
    fn an_old_line_is_not_taken_for_the_reason() {
        let since = Timestamp::from_second(11).unwrap();
        assert_eq!(newest_line(&line(10, "EBUSY", "old"), "branches/x", "EBUSY", since), None);
    }

    #[test]
    fn a_line_about_something_else_is_not_taken_for_the_reason() {
        let since = Timestamp::from_second(9).unwrap();
        assert_eq!(newest_line(&line(10, "EBUSY", "other"), "branches/y", "EBUSY", since), None);
    }

    #[test]
    fn the_branch_says_why_and_the_kernel_at_least_what() {
        let dir = tempfile::tempdir().unwrap();
        let attempt = Attempt::new(dir.path(), "branches/x", "merging x");
        let busy = io::Error::from_raw_os_error(libc::EBUSY);
        let bare = attempt.failed(&busy);
        assert_eq!((bare.exit, bare.code.as_str()), (Exit::Failed, "ebusy"));
        assert!(bare.message.starts_with("merging x failed"));
        let now = Timestamp::now().as_second() + 1;
        std::fs::write(dir.path().join("errors"), line(now, "EBUSY", "conflicts")).unwrap();
        let told = attempt.failed(&busy);
        assert_eq!((told.exit, told.message.as_str()), (Exit::Refused, "m conflicts"));
    }

    #[test]
    fn what_the_mounts_log_does_not_tell_has_a_hint_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let attempt = Attempt::new(dir.path(), "ingest", "importing into x");
        let sends_to_log =
            |errno| attempt.failed(&io::Error::from_raw_os_error(errno)).hint.contains("the mount's log");
        assert!(sends_to_log(libc::EIO), "the control");
        for errno in [libc::ENOSPC, libc::EDQUOT, libc::EFBIG, libc::EINVAL] {
            assert!(!sends_to_log(errno), "{errno}");
        }
    }

    #[test]
    fn a_server_out_of_descriptors_is_told_by_its_own_line() {
        let dir = tempfile::tempdir().unwrap();
        let attempt = Attempt::new(dir.path(), "branches/x", "discarding x");
        let now = Timestamp::now().as_second() + 1;
        std::fs::write(dir.path().join("errors"), line(now, "ENFILE", "out_of_descriptors")).unwrap();
        assert_eq!(attempt.failed(&io::Error::from_raw_os_error(libc::ENFILE)).code, "out_of_descriptors");
        assert_eq!([0, libc::EIO, libc::ENOTCONN, libc::EXDEV].map(errno_name), ["EIO", "EIO", "ENOTCONN", "EXDEV"]);
    }
}
