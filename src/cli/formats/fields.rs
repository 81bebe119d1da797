//! Records of other tools, whose fields have other names.

use std::path::Path;
use std::str::FromStr;

use serde_json::{Map, Value};

use super::{InputRow, RowPosition, malformed};
use crate::cli::failure::CommandError;

/// Our keys in the order in which [`FieldMap`] holds theirs.
const KEYS: [&str; 4] = ["id", "text", "vector", "metadata"];

/// Which field becomes which key: `id=…,text=…,vector=…`, a dot leading into objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldMap([Option<String>; 4]);

impl FromStr for FieldMap {
    type Err = String;

    fn from_str(text: &str) -> Result<FieldMap, String> {
        let mut map = FieldMap::default();
        for pair in text.split(',') {
            let (key, field) = pair.split_once('=').ok_or_else(|| format!("'{pair}' is not KEY=FIELD"))?;
            let at = KEYS.iter().position(|known| *known == key.trim());
            let at = at.ok_or_else(|| format!("'{key}' is none of id, text, vector and metadata"))?;
            if field.trim().is_empty() || map.0[at].is_some() {
                return Err(format!("'{key}' needs one field"));
            }
            map.0[at] = Some(field.trim().to_owned());
        }
        Ok(map)
    }
}

impl FieldMap {
    /// Returns the row with our keys; fields that become no key are metadata. Fails for a line that is not a JSON
    /// object. A row without a line stays as it is.
    pub fn apply(&self, row: InputRow, path: &Path) -> Result<InputRow, CommandError> {
        let InputRow::Line { position, bytes } = row else { return Ok(row) };
        let bad = |what: String| match &position {
            RowPosition::Line(number) => {
                malformed(path, format!("{what} in line {number}"), "check --map and the line")
            }
            RowPosition::Element(number) => {
                malformed(path, format!("{what} in element {number}"), "check --map and the element")
            }
            RowPosition::Note(note) => malformed(note, what, "check --map: notes have id, text and metadata"),
        };
        let Ok(mut object) = serde_json::from_slice::<Map<String, Value>>(&bytes) else {
            return Err(bad("holds no JSON object".to_owned()));
        };
        let mut record = Map::new();
        for (key, field) in KEYS.iter().zip(&self.0) {
            let Some(field) = field else { continue };
            match take(&mut object, field) {
                // An import that is repeated makes no doubles only where ids are given.
                None | Some(Value::Null) if *key == "id" => return Err(bad(format!("has no field '{field}'"))),
                Some(Value::Number(number)) if *key == "id" => {
                    record.insert((*key).to_owned(), Value::from(number.to_string()));
                }
                Some(value) => drop(record.insert((*key).to_owned(), value)),
                None => {}
            }
        }
        if !object.is_empty() {
            let metadata = record.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
            let Value::Object(metadata) = metadata else {
                return Err(bad("has metadata that is no object".to_owned()));
            };
            for (key, value) in object {
                metadata.entry(key).or_insert(value);
            }
        }
        Ok(InputRow::Line { position, bytes: Value::Object(record).to_string().into_bytes() })
    }
}

/// Takes a field out of an object; where no field has the whole name, dots lead into objects.
fn take(object: &mut Map<String, Value>, field: &str) -> Option<Value> {
    if let Some(value) = object.remove(field) {
        return Some(value);
    }
    let (first, rest) = field.split_once('.')?;
    take(object.get_mut(first)?.as_object_mut()?, rest)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use serde_json::json;

    fn mapped(map: &str, line: &Value) -> Result<Value, CommandError> {
        mapped_at(RowPosition::Line(1), map, line)
    }

    fn mapped_at(position: RowPosition, map: &str, line: &Value) -> Result<Value, CommandError> {
        let row = InputRow::Line { position, bytes: line.to_string().into_bytes() };
        let row = map.parse::<FieldMap>().unwrap().apply(row, Path::new("x.jsonl"))?;
        Ok(serde_json::from_slice(&row.into_line()).unwrap())
    }

    #[test]
    fn fields_get_our_names_and_the_rest_is_metadata() {
        let line = json!({"key": 7, "page": {"body": "tea", "n": 1}, "emb": [0.5], "lang": "en"});
        let expected = json!({"id": "7", "text": "tea", "vector": [0.5], "metadata": {"page": {"n": 1}, "lang": "en"}});
        assert_eq!(mapped("id=key,text=page.body,vector=emb", &line).unwrap(), expected);
        let given = mapped("id=key,metadata=page", &line).unwrap();
        assert_eq!(given["metadata"], json!({"body": "tea", "n": 1, "emb": [0.5], "lang": "en"}));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        assert!(mapped("id=key", &json!({"text": "x"})).unwrap_err().message.contains("'key' in line 1"));
        let refused = mapped_at(RowPosition::Element(2), "id=key", &json!({"text": "x"})).unwrap_err();
        assert!(refused.message.contains("'key' in element 2"), "{}", refused.message);
        assert!(mapped("id=key", &json!([1])).unwrap_err().message.contains("no JSON object"));
        assert!(mapped("id=key,metadata=m", &json!({"key": "a", "m": 1, "n": 2})).is_err());
        for map in ["id", "name=x", "id=", "id=a,id=b"] {
            assert!(map.parse::<FieldMap>().is_err(), "{map}");
        }
    }
}
