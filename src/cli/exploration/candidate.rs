//! One candidate: forked, run, frozen and scored.

use super::{CandidateBranch, CandidateResult, Exploration, Outcome, TTL};
use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::random_tag::random_tag;
use crate::cli::supervision::{CommandEnd, CommandResult, SupervisedCommand, SupervisorHandle, SupervisorPool};
use crate::cli::target::MountedBranch;

/// How often another name is chosen because somebody has that one.
const NAMES_TRIED_MAX: usize = 8;

impl Exploration<'_> {
    /// Runs and scores one candidate. A failure of its own run is its outcome, and ends no other candidate.
    pub(super) fn explore_one(&self, pool: &SupervisorPool, number: usize) -> CandidateResult {
        let (outcome, detail) = (Outcome::Failed, String::new());
        let mut explored = CandidateResult { number, branch: None, score: None, outcome, detail };
        if let Err(error) = self.run_and_score(pool, &mut explored) {
            (explored.outcome, explored.detail) = (Outcome::Failed, format!("{}; {}", error.message, error.hint));
        }
        explored
    }

    fn run_and_score(&self, pool: &SupervisorPool, explored: &mut CandidateResult) -> Result<(), CommandError> {
        let name = self.fork(explored.number)?;
        let directory = self.directory(&name);
        explored.branch = Some(CandidateBranch { name: name.clone(), end_seq: 0, head: String::new() });
        // So its ttl counts from our end, however long a command takes that writes nothing.
        let lease = MountedBranch::new(&directory).lease()?;
        let mut supervisor = pool.start().map_err(|error| {
            let hint = "raise ulimit -u, or run fewer candidates at once with --jobs";
            CommandError::new(Exit::Failed, "no_process", format!("no process could be started: {error}"), hint)
        })?;
        let ended = self.supervise(&mut supervisor, &name, explored.number, self.run);
        if let Some((outcome, detail)) = command_failure(ended.as_ref(), Outcome::Failed) {
            (explored.outcome, explored.detail) = (outcome, detail);
            return Ok(());
        }
        let frozen = self.freeze(&name, None)?;
        explored.branch = Some(frozen);
        drop(lease);
        let _lease = MountedBranch::new(&directory).lease()?;
        let ended = self.supervise(&mut supervisor, &name, explored.number, self.score);
        (explored.outcome, explored.detail) = match command_failure(ended.as_ref(), Outcome::NoScore) {
            Some(out) => out,
            None => self.evaluate(explored, &ended.map(|ended| ended.output).unwrap_or_default()),
        };
        Ok(())
    }

    fn evaluate(&self, explored: &mut CandidateResult, output: &str) -> (Outcome, String) {
        let Some(score) = score_in(output) else {
            return (Outcome::NoScore, "the last line of its output is no finite number".to_owned());
        };
        explored.score = Some(score);
        let good = self.score_min.is_none_or(|least| score >= least);
        (if good { Outcome::NotChosen } else { Outcome::TooLow }, String::new())
    }

    /// Forks the branch of a candidate, under a name that nobody has.
    fn fork(&self, number: usize) -> Result<String, CommandError> {
        let mut tries = 0;
        loop {
            let name = format!("explore-{}-{}", random_tag(6), number + 1);
            // Fork and ttl in one call: if this process dies between two, a branch without a ttl would stay for ever.
            match MountedBranch::new(self.target).send_line(&format!("fork {name} ttl {TTL}")) {
                Ok(_) => return Ok(name),
                Err(error) if error.code == "exists" && tries < NAMES_TRIED_MAX => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    fn supervise(
        &self,
        supervisor: &mut SupervisorHandle<'_>,
        name: &str,
        number: usize,
        command: &str,
    ) -> Option<CommandResult> {
        supervisor.run(&SupervisedCommand {
            command: command.to_owned(),
            directory: self.directory(name),
            candidate: self.candidates[number].clone(),
            limit_ms: self.timeout.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
            captures: std::ptr::eq(command, self.score),
        })
    }

    /// Ends the branch of a candidate and brings it back under its name: as it was now, or as it was when the entry
    /// `end_seq` ended it. Fails like `ctl`: where the branch can't be discarded, or can't be brought back.
    pub(super) fn freeze(&self, name: &str, end_seq: Option<u64>) -> Result<CandidateBranch, CommandError> {
        self.discard(name)?;
        let from = end_seq.map_or_else(|| name.to_owned(), |seq| seq.to_string());
        let answer = MountedBranch::new(self.target).send_line(&format!("fork {name} from discarded {from}"))?;
        let end_seq = answer["from"]["entry"].as_u64().unwrap_or_default();
        let status = MountedBranch::new(&self.directory(name)).status()?;
        Ok(CandidateBranch {
            name: name.to_owned(),
            end_seq,
            head: status["head"].as_str().unwrap_or_default().to_owned(),
        })
    }

    /// Discards the branch of a candidate with what it forked itself. Fails like `MountedBranch::discard_when_closed`.
    pub(super) fn discard(&self, name: &str) -> Result<(), CommandError> {
        MountedBranch::new(&self.directory(name)).discard_when_closed()
    }
}

/// Returns why a command did not succeed; `failed` is what it is called where it failed by itself.
fn command_failure(ended: Option<&CommandResult>, failed: Outcome) -> Option<(Outcome, String)> {
    let Some(ended) = ended else { return Some((Outcome::Failed, "its supervisor was killed".to_owned())) };
    Some(match ended.end {
        CommandEnd::Exit(0) => return None,
        CommandEnd::Exit(status) => (failed, format!("it ended with status {status}")),
        CommandEnd::Signal(signal) => (failed, format!("it was killed by signal {signal}")),
        CommandEnd::TimedOut => (Outcome::TimedOut, String::new()),
        CommandEnd::NotStarted(errno) => {
            (failed, format!("it could not be started: {}", std::io::Error::from_raw_os_error(errno)))
        }
        CommandEnd::Lingers => (failed, "it left processes that can't be killed".to_owned()),
    })
}

/// Returns the score: the last line, where that is a finite number.
fn score_in(output: &str) -> Option<f64> {
    output.lines().last()?.trim().parse().ok().filter(|score: &f64| score.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_is_a_finite_number_on_the_last_line() {
        assert_eq!(score_in("99\nnoise\n -1.5e2 \n"), Some(-150.0));
        for none in ["", "\n", "7\nseven\n", "NaN\n", "inf\n", "-Infinity", "1 2", "0x10"] {
            assert_eq!(score_in(none), None, "{none}");
        }
    }
}
