//! Which states a merge brings together: of a branch and its parent, or of a branch now and before some of its entries.

use crate::lineage::EntryOp;
use crate::object::{CodecError, Reader, Writer};

/// How two states are merged, and which of two branches receives the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MergeVerb {
    /// Into the parent, and the branch ends.
    Merge,
    /// Into the parent, and the branch lives on.
    Promote,
    /// The parent's state into the branch, which receives; the parent stays as it is.
    Pull,
    /// The branch's own state before some entries into its present one, with the state after them as the base.
    Revert(RevertedEntries),
}

impl MergeVerb {
    /// Returns the step that its entry shows. All verbs of reverts have the same.
    pub fn op(self) -> EntryOp {
        match self {
            MergeVerb::Merge => EntryOp::Merge,
            MergeVerb::Promote => EntryOp::Promote,
            MergeVerb::Pull => EntryOp::Pull,
            MergeVerb::Revert(_) => EntryOp::Revert,
        }
    }

    /// Returns whether it takes back entries. Parent and child are then states of one branch.
    pub fn is_revert(self) -> bool {
        matches!(self, MergeVerb::Revert(_))
    }
}

/// A range of entries that are taken back together: all from the first to the last that changed the branch's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RevertedEntries {
    /// Number of the entry that gave the branch its state before the first of them.
    pub before: u64,
    /// Number of the first entry.
    pub first: u64,
    /// Number of the last entry; equal to `first` for a single one.
    pub last: u64,
    /// The verb that was used: `redo` looks for `undo`.
    pub verb: RevertVerb,
}

/// The verb of a revert. The numbers are stored, so none may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RevertVerb {
    /// An entry that the caller named.
    Revert = 0,
    /// The caller's newest entries that are not taken back yet.
    Undo = 1,
    /// The caller's newest undo that is not taken back yet.
    Redo = 2,
}

impl RevertVerb {
    const ALL: [(RevertVerb, &'static str); 3] =
        [(RevertVerb::Revert, "revert"), (RevertVerb::Undo, "undo"), (RevertVerb::Redo, "redo")];

    /// Returns its name, which is in the text of the entry.
    pub fn name(self) -> &'static str {
        RevertVerb::ALL[self as usize].1
    }

    /// Returns the verb with this name; `None` for any other text.
    pub fn parse(name: &str) -> Option<RevertVerb> {
        RevertVerb::ALL.iter().find(|(_, known)| *known == name).map(|(verb, _)| *verb)
    }
}

impl RevertedEntries {
    /// Appends the stored form: three numbers and the verb's code.
    pub fn write<'a>(&self, out: &'a mut Writer) -> &'a mut Writer {
        out.number(self.before).number(self.first).number(self.last).byte(self.verb as u8)
    }

    /// Reads the stored form. [`CodecError::Code`] for a verb that this version does not know.
    pub fn read(input: &mut Reader<'_>) -> Result<RevertedEntries, CodecError> {
        let (before, first, last, code) = (input.number()?, input.number()?, input.number()?, input.byte()?);
        let found = RevertVerb::ALL.iter().find(|(verb, _)| *verb as u8 == code);
        let (verb, _) = *found.ok_or(CodecError::Code(code))?;
        Ok(RevertedEntries { before, first, last, verb })
    }

    /// Returns the label of the entry that takes them back: `N`, or `N..M`.
    pub fn label(&self) -> String {
        if self.first == self.last { self.last.to_string() } else { format!("{}..{}", self.first, self.last) }
    }

    /// Returns the first and the last entry that a label names; `None` if it is neither `N` nor `N..M`.
    pub fn parse_label(label: &str) -> Option<(u64, u64)> {
        let (first, last) = label.split_once("..").unwrap_or((label, label));
        Some((first.parse().ok()?, last.parse().ok()?))
    }
}
