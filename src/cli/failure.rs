//! What a verb says when it can't be done: one sentence, an exit code, and the same as JSON.

use std::io;
use std::path::Path;

use serde_json::{Value, json};

use super::exit::Exit;
use super::render::printable;
use crate::fuse::MountError;
use crate::memory::{Advice, Error, Kind};

/// A failure as a command ends with it: an exit code, and what standard error says.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandError {
    /// The exit code; `Done` when the reader of our output went away, which is not a failure and prints nothing.
    pub exit: Exit,
    /// A stable word for programs.
    pub code: String,
    /// What happened, to what.
    pub message: String,
    /// What to do next.
    pub hint: String,
    /// The open conflicts of a refused merge, as `conflicts` lists them.
    pub conflicts: Vec<Value>,
}

impl CommandError {
    /// Makes a failure; only the refusal of a merge has conflicts, which are added later.
    pub fn new(
        exit: Exit,
        code: impl Into<String>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> CommandError {
        CommandError { exit, code: code.into(), message: message.into(), hint: hint.into(), conflicts: Vec::new() }
    }

    /// Returns the failure of a command line that parsed but makes no sense.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> CommandError {
        CommandError::new(Exit::Usage, "usage", message, hint)
    }

    /// Returns a failure with [`Exit::Failed`], code `file` and the text "PATH cannot be WHAT"; `what` is a participle such
    /// as `read`. The hint depends on the error's kind.
    pub fn file(what: &str, path: &Path, source: &io::Error) -> CommandError {
        let hint = match source.kind() {
            io::ErrorKind::NotFound => "check the path",
            io::ErrorKind::PermissionDenied => "check who may use it",
            io::ErrorKind::StorageFull => "free some space",
            _ => "check the file and the disk it is on",
        };
        CommandError::new(Exit::Failed, "file", format!("{} cannot be {what}: {source}", path.display()), hint)
    }

    /// Returns the failure to write standard output; [`Exit::Done`] if its reader has gone.
    pub fn output(source: &io::Error) -> CommandError {
        // `engramfs log | head` has got what it wanted when head is gone.
        let exit = if source.kind() == io::ErrorKind::BrokenPipe { Exit::Done } else { Exit::Failed };
        CommandError::new(
            exit,
            "output",
            format!("standard output cannot be written: {source}"),
            "check where it leads",
        )
    }

    /// Returns the text for standard error, without a line end.
    pub fn render(&self, as_json: bool) -> String {
        if as_json { self.to_json().to_string() } else { self.to_text() }
    }

    fn to_json(&self) -> Value {
        let mut object = json!({ "code": self.code, "message": self.message, "hint": self.hint });
        if !self.conflicts.is_empty() {
            object["conflicts"] = Value::from(self.conflicts.clone());
        }
        object
    }

    fn to_text(&self) -> String {
        let mut text = format!("engramfs: {}", printable(&self.message));
        if !self.hint.is_empty() {
            text.push_str("; ");
            text.push_str(&printable(&self.hint));
        }
        for conflict in &self.conflicts {
            text.push_str("\n  ");
            text.push_str(&super::render::outcome::conflict_line(conflict));
        }
        text
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> CommandError {
        let Advice { kind, code, hint } = error.advice();
        CommandError::new(exit_for_code(kind, code), code, error.to_string(), hint)
    }
}

/// The code of a merge whose plan is no longer the one that was asked for: EBUSY as what may be tried again, and refused
/// as a gate refuses.
const PLAN_CHANGED: &str = "plan_changed";

/// The codes of rules that let nobody, or not this user, do something. A command meets them in merges and reverts alone,
/// where they stand in the way as a gate does.
const WRITE_RULE: &str = "write_rule";
const APPEND_RULE: &str = "append_rule";

fn exit_for_code(kind: Kind, code: &str) -> Exit {
    if [PLAN_CHANGED, WRITE_RULE, APPEND_RULE].contains(&code) { Exit::Refused } else { exit_for_kind(kind) }
}

/// Exhaustive on purpose: a new kind has to be given its exit code here.
fn exit_for_kind(kind: Kind) -> Exit {
    match kind {
        Kind::NotFound | Kind::Gone => Exit::Missing,
        Kind::Conflict | Kind::Refused => Exit::Refused,
        Kind::Damaged => Exit::Damaged,
        Kind::Locked => Exit::Busy,
        Kind::Exists
        | Kind::NotEmpty
        | Kind::Invalid
        | Kind::TooLarge
        | Kind::Busy
        | Kind::NotPermitted
        | Kind::Denied
        | Kind::ReadOnly
        | Kind::Timeout
        | Kind::WouldWait
        | Kind::Full
        | Kind::Quota
        | Kind::Unsupported
        | Kind::Descriptors
        | Kind::Io => Exit::Failed,
    }
}

/// The codes that tell kinds with one errno apart, as far as their exit codes differ.
const KINDS_BY_CODE: [(i32, &str, Kind); 7] = [
    (libc::EBUSY, "conflicts", Kind::Conflict),
    (libc::EBUSY, PLAN_CHANGED, Kind::Refused),
    (libc::EPERM, "gate_pending", Kind::Refused),
    (libc::EPERM, "gate_refused", Kind::Refused),
    (libc::EACCES, WRITE_RULE, Kind::Refused),
    (libc::EPERM, APPEND_RULE, Kind::Refused),
    (libc::EIO, "damaged", Kind::Damaged),
];

/// Returns the exit code for a refusal of a mount, by its errno and the code in `errors`.
pub fn exit_for_errno(errno: i32, code: &str) -> Exit {
    let kind = match errno {
        libc::ENOENT => Some(Kind::NotFound),
        libc::ESTALE => Some(Kind::Gone),
        _ => KINDS_BY_CODE.iter().find(|row| (row.0, row.1) == (errno, code)).map(|row| row.2),
    };
    kind.map_or(Exit::Failed, exit_for_kind)
}

impl From<MountError> for CommandError {
    fn from(error: MountError) -> CommandError {
        let (exit, code) = match error {
            MountError::AlreadyMounted { .. } => (Exit::Busy, "mounted"),
            MountError::InUse { .. } => (Exit::Busy, "in_use"),
            MountError::Lingers { .. } => (Exit::Busy, "lingers"),
            MountError::NotMounted { .. } => (Exit::Failed, "not_mounted"),
            MountError::NotOurs { .. } => (Exit::Failed, "not_ours"),
            MountError::Mountpoint { .. } | MountError::NotADirectory { .. } => (Exit::Failed, "mountpoint"),
            MountError::Device { .. }
            | MountError::Refused { .. }
            | MountError::NoHelper { .. }
            | MountError::Helper { .. }
            | MountError::Descriptor { .. }
            | MountError::Session { .. }
            | MountError::NoAnswer { .. }
            | MountError::Unmount { .. }
            | MountError::System { .. } => (Exit::Failed, "mount"),
        };
        CommandError::new(exit, code, error.to_string(), error.hint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Hash, MergeError, RuleRefusal};

    #[test]
    fn an_error_is_one_sentence_or_one_object() {
        let failure = CommandError::new(Exit::Missing, "no_branch", "there is no main/x", "see `ls`");
        assert_eq!(failure.render(false), "engramfs: there is no main/x; see `ls`");
        let json: Value = failure.to_json();
        assert_eq!(json, json!({"code": "no_branch", "message": "there is no main/x", "hint": "see `ls`"}));
    }

    #[test]
    fn a_name_in_a_sentence_makes_no_line_of_its_own() {
        let failure = CommandError::new(Exit::Missing, "no_branch", "there is no a\nengramfs: b", "");
        assert_eq!(failure.render(false), "engramfs: there is no a\\nengramfs: b");
        assert!(failure.render(true).contains("there is no a\\nengramfs: b"), "JSON as it is");
    }

    #[test]
    fn conflicts_follow_the_sentence() {
        let mut failure = CommandError::new(Exit::Refused, "conflict", "1 conflict is open", "resolve it");
        failure.conflicts.push(json!({"kind": "record", "id": "a", "child": null, "parent": null, "decision": null}));
        assert_eq!(failure.render(false).lines().count(), 2);
        assert!(failure.render(true).contains("\"conflicts\":[{"));
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure() {
        assert_eq!(CommandError::output(&io::ErrorKind::BrokenPipe.into()).exit, Exit::Done);
        assert_eq!(CommandError::output(&io::ErrorKind::StorageFull.into()).exit, Exit::Failed);
    }

    #[test]
    fn kinds_have_the_exit_codes_of_the_contract() {
        assert_eq!(exit_for_kind(Kind::Conflict).code(), 3);
        assert_eq!(exit_for_kind(Kind::Damaged).code(), 4);
        assert_eq!(exit_for_kind(Kind::Locked).code(), 5);
        assert_eq!(exit_for_kind(Kind::NotFound).code(), 6);
        assert_eq!(exit_for_kind(Kind::Busy).code(), 1);
    }

    #[test]
    fn each_kind_has_the_exit_code_of_the_page() {
        let page = include_str!("../../docs/SEMANTICS.md");
        for (kind, row) in [
            (Kind::NotFound, "not found | ENOENT"),
            (Kind::Gone, "gone (merged, discarded) | ESTALE"),
            (Kind::Exists, "exists | EEXIST"),
            (Kind::NotEmpty, "not empty | ENOTEMPTY"),
            (Kind::Invalid, "invalid | EINVAL"),
            (Kind::TooLarge, "too large | EFBIG"),
            (Kind::Busy, "busy | EBUSY"),
            (Kind::Conflict, "conflict | EBUSY"),
            (Kind::Refused, "refused by a gate | EPERM"),
            (Kind::NotPermitted, "not permitted | EPERM"),
            (Kind::Denied, "denied | EACCES"),
            (Kind::ReadOnly, "read-only | EROFS"),
            (Kind::Timeout, "timeout | ETIMEDOUT"),
            (Kind::Full, "disk full | ENOSPC"),
            (Kind::Quota, "quota of a branch, a user or the store's disk | EDQUOT"),
            (Kind::Io, "disk failed | EIO"),
            (Kind::Unsupported, "unsupported | EOPNOTSUPP"),
            (Kind::Damaged, "damaged | EIO"),
            (Kind::Locked, "locked by another process | EBUSY"),
            (Kind::Descriptors, "server or machine out of file descriptors | ENFILE"),
        ] {
            let row = format!("| {row} | {} |", exit_for_kind(kind).code());
            assert!(page.contains(&row), "docs/SEMANTICS.md has no {row}");
        }
    }

    #[test]
    fn what_a_mount_tells_has_the_exit_code_of_its_kind() {
        let conflict = Error::from(MergeError::Conflicts {
            count: 1,
            shown: String::new(),
            has_files: true,
            has_directories: false,
            has_units: false,
        });
        let changed = Error::from(MergeError::PlanChanged { wanted: Hash::ZERO, found: Hash::ZERO });
        assert_eq!(exit_for_errno(libc::EBUSY, changed.code()), Exit::Refused);
        let (path, pattern) = (String::new(), String::new());
        let writer = Error::from(RuleRefusal::Writer { uid: 1, path: path.clone(), pattern: pattern.clone() });
        let append = Error::from(RuleRefusal::Append { path, pattern });
        assert_eq!(CommandError::from(append.clone()).exit, Exit::Refused);
        for (errno, error) in [
            (libc::EBUSY, conflict),
            (libc::EBUSY, changed),
            (libc::EACCES, writer),
            (libc::EPERM, append),
            (libc::EIO, Error::Damaged(String::new())),
        ] {
            assert_eq!(exit_for_errno(errno, error.code()), CommandError::from(error.clone()).exit);
            assert_eq!(exit_for_errno(errno, "other"), Exit::Failed);
        }
        assert_eq!(exit_for_errno(libc::EPERM, "gate_pending"), Exit::Refused);
        assert_eq!(exit_for_errno(libc::EPERM, "fixed_name"), Exit::Failed);
        assert_eq!(exit_for_errno(libc::ENOENT, ""), Exit::Missing);
        assert_eq!(exit_for_errno(libc::ESTALE, "gone"), Exit::Missing);
    }

    #[test]
    fn a_mount_error_is_cut_into_message_and_hint() {
        let failure = CommandError::from(MountError::NotMounted { path: "/m".into() });
        assert_eq!(failure.message, "nothing is mounted at /m");
        assert!(failure.hint.starts_with("run `engramfs doctor"));
    }
}
