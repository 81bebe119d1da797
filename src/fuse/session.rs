//! Serving a mount from its first answer to its end, whichever end comes first.
//!
//! ```text
//! engramfs-session  handshake ─ Started ─ requests … ─ Ended ┐
//! engramfs-probe              └ asks the root ─ Answered ────┼─▶ serve: one loop over events
//! engramfs-signal   self-pipe ─ Signal ──────────────────────┘
//! ```

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuser::{Config, Filesystem, Session, SessionACL};

use super::attachment::Attachment;
use super::connection;
use super::dispatch::session_threads;
use super::error::MountError;
use super::mount::{MountOptions, OwnMount};
use super::notices::NoticeChannel;
use super::probe::{ProbeAnswer, probe};
use super::signals::Watcher;

/// How long a new mount may take until its root answers.
const START_TIMEOUT: Duration = Duration::from_secs(15);
/// After a signal: how long those who still have files open may close them.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// After the connection was ended by force: how long running handlers may take.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(5);

/// How the service of a mount came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEnd {
    /// Somebody unmounted it, or ended its connection.
    Unmounted,
    /// The signal of this number came; the mount is gone from the tree.
    Signal(i32),
}

/// What [`serve`] hears of a mount; `C` is the channel that its start hands over.
enum Event<C = NoticeChannel> {
    Started(C),
    Answered(io::Result<ProbeAnswer>),
    Signal(i32),
    Ended(io::Result<()>),
}

/// Mounts `fs` and serves it until it is unmounted or SIGTERM, SIGINT or SIGHUP comes.
///
/// `ready` is called on this thread, once, when the root has answered a request (for an adopted descriptor: when the handshake is
/// done). Callers who keep the channel drop it when this returns. A signal takes the mount out of the tree at once; whoever has
/// files open there gets 2 s to close them, then the connection is ended. A second signal ends the process with exit code 130.
/// `fs` is dropped on return, except after a signal where the connection can be neither unmounted nor ended from here (an adopted
/// descriptor; no root and no fusectl): then its threads last as long as the process.
/// An error means that nothing of ours is mounted any more.
pub fn serve<F: Filesystem>(
    fs: F,
    options: &MountOptions,
    ready: impl FnOnce(NoticeChannel),
) -> Result<SessionEnd, MountError> {
    let (events, inbox) = mpsc::channel();
    let signals = events.clone();
    // Before anything is mounted: a signal in between would end the process and leave the mount behind.
    let _watcher = Watcher::start(move |signal| drop(signals.send(Event::Signal(signal))))
        .map_err(|source| MountError::System { what: "watching for signals", source })?;
    let (attachment, fd) = Attachment::open(options)?;
    let (threads, sender) = (session_threads(), events.clone());
    let session = std::thread::Builder::new()
        .name("engramfs-session".into())
        .spawn(move || run_session(fs, fd, threads, &sender))
        .map_err(|source| MountError::System { what: "starting the session", source })?;
    // The attachment is in the service from here on: its drop unmounts on every way out.
    let service = Service { attachment, session, path: &options.mountpoint, events, inbox };
    let outcome = service.run(ready);
    service.finish();
    outcome
}

/// The session thread: handshake, requests, end.
fn run_session<F: Filesystem>(fs: F, fd: OwnedFd, threads: usize, events: &Sender<Event>) {
    let talk = || {
        let mut config = Config::default();
        config.n_threads = Some(threads);
        // The kernel keeps other users out where allow_other is not set. A second check by the session would also refuse
        // the flush of a descriptor that was handed to another user.
        let device = File::from(fd.try_clone()?);
        let session = Session::from_fd(fs, fd, SessionACL::All, config)?;
        let _ = events.send(Event::Started(NoticeChannel { notifier: session.notifier(), device }));
        session.run()
    };
    let outcome =
        catch_unwind(AssertUnwindSafe(talk)).unwrap_or_else(|_| Err(io::Error::other("the file system panicked")));
    let _ = events.send(Event::Ended(outcome));
}

struct Service<'a, C = NoticeChannel> {
    attachment: Attachment,
    session: JoinHandle<()>,
    path: &'a Path,
    events: Sender<Event<C>>,
    inbox: Receiver<Event<C>>,
}

impl<C: Send + 'static> Service<'_, C> {
    fn run(&self, ready: impl FnOnce(C)) -> Result<SessionEnd, MountError> {
        let mut ready = Some(ready);
        let mut channel = None;
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            match self.next_event(ready.is_some().then_some(deadline))? {
                Event::Started(started) => match &self.attachment {
                    Attachment::Mounted(mount) => {
                        channel = Some(started);
                        self.ask_root(mount)?;
                    }
                    Attachment::Adopted => call_once(&mut ready, started),
                },
                Event::Answered(answer) => {
                    if self.is_alive(answer)?
                        && let Some(channel) = channel.take()
                    {
                        call_once(&mut ready, channel);
                    }
                }
                Event::Signal(signal) => {
                    log::info!("signal {signal}: unmounting {}", self.path.display());
                    return Ok(SessionEnd::Signal(signal));
                }
                Event::Ended(outcome) => return self.session_end(outcome, ready.is_none()),
            }
        }
    }

    fn next_event(&self, deadline: Option<Instant>) -> Result<Event<C>, MountError> {
        // An adopted descriptor has no deadline: who mounted it may take their time to use it.
        let event = match (deadline, &self.attachment) {
            (Some(end), Attachment::Mounted(_)) => {
                self.inbox.recv_timeout(end.saturating_duration_since(Instant::now()))
            }
            _ => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        event.map_err(|_| {
            self.no_answer(io::Error::new(io::ErrorKind::TimedOut, format!("nothing came in {START_TIMEOUT:?}")))
        })
    }

    /// On a thread of its own, since this one has to hear of signals meanwhile.
    fn ask_root(&self, mount: &OwnMount) -> Result<(), MountError> {
        let (path, events) = (mount.path.clone(), self.events.clone());
        let asking = move || drop(events.send(Event::Answered(probe(&path, START_TIMEOUT))));
        let thread = std::thread::Builder::new().name("engramfs-probe".into()).spawn(asking);
        thread.map(drop).map_err(|source| self.session_error(source))
    }

    fn is_alive(&self, answer: io::Result<ProbeAnswer>) -> Result<bool, MountError> {
        match answer {
            Ok(ProbeAnswer::Alive) => Ok(true),
            // The session's own end says more, and is on its way.
            Ok(ProbeAnswer::Dead) => Ok(false),
            Ok(ProbeAnswer::Denied) => Err(self.no_answer(io::ErrorKind::PermissionDenied.into())),
            Ok(ProbeAnswer::Silent) => Err(self.no_answer(io::ErrorKind::TimedOut.into())),
            Ok(ProbeAnswer::Failed(errno)) => Err(self.no_answer(io::Error::from_raw_os_error(errno))),
            Err(source) => Err(self.no_answer(source)),
        }
    }

    fn session_end(&self, outcome: io::Result<()>, was_ready: bool) -> Result<SessionEnd, MountError> {
        match outcome {
            // Ended through fusectl: somebody asked for it, as with umount.
            Err(e) if e.raw_os_error() == Some(libc::ECONNABORTED) && was_ready => Ok(SessionEnd::Unmounted),
            Err(source) => Err(self.session_error(source)),
            Ok(()) if was_ready => Ok(SessionEnd::Unmounted),
            Ok(()) => Err(self.session_error(io::Error::other("it was unmounted before its first answer"))),
        }
    }

    /// Out of the tree first, then time for open files, then force.
    fn finish(&self) {
        let Attachment::Mounted(mount) = &self.attachment else {
            return;
        };
        mount.unmount();
        if self.ends_within(SHUTDOWN_TIMEOUT) {
            return;
        }
        log::warn!("{} is still in use: ending its connection", mount.path.display());
        // By force only after the grace: until then whoever has files open there can still write to them and close
        // them.
        match connection::abort(mount.identity.minor) {
            Ok(()) if self.ends_within(ABORT_TIMEOUT) => {}
            Ok(()) => log::warn!("a request is still being served; it ends with the process"),
            Err(e) => log::warn!("the connection can't be ended from here ({e}); it ends with the process"),
        }
    }

    fn ends_within(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        while !self.session.is_finished() && Instant::now() < end {
            std::thread::sleep(POLL);
        }
        self.session.is_finished()
    }

    fn session_error(&self, source: io::Error) -> MountError {
        MountError::Session { path: self.path.to_owned(), source }
    }

    fn no_answer(&self, source: io::Error) -> MountError {
        MountError::NoAnswer { path: self.path.to_owned(), source }
    }
}

fn call_once<C>(ready: &mut Option<impl FnOnce(C)>, channel: C) {
    if let Some(ready) = ready.take() {
        ready(channel);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    /// Runs a service to which these events come; returns its outcome and whether it was said to be ready.
    fn run_service(incoming: Vec<Event<()>>) -> (Result<SessionEnd, MountError>, bool) {
        let (events, inbox) = mpsc::channel();
        incoming.into_iter().for_each(|event| events.send(event).unwrap());
        let attachment = Attachment::Mounted(OwnMount::already_unmounted());
        let session = std::thread::spawn(|| ());
        let mut is_ready = false;
        let service = Service { attachment, session, path: Path::new("/mnt"), events, inbox };
        let outcome = service.run(|()| is_ready = true);
        (outcome, is_ready)
    }

    /// The session can be dropped before its end is told, so that its root is asked in between.
    #[test]
    fn a_mount_that_died_before_its_first_answer_is_never_ready() {
        for errno in [libc::ECONNABORTED, libc::EPROTO] {
            let end = || Event::Ended(Err(io::Error::from_raw_os_error(errno)));
            let (outcome, is_ready) =
                run_service(vec![Event::Started(()), Event::Answered(Ok(ProbeAnswer::Dead)), end()]);
            assert!(!is_ready && matches!(outcome, Err(MountError::Session { .. })), "{errno}: {is_ready} {outcome:?}");
        }
        let (outcome, is_ready) = run_service(vec![
            Event::Started(()),
            Event::Answered(Ok(ProbeAnswer::Alive)),
            Event::Ended(Err(io::Error::from_raw_os_error(libc::ECONNABORTED))),
        ]);
        assert!(is_ready && matches!(outcome, Ok(SessionEnd::Unmounted)), "the control: {is_ready} {outcome:?}");
    }
}
