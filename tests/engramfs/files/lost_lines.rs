//! How much of the lines that lose a merge stands in its entry.

use engramfs::disk::ForgetfulDisk;
use engramfs::memory::MergeVerb;
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
