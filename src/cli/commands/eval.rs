//! `engramfs eval`: how well a branch answers questions whose answers are known.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use crate::cli::evaluation::{ModeEvaluation, Question, evaluate, read_questions};
use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::{Output, remark};
use crate::cli::render::{evaluation, printable};
use crate::cli::target::{Access, BranchAccess, Target};
use crate::memory::Export;

/// Measures how well a branch answers questions whose answers are known: recall, nDCG and mean reciprocal rank by mode.
///
/// QUESTIONS has one a line: {"question":"who rotates the keys?","evidence":["note-7","files/ops.md"]}, with the ids of the records
/// and the paths of the files that answer it; "vector", "filter" and "scope" mean what they mean in a query. Recall is the evidence
/// among the first K hits, of all of it; nDCG counts each as 1 / log2(rank + 1) (Järvelin and Kekäläinen, 2002), of what the best
/// order would have.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs eval /mnt/memory/main questions.jsonl
  engramfs eval ~/memory:main questions.jsonl --k 20 --missed 50
  engramfs eval ~/memory:main - --json < questions.jsonl")]
pub struct Args {
    /// The branch: its directory under a mount, or STORE:NAME-PATH.
    target: PathBuf,
    /// JSON Lines, or - for standard input.
    questions: PathBuf,
    /// How many hits count.
    #[arg(long, value_name = "K", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    k: u32,
    /// How many questions are shown whose evidence was not all found, the worst of each mode first; with --json all are.
    #[arg(long, value_name = "N", default_value_t = 10)]
    missed: usize,
}

/// Asks each question of a file, or of standard input for `-`, and prints how good the answers are. Fails if the file
/// or a line of it can't be read.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let target = Target::parse(&args.target)?;
    let questions = if args.questions.as_os_str() == "-" {
        read_questions("standard input".as_ref(), io::stdin().lock())?
    } else {
        let file = File::open(&args.questions).map_err(|error| CommandError::file("read", &args.questions, &error))?;
        read_questions(&args.questions, file)?
    };
    let k = args.k as usize;
    let evaluations = target.with_branch(Access::Read, |branch| {
        warn_about_unknown_evidence(branch, &args.target, &questions)?;
        evaluate(&mut *branch.open_session()?, &questions, k)
    })?;
    if out.is_json() {
        return print_json(&evaluations, k, out);
    }
    out.text(&evaluation::render(&evaluations, k, args.missed))?;
    Ok(Exit::Done)
}

fn print_json(evaluations: &[ModeEvaluation], k: usize, out: &mut Output) -> Result<Exit, CommandError> {
    evaluations.iter().try_for_each(|evaluation| out.line(evaluation.to_json(k)))?;
    for evaluation in evaluations {
        evaluation.missed.iter().try_for_each(|missed| out.line(missed.to_json(evaluation.mode)))?;
    }
    Ok(Exit::Done)
}

/// Names evidence that no record of the branch is: a mistake in the questions, which nothing can find.
fn warn_about_unknown_evidence(
    branch: &dyn BranchAccess,
    target: &Path,
    questions: &[Question],
) -> Result<(), CommandError> {
    let evidence = questions.iter().flat_map(|question| &question.evidence);
    let mut unknown: BTreeSet<&str> = evidence.map(String::as_str).filter(|id| !id.starts_with("files/")).collect();
    for export in branch.exports(&[Export::Records])?.readers {
        for line in BufReader::new(export).lines() {
            let line = line.map_err(|error| CommandError::file("read", "export/records.jsonl".as_ref(), &error))?;
            if let Ok(serde_json::Value::Object(record)) = serde_json::from_str(&line)
                && let Some(id) = record.get("id").and_then(|id| id.as_str())
            {
                unknown.remove(id);
            }
        }
    }
    let target = target.display();
    for id in &unknown {
        remark(format!("no record of {target} is called {}, which is evidence of a question", printable(id)));
    }
    Ok(())
}
