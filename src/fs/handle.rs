//! Open files and directories, by numbers that are never given twice: a late request for a closed one finds nothing, and never
//! the handle of another caller.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::directory::Listing;
use super::errno::{Errno, Failure};
use super::mount_branch_state::MountBranchState;
use super::mount_context::{Caller, OpenContext};
use super::node::FsNode;
use crate::memory::{BranchId, View};
use crate::sync::Mutex;

/// What an open file does. What a kind of file has no use for stays at its default.
pub(super) trait File: Send + Sync {
    /// Returns up to `size` bytes from `offset`; fewer only at the end. Fails if the bytes can't be read, and as
    /// [`File::commit`] does where what was written before is done first.
    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Failure>;

    /// Takes bytes, and returns how many. EBADF for what is only read, EROFS if nothing may change; else refused where
    /// the bytes are not those of such a file, or too many.
    fn write(&self, _offset: u64, _data: &[u8]) -> Result<usize, Failure> {
        Err(Errno::EBADF.into())
    }

    /// Sets the length, as this handle sees it. Files that take lines or values have none to set. EFBIG if such a file
    /// can't be so long.
    fn truncate(&self, _length: u64) -> Result<(), Failure> {
        Ok(())
    }

    /// Commits what was written since the last time. Refused where it is not what such a file takes, such as a record
    /// that is no JSON, and where the store refuses it; by default nothing is committed.
    fn commit(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// Returns whether the kernel may keep its pages in the cache: it sees their changes, or is told of them.
    fn keeps_page_cache(&self) -> bool {
        false
    }

    /// Returns whether writes may bypass the page cache: the handle writes a file whole, and nobody had the file mapped
    /// for writing when it was opened.
    fn writes_directly(&self) -> bool {
        false
    }

    /// Takes setuid and setgid away, since somebody writes who may not keep them. Fails like a change of attributes; by
    /// default there are none to take away.
    fn drop_rights(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// Returns whether bytes were written that no commit took yet.
    fn is_pending(&self) -> bool {
        false
    }

    /// Notes that the record `from` of its branch has another id now, or with `None` is gone.
    fn follow_record(&self, _from: &str, _to: Option<&Arc<str>>) {}

    /// Returns whether its operations may take more than a moment.
    fn takes_long(&self) -> bool {
        false
    }

    /// Returns the length that this handle sees, where it is not the node's.
    fn length(&self) -> Option<u64> {
        None
    }

    /// Returns whether a read would find something, for poll(2).
    fn is_readable(&self) -> bool {
        true
    }

    /// Returns whether it shows more than there was at its open.
    fn is_live(&self) -> bool {
        false
    }

    /// Returns the state of the branch whose changes it shows, where that is another one than its own.
    fn waits_on(&self) -> Option<&Arc<MountBranchState>> {
        None
    }

    /// Returns whether reading goes on when the branch is gone: a verb that ends its branch still has an outcome.
    fn outlives_branch(&self) -> bool {
        false
    }
}

/// An open file or directory. Operations that have it when it is released keep it until they are done.
pub(super) struct Handle {
    /// What was opened.
    pub node: FsNode,
    /// The number under which the kernel knows the node; 0 if nobody will ask.
    pub number: u64,
    /// The path in `errors`; empty in `files/`, where it may change.
    pub path: String,
    /// Who opened it; operations on the handle act in their name.
    pub caller: Caller,
    /// `None` for the mount's own directory, and in `files/`, where the tree says what is gone.
    pub context: Option<OpenContext>,
    /// What reads, writes or listings go to.
    pub open: Open,
}

/// What a handle is open on: bytes, or names.
pub(super) enum Open {
    /// What reads and writes go to, several at once.
    File(Box<dyn File>),
    /// Its lock is held while names are given out: two readers of one handle wait for each other.
    Directory(Box<Mutex<Listing>>),
}

impl Handle {
    /// Returns what reads and writes go to; EISDIR for a directory.
    pub fn file(&self) -> Result<&dyn File, Failure> {
        match &self.open {
            Open::File(file) => Ok(file.as_ref()),
            Open::Directory(_) => Err(Errno::EISDIR.into()),
        }
    }

    /// Returns what is listed; ENOTDIR for a file.
    pub fn listing(&self) -> Result<&Mutex<Listing>, Failure> {
        match &self.open {
            Open::File(_) => Err(Errno::ENOTDIR.into()),
            Open::Directory(listing) => Ok(listing),
        }
    }

    /// Returns the state of the branch whose changes it shows; `None` if it belongs to no branch.
    pub fn waits_on(&self) -> Option<&Arc<MountBranchState>> {
        let other = self.file().ok().and_then(File::waits_on);
        other.or_else(|| self.context.as_ref().map(|context| &context.state))
    }

    /// Returns ESTALE if the branch of the node was merged or discarded.
    pub fn check_alive(&self) -> Result<(), Failure> {
        self.context.as_ref().map_or(Ok(()), OpenContext::check_alive)
    }
}

/// All handles by number. Numbers start at 1 and are never given twice.
#[derive(Default)]
pub(super) struct HandleTable {
    handles: Mutex<HashMap<u64, Arc<Handle>>>,
    last_number: AtomicU64,
}

impl HandleTable {
    /// Stores a handle and returns its number, which is never 0 and never reused.
    pub fn add(&self, handle: Handle) -> u64 {
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        self.handles.lock().insert(number, Arc::new(handle));
        number
    }

    /// Returns a handle; EBADF if it is closed or never was.
    pub fn get(&self, number: u64) -> Result<Arc<Handle>, Errno> {
        self.handles.lock().get(&number).cloned().ok_or(Errno::EBADF)
    }

    /// Removes a handle; `None` if there is none with that number. Running operations keep it alive.
    pub fn remove(&self, number: u64) -> Option<Arc<Handle>> {
        self.handles.lock().remove(&number)
    }

    /// Returns one of the handles that are open on `node`, whichever.
    pub fn find_by_node(&self, node: &FsNode) -> Option<Arc<Handle>> {
        self.handles.lock().values().find(|handle| handle.node == *node).cloned()
    }

    /// Tells the records of a branch that are open that one has another id now, or with `None` is gone.
    pub fn follow_record(&self, branch: BranchId, from: &str, to: Option<&Arc<str>>) {
        let is_record = |node: &FsNode| matches!(node, FsNode::Record(View::Branch(of), _) if *of == branch);
        let handles: Vec<_> = self.handles.lock().values().filter(|handle| is_record(&handle.node)).cloned().collect();
        handles.iter().filter_map(|handle| handle.file().ok()).for_each(|file| file.follow_record(from, to));
    }

    /// Returns whether some handle in the branch holds written bytes that are not committed.
    pub fn is_pending(&self, branch: BranchId) -> bool {
        // Cloned, since a file that is asked may take its own lock, which comes before this one.
        let handles: Vec<_> = self.handles.lock().values().cloned().collect();
        let inside =
            handles.iter().filter(|handle| handle.context.as_ref().is_some_and(|context| context.branch() == branch));
        inside.filter_map(|handle| handle.file().ok()).any(File::is_pending)
    }
}

/// Returns the part of `bytes` that a read of `size` bytes at `offset` gets.
pub(super) fn slice_at(bytes: &[u8], offset: u64, size: usize) -> Vec<u8> {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    bytes[start..start.saturating_add(size).min(bytes.len())].to_vec()
}

#[cfg(test)]
mod tests {
    use super::slice_at;

    #[test]
    fn a_read_ends_where_the_bytes_end() {
        assert_eq!(slice_at(b"hello", 1, 3), b"ell");
        assert_eq!(slice_at(b"hello", 3, 100), b"lo");
        assert_eq!(slice_at(b"hello", 5, 1), b"");
        assert_eq!(slice_at(b"hello", u64::MAX, usize::MAX), b"");
    }
}
