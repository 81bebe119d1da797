//! Moments.

use std::fmt;

/// A moment: nanoseconds since 1970-01-01T00:00:00Z, from the year 1677 to 2262. Printed as RFC 3339 in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

impl Time {
    /// Returns the moment `nanos` nanoseconds later, or the last one there is.
    pub fn plus_nanos(self, nanos: i64) -> Time {
        Time(self.0.saturating_add(nanos))
    }
}

/// A text that is not a time of RFC 3339 in UTC, with a `Z` at its end, or one before 1677 or after 2262.
#[derive(Debug, thiserror::Error)]
#[error("it is no time as 2026-01-01T00:00:00Z is")]
pub struct TimeParseError;

impl std::str::FromStr for Time {
    type Err = TimeParseError;

    fn from_str(text: &str) -> Result<Time, TimeParseError> {
        let time: jiff::Timestamp = text.parse().ok().filter(|_| text.ends_with('Z')).ok_or(TimeParseError)?;
        i64::try_from(time.as_nanosecond()).map(Time).map_err(|_| TimeParseError)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = jiff::Timestamp::from_nanosecond(i128::from(self.0)).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        // Nine digits always, so that a time's length does not depend on its value.
        write!(f, "{time:.9}")
    }
}

#[cfg(test)]
mod tests {
    use super::Time;

    #[test]
    fn a_time_prints_as_rfc_3339_in_utc_with_nine_digits() {
        assert_eq!(Time(0).to_string(), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(Time(1_700_000_000_123_456_789).to_string(), "2023-11-14T22:13:20.123456789Z");
    }

    #[test]
    fn a_time_reads_back() {
        for time in [0, -1, 1_700_000_000_123_456_789].map(Time) {
            assert_eq!(time.to_string().parse::<Time>().ok(), Some(time));
        }
        assert!(
            ["", "today", "2026-01-01", "2026-01-01T00:00:00+01:00"].iter().all(|text| text.parse::<Time>().is_err())
        );
    }
}
