//! From a folder to a new store.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{CONFIG, DumpedBranch, LOG, MANIFEST, Manifest, RECORDS, damaged, files, whole_or_not_at_all};
use crate::cli::actor;
use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::target::open_store;
use crate::memory::{Actor, BranchId, Memory, OpenMode, Setting, Snapshot, StampedRecord, View};

/// Records of one commit, and their bytes.
const BATCH: (usize, usize) = (65_536, 64 << 20);

/// Makes a new store out of a dump, whole or not at all, and returns what it has.
pub fn import_all(folder: &Path, store: &Path) -> Result<Value, CommandError> {
    let path = folder.join(MANIFEST);
    let text = fs::read_to_string(&path).map_err(|error| CommandError::file("read", &path, &error))?;
    let manifest: Manifest = serde_json::from_str(&text).map_err(|error| damaged(format!("{MANIFEST}: {error}")))?;
    manifest.check()?;
    let mut report = whole_or_not_at_all(store, |part| make(&manifest, folder, part))?;
    report["store"] = json!(store);
    Ok(report)
}

fn make(manifest: &Manifest, folder: &Path, part: &Path) -> Result<Value, CommandError> {
    let memory = open_store(part, OpenMode::CreateNew)?;
    let import = DumpReader { memory: &memory, who: actor::current(), manifest, folder };
    let done =
        import.branches().and_then(|()| import.settings()).and_then(|()| import.logs()).and_then(|()| import.check());
    let tip = memory.tip().to_string();
    let closed = memory.close();
    done?;
    closed?;
    Ok(json!({ "branches": manifest.branches.len(), "tip": tip }))
}

struct DumpReader<'a> {
    memory: &'a Memory,
    who: Actor,
    manifest: &'a Manifest,
    folder: &'a Path,
}

impl DumpReader<'_> {
    /// Makes all branches. A base is what the parent was at the fork, so that parents take on the bases of their
    /// children one after the other, then their checkpoints, and in the end their present state.
    fn branches(&self) -> Result<(), CommandError> {
        let Some(top) = self.manifest.branches.first() else { return Err(damaged("it has no branch")) };
        let branch = self.make_top(top)?;
        self.grow(top, branch)
    }

    /// Makes the branch that was dumped. Where that is no root branch, those above it have its base.
    fn make_top(&self, top: &DumpedBranch) -> Result<BranchId, CommandError> {
        let names: Vec<&str> = top.path.split('/').collect();
        let mut branch = match self.memory.root(names[0]) {
            Some(root) => root,
            None => self.memory.create_root(&self.who, names[0])?,
        };
        // Before the first vector, which fixes it.
        self.set(branch, top, Setting::Metric)?;
        if let [_] = names[..] {
            self.memory.chown(&self.who, branch, top.owner)?;
            return Ok(branch);
        }
        self.become_state(branch, self.manifest.state(&top.base)?)?;
        for (at, name) in names.iter().enumerate().skip(1) {
            let owner = (at + 1 == names.len()).then_some(top.owner);
            branch = self.memory.fork_from(&self.who, branch, name, None, owner)?;
        }
        Ok(branch)
    }

    fn grow(&self, dumped: &DumpedBranch, branch: BranchId) -> Result<(), CommandError> {
        // It can't change once there are branches below.
        self.set(branch, dumped, Setting::Log)?;
        let mut bases: BTreeMap<&str, Vec<&DumpedBranch>> = BTreeMap::new();
        for child in self.children(&dumped.path) {
            bases.entry(&child.base).or_default().push(child);
        }
        let mut children = Vec::new();
        for (base, forks) in bases {
            self.become_state(branch, self.manifest.state(base)?)?;
            for child in forks {
                let name = child.path.rsplit('/').next().unwrap_or_default();
                children.push((child, self.memory.fork_from(&self.who, branch, name, None, Some(child.owner))?));
            }
        }
        for checkpoint in &dumped.checkpoints {
            self.become_state(branch, self.manifest.state(&checkpoint.head)?)?;
            let text = Some(&*checkpoint.text).filter(|text| !text.is_empty());
            self.memory.import_checkpoint(&self.who, branch, &checkpoint.label, text)?;
        }
        self.become_state(branch, &dumped.folder)?;
        children.into_iter().try_for_each(|(child, branch)| self.grow(child, branch))
    }

    fn children<'b>(&'b self, path: &'b str) -> impl Iterator<Item = &'b DumpedBranch> {
        let is_child =
            move |branch: &&DumpedBranch| branch.path.rsplit_once('/').is_some_and(|(above, _)| above == path);
        self.manifest.branches[1..].iter().filter(is_child)
    }

    /// Makes records and files of a branch those of a folder.
    fn become_state(&self, branch: BranchId, folder: &Path) -> Result<(), CommandError> {
        let place = self.folder.join(folder);
        self.records(branch, &place.join(RECORDS))?;
        files::restore(self.memory, &self.who, branch, &place)
    }

    fn records(&self, branch: BranchId, path: &Path) -> Result<(), CommandError> {
        let before = self.memory.snapshot(&View::Branch(branch))?;
        let (mut named, mut batch, mut bytes) = (HashSet::<Arc<str>>::new(), Vec::new(), 0);
        self.lines(path, |record| {
            if !named.insert(record.id().clone()) {
                return Err(damaged(format!("{} has the record {} twice", path.display(), record.id())));
            }
            if before.has(&record)? {
                return Ok(());
            }
            bytes += record.bytes();
            batch.push(record);
            if batch.len() >= BATCH.0 || bytes >= BATCH.1 {
                self.memory.put_stamped(&self.who, branch, std::mem::take(&mut batch), &[])?;
                bytes = 0;
            }
            Ok(())
        })?;
        let gone = gone(&before, &named)?;
        Ok(self.memory.put_stamped(&self.who, branch, batch, &gone)?)
    }

    /// Gives all branches their settings, parents first: what some allow depends on the parent's.
    fn settings(&self) -> Result<(), CommandError> {
        for dumped in &self.manifest.branches {
            let branch = self.memory.resolve(&dumped.path)?;
            for setting in Setting::ALL {
                self.set(branch, dumped, setting)?;
            }
            let mode =
                u32::from_str_radix(&dumped.mode, 8).map_err(|_| damaged(format!("{} is no mode", dumped.mode)))?;
            if self.memory.info(branch)?.mode != mode {
                self.memory.chmod(&self.who, branch, mode)?;
            }
        }
        Ok(())
    }

    /// Gives branches that have a log of their own its entries, and all their cursors.
    fn logs(&self) -> Result<(), CommandError> {
        for dumped in &self.manifest.branches {
            let Some(log) = &dumped.log else { continue };
            let branch = self.memory.resolve(&dumped.path)?;
            let mut import = self.memory.import_log(&self.who, branch)?;
            self.lines(&self.folder.join(&dumped.folder).join(LOG), |record| Ok(import.push(record)?))?;
            let head = import.finish(log.archived)?.to_string();
            check_head(format!("the log of {}", dumped.path), head, &log.head)?;
        }
        for dumped in self.manifest.branches.iter().filter(|dumped| dumped.cursor > 0) {
            let branch = self.memory.resolve(&dumped.path)?;
            // Where the log of a branch above was not dumped, nothing of it was read.
            if self.memory.shared_log(branch)?.entries() >= dumped.cursor {
                self.memory.move_cursor(&self.who, branch, dumped.cursor)?;
            }
        }
        Ok(())
    }

    /// Reads the records of a file.
    fn lines(
        &self,
        path: &Path,
        mut each: impl FnMut(StampedRecord) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        let failed = |error: std::io::Error| CommandError::file("read", path, &error);
        let mut lines = BufReader::new(File::open(path).map_err(failed)?);
        let (mut line, mut number) = (Vec::new(), 0);
        loop {
            line.clear();
            if lines.read_until(b'\n', &mut line).map_err(failed)? == 0 {
                return Ok(());
            }
            number += 1;
            let record =
                StampedRecord::parse(&line, number).map_err(|error| damaged(format!("{}, {error}", path.display())))?;
            each(record)?;
        }
    }

    fn set(&self, branch: BranchId, dumped: &DumpedBranch, setting: Setting) -> Result<(), CommandError> {
        let path = self.folder.join(&dumped.folder).join(CONFIG).join(setting.name());
        let value = fs::read_to_string(&path).map_err(|error| CommandError::file("read", &path, &error))?;
        let value = value.strip_suffix('\n').unwrap_or(&value);
        if self.memory.setting(&View::Branch(branch), setting)? == value {
            return Ok(());
        }
        Ok(self.memory.set(&self.who, branch, setting, value)?)
    }

    /// Refuses a store that is not what the manifest says.
    fn check(&self) -> Result<(), CommandError> {
        for dumped in &self.manifest.branches {
            let (path, branch) = (&dumped.path, self.memory.resolve(&dumped.path)?);
            let head = |view| -> Result<String, CommandError> { Ok(self.memory.snapshot(&view)?.head().to_string()) };
            check_head(path.clone(), head(View::Branch(branch))?, &dumped.head)?;
            check_head(format!("the base of {path}"), self.memory.base(branch)?.head().to_string(), &dumped.base)?;
            for checkpoint in &dumped.checkpoints {
                let label: Arc<str> = checkpoint.label.as_str().into();
                check_head(format!("{path}@{label}"), head(View::Checkpoint(branch, label))?, &checkpoint.head)?;
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
fn gone(before: &Snapshot, named: &HashSet<Arc<str>>) -> Result<Vec<Arc<str>>, CommandError> {
    let (mut gone, mut after): (Vec<Arc<str>>, Option<Arc<str>>) = (Vec::new(), None);
    loop {
        let ids = before.ids_after(after.as_deref(), 4096)?;
        let Some(last) = ids.last() else { return Ok(gone) };
        after = Some(last.clone());
        gone.extend(ids.into_iter().filter(|id| !named.contains(id)));
    }
}
