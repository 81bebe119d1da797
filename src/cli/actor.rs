//! Who acts: the names in records and lineage.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::fs::User;
use crate::memory::Actor;

/// Returns the effective user of this process.
pub fn current() -> Actor {
    // The owner of a process's own directory in /proc is its effective uid, the group its gid.
    let (uid, gid) = fs::metadata("/proc/self").map_or((u32::MAX, u32::MAX), |found| (found.uid(), found.gid()));
    let name = user(uid).map_or_else(|| format!("uid-{uid}"), |user| user.name);
    Actor { uid, gid, name: name.into() }
}

/// Returns what this machine knows of a uid; `None` if it has no such user.
pub fn user(uid: u32) -> Option<User> {
    User::find(&fs::read_to_string("/etc/passwd").ok()?, uid)
}

/// Returns what is to be said of a store whose folder belongs to another user than this process, which `does` something to it, such
/// as `serves`. `None` if it does not.
pub fn foreign_owner_warning(store: &Path, does: &str) -> Option<String> {
    let (owner, own) = (store.metadata().ok()?.uid(), current().uid);
    (owner != own).then(|| {
        format!(
            "the store {} belongs to uid {owner} and not to uid {own}, who {does} it: its owner can read and change all \
             that is in it; chown it to who {does} it",
            store.display()
        )
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_who_owns_what_this_process_makes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(current().uid, file.as_file().metadata().unwrap().uid());
        assert!(!current().name.is_empty());
    }
}
