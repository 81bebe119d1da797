//! `engramfs explore`: tries several ways, and keeps the best.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::ArgGroup;

use super::gc::parse_duration;
use crate::cli::exit::Exit;
use crate::cli::exploration::{CandidateResult, Exploration, Outcome, Ranking};
use crate::cli::failure::CommandError;
use crate::cli::output::{Output, remark};
use crate::cli::supervision::SupervisorPool;
use crate::cli::target::Target;
use crate::fuse::Watcher;

/// Runs several candidates, each in a fork of its own, scores what they have written and promotes the best.
#[derive(clap::Args)]
#[command(
    group = ArgGroup::new("whom").args(["number", "candidates"]).required(true),
    before_help = "Examples:
  engramfs explore /mnt/memory/main -n 5 --run ./try.sh --score ./score.sh
  engramfs explore /mnt/memory/main --candidates prompts.txt --run 'agent \"$ENGRAMFS_CANDIDATE\"' --score ./score.sh
      --timeout 5m --at-least 0.8"
)]
pub struct Args {
    /// The branch to improve: its directory under a mount.
    target: PathBuf,
    /// What each candidate does: a line for sh(1), run in the directory of its branch, which ENGRAMFS_BRANCH names, too.
    #[arg(long, value_name = "CMD")]
    run: String,
    /// Says how good it is: a line for sh(1), run there, whose last line of output is a number; larger is better.
    #[arg(long, value_name = "CMD")]
    score: String,
    /// How many candidates there are; ENGRAMFS_CANDIDATE is 1, 2, 3 and so on.
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    number: Option<u32>,
    /// A file with a line for each candidate, which it finds in ENGRAMFS_CANDIDATE; empty lines are none.
    #[arg(long, value_name = "FILE")]
    candidates: Option<PathBuf>,
    /// How many run at a time; one for each core without it.
    #[arg(long, value_name = "J", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    jobs: Option<u32>,
    /// Kills a candidate, or its scorer, that takes longer, such as 30s or 5m.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
    /// Promotes none whose score is lower.
    #[arg(long, value_name = "SCORE", allow_negative_numbers = true, value_parser = parse_score)]
    at_least: Option<f64>,
    /// Leaves the branches of all others where they are; else they are discarded, and stay readable for config/keep.
    #[arg(long)]
    keep: bool,
}

/// Tries each candidate in a branch of its own, promotes the best and prints the ranking. [`Exit::Interrupted`] after
/// SIGINT, where none was promoted yet.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let target = mounted_directory(&args.target)?;
    let candidates = candidates(args)?;
    let jobs =
        args.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), |jobs| jobs as usize);
    let (timeout, score_min, keep) = (args.timeout, args.at_least, args.keep);
    let (run, score) = (&*args.run, &*args.score);
    let exploration =
        Exploration { target: &target, run, score, candidates: &candidates, jobs, timeout, score_min, keep };
    let pool = Arc::new(SupervisorPool::new().map_err(not_supervised)?);
    let _watcher = Watcher::start({
        let pool = pool.clone();
        move |_| pool.interrupt()
    })
    .map_err(not_supervised)?;
    let mut explored = exploration.explore(&pool);
    let refusals = promote_best(&exploration, &mut explored, &pool);
    // A promotion is not taken back, so SIGINT after one is reported as the result that it is.
    if pool.is_interrupted() && !explored.iter().any(|candidate| candidate.outcome == Outcome::Promoted) {
        exploration.clean_up(&explored, false);
        return Err(interrupted(&target));
    }
    let ranking = Ranking::new(&explored);
    if let Err(error) = exploration.log(&ranking, &explored) {
        remark(format_args!("the shared log does not tell of it: {}", error.message));
    }
    exploration.clean_up(&explored, keep);
    if out.is_json() {
        ranking.lines(&exploration).iter().try_for_each(|line| out.line(line))?;
    } else {
        out.text(&ranking.table(&exploration))?;
    }
    final_exit(&target, &explored, &refusals)
}

/// Promotes the best candidate that can be; returns why those before it could not.
fn promote_best(
    exploration: &Exploration<'_>,
    explored: &mut [CandidateResult],
    pool: &SupervisorPool,
) -> Vec<CommandError> {
    let mut refusals = Vec::new();
    for number in Ranking::new(explored).eligible_candidates() {
        if pool.is_interrupted() {
            break;
        }
        let note = Ranking::new(explored).note(exploration);
        let Some(candidate) = explored.iter_mut().find(|candidate| candidate.number == number) else { continue };
        let Some(branch) = &mut candidate.branch else { continue };
        match exploration.promote(branch, &note) {
            Ok(()) => {
                candidate.outcome = Outcome::Promoted;
                break;
            }
            Err(error) => {
                (candidate.outcome, candidate.detail) = (Outcome::Refused, error.message.clone());
                refusals.push(error);
            }
        }
    }
    refusals
}

fn final_exit(target: &Path, explored: &[CandidateResult], refusals: &[CommandError]) -> Result<Exit, CommandError> {
    if explored.iter().any(|candidate| candidate.outcome == Outcome::Promoted) {
        return Ok(Exit::Done);
    }
    let (count, target) = (explored.len(), target.display());
    let Some(first) = refusals.first() else {
        let message = format!("of {count} candidates for {target} none was good enough");
        let hint = "see above what came of each, then change the commands or --at-least";
        return Err(CommandError::new(Exit::Failed, "none_good", message, hint));
    };
    let all = refusals.iter().all(|refusal| refusal.exit == Exit::Refused);
    let exit = if all { Exit::Refused } else { Exit::Failed };
    let message = format!("no candidate that was good enough could be promoted into {target}: {}", first.message);
    Err(CommandError::new(exit, first.code.clone(), message, first.hint.clone()))
}

/// What supervision lacks is a thread, a pipe or a right, and no file.
fn not_supervised(error: io::Error) -> CommandError {
    let message = format!("candidates can't be supervised: {error}");
    CommandError::new(Exit::Failed, "no_process", message, "raise ulimit -u and -n")
}

fn interrupted(target: &Path) -> CommandError {
    let message = format!(
        "exploring {} was interrupted: all candidates were ended and their branches discarded",
        target.display()
    );
    CommandError::new(Exit::Interrupted, "interrupted", message, "start it again to explore anew")
}

/// Candidates work in the directories of their branches.
fn mounted_directory(target: &Path) -> Result<PathBuf, CommandError> {
    match Target::parse(target)? {
        Target::Mounted(directory) if directory.to_str().is_some() => Ok(directory),
        Target::Mounted(directory) => {
            let message = format!("the path {} is not UTF-8", directory.display());
            Err(CommandError::usage(message, "mount the store at another directory"))
        }
        Target::Unmounted { store, name_path } => {
            let message = format!("{}:{name_path} has to be mounted: candidates work in directories", store.display());
            Err(CommandError::usage(
                message,
                format!("engramfs mount {} MNT, and name MNT/{name_path}", store.display()),
            ))
        }
    }
}

fn candidates(args: &Args) -> Result<Vec<String>, CommandError> {
    let Some(file) = &args.candidates else {
        return Ok((1..=args.number.unwrap_or(1)).map(|number| number.to_string()).collect());
    };
    let text = fs::read_to_string(file).map_err(|error| CommandError::file("read", file, &error))?;
    let candidates: Vec<String> = text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
    if candidates.is_empty() || text.contains('\0') {
        let what = if candidates.is_empty() { "names no candidate" } else { "holds a NUL" };
        return Err(CommandError::usage(
            format!("{} {what}", file.display()),
            "write a line of text for each candidate",
        ));
    }
    Ok(candidates)
}

fn parse_score(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|score: &f64| score.is_finite()).ok_or_else(|| "it has to be a finite number".to_owned())
}
