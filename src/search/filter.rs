//! Filters on metadata: parsed once, then turned into the rows of a segment that match, or asked of
//! one record.
//!
//! A filter is an object; all its conditions must hold:
//!
//! ```text
//! {"kind": "note"}                          equality
//! {"size": {"$gte": 10, "$lt": 20}}         $eq $ne $gt $gte $lt $lte $in $nin $exists, and $not around these
//! {"$or": [{…}, {…}]}                       $and $or with a list of filters, $not with one filter
//! ```
//!
//! * `@agent`, `@session`, `@task`, `@uid`, `@branch`, `@created` and `@modified` are who wrote the version, where and when;
//!   times are given in RFC 3339.
//! * A key with dots reaches into nested objects (`a.b`) where no key of that very name exists.
//! * Numbers compare as numbers and exactly (1 equals 1.0), strings bytewise; values of different
//!   kinds are neither equal nor ordered. Only numbers and strings have an order.
//! * A list in the metadata equals a value when it is that value, or when any of its elements is.
//! * `$ne` is the opposite of `$eq` and `$nin` of `$in`: true for a missing key and another kind.
//!   `null` equals a null that is there; a missing key is found with `{"$exists": false}`.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use crate::facet::value_at;

mod parse;
mod select;
#[cfg(test)]
mod tests;

/// How deep `$and`, `$or` and `$not` may nest, counting the outermost object; deeper filters are refused.
pub const FILTER_DEPTH_MAX: usize = 32;

/// Why a filter was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// A filter is something else than an object.
    #[error("a filter is an object like {{\"key\": \"value\"}}, but {found} stands there")]
    NoObject {
        /// The kind of value that was found, such as `a string`.
        found: &'static str,
    },
    /// No such operator, or not in this place.
    #[error("the filter has {operator:?} in {place}, and no operator of that name works there")]
    Operator {
        /// The name as it was written.
        operator: String,
        /// Where it was found: in the condition on some key, or in the filter itself.
        place: String,
    },
    /// An operator has a value that it can't work with.
    #[error("the filter's {operator} has {found}")]
    Operand {
        /// The operator whose operand is wrong.
        operator: &'static str,
        /// The kind of value that was found, such as `a string`.
        found: &'static str,
        /// What to write instead.
        expected: &'static str,
    },
    /// One object has both operators and plain keys.
    #[error("the filter for {key:?} mixes operators with plain keys")]
    Mixed {
        /// The key whose condition it is.
        key: String,
    },
    /// It nests deeper than 32 levels.
    #[error("the filter nests deeper than {FILTER_DEPTH_MAX} levels")]
    Depth,
}

impl FilterError {
    /// Returns what to do next, which the error's own text leaves out.
    pub fn hint(&self) -> String {
        match self {
            FilterError::NoObject { .. } => "write an object".into(),
            FilterError::Operator { .. } => "for a key write one of $eq $ne $gt $gte $lt $lte $in $nin $exists $not, around whole filters $and $or $not".into(),
            FilterError::Operand { expected, .. } => format!("write {expected}"),
            FilterError::Mixed { .. } => "write only operators, or put the object into {\"$eq\": …}".into(),
            FilterError::Depth => "write it flatter".into(),
        }
    }
}

/// A condition on a record's metadata.
///
/// ```
/// use engramfs::search::Filter;
/// use serde_json::json;
///
/// let filter = Filter::parse(&json!({"kind": "note", "size": {"$gte": 10}})).unwrap();
/// assert!(filter.matches(&json!({"kind": "note", "size": 12})));
/// assert!(!filter.matches(&json!({"kind": "note"})), "there is no size to compare");
///
/// let error = Filter::parse(&json!({"size": {"$more": 10}})).unwrap_err();
/// println!("{error}; {}", error.hint());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Filter(FilterNode);

impl Filter {
    /// Parses a filter; `{}` matches everything.
    ///
    /// A [`FilterError`] says what is wrong, and what to write.
    pub fn parse(filter: &Value) -> Result<Self, FilterError> {
        parse::parse_filter(filter, 1).map(Filter)
    }

    /// Returns how many conditions it has: what a look at one record takes at most.
    pub fn weight(&self) -> usize {
        self.0.weight()
    }

    /// Returns whether a record with this metadata passes; what is not an object counts as `{}`.
    ///
    /// Allocates nothing.
    pub fn matches(&self, metadata: &Value) -> bool {
        self.0.matches(metadata)
    }
}

#[derive(Clone, Debug, PartialEq)]
enum FilterNode {
    All(Vec<FilterNode>),
    Any(Vec<FilterNode>),
    Not(Box<FilterNode>),
    Key(Box<str>, Predicate),
}

#[derive(Clone, Debug, PartialEq)]
enum Predicate {
    Equal(Value),
    OneOf(Vec<Value>),
    /// Holds where the stored value's order against the operand is any of these two.
    Order(Value, [Ordering; 2]),
    Exists(bool),
    All(Vec<Predicate>),
    Not(Box<Predicate>),
}

impl FilterNode {
    fn weight(&self) -> usize {
        match self {
            Self::All(nodes) | Self::Any(nodes) => 1 + nodes.iter().map(Self::weight).sum::<usize>(),
            Self::Not(node) => 1 + node.weight(),
            Self::Key(_, test) => test.weight(),
        }
    }

    fn matches(&self, metadata: &Value) -> bool {
        match self {
            Self::All(nodes) => nodes.iter().all(|node| node.matches(metadata)),
            Self::Any(nodes) => nodes.iter().any(|node| node.matches(metadata)),
            Self::Not(node) => !node.matches(metadata),
            Self::Key(key, test) => test.matches(value_at(metadata, key)),
        }
    }
}

impl Predicate {
    fn weight(&self) -> usize {
        match self {
            Self::All(tests) => 1 + tests.iter().map(Self::weight).sum::<usize>(),
            Self::Not(test) => 1 + test.weight(),
            Self::OneOf(operands) => 1 + operands.len(),
            Self::Equal(_) | Self::Order(..) | Self::Exists(_) => 1,
        }
    }

    fn matches(&self, stored: Option<&Value>) -> bool {
        match self {
            Self::Exists(wanted) => stored.is_some() == *wanted,
            Self::All(tests) => tests.iter().all(|test| test.matches(stored)),
            Self::Not(test) => !test.matches(stored),
            Self::Equal(operand) => stored.is_some_and(|stored| is_or_holds(stored, operand)),
            Self::OneOf(operands) => {
                stored.is_some_and(|stored| operands.iter().any(|operand| is_or_holds(stored, operand)))
            }
            Self::Order(operand, wanted) => {
                stored.and_then(|stored| order(stored, operand)).is_some_and(|found| wanted.contains(&found))
            }
        }
    }
}

fn is_or_holds(stored: &Value, operand: &Value) -> bool {
    equal(stored, operand) || stored.as_array().is_some_and(|items| items.iter().any(|item| equal(item, operand)))
}

/// Returns whether two values are the same, numbers inside of them compared as numbers.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => order_of_numbers(a, b) == Some(Ordering::Equal),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| equal(a, b)))
        }
        _ => a == b,
    }
}

fn order(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => order_of_numbers(a, b),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

fn order_of_numbers(a: &Number, b: &Number) -> Option<Ordering> {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        (Some(a), None) => order_of_mixed(a, b.as_f64()?),
        (None, Some(b)) => order_of_mixed(b, a.as_f64()?).map(Ordering::reverse),
        (None, None) => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

/// Compares exactly: an integer of 64 bits turned into a float could equal its neighbour.
fn order_of_mixed(whole: i128, float: f64) -> Option<Ordering> {
    // The cast saturates, far outside of what 64 bits hold; the fraction decides among equals.
    let by_whole = whole.cmp(&(float.trunc() as i128));
    Some(by_whole.then(0.0f64.partial_cmp(&float.fract())?))
}
