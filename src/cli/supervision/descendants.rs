//! All processes below one, and their end.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait, waitpid};

/// How long to wait between two looks at processes that are dying.
const PAUSE: Duration = Duration::from_micros(500);

/// Kills all descendants of this process and waits for their end; false if some are left when `limit` is over.
///
/// This process has to be a sub-reaper, else those whose parents have died are not found.
pub fn end_all(limit: Duration) -> bool {
    let end = Instant::now() + limit;
    loop {
        if reap() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        kill_trees(&[rustix::process::getpid()], end);
        thread::sleep(PAUSE);
    }
}

/// Kills those children of this process that are not in `known`, and all below them.
///
/// A child that is not known came here as an orphan.
pub fn end_orphans(known: &HashSet<Pid>, limit: Duration) {
    let end = Instant::now() + limit;
    let me = rustix::process::getpid();
    loop {
        let orphans: Vec<Pid> = children(me).into_iter().filter(|child| !known.contains(child)).collect();
        if orphans.is_empty() || Instant::now() > end {
            return;
        }
        kill_trees(&orphans, end);
        for orphan in &orphans {
            let _ = kill_process(*orphan, Signal::KILL);
            let _ = waitpid(Some(*orphan), WaitOptions::NOHANG);
        }
        thread::sleep(PAUSE);
    }
}

/// Takes note of all children that have ended; true if none is left.
fn reap() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return false,
            // The only other error is ECHILD: no child is left that could be waited for.
            Err(_) => return true,
        }
    }
}

/// Kills all below some processes.
///
/// They are stopped first: something that forks faster than it is killed forks no longer then, and what is stopped keeps its place
/// under a limit of processes, so that others can't fork either.
fn kill_trees(roots: &[Pid], end: Instant) {
    let mut stopped = HashSet::new();
    loop {
        let found: Vec<Pid> = find_descendants(roots).into_iter().filter(|pid| stopped.insert(*pid)).collect();
        for pid in &found {
            let _ = kill_process(*pid, Signal::STOP);
        }
        if found.is_empty() || Instant::now() > end {
            break;
        }
    }
    for pid in stopped {
        // One may have ended meanwhile, and one of another user's stays; neither is a failure.
        let _ = kill_process(pid, Signal::KILL);
    }
}

fn children(of: Pid) -> Vec<Pid> {
    parents().into_iter().filter(|(_, parent)| *parent == of).map(|(pid, _)| pid).collect()
}

/// Returns all below some processes, without these.
fn find_descendants(roots: &[Pid]) -> Vec<Pid> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for (pid, parent) in parents() {
        children.entry(parent).or_default().push(pid);
    }
    let mut found = Vec::new();
    let mut next: Vec<Pid> = roots.to_vec();
    while let Some(pid) = next.pop() {
        let here = children.remove(&pid).unwrap_or_default();
        found.extend(&here);
        next.extend(here);
    }
    found
}

/// Returns all processes, each with its parent behind it.
fn parents() -> Vec<(Pid, Pid)> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pair = |name: &str| {
        let pid = Pid::from_raw(name.parse().ok()?)?;
        Some((pid, parent_in(&fs::read_to_string(format!("/proc/{name}/stat")).ok()?)?))
    };
    processes.filter_map(|process| pair(process.file_name().to_str()?)).collect()
}

/// Reads the parent in a `stat` of /proc. The program's name precedes it in parentheses, and may hold some itself.
fn parent_in(stat: &str) -> Option<Pid> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    Pid::from_raw(fields.nth(1)?.parse().ok()?)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn the_parent_stands_behind_the_name_whatever_that_is() {
        assert_eq!(parent_in("7 (a) b) (c) S 5 7 7 0").unwrap().as_raw_nonzero().get(), 5);
        assert_eq!(parent_in("1 (init) S 0 1"), None);
        assert_eq!(parent_in("broken"), None);
    }

    #[test]
    fn this_process_is_below_its_parent() {
        let parent = rustix::process::getppid().unwrap();
        assert!(find_descendants(&[parent]).contains(&rustix::process::getpid()));
    }
}
