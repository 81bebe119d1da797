//! Every kind of log record, there and back.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::sync::Arc;

use super::agents::SetAgentName;
use super::archive_log::ArchiveLog;
use super::checkpoint::{DeleteCheckpoint, TakeCheckpoint};
use super::commit_files::CommitFiles;
use super::fork::ForkBranch;
use super::import::ImportBranch;
use super::owner::{ChangeMode, ChangeOwner};
use super::proposals::{Propose, ReviewProposal, Withdraw};
use super::refuse::NoteRefusal;
use super::rename::RenameBranch;
use super::setting::ChangeSetting;
use super::user::RegisterUser;
use super::*;
use crate::lineage::Side;
use crate::memory::catalog::agents::AgentHolder;
use crate::memory::catalog::settings::{Setting, Settings};
use crate::memory::catalog::shared_log::{SharedLogCursor, SharedLogTotals};
use crate::memory::catalog::{BranchId, Resolution, Review, StateSource};
use crate::memory::command::imported::ImportedState;
use crate::memory::command::log_record::Command;
use crate::memory::command::merge_outcome::samples;
use crate::memory::command::merge_verb::{MergeVerb, RevertVerb, RevertedEntries};
use crate::memory::command::purge_selection::PurgeSelection;
use crate::memory::command::record_change::{RecordChange, SharedLogAppend};
use crate::memory::merging::integration::MergeBranches;
use crate::memory::merging::purge::PurgeItems;
use crate::memory::merging::resolve::ResolveConflict;
use crate::memory::merging::rollback::RollBackBranch;
use crate::memory::transaction::bulk::CommitSegment;
use crate::memory::transaction::clock::ResetClock;
use crate::memory::transaction::leases::LoseLease;
use crate::memory::transaction::shared_log::AppendEntries;
use crate::object::format_tables::{list, table};
use crate::object::{Hash, Time};
use crate::record::RecordContent;

fn command_bytes(command: impl Command) -> Vec<u8> {
    LogRecord { time: Time(5), planned: Time(3), uid: 1000, command: Box::new(command) }.to_bytes()
}

fn round_trip(command: impl Command) {
    let bytes = command_bytes(command);
    assert_eq!(read_log_record(&bytes).unwrap().to_bytes(), bytes);
    for end in 0..bytes.len() {
        // A cut command is an error, or at least never the same command.
        assert!(read_log_record(&bytes[..end]).map_or(true, |other| other.to_bytes() != bytes));
    }
}

#[test]
fn commands_on_records_and_branches_read_back() {
    let (branch, name) = (BranchId(300), Arc::<str>::from("name"));
    let content = RecordContent { vector: Some([1.0, -0.0].into()), text: Some("t".into()), metadata: "{}".into() };
    let bare = RecordContent { vector: None, text: None, metadata: "{\"a\":1}".into() };
    let changes = vec![
        RecordChange::Put { id: "a".into(), content, vector_stale: true, created_from: Some("z".into()) },
        RecordChange::Put { id: "b".into(), content: bare, vector_stale: false, created_from: None },
        RecordChange::Delete { id: "c".into() },
        RecordChange::Cursor(SharedLogCursor { owner: 3, entry: 70 }),
    ];
    round_trip(CreateRoot { name: name.clone(), settings: Settings::default() });
    round_trip(ForkBranch { parent: branch, name: name.clone(), from: None, owner: Some(u32::MAX), ttl: None });
    for ttl in ["1h", ""] {
        let ttl = Some(ttl.into());
        round_trip(ForkBranch { parent: branch, name: name.clone(), from: None, owner: None, ttl });
    }
    let sources = [StateSource::Checkpoint("cp".into()), StateSource::Entry(44), StateSource::Ended(45)];
    for source in &sources {
        let from = Some(source.clone());
        round_trip(ForkBranch { parent: branch, name: name.clone(), from, owner: None, ttl: None });
        round_trip(RollBackBranch { branch, source: source.clone(), files: None });
    }
    round_trip(CommitRecords { branch, changes });
    for cursor in [None, Some(SharedLogCursor { owner: 3, entry: 70 })] {
        round_trip(CommitSegment { branch, segment: Hash([3; 32]), deletes: vec![name.clone()], cursor });
    }
    let growth =
        SharedLogAppend { totals: SharedLogTotals { entries: 7, ..SharedLogTotals::default() }, changes: Vec::new() };
    for log in [None, Some(growth)] {
        round_trip(TakeCheckpoint { branch, label: name.clone(), text: "why".into(), log });
    }
    round_trip(DeleteCheckpoint { branch, label: name.clone() });
    let reverted = RevertedEntries { before: 3, first: 5, last: 8, verb: RevertVerb::Undo };
    for merge in [MergeVerb::Merge, MergeVerb::Promote, MergeVerb::Pull, MergeVerb::Revert(reverted)] {
        round_trip(MergeBranches { branch, merge, outcome: Arc::new(samples::outcome(merge)) });
    }
    round_trip(DiscardBranch(branch));
    round_trip(RenameBranch { branch, name: name.clone() });
    let resolution = Resolution { side: Side::Parent, child: Some(Hash([1; 32])), parent: None };
    round_trip(ResolveConflict { branch, id: name.clone(), resolution });
    round_trip(NoteRefusal { branch, reason: name.clone() });
    round_trip(NoteDroppedStates(branch));
    round_trip(LoseLease(branch));
    for bars in [false, true] {
        round_trip(SetAgentName { root: branch, name: "a".into(), bars });
    }
    round_trip(NoteEmbedder { root: branch, value: name.clone() });
    let holders = [None, Some(AgentHolder::Barred), Some(AgentHolder::User(u32::MAX))];
    let agents = holders.map(|holder| ImportedState::Agent(name.clone(), holder));
    let rest = [
        ImportedState::Settings(Settings::default().with_inherited_rules()),
        ImportedState::ClosedLog("case@7".into()),
        ImportedState::LogAtBase(300),
    ];
    agents.into_iter().chain(rest).for_each(|state| round_trip(ImportBranch::new(branch, state)));
    round_trip(CommitFiles { branch, count: 12, paths: vec!["files/a".into()] });
    for decisions in [vec![], vec![samples::decision(1)]] {
        let (patterns, outcome) = (vec![name.clone(), "b".into()], Arc::new(samples::rollback(decisions)));
        round_trip(RollBackBranch { branch, source: sources[1].clone(), files: Some((patterns, outcome)) });
    }
    round_trip(RegisterUser { name });
    let selection =
        PurgeSelection { items: vec!["a".into()], records: vec![Hash([2; 32])], ..PurgeSelection::default() };
    round_trip(PurgeItems { branch, selection: Arc::new(selection) });
    round_trip(ResetClock);
    round_trip(ArchiveEntries { last: 7, hash: Hash([9; 32]) });
}

#[test]
fn settings_owner_and_mode_read_back() {
    let branch = BranchId(300);
    for setting in Setting::ALL {
        round_trip(ChangeSetting { branch, setting, value: "v".into() });
    }
    round_trip(ChangeMode { branch, bits: 0o750 });
    round_trip(ChangeOwner { branch, uid: 1001 });
}

#[test]
fn what_comes_to_shared_logs_reads_back() {
    let branch = BranchId(300);
    let totals = SharedLogTotals { entries: 7, bytes: 900, archived: 3, archived_bytes: 400 };
    round_trip(ArchiveLog { owner: branch, totals });
    let content = RecordContent { vector: Some([1.0, 2.0].into()), text: Some("done".into()), metadata: "{}".into() };
    let entry =
        RecordChange::Put { id: "00000000000000000007".into(), content, vector_stale: false, created_from: None };
    let growth = SharedLogAppend { totals, changes: vec![entry] };
    round_trip(AppendEntries { owner: branch, via: BranchId(9), growth });
}

#[test]
fn what_is_proposed_and_said_of_it_reads_back() {
    round_trip(Propose { branch: BranchId(300), text: "all tests pass".into() });
    round_trip(Withdraw(BranchId(300)));
    let (plan, heads, text) = (Hash([3; 32]), [Hash([4; 32]), Hash([5; 32])], "read it".into());
    let review = Review { approves: true, plan, heads, time: Time(6), text };
    round_trip(ReviewProposal { parent: BranchId(300), child: BranchId(9), review });
}

#[test]
fn the_format_says_which_codes_there_are() {
    let used: Vec<(u8, String)> = COMMANDS.iter().map(|spec| (spec.code, spec.name.to_owned())).collect();
    assert!(used.is_sorted_by_key(|(code, _)| *code), "the table is in the order of codes");
    assert_eq!(BTreeMap::from_iter(used), table("Log records"));
    let settings = Setting::ALL.map(|setting| (setting.code(), setting.name().to_owned()));
    assert_eq!(list("Log records", "Settings"), settings.into());
    // Reserved for what is to come, so that no release uses them for something else.
    assert!(COMMANDS.iter().all(|spec| ![34..48, 51..56, 60..96].iter().any(|free| free.contains(&spec.code))));
}

#[test]
fn a_fork_with_a_name_of_seven_letters_takes_few_bytes() {
    let fork = ForkBranch { parent: BranchId(1), name: "agent-7".into(), from: None, owner: None, ttl: None };
    assert!(command_bytes(fork).len() <= 24);
}
