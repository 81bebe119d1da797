//! How much of the lines that lose a merge stands in its entry.

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{Attrs, FileOp, MergeVerb, Setting, ShowTarget, View, Viewer};
use serde_json::Value;

use super::write;
use crate::support::{main_of, open, who};

#[test]
fn of_the_lines_that_lose_64_of_a_file_and_1000_bytes_of_each_are_in_the_entry() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let lines = |count: usize, word: &str| -> String {
        (0..count).map(|n| format!("{{\"event_id\":{n},\"v\":\"{}\"}}\n", word.repeat(600))).collect()
    };
    for (name, count) in [("few.jsonl", 64), ("many.jsonl", 70)] {
        write(&memory, main, name, &lines(count, "base"));
    }
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    for (branch, word) in [(fork, "éa"), (main, "éb")] {
        for (name, count) in [("few.jsonl", 64), ("many.jsonl", 70)] {
            write(&memory, branch, name, &lines(count, word));
        }
    }
    memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    let merge: Value = serde_json::from_str(memory.lineage_lines(main, false).unwrap().last().unwrap()).unwrap();
    for (decision, more) in merge["conflicts"].as_array().unwrap().iter().zip([0, 6]) {
        let lost = decision["lost"].as_array().unwrap();
        assert_eq!((lost.len(), decision["lost_more"].as_u64()), (64, Some(more)), "{}", decision["path"]);
        for line in lost {
            let length = line["text"].as_str().unwrap().len();
            assert!((990..=1_000).contains(&length), "{length}");
        }
    }
}

/// Whoever may read the branch may read its lineage; what the file's owner keeps from them is not quoted there.
#[test]
fn an_entry_quotes_no_line_of_a_file_that_not_everybody_may_read() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    for (name, text) in [("s.jsonl", "{\"event_id\":0}\n"), ("m.json", "[{\"id\":0}]")] {
        write(&memory, main, name, text);
        let inode = memory.files(&View::Branch(main)).unwrap().resolve(name.as_bytes()).unwrap();
        let attrs = Attrs { mode: Some(0o600), ..Attrs::default() };
        memory.edit(&who(), main, FileOp::SetAttr { inode, attrs }).unwrap();
    }
    memory.set(&who(), main, Setting::Rules, "*.json manifest id\n*.jsonl union event_id\n").unwrap();
    let fork = memory.fork(&who(), main, "x", None).unwrap();
    for (branch, word) in [(fork, "hunter2"), (main, "swordfish")] {
        write(&memory, branch, "s.jsonl", &format!("{{\"event_id\":1,\"v\":\"{word}\"}}\n"));
        write(&memory, branch, "m.json", &format!("[{{\"id\":1,\"model_version\":\"{word}\"}}]"));
    }
    memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
    let lineage = memory.lineage_lines(main, false).unwrap();
    assert!(!lineage.iter().any(|line| line.contains("hunter2") || line.contains("swordfish")), "{lineage:#?}");
    let merge: Value = serde_json::from_str(lineage.last().unwrap()).unwrap();
    let conflicts = merge["conflicts"].as_array().unwrap();
    assert_eq!(conflicts.len(), 2);
    for decision in conflicts {
        assert_eq!((&decision["lost"], &decision["lost_more"]), (&Value::Array(Vec::new()), &Value::from(1)));
        // Who may read the file reads the version that lost.
        let hash = decision["child"].as_str().unwrap().parse().unwrap();
        let shown = memory.show(main, ShowTarget::Hash(hash), Viewer::UNRESTRICTED).unwrap();
        assert!(String::from_utf8_lossy(&shown.content.unwrap()).contains("hunter2"));
    }
}
