//! Who was how good: for people, for programs, and for the shared log.

use serde_json::{Value, json};

use super::{CandidateResult, Exploration};
use crate::cli::render::{first_words, printable};

/// Bytes of the longest entry; the log takes 64 KiB.
const ENTRY_BYTES: usize = 60 << 10;
/// Bytes of the longest note of a promote.
const NOTE_BYTES: usize = 4 << 10;
/// Characters of a candidate's own words, and of a command, in the table and in the log.
const CANDIDATE_CHARS_MAX: usize = 60;
const COMMAND_CHARS_MAX: usize = 500;

/// What became of a candidate, as the table and the entry of the log say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the target now.
    Promoted,
    /// It was good enough, and another one was promoted.
    NotChosen,
    /// A gate or a conflict was against it, or it could not be promoted.
    Refused,
    /// Its score was below the least.
    TooLow,
    /// Its scorer failed, or the last line of what that printed is no finite number.
    NoScore,
    /// It was killed at its limit, or its scorer was.
    TimedOut,
    /// It could not be forked, started or frozen, or its command failed.
    Failed,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Outcome::Promoted => "promoted",
            Outcome::NotChosen => "not chosen",
            Outcome::Refused => "refused",
            Outcome::TooLow => "too low",
            Outcome::NoScore => "no score",
            Outcome::TimedOut => "timed out",
            Outcome::Failed => "failed",
        }
    }
}

/// The candidates, the best first, each with its rank where it has a score.
pub struct Ranking<'a>(Vec<(Option<usize>, &'a CandidateResult)>);

impl<'a> Ranking<'a> {
    /// Ranks by score; of equal ones the first in the order of candidates is better, and those without come last.
    pub fn new(explored: &'a [CandidateResult]) -> Ranking<'a> {
        let mut order: Vec<&CandidateResult> = explored.iter().collect();
        // The sort is stable, so that equal scores stay in the order of candidates.
        order.sort_by(|one, other| match (one.score, other.score) {
            (Some(one), Some(other)) => other.total_cmp(&one),
            (one, other) => other.is_some().cmp(&one.is_some()),
        });
        let ranked = order.into_iter().enumerate();
        Ranking(ranked.map(|(at, candidate)| (candidate.score.map(|_| at + 1), candidate)).collect())
    }

    /// Returns the numbers of those candidates that are good enough, the best first.
    pub fn eligible_candidates(&self) -> Vec<usize> {
        let good = self.0.iter().filter(|(_, candidate)| candidate.outcome == Outcome::NotChosen);
        good.map(|(_, candidate)| candidate.number).collect()
    }

    /// Returns one line for each, under a line that names the columns.
    pub fn table(&self, exploration: &Exploration<'_>) -> String {
        let row = |(rank, candidate): &(Option<usize>, &CandidateResult)| {
            let shown = first_words(&exploration.candidates[candidate.number], CANDIDATE_CHARS_MAX);
            let score = candidate.score.map_or_else(|| "-".to_owned(), |score| score.to_string());
            let rank = rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string());
            [rank, shown, score, candidate.outcome.word().to_owned(), printable(&describe(exploration, candidate))]
        };
        let mut rows = vec![["rank", "candidate", "score", "outcome", ""].map(str::to_owned)];
        rows.extend(self.0.iter().map(row));
        let wide: [usize; 5] =
            std::array::from_fn(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0));
        let line = |[rank, name, score, outcome, detail]: &[String; 5]| {
            let [w0, w1, w2, w3, _] = wide;
            format!("{rank:>w0$}  {name:w1$}  {score:>w2$}  {outcome:w3$}  {detail}").trim_end().to_owned() + "\n"
        };
        rows.iter().map(line).collect()
    }

    /// Returns one object for each.
    pub fn lines(&self, exploration: &Exploration<'_>) -> Vec<Value> {
        let line = |(rank, candidate): &(Option<usize>, &CandidateResult)| {
            let mut line = json!({
                "rank": rank, "candidate": exploration.candidates[candidate.number], "score": candidate.score,
                "outcome": candidate.outcome.word(),
            });
            if !candidate.detail.is_empty() {
                line["detail"] = candidate.detail.as_str().into();
            }
            if let Some(branch) = kept_branch(exploration, candidate) {
                line["branch"] = branch.into();
            }
            line
        };
        self.0.iter().map(line).collect()
    }

    /// Returns one line for the entry of the promote. Of very many candidates it names the best.
    pub fn note(&self, exploration: &Exploration<'_>) -> String {
        let mut note = format!("best of {} candidates:", self.0.len());
        for (rank, candidate) in &self.0 {
            let shown = first_words(&exploration.candidates[candidate.number], CANDIDATE_CHARS_MAX);
            let place = match (rank, candidate.score) {
                (Some(rank), Some(score)) => format!(" {rank}. {shown} ({score});"),
                _ => format!(" {shown} ({});", candidate.outcome.word()),
            };
            if note.len() + place.len() > NOTE_BYTES {
                break;
            }
            note.push_str(&place);
        }
        note.trim_end_matches(';').split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Returns the entry of the shared log. Of very many candidates it names the best.
    pub fn log_entry(&self, exploration: &Exploration<'_>) -> Value {
        let promoted = self.0.iter().find(|(_, candidate)| candidate.outcome == Outcome::Promoted);
        let shown =
            |candidate: &CandidateResult| first_words(&exploration.candidates[candidate.number], CANDIDATE_CHARS_MAX);
        let end = promoted.map_or_else(
            || "none was promoted".to_owned(),
            |(_, best)| format!("{} was promoted, with score {}", shown(best), best.score.unwrap_or_default()),
        );
        let mut ranking: Vec<Value> = self.0.iter().map(|(rank, candidate)| json!({
            "rank": rank, "candidate": shown(candidate), "score": candidate.score, "outcome": candidate.outcome.word(),
        })).collect();
        loop {
            let entry = json!({
                "text": format!("explored {} candidates: {end}", self.0.len()), "kind": "explore",
                "metadata": {
                    "run": first_words(exploration.run, COMMAND_CHARS_MAX), "score": first_words(exploration.score, COMMAND_CHARS_MAX),
                    "candidates": self.0.len(), "ranking": ranking,
                },
            });
            if entry.to_string().len() <= ENTRY_BYTES || ranking.is_empty() {
                return entry;
            }
            ranking.truncate(ranking.len() / 2);
        }
    }
}

/// Returns the branch of a candidate that stays.
fn kept_branch<'a>(exploration: &Exploration<'_>, candidate: &'a CandidateResult) -> Option<&'a str> {
    let branch = candidate.branch.as_ref().filter(|_| exploration.keep && candidate.outcome != Outcome::Promoted);
    branch.map(|branch| &*branch.name)
}

fn describe(exploration: &Exploration<'_>, candidate: &CandidateResult) -> String {
    match kept_branch(exploration, candidate) {
        Some(branch) if candidate.detail.is_empty() => format!("in branches/{branch}"),
        Some(branch) => format!("{}, in branches/{branch}", candidate.detail),
        None => candidate.detail.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explored(number: usize, score: Option<f64>, outcome: Outcome) -> CandidateResult {
        CandidateResult { number, branch: None, score, outcome, detail: String::new() }
    }

    #[test]
    fn the_best_comes_first_and_of_equals_the_first_candidate() {
        let all = [
            explored(0, Some(1.0), Outcome::TooLow),
            explored(1, None, Outcome::Failed),
            explored(2, Some(7.0), Outcome::NotChosen),
            explored(3, Some(9.0), Outcome::NotChosen),
            explored(4, Some(7.0), Outcome::NotChosen),
        ];
        let ranking = Ranking::new(&all);
        assert_eq!(ranking.eligible_candidates(), [3, 2, 4]);
        let ranks: Vec<_> = ranking.0.iter().map(|(rank, candidate)| (*rank, candidate.number)).collect();
        assert_eq!(ranks, [(Some(1), 3), (Some(2), 2), (Some(3), 4), (Some(4), 0), (None, 1)]);
    }

    #[test]
    fn an_entry_of_very_many_candidates_fits_into_the_log() {
        let all: Vec<CandidateResult> = (0..2_000).map(|n| explored(n, Some(n as f64), Outcome::NotChosen)).collect();
        let names: Vec<String> = (0..2_000).map(|n| format!("{n} {}", "word ".repeat(40))).collect();
        let target = std::path::Path::new("/m/main");
        let exploration = Exploration {
            target,
            run: "r",
            score: "s",
            candidates: &names,
            jobs: 1,
            timeout: None,
            score_min: None,
            keep: false,
        };
        let entry = Ranking::new(&all).log_entry(&exploration);
        assert!(entry.to_string().len() <= ENTRY_BYTES);
        assert_eq!(entry["metadata"]["ranking"][0]["score"], 1_999.0);
    }
}
