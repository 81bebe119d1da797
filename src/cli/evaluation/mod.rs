//! How well a branch answers questions whose answers are known.

mod measures;
mod question;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::failure::CommandError;
use super::target::QuerySession;
pub use measures::RetrievalScore;
pub use question::{Question, read_questions};

/// The modes, as queries name them.
const MODES: [&str; 3] = ["text", "vector", "hybrid"];

/// How well the questions were answered in one mode.
pub struct ModeEvaluation {
    /// The mode, as queries name it.
    pub mode: &'static str,
    /// How many could be asked in this mode.
    pub questions: usize,
    /// The mean over them.
    pub mean: RetrievalScore,
    /// The questions whose evidence was not all found, the worst first.
    pub missed: Vec<MissedQuestion>,
}

/// A question whose evidence was not all among the first hits.
pub struct MissedQuestion {
    /// Its line in the file, from 1.
    pub line: usize,
    /// Its words; empty where it has a vector alone.
    pub question: String,
    /// What its first hits were worth in this mode.
    pub score: RetrievalScore,
    /// The ids of the evidence that was not found.
    pub missed: Vec<String>,
    /// The hits before the last evidence found that are no evidence, best first.
    pub wrong_hits: Vec<String>,
}

/// Asks every question in each mode that it can be asked in. The first question that is refused ends it.
pub fn evaluate(
    session: &mut dyn QuerySession,
    questions: &[Question],
    k: usize,
) -> Result<Vec<ModeEvaluation>, CommandError> {
    let mut evaluations = Vec::new();
    for mode in MODES {
        let (mut asked, mut sum, mut missed) = (0, RetrievalScore::default(), Vec::new());
        for question in questions {
            let Some(query) = question.query(mode, k) else { continue };
            let answer = session.query(&query).map_err(|failure| question.failed(failure))?;
            let Some(hits) = parse_hits(&answer, mode) else { continue };
            let (score, missing) = score_question(question, &hits, k);
            asked += 1;
            sum.add(score);
            missed.extend(missing);
        }
        if asked > 0 {
            missed.sort_by(|a: &MissedQuestion, b| a.score.recall.total_cmp(&b.score.recall));
            evaluations.push(ModeEvaluation { mode, questions: asked, mean: sum.divided_by(asked), missed });
        }
    }
    Ok(evaluations)
}

/// Returns what the hits of an answer name, best first; `None` if it was answered in another mode.
fn parse_hits(answer: &str, mode: &str) -> Option<Vec<String>> {
    let mut lines = answer.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let header = lines.next()?;
    (header["mode"] == mode).then(|| lines.filter_map(|hit| hit_name(&hit)).collect())
}

/// Returns a record's id, or a file's path with `files/` in front.
fn hit_name(hit: &Value) -> Option<String> {
    hit["id"].as_str().or_else(|| hit["path"].as_str()).map(str::to_owned)
}

fn score_question(question: &Question, hits: &[String], k: usize) -> (RetrievalScore, Option<MissedQuestion>) {
    let mut seen = BTreeSet::new();
    // Several passages of a file count once.
    let hits: Vec<&str> = hits.iter().map(String::as_str).filter(|hit| seen.insert(*hit)).take(k).collect();
    let evidence: BTreeSet<&str> = question.evidence.iter().map(String::as_str).collect();
    let score = RetrievalScore::from_hits(&hits, &evidence, k);
    let missed: Vec<String> =
        evidence.iter().filter(|wanted| !hits.contains(wanted)).map(|wanted| (*wanted).to_owned()).collect();
    let wrong_hits = hits.iter().filter(|hit| !evidence.contains(**hit)).map(|hit| (*hit).to_owned()).collect();
    let missed = (!missed.is_empty()).then(|| MissedQuestion {
        line: question.line,
        question: question.text.clone(),
        score,
        missed,
        wrong_hits,
    });
    (score, missed)
}

impl ModeEvaluation {
    /// Returns the figures: `recall`, `ndcg` and `mrr` are means over all questions, 0 to 1; `questions` and `missed`
    /// count them. `k` is how many hits were looked at.
    pub fn to_json(&self, k: usize) -> Value {
        json!({
            "mode": self.mode, "k": k, "questions": self.questions, "recall": self.mean.recall, "ndcg": self.mean.ndcg,
            "mrr": self.mean.reciprocal_rank, "missed": self.missed.len(),
        })
    }
}

impl MissedQuestion {
    /// Returns the question, what was not found, and what was found in its place.
    pub fn to_json(&self, mode: &str) -> Value {
        json!({
            "mode": mode, "line": self.line, "question": self.question, "recall": self.score.recall,
            "missed": self.missed, "instead": self.wrong_hits,
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    /// Answers every query with the same hits, in the mode that was asked for or always by text.
    struct Answering(bool);

    impl QuerySession for Answering {
        fn query(&mut self, query: &str) -> Result<String, CommandError> {
            let asked: Value = serde_json::from_str(query).unwrap();
            let mode = if self.0 { asked["mode"].clone() } else { "text".into() };
            let hits = [
                "{\"id\":\"x\"}",
                "{\"id\":\"a\"}",
                "{\"path\":\"files/n.md\"}",
                "{\"path\":\"files/n.md\"}",
                "{\"id\":\"b\"}",
            ];
            Ok(format!("{}\n{}\n", json!({ "mode": mode }), hits.join("\n")))
        }
    }

    fn questions() -> Vec<Question> {
        let lines = concat!(
            "{\"question\":\"one\",\"evidence\":[\"a\",\"files/n.md\"]}\n\n",
            "{\"text\":\"two\",\"vector\":[1,2],\"evidence\":[\"b\"],\"group\":7}\n",
        );
        read_questions("q".as_ref(), lines.as_bytes()).unwrap()
    }

    #[test]
    fn each_mode_counts_the_questions_that_it_answers() {
        let evaluations = evaluate(&mut Answering(true), &questions(), 3).unwrap();
        let modes: Vec<(&str, usize)> = evaluations.iter().map(|one| (one.mode, one.questions)).collect();
        assert_eq!(modes, [("text", 2), ("vector", 2), ("hybrid", 2)]);
        let text = &evaluations[0];
        // The first question finds both, the second nothing among three.
        assert_eq!((text.mean.recall, text.mean.reciprocal_rank), (0.5, 0.25));
        let missed = &text.missed[0];
        assert_eq!((missed.line, &*missed.question, &missed.missed[..]), (3, "two", &["b".to_owned()][..]));
        assert_eq!(missed.wrong_hits, ["x", "a", "files/n.md"]);
        let by_text = evaluate(&mut Answering(false), &questions(), 10).unwrap();
        assert_eq!(by_text.len(), 1);
        assert_eq!(by_text[0].mean.recall, 1.0);
    }
}
