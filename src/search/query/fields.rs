//! The object of a query, key by key.

use std::collections::HashSet;
use std::fmt;
use std::ops::RangeInclusive;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::{Filter, Include, Mode, QueryError, TAG_BYTES_MAX, shorten};

/// The keys of a query besides `vector`, in the order of their importance.
pub(super) const KEYS: [&str; 13] =
    ["text", "id", "k", "mode", "filter", "exact", "ef", "scope", "at", "include", "explain", "tag", "timeout_ms"];

/// Returns what is searched when the query does not say: `branch`, `log` and `files`.
pub(super) fn default_scope() -> Vec<String> {
    ["branch", "log", "files"].map(str::to_owned).into()
}

/// The object as it was written: the vector apart, since it is long and goes straight into floats.
#[derive(Default)]
pub(super) struct Fields {
    /// Finite numbers, one at least.
    pub(super) vector: Option<Vec<f32>>,
    others: Map<String, Value>,
}

impl Fields {
    /// Takes a key's value; a null is not a value.
    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.others.remove(key).filter(|value| !value.is_null())
    }

    /// Takes a text; like all of these it fails with [`QueryError::Field`] for a value of another kind, and takes null
    /// for none.
    pub(super) fn take_string(&mut self, key: &'static str) -> Result<Option<String>, QueryError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(string)) => Ok(Some(string)),
            Some(other) => Err(type_error(key, &other, "a string")),
        }
    }

    /// Takes a flag, false if the key is left out. [`QueryError::Field`] for anything but true or false.
    pub(super) fn take_flag(&mut self, key: &'static str) -> Result<bool, QueryError> {
        let value = self.take(key).unwrap_or(Value::Bool(false));
        value.as_bool().ok_or_else(|| type_error(key, &value, "true or false"))
    }

    /// Takes a whole number of a range; `expected` says in the error what to write.
    pub(super) fn take_integer<N: TryFrom<u64> + PartialOrd>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<N>,
        expected: &'static str,
    ) -> Result<Option<N>, QueryError> {
        let Some(value) = self.take(key) else {
            return Ok(None);
        };
        let number = value.as_u64().and_then(|number| N::try_from(number).ok());
        let number = number.filter(|number| range.contains(number));
        number.map(Some).ok_or_else(|| type_error(key, &value, expected))
    }

    /// Takes the mode by its name. `None` if it is left out. [`QueryError::Field`] for another word.
    pub(super) fn take_mode(&mut self) -> Result<Option<Mode>, QueryError> {
        let Some(value) = self.take("mode") else {
            return Ok(None);
        };
        match value.as_str() {
            Some("vector") => Ok(Some(Mode::Vector)),
            Some("text") => Ok(Some(Mode::Text)),
            Some("hybrid") => Ok(Some(Mode::Hybrid)),
            _ => Err(type_error("mode", &value, "\"vector\", \"text\" or \"hybrid\"")),
        }
    }

    /// Takes the filter, parsed. `None` if it is left out. [`QueryError::Filter`] if it is wrong.
    pub(super) fn take_filter(&mut self) -> Result<Option<Filter>, QueryError> {
        let filter = self.take("filter").map(|filter| Filter::parse(&filter));
        Ok(filter.transpose()?)
    }

    /// Takes the scope; a name that is given twice counts once, so that nothing is found twice. Left out it is the
    /// default scope. [`QueryError::Field`] for an empty list, or anything but names.
    pub(super) fn take_scope(&mut self) -> Result<Vec<String>, QueryError> {
        let Some(value) = self.take("scope") else {
            return Ok(default_scope());
        };
        let scope_error =
            || type_error("scope", &value, "a list of names out of \"branch\", \"log\", \"files\" and root branches");
        let items = value.as_array().filter(|items| !items.is_empty()).ok_or_else(scope_error)?;
        let (mut scope, mut known): (Vec<String>, HashSet<&str>) = (Vec::new(), HashSet::new());
        for item in items {
            let name = item.as_str().filter(|name| !name.is_empty()).ok_or_else(scope_error)?;
            if known.insert(name) {
                scope.push(name.to_owned());
            }
        }
        Ok(scope)
    }

    /// Takes the state that is asked, as it is written: the number of an entry may be a number. `None` if it is left
    /// out. [`QueryError::Field`] for an empty text, or a number that no entry can have.
    pub(super) fn take_revision(&mut self) -> Result<Option<String>, QueryError> {
        match self.take("at") {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
            Some(Value::Number(number)) if number.is_u64() => Ok(Some(number.to_string())),
            Some(other) => Err(type_error(
                "at",
                &other,
                "a checkpoint's label, an entry's number or hash, or a time such as \"-2h\"",
            )),
        }
    }

    /// Takes what hits carry beside what they always do. By default nothing more. [`QueryError::Field`] for anything
    /// but a list of `vector` and `stamp`.
    pub(super) fn take_include(&mut self) -> Result<Include, QueryError> {
        let Some(value) = self.take("include") else {
            return Ok(Include::default());
        };
        let names = value.as_array().filter(|items| items.iter().all(|item| item == "vector" || item == "stamp"));
        let names = names
            .ok_or_else(|| type_error("include", &value, "a list of \"vector\" and \"stamp\", or leave it out"))?;
        let has = |name: &str| names.iter().any(|item| item == name);
        Ok(Include { vector: has("vector"), stamp: has("stamp") })
    }

    /// Takes what the answer repeats: any JSON, which has [`TAG_BYTES_MAX`] bytes at most as it is written again. Left
    /// out it is null. [`QueryError::Field`] if it is longer.
    pub(super) fn take_tag(&mut self) -> Result<Value, QueryError> {
        let tag = self.take("tag").unwrap_or_default();
        match tag.to_string().len() {
            0..=TAG_BYTES_MAX => Ok(tag),
            _ => Err(type_error("tag", &tag, "JSON of at most 1024 bytes")),
        }
    }
}

fn type_error(key: &'static str, value: &Value, expected: &'static str) -> QueryError {
    let written = value.to_string();
    let start = shorten(&written, 60);
    let dots = if start.len() < written.len() { "…" } else { "" };
    QueryError::Field { key, found: format!("{start}{dots}"), expected }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Fields::default();
        let mut vector_seen = false;
        while let Some(key) = map.next_key::<String>()? {
            let twice = if key == "vector" {
                fields.vector = map.next_value::<Option<FiniteVector>>()?.map(|FiniteVector(floats)| floats);
                std::mem::replace(&mut vector_seen, true)
            } else if KEYS.contains(&key.as_str()) {
                fields.others.insert(key.clone(), map.next_value()?).is_some()
            } else {
                let known = KEYS.join(", ");
                return Err(A::Error::custom(format!("unknown key {key:?}, expected one of vector, {known}")));
            };
            if twice {
                return Err(A::Error::custom(format!("{key:?} is given twice")));
            }
        }
        Ok(fields)
    }
}

/// A vector of one or more finite numbers.
struct FiniteVector(Vec<f32>);

impl<'de> Deserialize<'de> for FiniteVector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(FiniteVectorVisitor)
    }
}

struct FiniteVectorVisitor;

impl<'de> Visitor<'de> for FiniteVectorVisitor {
    type Value = FiniteVector;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"vector\" as a list of numbers like [0.25, -1]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<FiniteVector, A::Error> {
        let mut floats = Vec::new();
        while let Some(number) = seq.next_element::<f64>()? {
            // A finite f64 can be beyond the largest f32.
            let float = number as f32;
            if !float.is_finite() {
                return Err(A::Error::custom(format!("\"vector\" has {number:e}, which is beyond the range of f32")));
            }
            floats.push(float);
        }
        if floats.is_empty() {
            return Err(A::Error::custom("\"vector\" is an empty list"));
        }
        Ok(FiniteVector(floats))
    }
}
