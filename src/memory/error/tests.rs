//! Codes, kinds and hints as programs and people rely on them.

use super::*;
use crate::merge::files::Rules;

/// Returns one error of each variant.
fn samples() -> Vec<Error> {
    let mut all = of_memory();
    all.extend(of_purges());
    all.extend(of_agents());
    all.extend(of_records().map(Error::from));
    all.extend(of_branches().map(Error::from));
    all.extend(of_merges().map(Error::from));
    all.extend(of_opening().map(Error::from));
    all.extend(of_copying().map(Error::from));
    all.extend(of_limits().map(Error::from));
    all
}

fn text() -> String {
    "x".into()
}

fn of_memory() -> Vec<Error> {
    let io = || Arc::new(io::Error::from_raw_os_error(libc::EIO));
    vec![
        Error::NoBranch(text()),
        Error::NoCheckpoint(text()),
        Error::NoState(text()),
        Error::NotKept(text()),
        Error::NoHash(Hash::ZERO),
        Error::NoEntry(1),
        Error::EntryArchived(1),
        Error::NoScope(text()),
        Error::Gone,
        Error::WouldWait,
        Error::ReadOnly(text()),
        Error::FileChanged,
        Error::TooManyChanges(1),
        Error::TooLargeToShow(1),
        Error::Internal("x"),
        Error::Disk { what: text(), source: io() },
        Error::Damaged(text()),
        Error::ForeignFile(text()),
        Error::MovedFile { path: text(), reason: text() },
        CodecError::Short.into(),
        Error::NoSegment { name: text(), what: "read", source: io() },
        SegmentError::Damaged { name: text(), reason: text() }.into(),
        JournalError::Damaged { path: text(), offset: 0, reason: text() }.into(),
        JournalError::Poisoned { reason: text() }.into(),
        KeyError::Malformed("key").into(),
        KeyError::Mismatch.into(),
        KeyError::TooOpen(0o644).into(),
        NameError::Taken(text()).into(),
        QueryError::Empty.into(),
        SearchError::Dimension { found: 1, expected: 2 }.into(),
        SearchError::ZeroVector.into(),
        SearchError::NoRecord(text()).into(),
        SearchError::Timeout(1).into(),
        SettingError::Value { setting: "dim", shown: text(), expected: "x" }.into(),
        SettingError::Rules(Rules::parse("x").unwrap_err()).into(),
        SettingError::Fixed("dim").into(),
        SettingError::LongerThanParent { setting: "keep", most: text() }.into(),
        SettingError::SetByStore("embedder").into(),
        EmbedderError::NotSet.into(),
        EmbedderError::NotReached(text()).into(),
        EmbedderError::Dimension { found: 1, expected: 2 }.into(),
        RuleRefusal::Writer { uid: 1, path: text(), pattern: text() }.into(),
        RuleRefusal::Append { path: text(), pattern: text() }.into(),
        ClockError::Jumped { way: "back", days: 2 }.into(),
        ClockError::NoLaterTime.into(),
        SharedLogError::TooLong(1).into(),
        SharedLogError::TooMany(1).into(),
        SharedLogError::NotJson(Arc::new(serde_json::from_str::<u8>("x").unwrap_err())).into(),
        SharedLogError::NotAnEntry(Arc::new(serde_json::from_str::<u8>("x").unwrap_err())).into(),
        SharedLogError::NoText.into(),
        SharedLogError::BadLabel("kind").into(),
        SharedLogError::ReservedKey(text()).into(),
        SharedLogError::NotOwner { uid: 1, path: text() }.into(),
        SharedLogError::NoEntry { entries: 1, asked: text() }.into(),
        SharedLogError::NotOwn { path: text(), owner: text() }.into(),
        SharedLogError::NotArchived { path: text(), entries: 1 }.into(),
        SharedLogError::InUse(text()).into(),
        SharedLogError::RootHasOwn.into(),
        SharedLogError::NoClosed(text()).into(),
        SharedLogError::ClosedName(text()).into(),
    ]
}

fn of_purges() -> Vec<Error> {
    vec![
        PurgeError::BadItem(text()).into(),
        PurgeError::TooMany { named: 2, limit: 1 }.into(),
        PurgeError::NothingFound(text()).into(),
        PurgeError::NotOwner { branches: text() }.into(),
        PurgeError::SignalNotOwner { path: text() }.into(),
        PurgeError::Running.into(),
    ]
}

fn of_agents() -> Vec<Error> {
    vec![
        ProposalError::Missing(text()).into(),
        ProposalError::OwnProposal(text()).into(),
        ProposalError::NotApprover { uid: 1, path: text() }.into(),
        ProposalError::TooLong(1).into(),
        ProposalError::Pending { path: text(), missing: text(), hint: "write more".into() }.into(),
        ProposalError::Refused { path: text(), reasons: text() }.into(),
        ProposalError::NotVisible { path: text(), uid: 1 }.into(),
        SignalError::BadKey(text()).into(),
        SignalError::TooLong(1).into(),
        SignalError::Exists(text()).into(),
        SignalError::Missing(text()).into(),
        SignalError::Ended(text()).into(),
        SignalError::NotOwner { uid: 1, path: text() }.into(),
        SignalError::OtherAgent { key: text(), agent: text(), other: text() }.into(),
        SignalError::NoLease(text()).into(),
        SignalError::BadLifetime(text()).into(),
        SignalError::EventsDropped(1).into(),
        AgentError::Taken(text()).into(),
        AgentError::Barred { name: text(), uid: 1 }.into(),
        AgentError::TooMany(1).into(),
        AgentError::Unknown(text()).into(),
    ]
}

fn of_records() -> [RecordError; 23] {
    let json = || Arc::new(serde_json::from_str::<u8>("x").unwrap_err());
    [
        RecordError::TooLarge(1),
        RecordError::Incomplete,
        RecordError::NotJson(json()),
        RecordError::NotARecord(json()),
        RecordError::BareArray,
        RecordError::NotATime(text()),
        RecordError::NotUtf8(1),
        RecordError::Delete,
        RecordError::DeleteWithContent,
        RecordError::NoId,
        RecordError::OtherId { said: text(), id: text() },
        RecordError::Empty,
        RecordError::NotNumbers,
        RecordError::VectorLength(0),
        RecordError::NotFinite(1),
        RecordError::Dimension { found: 1, expected: 2 },
        RecordError::BulkDimension { found: 1, expected: 2 },
        RecordError::ZeroVector,
        RecordError::Missing(text()),
        RecordError::Exists(text()),
        RecordError::Id(NameError::RecordId(text())),
        RecordError::Line { number: 1, source: Box::new(RecordError::Incomplete) },
        RecordError::Record { id: text(), source: Box::new(RecordError::ZeroVector) },
    ]
}

fn of_branches() -> [BranchError; 12] {
    [
        BranchError::Exists(text()),
        BranchError::CheckpointExists(text()),
        BranchError::MainStays,
        BranchError::RootName(text()),
        BranchError::NoParent(text()),
        BranchError::NotRoot { verb: "gc", path: text() },
        BranchError::HasChildren { path: text(), count: 1 },
        BranchError::OnlyRootSetsOwner,
        BranchError::TwoSources,
        BranchError::NoEndedBranch(text()),
        BranchError::InUse,
        BranchError::Moves,
    ]
}

fn of_merges() -> [MergeError; 14] {
    [
        MergeError::Conflicts { count: 1, shown: text(), has_files: true, has_directories: true, has_units: true },
        MergeError::RevertConflicts { count: 1, shown: text() },
        MergeError::NoConflict(text()),
        MergeError::SeveralFiles(text()),
        MergeError::FolderInTheWay(text()),
        MergeError::UnitInUse(text()),
        MergeError::ParentMoves,
        MergeError::PlanChanged { wanted: Hash::ZERO, found: Hash::ZERO },
        MergeError::TooLong,
        MergeError::NotRevertible(text()),
        MergeError::NothingToUndo,
        MergeError::NothingToRedo,
        MergeError::Pattern(text()),
        MergeError::NoMatch(text()),
    ]
}

fn of_opening() -> [OpenError; 8] {
    [
        OpenError::Missing(text().into()),
        OpenError::Denied { path: text().into(), uid: 1 },
        OpenError::Locked { store: text().into(), holder: text() },
        OpenError::NotAStore(text()),
        OpenError::Exists(text().into()),
        OpenError::OldFormat,
        OpenError::NewerFormat,
        OpenError::OtherVersion { seq: 1, recorded: Hash::ZERO, found: Hash::ZERO },
    ]
}

fn of_copying() -> [CopyError; 6] {
    [
        CopyError::Missing(text().into()),
        CopyError::NotEmpty(text().into()),
        CopyError::Inside { dest: text().into(), store: text().into() },
        CopyError::DotDotPath(text().into()),
        CopyError::Busy,
        CopyError::NotAKey,
    ]
}

fn of_limits() -> [LimitError; 8] {
    let over = |is_shared| OverBudget { limit_bytes: 1, held_bytes: 1, is_shared };
    [
        LimitError::Quota { path: text(), what: "bytes", held: 1, more: 1, limit: 1 },
        LimitError::Disk { missing_kib: 1, kept_kib: 1 },
        LimitError::Inodes { kept_kib: 1 },
        LimitError::KeptDropped,
        LimitError::FileNames(1),
        LimitError::Memory(over(true)),
        LimitError::Memory(over(false)),
        LimitError::Batch(over(true)),
    ]
}

/// Programs and the tables of errnos and exit codes go by these pairs: a change of one breaks what people wrote.
const CODES: &str = "\
above_parent Invalid
agent_barred NotPermitted
agent_taken NotPermitted
agents_signal NotPermitted
append_rule NotPermitted
archived NotFound
bad_document Invalid
bad_entry Invalid
bad_item Invalid
bad_lifetime Invalid
bad_log_name Invalid
bad_name Invalid
bad_pattern Invalid
bad_public_key Invalid
bad_question Invalid
bad_rules Invalid
bad_scope Invalid
bad_setting Invalid
bad_signal_key Invalid
beyond_the_log Invalid
branch_moves Busy
busy Busy
changed Busy
clock_jumped Invalid
conflicts Conflict
damaged Damaged
derived NotPermitted
disk Full
disk Io
embedder_missing Busy
empty_record Invalid
entry_too_long TooLarge
events_dropped Gone
exists Exists
fixed Busy
folder_in_the_way Invalid
gate_pending Refused
gate_refused Refused
gone Gone
has_children NotEmpty
in_use Busy
incomplete Invalid
inside_a_store Invalid
internal Io
journal_failed ReadOnly
kept_dropped Full
key Damaged
key Denied
leads_back Invalid
locked Locked
log_in_use Busy
log_not_archived NotEmpty
main_stays NotPermitted
memory_full Full
memory_share Quota
merge_too_long Busy
newer_format Unsupported
no_conflict NotFound
no_embedder Unsupported
no_id Invalid
no_later_time Invalid
no_lease Invalid
no_match NotFound
no_parent Invalid
no_proposal NotFound
no_such_agent NotFound
no_such_branch NotFound
no_such_checkpoint NotFound
no_such_entry NotFound
no_such_hash NotFound
no_such_log NotFound
no_such_record NotFound
no_such_signal NotFound
no_such_state NotFound
no_such_store NotFound
not_a_root_branch NotPermitted
not_a_store Invalid
not_approver Denied
not_branch_owner Denied
not_finite Invalid
not_json Invalid
not_kept NotFound
not_own_log Invalid
not_owner Denied
not_revertible Invalid
not_utf8 Invalid
nothing_to_purge NotFound
nothing_to_redo Invalid
nothing_to_undo Invalid
old_format Unsupported
only_root_gives NotPermitted
other_id Invalid
other_version Unsupported
own_proposal NotPermitted
parent_moves Busy
permission_denied Denied
plan_changed Busy
proposal_closed Denied
purge_running Busy
quota Quota
read_only ReadOnly
record_exists Exists
root_name Invalid
several_files Invalid
signal_ended Gone
signal_exists Exists
signal_too_long TooLarge
text_too_long TooLarge
timeout Timeout
too_large TooLarge
too_large_to_show TooLarge
too_many_agents Quota
too_many_changes Invalid
too_many_entries Invalid
too_many_names TooLarge
two_sources Invalid
unit_in_use Busy
would_wait WouldWait
write_rule Denied
wrong_dimension Invalid
zero_vector Invalid";

#[test]
fn codes_and_kinds_are_those_of_the_contract() {
    let found = samples().into_iter().map(|error| format!("{} {:?}", error.code(), error.kind()));
    let mut found: Vec<String> = found.collect();
    found.sort();
    found.dedup();
    assert_eq!(found.join("\n"), CODES);
}

#[test]
fn the_text_says_what_happened_and_the_hint_what_to_do_next() {
    for error in samples() {
        let (text, hint) = (error.to_string(), error.hint());
        assert!(!text.is_empty() && !hint.is_empty() && !text.contains(&*hint), "{text}; {hint}");
        // A phrase in the imperative begins with none of these.
        let first = hint.split(' ').next().unwrap();
        assert!(!["a", "an", "the", "it", "its", "this", "these", "only", "engramfs"].contains(&first), "{hint}");
    }
    let error = Error::from(NameError::Taken("ctl".into()));
    assert!(error.to_string().contains("ctl") && error.hint().contains("another"), "{error}");
}

#[test]
fn a_full_disk_is_told_from_a_failing_one() {
    let full = |errno| JournalError::Io {
        path: "journal/1".into(),
        what: "appended to",
        source: io::Error::from_raw_os_error(errno),
    };
    assert_eq!(Error::from(full(libc::ENOSPC)).kind(), Kind::Full);
    assert_eq!(Error::from(full(libc::EDQUOT)).kind(), Kind::Quota);
    let segment =
        |errno| SegmentError::Io { name: "x".into(), what: "read", source: io::Error::from_raw_os_error(errno) };
    let error = Error::from(segment(libc::EMFILE));
    assert!(error.kind() == Kind::Descriptors && error.hint().contains("ulimit -n"), "{error}");
    assert_eq!(Error::from(segment(libc::EIO)).kind(), Kind::Io);
    let missing = Error::from(segment(libc::ENOENT));
    assert!(missing.kind() == Kind::Damaged && std::error::Error::source(&missing).is_some(), "{missing}");
}

/// `archive-log 0` was told that 0 lies behind the last entry.
#[test]
fn an_entry_that_is_not_there_is_told_with_those_that_are() {
    let missing = |entries, asked: &str| SharedLogError::NoEntry { entries, asked: asked.into() }.to_string();
    assert_eq!(missing(3, "0"), "the log has no entry 0: it has 3, counted from 1");
    assert_eq!(missing(3, "9"), "the log has no entry 9: it has 3, counted from 1");
    assert_eq!(missing(0, "1"), "the log has no entry 1: it has 0, counted from 1");
}
