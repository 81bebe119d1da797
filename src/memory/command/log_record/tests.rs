//! Every kind of log record, there and back.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use super::super::merge_kind::RevertVerb;
use super::super::merge_outcome::samples;
use super::*;
use crate::lineage::Side;
use crate::memory::catalog::agents::AgentHolder;
use crate::memory::catalog::shared_log::SharedLogCursor;
use crate::object::format_tables::{list, table};
use crate::record::RecordContent;

fn round_trip(command: Command) {
    let log_record = LogRecord { time: Time(5), planned: Time(3), uid: 1000, command };
    let bytes = log_record.to_bytes();
    assert_eq!(LogRecord::from_bytes(&bytes).unwrap().to_bytes(), bytes);
    for end in 0..bytes.len() {
        // A cut command is an error, or at least never the same command.
        assert!(LogRecord::from_bytes(&bytes[..end]).map_or(true, |other| other.to_bytes() != bytes));
    }
}

#[test]
fn every_command_reads_back() {
    let (branch, name) = (BranchId(300), Arc::<str>::from("name"));
    let content = RecordContent { vector: Some([1.0, -0.0].into()), text: Some("t".into()), metadata: "{}".into() };
    let bare = RecordContent { vector: None, text: None, metadata: "{\"a\":1}".into() };
    let changes = vec![
        RecordChange::Put { id: "a".into(), content, vector_stale: true, from: Some("z".into()) },
        RecordChange::Put { id: "b".into(), content: bare, vector_stale: false, from: None },
        RecordChange::Delete { id: "c".into() },
        RecordChange::Cursor(SharedLogCursor { owner: 3, entry: 70 }),
    ];
    round_trip(Command::Root(name.clone(), Settings::default()));
    round_trip(Command::Fork { parent: branch, name: name.clone(), from: None, owner: Some(u32::MAX) });
    let sources = [StateSource::Checkpoint("cp".into()), StateSource::Entry(44), StateSource::Ended(45)];
    for source in &sources {
        let from = Some(source.clone());
        round_trip(Command::Fork { parent: branch, name: name.clone(), from, owner: None });
        round_trip(Command::Rollback(branch, source.clone()));
    }
    round_trip(Command::Commit(branch, changes));
    for cursor in [None, Some(SharedLogCursor { owner: 3, entry: 70 })] {
        round_trip(Command::Bulk { branch, segment: Hash([3; 32]), deletes: vec![name.clone()], cursor });
    }
    let growth =
        SharedLogAppend { totals: SharedLogTotals { entries: 7, ..SharedLogTotals::default() }, changes: Vec::new() };
    for log in [None, Some(growth)] {
        round_trip(Command::Checkpoint { branch, label: name.clone(), text: "why".into(), log });
    }
    round_trip(Command::Uncheckpoint(branch, name.clone()));
    let reverted = RevertedEntries { before: 3, first: 5, last: 8, verb: RevertVerb::Undo };
    for merge in [MergeKind::Merge, MergeKind::Promote, MergeKind::Pull, MergeKind::Revert(reverted)] {
        round_trip(Command::Merge(branch, merge, Arc::new(samples::outcome(merge))));
    }
    round_trip(Command::Discard(branch));
    round_trip(Command::Rename(branch, name.clone()));
    for setting in Setting::ALL {
        round_trip(Command::Config(branch, setting, "v".into()));
    }
    round_trip(Command::Mode(branch, 0o750));
    round_trip(Command::Owner(branch, 1001));
    let resolution = Resolution { side: Side::Parent, child: Some(Hash([1; 32])), parent: None };
    round_trip(Command::Resolve { branch, id: name.clone(), resolution });
    round_trip(Command::Refuse(branch, name.clone()));
    round_trip(Command::KeptDropped(branch));
    round_trip(Command::LeaseLost(branch));
    for bars in [false, true] {
        round_trip(Command::AgentName { root: branch, name: "a".into(), bars });
    }
    let totals = SharedLogTotals { entries: 7, bytes: 900, archived: 3, archived_bytes: 400 };
    round_trip(Command::ArchiveLog { owner: branch, totals });
    let content = RecordContent { vector: Some([1.0, 2.0].into()), text: Some("done".into()), metadata: "{}".into() };
    let entry = RecordChange::Put { id: "00000000000000000007".into(), content, vector_stale: false, from: None };
    let growth = SharedLogAppend { totals, changes: vec![entry] };
    round_trip(Command::Append { owner: branch, via: BranchId(9), growth });
    round_trip(Command::Embedder(branch, name.clone()));
    let holders = [None, Some(AgentHolder::Barred), Some(AgentHolder::User(u32::MAX))];
    let agents = holders.map(|holder| ImportedState::Agent(name.clone(), holder));
    let rest = [
        ImportedState::Settings(Settings::default().with_inherited_rules()),
        ImportedState::ClosedLog("case@7".into()),
        ImportedState::LogAtBase(300),
    ];
    agents.into_iter().chain(rest).for_each(|state| round_trip(Command::Import(branch, state)));
    round_trip(Command::Files(branch, 12, vec!["files/a".into()]));
    let (patterns, outcome) = (vec![name.clone(), "b".into()], Arc::new(samples::rollback()));
    round_trip(Command::RollbackFiles { branch, source: sources[1].clone(), patterns, outcome });
    round_trip(Command::User(name));
    round_trip(Command::Clock);
    round_trip(Command::Archive(7, Hash([9; 32])));
}

#[test]
fn what_is_proposed_and_said_of_it_reads_back() {
    round_trip(Command::Propose(BranchId(300), "all tests pass".into()));
    round_trip(Command::Withdraw(BranchId(300)));
    let (plan, heads, text) = (Hash([3; 32]), [Hash([4; 32]), Hash([5; 32])], "read it".into());
    let review = Review { approves: true, plan, heads, time: Time(6), text };
    round_trip(Command::Review { parent: BranchId(300), child: BranchId(9), review });
}

#[test]
fn the_format_says_which_codes_there_are() {
    // Variants are named as the table has them, but for capitals and underscores.
    let used = CommandCode::ALL.map(|code| (code.code(), format!("{code:?}").to_lowercase()));
    let listed = table("Log records").into_iter().map(|(code, name)| (code, name.replace('_', ""))).collect();
    assert_eq!(BTreeMap::from(used), listed);
    let settings = Setting::ALL.map(|setting| (setting.code(), setting.name().to_owned()));
    assert_eq!(list("Log records", "Settings"), settings.into());
    // Codes of what is coming are free.
    assert!(
        CommandCode::ALL.iter().all(|code| ![34..48, 51..56, 60..96].iter().any(|free| free.contains(&code.code())))
    );
}

#[test]
fn a_fork_with_a_name_of_seven_letters_takes_few_bytes() {
    let fork = Command::Fork { parent: BranchId(1), name: "agent-7".into(), from: None, owner: None };
    assert!(LogRecord { time: Time(1), planned: Time(1), uid: 1000, command: fork }.to_bytes().len() <= 24);
}
