//! Three-way merge by lines.

use std::collections::HashMap;

use diffy::{ConflictStyle, MergeOptions};

use super::{KindSpec, MergeMethod};
use crate::merge::files::content::decided_conflict;
use crate::merge::files::{Contents, Fallback, MergedContent, Side, Strategy};

/// Three-way by lines; overlapping changes are a conflict.
pub(super) const TEXT: KindSpec = KindSpec {
    name: "text",
    takes_key: false,
    strategy: None,
    method: MergeMethod::ByContent(|contents, _, strategy| merge(contents, strategy)),
};

/// A side holds NUL bytes or is not UTF-8.
const BINARY: Fallback = Fallback("it is binary");

/// Most steps that finding the differences of two files may take: about half a second.
///
/// The library's search has no bound of its own, and a merge holds up the store's other writers.
const STEPS_MAX: u64 = 1 << 25;

/// Stands before each line that has a line end while the library has it.
const ENDED_LINE: u8 = b' ';
/// Stands before a last line without a line end, which it gets for that time.
const UNENDED_LINE: u8 = b'\\';

/// Merges texts by lines; says why where that can't be done.
///
/// Changes of one side to lines that the other left alone are taken. If both changed the same or neighbouring lines
/// differently, `strategy` decides for a side, and that side's lines are taken at all such places, while what is not a
/// conflict is taken from both; the other side's file is the loser. Without a base all lines are such a place. Line
/// ends are part of the lines, and a missing one at the end of the file stays missing.
fn merge(contents: &Contents<'_>, strategy: Strategy) -> Result<MergedContent, Fallback> {
    let (base, child, parent) = (contents.base.unwrap_or_default(), contents.child.bytes, contents.parent.bytes);
    if ![base, child, parent].into_iter().all(is_text) {
        return Err(BINARY);
    }
    if diff_steps_bound(base, child).max(diff_steps_bound(base, parent)) > STEPS_MAX {
        return Err(Fallback::TOO_LARGE);
    }
    let [base, child, parent] = [base, child, parent].map(add_line_markers);
    let result = MergeOptions::new().set_conflict_style(ConflictStyle::Merge).merge_bytes(&base, &child, &parent);
    Ok(match (result, contents.winner(strategy)) {
        (Ok(merged), _) => MergedContent::clean(contents.choice_for(remove_line_markers(&merged, Side::Both))),
        (Err(_), None) => MergedContent::waiting(),
        (Err(marked), Some(winner)) => {
            decided_conflict(contents.choice_for(remove_line_markers(&marked, winner)), winner)
        }
    })
}

/// Returns whether bytes are text: UTF-8 without NUL.
fn is_text(bytes: &[u8]) -> bool {
    !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok()
}

/// Lines with a byte before each that tells them from the library's conflict markers, and a last
/// line without line end from the same line with one.
fn add_line_markers(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + text.len() / 8 + 2);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let is_whole = line.ends_with(b"\n");
        out.push(if is_whole { ENDED_LINE } else { UNENDED_LINE });
        out.extend_from_slice(line);
        if !is_whole {
            out.push(b'\n');
        }
    }
    out
}

/// The lines of a merge as they were; those between conflict markers on the winner's side only.
fn remove_line_markers(merged: &[u8], winner: Side) -> Vec<u8> {
    let mut out = Vec::with_capacity(merged.len());
    // The side whose lines follow; outside of markers they are both sides'.
    let mut side = Side::Both;
    for line in merged.split_inclusive(|byte| *byte == b'\n') {
        let content = match line[0] {
            ENDED_LINE => &line[1..],
            UNENDED_LINE => &line[1..line.len() - 1],
            marker => {
                side = side_after(marker);
                continue;
            }
        };
        if side == Side::Both || side == winner {
            // Never glue a line to one whose end was missing where it came from.
            if out.last().is_some_and(|last| *last != b'\n') {
                out.push(b'\n');
            }
            out.extend_from_slice(content);
        }
    }
    out
}

/// The side whose lines follow a conflict marker. The child is "ours" to the library.
fn side_after(marker: u8) -> Side {
    match marker {
        b'<' => Side::Child,
        b'=' => Side::Parent,
        _ => Side::Both,
    }
}

/// An upper bound of the steps to find the differences of two texts: the square of the lines that
/// differ, and for each of these a walk along those that don't, sixteen in the time of a step.
fn diff_steps_bound(old: &[u8], new: &[u8]) -> u64 {
    let count = |text: &[u8]| text.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
    let lines = count(old) + count(new);
    let steps = |different: u64| different * (different + lines / 16);
    // All lines may differ: for most files that is cheap enough to look no further.
    if steps(lines) <= STEPS_MAX {
        return steps(lines);
    }
    let lines_of = |text| <[u8]>::split_inclusive(text, |byte| *byte == b'\n').collect::<Vec<&[u8]>>();
    steps(lines.saturating_sub(2 * common_lines_bound(&lines_of(old), &lines_of(new))))
}

/// A lower bound of the number of lines that two texts have in common, in order.
///
/// Common lines at both ends, and between them the longest run, in the order of both texts, of lines
/// that are there once in each.
fn common_lines_bound(old: &[&[u8]], new: &[&[u8]]) -> u64 {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[head..], &new[head..]);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[..old.len() - tail], &new[..new.len() - tail]);
    let places = unique_lines(new);
    let singles = unique_lines(old);
    let in_old_order = old.iter().filter(|line| singles.get(*line).copied().flatten().is_some());
    let places = in_old_order.filter_map(|line| places.get(line).copied().flatten());
    (head + tail + longest_increasing_length(places)) as u64
}

/// Where each line is; none for lines that are there more than once.
fn unique_lines<'a>(lines: &[&'a [u8]]) -> HashMap<&'a [u8], Option<usize>> {
    let mut places = HashMap::with_capacity(lines.len());
    for (place, line) in lines.iter().enumerate() {
        places.entry(*line).and_modify(|place| *place = None).or_insert(Some(place));
    }
    places
}

/// The length of the longest rising subsequence, in n log n steps: how many lines stayed in their order.
fn longest_increasing_length(numbers: impl Iterator<Item = usize>) -> usize {
    // The smallest number in which a subsequence of each length can end.
    let mut ends: Vec<usize> = Vec::new();
    for number in numbers {
        match ends.partition_point(|end| *end < number) {
            length if length == ends.len() => ends.push(number),
            length => ends[length] = number,
        }
    }
    ends.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge::files::tests::contents;
    use crate::merge::files::{ContentChoice, FileMergeKind, Loser, merge_contents};

    /// Merges texts; the parent wrote later.
    fn merged(base: Option<&str>, child: &str, parent: &str, strategy: Strategy) -> (String, MergedContent) {
        let contents = contents(base.map(str::as_bytes), child.as_bytes(), parent.as_bytes());
        let merged = merge_contents(&FileMergeKind::text(), &contents, strategy);
        (String::from_utf8_lossy(merged.choice.bytes(&contents)).into_owned(), merged)
    }

    fn check(base: &str, child: &str, parent: &str, expect: &str) {
        for strategy in Strategy::ALL {
            let (text, merged) = merged(Some(base), child, parent, strategy);
            assert_eq!(text, expect);
            assert_eq!((merged.decision, merged.losers.len()), (Some(Side::Both), 0));
        }
    }

    #[test]
    fn changes_far_apart_come_together() {
        check("a\nb\nc\nd\n", "A\nb\nc\nd\n", "a\nb\nc\nD\n", "A\nb\nc\nD\n");
        check("a\nb\nc\n", "b\nc\n", "a\nb\nc\nd\n", "b\nc\nd\n");
        check("a\nb\nc\n", "a\nX\nb\nc\n", "a\nb\nY\nc\n", "a\nX\nb\nY\nc\n");
    }

    #[test]
    fn the_same_change_on_both_sides_is_taken_once() {
        check("a\nb\nc\nd\n", "a\nX\nc\nd\n", "a\nX\nc\nD\n", "a\nX\nc\nD\n");
    }

    #[test]
    fn where_changes_overlap_the_strategy_decides_and_the_rest_is_merged() {
        let (base, child, parent) = ("a\nb\nc\nd\ne\n", "A\nb\nchild\nd\ne\n", "a\nb\nparent\nd\nE\n");
        for (strategy, winner, expect) in [
            (Strategy::ChildWins, Side::Child, "A\nb\nchild\nd\nE\n"),
            (Strategy::ParentWins, Side::Parent, "A\nb\nparent\nd\nE\n"),
            (Strategy::NewestWins, Side::Parent, "A\nb\nparent\nd\nE\n"),
        ] {
            let (text, merged) = merged(Some(base), child, parent, strategy);
            assert_eq!((text.as_str(), merged.decision), (expect, Some(winner)));
            let loser = if winner == Side::Child { Side::Parent } else { Side::Child };
            assert_eq!(merged.losers, [Loser::File(loser)]);
        }
        // Changes of neighbouring lines are one such place.
        let (text, neighbours) = merged(Some("a\nb\nc\n"), "A\nb\nc\n", "a\nB\nc\n", Strategy::ChildWins);
        assert_eq!((text.as_str(), neighbours.decision), ("A\nb\nc\n", Some(Side::Child)));
        let (text, merged) = merged(Some(base), child, parent, Strategy::Manual);
        assert_eq!((text.as_str(), merged.decision), (parent, None));
    }

    #[test]
    fn without_a_base_all_is_one_conflict() {
        let (text, merged) = merged(None, "a\nb\n", "a\nc\n", Strategy::ChildWins);
        assert_eq!(
            (text.as_str(), merged.choice, merged.decision),
            ("a\nb\n", ContentChoice::Child, Some(Side::Child))
        );
    }

    #[test]
    fn line_ends_survive() {
        check("a\r\nb\r\nc\r\nd\r\n", "A\r\nb\r\nc\r\nd\r\n", "a\r\nb\r\nc\r\nD\r\n", "A\r\nb\r\nc\r\nD\r\n");
        check("a\nb\nc", "A\nb\nc", "a\nb\nc\n", "A\nb\nc\n");
        check("a\nb\nc\n", "a\nb\nc", "A\nb\nc\n", "A\nb\nc");
        check("a\nb\nc", "A\nb\nc", "a\nb\nX\nc", "A\nb\nX\nc");
        let (text, _) = merged(Some("a\nb"), "a\nchild", "a\nparent\n", Strategy::ChildWins);
        assert_eq!(text, "a\nchild");
        let (text, _) = merged(Some("a\nb"), "a\nchild", "a\nparent\n", Strategy::ParentWins);
        assert_eq!(text, "a\nparent\n");
    }

    #[test]
    fn conflict_markers_in_the_text_are_text() {
        let markers = "<<<<<<< ours\n=======\n>>>>>>> theirs\n";
        let base = format!("a\n{markers}b\nc\n{markers}d\n");
        let (child, parent) = (base.replace("b\n", "child\n"), base.replace("b\n", "parent\n"));
        let (text, _) = merged(Some(&base), &child, &parent, Strategy::ChildWins);
        assert_eq!(text, child);
        check(
            &base,
            &base.replace("a\n", "A\n"),
            &base.replace("d\n", "D\n"),
            &base.replace("a\n", "A\n").replace("d\n", "D\n"),
        );
    }

    #[test]
    fn binaries_and_endless_comparisons_are_whole() {
        for bytes in [&b"a\0b"[..], b"a\xff\n"] {
            let contents = contents(Some(b"a\n"), bytes, b"b\n");
            let merged = merge_contents(&FileMergeKind::text(), &contents, Strategy::ChildWins);
            assert_eq!((merged.choice, merged.fallback), (ContentChoice::Child, Some(BINARY)));
        }
        let numbered = |word: &str| (0..5_000).map(|n| format!("{word} {n}\n")).collect::<String>();
        let (base, child, parent) = (numbered("b"), numbered("c"), numbered("p"));
        let (text, resolved_item) = merged(Some(&base), &child, &parent, Strategy::ChildWins);
        assert_eq!((text, resolved_item.fallback), (child, Some(Fallback::TOO_LARGE)));
        // The limit is on what differs, not on length.
        let (child, parent) = (base.replace("b 0\n", "c\n"), base.replace("b 4900\n", "p\n"));
        let (text, resolved_item) = merged(Some(&base), &child, &parent, Strategy::Manual);
        assert_eq!((text, resolved_item.fallback), (child.replace("b 4900\n", "p\n"), None));
        // Nor on how far apart the changes of one side are.
        let child = base.replace("b 1\n", "c\n").replace("b 4900\n", "c\n");
        let parent = base.replace("b 2500\n", "p\n");
        let (text, resolved_item) = merged(Some(&base), &child, &parent, Strategy::Manual);
        assert_eq!((text, resolved_item.fallback), (child.replace("b 2500\n", "p\n"), None));
    }

    #[test]
    fn the_longest_rising_run_is_found() {
        for (numbers, length) in [(&[][..], 0), (&[1, 2, 3], 3), (&[3, 2, 1], 1), (&[5, 1, 6, 2, 3], 3)] {
            assert_eq!(longest_increasing_length(numbers.iter().copied()), length);
        }
    }
}
