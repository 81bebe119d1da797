//! Entries as bytes and as JSON.

use super::*;
use crate::lineage::Side;

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
            strategy: Some("newest-wins"),
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
        },
        log_record: Hash([5; 32]),
        prev: Hash([6; 32]),
        key: Hash([7; 32]),
    }
}

#[test]
fn the_format_says_which_operations_there_are() {
    let used = EntryOp::ALL.iter().map(|(op, name)| (*op as u8, (*name).to_owned())).collect();
    assert_eq!(crate::object::format_tables::list("Entries", "Operations"), used);
    assert!(EntryOp::ALL.iter().all(|(op, _)| !(32..96).contains(&(*op as u8))));
}

#[test]
fn canonical_bytes_read_back() {
    let bytes = entry().to_bytes();
    let mut input = Reader::new(&bytes);
    assert_eq!(Entry::read(&mut input).unwrap(), entry());
    assert!(input.is_empty());
}

#[test]
fn every_flipped_byte_breaks_the_signature_or_the_form() {
    let key = Key::from_seed(&[9; 32]);
    let signed = SignedEntry::sign(entry(), &key);
    assert!(signed.verifies(&key.public()));
    let good = entry().to_bytes();
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        if let Ok(entry) = Entry::read(&mut Reader::new(&bytes)) {
            let forged = SignedEntry { entry, ..signed.clone() };
            assert!(!forged.verifies(&key.public()), "byte {at}");
        }
    }
}

#[test]
fn a_line_names_every_field_of_the_contract() {
    let line = SignedEntry::sign(entry(), &Key::from_seed(&[9; 32])).to_line();
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    for key in [
        "seq", "op", "branch", "parent", "time", "agent", "session", "task", "uid", "base", "head", "counts", "prev",
        "entry", "key", "sig",
    ] {
        assert!(value.get(key).is_some(), "{key}");
    }
    assert_eq!(value["conflicts"][0]["decision"], "parent");
    assert_eq!(value["sig"].as_str().unwrap().len(), 128);
}
