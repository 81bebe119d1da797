//! Telling the kernel something by itself, on threads that serve no request and hold no lock: one wakes who waits, others
//! have the kernel forget what changed.
//!
//! No notice is about one directory's names: for those the kernel waits for whatever request holds the
//! directory, and if this process is killed meanwhile, both wait for ever and keep the mount. All names
//! together, and attributes, are forgotten without waiting. Pages go only of files whose content became another one; for those
//! the kernel waits for reads of that very file that are under way.

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use crate::memory::BranchId;
use crate::sync::{Mutex, Pool};

/// Threads for notices; those about one branch have half of them.
const THREADS: usize = 8;
/// How long a change waits for the kernel to hear of it.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(1);

/// The side of the kernel that takes notices.
pub trait Kernel: Send + Sync {
    /// Makes the kernel forget the attributes of a node.
    fn forget_attributes(&self, ino: u64);

    /// Makes the kernel forget the attributes of a file, and its pages.
    fn forget_content(&self, ino: u64);

    /// Makes the kernel look every name up again before it is used, without waiting for anybody. Before Linux 6.16 it does so
    /// only when the time is over that it was told.
    fn forget_names(&self);
}

/// One call to make on the thread of notices, such as waking a poll(2).
pub type WakeCall = Box<dyn FnOnce() + Send>;

/// What is to be told to the kernel, where there is one.
pub(super) type KernelNotice = Box<dyn FnOnce(&dyn Kernel) + Send>;

/// What tells the kernel of changes, and wakes who waits for them. Nobody who has something to tell waits for the
/// kernel.
pub(super) struct KernelNotifier {
    queue: Option<Mutex<Sender<WakeCall>>>,
    /// A notice may wait for reads of the file that it is about.
    notices: Pool,
    kernel: Arc<Mutex<Option<Arc<dyn Kernel>>>>,
}

impl KernelNotifier {
    /// Starts the thread that wakes who waits; it ends when this is dropped. Without a thread nobody is woken.
    pub fn start() -> KernelNotifier {
        let (queue, inbox) = mpsc::channel::<WakeCall>();
        let thread = std::thread::Builder::new()
            .name("engramfs-wake".into())
            .spawn(move || inbox.into_iter().for_each(|call| call()));
        if let Err(error) = &thread {
            log::warn!("no thread to wake those who wait for changes: {error}");
        }
        KernelNotifier {
            queue: thread.is_ok().then(|| Mutex::new(queue)),
            notices: Pool::new("engramfs-notices", THREADS),
            kernel: Arc::default(),
        }
    }

    /// Sets the kernel, or takes it away: from then on notices are dropped unheard.
    pub fn set_kernel(&self, kernel: Option<Arc<dyn Kernel>>) {
        *self.kernel.lock() = kernel;
    }

    /// Makes calls that never wait, soon and in turn.
    pub fn send_all(&self, calls: Vec<WakeCall>) {
        let Some(queue) = &self.queue else { return };
        for call in calls {
            // The thread outlives the queue, so there is always somebody to receive.
            let _ = queue.lock().send(call);
        }
    }

    /// Tells the kernel something about a branch, soon.
    pub fn notify(&self, branch: BranchId, notice: KernelNotice) {
        let kernel = self.kernel.clone();
        // Branches have turns as users of other pools do.
        let turn = branch.0 as u32;
        self.notices.run(turn, move || {
            // Cloned, as a notice may wait for the kernel, and `set_kernel` at the end of a mount must not wait for
            // that.
            let kernel = kernel.lock().clone();
            if let Some(kernel) = kernel {
                notice(&*kernel);
            }
        });
    }

    /// Tells the kernel something about a branch, and returns when it has heard of it: who reads after a change must
    /// not see what was before. It may not be about what the kernel holds for the request that is
    /// waiting; if something is stuck all the same, the change goes on after [`NOTIFY_TIMEOUT`].
    pub fn notify_and_wait(&self, branch: BranchId, notice: KernelNotice) {
        let (heard, wait) = mpsc::channel::<()>();
        self.notify(
            branch,
            Box::new(move |kernel| {
                notice(kernel);
                drop(heard);
            }),
        );
        // A notice that is dropped unheard drops the sender with it, which ends the wait as well.
        if wait.recv_timeout(NOTIFY_TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout) {
            log::warn!(
                "the kernel did not hear within {NOTIFY_TIMEOUT:?} of files that changed; it may show them as they were"
            );
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use std::time::Duration;

    struct Heard(Mutex<Sender<u64>>);

    impl Kernel for Heard {
        fn forget_attributes(&self, ino: u64) {
            self.0.lock().send(ino).unwrap();
        }

        fn forget_content(&self, ino: u64) {
            self.forget_attributes(ino);
        }

        fn forget_names(&self) {
            self.forget_attributes(0);
        }
    }

    #[test]
    fn a_notice_reaches_the_kernel_from_another_thread() {
        let (sender, receiver) = mpsc::channel();
        let notifier = KernelNotifier::start();
        notifier.set_kernel(Some(Arc::new(Heard(Mutex::new(sender)))));
        notifier.notify(BranchId(1), Box::new(|kernel| kernel.forget_attributes(2)));
        assert_eq!(receiver.recv_timeout(Duration::from_secs(5)).unwrap(), 2);
        notifier.notify_and_wait(BranchId(1), Box::new(|kernel| kernel.forget_attributes(3)));
        assert_eq!(receiver.try_recv().unwrap(), 3, "it was heard when this returned");
        notifier.set_kernel(None);
        notifier.notify_and_wait(BranchId(1), Box::new(|_| panic!("nobody listens")));
        assert!(receiver.try_recv().is_err());
    }
}
