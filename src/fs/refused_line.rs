//! A line that was refused after its beginning had been taken.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::errno::Failure;

/// What a handle remembers of such a line.
///
/// The kernel makes several requests of one long write(2). If the last of them fails the write is short, and its writer
/// sends the rest: that is refused as well, and never taken for a new line.
pub(super) struct RefusedLine {
    failure: Failure,
    /// The rest of the line, once its end came.
    remainder: Option<LineRest>,
    is_reported: bool,
}

/// Bytes up to a line's end, to be known again.
#[derive(PartialEq, Eq)]
struct LineRest {
    length: usize,
    hash: u64,
}

impl LineRest {
    fn new(bytes: &[u8]) -> LineRest {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        LineRest { length: bytes.len(), hash: hasher.finish() }
    }

    /// Returns what ends a line; `None` if no line ends.
    fn from_first_line(data: &[u8]) -> Option<LineRest> {
        let end = data.iter().position(|byte| *byte == b'\n')?;
        Some(LineRest::new(&data[..=end]))
    }

    fn is_prefix_of(&self, data: &[u8]) -> bool {
        data.get(..self.length).is_some_and(|start| LineRest::new(start) == *self)
    }
}

impl RefusedLine {
    /// Notes that a request with `data`, which went on with the line, was refused.
    pub fn new(failure: Failure, data: &[u8]) -> RefusedLine {
        RefusedLine { failure, remainder: LineRest::from_first_line(data), is_reported: false }
    }

    /// Returns the refusal where `data` goes on with the line, or is its rest once more; `None` if it begins a new one.
    pub fn refuse(&mut self, data: &[u8]) -> Option<Failure> {
        if self.remainder.as_ref().is_some_and(|rest| !rest.is_prefix_of(data)) {
            return None;
        }
        self.remainder = LineRest::from_first_line(data);
        self.is_reported = true;
        Some(self.failure.clone())
    }

    /// Returns the refusal where the writer may have seen a short write alone: no rest ever came.
    pub fn into_unreported(self) -> Option<Failure> {
        (!self.is_reported).then_some(self.failure)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::fs::errno::Errno;

    fn refused(data: &[u8]) -> RefusedLine {
        RefusedLine::new(Errno::EINVAL.into(), data)
    }

    #[test]
    fn the_rest_is_refused_as_often_as_it_comes_and_a_new_line_is_not() {
        let mut line = refused(b"rest}\nnext\n");
        for again in ["rest}\nnext\n", "rest}\n", "rest}\nother"] {
            assert_eq!(line.refuse(again.as_bytes()).unwrap().errno(), Errno::EINVAL, "{again}");
        }
        assert!(line.refuse(b"new\n").is_none() && line.refuse(b"rest").is_none());
    }

    #[test]
    fn a_line_without_its_end_is_refused_until_the_end_comes() {
        let mut line = refused(b"too long");
        assert!(line.refuse(b" and longer").is_some());
        assert!(line.refuse(b" still\nnew\n").is_some());
        assert!(line.refuse(b"new\n").is_none());
    }

    #[test]
    fn a_refusal_that_no_writer_saw_is_told_later() {
        assert!(refused(b"rest\n").into_unreported().is_some());
        let mut line = refused(b"rest\n");
        line.refuse(b"rest\n").unwrap();
        assert!(line.into_unreported().is_none());
    }
}
