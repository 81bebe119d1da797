//! The contents of one file on three sides, and what becomes of them.

use std::fmt;

use super::kind::{FileMergeKind, MergeMethod};
use super::{Side, Strategy};
use crate::object::{Hash, Time};
use crate::workspace::TreeError;

/// Longest content that is merged by its lines or entries, in bytes; longer ones are `whole`.
///
/// It bounds the memory of a merge, which holds the three versions and what it makes of them.
pub const CONTENT_BYTES_MAX: u64 = 64 << 20;
/// Most lines that the three versions of a content have together; each takes about a microsecond and 100 bytes.
const LINES_MAX: usize = 2 << 20;
/// Bytes of contents that one merge of branches merges by their lines or entries; what comes after that is `whole`.
/// The results are in one record of the log.
pub const MERGED_BYTES_MAX: u64 = 512 << 20;

/// One side's content, in memory as a whole.
#[derive(Clone, Copy, Debug)]
pub struct ContentVersion<'a> {
    /// The bytes of the file; beyond [`CONTENT_BYTES_MAX`] no kind looks into them.
    pub bytes: &'a [u8],
    /// When they were last written (mtime), by which the later side is found.
    pub modified: Time,
}

/// One file as three sides have it.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'a> {
    /// What both began with; `None` if both added the file.
    pub base: Option<&'a [u8]>,
    /// The side that gives: the branch that is merged, or in a pull its parent.
    pub child: ContentVersion<'a>,
    /// The side that receives: the parent, or in a pull the branch.
    pub parent: ContentVersion<'a>,
}

impl Contents<'_> {
    /// Returns the side that wrote later; a tie goes to the child.
    pub(super) fn later_side(&self) -> Side {
        if self.parent.modified > self.child.modified { Side::Parent } else { Side::Child }
    }

    /// Returns the side that a strategy decides for; none under `manual`.
    pub(super) fn winner(&self, strategy: Strategy) -> Option<Side> {
        strategy.winner(self.child.modified, self.parent.modified)
    }

    /// Returns the side that has exactly these bytes, the parent first, else `Merged` with them.
    pub(super) fn choice_for(&self, bytes: Vec<u8>) -> ContentChoice {
        if bytes == self.parent.bytes {
            ContentChoice::Parent
        } else if bytes == self.child.bytes {
            ContentChoice::Child
        } else {
            ContentChoice::Merged(bytes)
        }
    }
}

/// The content that a merge gives a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentChoice {
    /// The child's, byte for byte.
    Child,
    /// The parent's, byte for byte.
    Parent,
    /// Bytes that neither side has, which the log has to hold.
    Merged(Vec<u8>),
}

impl ContentChoice {
    /// Returns the bytes, which are one side's own where it was taken.
    pub fn bytes<'a>(&'a self, contents: &Contents<'a>) -> &'a [u8] {
        match self {
            ContentChoice::Child => contents.child.bytes,
            ContentChoice::Parent => contents.parent.bytes,
            ContentChoice::Merged(bytes) => bytes,
        }
    }
}

/// What a merge did not keep, so that it can be logged by its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loser {
    /// A side's file; where only some of its lines lost, too.
    File(Side),
    /// A line or an entry, where the rest of the file was kept.
    Part {
        /// The side whose file had it.
        side: Side,
        /// The line without its line end, or the entry's JSON text as it stood in the file.
        bytes: Vec<u8>,
    },
    /// A line or an entry of a side's file that not everybody may read: it counts, and is not told.
    ClosedPart(Side),
}

/// Says why a file was merged as `whole` and not by its kind: each kind has its own reasons, in words that plans show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallback(pub(super) &'static str);

impl Fallback {
    /// Its sides differ in so much that comparing them line by line would take too long, it is longer than
    /// [`CONTENT_BYTES_MAX`] or has too many lines, or the merge had [`MERGED_BYTES_MAX`] to merge before it.
    pub(super) const TOO_LARGE: Fallback = Fallback("it is too large to compare line by line");
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "merged as a whole: {}", self.0)
    }
}

/// What becomes of a file's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedContent {
    /// The content to have; the parent's where a conflict waits.
    pub choice: ContentChoice,
    /// The side that conflicts were decided for, `Both` if there was none; `None` if one waits for a manual decision.
    pub decision: Option<Side>,
    /// What was not kept; empty if nothing was lost, or a conflict waits.
    pub losers: Vec<Loser>,
    /// Why the kind of the rule could not be followed; `None` if it was.
    pub fallback: Option<Fallback>,
}

impl MergedContent {
    /// Returns a merge without conflict or loss.
    pub(super) fn clean(choice: ContentChoice) -> MergedContent {
        MergedContent { choice, decision: Some(Side::Both), losers: Vec::new(), fallback: None }
    }

    /// A conflict that waits for a manual decision.
    pub(super) fn waiting() -> MergedContent {
        MergedContent { choice: ContentChoice::Parent, decision: None, losers: Vec::new(), fallback: None }
    }
}

/// What the merge of one file's contents depends on: equal keys have equal results, so that one can be used again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ContentKey {
    /// How they merge, the key of a kind included.
    pub kind: FileMergeKind,
    /// How conflicts are decided, also by a person's choice.
    pub strategy: Strategy,
    /// The side that wrote later; times have no other part in the result.
    pub later: Side,
    /// The hash of what both began with; `None` if both added the file.
    pub base: Option<Hash>,
    /// The hash of the child's content, as the tree has it.
    pub child: Hash,
    /// The hash of the parent's content, as the tree has it.
    pub parent: Hash,
    /// How many bytes the three have together, which a merger counts against what may still be merged.
    pub bytes: u64,
}

/// Merges contents that both sides changed, which takes nearly all the time of a long merge.
pub trait ContentMerger {
    /// Returns the merge that `key` describes: one that was made before, or what `merge` makes. [`TreeError::Exceeded`]
    /// if that is more than may be done now.
    fn merge(
        &self,
        key: &ContentKey,
        merge: &mut dyn FnMut() -> Result<MergedContent, TreeError>,
    ) -> Result<MergedContent, TreeError>;
}

/// Merges each content as it comes, whatever it takes.
pub struct MergeAll;

impl ContentMerger for MergeAll {
    fn merge(
        &self,
        _: &ContentKey,
        merge: &mut dyn FnMut() -> Result<MergedContent, TreeError>,
    ) -> Result<MergedContent, TreeError> {
        merge()
    }
}

/// Merges the contents of one file that both sides have.
///
/// If one side is as the base was, or both are the same, the result is the other side, byte for byte, whatever the
/// kind. `strategy` decides conflicts: see [`super::Rule::strategy`]. Never fails: what is not of its kind, or longer
/// than [`CONTENT_BYTES_MAX`], is merged as `whole`, and the fallback says so.
///
/// `never` gives the parent's content.
pub fn merge_contents(kind: &FileMergeKind, contents: &Contents<'_>, strategy: Strategy) -> MergedContent {
    let (child, parent) = (contents.child.bytes, contents.parent.bytes);
    if child == parent || contents.base == Some(child) || kind.never_merges() {
        return MergedContent::clean(ContentChoice::Parent);
    }
    if contents.base == Some(parent) {
        return MergedContent::clean(ContentChoice::Child);
    }
    let by_kind = match kind.spec().method {
        MergeMethod::Never | MergeMethod::Whole => return whole(contents, strategy),
        MergeMethod::ByContent(_) if is_too_long(contents) => Err(Fallback::TOO_LARGE),
        MergeMethod::ByContent(merge) => merge(contents, kind.key(), strategy),
    };
    by_kind.unwrap_or_else(|fallback| MergedContent { fallback: Some(fallback), ..whole(contents, strategy) })
}

fn is_too_long(contents: &Contents<'_>) -> bool {
    let sides = [contents.base.unwrap_or_default(), contents.child.bytes, contents.parent.bytes];
    let lines = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
    sides.iter().any(|bytes| bytes.len() as u64 > CONTENT_BYTES_MAX)
        || sides.into_iter().map(lines).sum::<usize>() > LINES_MAX
}

/// Decides between two different contents, of which it reads neither.
pub(super) fn whole(contents: &Contents<'_>, strategy: Strategy) -> MergedContent {
    match contents.winner(strategy) {
        None => MergedContent::waiting(),
        Some(side) => {
            decided_conflict(if side == Side::Child { ContentChoice::Child } else { ContentChoice::Parent }, side)
        }
    }
}

/// A conflict decided for a side: the other side's file is the loser.
pub(super) fn decided_conflict(choice: ContentChoice, winner: Side) -> MergedContent {
    MergedContent { choice, decision: Some(winner), losers: vec![Loser::File(other_side(winner))], fallback: None }
}

/// Returns the opposite side; `Both` stays `Both`.
pub(super) fn other_side(side: Side) -> Side {
    match side {
        Side::Child => Side::Parent,
        Side::Parent => Side::Child,
        Side::Both => Side::Both,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge::files::tests::contents;

    #[test]
    fn contents_merge_by_their_lines_up_to_64_mib_and_2097152_lines() {
        let is_long = |child: &[u8], parent: &[u8]| is_too_long(&contents(Some(b"\n"), child, parent));
        let lines = |count: usize| vec![b'\n'; count];
        assert!(!is_long(&lines(1_048_576), &lines(1_048_575)) && is_long(&lines(1_048_576), &lines(1_048_576)));
        let bytes = vec![b'x'; (64 << 20) + 1];
        assert!(!is_long(&bytes[1..], b"p") && is_long(&bytes, b"p"));
        assert_eq!(MERGED_BYTES_MAX, 512 << 20, "of all contents of a merge");
    }
}
