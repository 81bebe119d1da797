//! Limits of what callers write: what is just long enough is taken, and what is longer has its errno.

use super::rig::Rig;
use crate::fs::Errno;
use crate::memory::View;

/// Something that a file takes up to a length or a number.
struct Limit {
    path: &'static str,
    most: usize,
    /// What has that length, or names that number.
    content: fn(usize) -> String,
    beyond: Errno,
}

fn query(rest: &str) -> String {
    format!("{{\"text\":\"x\",{rest}}}\n")
}

fn entry(label: &str, length: usize) -> String {
    format!("{{\"text\":\"x\",\"{label}\":\"{}\"}}\n", "l".repeat(length))
}

const LIMITS: [Limit; 14] = [
    Limit { path: "config/rules", most: 64 << 10, content: |n| "#".repeat(n), beyond: Errno::EFBIG },
    Limit { path: "config/agent", most: 200, content: |n| "a".repeat(n), beyond: Errno::EINVAL },
    Limit { path: "config/session", most: 200, content: |n| "s".repeat(n), beyond: Errno::EINVAL },
    Limit { path: "config/task", most: 200, content: |n| "t".repeat(n), beyond: Errno::EINVAL },
    Limit { path: "shared/signals/key", most: 64 << 10, content: |n| "v".repeat(n), beyond: Errno::EFBIG },
    Limit { path: "shared/log/append", most: 64 << 10, content: |n| "x".repeat(n), beyond: Errno::EFBIG },
    Limit { path: "shared/log/append", most: 1_000, content: |n| "x\n".repeat(n), beyond: Errno::EINVAL },
    Limit { path: "shared/log/append", most: 200, content: |n| entry("kind", n), beyond: Errno::EINVAL },
    Limit { path: "shared/log/append", most: 200, content: |n| entry("event_id", n), beyond: Errno::EINVAL },
    Limit { path: "query", most: 10_000, content: |n| query(&format!("\"k\":{n}")), beyond: Errno::EINVAL },
    Limit { path: "query", most: 100_000, content: |n| query(&format!("\"ef\":{n}")), beyond: Errno::EINVAL },
    Limit { path: "query", most: 600_000, content: |n| query(&format!("\"timeout_ms\":{n}")), beyond: Errno::EINVAL },
    Limit {
        path: "query",
        most: 1_022,
        content: |n| query(&format!("\"tag\":\"{}\"", "t".repeat(n))),
        beyond: Errno::EINVAL,
    },
    Limit {
        path: "vectors/long.json",
        most: 65_536,
        content: |n| format!("{{\"vector\":[1{}]}}", ",1".repeat(n - 1)),
        beyond: Errno::EINVAL,
    },
];

#[test]
fn what_is_longer_than_it_may_be_has_the_errno_of_the_page() {
    let rig = Rig::new();
    for (at, limit) in LIMITS.iter().enumerate() {
        let path = format!("main/{}", limit.path);
        assert_eq!(rig.write(&path, &(limit.content)(limit.most + 1)), Err(limit.beyond), "{at}: {path}");
        assert_eq!(rig.write(&path, &(limit.content)(limit.most)), Ok(()), "{at}: {path}");
    }
    let key = |length| rig.write(&format!("main/shared/signals/{}", "k".repeat(length)), "v");
    assert_eq!((key(201), key(200)), (Err(Errno::EINVAL), Ok(())));
    assert_eq!(rig.write("main/config/task", "two\nlines"), Err(Errno::EINVAL));
    rig.write("main/files/f", "x").unwrap();
    assert_eq!(rig.truncate("main/files/f", (16 << 40) + 1), Err(Errno::EFBIG));
    rig.truncate("main/files/f", 16 << 40).unwrap();
}

#[test]
fn a_user_has_a_hundred_names_of_agents_below_a_root_branch() {
    let rig = Rig::new();
    let name = |number: usize| rig.write("main/config/agent", &format!("agent-{number}"));
    (0..100).for_each(|number| name(number).unwrap());
    assert_eq!(name(100), Err(Errno::EDQUOT));
    assert_eq!(rig.last_error("main")["code"], "too_many_agents");
    name(7).unwrap();
    rig.mkdir("other").unwrap();
    rig.write("other/config/agent", "agent-100").unwrap();
}

/// The files are holes, so that nothing of that length is written.
#[test]
fn one_copy_takes_2_gib_and_says_so() {
    let rig = Rig::new();
    for name in ["from", "to"] {
        rig.write(&format!("main/files/{name}"), "x").unwrap();
    }
    rig.truncate("main/files/from", (5 << 30) + 7).unwrap();
    let [from, to] = ["from", "to"].map(|name| rig.open(&format!("main/files/{name}"), libc::O_RDWR).unwrap());
    let mut copied = Vec::new();
    let mut done = 0;
    while let more @ 1.. = rig.fs.copy_range((from, done), (to, done), 5 << 40).unwrap() {
        done += u64::from(more);
        copied.push(more);
    }
    assert_eq!(copied, [2 << 30, 2 << 30, (1 << 30) + 7]);
    assert_eq!(rig.stat("main/files/to").unwrap().size, (5 << 30) + 7);
}

/// All writers wait while it is read and written.
#[test]
fn one_copy_that_shares_no_chunks_takes_1_mib_and_says_so() {
    let rig = Rig::new();
    for place in ["files", "scratch"] {
        rig.write(&format!("main/{place}/from"), &"0123456789".repeat(300_000)).unwrap();
        rig.write(&format!("main/{place}/to"), "x").unwrap();
        let [from, to] = ["from", "to"].map(|name| rig.open(&format!("main/{place}/{name}"), libc::O_RDWR).unwrap());
        let mut copied = Vec::new();
        let mut done = 0;
        while let more @ 1.. = rig.fs.copy_range((from, done), (to, done + 1), 2 << 30).unwrap() {
            done += u64::from(more);
            copied.push(more);
        }
        assert_eq!(copied, [1 << 20, 1 << 20, 3_000_000 - (2 << 20)], "{place}");
        let expected = format!("x{}", "0123456789".repeat(300_000));
        assert!(rig.fs.read(to, 0, 4_000_000).unwrap() == expected.as_bytes(), "{place}");
    }
}

#[test]
fn ctl_shows_no_file_of_more_than_16_mib() {
    let rig = Rig::new();
    rig.write("main/files/large", &"x".repeat(1 << 20)).unwrap();
    let show = |size: u64| {
        rig.truncate("main/files/large", size).unwrap();
        let files = rig.memory.files(&View::Branch(rig.memory.root("main").unwrap())).unwrap();
        let hash = files.node(files.resolve(b"large").unwrap()).unwrap().hash().unwrap();
        rig.write("main/ctl", &format!("show {hash}\n"))
    };
    assert_eq!(show((16 << 20) + 1), Err(Errno::EFBIG));
    assert_eq!(rig.last_error("main")["code"], "too_large_to_show");
    assert_eq!(show(1 << 20), Ok(()));
}

/// Labels of characters that JSON writes in two bytes each, and a refusal of a long name: all of it has to fit.
#[test]
fn a_status_takes_8_kib_and_16_where_the_path_is_longer_than_1_kib() {
    let rig = Rig::new();
    let mut branch = "main".to_owned();
    let mut name_path = branch.clone();
    let check = |branch: &str, length: usize| {
        for label in ["agent", "session", "task"] {
            rig.write(&format!("{branch}/config/{label}"), &"\"".repeat(200)).unwrap();
        }
        assert_eq!(rig.write(&format!("{branch}/vectors/{}", "\u{1}".repeat(255)), "x"), Err(Errno::EINVAL));
        let status = rig.read(&format!("{branch}/status")).unwrap();
        assert_eq!((status.len(), rig.stat(&format!("{branch}/status")).unwrap().size), (length, length as u64));
        serde_json::from_str::<serde_json::Value>(&status).unwrap()
    };
    while name_path.len() + 65 <= 1 << 10 {
        branch = format!("{branch}/branches/{}", "n".repeat(64));
        name_path = format!("{name_path}/{}", "n".repeat(64));
        rig.mkdir(&branch).unwrap();
    }
    let rest = (1 << 10) - name_path.len() - 1;
    let [longest, longer] = [rest, rest + 1].map(|length| format!("{branch}/branches/{}", "m".repeat(length)));
    rig.mkdir(&longest).unwrap();
    rig.mkdir(&longer).unwrap();
    assert_eq!(check("main", 8 << 10)["path"], "main");
    assert_eq!(check(&longest, 8 << 10)["path"].as_str().unwrap().len(), 1 << 10);
    assert_eq!(check(&longer, 16 << 10)["path"].as_str().unwrap().len(), (1 << 10) + 1);
}

#[test]
fn of_a_shared_log_1000_entries_are_read_at_once_and_none_behind_the_last() {
    let rig = Rig::new();
    for count in [1_000, 5] {
        rig.write("main/shared/log/append", &"x\n".repeat(count)).unwrap();
    }
    let ids = |file: &str| {
        let text = rig.read(&format!("main/shared/log/{file}"))?;
        let id = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["entry_id"].as_u64().unwrap();
        let ids: Vec<u64> = text.lines().map(id).collect();
        Ok((ids.len(), ids.first().copied().unwrap_or_default()))
    };
    assert_eq!((ids("unread"), ids("after/0"), ids("after/7")), (Ok((1_000, 1)), Ok((1_000, 1)), Ok((998, 8))));
    assert_eq!(
        (ids("after/1004"), ids("after/1005"), ids("after/1006")),
        (Ok((1, 1_005)), Ok((0, 0)), Err(Errno::ENOENT))
    );
    assert_eq!((ids("last/3"), ids("last/2000")), (Ok((3, 1_003)), Ok((1_005, 1))));
    let size = |file: &str| rig.stat(&format!("main/shared/log/{file}")).unwrap().size;
    assert_eq!(["append", "unread", "after/0", "last/3"].map(size), [0; 4]);
    assert_eq!(rig.write("main/shared/log/cursor", "1006"), Err(Errno::EINVAL));
    rig.write("main/shared/log/cursor", "1000").unwrap();
    assert_eq!((ids("unread"), rig.read("main/shared/log/cursor").unwrap().trim()), (Ok((5, 1_001)), "1000"));
}

#[test]
fn signals_count_in_their_owners_share_of_memory() {
    let rig = Rig::new();
    assert_eq!(rig.memory.limit_memory(1 << 20, true, Box::new(|_| 0)), None);
    let write = |number: usize| rig.write(&format!("main/shared/signals/s{number}"), &"v".repeat(32 << 10));
    let refused = (0..9).find(|&number| write(number).is_err()).expect("a quarter of 1 MiB holds fewer");
    assert!(refused > 2, "{refused}");
    assert_eq!((write(refused), rig.last_error("main")["code"].as_str()), (Err(Errno::EDQUOT), Some("memory_share")));
    rig.rm("main/shared/signals/s0").unwrap();
    assert_eq!(write(refused), Ok(()));
}

/// Whoever has used up their memory is told so by what answers alone, and not by what was done all the same.
#[test]
fn what_was_done_is_not_refused_because_its_answer_finds_no_room() {
    let rig = Rig::new();
    rig.memory.budget().limit(1, 1);
    assert!(rig.write("main/ctl", "discarded\n").is_err(), "its answer is all there is");
    rig.write("main/ctl", "checkpoint v1\n").unwrap();
    rig.write("main/shared/log/append", "one\n").unwrap();
    rig.memory.budget().limit(u64::MAX, u64::MAX);
    assert_eq!(rig.list("main/checkpoints"), ["v1"]);
    assert_eq!(rig.read("main/shared/log/entries.jsonl").unwrap().lines().count(), 1);
}

#[test]
fn the_last_entries_of_a_log_are_as_many_as_are_asked_for() {
    let rig = Rig::new();
    let entries: Vec<String> = (1..=2_500).map(|n| format!("entry {n}\n")).collect();
    entries.chunks(1_000).for_each(|chunk| rig.write("main/shared/log/append", &chunk.concat()).unwrap());
    let all = rig.read("main/shared/log/entries.jsonl").unwrap();
    let all: Vec<&str> = all.lines().collect();
    for count in [1, 999, 1_000, 1_001, 2_400, 2_500, 9_999_999] {
        let last = rig.read(&format!("main/shared/log/last/{count}")).unwrap();
        assert_eq!(last.lines().collect::<Vec<_>>(), all[2_500_usize.saturating_sub(count)..], "{count}");
    }
    let most = rig.memory.budget().held_bytes() + 100_000;
    rig.memory.budget().limit(most, most);
    assert_eq!(rig.read("main/shared/log/last/2500"), Err(Errno::EDQUOT));
    rig.read("main/shared/log/last/100").unwrap();
}

/// A handle that falls behind what is kept is told so, and a new one begins with the oldest line that is kept.
#[test]
fn a_slow_reader_of_shared_events_is_told_that_it_missed_some() {
    let rig = Rig::new();
    rig.write("main/shared/log/append", "first\n").unwrap();
    let slow = rig.open("main/shared/events.jsonl", libc::O_RDONLY).unwrap();
    assert!(!rig.fs.read(slow, 0, 100).unwrap().is_empty());
    // Each text is short enough to be shown, and all of them together are more than 8 MiB.
    let batch = format!("{}\n", "x".repeat(4_000)).repeat(200);
    for _ in 0..12 {
        rig.write("main/shared/log/append", &batch).unwrap();
    }
    assert_eq!(rig.fs.read(slow, 0, 100), Err(Errno::ESTALE));
    let main = rig.memory.root("main").unwrap();
    assert_eq!(rig.memory.read_shared_events(main, 0, 100).unwrap_err().code(), "events_dropped");
    rig.fs.release(slow);
    let anew = rig.open("main/shared/events.jsonl", libc::O_RDONLY).unwrap();
    assert!(rig.fs.read(anew, 0, 100).unwrap().starts_with(b"{"), "a whole line");
    rig.fs.release(anew);
}

#[test]
fn from_1_mib_of_a_shared_log_on_the_page_says_how_to_archive() {
    let rig = Rig::new();
    let line = format!("{}\n", "x".repeat(60_000));
    let state = || {
        let status: serde_json::Value = serde_json::from_str(&rig.read("main/status").unwrap()).unwrap();
        let is_told = rig.read("main/README.md").unwrap().contains("archive-log");
        (status["log_bytes"].as_u64().unwrap() >= 1 << 20, is_told)
    };
    rig.write("main/shared/log/append", &line.repeat(17)).unwrap();
    assert_eq!(state(), (false, false));
    rig.write("main/shared/log/append", &line).unwrap();
    assert_eq!(state(), (true, true));
    rig.write("main/ctl", "archive-log 18\n").unwrap();
    assert_eq!(state(), (false, false));
}
