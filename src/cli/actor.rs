//! Who acts: the names that stand in records and lineage.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::memory::Actor;

/// Returns the effective user of this process.
pub fn current() -> Actor {
    // The owner of a process's own directory in /proc is its effective uid.
    let uid = fs::metadata("/proc/self").map(|found| found.uid()).unwrap_or(u32::MAX);
    let name = name_of(uid).unwrap_or_else(|| format!("uid-{uid}"));
    Actor { uid, name: name.into() }
}

/// Returns the name of a user of this machine.
pub fn name_of(uid: u32) -> Option<String> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    name_in(&users, uid).map(str::to_owned)
}

/// Lines of passwd(5): name, password, uid, and more.
fn name_in(users: &str, uid: u32) -> Option<&str> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_number_not_by_place() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbroken\n:x:7::\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(name_in(users, 1000), Some("ann"));
        assert_eq!(name_in(users, 7), None);
        assert_eq!(name_in(users, 100), None);
    }
}
