//! A JSON array or object of entries, merged entry by entry.

use std::rc::Rc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::json::{self, Layout, Members};
use super::keyed_items::{ItemResolver, KeyedItems, ThreeWayItems};
use super::{KindSpec, MergeMethod};
use crate::merge::files::{Contents, Fallback, MergedContent, Side, Strategy};

/// A JSON array or object of entries, one for each value of the key.
pub(super) const MANIFEST: KindSpec = KindSpec {
    name: "manifest",
    takes_key: true,
    strategy: None,
    method: MergeMethod::ByContent(|contents, key, strategy| merge(contents, key, strategy).ok_or(NO_MANIFEST)),
};

/// A side is neither a JSON array of objects nor a JSON object, or the sides are not of one shape.
const NO_MANIFEST: Fallback = Fallback("not all sides are JSON arrays of objects, or all JSON objects");

/// What tells apart what models made of one artifact.
const MODEL_VERSION: &str = "model_version";
const NULL: &str = "null";
/// Set on an entry whose model is not the other side's.
const NEEDS_REEMBEDDING: &str = "needs_reembedding";

/// One entry of a manifest, which keeps its own layout.
#[derive(Clone)]
struct ManifestEntry<'a> {
    /// Its name; none in an array.
    member: Option<Rc<str>>,
    /// The bytes in which it was written.
    raw: &'a str,
    /// The text that is the same for all layouts.
    canonical: Rc<str>,
    /// The canonical text of its `model_version`; `None` if it has none, or null.
    model: Option<Rc<str>>,
    /// Whether it must be marked: what was embedded from it may be of another model.
    is_stale: bool,
}

impl PartialEq for ManifestEntry<'_> {
    /// Entries are equal whatever their layout.
    fn eq(&self, other: &ManifestEntry<'_>) -> bool {
        self.canonical == other.canonical
    }
}

impl AsRef<[u8]> for ManifestEntry<'_> {
    fn as_ref(&self) -> &[u8] {
        self.raw.as_bytes()
    }
}

/// A file as a manifest.
struct ManifestFile<'a> {
    is_array: bool,
    items: KeyedItems<String, ManifestEntry<'a>>,
    /// Entries that a later one of the same key replaced.
    duplicates: Vec<&'a str>,
    is_empty: bool,
}

/// Merges manifests; returns none where a side is none, or the sides are not of one shape.
///
/// An entry that one side alone changed, added or removed is taken. If both did it differently and the entries differ
/// in `model_version`, the one of the file that was written later is kept, marked, and the other is a loser, which is
/// not a conflict; else `strategy` decides. In an object an entry without the key goes by its name; in an array such
/// entries are kept once each. Entries keep the bytes in which they were written, in the base's order, then the
/// parent's additions, then the child's.
fn merge(contents: &Contents<'_>, key: &str, strategy: Strategy) -> Option<MergedContent> {
    let (child, parent) = (read(contents.child.bytes, key)?, read(contents.parent.bytes, key)?);
    let base = match contents.base {
        // An empty file is where many manifests begin.
        Some(bytes) if !bytes.trim_ascii().is_empty() => Some(read(bytes, key)?),
        _ => None,
    };
    let is_array = parent.is_array;
    if child.is_array != is_array || base.as_ref().is_some_and(|base| base.is_array != is_array) {
        return None;
    }
    let template = if parent.is_empty { contents.child.bytes } else { contents.parent.bytes };
    let mut resolver = ItemResolver::new(contents, strategy);
    for (side, manifest) in [(Side::Child, &child), (Side::Parent, &parent)] {
        manifest.duplicates.iter().for_each(|entry| resolver.record_loser(side, entry.as_bytes()));
    }
    let base = base.map_or_else(KeyedItems::new, |base| base.items);
    let three = ThreeWayItems { base, child: child.items, parent: parent.items };
    let merged = three.merge(|child, parent| decide(&mut resolver, child, parent));
    let text = render(&merged, is_array, &Layout::detect(std::str::from_utf8(template).ok()?))?;
    Some(resolver.finish(text.into_bytes()))
}

/// What to keep of an entry that both sides changed differently.
fn decide<'a>(
    resolver: &mut ItemResolver<'_>,
    child: Option<&ManifestEntry<'a>>,
    parent: Option<&ManifestEntry<'a>>,
) -> Option<ManifestEntry<'a>> {
    let model = |entry: Option<&ManifestEntry<'a>>| entry.and_then(|entry| entry.model.clone());
    if child.is_some() && parent.is_some() && model(child) != model(parent) {
        return resolver.later_item(child, parent).map(|entry| ManifestEntry { is_stale: true, ..entry });
    }
    resolver.choose(child, parent)
}

fn read<'a>(bytes: &'a [u8], key: &str) -> Option<ManifestFile<'a>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let is_array = text.trim_start().starts_with('[');
    let mut manifest = ManifestFile { is_array, items: KeyedItems::new(), duplicates: Vec::new(), is_empty: true };
    if is_array {
        let entries: Vec<&RawValue> = serde_json::from_str(text).ok()?;
        entries.into_iter().try_for_each(|raw| manifest.put(None, raw, key))?;
    } else {
        let Members(members) = serde_json::from_str(text).ok()?;
        members.into_iter().try_for_each(|(name, raw)| manifest.put(Some(name), raw, key))?;
    }
    Some(manifest)
}

impl<'a> ManifestFile<'a> {
    /// Takes one entry; returns none where it can't be one.
    fn put(&mut self, member: Option<String>, raw: &'a RawValue, key: &str) -> Option<()> {
        let canonical = json::canonical(raw).or_else(|| (raw.get() == NULL).then_some(NULL.into()))?;
        let raw = raw.get();
        // In an array only objects are entries: anything else has neither a key nor room for the mark.
        if member.is_none() && !raw.starts_with('{') {
            return None;
        }
        let value_of = |key: &str| json::member(raw, key).and_then(json::canonical);
        let name = match (value_of(key), &member) {
            (Some(value), _) => format!("key {value}"),
            (None, Some(member)) => format!("key {}", Value::from(member.as_str())),
            (None, None) => format!("entry {canonical}"),
        };
        let model = value_of(MODEL_VERSION).map(|model| model.into());
        let entry =
            ManifestEntry { member: member.map(Rc::from), raw, canonical: canonical.into(), model, is_stale: false };
        self.duplicates.extend(self.items.insert(name, entry).map(|old| old.raw).filter(|old| *old != raw));
        self.is_empty = false;
        Some(())
    }
}

/// The text of a manifest; `None` if two entries have one name, as a reader would lose one of them.
fn render(entries: &[ManifestEntry<'_>], is_array: bool, layout: &Layout<'_>) -> Option<String> {
    let mut names = std::collections::HashSet::new();
    let mut pieces = Vec::with_capacity(entries.len());
    for entry in entries {
        let text = if entry.is_stale { mark_entry(entry.raw)? } else { entry.raw.to_owned() };
        pieces.push(match &entry.member {
            Some(name) if !names.insert(name) => return None,
            Some(name) => layout.member(name, &text),
            None => text,
        });
    }
    Some(layout.render(if is_array { ["[", "]"] } else { ["{", "}"] }, &pieces))
}

/// An entry with the mark, in its own layout; `None` if it is not an object.
fn mark_entry(raw: &str) -> Option<String> {
    let Members(members) = serde_json::from_str(raw).ok()?;
    let layout = Layout::detect(raw);
    let others = members.iter().filter(|(name, _)| name != NEEDS_REEMBEDDING);
    let mut pieces: Vec<String> = others.map(|(name, value)| layout.member(name, value.get())).collect();
    pieces.push(layout.member(NEEDS_REEMBEDDING, "true"));
    Some(layout.render(["{", "}"], &pieces))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::merge::files::tests::contents;
    use crate::merge::files::{ContentChoice, FileMergeKind, Loser, merge_contents};

    /// Merges manifests by the key `id`; the parent wrote later.
    fn merged(base: Option<&str>, child: &str, parent: &str, strategy: Strategy) -> (String, MergedContent) {
        let contents = contents(base.map(str::as_bytes), child.as_bytes(), parent.as_bytes());
        let merged = merge_contents(&FileMergeKind::new(&MANIFEST, "id"), &contents, strategy);
        (String::from_utf8_lossy(merged.choice.bytes(&contents)).into_owned(), merged)
    }

    /// The same with values, under `newest-wins`.
    fn check(base: Value, child: Value, parent: Value, expect: Value) -> MergedContent {
        let base = (!base.is_null()).then(|| base.to_string());
        let (text, merged) = merged(base.as_deref(), &child.to_string(), &parent.to_string(), Strategy::NewestWins);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expect);
        assert_eq!(merged.fallback, None);
        merged
    }

    #[test]
    fn entries_of_both_sides_come_together() {
        let merged = check(
            json!([{"id": 1}, {"id": 2}, {"id": 5}]),
            json!([{"id": 1, "v": 1}, {"id": 2}, {"id": 3}, {"id": 5}]),
            json!([{"id": 1}, {"id": 4}, {"id": 5}]),
            json!([{"id": 1, "v": 1}, {"id": 5}, {"id": 4}, {"id": 3}]),
        );
        assert_eq!((merged.decision, merged.losers.len()), (Some(Side::Both), 0));
        check(
            json!({"a": {"id": "a"}, "n": 1}),
            json!({"a": {"id": "a", "v": 1}, "n": 1, "c": {}}),
            json!({"a": {"id": "a"}, "n": 2, "p": {}}),
            json!({"a": {"id": "a", "v": 1}, "n": 2, "p": {}, "c": {}}),
        );
    }

    #[test]
    fn entries_of_two_models_leave_the_later_marked() {
        let (child, parent) = (json!({"id": 1, "model_version": "c"}), json!({"id": 1, "model_version": "p"}));
        for base in [json!(null), json!([{"id": 1, "model_version": "b"}])] {
            let merged = check(
                base,
                json!([child.clone()]),
                json!([parent.clone()]),
                json!([{"id": 1, "model_version": "p", "needs_reembedding": true}]),
            );
            assert_eq!(merged.decision, Some(Side::Both));
            assert_eq!(merged.losers, [Loser::Part { side: Side::Child, bytes: child.to_string().into() }]);
        }
        let (text, merged) = merged(None, &json!([child]).to_string(), &json!([parent]).to_string(), Strategy::Manual);
        assert!(text.contains("needs_reembedding") && merged.decision == Some(Side::Both));
        check(
            json!({"a": {"model_version": 1}}),
            json!({"a": {"model_version": 2}, "x": {}}),
            json!({"a": {"model_version": 3, "needs_reembedding": false}}),
            json!({"a": {"model_version": 3, "needs_reembedding": true}, "x": {}}),
        );
    }

    #[test]
    fn a_new_model_on_one_side_alone_needs_no_mark() {
        check(
            json!([{"id": 1, "model_version": 1}]),
            json!([{"id": 1, "model_version": 2}]),
            json!([{"id": 1, "model_version": 1}, {"id": 2}]),
            json!([{"id": 1, "model_version": 2}, {"id": 2}]),
        );
    }

    #[test]
    fn an_entry_changed_by_both_is_decided_by_the_strategy() {
        let base = json!([{"id": 1}, {"id": 2}]).to_string();
        let child = json!([{"id": 1, "v": "c"}, {"id": 2}, {"id": 3}]).to_string();
        let parent = json!([{"id": 1, "v": "p"}]).to_string();
        for (strategy, decision, expect) in [
            (Strategy::ChildWins, Some(Side::Child), json!([{"id": 1, "v": "c"}, {"id": 3}])),
            (Strategy::ParentWins, Some(Side::Parent), json!([{"id": 1, "v": "p"}, {"id": 3}])),
            (Strategy::NewestWins, Some(Side::Parent), json!([{"id": 1, "v": "p"}, {"id": 3}])),
            (Strategy::Manual, None, json!([{"id": 1, "v": "p"}])),
        ] {
            let (text, merged) = merged(Some(&base), &child, &parent, strategy);
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expect, "{strategy}");
            assert_eq!((merged.decision, merged.losers.len()), (decision, usize::from(decision.is_some())));
        }
        // A removal against a change is a conflict, too.
        let (text, merged) = merged(Some("[{\"id\":1}]"), "[]", "[{\"id\":1,\"v\":1}]", Strategy::ChildWins);
        assert_eq!((text.as_str(), merged.decision), ("[]", Some(Side::Child)));
    }

    #[test]
    fn what_is_no_manifest_is_whole_and_says_so() {
        let array = "[{\"id\":1}]";
        for (base, child, parent) in [
            (None, "{\"id\":1}", array),
            (None, "[1]", array),
            (None, "not json", array),
            (None, "", array),
            (Some("{}"), "[{\"id\":2}]", array),
            (None, "{\"x\":{\"id\":1}}", "{\"x\":{\"id\":2}}"),
        ] {
            let (text, merged) = merged(base, child, parent, Strategy::ChildWins);
            assert_eq!((text.as_str(), merged.fallback), (child, Some(NO_MANIFEST)), "{child}");
            assert_eq!((merged.decision, merged.losers), (Some(Side::Child), vec![Loser::File(Side::Parent)]));
        }
        let (text, merged) = merged(Some(" \n"), "[{\"id\":2}]", array, Strategy::Manual);
        assert_eq!((text.as_str(), merged.fallback), ("[{\"id\":1},{\"id\":2}]", None));
    }

    #[test]
    fn layout_and_numbers_stay_as_they_were_written() {
        let parent = "[\n  {\n    \"id\": 1,\n    \"n\": 123456789012345678901234567890\n  }\n]\n";
        let (text, _) = merged(None, "[\n  {\n    \"id\": 2\n  }\n]\n", parent, Strategy::Manual);
        let expect = parent.replace("\n]", ",\n  {\n    \"id\": 2\n  }\n]");
        assert_eq!(text, expect);
        let (child, parent) = ("[{\"id\": 1, \"model_version\": 1}]", "[{\"id\": 1, \"model_version\": 1e2}]");
        let (text, resolved_item) = merged(None, child, parent, Strategy::Manual);
        assert_eq!(text, "[{\"id\": 1, \"model_version\": 1e2, \"needs_reembedding\": true}]");
        assert!(matches!(resolved_item.choice, ContentChoice::Merged(_)));
    }
}
