//! `engramfs query`: asks a branch.

use std::io::BufRead;

use serde_json::{Map, Value, json};

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::{Output, remark};
use crate::cli::render::hits;
use crate::cli::target::{Access, QuerySession, Target};

/// Asks a branch a query: bare words, or a JSON object as `query` takes it.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs query /mnt/memory/main \"how do I rotate the keys\"
  engramfs query ~/memory:main '{\"text\": \"keys\", \"filter\": {\"team\": \"ops\"}}' --k 3
  engramfs query ~/memory:main - --json < questions.jsonl")]
pub struct Args {
    /// The branch: its directory under a mount, or STORE:NAME-PATH.
    target: String,
    /// The query, or - to read one a line from standard input; after -- it may begin with a dash.
    #[arg(required = true)]
    pub query: Vec<String>,
    /// How many hits are wanted (10 where the query does not say).
    #[arg(long, value_name = "N")]
    pub k: Option<u32>,
}

pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let target: Target = args.target.parse()?;
    target.with(Access::Read, |branch| {
        let mut conversation = branch.converse()?;
        match args.query.as_slice() {
            [dash] if dash == "-" => ask_all(&mut *conversation, args.k, out),
            words => ask(&mut *conversation, &words.join(" "), args.k, out),
        }
    })?;
    Ok(Exit::Done)
}

fn ask_all(conversation: &mut dyn QuerySession, k: Option<u32>, out: &mut Output) -> Result<(), CommandError> {
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| {
            CommandError::new(Exit::Failed, "input", format!("standard input cannot be read: {e}"), "send UTF-8")
        })?;
        if !line.trim().is_empty() {
            ask(conversation, &line, k, out)?;
            // Whoever asks in turn waits for this answer.
            out.flush()?;
        }
    }
    Ok(())
}

fn ask(conversation: &mut dyn QuerySession, words: &str, k: Option<u32>, out: &mut Output) -> Result<(), CommandError> {
    let answer = conversation.ask(&query(words, k))?;
    if out.is_json() {
        return out.text(&answer);
    }
    let rendered = hits::render(&answer, out.is_coloured());
    rendered.remarks.iter().for_each(remark);
    out.text(&rendered.hits)
}

/// Puts `k` into a query. What is no JSON object is left to the branch to refuse.
fn query(words: &str, k: Option<u32>) -> String {
    let Some(k) = k else { return words.to_owned() };
    if !words.trim_start().starts_with('{') {
        return json!({ "text": words, "k": k }).to_string();
    }
    match serde_json::from_str::<Map<String, Value>>(words) {
        Ok(mut object) => {
            object.insert("k".to_owned(), json!(k));
            Value::Object(object).to_string()
        }
        Err(_) => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k_goes_into_words_and_objects_alike() {
        assert_eq!(query("two words", None), "two words");
        assert_eq!(query("two words", Some(3)), r#"{"k":3,"text":"two words"}"#);
        assert_eq!(query(r#" {"text":"a","k":1}"#, Some(3)), r#"{"k":3,"text":"a"}"#);
        assert_eq!(query("{broken", Some(3)), "{broken");
    }
}
