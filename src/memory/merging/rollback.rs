//! Going back to an earlier state, as a whole or for some files.

use std::sync::Arc;

use super::file_decisions::shown_decision;
use super::merge_budget::PlanError;
use super::merge_plan::MergeContext;
use crate::branch::{BranchVersion, differences_at_most};
use crate::lineage::{Counts, Decision, Detail, EntryOp};
use crate::memory::catalog::CatalogChange;
use crate::memory::catalog::{Branch, BranchId, BranchRef, Catalog, ResolvedSource, StateSource};
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord, read_texts, write_texts};
use crate::memory::command::merge_outcome::{RollbackOutcome, StoredDecision};
use crate::memory::command::merge_verb::MergeVerb;
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, prepare_on_branch};
use crate::memory::storage::trees::tree_error;
use crate::memory::{Error, MergeError};
use crate::merge::files::{FileMerge, FilePlan, GuardScope, MergeTrees, ReaderGuard, Rules, plan_files, unit_paths};
use crate::object::{CodecError, Reader, Time, Writer};
use crate::workspace::{Tree, TreePatch};

/// The patterns of the files that go back, each beginning with `files/`, and what is done to them.
pub(in crate::memory) type FilesOutcome = (Vec<Arc<str>>, Arc<RollbackOutcome>);

/// A branch goes back to an earlier state, as a whole or for some files.
#[derive(Debug)]
pub(in crate::memory) struct RollBackBranch {
    /// The branch that goes back.
    pub branch: BranchId,
    /// The state that it goes back to, of its own lineage.
    pub source: StateSource,
    /// The patterns and what was worked out; `None` if the whole branch goes back.
    pub files: Option<FilesOutcome>,
}

pub(in crate::memory) const ROLLBACK: CommandSpec = CommandSpec {
    code: 7,
    name: "rollback",
    read: |input| {
        Ok(Box::new(RollBackBranch { branch: BranchId::read(input)?, source: read_source(input)?, files: None }))
    },
};

pub(in crate::memory) const ROLLBACK_FILES: CommandSpec = CommandSpec {
    code: 19,
    name: "rollback_files",
    read: |input| Ok(Box::new(RollBackBranch::read_with_files(input)?)),
};

impl RollBackBranch {
    fn read_with_files(input: &mut Reader<'_>) -> Result<RollBackBranch, CodecError> {
        let (branch, source, patterns) = (BranchId::read(input)?, read_source(input)?, read_texts(input)?);
        Ok(RollBackBranch { branch, source, files: Some((patterns, Arc::new(RollbackOutcome::read(input)?))) })
    }
}

fn read_source(input: &mut Reader<'_>) -> Result<StateSource, CodecError> {
    StateSource::read(input)?.ok_or(CodecError::Code(0))
}

impl Command for RollBackBranch {
    fn spec(&self) -> &'static CommandSpec {
        if self.files.is_some() { &ROLLBACK_FILES } else { &ROLLBACK }
    }

    fn write(&self, out: &mut Writer) {
        self.source.write(out.number(self.branch.0));
        if let Some((patterns, outcome)) = &self.files {
            outcome.write(write_texts(patterns, out));
        }
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let merge_context = MergeContext::new(context, log_record);
        let Some((patterns, outcome)) = &self.files else {
            let rollback = RollbackPlan::new(merge_context, self.branch, &self.source, None, usize::MAX)?;
            return rollback.prepare(context.catalog, log_record);
        };
        let replayed = RollbackPlan::replay(merge_context, self.branch, &self.source, patterns, outcome)
            .and_then(|rollback| rollback.prepare(context.catalog, log_record));
        context.with_recorded_head(replayed, outcome.head)
    }

    fn may_use_reserve(&self) -> bool {
        true
    }
}

/// A rollback that was worked out on one state of a branch; under the lock it holds only for that one.
pub struct RollbackPlan {
    branch: BranchRef,
    /// [`Catalog::rewrite_count`] when it was worked out: after another one its state may be in files that are going.
    rewrite_count: u64,
    source: StateSource,
    /// The entry of the source: another checkpoint may get its label meanwhile.
    source_seq: u64,
    /// For some files only: the patterns, and what is done to those. `None` if the whole branch goes back.
    files: Option<FilesOutcome>,
    state: BranchVersion,
    /// The base that the branch gets back, where it had another one: a merge then deletes nothing that a pull had brought.
    base: Option<Arc<BranchVersion>>,
    counts: Counts,
    /// What of some files does not go back, or was closed for what did.
    decisions: Vec<Decision>,
    /// When it was worked out; records that go count as deleted at this moment.
    pub time: Time,
}

impl RollbackPlan {
    /// Plans a rollback of a branch to a state; with `patterns` only of the files that match.
    ///
    /// [`PlanError::Exceeded`] if more than `limit` records or paths differ.
    pub fn new(
        context: MergeContext<'_>,
        branch: BranchId,
        source: &StateSource,
        patterns: Option<&[Arc<str>]>,
        limit: usize,
    ) -> Result<RollbackPlan, PlanError> {
        let branch = context.catalog.branch_ref(branch)?;
        let ResolvedSource { state: wanted, base: wanted_base, source_seq, .. } =
            context.catalog.resolve_source(branch, source)?;
        let (state, base, counts, files, decisions) = match patterns {
            None => {
                let (state, counts) = restore_whole(branch, &wanted, context.time, limit)?;
                (state, Some(wanted_base), counts, None, Vec::new())
            }
            // Only files at the patterns go back, in the state and in the base, and all else stays.
            Some(patterns) => {
                let trees = [wanted.files(), wanted_base.files()];
                let (state, base, outcome) = restore_files(context, branch, trees, patterns, limit)?;
                let counts = Counts { files: outcome.count, ..Counts::default() };
                let decisions = recorded_decisions(&outcome, branch, wanted.files())?;
                (state, base, counts, Some((patterns.to_vec(), Arc::new(outcome))), decisions)
            }
        };
        Ok(RollbackPlan {
            branch: branch.clone(),
            rewrite_count: context.catalog.rewrite_count,
            source: source.clone(),
            source_seq,
            base,
            files,
            state,
            counts,
            decisions,
            time: context.time,
        })
    }

    /// Applies the outcome of a rollback of files from the log. [`Error::NoCheckpoint`] or [`Error::NotKept`] if its
    /// source is not there, kind `Damaged` if a file is not on which it decided.
    pub fn replay(
        context: MergeContext<'_>,
        branch: BranchId,
        source: &StateSource,
        patterns: &[Arc<str>],
        outcome: &Arc<RollbackOutcome>,
    ) -> Result<RollbackPlan, Error> {
        let branch = context.catalog.branch_ref(branch)?;
        let ResolvedSource { state: wanted, base: wanted_base, source_seq, .. } =
            context.catalog.resolve_source(branch, source)?;
        let mut state = BranchVersion::clone(&branch.state);
        // The recorded changes are made again and nothing is decided: rules or units may be read otherwise by a later
        // version.
        let own = state.files().apply_patch(&outcome.files, wanted.files(), context.time, context.packs);
        state.set_files(own.map_err(tree_error)?);
        let base = branch.base.files().apply_patch(&outcome.base, wanted_base.files(), context.time, context.packs);
        let base = with_base_files(branch, &outcome.base, base.map_err(tree_error)?);
        Ok(RollbackPlan {
            branch: branch.clone(),
            rewrite_count: context.catalog.rewrite_count,
            source: source.clone(),
            source_seq,
            base,
            files: Some((patterns.to_vec(), outcome.clone())),
            state,
            counts: Counts { files: outcome.count, ..Counts::default() },
            decisions: recorded_decisions(outcome, branch, wanted.files())?,
            time: context.time,
        })
    }

    /// Returns what the log holds of it: of files the outcome, of a whole branch the source alone.
    pub fn command(&self) -> RollBackBranch {
        RollBackBranch { branch: self.branch.id, source: self.source.clone(), files: self.files.clone() }
    }

    /// Returns the branch before the rollback, and its files after it.
    pub fn replaced_files(&self) -> (&Branch, &Tree) {
        (&self.branch, self.state.files())
    }

    /// Returns whether branch and source are unchanged and in the same files, and it can be an entry with that time.
    pub fn is_current(&self, catalog: &Catalog, time: Time) -> bool {
        let Ok(branch) = catalog.branch(self.branch.id) else { return false };
        let same_source =
            catalog.resolve_source(branch, &self.source).is_ok_and(|found| found.source_seq == self.source_seq);
        // A compaction moves rows without changing a head, and this state may lead to rows in files that are going.
        let is_in_place = self.rewrite_count == catalog.rewrite_count;
        // It is later where the clock was set back since, and a log record can't say so.
        same_source
            && is_in_place
            && self.time <= time
            && branch.has_same_state(&self.branch)
            && branch.base_seq == self.branch.base_seq
    }

    /// Returns whether the branch gets smaller, so that it is allowed on a full disk.
    pub fn is_shrinking(&self) -> bool {
        let bytes = |state: &BranchVersion| state.totals().raw_bytes + state.files().totals().allocated_bytes;
        bytes(&self.state) < bytes(&self.branch.state)
    }

    /// Returns the entry of the rollback and what it changes in a catalog in which this holds. Fails with `Error::Gone`
    /// if the branch has ended, and with `Error::NoCheckpoint` if the checkpoint has gone since.
    pub fn prepare(&self, catalog: &Catalog, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let branch = catalog.branch(self.branch.id)?;
        let text = self.files.as_ref().map(|(patterns, _)| patterns.join(" ").into());
        let (label, conflicts) = (self.source.label().cloned(), self.decisions.clone());
        let detail = Detail { label, text, conflicts, ..Detail::default() };
        let mut prepared = prepare_on_branch(catalog, log_record, branch, EntryOp::Rollback).with_detail(detail);
        prepared.counts = self.counts;
        let mut prepared = prepared.with_state(self.state.clone());
        if self.files.is_none()
            && let StateSource::Checkpoint(label) = &self.source
        {
            prepared = prepared.with_change(CatalogChange::Cursor(branch.id, branch.checkpoint(label)?.cursor));
        }
        Ok(match &self.base {
            Some(base) => prepared.with_change(CatalogChange::Base(branch.id, base.clone())),
            None => prepared,
        })
    }
}

/// Returns the state of a checkpoint as the branch has it then, and what differs from the present one.
fn restore_whole(
    branch: &BranchRef,
    wanted: &Arc<BranchVersion>,
    time: Time,
    limit: usize,
) -> Result<(BranchVersion, Counts), PlanError> {
    let mut state = BranchVersion::clone(wanted);
    let mut files = state.files().clone();
    let changed = branch.state.files().differences_at_most(&files, limit).ok_or(PlanError::Exceeded)?;
    let mut counts = Counts { files: changed.len() as u64, ..Counts::default() };
    // A number that a handle may still hold is never given to another file.
    files.reserve_inodes_below(branch.state.files().next_inode());
    state.set_files(files);
    for change in differences_at_most(&branch.state, &state, limit)?.ok_or(PlanError::Exceeded)? {
        if change.new.is_some() {
            counts.put += 1;
        } else {
            counts.deleted += 1;
            state.note_deleted(&change.id, time);
        }
    }
    Ok((state, counts))
}

/// Returns a branch's base with these files; `None` if nothing was done to them.
fn with_base_files(branch: &Branch, patch: &TreePatch, files: Tree) -> Option<Arc<BranchVersion>> {
    let mut base = BranchVersion::clone(&branch.base);
    base.set_files(files);
    (!patch.changes.is_empty()).then(|| Arc::new(base))
}

/// Returns the decisions of an outcome; kind `Damaged` if a file is not there that one is about.
fn recorded_decisions(outcome: &RollbackOutcome, branch: &Branch, wanted: &Tree) -> Result<Vec<Decision>, Error> {
    let own = branch.state.files();
    let missing = || Error::damaged("a file that a rollback decided on is not at its path".to_owned());
    outcome.decisions.iter().map(|decision| decision.decision([own, wanted, own]).ok_or_else(missing)).collect()
}

/// Returns the state of a branch with the files at the patterns as another state has them, the base with the same files
/// as the base of that state, and what is done to both.
///
/// [`PlanError::Exceeded`] if more than `limit` paths differ.
fn restore_files(
    context: MergeContext<'_>,
    branch: &BranchRef,
    [wanted, wanted_base]: [&Tree; 2],
    patterns: &[Arc<str>],
    limit: usize,
) -> Result<(BranchVersion, Option<Arc<BranchVersion>>, RollbackOutcome), PlanError> {
    let mut text = rules_text(patterns)?;
    // The text is parsed twice, as units are only known by what the patterns mean.
    let bad = || Error::from(MergeError::Pattern(patterns.join(" ")));
    let selected = Rules::parse(&rules_for_paths(&text)).map_err(|_| bad())?;
    // A unit goes back as a whole or not at all, so a pattern that meets one of its files takes all of them.
    for trees in [[branch.state.files(), wanted], [branch.base.files(), wanted_base]] {
        for path in unit_paths(branch.settings.rules(), context.packs, &selected, trees, limit)? {
            push_rule_lines(&mut text, &escape_pattern(&path));
        }
    }
    let rules = Rules::parse(&rules_for_paths(&text)).map_err(|_| bad())?;
    let file_merge = FileMerge {
        guard: ReaderGuard::new(branch.uid, GuardScope::EarlierFiles),
        ..FileMerge::fast_forward(&rules, context.packs, limit, context.time)
    };
    // With its own tree as the base whatever differs is taken from the wanted tree, but for what stays closed or has no place.
    let back = |own: &Tree, wanted: &Tree| -> Result<(Tree, TreePatch, FilePlan), PlanError> {
        let plan = plan_files(MergeTrees { base: own, child: wanted, parent: own }, &file_merge)?;
        let (tree, patch) = plan.without_removed(context.time, context.packs)?;
        Ok((tree, patch, plan))
    };
    let own = branch.state.files();
    let (tree, files, plan) = back(own, wanted)?;
    let stored = |item| StoredDecision::new(&shown_decision(item, MergeVerb::Merge), [own, wanted, own]);
    let decisions = plan.conflicts().map(stored).collect();
    let mut state = BranchVersion::clone(&branch.state);
    state.set_files(tree);
    let (tree, base, _) = back(branch.base.files(), wanted_base)?;
    // A file that is as it was does not differ either, so only a look at all names tells that one was mistyped.
    let trees = [own, wanted, branch.base.files(), wanted_base];
    if files.changes.is_empty() && base.changes.is_empty() && !selected.merge_any(&trees, limit)? {
        return Err(Error::from(MergeError::NoMatch(patterns.join(" "))).into());
    }
    let new_base = with_base_files(branch, &base, tree);
    let outcome = RollbackOutcome { head: state.head(), count: plan.changed_files, files, base, decisions };
    Ok((state, new_base, outcome))
}

/// Returns the lines of rules by which files at these paths merge.
fn rules_text(patterns: &[Arc<str>]) -> Result<String, Error> {
    let mut text = String::new();
    for pattern in patterns {
        let inside = pattern.strip_prefix("files/").filter(|inside| !inside.is_empty());
        let inside = inside.ok_or_else(|| MergeError::Pattern(pattern.to_string()))?;
        let mut without_blanks = String::new();
        for character in inside.trim_end_matches('/').chars() {
            match character.is_whitespace() {
                true => push_blank(&mut without_blanks, character),
                false => without_blanks.push(character),
            }
        }
        push_rule_lines(&mut text, &without_blanks);
    }
    Ok(text)
}

fn push_rule_lines(text: &mut String, pattern: &str) {
    text.push_str(&format!("/{pattern} whole\n/{pattern}/** whole\n"));
}

/// Returns rules by which nothing merges but what the lines name: the last rule, for all else, is `never`.
fn rules_for_paths(lines: &str) -> String {
    format!("{lines}** never")
}

/// Appends what matches a blank, which would end a word in rules. A blank may have several bytes, and `?` matches one.
fn push_blank(pattern: &mut String, blank: char) {
    pattern.extend(std::iter::repeat_n('?', blank.len_utf8()));
}

/// Returns the pattern that names a path: `?` is written for what a pattern can't hold.
fn escape_pattern(path: &[u8]) -> String {
    let mut pattern = String::new();
    for chunk in path.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                blank if blank.is_whitespace() => push_blank(&mut pattern, blank),
                '*' | '?' | '[' | ']' | '{' | '}' | '\\' | '!' => pattern.extend(['\\', character]),
                character => pattern.push(character),
            }
        }
        pattern.extend(chunk.invalid().iter().map(|_| '?'));
    }
    pattern
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::{Disk, ForgetfulDisk};
    use crate::memory::{
        Actor, Environment, FILES_ROOT, FileName, FileOp, ForkOptions, Memory, NewInode, OpenMode, RecordEdit,
        RecordInput, VerifyOptions, View, verify_on,
    };

    fn who() -> Actor {
        Actor { uid: 0, gid: 0, name: "root".into() }
    }

    fn file_text(memory: &Memory, branch: BranchId) -> Vec<u8> {
        let tree = memory.files(&View::Branch(branch)).unwrap();
        tree.read(tree.resolve(b"a").unwrap(), 0, 100, memory.packs()).unwrap()
    }

    #[test]
    fn an_opening_applies_the_recorded_rollback_of_files_and_works_out_nothing_again() {
        let disk = ForgetfulDisk::new();
        let create = |mode| Memory::open_on(Arc::new(disk.clone()), mode, None, Environment::real(who())).unwrap();
        let memory = create(OpenMode::Create);
        let main = memory.root("main").unwrap();
        let edit = |op: FileOp<'_>| memory.edit(&who(), main, op).unwrap().inode;
        let name = FileName::new(b"a").unwrap();
        let inode =
            edit(FileOp::Create { parent: FILES_ROOT, name, make: NewInode::File, mode: 0o644, uid: 0, gid: 0 });
        edit(FileOp::Write { inode, offset: 0, bytes: b"before"[..].into() });
        memory.checkpoint(&who(), main, "v1", None).unwrap();
        edit(FileOp::Write { inode, offset: 0, bytes: b"behind"[..].into() });
        // As another version might have worked it out: nothing changes.
        let (branch, source) = (main, StateSource::Checkpoint("v1".into()));
        let mut writer = memory.writer_for(&who(), &[Some(main)]).unwrap();
        let head = memory.catalog().branch(main).unwrap().state.head();
        let outcome = RollbackOutcome {
            head,
            count: 0,
            files: TreePatch::default(),
            base: TreePatch::default(),
            decisions: Vec::new(),
        };
        let (patterns, outcome) = (vec!["files/a".into()], Arc::new(outcome));
        memory.execute(&mut writer, 0, RollBackBranch { branch, source, files: Some((patterns, outcome)) }).unwrap();
        drop(writer);
        assert_eq!(file_text(&memory, main), b"behind");
        memory.sync().unwrap();
        verify_on(&(Arc::new(disk.clone()) as Arc<dyn Disk>), &VerifyOptions::default()).unwrap();
        let cut = Arc::new(disk.power_cut_keep_all());
        let again = Memory::open_on(cut, OpenMode::Existing, None, Environment::real(who())).unwrap();
        assert_eq!(file_text(&again, main), b"behind");
    }

    /// A folder of the branch's owner is taken from them for what comes back into it.
    #[test]
    fn an_entry_of_a_rollback_of_files_tells_what_was_closed_for_them() {
        let disk = ForgetfulDisk::new();
        let memory = Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, Environment::real(who())).unwrap();
        let (main, name) = (memory.root("main").unwrap(), |name: &str| FileName::new(name.as_bytes()).unwrap());
        let make = |branch: BranchId, parent: u64, named: &str, (make, mode, uid): (NewInode, u32, u32)| {
            let op = FileOp::Create { parent, name: name(named), make, mode, uid, gid: uid };
            memory.edit(&who(), branch, op).unwrap().inode
        };
        let options = ForkOptions { owner: Some(1000), ..ForkOptions::default() };
        let folder = make(main, FILES_ROOT, "d", (NewInode::Directory, 0o700, 0));
        make(main, folder, "s", (NewInode::File, 0o644, 0));
        let ann = memory.fork_with(&who(), main, "ann", options).unwrap();
        memory.checkpoint(&who(), ann, "v1", None).unwrap();
        memory.edit(&who(), ann, FileOp::Unlink { parent: folder, name: name("s"), keep: false }).unwrap();
        memory.edit(&who(), ann, FileOp::Rmdir { parent: FILES_ROOT, name: name("d"), keep: false }).unwrap();
        make(ann, FILES_ROOT, "d", (NewInode::Directory, 0o755, 1000));
        memory.rollback_files(&who(), ann, "v1", &["files/d/s".into()]).unwrap();
        memory.sync().unwrap();
        let seq = memory.last_seq();
        let told = |memory: &Memory| {
            let tree = memory.files(&View::Branch(ann)).unwrap();
            let node = tree.node(tree.resolve(b"d").unwrap()).unwrap();
            assert_eq!((tree.owner(node), node.mode), (0, 0o700));
            memory.history_reader().entry(seq).unwrap()
        };
        let signed = told(&memory);
        assert_eq!(signed.entry.op, EntryOp::Rollback);
        let conflicts = &signed.entry.detail.conflicts;
        assert_eq!(conflicts.iter().map(|conflict| &*conflict.id).collect::<Vec<_>>(), ["files/d"]);
        assert!(signed.to_line().contains("\"conflicts\":[{"), "{}", signed.to_line());
        let cut = Arc::new(disk.power_cut_keep_all());
        let again = Memory::open_on(cut, OpenMode::Existing, None, Environment::real(who())).unwrap();
        assert_eq!(told(&again), signed, "it is replayed");
    }

    /// What is rolled back to, and what is replaced, must be what the plan looked at.
    #[test]
    fn a_plan_that_something_came_between_does_not_hold() {
        let disk = Arc::new(ForgetfulDisk::new());
        let memory = Memory::open_on(disk, OpenMode::Create, None, Environment::real(who())).unwrap();
        let main = memory.root("main").unwrap();
        let commit = || {
            let put = RecordEdit::Put { id: "a".into(), input: RecordInput::from_vector(vec![1.0]).unwrap() };
            memory.commit(&who(), main, vec![put]).unwrap();
        };
        let take = || memory.checkpoint(&who(), main, "v1", None).unwrap();
        let source = StateSource::Checkpoint("v1".into());
        take();
        let other_checkpoint = || {
            memory.delete_checkpoint(&who(), main, "v1").unwrap();
            take();
        };
        for change in [&commit as &dyn Fn(), &other_checkpoint] {
            let catalog = memory.catalog().clone();
            let plan = RollbackPlan::new(memory.merge_context(&catalog), main, &source, None, usize::MAX).ok().unwrap();
            assert!(plan.is_current(&memory.catalog(), memory.now()), "a control");
            change();
            assert!(!plan.is_current(&memory.catalog(), memory.now()));
        }
    }
}
