//! Questions with what answers them, one a line.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;

/// How long a query may take: nobody waits for one of many.
const TIMEOUT_MS: u64 = 60_000;

/// A question with its evidence.
pub struct Question {
    /// Its line in the file, from 1; lines without a question count, too.
    pub line: usize,
    /// What is asked; empty where only a vector is.
    pub text: String,
    vector: Option<Value>,
    /// `filter` and `scope`.
    filter_and_scope: Map<String, Value>,
    /// The ids of records, and paths of files with `files/` in front, that answer it.
    pub evidence: BTreeSet<String>,
}

/// Reads JSON Lines: `question` or `text`, `vector`, `filter`, `scope`, and `evidence`. Other keys are ignored. Fails
/// at the first line that holds none, or if there are none at all.
pub fn read_questions(path: &Path, mut input: impl Read) -> Result<Vec<Question>, CommandError> {
    let mut text = String::new();
    input.read_to_string(&mut text).map_err(|error| CommandError::file("read", path, &error))?;
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    let questions: Vec<Question> =
        lines.map(|(line, number)| Question::parse(line, number, path)).collect::<Result<_, _>>()?;
    if questions.is_empty() {
        return Err(malformed(path, "holds no question"));
    }
    Ok(questions)
}

fn malformed(path: &Path, what: &str) -> CommandError {
    let hint = "write a line such as {\"question\":\"who rotates the keys?\",\"evidence\":[\"note-7\"]}";
    CommandError::new(Exit::Failed, "bad_question", format!("{} {what}", path.display()), hint)
}

impl Question {
    fn parse(line: &str, number: usize, path: &Path) -> Result<Question, CommandError> {
        let bad = |what: &str| malformed(path, &format!("has {what} in line {number}"));
        let mut keys: Map<String, Value> = serde_json::from_str(line).map_err(|_| bad("no JSON object"))?;
        let text = keys.remove("question").or_else(|| keys.remove("text")).unwrap_or_default();
        let text = if text.is_null() { "" } else { text.as_str().ok_or_else(|| bad("a question that is no text"))? };
        let vector = keys.remove("vector").filter(|vector| !vector.is_null());
        if text.is_empty() && vector.is_none() {
            return Err(bad("neither a question nor a vector"));
        }
        let ids = keys.remove("evidence").and_then(|ids| ids.as_array().cloned()).unwrap_or_default();
        let evidence: Option<BTreeSet<String>> = ids.iter().map(|id| id.as_str().map(str::to_owned)).collect();
        let evidence = evidence.filter(|ids| !ids.is_empty()).ok_or_else(|| bad("no list of evidence"))?;
        keys.retain(|key, _| matches!(key.as_str(), "filter" | "scope"));
        Ok(Question { line: number, text: text.to_owned(), vector, filter_and_scope: keys, evidence })
    }

    /// Returns the query's line of JSON for a mode (`text`, `vector` or `hybrid`) and `k` hits; `None` for `text` where
    /// the question has no text. With mode `vector` a question without a vector leaves its text to the branch's
    /// embedder.
    pub fn query(&self, mode: &str, k: usize) -> Option<String> {
        let mut query = self.filter_and_scope.clone();
        let is_text = !self.text.is_empty();
        if mode != "text" {
            self.vector.iter().for_each(|vector| drop(query.insert("vector".to_owned(), vector.clone())));
        }
        if is_text && (mode != "vector" || self.vector.is_none()) {
            query.insert("text".to_owned(), json!(self.text));
        }
        if mode == "text" && !is_text {
            return None;
        }
        query.extend([
            ("k".to_owned(), json!(k)),
            ("mode".to_owned(), json!(mode)),
            ("timeout_ms".to_owned(), json!(TIMEOUT_MS)),
        ]);
        Some(Value::Object(query).to_string())
    }

    /// Returns a failure to answer it, with the number of its line.
    pub fn failed(&self, failure: CommandError) -> CommandError {
        CommandError { message: format!("the question in line {} failed: {}", self.line, failure.message), ..failure }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_what_its_mode_compares_with() {
        let line = r#"{"question":"q","vector":[1],"filter":{"a":1},"evidence":["x"],"k":3}"#;
        let question = &read_questions("f".as_ref(), line.as_bytes()).unwrap()[0];
        let keys = |mode: &str| {
            let query: Map<String, Value> = serde_json::from_str(&question.query(mode, 5).unwrap()).unwrap();
            assert_eq!((&query["mode"], &query["k"]), (&json!(mode), &json!(5)));
            query.keys().cloned().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(keys("text"), "filter k mode text timeout_ms");
        assert_eq!(keys("vector"), "filter k mode timeout_ms vector");
        assert_eq!(keys("hybrid"), "filter k mode text timeout_ms vector");
    }

    #[test]
    fn a_bad_line_is_named() {
        for (line, said) in [
            ("no", "no JSON object in line 2"),
            (r#"{"evidence":["a"]}"#, "neither a question nor a vector in line 2"),
            (r#"{"question":7,"evidence":["a"]}"#, "a question that is no text in line 2"),
            (r#"{"question":"q"}"#, "no list of evidence in line 2"),
            (r#"{"question":"q","evidence":[]}"#, "no list of evidence in line 2"),
            (r#"{"question":"q","evidence":[7]}"#, "no list of evidence in line 2"),
        ] {
            let failure = read_questions("f".as_ref(), format!("\n{line}\n").as_bytes()).err().unwrap();
            assert_eq!((failure.message, &*failure.code), (format!("f has {said}"), "bad_question"));
        }
        assert_eq!(read_questions("f".as_ref(), &b" \n"[..]).err().unwrap().message, "f holds no question");
    }
}
