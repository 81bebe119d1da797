//! From a folder to a new store.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::lines::{for_each_line, read_text, refused};
use super::shared::SignalsRead;
use super::{
    AGENTS, CLOSED_LOGS, CONFIG, DumpManifest, DumpedBranch, DumpedClosedLog, DumpedProposal, LOG, MANIFEST, RECORDS,
    SIGNALS, create_atomically, damaged, files, shared,
};
use crate::cli::actor;
use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::target::open_store;
use crate::memory::{
    Actor, BranchId, ForkOptions, ImportedRecord, Memory, MergeVerb, OpenMode, Setting, SharedLogImport, Snapshot,
    View, check_closed_name, check_setting,
};

/// Records of one commit, and their bytes.
const BATCH: (usize, usize) = (65_536, 64 << 20);

/// Makes a new store out of a dump, whole or not at all, and returns what it has. Exit code 2 where `store` is used
/// already or an earlier try left `store.part`; `Exit::Damaged` for a dump that is not as it was written. Fails also where
/// `store` would lie in another store.
pub fn import_all(folder: &Path, store: &Path) -> Result<Value, CommandError> {
    let path = folder.join(MANIFEST);
    let text = read_text(&path)?;
    let manifest: DumpManifest =
        serde_json::from_str(&text).map_err(|error| damaged(format!("{MANIFEST}: {error}")))?;
    manifest.check()?;
    let mut report = create_atomically(store, |part| make(&manifest, folder, part))?;
    report["store"] = json!(store.to_string_lossy());
    Ok(report)
}

fn make(manifest: &DumpManifest, folder: &Path, part: &Path) -> Result<Value, CommandError> {
    let memory = open_store(part, OpenMode::CreateNew)?;
    let import = DumpReader { memory: &memory, who: actor::current(), manifest, folder };
    let done = import.read_all();
    let tip = memory.tip().to_string();
    let closed = memory.close();
    let signals_ended = done?;
    closed?;
    Ok(json!({ "branches": manifest.branches.len(), "signals_ended": signals_ended, "tip": tip }))
}

struct DumpReader<'a> {
    memory: &'a Memory,
    who: Actor,
    manifest: &'a DumpManifest,
    folder: &'a Path,
}

impl DumpReader<'_> {
    /// Takes in all there is, and checks what came of it; returns how many signals were left out, since they had ended.
    fn read_all(&self) -> Result<u64, CommandError> {
        self.restore_users()?;
        self.restore_branches()?;
        self.restore_settings()?;
        self.restore_agents()?;
        self.restore_logs()?;
        let signals_ended = self.restore_signals()?;
        self.check_heads()?;
        Ok(signals_ended)
    }

    /// Has the users be called as they were: the names under which they act depend on it.
    fn restore_users(&self) -> Result<(), CommandError> {
        let mut users = self.manifest.users.iter();
        users.try_for_each(|(uid, name)| {
            self.memory.import_user(*uid, name).map_err(|error| refused(format!("{MANIFEST}, user {uid}"), error))
        })
    }

    /// Makes all branches. A base is what the parent was at the fork, so that parents take on the bases of their
    /// children one after the other, then their checkpoints, and in the end their present state.
    fn restore_branches(&self) -> Result<(), CommandError> {
        let Some(top) = self.manifest.branches.first() else { return Err(damaged("it has no branch")) };
        let branch = self.create_top(top)?;
        self.restore_branch(top, branch)
    }

    /// Makes the branch that was dumped. If that is a child branch, those above it have its base.
    fn create_top(&self, top: &DumpedBranch) -> Result<BranchId, CommandError> {
        let names: Vec<&str> = top.path.split('/').collect();
        let mut branch = match self.memory.root(names[0]) {
            Some(root) => root,
            None => self.memory.create_root(&self.who, names[0])?,
        };
        // Before the first vector is written: from then on the metric can't change.
        self.set(branch, top, Setting::Metric)?;
        if let [_] = names[..] {
            self.memory.chown(&self.who, branch, top.owner)?;
            return Ok(branch);
        }
        self.restore_state(branch, self.manifest.state(top.first_base())?)?;
        for name in &names[1..names.len() - 1] {
            branch = self.memory.fork(&self.who, branch, name, None)?;
        }
        let forks = self.fork_children(branch, [top])?;
        forks.first().map(|(_, branch)| *branch).ok_or_else(|| damaged("it has no branch"))
    }

    fn restore_branch(&self, dumped: &DumpedBranch, branch: BranchId) -> Result<(), CommandError> {
        // Before the forks: the setting can't change once there are branches below.
        self.set(branch, dumped, Setting::Log)?;
        let children = self.fork_children(branch, self.children(&dumped.path))?;
        for checkpoint in &dumped.checkpoints {
            self.restore_state(branch, self.manifest.state(&checkpoint.head)?)?;
            let text = Some(&*checkpoint.text).filter(|text| !text.is_empty());
            self.memory.import_checkpoint(&self.who, branch, &checkpoint.label, text)?;
        }
        self.restore_state(branch, &dumped.folder)?;
        children.into_iter().try_for_each(|(child, branch)| self.restore_branch(child, branch))
    }

    /// Forks branches off one that takes on their bases, and has them propose what they propose.
    fn fork_children<'b>(
        &self,
        parent: BranchId,
        children: impl IntoIterator<Item = &'b DumpedBranch>,
    ) -> Result<Vec<(&'b DumpedBranch, BranchId)>, CommandError> {
        let mut bases: BTreeMap<&str, Vec<&DumpedBranch>> = BTreeMap::new();
        for child in children {
            bases.entry(child.first_base()).or_default().push(child);
        }
        let mut made = Vec::new();
        for (base, forks) in bases {
            self.restore_state(parent, self.manifest.state(base)?)?;
            for child in forks {
                let name = child.path.rsplit('/').next().unwrap_or_default();
                let options = ForkOptions { owner: Some(child.owner), ..ForkOptions::default() };
                let branch = self.memory.fork_with(&self.who, parent, name, options)?;
                if let Some(DumpedProposal { head, text, .. }) = &child.proposal {
                    self.restore_state(branch, self.manifest.state(head)?)?;
                    let proposed = self.memory.propose(&self.who, branch, text);
                    proposed.map_err(|error| refused(format!("{MANIFEST}, the proposal of {}", child.path), error))?;
                }
                made.push((child, branch));
            }
        }
        for (child, branch) in made.iter().filter(|(child, _)| child.first_base() != child.base) {
            // A pull gives it the base that it has by now. Without edits of its own nothing is in the way of that.
            self.restore_state(*branch, self.manifest.state(child.first_base())?)?;
            self.restore_state(parent, self.manifest.state(&child.base)?)?;
            self.memory.merge(&self.who, *branch, MergeVerb::Pull, false)?;
        }
        Ok(made)
    }

    fn children<'b>(&'b self, path: &'b str) -> impl Iterator<Item = &'b DumpedBranch> {
        let is_child =
            move |branch: &&DumpedBranch| branch.path.rsplit_once('/').is_some_and(|(above, _)| above == path);
        self.manifest.branches[1..].iter().filter(is_child)
    }

    /// Makes records and files of a branch those of a folder.
    fn restore_state(&self, branch: BranchId, folder: &Path) -> Result<(), CommandError> {
        let place = self.folder.join(folder);
        self.restore_records(branch, &place.join(RECORDS))?;
        files::restore(self.memory, &self.who, branch, &place)
    }

    fn restore_records(&self, branch: BranchId, path: &Path) -> Result<(), CommandError> {
        let before = self.memory.snapshot(&View::Branch(branch))?;
        let (mut named, mut batch, mut bytes) = (HashSet::<Arc<str>>::new(), Vec::new(), 0);
        self.for_each_record(path, |record| {
            if !named.insert(record.id().clone()) {
                return Err(damaged(format!("{} has the record {} twice", path.display(), record.id())));
            }
            if before.contains(&record)? {
                return Ok(());
            }
            bytes += record.bytes();
            batch.push(record);
            if batch.len() >= BATCH.0 || bytes >= BATCH.1 {
                self.memory.import_records(&self.who, branch, std::mem::take(&mut batch), &[])?;
                bytes = 0;
            }
            Ok(())
        })?;
        let gone = find_removed(&before, &named)?;
        Ok(self.memory.import_records(&self.who, branch, batch, &gone)?)
    }

    /// Gives all branches their settings, parents first: what some allow depends on the parent's.
    fn restore_settings(&self) -> Result<(), CommandError> {
        for dumped in &self.manifest.branches {
            let branch = self.memory.resolve(&dumped.path)?;
            let is_alone = |setting: &Setting| setting.is_shared() || dumped.inherits_rules.is_none();
            // A dump leaves the embedder out: the mount that runs one sets it.
            let settings = || Setting::ALL.into_iter().filter(|setting| *setting != Setting::Embedder);
            for setting in settings().filter(is_alone) {
                self.set(branch, dumped, setting)?;
            }
            if let Some(inherits_rules) = dumped.inherits_rules {
                let value = |setting| Ok((setting, self.setting(dumped, setting)?));
                let values = settings().map(value).collect::<Result<Vec<_>, CommandError>>()?;
                self.memory.import_settings(&self.who, branch, &values, inherits_rules)?;
            }
            let mode =
                u32::from_str_radix(&dumped.mode, 8).map_err(|_| damaged(format!("{} is no mode", dumped.mode)))?;
            if self.memory.info(branch)?.mode != mode {
                self.memory.chmod(&self.who, branch, mode)?;
            }
        }
        Ok(())
    }

    /// Has the names of agents be held as they were, whoever uses them now: branches that have ended did, too.
    fn restore_agents(&self) -> Result<(), CommandError> {
        let (Some(wanted), Some(top)) = (self.manifest.agents, self.manifest.branches.first()) else { return Ok(()) };
        let root = self.memory.resolve(top.path.split('/').next().unwrap_or_default())?;
        let path = self.folder.join(&top.folder).join(AGENTS);
        let found = shared::read_agents(self.memory, &self.who, root, &path)?;
        self.manifest.check_lines(&path, found, wanted)
    }

    /// Gives branches that have a log of their own its entries and those of logs that were closed into it, and all branches
    /// their places in these.
    fn restore_logs(&self) -> Result<(), CommandError> {
        for dumped in &self.manifest.branches {
            if dumped.log.is_none() && dumped.closed_logs.is_empty() {
                continue;
            }
            let (folder, branch) = (self.folder.join(&dumped.folder), self.log_owner(dumped)?);
            for DumpedClosedLog { name, log } in &dumped.closed_logs {
                let what = format!("the closed log {name} of {}", dumped.path);
                check_closed_name(name).map_err(|error| refused(format!("{MANIFEST}, {}", dumped.path), error))?;
                let import = self.import_log(branch, &folder.join(CLOSED_LOGS).join(format!("{name}.jsonl")))?;
                let head = import.finish_closed(log.archived, name).map_err(|error| refused(&what, error))?;
                check_head(what, head.to_string(), &log.head)?;
            }
            if let Some(log) = &dumped.log {
                let head = self.import_log(branch, &folder.join(LOG))?.finish(log.archived)?.to_string();
                check_head(format!("the log of {}", dumped.path), head, &log.head)?;
            }
        }
        for dumped in &self.manifest.branches {
            let branch = self.memory.resolve(&dumped.path)?;
            // Where the log of a branch above was not dumped, nothing of it was read.
            let entries = self.memory.shared_log(branch)?.entry_count();
            if (1..=entries).contains(&dumped.cursor) {
                self.memory.move_cursor(&self.who, branch, dumped.cursor)?;
            }
            if (1..=entries).contains(&dumped.log_at_base) {
                self.memory.import_log_at_base(&self.who, branch, dumped.log_at_base)?;
            }
        }
        Ok(())
    }

    /// Returns a branch that must have a log of its own.
    fn log_owner(&self, dumped: &DumpedBranch) -> Result<BranchId, CommandError> {
        let branch = self.memory.resolve(&dumped.path)?;
        if self.memory.shared_log(branch)?.owner == branch {
            return Ok(branch);
        }
        Err(damaged(format!("{MANIFEST}: {} has no log of its own, and what belongs to one", dumped.path)))
    }

    /// Begins to give a branch the log of a file.
    fn import_log(&self, branch: BranchId, path: &Path) -> Result<SharedLogImport<'_>, CommandError> {
        let mut import = self.memory.import_log(&self.who, branch)?;
        self.for_each_record(path, |record| Ok(import.push(record)?))?;
        Ok(import)
    }

    /// Gives branches that have a log of their own its signals; returns how many had ended.
    fn restore_signals(&self) -> Result<u64, CommandError> {
        let mut all_ended = 0;
        for dumped in self.manifest.branches.iter().filter(|dumped| dumped.signals > 0) {
            let branch = self.log_owner(dumped)?;
            let path = self.folder.join(&dumped.folder).join(SIGNALS);
            let SignalsRead { signals, ended } = shared::read_signals(self.memory, &self.who, branch, &path)?;
            self.manifest.check_lines(&path, signals, dumped.signals)?;
            all_ended += ended;
        }
        Ok(all_ended)
    }

    fn for_each_record(
        &self,
        path: &Path,
        mut each: impl FnMut(ImportedRecord) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        for_each_line(path, |line, number| {
            let record =
                ImportedRecord::parse(line, number).map_err(|error| damaged(format!("{}, {error}", path.display())))?;
            each(record)
        })
    }

    fn setting(&self, dumped: &DumpedBranch, setting: Setting) -> Result<String, CommandError> {
        let path = self.folder.join(&dumped.folder).join(CONFIG).join(setting.name());
        let value = read_text(&path)?;
        let value = value.strip_suffix('\n').unwrap_or(&value);
        // What is unset may be no value to set.
        if !value.is_empty() {
            check_setting(setting, value).map_err(|error| refused(path.display(), error.into()))?;
        }
        Ok(value.to_owned())
    }

    fn set(&self, branch: BranchId, dumped: &DumpedBranch, setting: Setting) -> Result<(), CommandError> {
        let value = self.setting(dumped, setting)?;
        if self.memory.setting(&View::Branch(branch), setting)? == value {
            return Ok(());
        }
        Ok(self.memory.set(&self.who, branch, setting, &value)?)
    }

    /// Refuses a store that is not what the manifest says.
    fn check_heads(&self) -> Result<(), CommandError> {
        for dumped in &self.manifest.branches {
            let (path, branch) = (&dumped.path, self.memory.resolve(&dumped.path)?);
            let head = |view| -> Result<String, CommandError> { Ok(self.memory.snapshot(&view)?.head().to_string()) };
            check_head(path.clone(), head(View::Branch(branch))?, &dumped.head)?;
            check_head(format!("the base of {path}"), self.memory.base(branch)?.head().to_string(), &dumped.base)?;
            for checkpoint in &dumped.checkpoints {
                let label: Arc<str> = checkpoint.label.as_str().into();
                check_head(format!("{path}@{label}"), head(View::Checkpoint(branch, label))?, &checkpoint.head)?;
            }
            if let (Some(wanted), Some(found)) = (&dumped.proposal, self.memory.proposed_state(branch)?) {
                check_head(format!("the proposal of {path}"), found.state.head().to_string(), &wanted.head)?;
                check_head(format!("the base of the proposal of {path}"), found.base.head().to_string(), &wanted.base)?;
            }
        }
        Ok(())
    }
}

/// Refuses what has another head than the manifest says.
fn check_head(what: String, found: String, wanted: &str) -> Result<(), CommandError> {
    if found == wanted {
        return Ok(());
    }
    let message = format!("{what} has the head {found}, and the dump says {wanted}");
    Err(CommandError::new(Exit::Damaged, "head_differs", message, "the dump was changed or is damaged: take it anew"))
}

/// Returns the records of a state that a folder does not name.
fn find_removed(before: &Snapshot, named: &HashSet<Arc<str>>) -> Result<Vec<Arc<str>>, CommandError> {
    let (mut gone, mut after): (Vec<Arc<str>>, Option<Arc<str>>) = (Vec::new(), None);
    loop {
        let ids = before.ids_after(after.as_deref(), 4096)?;
        let Some(last) = ids.last() else { return Ok(gone) };
        after = Some(last.clone());
        gone.extend(ids.into_iter().filter(|id| !named.contains(id)));
    }
}
