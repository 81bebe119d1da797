//! What shows how far a long verb has come; on a terminal only.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// What takes no longer is not shown.
const SHOW_DELAY: Duration = Duration::from_secs(1);

/// Says what is waited for and for how long, once that takes more than a moment.
pub struct Waiting {
    bar: ProgressBar,
    begin: Instant,
}

impl Waiting {
    /// Begins to wait, and shows nothing yet.
    pub fn new(label: String, hidden: bool) -> Waiting {
        let bar = if hidden || !stderr().is_terminal() { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        Waiting { bar: bar.with_style(style).with_message(label), begin: Instant::now() }
    }

    /// Waits on.
    pub fn tick(&self) {
        if self.begin.elapsed() >= SHOW_DELAY {
            self.bar.tick();
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// How far a file has been read, or how many of something are done.
pub struct ProgressLine(ProgressBar);

impl ProgressLine {
    /// Shows a bar for `length` bytes, unless programs read what is printed or standard error is not a terminal.
    pub fn new(length: u64, hidden: bool) -> ProgressLine {
        if hidden || !stderr().is_terminal() {
            return ProgressLine(ProgressBar::hidden());
        }
        let style = ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}");
        // A template that can't be read gives the plain bar.
        ProgressLine(ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
    }

    /// Shows a bar for things that are counted, of which the number is not known yet; hidden as [`ProgressLine::new`] says.
    pub fn counting(label: &str, hidden: bool) -> ProgressLine {
        if hidden || !stderr().is_terminal() {
            return ProgressLine(ProgressBar::hidden());
        }
        let style = ProgressStyle::with_template(&format!("{{wide_bar}} {{pos}}/{{len}} {label} {{eta}}"));
        ProgressLine(ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
    }

    /// Says how many are done, and of how many.
    pub fn reach(&self, done: u64, all: u64) {
        self.0.set_length(all);
        self.0.set_position(done);
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
