//! `errors`: why something was refused.

use std::collections::VecDeque;

use serde_json::Value;

use super::errno::Errno;
use crate::memory::{Error, Time};
use crate::sync::Mutex;

/// How many refusals a branch remembers.
const LINES_MAX: usize = 1_000;
/// Bytes of the longest path, message or hint that is kept whole.
const FIELD_BYTES_MAX: usize = 4_096;

/// The last refusals of one branch, in RAM.
#[derive(Default)]
pub(super) struct ErrorLog {
    ring: Mutex<Ring>,
}

#[derive(Default)]
struct Ring {
    lines: VecDeque<String>,
    bytes: u64,
}

impl ErrorLog {
    /// Adds a line and returns it; drops the oldest one when there are more than [`LINES_MAX`].
    pub fn record(&self, time: Time, path: &str, error: &Error) -> Value {
        let line = line(time, path, error);
        let value = serde_json::from_str(&line).unwrap_or_default();
        let mut ring = self.ring.lock();
        ring.bytes += line.len() as u64;
        ring.lines.push_back(line);
        if ring.lines.len() > LINES_MAX {
            let dropped = ring.lines.pop_front().unwrap_or_default();
            ring.bytes -= dropped.len() as u64;
        }
        value
    }

    /// Returns all lines, oldest first.
    pub fn text(&self) -> Vec<u8> {
        let ring = self.ring.lock();
        let mut text = Vec::with_capacity(usize::try_from(ring.bytes).unwrap_or(0));
        ring.lines.iter().for_each(|line| text.extend_from_slice(line.as_bytes()));
        text
    }

    /// Returns the length of [`ErrorLog::text`] in bytes.
    pub fn length(&self) -> u64 {
        self.ring.lock().bytes
    }
}

/// Keys in the order in which people read them.
fn line(time: Time, path: &str, error: &Error) -> String {
    let errno = Errno::from(error.kind).name();
    let [path, message, hint] = [path, &error.message, &error.hint].map(|field| Value::from(shortened(field)));
    format!(
        "{{\"time\":\"{time}\",\"path\":{path},\"errno\":\"{errno}\",\"code\":\"{}\",\"message\":{message},\"hint\":{hint}}}\n",
        error.code
    )
}

fn shortened(field: &str) -> &str {
    let end = (0..=field.len().min(FIELD_BYTES_MAX)).rev().find(|&end| field.is_char_boundary(end));
    &field[..end.unwrap_or(0)]
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::memory::Kind;

    fn error(message: &str) -> Error {
        Error::new(Kind::Invalid, "wrong_dimension", message, "write 3 numbers")
    }

    #[test]
    fn a_line_is_json_with_everything_that_the_contract_names() {
        let log = ErrorLog::default();
        log.record(Time(0), "vectors/a\"b.json", &error("has 2\nnumbers"));
        let line: Value = serde_json::from_slice(&log.text()).unwrap();
        assert_eq!(line["path"], "vectors/a\"b.json");
        assert_eq!(line["errno"], "EINVAL");
        assert_eq!(line["code"], "wrong_dimension");
        assert_eq!(line["message"], "has 2\nnumbers");
        assert_eq!(line["hint"], "write 3 numbers");
        assert_eq!(log.text().iter().filter(|byte| **byte == b'\n').count(), 1);
    }

    #[test]
    fn the_last_thousand_are_kept_and_the_length_is_theirs() {
        let log = ErrorLog::default();
        for number in 0..1_003 {
            log.record(Time(0), "ctl", &error(&number.to_string()));
        }
        let text = String::from_utf8(log.text()).unwrap();
        assert_eq!(text.lines().count(), 1_000);
        assert!(text.lines().next().unwrap().contains("\"message\":\"3\""));
        assert_eq!(text.len() as u64, log.length());
    }

    #[test]
    fn a_field_without_end_is_cut_between_characters() {
        let log = ErrorLog::default();
        log.record(Time(0), "x", &error(&"ä".repeat(FIELD_BYTES_MAX)));
        assert!(log.length() < 2 * FIELD_BYTES_MAX as u64);
        assert!(String::from_utf8(log.text()).is_ok());
    }
}
