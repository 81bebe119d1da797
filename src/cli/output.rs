//! Standard output: data for people or for programs, and nothing else.

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Write};

use serde_json::Value;

use super::failure::CommandError;

/// Colours of the terminal's own palette.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// Hashes.
    Yellow,
    /// What is well, or was added.
    Green,
    /// What is wrong, or was deleted.
    Red,
    /// What stands back.
    Dim,
}

impl Paint {
    fn code(self) -> &'static str {
        match self {
            Paint::Yellow => "33",
            Paint::Green => "32",
            Paint::Red => "31",
            Paint::Dim => "2",
        }
    }
}

/// Where a verb puts its data.
pub struct Output {
    json: bool,
    colour: bool,
    sink: BufWriter<Box<dyn Write>>,
}

impl Output {
    /// Returns the process's standard output; with `json` each answer is a line of JSON. It is coloured on a terminal
    /// that can be, unless `NO_COLOR` is set or `json`.
    pub fn stdout(json: bool) -> Output {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let able = io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Output { json, colour: wanted && able && !json, sink: BufWriter::new(Box::new(io::stdout())) }
    }

    /// Returns whether programs read it, as `--json` says.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Returns whether colours are wanted: on a terminal that has them, without `NO_COLOR` and `--json`.
    pub fn is_coloured(&self) -> bool {
        self.colour
    }

    /// Writes one line. Fails if standard output can't be written; `Exit::Done` if its reader went away.
    pub fn line(&mut self, text: impl Display) -> Result<(), CommandError> {
        writeln!(self.sink, "{text}").map_err(|e| CommandError::output(&e))
    }

    /// Writes text as it is, with a line end where it lacks one. Fails like [`Output::line`].
    pub fn text(&mut self, text: &str) -> Result<(), CommandError> {
        self.bytes(text.as_bytes())?;
        if text.is_empty() || text.ends_with('\n') { Ok(()) } else { self.bytes(b"\n") }
    }

    /// Writes bytes as they are. Fails like [`Output::line`].
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), CommandError> {
        self.sink.write_all(bytes).map_err(|e| CommandError::output(&e))
    }

    /// Writes `value` as one line where programs read, and nothing where people do. Fails like [`Output::line`].
    pub fn json_only(&mut self, value: &Value) -> Result<(), CommandError> {
        if self.json { self.line(value) } else { Ok(()) }
    }

    /// Hands on what is buffered. Fails like [`Output::line`].
    pub fn flush(&mut self) -> Result<(), CommandError> {
        self.sink.flush().map_err(|e| CommandError::output(&e))
    }
}

/// Returns `text` in a colour, or as it is where none are wanted.
pub fn paint(coloured: bool, paint: Paint, text: &str) -> String {
    if coloured { format!("\x1b[{}m{text}\x1b[0m", paint.code()) } else { text.to_owned() }
}

/// Writes one line to standard error, where everything goes that is not data.
pub fn remark(text: impl Display) {
    // Nobody is left to be told when standard error is closed.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes a warning to standard error.
pub fn warn(text: impl Display) {
    remark(format_args!("engramfs: warning: {text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_appear_only_where_wanted() {
        assert_eq!(paint(false, Paint::Red, "x"), "x");
        assert_eq!(paint(true, Paint::Red, "x"), "\x1b[31mx\x1b[0m");
    }
}
