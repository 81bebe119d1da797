//! The answer to a query as a short list.

use serde_json::Value;

use super::outcome::state_name;
use super::{first_words, printable, text};
use crate::cli::output::{Paint, paint};

/// Characters of a hit's text.
const TEXT_CHARS_MAX: usize = 80;

/// An answer for people: its hits go to standard output, remarks do not.
#[derive(Debug, PartialEq, Eq)]
pub struct RenderedHits {
    /// One line a hit: rank, score, id, entry, or path and line, the first words.
    pub hits: String,
    /// What the header has to say beyond the hits; for standard error.
    pub remarks: Vec<String>,
}

/// Renders the lines of an answer: a header and the hits.
pub fn render(answer: &str, coloured: bool) -> RenderedHits {
    let mut lines = answer.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let header = lines.next().unwrap_or_default();
    let hits: Vec<Value> = lines.collect();
    let width = hits.iter().map(|hit| location(hit).chars().count()).max().unwrap_or(0);
    let mut remarks = Vec::new();
    if !text(&header, "reason").is_empty() {
        remarks.push(printable(&format!("answered by {}: {}", text(&header, "mode"), text(&header, "reason"))));
    }
    if let Some(state) = header.get("at") {
        remarks.push(format!("asked as it was at {}", state_name(state)));
    }
    if hits.is_empty() {
        remarks.push("nothing was found".to_owned());
    }
    let line = |hit: &Value| {
        let rank = hit.get("rank").and_then(Value::as_u64).unwrap_or(0);
        let score = hit.get("score").and_then(Value::as_f64).unwrap_or(0.0);
        let id = paint(coloured, Paint::Yellow, &format!("{:width$}", location(hit)));
        let line = format!("{rank:>3}  {score:>8.4}  {id}  {}", first_words(text(hit, "text"), TEXT_CHARS_MAX));
        format!("{}\n", line.trim_end())
    };
    RenderedHits { hits: hits.iter().map(line).collect(), remarks }
}

/// Returns a record's id, an entry's number, or where the passage of a file is, in the form that editors open.
fn location(hit: &Value) -> String {
    let number = |key: &str| hit.get(key).and_then(Value::as_u64);
    match (text(hit, "path"), number("line"), number("entry_id")) {
        (path, Some(line), _) => format!("{}:{line}", printable(path)),
        (_, _, Some(entry)) => format!("{} {entry}", printable(text(hit, "source"))),
        _ => printable(text(hit, "id")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"q":0,"ok":true,"hits":2,"mode":"text","reason":"no vector was given"}"#;

    #[test]
    fn hits_stand_in_columns_and_the_reason_beside() {
        let answer = format!(
            "{HEADER}\n{}\n{}\n",
            r#"{"q":0,"rank":1,"id":"long-id","score":0.93,"text":"first\nwords"}"#,
            r#"{"q":0,"rank":2,"path":"files/a.md","line":7,"score":-12.5,"text":null}"#
        );
        let rendered = render(&answer, false);
        assert_eq!(rendered.hits, "  1    0.9300  long-id       first words\n  2  -12.5000  files/a.md:7\n");
        assert_eq!(rendered.remarks, ["answered by text: no vector was given"]);
    }

    #[test]
    fn the_state_that_a_time_led_to_is_named() {
        let header = r#"{"q":0,"ok":true,"hits":0,"at":{"checkpoint":null,"entry":7,"time":"2026-11-25T18:04:08Z"}}"#;
        let remarks = ["asked as it was at entry 7 of 2026-11-25T18:04:08Z", "nothing was found"];
        assert_eq!(render(header, false).remarks, remarks);
    }

    #[test]
    fn a_path_forges_no_line_of_the_answer() {
        let hit = r#"{"q":0,"rank":1,"path":"files/a\n  1  forged\u001b[2J","line":7,"score":1.0,"text":"t"}"#;
        let rendered = render(&format!("{HEADER}\n{hit}\n"), false);
        assert_eq!(rendered.hits, "  1    1.0000  files/a\\n  1  forged\\u{1b}[2J:7  t\n");
    }

    #[test]
    fn an_empty_answer_says_so_beside_the_data() {
        let rendered = render("{\"q\":0,\"ok\":true,\"hits\":0}\n", false);
        assert_eq!((rendered.hits.as_str(), rendered.remarks), ("", vec!["nothing was found".to_owned()]));
    }
}
