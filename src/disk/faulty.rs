//! The failing double: a disk whose N-th call goes wrong.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::fault::{DiskCall, Fault};
use super::{Disk, DiskFile, DiskSpace, ForgetfulDisk, Mapped};

/// Wraps a disk and fails the planned call; clones share the plan and the count.
///
/// Without a plan every call passes. A failing call does not reach the inner disk, except for the half of a
/// short write and for [`FaultyDisk::losing_pages`]. Plan N = 1, 2, 3 … until a run makes fewer
/// [`FaultyDisk::calls`] than N: then every call has failed once.
///
/// ```
/// use engramfs::disk::{Disk, DiskCall, Fault, FaultyDisk, ForgetfulDisk};
///
/// # fn main() -> std::io::Result<()> {
/// let disk = FaultyDisk::new(ForgetfulDisk::new());
/// disk.plan(Fault::once(2, &[DiskCall::Write], libc::EIO));
/// let file = disk.create("notes")?;
/// file.write_all_at(b"one", 0)?;
/// assert_eq!(file.write_all_at(b"two", 3).unwrap_err().raw_os_error(), Some(libc::EIO));
/// file.write_all_at(b"three", 3)?;
/// assert_eq!((disk.calls(), file.len()?), (3, 8));
/// # Ok(())
/// # }
/// ```
pub struct FaultyDisk<D> {
    shared: Arc<FaultyShared<D>>,
}

struct FaultyShared<D> {
    inner: D,
    plan: Mutex<FaultPlan>,
    /// Prepares the inner disk for a file sync by this thread that is to fail with this errno.
    before_failed_sync: Option<fn(&D, i32)>,
}

#[derive(Default)]
struct FaultPlan {
    fault: Option<Fault>,
    calls: u64,
    /// The planned call panics, once.
    panics: bool,
}

impl<D> Clone for FaultyDisk<D> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<D: Disk> FaultyDisk<D> {
    /// Wraps `inner`, with no fault planned.
    pub fn new(inner: D) -> Self {
        Self::with_sync_hook(inner, None)
    }

    fn with_sync_hook(inner: D, before_failed_sync: Option<fn(&D, i32)>) -> Self {
        let plan = Mutex::default();
        Self { shared: Arc::new(FaultyShared { inner, plan, before_failed_sync }) }
    }

    /// Returns the wrapped disk; what is done to it directly neither counts nor fails.
    pub fn inner(&self) -> &D {
        &self.shared.inner
    }

    /// Replaces the plan and counts from 0 again, on handles that are open already too.
    pub fn plan(&self, fault: Fault) {
        *self.shared.plan() = FaultPlan { fault: Some(fault), ..FaultPlan::default() };
    }

    /// Plans that the `nth` call of `kinds` from now on panics, counted from 1; later ones pass.
    pub fn plan_panic(&self, nth: u64, kinds: &'static [DiskCall]) {
        *self.shared.plan() =
            FaultPlan { fault: Some(Fault::once(nth, kinds, libc::EIO)), panics: true, ..FaultPlan::default() };
    }

    /// Removes the plan and counts from 0 again; all calls pass.
    pub fn clear(&self) {
        *self.shared.plan() = FaultPlan::default();
    }

    /// Returns how many calls of the planned kinds were made, failed ones included. Without a plan all calls count.
    pub fn calls(&self) -> u64 {
        self.shared.plan().calls
    }

    fn handle(&self, inner: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(FaultyFile { shared: Arc::clone(&self.shared), inner })
    }
}

impl FaultyDisk<ForgetfulDisk> {
    /// Wraps `inner` so that a failing file sync also loses the file's unsynced bytes, as on Linux.
    ///
    /// They can still be read, a later sync succeeds, and a power cut then shows that they were never written.
    pub fn losing_pages(inner: ForgetfulDisk) -> Self {
        Self::with_sync_hook(inner, Some(ForgetfulDisk::fail_next_sync))
    }
}

impl<D> FaultyShared<D> {
    fn plan(&self) -> MutexGuard<'_, FaultPlan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call and returns the fault that hits it, if one does.
    fn count(&self, kind: DiskCall) -> Option<Fault> {
        let mut plan = self.plan();
        let Some(fault) = plan.fault else {
            plan.calls += 1;
            return None;
        };
        if !fault.kinds.contains(&kind) {
            return None;
        }
        plan.calls += 1;
        let hits = fault.hits(plan.calls);
        if hits && plan.panics {
            drop(plan);
            panic!("the disk panics on purpose");
        }
        hits.then_some(fault)
    }

    fn count_and_fail(&self, kind: DiskCall) -> io::Result<()> {
        match self.count(kind) {
            Some(fault) => Err(io::Error::from_raw_os_error(fault.errno)),
            None => Ok(()),
        }
    }
}

impl<D: Disk> Disk for FaultyDisk<D> {
    fn create(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        self.shared.count_and_fail(DiskCall::Create)?;
        Ok(self.handle(self.shared.inner.create(path)?))
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        self.shared.count_and_fail(DiskCall::Open)?;
        Ok(self.handle(self.shared.inner.open(path)?))
    }

    fn open_write(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        self.shared.count_and_fail(DiskCall::Open)?;
        Ok(self.handle(self.shared.inner.open_write(path)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.shared.count_and_fail(DiskCall::Rename)?;
        self.shared.inner.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.shared.count_and_fail(DiskCall::Remove)?;
        self.shared.inner.remove(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.shared.count_and_fail(DiskCall::List)?;
        self.shared.inner.list(dir)
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.shared.count_and_fail(DiskCall::Create)?;
        self.shared.inner.create_dir(path)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.shared.count_and_fail(DiskCall::SyncDir)?;
        self.shared.inner.sync_dir(path)
    }

    fn mode(&self, path: &str) -> io::Result<u32> {
        self.shared.inner.mode(path)
    }

    fn space(&self) -> io::Result<DiskSpace> {
        self.shared.inner.space()
    }
}

struct FaultyFile<D> {
    shared: Arc<FaultyShared<D>>,
    inner: Box<dyn DiskFile>,
}

impl<D: Disk> DiskFile for FaultyFile<D> {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.shared.count_and_fail(DiskCall::Read)?;
        self.inner.read_exact_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let Some(fault) = self.shared.count(DiskCall::Write) else {
            return self.inner.write_all_at(buf, offset);
        };
        if fault.short_write {
            self.inner.write_all_at(&buf[..buf.len() / 2], offset)?;
        }
        Err(io::Error::from_raw_os_error(fault.errno))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.shared.count_and_fail(DiskCall::SetLen)?;
        self.inner.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.shared.count_and_fail(DiskCall::Write)?;
        self.inner.allocate(len)
    }

    fn sync(&self) -> io::Result<()> {
        let Some(fault) = self.shared.count(DiskCall::Sync) else {
            return self.inner.sync();
        };
        if let Some(prepare) = self.shared.before_failed_sync {
            prepare(&self.shared.inner, fault.errno);
            return self.inner.sync();
        }
        Err(io::Error::from_raw_os_error(fault.errno))
    }

    fn map(&self) -> io::Result<Mapped> {
        self.shared.count_and_fail(DiskCall::Map)?;
        self.inner.map()
    }
}
