//! JSON Lines, taken as they are: what a line means is decided where it is committed.

use std::io::{BufRead, Read};
use std::path::PathBuf;

use super::{InputRow, RowPosition, malformed};
use crate::cli::failure::CommandError;

/// More than any record may hold, so that a file without line ends is not read into memory as a whole.
const LINE_BYTES_MAX: u64 = 32 << 20;

/// The lines of a file that hold anything.
pub struct Lines<R> {
    path: PathBuf,
    input: R,
    number: usize,
    /// Bytes of empty lines that no row was returned for yet.
    skipped: u64,
}

impl<R: BufRead> Lines<R> {
    /// Reads `input`, which `path` names in errors.
    pub fn new(path: PathBuf, input: R) -> Lines<R> {
        Lines { path, input, number: 0, skipped: 0 }
    }

    /// Returns the next line with its line end; empty at the end of the file.
    fn line(&mut self) -> Result<Vec<u8>, CommandError> {
        let mut bytes = Vec::new();
        let read = self.input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes);
        read.map_err(|e| CommandError::file("read", &self.path, &e))?;
        self.number += 1;
        if bytes.len() as u64 == LINE_BYTES_MAX {
            return Err(malformed(
                &self.path,
                format!("holds over 32 MiB in line {}", self.number),
                "write one record a line",
            ));
        }
        Ok(bytes)
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Result<(InputRow, u64), CommandError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut bytes = match self.line() {
                Ok(bytes) if bytes.is_empty() => return None,
                Ok(bytes) => bytes,
                Err(failure) => return Some(Err(failure)),
            };
            let taken = self.skipped + bytes.len() as u64;
            bytes.truncate(bytes.trim_ascii_end().len());
            if bytes.is_empty() {
                self.skipped = taken;
                continue;
            }
            self.skipped = 0;
            return Some(Ok((InputRow::Line { position: RowPosition::Line(self.number), bytes }, taken)));
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_numbers_and_all_bytes_are_counted() {
        let text = b"{\"id\":\"a\"}\n\n  \r\n{\"id\":\"b\"}";
        let rows: Vec<(InputRow, u64)> = Lines::new("x".into(), &text[..]).collect::<Result<_, _>>().unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[1].0, InputRow::Line { position: RowPosition::Line(4), bytes: b"{\"id\":\"b\"}".to_vec() });
        assert_eq!(rows.iter().map(|(_, taken)| taken).sum::<u64>(), text.len() as u64);
    }

    #[test]
    fn a_file_without_line_ends_is_refused_in_bounded_memory() {
        let endless = std::io::BufReader::new(std::io::repeat(b'x'));
        let failure = Lines::new("x".into(), endless).next().unwrap().unwrap_err();
        assert!(failure.message.contains("line 1"), "{}", failure.message);
    }
}
