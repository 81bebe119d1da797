//! Entries as bytes and as JSON.

use std::collections::BTreeSet;

use super::*;
use crate::lineage::{EntryChunkWriter, Side, read_entry_chunk};

fn entry() -> Entry {
    let version = |n: u8| Some(Hash([n; 32]));
    Entry {
        seq: 7,
        op: EntryOp::Merge,
        branch: "main/x".into(),
        branch_id: 5,
        parent: Some("main".into()),
        parent_id: 1,
        time: Time(1_700_000_000_000_000_000),
        agent: "ann".into(),
        session: "s".into(),
        task: "t".into(),
        uid: 1000,
        base: Hash([1; 32]),
        head: Hash([2; 32]),
        counts: Counts { put: 1, deleted: 2, files: 3 },
        detail: Detail {
            label: None,
            text: Some("why".into()),
            strategy: Some(Strategy::NewestWins),
            conflicts: vec![Decision {
                id: "a".into(),
                base: version(3),
                child: None,
                parent: version(4),
                decision: Some(Side::Parent),
                ..Decision::default()
            }],
            merge: Some(MergeDetail {
                child_head: Hash([8; 32]),
                parent_head: Hash([9; 32]),
                plan: Hash([10; 32]),
                not_merged: vec!["files/cache/a".into()],
            }),
            items: vec!["a".into(), "files/b".into()],
            plan: Some(Hash([11; 32])),
        },
        log_record: Hash([5; 32]),
        prev: Hash([6; 32]),
        key: Hash([7; 32]),
    }
}

#[test]
fn the_format_says_which_operations_there_are() {
    let used = EntryOp::ALL.iter().map(|op| (op.code(), op.name().to_owned())).collect();
    assert_eq!(crate::object::format_tables::list("Entries", "Operations"), used);
    assert!(EntryOp::ALL.iter().all(|op| ![34..48, 51..56, 60..96].iter().any(|free| free.contains(&op.code()))));
}

/// Two entries, the second of another branch and linked to the first.
fn chain(key: &Key) -> [SignedEntry; 2] {
    let public = key.public_key().hash();
    let first = SignedEntry::sign(Entry { key: public, ..entry() }, key);
    let second = Entry { seq: 8, prev: first.hash, key: public, branch: "main/y".into(), branch_id: 6, ..entry() };
    [first, SignedEntry::sign(second, key)]
}

fn encode_chunk(entries: &[SignedEntry]) -> Vec<u8> {
    let mut chunk = EntryChunkWriter::default();
    entries.iter().for_each(|signed| chunk.push(signed));
    assert_eq!(chunk.count(), entries.len() as u64);
    chunk.as_slice().to_vec()
}

#[test]
fn a_chunk_of_entries_reads_back() {
    let entries = chain(&Key::from_seed(&[9; 32]));
    assert_eq!(read_entry_chunk(&encode_chunk(&entries), 7).unwrap(), entries);
    let alike: Vec<SignedEntry> = vec![entries[0].clone(); 2];
    let shared = encode_chunk(&alike).len() - encode_chunk(&alike[..1]).len();
    assert!(shared < encode_chunk(&alike[..1]).len() - 64, "what entries have in common is written once");
}

#[test]
fn every_flipped_byte_breaks_a_signature_or_the_form() {
    let key = Key::from_seed(&[9; 32]);
    let entries = chain(&key);
    assert!(entries.iter().all(|signed| signed.verifies(&key.public_key())));
    let good = encode_chunk(&entries);
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        if let Ok(read) = read_entry_chunk(&bytes, 7) {
            let verifies = read.len() == 2 && read.iter().all(|signed| signed.verifies(&key.public_key()));
            assert!(!verifies, "byte {at}");
        }
    }
}

#[test]
fn a_line_names_every_field_of_the_contract() {
    let page = include_str!("../../../docs/SEMANTICS.md");
    let section = page.split("\n## ").find(|section| section.starts_with("Lineage\n")).unwrap();
    let cells = section.lines().filter(|line| line.starts_with("| `")).filter_map(|row| row.split('|').nth(1));
    let fields: BTreeSet<String> =
        cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect();
    let mut shown = BTreeSet::new();
    for op in EntryOp::ALL {
        let whole = entry();
        // Of a fork and an owner the text is a uid, and has another key.
        let text = Some(if matches!(op, EntryOp::Fork | EntryOp::Owner) { "7" } else { "why" }.into());
        let detail = Detail { label: Some("a".into()), text, ..whole.detail };
        let line = SignedEntry::sign(Entry { op, detail, ..whole }, &Key::from_seed(&[9; 32])).to_line();
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&value["op"], &value["conflicts"][0]["decision"]), (&op.name().into(), &"parent".into()));
        assert_eq!(value["sig"].as_str().unwrap().len(), 128);
        shown.extend(value.as_object().unwrap().keys().cloned());
    }
    assert_eq!(shown, fields, "what lines have, and the table of docs/SEMANTICS.md");
}

/// Who reads lines finds by these keys what an entry is about; of all other operations a label is one of a checkpoint.
#[test]
fn a_label_stands_under_the_key_that_is_for_its_operation() {
    let expected: [(&str, &[&str]); 8] = [
        ("setting", &["config"]),
        ("id", &["resolve"]),
        ("renamed_from", &["rename"]),
        ("proposal", &["approve", "reject"]),
        ("last_archived", &["archive", "archive_log"]),
        ("embedder", &["embedder"]),
        ("imported", &["import"]),
        ("agent_name", &["free_agent", "bar_agent"]),
    ];
    for op in EntryOp::ALL {
        let detail = Detail { label: Some("what it is about".into()), ..entry().detail };
        let line = SignedEntry::sign(Entry { op, detail, ..entry() }, &Key::from_seed(&[9; 32])).to_line();
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        let key = expected.iter().find(|(_, ops)| ops.contains(&op.name())).map_or("checkpoint", |(key, _)| *key);
        assert_eq!(value[key], "what it is about", "{}", op.name());
    }
}

#[test]
fn an_entry_names_20_items_and_1_kib_of_them_at_most() {
    let named = |count: usize, bytes: usize| Detail::from_items((0..count).map(|_| "i".repeat(bytes))).items.len();
    assert_eq!((named(20, 1), named(21, 1)), (20, 20));
    assert_eq!((named(16, 64), named(17, 64), named(1, 1_024), named(1, 1_025)), (16, 16, 1, 0));
}

#[test]
fn the_page_lists_each_operation() {
    let page = include_str!("../../../docs/SEMANTICS.md");
    let (_, section) = page.split_once("\n## Lineage\n").unwrap();
    let (_, list) = section.split_once("Operations: `").unwrap();
    let (list, _) = list.split_once('`').unwrap();
    let listed: BTreeSet<&str> = list.split_whitespace().collect();
    let of_sections = ["append", "archive_log", "lease_lost", "free_agent", "bar_agent", "kept_dropped"];
    let names: BTreeSet<&str> = EntryOp::ALL.into_iter().map(EntryOp::name).collect();
    assert_eq!(names, listed.iter().copied().chain(of_sections).collect());
    for name in of_sections {
        assert!(page.contains(&format!("`{name}`")), "no section says what {name} is");
    }
}

#[test]
fn the_format_lists_the_operations_that_tell_the_parent() {
    let page = include_str!("../../../docs/FORMAT.md");
    let (_, list) = page.split_once("An entry is a step of its branch, and of the parent for ").unwrap();
    let (list, _) = list.split_once('.').unwrap();
    let listed: BTreeSet<&str> = list.split('`').skip(1).step_by(2).collect();
    let told = EntryOp::ALL.into_iter().filter(|op| op.is_parent_event());
    assert_eq!(told.map(EntryOp::name).collect::<BTreeSet<&str>>(), listed);
}
