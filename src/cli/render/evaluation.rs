//! How well questions were answered, as a table.

use super::{first_words, printable};
use crate::cli::evaluation::ModeEvaluation;

/// Characters of a question that are shown.
const QUESTION_CHARS_MAX: usize = 100;
/// Hits that are shown in place of what was missed.
const WRONG_HITS_SHOWN_MAX: usize = 3;

/// Returns a line for each mode, and below it the worst questions.
pub fn render(evaluations: &[ModeEvaluation], k: usize, missed: usize) -> String {
    let mut text = format!(
        "{:8} {:>9} {:>10} {:>8} {:>6}\n",
        "mode",
        "questions",
        format!("recall@{k}"),
        format!("nDCG@{k}"),
        "MRR"
    );
    for ModeEvaluation { mode, questions, mean, .. } in evaluations {
        let [recall, ndcg, mrr] = [mean.recall, mean.ndcg, mean.reciprocal_rank].map(|share| 100.0 * share);
        text += &format!("{mode:8} {questions:>9} {recall:>10.1} {ndcg:>8.1} {mrr:>6.1}\n");
    }
    for evaluation in evaluations.iter().filter(|evaluation| missed > 0 && !evaluation.missed.is_empty()) {
        let incomplete = evaluation.missed.len();
        text += &format!("\n{}: evidence of {incomplete} was not all found; the worst:\n", evaluation.mode);
        for question in evaluation.missed.iter().take(missed) {
            let instead: Vec<String> =
                question.wrong_hits.iter().take(WRONG_HITS_SHOWN_MAX).map(|name| printable(name)).collect();
            let instead = if instead.is_empty() { "nothing".to_owned() } else { instead.join(", ") };
            text += &format!(
                "  line {}: {}\n    missed {}; found {instead}\n",
                question.line,
                first_words(&question.question, QUESTION_CHARS_MAX),
                printable(&question.missed.join(", ")),
            );
        }
    }
    text
}
