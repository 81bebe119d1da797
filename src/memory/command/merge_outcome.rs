//! What a merge, promote or pull came to, as the log holds it: an opening applies it and decides nothing again.
//!
//! It refers to versions that the store has already: to records by their places among those that differ between a branch
//! and its base, to files by their inodes. It holds contents only where they were joined.

use std::sync::Arc;

use super::merge_verb::MergeVerb;
use crate::lineage::{Counts, Decision, Side};
use crate::object::{CodecError, Hash, Reader, Writer};
use crate::workspace::{Tree, TreePatch};

/// What became of a record that differs between a branch and its base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOutcome {
    /// The branch alone changed it: the branch's version is taken.
    Taken = 0,
    /// Both sides changed it, to the same version.
    Alike = 1,
    /// Both changed it; the branch's version is taken.
    Child = 2,
    /// Both changed it; the parent's version stays, so a replay does nothing.
    Parent = 3,
    /// Both added it; the parent's stays, and the branch's gets another id.
    Both = 4,
}

impl RecordOutcome {
    const ALL: [RecordOutcome; 5] =
        [RecordOutcome::Taken, RecordOutcome::Alike, RecordOutcome::Child, RecordOutcome::Parent, RecordOutcome::Both];

    /// Returns the outcome of a record: none while it waits for a decision.
    pub fn from_decision(decision: Option<&Decision>) -> Option<RecordOutcome> {
        Some(match decision {
            None => RecordOutcome::Taken,
            Some(item) if item.kept_as.is_some() => RecordOutcome::Both,
            Some(item) => match item.decision? {
                Side::Both => RecordOutcome::Alike,
                Side::Child => RecordOutcome::Child,
                Side::Parent => RecordOutcome::Parent,
            },
        })
    }

    /// Returns the side that was taken if both changed the record; `None` if only the child did.
    pub fn side(self) -> Option<Side> {
        match self {
            RecordOutcome::Taken => None,
            RecordOutcome::Alike | RecordOutcome::Both => Some(Side::Both),
            RecordOutcome::Child => Some(Side::Child),
            RecordOutcome::Parent => Some(Side::Parent),
        }
    }
}

/// The outcomes of records in order of their ids, equal neighbours counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordOutcomes {
    runs: Vec<(RecordOutcome, u64)>,
    /// The ids of [`RecordOutcome::Both`], one after the other.
    kept_as: Vec<Arc<str>>,
}

impl RecordOutcomes {
    /// Appends the outcome of the next record, with the new id of the branch's version if it gets one.
    pub fn push(&mut self, outcome: RecordOutcome, kept_as: Option<Arc<str>>) {
        match self.runs.last_mut() {
            Some((last, count)) if *last == outcome => *count += 1,
            _ => self.runs.push((outcome, 1)),
        }
        self.kept_as.extend(kept_as);
    }

    /// Iterates over the outcomes, one for each record, in order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = RecordOutcome> + '_ {
        self.runs.iter().flat_map(|(outcome, count)| (0..*count).map(move |_| *outcome))
    }

    /// Returns how many records there are, which is how many differ between the branch and its base.
    pub fn len(&self) -> u64 {
        self.runs.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Iterates over the other ids, in order of the records that got them.
    pub fn kept_ids(&self) -> impl Iterator<Item = &Arc<str>> {
        self.kept_as.iter()
    }

    fn write(&self, out: &mut Writer) {
        out.number(self.runs.len() as u64);
        for (outcome, count) in &self.runs {
            out.byte(*outcome as u8).number(*count);
        }
        out.number(self.kept_as.len() as u64);
        self.kept_as.iter().fold(&mut *out, |out, id| out.text(id));
    }

    fn read(input: &mut Reader<'_>) -> Result<RecordOutcomes, CodecError> {
        let run = |input: &mut Reader<'_>| {
            let code = input.byte()?;
            let outcome = RecordOutcome::ALL.get(usize::from(code)).ok_or(CodecError::Code(code))?;
            Ok((*outcome, input.number()?))
        };
        let runs = (0..input.length()?).map(|_| run(input)).collect::<Result<_, _>>()?;
        let kept_as = (0..input.length()?).map(|_| input.text().map(Arc::from)).collect::<Result<_, _>>()?;
        Ok(RecordOutcomes { runs, kept_as })
    }
}

/// A decision on a file, whose versions are referred to where that is possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDecision {
    /// The decision, without the versions that [`StoredDecision::at_path`] refers to.
    decision: Decision,
    /// Which versions, of base, child and parent, are the node at the path in the tree of that side.
    at_path: [bool; 3],
}

/// How a version of a decision is stored: 2 bits each for base, child and parent.
mod version {
    /// The side has no version; nothing follows.
    pub const NONE: u8 = 0;
    /// The hash of the version follows.
    pub const HASH: u8 = 1;
    /// The version is that of the decision's path in the tree of the side; nothing follows.
    pub const AT_PATH: u8 = 2;
}

impl StoredDecision {
    /// Makes the stored form of a decision on a file. `trees` are those of base, child and parent, in this order.
    pub fn new(decision: &Decision, trees: [&Tree; 3]) -> StoredDecision {
        let mut decision = decision.clone();
        let at_path = trees.map(|tree| at_path(&decision.id, tree));
        let versions = [&mut decision.base, &mut decision.child, &mut decision.parent];
        let mut found = [false; 3];
        for ((version, there), found) in versions.into_iter().zip(at_path).zip(&mut found) {
            *found = version.is_some() && *version == there;
            *version = version.filter(|_| !*found);
        }
        StoredDecision { decision, at_path: found }
    }

    /// Returns the decision, with the same trees; none if a path that it refers to does not exist.
    pub fn decision(&self, trees: [&Tree; 3]) -> Option<Decision> {
        let mut decision = self.decision.clone();
        let versions = [&mut decision.base, &mut decision.child, &mut decision.parent];
        for ((version, tree), is_there) in versions.into_iter().zip(trees).zip(self.at_path) {
            if is_there {
                *version = Some(at_path(&self.decision.id, tree)?);
            }
        }
        Some(decision)
    }

    fn versions(&self) -> [Option<Hash>; 3] {
        [self.decision.base, self.decision.child, self.decision.parent]
    }

    fn write(&self, out: &mut Writer) {
        let code = |(at_path, hash): (bool, Option<Hash>)| match (at_path, hash) {
            (true, _) => version::AT_PATH,
            (false, Some(_)) => version::HASH,
            (false, None) => version::NONE,
        };
        let codes = self.at_path.into_iter().zip(self.versions()).map(code);
        out.text(&self.decision.id).byte(codes.enumerate().fold(0, |bits, (place, code)| bits | code << (2 * place)));
        self.versions().iter().flatten().fold(&mut *out, |out, hash| out.hash(hash));
        self.decision.write_without_versions(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<StoredDecision, CodecError> {
        let (id, codes) = (Arc::from(input.text()?), input.byte()?);
        let mut version = |place: u8| match codes >> (2 * place) & 3 {
            version::NONE => Ok((false, None)),
            version::HASH => Ok((false, Some(input.hash()?))),
            version::AT_PATH => Ok((true, None)),
            _ => Err(CodecError::Code(codes)),
        };
        let versions = [version(0)?, version(1)?, version(2)?];
        if codes >= 1 << 6 {
            return Err(CodecError::Code(codes));
        }
        let [base, child, parent] = versions.map(|(_, hash)| hash);
        let decision = Decision { id, base, child, parent, ..Decision::read_without_versions(input)? };
        Ok(StoredDecision { decision, at_path: versions.map(|(at_path, _)| at_path) })
    }
}

/// Returns the hash of the node at the path that the id of a decision names; `None` for a record or a missing path.
fn at_path(id: &str, tree: &Tree) -> Option<Hash> {
    let path = id.strip_prefix("files/")?;
    tree.node_hash(tree.resolve(path.as_bytes()).ok()?)
}

/// What a merge, promote, pull or revert came to: all that was decided, so that a replay decides nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeOutcome {
    /// The head that results in the branch that receives, with which a replay is compared.
    pub head: Hash,
    /// What changes in the branch that receives; a replay counts nothing again.
    pub counts: Counts,
    /// The hash of what was to be taken and decided, by which a dry run or an approval named it.
    pub plan: Hash,
    /// The paths that a rule left out, each with `files/` in front.
    pub not_merged: Vec<Arc<str>>,
    /// What the caller said about it, which the entry has; empty for nothing.
    pub note: Arc<str>,
    /// The first records and files that change in the branch that receives, as many as an entry names.
    pub items: Vec<Arc<str>>,
    /// What became of the records that differ between the branch and its base.
    pub records: RecordOutcomes,
    /// What is done to the files of the branch that receives, with nodes of the other one.
    pub files: Arc<TreePatch>,
    /// Every file that both sides changed, in order of paths.
    pub decisions: Vec<StoredDecision>,
    /// For a promote: what is done to the branch's own files, with nodes of its parent.
    pub promoted: Option<Arc<TreePatch>>,
    /// For a revert: what becomes of the branch's base.
    pub base: BaseOutcome,
}

/// What a revert makes of the branch's base; a merge that is taken back gives back the base, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BaseOutcome {
    /// The base stays.
    #[default]
    Stays,
    /// The base becomes that before the reverted entries.
    AsBefore,
    /// Later entries changed it, too: its records become what they were, and this is done to its files, with nodes of the base
    /// before.
    Patched(Arc<TreePatch>),
}

impl BaseOutcome {
    fn write(&self, out: &mut Writer) {
        match self {
            BaseOutcome::Stays => drop(out.byte(0)),
            BaseOutcome::AsBefore => drop(out.byte(1)),
            BaseOutcome::Patched(patch) => patch.write(out.byte(2)),
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<BaseOutcome, CodecError> {
        match input.byte()? {
            0 => Ok(BaseOutcome::Stays),
            1 => Ok(BaseOutcome::AsBefore),
            2 => Ok(BaseOutcome::Patched(Arc::new(TreePatch::read(input)?))),
            code => Err(CodecError::Code(code)),
        }
    }
}

impl MergeOutcome {
    /// Appends the stored bytes of that of a merge of this kind, which says if a patch of the branch's own or a base
    /// follows.
    pub fn write(&self, merge: MergeVerb, out: &mut Writer) {
        let Counts { put, deleted, files } = self.counts;
        out.hash(&self.head).number(put).number(deleted).number(files);
        out.hash(&self.plan).number(self.not_merged.len() as u64);
        self.not_merged.iter().fold(&mut *out, |out, path| out.text(path));
        out.text(&self.note).number(self.items.len() as u64);
        self.items.iter().fold(&mut *out, |out, item| out.text(item));
        self.records.write(out);
        self.files.write(out);
        out.number(self.decisions.len() as u64);
        self.decisions.iter().for_each(|decision| decision.write(out));
        if let Some(promoted) = &self.promoted {
            promoted.write(out);
        }
        if merge.is_revert() {
            self.base.write(out);
        }
    }

    /// Reads stored bytes; those of a promote have a patch more, those of a revert what becomes of the base. Fails with
    /// the `CodecError` of the first value that is not of the expected form.
    pub fn read(input: &mut Reader<'_>, merge: MergeVerb) -> Result<MergeOutcome, CodecError> {
        let head = input.hash()?;
        let counts = Counts { put: input.number()?, deleted: input.number()?, files: input.number()? };
        let plan = input.hash()?;
        let not_merged = (0..input.length()?).map(|_| input.text().map(Arc::from)).collect::<Result<_, _>>()?;
        let note = input.text()?.into();
        let items = (0..input.length()?).map(|_| input.text().map(Arc::from)).collect::<Result<_, _>>()?;
        let records = RecordOutcomes::read(input)?;
        let files = Arc::new(TreePatch::read(input)?);
        let decisions = (0..input.length()?).map(|_| StoredDecision::read(input)).collect::<Result<_, _>>()?;
        let is_promote = merge == MergeVerb::Promote;
        let promoted = if is_promote { Some(Arc::new(TreePatch::read(input)?)) } else { None };
        let base = if merge.is_revert() { BaseOutcome::read(input)? } else { BaseOutcome::Stays };
        Ok(MergeOutcome { head, counts, plan, not_merged, note, items, records, files, decisions, promoted, base })
    }
}

/// What a rollback of some files came to, as the log holds it; one of the whole branch has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollbackOutcome {
    /// The branch's head that results, with which a replay is compared.
    pub head: Hash,
    /// How many files change, directories not counted.
    pub count: u64,
    /// What is done to the branch's files, with nodes of the checkpoint.
    pub files: TreePatch,
    /// What is done to the files of its base, with nodes of the checkpoint's base.
    pub base: TreePatch,
    /// What does not go back, or was closed for what did, in order of paths.
    pub decisions: Vec<StoredDecision>,
}

impl RollbackOutcome {
    /// Appends the stored bytes: head, count and the two patches, and behind them the decisions where there are some.
    pub fn write(&self, out: &mut Writer) {
        out.hash(&self.head).number(self.count);
        self.files.write(out);
        self.base.write(out);
        if !self.decisions.is_empty() {
            out.number(self.decisions.len() as u64);
            self.decisions.iter().for_each(|decision| decision.write(out));
        }
    }

    /// Reads stored bytes, which are all that is left of the input. [`CodecError::Code`] for a change of files that this
    /// version does not know, [`CodecError::Number`] for a count of no decisions.
    pub fn read(input: &mut Reader<'_>) -> Result<RollbackOutcome, CodecError> {
        let (head, count) = (input.hash()?, input.number()?);
        let (files, base) = (TreePatch::read(input)?, TreePatch::read(input)?);
        let mut decisions = Vec::new();
        if !input.is_empty() {
            let length = input.length()?;
            decisions = (0..length).map(|_| StoredDecision::read(input)).collect::<Result<_, _>>()?;
            if decisions.is_empty() {
                return Err(CodecError::Number);
            }
        }
        Ok(RollbackOutcome { head, count, files, base, decisions })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
pub mod samples {
    use super::*;
    use crate::lineage::LostPart;
    use crate::workspace::{FileName, FileOp, TreeChange};

    fn patch() -> TreePatch {
        let name = FileName::new(b"a").unwrap();
        let write = FileOp::Write { inode: 5, offset: 0, bytes: b"joined"[..].into() };
        let changes = vec![
            TreeChange::Graft { from: 7, parent: 1, name },
            TreeChange::Replace { from: 8, inode: 5 },
            TreeChange::Op(write),
            TreeChange::Op(FileOp::Drop { inode: 4 }),
        ];
        TreePatch { next_inode: 300, writes: true, changes }
    }

    pub fn decision(code: u8) -> StoredDecision {
        let hash = Some(Hash([code; 32]));
        let lost = vec![LostPart::new(Side::Parent, "a line".into())];
        let decision = Decision { id: "files/a".into(), parent: hash, lost, ..Decision::default() };
        StoredDecision { decision, at_path: [true, false, false] }
    }

    /// An outcome with something of everything.
    pub fn outcome(merge: MergeVerb) -> MergeOutcome {
        let mut records = RecordOutcomes::default();
        for outcome in RecordOutcome::ALL.into_iter().chain([RecordOutcome::Parent]) {
            records.push(outcome, (outcome == RecordOutcome::Both).then(|| "a~x".into()));
        }
        MergeOutcome {
            head: Hash([9; 32]),
            counts: Counts { put: 1, deleted: 2, files: 300 },
            plan: Hash([8; 32]),
            not_merged: vec!["files/cache/a".into(), "files/tmp/b".into()],
            note: "why".into(),
            items: vec!["a".into(), "files/b".into()],
            records,
            files: Arc::new(patch()),
            decisions: vec![decision(1), decision(2)],
            promoted: (merge == MergeVerb::Promote).then(|| Arc::new(patch())),
            base: if merge.is_revert() { BaseOutcome::Patched(Arc::new(patch())) } else { BaseOutcome::Stays },
        }
    }

    pub fn rollback(decisions: Vec<StoredDecision>) -> RollbackOutcome {
        RollbackOutcome { head: Hash([9; 32]), count: 3, files: patch(), base: patch(), decisions }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::object::Time;
    use crate::workspace::{FileName, FileOp, NewInode, NoPacks, ROOT};

    fn tree(text: &[u8]) -> Tree {
        let (mut tree, name) = (Tree::default(), FileName::new(b"a").unwrap());
        let create = FileOp::Create { parent: ROOT, name, make: NewInode::File, mode: 0o644, uid: 0, gid: 0 };
        let inode = tree.apply(&create, Time(1), &NoPacks).unwrap().inode;
        tree.apply(&FileOp::Write { inode, offset: 0, bytes: text.into() }, Time(1), &NoPacks).unwrap();
        tree
    }

    fn stored(decision: &Decision, trees: [&Tree; 3]) -> (StoredDecision, usize) {
        let mut out = Writer::new();
        StoredDecision::new(decision, trees).write(&mut out);
        let read = StoredDecision::read(&mut Reader::new(out.as_slice())).unwrap();
        (read, out.as_slice().len())
    }

    #[test]
    fn a_decision_refers_to_versions_at_its_path_and_holds_the_hashes_of_others() {
        let [base, child, parent] = [&tree(b"base"), &tree(b"child"), &tree(b"parent")];
        let trees = [base, child, parent];
        let [old, new, other] = trees.map(|tree| at_path("files/a", tree));
        let there = Decision { id: "files/a".into(), base: old, child: new, parent: other, ..Decision::default() };
        let elsewhere = Decision { base: None, parent: Some(Hash([5; 32])), ..there.clone() };
        let gone = Decision { id: "files/b".into(), ..there.clone() };
        for (decision, hashes) in [(there, 0), (elsewhere, 1), (gone, 3)] {
            let (stored, length) = stored(&decision, trees);
            assert_eq!(stored.decision(trees), Some(decision));
            assert_eq!(length, 1 + 7 + 1 + hashes * 32 + 1);
        }
    }

    #[test]
    fn a_version_that_is_no_longer_at_the_path_is_told() {
        let child = tree(b"child");
        let decision = Decision { id: "files/a".into(), child: at_path("files/a", &child), ..Decision::default() };
        let (stored, _) = stored(&decision, [&Tree::default(), &child, &Tree::default()]);
        assert_eq!(stored.decision([&Tree::default(), &Tree::default(), &Tree::default()]), None);
    }

    #[test]
    fn ten_thousand_records_that_one_side_changed_take_a_few_bytes() {
        let mut records = RecordOutcomes::default();
        (0..10_000).for_each(|_| records.push(RecordOutcome::Taken, None));
        let mut out = Writer::new();
        records.write(&mut out);
        assert!(out.as_slice().len() <= 5);
        assert_eq!((records.len(), records.iter().count()), (10_000, 10_000));
    }
}
