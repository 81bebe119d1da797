//! SIGTERM, SIGINT and SIGHUP as messages: a handler writes to a pipe, a thread reads it.
//!
//! A handler, not a blocked mask: threads that exist already would not have the mask, and children would inherit it.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};
use std::thread::JoinHandle;

/// The exit code of a process that a second signal ends at once.
pub const INTERRUPTED_EXIT_CODE: i32 = 130;

/// How many watchers one process may have at a time; each mount served has one.
const SLOTS: usize = 32;

/// Write ends of the watchers' pipes, -1 where there is none. Atomics, since a handler may take no lock.
static WATCHERS: [AtomicI32; SLOTS] = [const { AtomicI32::new(-1) }; SLOTS];
/// Milliseconds since boot of the first signal, 0 before it.
static FIRST_SIGNAL_MS: AtomicI64 = AtomicI64::new(0);
/// A second signal so soon is the same request to end: timeout(1) sends one to the process and one to its group.
const SAME_REQUEST_MS: i64 = 500;
static INSTALLED: OnceLock<bool> = OnceLock::new();

/// Hands signals to a closure for as long as it lives; after that they have their default action again.
#[derive(Debug)]
pub struct Watcher {
    slot: &'static AtomicI32,
    writer: PipeWriter,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts to watch: `deliver` is called on a thread of its own with each signal's number. Fails if a thread or a
    /// pipe can't be made, where as many watchers run as may, or if the handlers can't be set.
    pub fn start(deliver: impl Fn(i32) + Send + 'static) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let thread =
            std::thread::Builder::new().name("engramfs-signal".into()).spawn(move || forward(reader, deliver))?;
        let fd = writer.as_raw_fd();
        let free = |slot: &&AtomicI32| slot.compare_exchange(-1, fd, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let slot = WATCHERS.iter().find(free);
        let slot = slot.ok_or_else(|| io::Error::other("too many mounts in one process"))?;
        let watcher = Self { slot, writer, thread: Some(thread) };
        if *INSTALLED.get_or_init(install) { Ok(watcher) } else { Err(io::Error::other("sigaction was refused")) }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.slot.store(-1, Ordering::Release);
        // 0 is not a signal: it tells the thread to end.
        if self.writer.write_all(&[0]).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

fn forward(mut reader: PipeReader, deliver: impl Fn(i32)) {
    let mut byte = [0_u8];
    while reader.read_exact(&mut byte).is_ok() && byte != [0] {
        deliver(i32::from(byte[0]));
    }
}

/// SIGHUP stays ignored where it was (nohup); the other two are ours in any case.
fn install() -> bool {
    [libc::SIGTERM, libc::SIGINT, libc::SIGHUP].into_iter().all(|signal| {
        if signal == libc::SIGHUP && is_ignored(signal) {
            return true;
        }
        // SAFETY: all zeroes is a valid sigaction; the handler below is async-signal-safe.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut()) == 0
        }
    })
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: reads the present action into a local; sets nothing.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}

/// The handler: system calls and atomics only, errno as it was.
extern "C" fn on_signal(signal: i32) {
    // SAFETY: write, clock_gettime, _exit, signal and raise are async-signal-safe; errno is this
    // thread's own, and all zeroes is a valid timespec.
    unsafe {
        let errno = *libc::__errno_location();
        let byte = u8::try_from(signal).unwrap_or(u8::MAX);
        let mut watched = false;
        let mut clock = std::mem::zeroed::<libc::timespec>();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut clock);
        let now = clock.tv_sec * 1_000 + clock.tv_nsec / 1_000_000;
        let first = FIRST_SIGNAL_MS.compare_exchange(0, now, Ordering::AcqRel, Ordering::Acquire);
        let repeated = first.is_err_and(|first| now - first > SAME_REQUEST_MS);
        for slot in &WATCHERS {
            let fd = slot.load(Ordering::Acquire);
            if fd >= 0 {
                watched = true;
                libc::write(fd, (&raw const byte).cast(), 1);
            }
        }
        if repeated {
            libc::_exit(INTERRUPTED_EXIT_CODE);
        }
        if !watched {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
        *libc::__errno_location() = errno;
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_watcher_delivers_what_the_handler_writes_and_ends_when_dropped() {
        let (sender, inbox) = mpsc::channel();
        let mut watcher = Watcher::start(move |signal| sender.send(signal).unwrap()).unwrap();
        // A real signal would count for the whole test process, whose second one ends it.
        watcher.writer.write_all(&[15]).unwrap();
        assert_eq!(inbox.recv().unwrap(), 15);
        drop(watcher);
        assert!(inbox.recv().is_err(), "its thread has ended");
    }

    #[test]
    fn an_ignored_hangup_is_seen() {
        assert!(!is_ignored(libc::SIGTERM));
        assert!(is_ignored(libc::SIGPIPE), "Rust ignores it at start");
    }
}
