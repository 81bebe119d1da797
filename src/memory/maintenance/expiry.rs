//! Files whose rule gives them a lifetime, and their end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::memory::catalog::{BranchId, Catalog};
use crate::memory::{Actor, BranchEvent, EditError, Error, Kind, Memory, ReplacedFiles, View};
use crate::merge::files::Rules;
use crate::object::Time;
use crate::sync::{Mutex, Rank};
use crate::workspace::{FileName, FileNode, FileOp, ROOT, Tree};

/// Who knows which files of a branch handles are open on. A mapping keeps its handle open.
pub trait OpenFiles: Send + Sync {
    /// Returns the inodes that are open, for reading or writing.
    fn open_inodes(&self, branch: BranchId) -> Vec<u64>;

    /// Returns the inodes that are open for writing. From then on nobody opens another one for writing, until the
    /// guard is dropped.
    fn block_writers(&self, branch: BranchId) -> (Vec<u64>, WritersBlocked);

    /// Returns the inodes that are open, as [`OpenFiles::open_inodes`] does. From then on nobody opens another one at all,
    /// until the guard is dropped.
    fn block_opens(&self, branch: BranchId) -> (Vec<u64>, OpensBlocked);
}

/// As long as it lives, no file of a branch is opened for writing.
pub type WritersBlocked = Box<dyn std::any::Any>;

/// While this is held, no file of a branch is opened.
pub type OpensBlocked = Box<dyn std::any::Any>;

/// Whoever does not tell who writes, and holds nobody: all that is open may be written to.
impl<F: Fn(BranchId) -> Vec<u64> + Send + Sync> OpenFiles for F {
    fn open_inodes(&self, branch: BranchId) -> Vec<u64> {
        self(branch)
    }

    fn block_writers(&self, branch: BranchId) -> (Vec<u64>, WritersBlocked) {
        (self(branch), Box::new(()))
    }

    fn block_opens(&self, branch: BranchId) -> (Vec<u64>, OpensBlocked) {
        (self(branch), Box::new(()))
    }
}

/// Who knows which files are open, and when to look for expired ones again.
pub(in crate::memory) struct Expiry {
    open_files: Mutex<Option<Arc<dyn OpenFiles>>>,
    last_checks: Mutex<HashMap<BranchId, LastCheck>>,
    /// When all branches were last looked through, which happens once an interval.
    last_sweep: Mutex<Time>,
}

impl Default for Expiry {
    fn default() -> Expiry {
        Expiry {
            open_files: Mutex::with_rank(Rank::OpenFiles, None),
            last_checks: Mutex::default(),
            last_sweep: Mutex::default(),
        }
    }
}

impl Expiry {
    /// Forgets when a branch was checked, which has ended.
    pub(in crate::memory) fn forget(&self, branch: BranchId) {
        self.last_checks.lock().remove(&branch);
    }
}

/// What a branch was when its files were last checked: while nothing of that changes and no file is due, it is skipped.
#[derive(Clone)]
struct LastCheck {
    /// [`Branch::file_op_count`](crate::memory::catalog::Branch::file_op_count) at that time: another count means other files.
    file_op_count: u64,
    /// [`Branch::state_seq`](crate::memory::catalog::Branch::state_seq) at that time.
    state_seq: u64,
    rules: Arc<str>,
    /// When the next of its files expires, as rules and files were then.
    next_expiry: Time,
}

struct ExpiredFile {
    parent: u64,
    name: FileName,
    inode: u64,
}

impl Memory {
    /// Lets the store ask which files are open; by default none are. An open file never expires, lives on without a
    /// name if a merge or a rollback removes it, and a merge replaces no unit with a file that is open for writing.
    ///
    /// `open` may be called with any lock held, so it must call nothing of [`Memory`].
    pub fn set_open_files(&self, open: Option<Arc<dyn OpenFiles>>) {
        *self.maintenance.expiry.open_files.lock() = open;
    }

    /// Returns the inodes of a branch that some handle has open; none if nobody tells.
    pub(in crate::memory) fn open_files(&self, branch: BranchId) -> Vec<u64> {
        let open = self.maintenance.expiry.open_files.lock();
        open.as_ref().map(|open| open.open_inodes(branch)).unwrap_or_default()
    }

    /// Returns which files of a branch are open for writing, and keeps others from being opened so until what is
    /// returned is dropped. `None` if nobody tells what is open.
    pub(in crate::memory) fn block_writers(&self, branch: BranchId) -> Option<(Vec<u64>, WritersBlocked)> {
        let open = self.maintenance.expiry.open_files.lock().clone();
        open.map(|open| open.block_writers(branch))
    }

    /// Returns which files of a branch are open, and keeps others from being opened until what is returned is dropped.
    /// `None` if nobody tells what is open.
    pub(in crate::memory) fn block_opens(&self, branch: BranchId) -> Option<(Vec<u64>, OpensBlocked)> {
        let open = self.maintenance.expiry.open_files.lock().clone();
        open.map(|open| open.block_opens(branch))
    }

    /// Returns whether somebody knows which files are open, and lets go of those that have no name.
    fn tracks_open_files(&self) -> bool {
        self.maintenance.expiry.open_files.lock().is_some()
    }

    /// Lets branches and files expire, unless that was done less than `interval` ago. Nothing is done where the clock
    /// can't be trusted, which is not an error. The first branch where it fails ends it.
    pub(in crate::memory) fn expire_if_due(&self, interval: Duration) -> Result<(), Error> {
        let now = self.now();
        {
            let mut last = self.maintenance.expiry.last_sweep.lock();
            let next = last.plus_nanos(i64::try_from(interval.as_nanos()).unwrap_or(i64::MAX));
            // A clock that was ahead and is right again is before the last sweep, perhaps by years.
            if (*last..next).contains(&now) {
                return Ok(());
            }
            // Set before the work: where that fails, the next try comes after an interval and not in a loop.
            *last = now;
        }
        // By a clock that jumped nothing is certain to be due.
        if self.check_clock().is_err() {
            return Ok(());
        }
        self.discard_all_expired()?;
        self.expire_files(false).map(|_| ())
    }

    /// Deletes every file that has outlived the `ttl=` of its rule and is not open; returns how many
    /// went, or with `dry_run` would go. A file's age counts from its last write, truncation or
    /// merge that changed its content. The first branch where it fails ends it; files that were deleted until then stay
    /// deleted.
    pub(in crate::memory) fn expire_files(&self, dry_run: bool) -> Result<u64, Error> {
        let catalog = self.catalog().clone();
        let mut count = 0;
        for branch in catalog.branches.values() {
            let rules = branch.settings.rules();
            let tree = branch.state.files();
            let text = branch.settings.get(crate::memory::Setting::Rules);
            if tree.totals().files == 0 || !rules.iter().any(|rule| rule.ttl_nanos.is_some()) {
                continue;
            }
            let now = self.now();
            let last_check = self.maintenance.expiry.last_checks.lock().get(&branch.id).cloned();
            let is_same = |last: &LastCheck| {
                last.file_op_count == branch.file_op_count
                    && last.state_seq == branch.state_seq
                    && last.rules == *text
                    && now < last.next_expiry
            };
            if last_check.as_ref().is_some_and(is_same) {
                continue;
            }
            let (expired, next_expiry) = expired_files(tree, rules, now);
            let check = LastCheck {
                file_op_count: branch.file_op_count,
                state_seq: branch.state_seq,
                rules: text.clone(),
                next_expiry,
            };
            // Noted with the state that was looked at, so that whatever comes after this snapshot is looked at in the
            // next round.
            self.maintenance.expiry.last_checks.lock().insert(branch.id, check);
            let owner = Actor { uid: branch.uid, name: catalog.user(branch.uid), gid: 0 };
            count += self.expire_branch_files(&owner, branch.id, expired, dry_run)?;
        }
        Ok(count)
    }

    fn expire_branch_files(
        &self,
        owner: &Actor,
        branch: BranchId,
        expired: Vec<ExpiredFile>,
        dry_run: bool,
    ) -> Result<u64, Error> {
        let before = match self.files(&View::Branch(branch)) {
            // The branch was merged or discarded meanwhile: no file of it is left that could expire.
            Err(Error::Gone) => return Ok(0),
            before => before?,
        };
        // Asked once and not under the writer lock. A file that is opened after this is kept for its handle: the unlink
        // keeps the inode.
        let open = self.open_files(branch);
        let mut count = 0;
        for file in expired.into_iter().filter(|file| !open.contains(&file.inode)) {
            count += u64::from(dry_run || self.expire(owner, branch, &before, file)?);
        }
        if count > 0 && !dry_run {
            let after = match self.files(&View::Branch(branch)) {
                // Its end was told to all who watch; the other branches have their turn still.
                Err(Error::Gone) => return Ok(count),
                after => after?,
            };
            let parent = self.catalog().branches.get(&branch).and_then(|branch| branch.parent);
            // Who has files open lets go of those that are not open any more.
            let files = vec![ReplacedFiles { branch, before, after }];
            self.notify(BranchEvent { branch, parent, op: "files", files, previous: Vec::new() });
        }
        Ok(count)
    }

    /// Deletes a file that has outlived its rule, unless it or the rule was changed since; returns whether it did.
    fn expire(&self, owner: &Actor, branch: BranchId, before: &Tree, file: ExpiredFile) -> Result<bool, Error> {
        // Expiry is not a user's write, so it resolves no conflict.
        let path = before.path(file.inode).unwrap_or_default();
        self.merging.acks.remove(branch, &format!("files/{}", String::from_utf8_lossy(&path)));
        let ExpiredFile { parent, name, inode } = file;
        let (now, wanted) = (self.now(), name.clone());
        // Asked under the writer lock, since the file may have been written or replaced after it was found.
        let still = |catalog: &Catalog, _: &FileOp<'_>| {
            let branch = catalog.branch(branch)?;
            let tree = branch.state.files();
            let is_it = tree.lookup(parent, &wanted).is_ok_and(|there| there == inode);
            let directory = tree.path(parent).unwrap_or_default();
            let path =
                if directory.is_empty() { wanted.to_vec() } else { [&directory[..], b"/", &wanted[..]].concat() };
            let end = |node: &FileNode| {
                branch.settings.rules().rule_for(&path).ttl_nanos.map(|ttl| node.written.plus_nanos(ttl))
            };
            let is_due = tree.node(inode).is_ok_and(|node| end(node).is_some_and(|end| end <= now));
            if is_it && is_due { Ok(()) } else { Err(Error::FileChanged) }
        };
        match self.edit_if(owner, branch, FileOp::Unlink { parent, name, keep: true }, still) {
            Ok(_) if self.tracks_open_files() => Ok(true),
            // Nobody tells when its last handle is closed, so it goes at once.
            Ok(_) => self.drop_file(owner, branch, inode).map(|()| true),
            Err(EditError::Refused(error)) if !matches!(error.kind(), Kind::Busy | Kind::Gone) => Err(error),
            // The file was removed or replaced meanwhile, or its branch is gone.
            Err(_) => Ok(false),
        }
    }

    fn drop_file(&self, owner: &Actor, branch: BranchId, inode: u64) -> Result<(), Error> {
        match self.edit_unguarded(owner, branch, FileOp::Drop { inode }) {
            Err(EditError::Refused(error)) => Err(error),
            Ok(_) | Err(EditError::Tree(_)) => Ok(()),
        }
    }
}

/// Returns the files that have outlived their rule's `ttl`, and when to look again; the last time there is where none ever will.
fn expired_files(tree: &Tree, rules: &Rules, now: Time) -> (Vec<ExpiredFile>, Time) {
    let (mut found, mut next) = (Vec::new(), Time(i64::MAX));
    let mut directories = vec![(ROOT, Vec::new())];
    while let Some((directory, path)) = directories.pop() {
        let Ok(entries) = tree.entries(directory, None) else { continue };
        for (name, inode) in entries {
            let Ok(node) = tree.node(inode) else { continue };
            let below = if path.is_empty() { name.to_vec() } else { [&path, &b"/"[..], name].concat() };
            if node.directory().is_some() {
                directories.push((inode, below));
                continue;
            }
            let Some(ttl) = rules.rule_for(&below).ttl_nanos else { continue };
            let end = node.written.plus_nanos(ttl);
            if end <= now {
                found.push(ExpiredFile { parent: directory, name: name.clone(), inode });
            } else {
                next = next.min(end);
            }
        }
    }
    // A file that is open now is looked at again with the next change, or after a minute.
    let next = if found.is_empty() { next } else { now };
    (found, next)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::memory::environment::TestClock;
    use crate::memory::{Actor, OpenMode, Setting};

    #[test]
    fn a_sweep_by_a_clock_that_was_ahead_does_not_put_off_the_next_ones() {
        const HOUR_NANOS: i64 = 3_600_000_000_000;
        const INTERVAL: Duration = Duration::from_secs(60);
        let (who, clock) = (Actor { uid: 0, gid: 0, name: "root".into() }, TestClock::default());
        let disk = Arc::new(ForgetfulDisk::new());
        let memory = Memory::open_on(disk, OpenMode::Create, None, clock.environment(who.clone())).unwrap();
        let child = memory.fork(&who, memory.root("main").unwrap(), "child", None).unwrap();
        memory.set(&who, child, Setting::Ttl, "1h").unwrap();
        clock.set_wrong_by(100_000 * HOUR_NANOS);
        memory.expire_if_due(INTERVAL).unwrap();
        clock.set_wrong_by(0);
        memory.expire_if_due(INTERVAL).unwrap();
        assert!(memory.catalog().branches.contains_key(&child), "neither by a wrong clock nor too early");
        clock.advance(2 * HOUR_NANOS);
        memory.expire_if_due(INTERVAL).unwrap();
        assert!(!memory.catalog().branches.contains_key(&child));
    }
}
