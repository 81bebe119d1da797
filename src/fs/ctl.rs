//! `ctl`: one verb a line, done as the line is written.

use super::errno::Failure;
use super::handle::HandleTable;
use super::line_session::{LineProtocol, RequestOutcome};
use super::mount_context::OpenContext;
use super::node::ControlNode;
use super::refusal::{InputRefusal, ShapeRefusal};
use super::rights::{READ, SEARCH, WRITE};
use crate::memory::{BranchInfo, MergeKind, ShowTarget, Side, Viewer, parse_duration};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// What can be written, for those who wrote something else.
const VERBS: &str = "write one of: fork NAME [from LABEL], pull, promote, merge [--dry-run], checkpoint LABEL [TEXT], rollback LABEL, \
                     resolve ID child|parent, show HASH, gc [--older-than AGE] [--dry-run]; promote and pull take --dry-run too";

/// Bytes of the largest file that `show` answers with.
const SHOWN_BYTES_MAX: u64 = 16 << 20;

/// What a line of `ctl` means.
pub(super) struct Ctl {
    /// To see whether a branch that a merge ends still has unwritten bytes.
    pub handles: Arc<HandleTable>,
}

/// A verb with its arguments.
#[derive(Debug, PartialEq)]
pub(super) enum Verb {
    Fork { name: String, from: Option<String> },
    Merge { kind: MergeKind, dry_run: bool },
    Checkpoint { label: String, text: Option<String> },
    Rollback { label: String, patterns: Vec<String> },
    Resolve { id: String, side: Side },
    Collect { older_than: Option<Duration>, dry_run: bool },
    Show(ShowTarget),
}

impl LineProtocol for Ctl {
    type Request = Verb;
    const CHANNEL: ControlNode = ControlNode::Ctl;

    fn parse(&self, line: &str) -> Result<Verb, Failure> {
        verb(line.trim()).ok_or_else(|| {
            let shown: String = line.trim().chars().take(200).collect();
            InputRefusal::Verb { line: shown, verbs: VERBS }.into()
        })
    }

    fn refusal(&self, failure: &Failure) -> Option<String> {
        Some(failure.to_line())
    }

    fn perform(&self, place: &OpenContext, verb: &Verb, _number: usize) -> RequestOutcome {
        place.check_alive()?;
        check_caller(place, verb)?;
        if !matches!(verb, Verb::Merge { dry_run: true, .. } | Verb::Collect { dry_run: true, .. } | Verb::Show(_)) {
            place.check_writable()?;
        }
        let (memory, branch, who) = (place.memory(), place.branch(), place.actor());
        let outcome = match verb {
            Verb::Show(wanted) => return show(place, *wanted),
            Verb::Merge { kind, dry_run } => return self.merge(place, *kind, *dry_run),
            Verb::Fork { name, from } => {
                let fork = memory.fork(&who, branch, name, from.as_deref())?;
                json!({"status": "forked", "branch": &*memory.info(fork)?.path})
            }
            Verb::Checkpoint { label, text } => {
                memory.checkpoint(&who, branch, label, text.as_deref())?;
                json!({"status": "taken", "checkpoint": label})
            }
            Verb::Rollback { label, patterns } if patterns.is_empty() => {
                return Ok(memory.rollback(&who, branch, label)?.to_json() + "\n");
            }
            Verb::Rollback { label, patterns } => {
                return Ok(memory.rollback_files(&who, branch, label, patterns)?.to_json() + "\n");
            }
            Verb::Resolve { id, side } => {
                memory.resolve_conflict(&who, branch, id, *side)?;
                json!({"status": "resolved", "id": id, "decision": if *side == Side::Child { "child" } else { "parent" }})
            }
            Verb::Collect { older_than, dry_run } => {
                check_root(place)?;
                memory.gc(&who, *older_than, *dry_run)?
            }
        };
        Ok(format!("{outcome}\n"))
    }
}

/// What makes a fork or tells of the parent asks for the rights to read it, what changes the parent for that to write
/// there, and what changes the branch is its owner's.
fn check_caller(place: &OpenContext, verb: &Verb) -> Result<(), Failure> {
    match verb {
        Verb::Fork { .. } => {
            place.mount.check_rights(place.caller, &place.memory().info(place.branch())?, READ | SEARCH)
        }
        Verb::Show(_) => place.check_entered(),
        Verb::Merge { dry_run: true, .. } => {
            place.check_entered()?;
            place.check_parent(READ | SEARCH)
        }
        Verb::Merge { kind, .. } => {
            // As by rename(2), who owns the parent may merge, too.
            if *kind != MergeKind::Merge || !place.owns_parent()? {
                place.check_owner()?;
            }
            place.check_parent(match kind {
                MergeKind::Pull => READ | SEARCH,
                MergeKind::Merge => WRITE | SEARCH,
                // The branch has the parent's content afterwards.
                MergeKind::Promote => READ | WRITE | SEARCH,
            })
        }
        Verb::Checkpoint { .. } | Verb::Rollback { .. } | Verb::Resolve { .. } | Verb::Collect { .. } => {
            place.check_owner()
        }
    }
}

/// Garbage is the store's: it is collected by who owns a root branch, which a mounted child is not.
fn check_root(place: &OpenContext) -> Result<(), Failure> {
    if place.memory().info(place.branch())?.parent.is_none() {
        return Ok(());
    }
    Err(ShapeRefusal::WholeStore.into())
}

impl Ctl {
    fn merge(&self, place: &OpenContext, kind: MergeKind, dry_run: bool) -> Result<String, Failure> {
        let (memory, branch) = (place.memory(), place.branch());
        if kind == MergeKind::Merge && !dry_run {
            self.check_end(place)?;
        }
        let outcome = memory.merge(&place.actor(), branch, kind, dry_run)?;
        if kind == MergeKind::Merge && !dry_run {
            place.mount.states.bury(branch);
        }
        Ok(outcome.to_json() + "\n")
    }

    /// Refuses to end the branch that is mounted, and one with bytes that no commit took.
    fn check_end(&self, place: &OpenContext) -> Result<(), Failure> {
        if place.mount.root() == Some(place.branch()) {
            return Err(ShapeRefusal::Mounted.into());
        }
        check_settled(&self.handles, &place.memory().info(place.branch())?)
    }
}

/// Returns what has a hash, as far as the caller may see it.
fn show(place: &OpenContext, wanted: ShowTarget) -> RequestOutcome {
    let memory = place.memory();
    let may_read = |info: BranchInfo| place.mount.permits(place.caller, &info, READ | SEARCH);
    let reads = |branch| memory.info(branch).is_ok_and(may_read);
    let shown = memory.show(place.branch(), wanted, Viewer { reads: &reads, most: SHOWN_BYTES_MAX })?;
    Ok(shown.to_line())
}

/// Parses `LABEL` or `LABEL -- files/PATTERN …`.
fn rollback(rest: &str) -> Option<Verb> {
    let mut words = rest.split_whitespace().map(str::to_owned);
    let label = words.next()?;
    let patterns = match words.next().as_deref() {
        None => return Some(Verb::Rollback { label, patterns: Vec::new() }),
        Some("--") => words.collect::<Vec<_>>(),
        Some(_) => return None,
    };
    (!patterns.is_empty()).then_some(Verb::Rollback { label, patterns })
}

/// Returns EBUSY while a handle holds written bytes of the branch that no commit took.
pub(super) fn check_settled(handles: &HandleTable, info: &BranchInfo) -> Result<(), Failure> {
    if !handles.is_pending(info.id) {
        return Ok(());
    }
    Err(ShapeRefusal::Uncommitted(info.path.to_string()).into())
}

fn collect(rest: &str) -> Option<Verb> {
    let (mut older_than, mut dry_run) = (None, false);
    let mut words = rest.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            "--dry-run" => dry_run = true,
            "--older-than" => {
                let nanos = parse_duration(words.next()?).ok()?;
                older_than = Some(Duration::from_nanos(u64::try_from(nanos).ok()?));
            }
            _ => return None,
        }
    }
    Some(Verb::Collect { older_than, dry_run })
}

fn verb(line: &str) -> Option<Verb> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let merge = |kind| match rest {
        "" => Some(Verb::Merge { kind, dry_run: false }),
        "--dry-run" => Some(Verb::Merge { kind, dry_run: true }),
        _ => None,
    };
    match word {
        "pull" => merge(MergeKind::Pull),
        "promote" => merge(MergeKind::Promote),
        "merge" => merge(MergeKind::Merge),
        "fork" => fork(rest),
        "checkpoint" => {
            let (label, text) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            let text = Some(text.trim().to_owned()).filter(|text| !text.is_empty());
            (!label.is_empty()).then(|| Verb::Checkpoint { label: label.to_owned(), text })
        }
        "rollback" => rollback(rest),
        "resolve" => {
            // An id may have spaces in it, a side has none.
            let (id, side) = rest.rsplit_once(char::is_whitespace)?;
            let side = match side {
                "child" => Side::Child,
                "parent" => Side::Parent,
                _ => return None,
            };
            Some(Verb::Resolve { id: id.trim().to_owned(), side })
        }
        "gc" => collect(rest),
        "show" => ShowTarget::parse(rest).map(Verb::Show),
        _ => None,
    }
}

fn fork(arguments: &str) -> Option<Verb> {
    let words: Vec<&str> = arguments.split_whitespace().collect();
    match words[..] {
        [name] => Some(Verb::Fork { name: name.to_owned(), from: None }),
        [name, "from", label] => Some(Verb::Fork { name: name.to_owned(), from: Some(label.to_owned()) }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_take_their_arguments() {
        let week = Some(Duration::from_secs(7 * 86_400));
        assert_eq!(verb("gc --older-than 7d --dry-run"), Some(Verb::Collect { older_than: week, dry_run: true }));
        assert_eq!(verb("gc"), Some(Verb::Collect { older_than: None, dry_run: false }));
        assert_eq!(verb("gc now"), None);
        assert_eq!(verb("pull"), Some(Verb::Merge { kind: MergeKind::Pull, dry_run: false }));
        assert_eq!(verb("merge --dry-run"), Some(Verb::Merge { kind: MergeKind::Merge, dry_run: true }));
        assert_eq!(verb("fork x from v1"), Some(Verb::Fork { name: "x".into(), from: Some("v1".into()) }));
        assert_eq!(verb("fork x"), Some(Verb::Fork { name: "x".into(), from: None }));
        assert_eq!(
            verb("checkpoint v1 before  the storm"),
            Some(Verb::Checkpoint { label: "v1".into(), text: Some("before  the storm".into()) })
        );
        assert_eq!(verb("checkpoint v1"), Some(Verb::Checkpoint { label: "v1".into(), text: None }));
        assert_eq!(verb("rollback v1"), Some(Verb::Rollback { label: "v1".into(), patterns: Vec::new() }));
        let patterns = vec!["files/a".into(), "files/b/**".into()];
        assert_eq!(verb("rollback v1 -- files/a files/b/**"), Some(Verb::Rollback { label: "v1".into(), patterns }));
        assert_eq!(verb("resolve a b child"), Some(Verb::Resolve { id: "a b".into(), side: Side::Child }));
    }

    #[test]
    fn what_is_no_verb_is_refused_whole() {
        for line in [
            "explode",
            "pull now",
            "fork",
            "fork x of v1",
            "rollback",
            "rollback v1 files/a",
            "rollback v1 --",
            "resolve a",
            "resolve a both",
            "checkpoint",
        ] {
            assert_eq!(verb(line), None, "{line}");
        }
    }
}
