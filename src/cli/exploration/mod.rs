//! Several candidates for one step: each in a branch of its own, of which the best is promoted.
//!
//! What a candidate has written counts when it has ended: then its branch is discarded and brought back, so that whoever still has
//! something of it open can change nothing any more (ESTALE). Scored and promoted is the branch that came back.

mod candidate;
mod promotion;
mod ranking;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use ranking::{Outcome, Ranking};

use super::failure::CommandError;
use super::output::remark;
use super::supervision::SupervisorPool;
use super::target::MountedBranch;

/// How long a branch stays that was left behind, as by kill -9.
const TTL: &str = "24h";

/// What `explore` was asked for, alike for all candidates.
pub struct Exploration<'a> {
    /// The branch's directory that the candidates are forks of.
    pub target: &'a Path,
    /// What each candidate runs: a line for sh(1).
    pub run: &'a str,
    /// What says how good a candidate is: a line for sh(1), whose last line of output is the score; larger is better.
    pub score: &'a str,
    /// What each candidate finds in `ENGRAMFS_CANDIDATE`.
    pub candidates: &'a [String],
    /// How many candidates are at work at once, at least 1; more than there are candidates changes nothing.
    pub jobs: usize,
    /// How long each command may take; none for no limit.
    pub timeout: Option<Duration>,
    /// The least score that is good enough; none where every score is.
    pub score_min: Option<f64>,
    /// Whether branches that were not promoted stay; else they are discarded.
    pub keep: bool,
}

/// What became of one candidate; also one that failed before it had a branch has a result.
pub struct CandidateResult {
    /// Its place in the order of candidates, from 0.
    pub number: usize,
    /// Its branch, where it has one.
    pub branch: Option<CandidateBranch>,
    /// Its score; none where it is out.
    pub score: Option<f64>,
    /// Why it was promoted, or why not.
    pub outcome: Outcome,
    /// What is to be said about that, such as the message of a failure; may be empty.
    pub detail: String,
}

/// A candidate's branch and its head, by which a promotion sees whether the branch was changed since.
pub struct CandidateBranch {
    /// Its name below the target.
    pub name: String,
    /// The entry that ended the branch in which the candidate worked; 0 where this is that branch.
    pub end_seq: u64,
    /// The hash of what it held then.
    pub head: String,
}

impl Exploration<'_> {
    /// Runs and scores all candidates, some at a time, and returns what became of them in their order.
    pub fn explore(&self, pool: &SupervisorPool) -> Vec<CandidateResult> {
        let next = AtomicUsize::new(0);
        let explored = Mutex::new(Vec::new());
        let work = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= self.candidates.len() || pool.is_interrupted() {
                    return;
                }
                let found = self.explore_one(pool, number);
                explored.lock().unwrap_or_else(PoisonError::into_inner).push(found);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.min(self.candidates.len()) {
                scope.spawn(work);
            }
        });
        let mut explored = explored.into_inner().unwrap_or_else(PoisonError::into_inner);
        explored.sort_by_key(|candidate| candidate.number);
        explored
    }

    /// Discards the branches, or with `keep` has all stay but the one that was promoted.
    pub fn clean_up(&self, explored: &[CandidateResult], keep: bool) {
        for candidate in explored {
            let Some(branch) = &candidate.branch else { continue };
            let stays = keep && candidate.outcome != Outcome::Promoted;
            let directory = self.directory(&branch.name);
            let done = if stays { MountedBranch::new(&directory).set("ttl", "") } else { self.discard(&branch.name) };
            if let Err(error) = done {
                remark(error.render(false));
            }
        }
    }

    /// Appends the ranking to the shared log; whoever may not do so through the target does through a branch of its
    /// own. Fails like the first of the two where no candidate has a branch, else as the second does.
    pub fn log(&self, ranking: &Ranking<'_>, explored: &[CandidateResult]) -> Result<(), CommandError> {
        let entry = ranking.log_entry(self);
        let refused = match MountedBranch::new(self.target).append_to_log(&entry) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        let own = explored.iter().find_map(|candidate| candidate.branch.as_ref()).ok_or(refused)?;
        MountedBranch::new(&self.directory(&own.name)).append_to_log(&entry)
    }

    fn directory(&self, name: &str) -> PathBuf {
        self.target.join("branches").join(name)
    }
}
