//! JSON Lines as a set: one line for each value of the key, every other line once.

use std::borrow::Cow;

use super::json;
use super::keyed_items::{ItemResolver, KeyedItems, ThreeWayItems};
use super::{KindSpec, MergeMethod};
use crate::merge::files::{Contents, MergedContent, Side, Strategy};

/// JSON Lines: both sides' lines, one for each value of the key.
pub(super) const UNION: KindSpec = KindSpec {
    name: "union",
    takes_key: true,
    strategy: Some(Strategy::NewestWins),
    method: MergeMethod::ByContent(|contents, key, strategy| Ok(merge(contents, key, strategy))),
};

/// What tells lines apart: lines of one key are versions of one line.
#[derive(Clone, PartialEq, Eq, Hash)]
enum LineKey<'a> {
    /// The canonical value of the key.
    Key(Cow<'a, str>),
    /// The line itself, where it is not a JSON object with that key, or the key is null.
    Line(&'a [u8]),
}

/// Merges JSON Lines.
///
/// Each line is a thing of its own with its own history: a line that one side removed and the other
/// left alone stays removed, and a line that one side changed is changed. Both sides' different
/// lines for one value of the key are decided by `strategy`; under `newest-wins` the line of the
/// file that was written later is kept and the other is a loser, which is not a conflict, and a line
/// that one side removed and the other changed is kept. Within one file the last line of a value
/// counts.
///
/// The order is the base's, then the parent's additions, then the child's. Each line gets a line
/// end, so that the next one who appends begins a line.
fn merge(contents: &Contents<'_>, key: &str, strategy: Strategy) -> MergedContent {
    let mut resolver = ItemResolver::new(contents, strategy);
    let mut lines = |side: Side, bytes| {
        let (items, duplicates) = lines(bytes, key);
        duplicates.into_iter().for_each(|line| resolver.record_loser(side, line));
        items
    };
    let (child, parent) = (lines(Side::Child, contents.child.bytes), lines(Side::Parent, contents.parent.bytes));
    let (base, _) = self::lines(contents.base.unwrap_or_default(), key);
    let merged = ThreeWayItems { base, child, parent }.merge(|child, parent| match (child, parent) {
        _ if !strategy.later_wins() => resolver.choose(child, parent),
        (Some(_), Some(_)) => resolver.later_item(child, parent),
        _ => child.or(parent).copied(),
    });
    let mut bytes = Vec::with_capacity(contents.child.bytes.len().max(contents.parent.bytes.len()));
    for line in merged {
        bytes.extend_from_slice(line);
        bytes.push(b'\n');
    }
    resolver.finish(bytes)
}

/// The lines of a file without their ends, and those that a later line of the same key replaced.
fn lines<'a>(bytes: &'a [u8], key: &str) -> (KeyedItems<LineKey<'a>, &'a [u8]>, Vec<&'a [u8]>) {
    let (mut items, mut duplicates) = (KeyedItems::new(), Vec::new());
    // What follows the last line end is a line only if it holds something.
    let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    if bytes.is_empty() {
        return (items, duplicates);
    }
    for line in text.split(|byte| *byte == b'\n') {
        let name = line_value(line, key).map_or(LineKey::Line(line), LineKey::Key);
        duplicates.extend(items.insert(name, line).filter(|replaced| *replaced != line));
    }
    (items, duplicates)
}

/// The canonical text of a line's value of the key.
fn line_value<'a>(line: &'a [u8], key: &str) -> Option<Cow<'a, str>> {
    let line = std::str::from_utf8(line).ok()?;
    // Most lines that are not objects show it in their first letter.
    if !line.trim_start().starts_with('{') {
        return None;
    }
    json::canonical(json::member(line, key)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge::files::tests::contents;
    use crate::merge::files::{ContentChoice, FileMergeKind, Loser, merge_contents};

    /// Merges JSON Lines by the key `id`; the parent wrote later.
    fn merged(base: Option<&str>, child: &str, parent: &str, strategy: Strategy) -> (String, MergedContent) {
        let contents = contents(base.map(str::as_bytes), child.as_bytes(), parent.as_bytes());
        let merged = merge_contents(&FileMergeKind::new(&UNION, "id"), &contents, strategy);
        (String::from_utf8_lossy(merged.choice.bytes(&contents)).into_owned(), merged)
    }

    fn check(base: Option<&str>, child: &str, parent: &str, expect: &str) -> MergedContent {
        let (text, merged) = merged(base, child, parent, Strategy::NewestWins);
        assert_eq!(text, expect);
        assert_eq!(merged.decision, Some(Side::Both));
        merged
    }

    fn line(side: Side, text: &str) -> Loser {
        Loser::Part { side, bytes: text.into() }
    }

    #[test]
    fn additions_of_both_sides_follow_the_base() {
        let base = "{\"id\":1}\n{\"id\":2}\n";
        let merged = check(
            Some(base),
            "{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n",
            "{\"id\":1}\n{\"id\":2}\n{\"id\":4}\n",
            "{\"id\":1}\n{\"id\":2}\n{\"id\":4}\n{\"id\":3}\n",
        );
        assert!(merged.losers.is_empty());
        check(None, "{\"id\":3}\n", "{\"id\":4}\n", "{\"id\":4}\n{\"id\":3}\n");
    }

    #[test]
    fn two_lines_of_one_key_leave_the_later_and_the_other_is_a_loser() {
        let (child, parent) = ("{\"id\":1,\"v\":\"c\"}\n", "{\"id\":1,\"v\":\"p\"}\n");
        let merged = check(None, child, parent, parent);
        assert_eq!(merged.losers, [line(Side::Child, "{\"id\":1,\"v\":\"c\"}")]);
        let merged = check(Some("{\"id\":1}\n"), child, parent, parent);
        assert_eq!(merged.losers.len(), 1);
        // The same key in another form, and keys that only look alike.
        check(None, "{\"id\" : \"\\u0061\"}\n", "{\"x\":2,\"id\":\"a\"}\n", "{\"x\":2,\"id\":\"a\"}\n");
        check(None, "{\"id\":\"1\"}\n", "{\"id\":1}\n", "{\"id\":1}\n{\"id\":\"1\"}\n");
    }

    #[test]
    fn of_two_lines_of_one_key_written_at_the_same_time_the_childs_stays() {
        let (child, parent) = ("{\"id\":1,\"v\":\"c\"}\n", "{\"id\":1,\"v\":\"p\"}\n");
        let mut contents = contents(None, child.as_bytes(), parent.as_bytes());
        contents.child.modified = contents.parent.modified;
        let merged = merge_contents(&FileMergeKind::new(&UNION, "id"), &contents, Strategy::NewestWins);
        assert_eq!(merged.choice, ContentChoice::Child);
        assert_eq!(merged.losers, [line(Side::Parent, "{\"id\":1,\"v\":\"p\"}")]);
    }

    #[test]
    fn the_one_side_that_changed_a_line_wins_whoever_wrote_later() {
        let base = "{\"id\":1}\n{\"id\":2}\n";
        let merged = check(
            Some(base),
            "{\"id\":1,\"v\":1}\n{\"id\":2}\n",
            "{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n",
            "{\"id\":1,\"v\":1}\n{\"id\":2}\n{\"id\":3}\n",
        );
        assert!(merged.losers.is_empty());
    }

    #[test]
    fn a_removed_line_stays_removed_unless_the_other_side_changed_it() {
        let base = "{\"id\":1}\nplain\n";
        check(Some(base), "plain\n", "{\"id\":1}\nplain\nmore\n", "plain\nmore\n");
        check(Some(base), "{\"id\":1}\n", "{\"id\":1,\"v\":2}\nplain\n", "{\"id\":1,\"v\":2}\n");
        check(Some(base), "plain\n", "{\"id\":1,\"v\":2}\nplain\n", "{\"id\":1,\"v\":2}\nplain\n");
        check(Some(base), "", "{\"id\":1}\nplain\nnew", "new\n");
    }

    #[test]
    fn lines_without_the_key_are_kept_once_each() {
        let child = "not json\n{\"id\":null}\n{\"id\":null,\"v\":1}\n[1]\nnot json\n";
        let parent = "[1]\nnot json\n{\"other\":1}\n";
        check(None, child, parent, "[1]\nnot json\n{\"other\":1}\n{\"id\":null}\n{\"id\":null,\"v\":1}\n");
    }

    #[test]
    fn within_one_file_the_last_line_of_a_key_counts() {
        let child = "{\"id\":1,\"v\":1}\n{\"id\":2}\n{\"id\":1,\"v\":2}\n";
        let merged = check(None, child, "{\"id\":3}\n", "{\"id\":3}\n{\"id\":1,\"v\":2}\n{\"id\":2}\n");
        assert_eq!(merged.losers, [line(Side::Child, "{\"id\":1,\"v\":1}")]);
    }

    #[test]
    fn a_missing_line_end_glues_no_lines_together() {
        check(None, "{\"id\":1}", "{\"id\":2}", "{\"id\":2}\n{\"id\":1}\n");
        check(Some("{\"id\":1}"), "{\"id\":1}\n{\"id\":2}", "{\"id\":1}\n\n", "{\"id\":1}\n\n{\"id\":2}\n");
    }

    #[test]
    fn a_strategy_of_the_rule_decides_lines_of_one_key() {
        let (base, child, parent) = (
            "{\"id\":1}\n{\"id\":2}\n",
            "{\"id\":1,\"v\":\"c\"}\n",
            "{\"id\":1,\"v\":\"p\"}\n{\"id\":2,\"v\":\"p\"}\n",
        );
        let (text, resolved_item) = merged(Some(base), child, parent, Strategy::ChildWins);
        assert_eq!((text.as_str(), resolved_item.decision), (child, Some(Side::Child)));
        assert_eq!(resolved_item.losers.len(), 2);
        let (text, resolved_item) = merged(Some(base), child, parent, Strategy::Manual);
        assert_eq!(
            (text.as_str(), resolved_item.decision, resolved_item.choice),
            (parent, None, ContentChoice::Parent)
        );
        let (_, resolved_item) = merged(Some(base), "{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n", parent, Strategy::Manual);
        assert_eq!(resolved_item.decision, Some(Side::Both));
    }
}
