//! `errors`: why something was refused, each line for whom it was refused and for the branch's owner.

use std::collections::VecDeque;

use serde_json::Value;

use super::errno::Errno;
use super::refusal::Refusal;
use crate::memory::{Advice, Time};
use crate::sync::Mutex;

/// How many refusals a branch remembers.
const LINES_MAX: usize = 1_000;
/// Bytes of all of them.
const BYTES_MAX: usize = 256 << 10;
/// Bytes of the longest path, message or hint that is kept whole.
const FIELD_BYTES_MAX: usize = 2_048;

/// The last refusals of one branch, in RAM.
#[derive(Default)]
pub(super) struct ErrorLog {
    ring: Mutex<Ring>,
}

#[derive(Default)]
struct Ring {
    lines: VecDeque<ErrorLine>,
    bytes: usize,
}

struct ErrorLine {
    /// Who was refused; nobody where that is not known.
    uid: Option<u32>,
    text: String,
}

/// Who reads `errors`; it shows each reader other lines.
#[derive(Clone, Copy)]
pub(super) enum ErrorReader {
    /// The branch's owner, and root.
    Owner,
    /// Another, by uid, who sees what was refused to them.
    Other(u32),
}

impl ErrorReader {
    fn sees(self, line: &ErrorLine) -> bool {
        match self {
            ErrorReader::Owner => true,
            ErrorReader::Other(uid) => line.uid == Some(uid),
        }
    }
}

impl ErrorLog {
    /// Adds a line, and drops the oldest ones beyond [`LINES_MAX`] and [`BYTES_MAX`].
    pub fn add(&self, time: Time, uid: Option<u32>, path: &str, refusal: &Refusal) {
        let text = line(time, path, refusal);
        let mut ring = self.ring.lock();
        ring.bytes += text.len();
        ring.lines.push_back(ErrorLine { uid, text });
        while ring.lines.len() > LINES_MAX || ring.bytes > BYTES_MAX {
            let dropped = ring.lines.pop_front().map_or(0, |line| line.text.len());
            ring.bytes -= dropped;
        }
    }

    /// Returns the lines that somebody sees, oldest first.
    pub fn text(&self, reader: ErrorReader) -> Vec<u8> {
        let ring = self.ring.lock();
        let seen = ring.lines.iter().filter(|line| reader.sees(line));
        seen.flat_map(|line| line.text.bytes()).collect()
    }

    /// Returns the newest line that a reader may see; `None` if there is none.
    pub fn last(&self, reader: ErrorReader) -> Option<Value> {
        let ring = self.ring.lock();
        let line = ring.lines.iter().rev().find(|line| reader.sees(line))?;
        serde_json::from_str(&line.text).ok()
    }
}

/// Returns a refusal as one line of JSON, with keys in the order in which people read them.
fn line(time: Time, path: &str, refusal: &Refusal) -> String {
    let Advice { kind, code, hint } = refusal.advice();
    let errno = Errno::from(kind).name();
    let [path, message, hint] = [path, &refusal.to_string(), &hint].map(|field| Value::from(truncate_field(field)));
    format!(
        "{{\"time\":\"{time}\",\"path\":{path},\"errno\":\"{errno}\",\"code\":\"{code}\",\"message\":{message},\"hint\":{hint}}}\n"
    )
}

fn truncate_field(field: &str) -> &str {
    &field[..field.floor_char_boundary(FIELD_BYTES_MAX)]
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::memory::Error;

    fn error(message: &str) -> Refusal {
        Error::Damaged(message.to_owned()).into()
    }

    #[test]
    fn a_line_is_json_with_everything_that_the_contract_names() {
        let log = ErrorLog::default();
        log.add(Time(0), None, "vectors/a\"b.json", &error("has 2\nnumbers"));
        let text = log.text(ErrorReader::Owner);
        let line: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(line["path"], "vectors/a\"b.json");
        assert_eq!(line["errno"], "EIO");
        assert_eq!(line["code"], "damaged");
        assert_eq!(line["message"], "has 2\nnumbers");
        assert_eq!(line["hint"], "restore the store from a backup");
        assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(log.last(ErrorReader::Owner), Some(line));
    }

    #[test]
    fn everybody_sees_their_own_lines_and_the_owner_all() {
        let log = ErrorLog::default();
        for (uid, message) in [(Some(7), "of 7"), (Some(8), "of 8"), (None, "of nobody")] {
            log.add(Time(0), uid, "ctl", &error(message));
        }
        let count = |reader| String::from_utf8(log.text(reader)).unwrap().lines().count();
        assert_eq!((count(ErrorReader::Owner), count(ErrorReader::Other(7)), count(ErrorReader::Other(9))), (3, 1, 0));
        assert_eq!(log.last(ErrorReader::Other(7)).unwrap()["message"], "of 7");
        assert_eq!(log.last(ErrorReader::Other(9)), None);
    }

    #[test]
    fn the_last_thousand_are_kept() {
        let log = ErrorLog::default();
        for number in 0..1_003 {
            log.add(Time(0), None, "ctl", &error(&number.to_string()));
        }
        let text = String::from_utf8(log.text(ErrorReader::Owner)).unwrap();
        assert_eq!(text.lines().count(), 1_000);
        assert!(text.lines().next().unwrap().contains("\"message\":\"3\""));
    }

    #[test]
    fn long_names_push_out_older_lines_and_are_cut_between_characters() {
        let log = ErrorLog::default();
        for _ in 0..1_000 {
            log.add(Time(0), None, "x", &error(&"ä".repeat(FIELD_BYTES_MAX)));
        }
        let text = log.text(ErrorReader::Owner);
        // Another line of 2 KiB and what is around it would not fit.
        assert!((252 << 10..=256 << 10).contains(&text.len()), "{}", text.len());
        assert!(String::from_utf8(text).is_ok());
        log.add(Time(0), None, &"p".repeat(3_000), &error(&"ä".repeat(3_000)));
        let line = log.last(ErrorReader::Owner).unwrap();
        assert_eq!(["path", "message"].map(|field| line[field].as_str().unwrap().len()), [2_048; 2]);
    }
}
