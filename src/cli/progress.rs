//! A bar that shows how far a long verb has come; on a terminal only.

use std::io::{IsTerminal, stderr};

use indicatif::{ProgressBar, ProgressStyle};

/// How far a file has been read.
pub struct Progress(ProgressBar);

impl Progress {
    /// Shows a bar for `length` bytes, unless programs read what is printed or standard error is no terminal.
    pub fn new(length: u64, hidden: bool) -> Progress {
        if hidden || !stderr().is_terminal() {
            return Progress(ProgressBar::hidden());
        }
        let style = ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}");
        // A template that can't be read gives the plain bar.
        Progress(ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
    }

    /// Adds bytes that are done.
    pub fn advance(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}
