//! One line that shows how far a long verb has come: on standard error, where that is a terminal.

use std::cell::Cell;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// What takes no longer is not shown.
const SHOW_DELAY: Duration = Duration::from_secs(1);

/// The line is written again no sooner than this.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

/// Goes to the begin of the line and clears it (ECMA-48, EL).
const CLEAR_LINE: &str = "\r\x1b[K";

/// A line that is written again and again in its place, and goes when it is dropped.
struct TerminalLine {
    is_hidden: bool,
    begin: Instant,
    drawn: Cell<Option<Instant>>,
}

impl TerminalLine {
    /// Shows nothing yet, and never anything where `hidden` is set or standard error is not a terminal.
    fn new(hidden: bool) -> TerminalLine {
        TerminalLine { is_hidden: hidden || !stderr().is_terminal(), begin: Instant::now(), drawn: Cell::new(None) }
    }

    /// Writes the line, unless that would be too soon.
    fn draw(&self, text: impl FnOnce(Duration) -> String) {
        let elapsed = self.begin.elapsed();
        let is_soon = self.drawn.get().is_some_and(|drawn| drawn.elapsed() < REDRAW_INTERVAL);
        if self.is_hidden || elapsed < SHOW_DELAY || is_soon {
            return;
        }
        self.drawn.set(Some(Instant::now()));
        // A terminal that went away takes the line with it; the verb goes on.
        let _ = write!(stderr(), "{CLEAR_LINE}{}", text(elapsed));
    }
}

impl Drop for TerminalLine {
    fn drop(&mut self) {
        if self.drawn.get().is_some() {
            // As when it was drawn, a terminal that went away is no failure of the verb.
            let _ = write!(stderr(), "{CLEAR_LINE}");
        }
    }
}

/// Says what is waited for and for how long, once that takes more than a second.
pub struct WaitingLine {
    label: String,
    line: TerminalLine,
}

impl WaitingLine {
    /// Begins to wait, and shows nothing yet.
    pub fn new(label: String, hidden: bool) -> WaitingLine {
        WaitingLine { label, line: TerminalLine::new(hidden) }
    }

    /// Shows the seconds so far, unless the line was drawn a moment ago: to be called as often as one likes.
    pub fn tick(&self) {
        self.line.draw(|elapsed| format!("{} {} s", self.label, elapsed.as_secs()));
    }
}

/// Says how many are done of how many, and how long the rest takes at the speed so far.
pub struct ProgressLine {
    quantity: Quantity,
    done: Cell<u64>,
    line: TerminalLine,
}

enum Quantity {
    /// Bytes, of so many.
    Bytes(u64),
    /// What has this plural name, such as `entries`.
    Items(&'static str),
}

impl ProgressLine {
    /// Begins with none of `all` bytes read; shows nothing where programs read what is printed (`hidden`) or standard error is
    /// not a terminal.
    pub fn for_bytes(all: u64, hidden: bool) -> ProgressLine {
        ProgressLine { quantity: Quantity::Bytes(all), done: Cell::new(0), line: TerminalLine::new(hidden) }
    }

    /// Begins to count things of which the number is not known yet; hidden as [`ProgressLine::for_bytes`] says.
    pub fn for_items(name: &'static str, hidden: bool) -> ProgressLine {
        ProgressLine { quantity: Quantity::Items(name), done: Cell::new(0), line: TerminalLine::new(hidden) }
    }

    /// Says how many are done, and of how many.
    pub fn update(&self, done: u64, all: u64) {
        self.line.draw(|elapsed| self.quantity.render(done, all, elapsed));
    }

    /// Adds bytes that are read.
    pub fn advance(&self, bytes: u64) {
        self.done.set(self.done.get() + bytes);
        if let Quantity::Bytes(all) = self.quantity {
            self.update(self.done.get(), all);
        }
    }
}

impl Quantity {
    fn render(&self, done: u64, all: u64, elapsed: Duration) -> String {
        let counts = match self {
            Quantity::Bytes(_) => format!("{} of {} MiB", done >> 20, all >> 20),
            Quantity::Items(name) => format!("{done} of {all} {name}"),
        };
        let rest = elapsed.as_secs_f64() * all.saturating_sub(done) as f64 / done.max(1) as f64;
        format!("{counts}, about {} s left", rest.ceil() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_told_at_the_speed_so_far() {
        let second = Duration::from_secs(1);
        assert_eq!(Quantity::Bytes(0).render(3 << 20, 9 << 20, second), "3 of 9 MiB, about 2 s left");
        assert_eq!(Quantity::Items("entries").render(10, 10, second), "10 of 10 entries, about 0 s left");
        assert_eq!(Quantity::Items("entries").render(0, 10, second), "0 of 10 entries, about 10 s left");
    }

    #[test]
    fn what_programs_read_is_not_shown() {
        let line = ProgressLine::for_bytes(10, true);
        line.advance(10);
        assert_eq!(line.line.drawn.get(), None);
    }
}
