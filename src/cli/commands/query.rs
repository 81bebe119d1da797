//! `engramfs query`: asks a branch.

use std::io::BufRead;
use std::path::PathBuf;

use serde_json::{Map, Value};

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
  engramfs query ~/memory:main - --json < queries.jsonl")]
pub struct Args {
    /// The branch: its directory under a mount, or STORE:NAME-PATH.
    target: PathBuf,
    /// The query, or - to read one a line from standard input; after -- it may begin with a dash.
    #[arg(required = true)]
    pub query: Vec<String>,
    /// How many hits are wanted (10 where the query does not say).
    #[arg(long, value_name = "N")]
    pub k: Option<u32>,
    /// Asks what the branch was: behind an entry, at a time such as -2h or 2026-11-24T09:00:00Z, or at a checkpoint.
    #[arg(long, value_name = "ENTRY|TIME|LABEL", allow_hyphen_values = true)]
    pub at: Option<String>,
}

impl Args {
    fn print_answers(&self, session: &mut dyn QuerySession, out: &mut Output) -> Result<(), CommandError> {
        for line in std::io::stdin().lock().lines() {
            let line = line.map_err(|e| {
                CommandError::new(Exit::Failed, "input", format!("standard input cannot be read: {e}"), "send UTF-8")
            })?;
            if !line.trim().is_empty() {
                self.print_answer(session, &line, out)?;
                // Whoever asks in turn waits for this answer.
                out.flush()?;
            }
        }
        Ok(())
    }

    fn print_answer(&self, session: &mut dyn QuerySession, words: &str, out: &mut Output) -> Result<(), CommandError> {
        let answer = session.query(&self.query(words))?;
        if out.is_json() {
            return out.text(&answer);
        }
        let rendered = hits::render(&answer, out.is_coloured());
        rendered.remarks.iter().for_each(remark);
        out.text(&rendered.hits)
    }

    /// Puts the options into a query. Anything but a JSON object is left to the branch to refuse.
    fn query(&self, words: &str) -> String {
        let options = [("k", self.k.map(Value::from)), ("at", self.at.clone().map(Value::from))];
        let given = options.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        let given: Map<String, Value> = given.collect();
        if given.is_empty() {
            return words.to_owned();
        }
        let asked = match words.trim_start().starts_with('{') {
            true => serde_json::from_str(words),
            false => Ok(Map::from_iter([("text".to_owned(), Value::from(words))])),
        };
        asked.map_or_else(
            |_| words.to_owned(),
            |asked| Value::Object(asked.into_iter().chain(given).collect()).to_string(),
        )
    }
}

/// Asks a branch one query, or each line of standard input for `-`, and prints the answers. Fails if the target is not
/// a branch that the user may read, and as the query does.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let target = Target::parse(&args.target)?;
    target.with_branch(Access::Read, |branch| {
        let mut session = branch.open_session()?;
        match args.query.as_slice() {
            [dash] if dash == "-" => args.print_answers(&mut *session, out),
            words => args.print_answer(&mut *session, &words.join(" "), out),
        }
    })?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_go_into_words_and_objects_alike() {
        let query = |words: &str, k: Option<u32>, at: Option<&str>| {
            let at = at.map(str::to_owned);
            Args { target: PathBuf::new(), query: Vec::new(), k, at }.query(words)
        };
        assert_eq!(query("two words", None, None), "two words");
        assert_eq!(query("two words", Some(3), None), r#"{"k":3,"text":"two words"}"#);
        assert_eq!(query(r#" {"text":"a","k":1}"#, Some(3), Some("-2h")), r#"{"at":"-2h","k":3,"text":"a"}"#);
        assert_eq!(query("{broken", Some(3), None), "{broken");
    }
}
