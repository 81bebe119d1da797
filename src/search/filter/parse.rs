//! From the JSON of a filter to its tree.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use crate::object::Time;
use crate::record::TIME_KEYS;

use super::{FILTER_DEPTH_MAX, FilterError, FilterNode, Predicate};

/// What times in filters look like.
const TIME_EXPECTED: &str = "a time such as \"2026-01-31T12:00:00Z\"";

/// Parses one filter object; `depth` is its own level, 1 for the outermost. [`FilterError::Depth`] for more than
/// `FILTER_DEPTH_MAX` levels, [`FilterError::NoObject`] for another JSON value, else the error of the first operator or
/// operand that is wrong.
pub(super) fn parse_filter(filter: &Value, depth: usize) -> Result<FilterNode, FilterError> {
    if depth > FILTER_DEPTH_MAX {
        return Err(FilterError::Depth);
    }
    let object = filter.as_object().ok_or(FilterError::NoObject { found: kind(filter) })?;
    let mut nodes = Vec::with_capacity(object.len());
    for (key, value) in object {
        nodes.push(match key.as_str() {
            "$and" => FilterNode::All(parse_list("$and", value, depth)?),
            "$or" => FilterNode::Any(parse_list("$or", value, depth)?),
            "$not" => FilterNode::Not(Box::new(parse_filter(value, depth + 1)?)),
            other if other.starts_with('$') => {
                return Err(unknown_operator(other, "the filter itself".to_owned()));
            }
            other if TIME_KEYS.contains(&other) => {
                FilterNode::Key(other.into(), parse_condition(key, &times_to_nanos(value)?, depth)?)
            }
            _ => FilterNode::Key(key.as_str().into(), parse_condition(key, value, depth)?),
        });
    }
    Ok(if nodes.len() == 1 { nodes.remove(0) } else { FilterNode::All(nodes) })
}

/// Puts the number of nanoseconds in place of each time.
fn times_to_nanos(value: &Value) -> Result<Value, FilterError> {
    Ok(match value {
        Value::String(text) => {
            let time: Time = text.parse().map_err(|_| bad_operand("@created or @modified", value, TIME_EXPECTED))?;
            time.0.into()
        }
        Value::Array(items) => Value::Array(items.iter().map(times_to_nanos).collect::<Result<_, _>>()?),
        Value::Object(tests) => {
            let time = |(key, value): (&String, &Value)| Ok((key.clone(), times_to_nanos(value)?));
            Value::Object(tests.iter().map(time).collect::<Result<_, _>>()?)
        }
        other => other.clone(),
    })
}

fn parse_list(operator: &'static str, value: &Value, depth: usize) -> Result<Vec<FilterNode>, FilterError> {
    let filters = value.as_array().filter(|filters| !filters.is_empty());
    let filters = filters.ok_or_else(|| bad_operand(operator, value, "a list of one or more filters"))?;
    filters.iter().map(|filter| parse_filter(filter, depth + 1)).collect()
}

/// Parses the condition on a key: operators, or a value to be equal to.
fn parse_condition(key: &str, value: &Value, depth: usize) -> Result<Predicate, FilterError> {
    let Some(object) = value.as_object() else {
        return Ok(Predicate::Equal(value.clone()));
    };
    match object.keys().filter(|name| name.starts_with('$')).count() {
        0 => Ok(Predicate::Equal(value.clone())),
        operators if operators == object.len() => parse_operators(key, object, depth),
        _ => Err(FilterError::Mixed { key: key.to_owned() }),
    }
}

fn parse_operators(key: &str, operators: &Map<String, Value>, depth: usize) -> Result<Predicate, FilterError> {
    use Ordering::{Equal, Greater, Less};
    // `$not` around operators recurses here as filters do in `parse_filter`, so the limit that bounds the stack holds
    // for both.
    if depth > FILTER_DEPTH_MAX {
        return Err(FilterError::Depth);
    }
    let mut tests = Vec::with_capacity(operators.len());
    for (operator, value) in operators {
        tests.push(match operator.as_str() {
            "$eq" => Predicate::Equal(value.clone()),
            "$ne" => Predicate::Not(Box::new(Predicate::Equal(value.clone()))),
            // `Predicate::Order` accepts either of two orders, so a strict bound names its only one twice.
            "$gt" => Predicate::Order(check_ordered("$gt", value)?, [Greater, Greater]),
            "$gte" => Predicate::Order(check_ordered("$gte", value)?, [Greater, Equal]),
            "$lt" => Predicate::Order(check_ordered("$lt", value)?, [Less, Less]),
            "$lte" => Predicate::Order(check_ordered("$lte", value)?, [Less, Equal]),
            "$in" => Predicate::OneOf(values("$in", value)?),
            "$nin" => Predicate::Not(Box::new(Predicate::OneOf(values("$nin", value)?))),
            "$exists" => {
                Predicate::Exists(value.as_bool().ok_or_else(|| bad_operand("$exists", value, "true or false"))?)
            }
            "$not" => {
                let inner = value.as_object().filter(|inner| !inner.is_empty());
                let inner =
                    inner.ok_or_else(|| bad_operand("$not", value, "an object of operators like {\"$gt\": 1}"))?;
                Predicate::Not(Box::new(parse_operators(key, inner, depth + 1)?))
            }
            other => return Err(unknown_operator(other, format!("the condition on {key:?}"))),
        });
    }
    Ok(if tests.len() == 1 { tests.remove(0) } else { Predicate::All(tests) })
}

fn check_ordered(operator: &'static str, value: &Value) -> Result<Value, FilterError> {
    match value {
        Value::Number(_) | Value::String(_) => Ok(value.clone()),
        _ => Err(bad_operand(operator, value, "a number or a string")),
    }
}

fn values(operator: &'static str, value: &Value) -> Result<Vec<Value>, FilterError> {
    value.as_array().cloned().ok_or_else(|| bad_operand(operator, value, "a list of values"))
}

fn bad_operand(operator: &'static str, value: &Value, expected: &'static str) -> FilterError {
    FilterError::Operand { operator, found: kind(value), expected }
}

fn unknown_operator(operator: &str, place: String) -> FilterError {
    FilterError::Operator { operator: operator.to_owned(), place }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(items) if items.is_empty() => "an empty list",
        Value::Array(_) => "a list",
        Value::Object(fields) if fields.is_empty() => "an empty object",
        Value::Object(_) => "an object",
    }
}
