//! Limits of what callers write: what is just long enough is taken, and what is longer has its errno.

use super::rig::Rig;
use crate::fs::Errno;

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
