//! What holds for contents of all kinds, tried on random ones.

use super::kind::KINDS;
use super::{
    ContentChoice, ContentVersion, Contents, FileMergeKind, MergedContent, Rules, Side, Strategy, merge_contents,
};
use crate::object::Time;

/// Contents on three sides, the parent's written later.
pub(super) fn contents<'a>(base: Option<&'a [u8]>, child: &'a [u8], parent: &'a [u8]) -> Contents<'a> {
    let version = |bytes, time| ContentVersion { bytes, modified: Time(time) };
    Contents { base, child: version(child, 1), parent: version(parent, 2) }
}

fn kinds() -> Vec<FileMergeKind> {
    KINDS.into_iter().map(|spec| FileMergeKind::new(spec, if spec.takes_key { "id" } else { "" })).collect()
}

/// SplitMix64 (Steele, Lea and Flood 2014).
pub(super) struct Chance(pub u64);

impl Chance {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    pub(super) fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }

    /// Bytes that are often nearly text, nearly JSON.
    fn bytes(&mut self) -> Vec<u8> {
        const PIECES: [&[u8]; 16] = [
            b"a\n",
            b"b\n",
            b"\n",
            b"\r\n",
            b"c",
            b"{\"id\":1}\n",
            b"{\"id\":2,\"v\":1}\n",
            b"[",
            b"]",
            b",",
            b"{\"id\":3}",
            b"{}",
            b"\xff",
            b"\0",
            b"<<<<<<< ours\n",
            b"=======\n",
        ];
        (0..self.below(8)).flat_map(|_| self.pick(&PIECES).to_vec()).collect()
    }

    /// A content with random edits.
    fn edited(&mut self, lines: &[String], mark: &str) -> Vec<String> {
        let mut lines = lines.to_vec();
        for edit in 0..self.below(4) {
            let place = self.below(lines.len() + 1);
            match self.below(3) {
                0 if place < lines.len() => drop(lines.remove(place)),
                1 if place < lines.len() => lines[place] = self.line(mark, edit),
                _ => lines.insert(place, self.line(mark, edit)),
            }
        }
        lines
    }

    /// A line that is JSON with a small id, or a word.
    fn line(&mut self, mark: &str, edit: usize) -> String {
        match self.below(3) {
            0 => format!("{mark} {edit}"),
            _ => format!("{{\"id\":{},\"v\":\"{mark}{edit}\"}}", self.below(6)),
        }
    }
}

/// One base and what two sides made of it.
fn history(chance: &mut Chance) -> [Vec<String>; 3] {
    let base: Vec<String> = (0..chance.below(8)).map(|n| chance.line("base", n)).collect();
    let (child, parent) = (chance.edited(&base, "child"), chance.edited(&base, "parent"));
    [base, child, parent]
}

fn joined(lines: &[String]) -> Vec<u8> {
    lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect()
}

fn merged_bytes(merged: &MergedContent, contents: &Contents<'_>) -> Vec<u8> {
    merged.choice.bytes(contents).to_vec()
}

fn sorted_lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    lines.sort();
    lines
}

#[test]
fn a_side_that_changed_nothing_gives_the_other_side() {
    let mut chance = Chance(1);
    for _ in 0..2_000 {
        let (base, other) = (chance.bytes(), chance.bytes());
        for kind in kinds().into_iter().filter(|kind| !kind.never_merges()) {
            for strategy in Strategy::ALL {
                let child = contents(Some(&base), &other, &base);
                let parent = contents(Some(&base), &base, &other);
                for contents in [child, parent] {
                    let merged = merge_contents(&kind, &contents, strategy);
                    assert_eq!(merged_bytes(&merged, &contents), other);
                    assert_eq!((merged.decision, merged.losers.len()), (Some(Side::Both), 0));
                }
            }
        }
    }
}

#[test]
fn random_bytes_never_panic_and_conflicts_are_always_accounted_for() {
    let mut chance = Chance(2);
    for _ in 0..20_000 {
        let (base, child, parent) = (chance.bytes(), chance.bytes(), chance.bytes());
        let base = (chance.below(3) > 0).then_some(base.as_slice());
        let contents = contents(base, &child, &parent);
        for kind in kinds() {
            for strategy in Strategy::ALL {
                let merged = merge_contents(&kind, &contents, strategy);
                match merged.decision {
                    None => assert!(strategy == Strategy::Manual && merged.choice == ContentChoice::Parent),
                    Some(Side::Both) => {}
                    Some(_) => {
                        // Where a removed line or entry loses, there is nothing to keep of it.
                        let by_parts = kind.spec().takes_key;
                        assert!(strategy != Strategy::Manual && (by_parts || !merged.losers.is_empty()), "{kind:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn merges_without_conflict_are_the_same_from_either_side() {
    let mut chance = Chance(3);
    let mut clean = 0;
    for _ in 0..5_000 {
        let [base, child, parent] = history(&mut chance).map(|lines| joined(&lines));
        for kind in kinds().into_iter().filter(|kind| !kind.never_merges()) {
            let (one, other) = (contents(Some(&base), &child, &parent), contents(Some(&base), &parent, &child));
            let here = merge_contents(&kind, &one, Strategy::Manual);
            let there = merge_contents(&kind, &other, Strategy::Manual);
            assert_eq!(here.decision, there.decision);
            if here.decision.is_some() {
                clean += 1;
                // The order of additions follows the sides, and so does the order of a union's lines.
                assert_eq!(sorted_lines(&merged_bytes(&here, &one)), sorted_lines(&merged_bytes(&there, &other)));
            }
        }
    }
    assert!(clean > 5_000, "{clean}");
}

#[test]
fn a_union_holds_what_both_added_and_merging_it_again_changes_nothing() {
    let mut chance = Chance(4);
    let kind = Rules::parse("* union id").expect("rules").rule_for(b"a").kind.clone();
    for _ in 0..5_000 {
        let [base, child, parent] = history(&mut chance).map(|lines| joined(&lines));
        let three = contents(Some(&base), &child, &parent);
        let merged = merge_contents(&kind, &three, Strategy::NewestWins);
        let union = merged_bytes(&merged, &three);
        // The union is the later one now.
        let again = contents(Some(&base), &parent, &union);
        let repeated = merge_contents(&kind, &again, Strategy::NewestWins);
        assert_eq!(sorted_lines(&merged_bytes(&repeated, &again)), sorted_lines(&union));
        let lost: Vec<&[u8]> = merged.losers.iter().map(part).collect();
        let (base, union) = (sorted_lines(&base), sorted_lines(&union));
        for line in [&child, &parent].into_iter().flat_map(|side| sorted_lines(side)) {
            let is_kept = union.contains(&line) || lost.contains(&line.as_slice()) || base.contains(&line);
            assert!(is_kept, "{}", String::from_utf8_lossy(&line));
        }
    }
}

fn part(loser: &super::Loser) -> &[u8] {
    match loser {
        super::Loser::Part { bytes, .. } => bytes,
        super::Loser::File(_) | super::Loser::ClosedPart(_) => b"",
    }
}

#[test]
fn a_clean_text_merge_holds_the_lines_that_either_side_added() {
    let mut chance = Chance(5);
    let mut clean = 0;
    for _ in 0..5_000 {
        let [base, child, parent] = history(&mut chance).map(|lines| joined(&lines));
        let three = contents(Some(&base), &child, &parent);
        let merged = merge_contents(&FileMergeKind::text(), &three, Strategy::Manual);
        let text = merged_bytes(&merged, &three);
        if merged.decision.is_none() {
            continue;
        }
        clean += 1;
        let (base, text) = (sorted_lines(&base), sorted_lines(&text));
        for line in [&child, &parent].into_iter().flat_map(|side| sorted_lines(side)) {
            assert!(base.contains(&line) || text.contains(&line));
        }
        for line in &text {
            let known = [&child, &parent].into_iter().any(|side| sorted_lines(side).contains(line));
            assert!(known, "no line comes from nowhere");
        }
    }
    assert!(clean > 1_000, "{clean}");
}
