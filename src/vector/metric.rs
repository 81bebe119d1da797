//! The three metrics, by name and by code.

use std::fmt;
use std::str::FromStr;

/// Says how two vectors are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Metric {
    /// The cosine of the angle between two vectors; the default.
    #[default]
    Cosine,
    /// The euclidean distance.
    L2,
    /// The inner product.
    Dot,
}

impl Metric {
    /// All metrics, in the order of their codes.
    pub const ALL: [Self; 3] = [Self::Cosine, Self::L2, Self::Dot];

    /// Returns the number of this metric in stored bytes.
    #[must_use]
    pub fn to_code(self) -> u8 {
        match self {
            Self::Cosine => 0,
            Self::L2 => 1,
            Self::Dot => 2,
        }
    }

    /// Returns the metric of a stored number, `None` for a number never given out.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.to_code() == code)
    }

    /// Returns the name that users write: `cosine`, `l2` or `dot`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cosine => "cosine",
            Self::L2 => "l2",
            Self::Dot => "dot",
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is not a metric.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("metric {0:?} is unknown")]
pub struct UnknownMetric(pub String);

impl FromStr for Metric {
    type Err = UnknownMetric;

    fn from_str(name: &str) -> Result<Self, UnknownMetric> {
        Self::ALL.into_iter().find(|metric| metric.name() == name).ok_or_else(|| UnknownMetric(name.to_owned()))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_round_trip() {
        for metric in Metric::ALL {
            assert_eq!(metric.to_string().parse::<Metric>().unwrap(), metric);
            assert_eq!(Metric::from_code(metric.to_code()), Some(metric));
        }
        assert_eq!(Metric::ALL.map(Metric::to_code), [0, 1, 2]);
    }

    #[test]
    fn what_is_no_metric_is_refused_with_the_allowed_names() {
        assert_eq!(Metric::from_code(3), None);
        let error = "L2".parse::<Metric>().unwrap_err();
        assert_eq!(error.to_string(), "metric \"L2\" is unknown");
    }
}
