//! How a user names a state of a branch: `LABEL`, `ENTRY` or `TIME`.

use std::fmt;
use std::sync::Arc;

use crate::branch::{NameError, check_name};
use crate::object::{Hash, Time};

/// Names a state of a branch. A checkpoint with that label comes first; `@` in front forces the other reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    text: Arc<str>,
    point: Option<RevisionPoint>,
}

/// The entry or time that a revision names. A label of an earlier version may look the same, such as `17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevisionPoint {
    /// The state after the entry with that number, which has to be one of the branch's lineage.
    Number(u64),
    /// The state after the entry with that hash.
    Entry(Hash),
    /// The newest state at or before that moment.
    At(Time),
    /// The newest state at or before this many nanoseconds ago.
    NanosAgo(i64),
}

impl Revision {
    /// Parses a label, a number, 64 hex digits, a time in RFC 3339 with `Z`, or `-30s`, `-10m`, `-2h`, `-3d`.
    ///
    /// Fails if it is none of these and no name that a label may have. Whether there is such a state
    /// [`Memory::find_state`](crate::memory::Memory::find_state) tells.
    ///
    /// ```
    /// use engramfs::memory::Revision;
    ///
    /// for text in ["before-refactor", "17", "@17", "-30s", "2026-01-31T12:00:00Z"] {
    ///     assert_eq!(Revision::parse(text).unwrap().to_string(), text);
    /// }
    /// assert!(Revision::parse("a/b").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Revision, NameError> {
        let point = RevisionPoint::parse(text.strip_prefix('@').unwrap_or(text));
        if point.is_none() {
            check_name(text)?;
        }
        Ok(Revision { text: text.into(), point })
    }

    /// Returns the text. If a checkpoint has it as its label, that is what it means.
    pub fn label(&self) -> &Arc<str> {
        &self.text
    }

    /// Returns the time that it names; `None` for a label, and for an entry's number or hash.
    pub fn time(&self, now: Time) -> Option<Time> {
        match self.point? {
            RevisionPoint::At(time) => Some(time),
            RevisionPoint::NanosAgo(age) => Some(now.plus_nanos(age.saturating_neg())),
            RevisionPoint::Number(_) | RevisionPoint::Entry(_) => None,
        }
    }

    /// Returns the entry or time; `None` if it can only be a label.
    pub fn point(&self) -> Option<RevisionPoint> {
        self.point
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl RevisionPoint {
    fn parse(text: &str) -> Option<RevisionPoint> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && text.len() < 64 {
            return text.parse().map(RevisionPoint::Number).ok();
        }
        if let Ok(hash) = text.parse() {
            return Some(RevisionPoint::Entry(hash));
        }
        if let Some(age) = text.strip_prefix('-') {
            return parse_age(age).map(RevisionPoint::NanosAgo);
        }
        parse_time(text).map(RevisionPoint::At)
    }
}

/// Reads digits and `s`, `m`, `h` or `d`; the most there is where they are too many.
fn parse_age(text: &str) -> Option<i64> {
    let digits = text.trim_end_matches(['s', 'm', 'h', 'd']);
    let seconds = match text.strip_prefix(digits)? {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse::<i64>().unwrap_or(i64::MAX).saturating_mul(seconds).saturating_mul(1_000_000_000))
}

/// Reads a time in RFC 3339 with `Z`; the last one there is where it is later.
fn parse_time(text: &str) -> Option<Time> {
    let has_form = text.ends_with(['Z', 'z']) && text.as_bytes().get(10).is_some_and(|byte| b"Tt".contains(byte));
    let time: jiff::Timestamp = text.parse().ok().filter(|_| has_form)?;
    let nanos = time.as_nanosecond().clamp(i64::MIN.into(), i64::MAX.into());
    i64::try_from(nanos).ok().map(Time)
}

/// Checks the label of a new checkpoint: a name that reads as nothing else. [`NameError::Ambiguous`] for what begins
/// with `@`, is a number or reads as a time or a hash.
pub fn check_label(label: &str) -> Result<(), NameError> {
    check_name(label)?;
    let is_digits = label.bytes().all(|byte| byte.is_ascii_digit());
    if label.starts_with('@') || is_digits || RevisionPoint::parse(label).is_some() {
        return Err(NameError::Ambiguous(label.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn point(text: &str) -> Option<RevisionPoint> {
        Revision::parse(text).unwrap().point()
    }

    #[test]
    fn each_form_has_its_reading_and_an_at_sign_forces_it() {
        let hash = "0123456789abcdef".repeat(4);
        for (text, read) in [
            ("12", RevisionPoint::Number(12)),
            (&*hash, RevisionPoint::Entry(hash.parse().unwrap())),
            ("-1s", RevisionPoint::NanosAgo(1_000_000_000)),
            ("-10m", RevisionPoint::NanosAgo(600_000_000_000)),
            ("-2h", RevisionPoint::NanosAgo(7_200_000_000_000)),
            ("-3d", RevisionPoint::NanosAgo(259_200_000_000_000)),
            ("1970-01-01T00:00:01Z", RevisionPoint::At(Time(1_000_000_000))),
            ("1970-01-01T00:00:01.5Z", RevisionPoint::At(Time(1_500_000_000))),
        ] {
            assert_eq!(point(text), Some(read), "{text}");
            assert_eq!(point(&format!("@{text}")), Some(read), "@{text}");
            assert!(matches!(check_label(text), Err(NameError::Ambiguous(_))), "{text}");
        }
        for label in ["v1", "-10", "-m", "10m", "1970-01-01", "before-10m", "a12", "1970-01-01T00:00:01+01:00"] {
            assert!(Revision::parse(label).map_or(true, |found| found.point().is_none()), "{label}");
        }
        assert_eq!((check_label("v1"), check_label("10m"), check_label("-10")), (Ok(()), Ok(()), Ok(())));
        assert!(
            check_label("@v1").is_err() && check_label("").is_err() && check_label("99999999999999999999").is_err()
        );
        assert!(Revision::parse("a/b").is_err() && Revision::parse("").is_err());
    }
}
