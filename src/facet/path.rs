//! Paths: what the key of a filter means in a record's metadata.

use serde_json::{Map, Value};

/// Longest path that is indexed, in bytes.
pub(super) const PATH_BYTES_MAX: usize = 255;
/// Most dots in a path that is indexed.
pub(super) const PATH_DOTS_MAX: usize = 15;

/// Returns the value under `path` as a key, or else under the path that its dots spell.
///
/// A key of that very name comes first, in every object on the way; lists are not entered. `None` if nothing is there,
/// and for metadata that is no object.
pub fn value_at<'a>(metadata: &'a Value, path: &str) -> Option<&'a Value> {
    let object = metadata.as_object()?;
    object.get(path).or_else(|| {
        let (first, rest) = path.split_once('.')?;
        value_at(object.get(first)?, rest)
    })
}

/// Returns whether a path is short enough to be indexed: 255 bytes and 15 dots at most.
pub(super) fn is_indexed(path: &str) -> bool {
    path.len() <= PATH_BYTES_MAX && path.bytes().filter(|byte| *byte == b'.').count() <= PATH_DOTS_MAX
}

/// Calls `each` once with every path that leads to a value, and that value; with nothing instead of
/// a value where paths begin that are not indexed.
pub(super) fn for_each_path<'a>(
    metadata: &'a Value,
    path: &mut String,
    each: &mut impl FnMut(&str, Option<&'a Value>),
) {
    path.clear();
    if let Some(object) = metadata.as_object() {
        let mut walk = Walk { metadata, dotted: false, each };
        walk.visit_object(object, path);
    }
}

struct Walk<'a, 'e, E> {
    metadata: &'a Value,
    /// Whether a key with a dot was met: such a key can precede a path of the same spelling.
    dotted: bool,
    each: &'e mut E,
}

impl<'a, E: FnMut(&str, Option<&'a Value>)> Walk<'a, '_, E> {
    fn visit_object(&mut self, object: &'a Map<String, Value>, path: &mut String) {
        let start = path.len();
        // Keys with dots first, so that they are known before the paths that they may precede.
        self.dotted |= object.keys().any(|key| key.contains('.'));
        for (key, value) in object {
            path.push_str(key);
            if !is_indexed(path) {
                (self.each)(path, None);
            } else if !self.dotted || self.leads_to(path, value) {
                (self.each)(path, Some(value));
            }
            if let Some(inner) = value.as_object()
                && !inner.is_empty()
                && !key.contains('.')
            {
                path.push('.');
                if is_indexed(path) { self.visit_object(inner, path) } else { (self.each)(path, None) }
            }
            path.truncate(start);
        }
    }

    fn leads_to(&self, path: &str, value: &Value) -> bool {
        value_at(self.metadata, path).is_some_and(|found| std::ptr::eq(found, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn paths(metadata: Value) -> Vec<(String, Option<Value>)> {
        let mut found = Vec::new();
        for_each_path(&metadata, &mut String::new(), &mut |path, value| found.push((path.to_owned(), value.cloned())));
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }

    fn names(metadata: Value) -> Vec<String> {
        paths(metadata).into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn every_path_is_met_once_with_the_value_it_leads_to() {
        let metadata = json!({"a": {"b": 1, "": {"c": 2}}, "a.b": 3, "x.y": {"z": 4}, "l": [{"m": 5}]});
        let found = paths(metadata.clone());
        let names: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(names, ["a", "a.", "a..c", "a.b", "l", "x.y"]);
        for (path, value) in &found {
            assert_eq!(value_at(&metadata, path), value.as_ref(), "{path}");
        }
        assert_eq!(value_at(&metadata, "a.b"), Some(&json!(3)));
        assert_eq!(value_at(&metadata, "x.y.z"), None);
    }

    #[test]
    fn a_key_with_a_dot_stands_before_a_path_that_was_met_earlier() {
        // `a` sorts before `a.b.c`, and its inner object before that.
        assert_eq!(names(json!({"a": {"b": {"c": 1}}, "a.b.c": 2})), ["a", "a.b", "a.b.c"]);
        assert_eq!(names(json!({"a": {"b": {"c": 1}, "b.c": 2}})), ["a", "a.b", "a.b.c"]);
    }

    #[test]
    fn paths_that_are_too_long_or_too_deep_are_told_without_a_value() {
        let long = "k".repeat(PATH_BYTES_MAX + 1);
        assert_eq!(paths(json!({ long.clone(): 1 })), [(long, None)]);
        let deep = (0..PATH_DOTS_MAX + 2).fold(json!(1), |inner, _| json!({"a": inner}));
        let found = paths(deep);
        assert_eq!(found.iter().filter(|(_, value)| value.is_some()).count(), PATH_DOTS_MAX + 1);
        assert_eq!(found.iter().filter(|(_, value)| value.is_none()).count(), 1);
    }

    #[test]
    fn what_is_no_object_has_no_paths() {
        assert!(names(json!([1])).is_empty() && names(json!({})).is_empty() && names(json!(null)).is_empty());
    }
}
