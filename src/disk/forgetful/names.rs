//! The names of all files and folders: as seen now, as they are on the medium, and the steps between.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};

use super::content::SimulatedFile;
use super::cut::CutOutcome;

/// A file's bytes, shared by its names and its open handles.
pub(super) type SimulatedNode = Arc<Mutex<SimulatedFile>>;

/// Full path to what has it; the root has no entry. A folder sorts before what is in it.
pub(super) type Entries = BTreeMap<String, SimulatedEntry>;

/// What has a path; there are no links of either kind.
#[derive(Clone)]
pub(super) enum SimulatedEntry {
    /// Has no bytes; what is in it has its path in front.
    Folder,
    /// A file's bytes, which its open handles have, too.
    File(SimulatedNode),
}

/// The names that are seen now, those on the medium, and the steps between the two.
#[derive(Default)]
pub(super) struct Names {
    live: Entries,
    durable: Entries,
    /// Steps that are in `live` and not yet in `durable`, oldest first.
    unsynced: Vec<NameStep>,
}

/// One change of names that happens whole or not at all; a rename has both parts.
struct NameStep {
    removed: Option<String>,
    added: Option<(String, SimulatedEntry)>,
}

impl NameStep {
    /// Returns the folders that it changes: one, or two for a rename between folders.
    fn folders(&self) -> BTreeSet<&str> {
        let new = self.added.as_ref().map(|(path, _)| path);
        self.removed.iter().chain(new).map(|path| parent_folder(path)).collect()
    }

    fn apply(&self, entries: &mut Entries) {
        if let Some(path) = &self.removed {
            entries.remove(path);
        }
        if let Some((path, entry)) = &self.added {
            entries.insert(path.clone(), entry.clone());
        }
    }
}

impl Names {
    /// Returns names of which a power cut takes none.
    pub(super) fn synced(entries: Entries) -> Self {
        Self { live: entries.clone(), durable: entries, unsynced: Vec::new() }
    }

    /// Returns the file that has this path now. EISDIR for a folder, ENOENT if there is none, ENOTDIR if a file is on
    /// the way.
    pub(super) fn file(&self, path: &str) -> io::Result<&SimulatedNode> {
        match self.live.get(path) {
            Some(SimulatedEntry::File(node)) => Ok(node),
            Some(SimulatedEntry::Folder) => Err(errno(libc::EISDIR)),
            None => {
                self.check_folder(parent_folder(path))?;
                Err(errno(libc::ENOENT))
            }
        }
    }

    /// Checks that this path is a folder now. ENOTDIR if it, or one on the way, is a file; ENOENT if it is not there.
    pub(super) fn check_folder(&self, path: &str) -> io::Result<()> {
        match self.live.get(path) {
            _ if path.is_empty() => Ok(()),
            Some(SimulatedEntry::Folder) => Ok(()),
            Some(SimulatedEntry::File(_)) => Err(errno(libc::ENOTDIR)),
            None => {
                self.check_folder(parent_folder(path))?;
                Err(errno(libc::ENOENT))
            }
        }
    }

    /// Returns all files that can be seen now, by path.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &SimulatedNode)> {
        self.live.iter().filter_map(|(path, entry)| match entry {
            SimulatedEntry::File(node) => Some((path.as_str(), node)),
            SimulatedEntry::Folder => None,
        })
    }

    /// Returns the names in a folder, sorted bytewise. Fails like [`Names::check_folder`].
    pub(super) fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.check_folder(dir)?;
        let inside = self.live.keys().filter(|path| parent_folder(path) == dir);
        Ok(inside.map(|path| file_name(path).to_owned()).collect())
    }

    /// Gives a free name to an entry; EEXIST if it is taken.
    pub(super) fn create(&mut self, path: &str, entry: SimulatedEntry) -> io::Result<()> {
        self.check_folder(parent_folder(path))?;
        if self.live.contains_key(path) {
            return Err(errno(libc::EEXIST));
        }
        self.push_step(NameStep { removed: None, added: Some((path.to_owned(), entry)) });
        Ok(())
    }

    /// Makes a folder, unless it is there. EEXIST if a file has the name, ENOENT if its folder is missing.
    pub(super) fn create_dir(&mut self, path: &str) -> io::Result<()> {
        match self.live.get(path) {
            _ if path.is_empty() => Ok(()),
            Some(SimulatedEntry::Folder) => Ok(()),
            _ => self.create(path, SimulatedEntry::Folder),
        }
    }

    /// Moves a file, and replaces a file that has the name; EISDIR for a folder.
    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let node = Arc::clone(self.file(from)?);
        self.check_folder(parent_folder(to))?;
        if let Some(SimulatedEntry::Folder) = self.live.get(to) {
            return Err(errno(libc::EISDIR));
        }
        let added = Some((to.to_owned(), SimulatedEntry::File(node)));
        self.push_step(NameStep { removed: Some(from.to_owned()), added });
        Ok(())
    }

    /// Takes a file's name away. EISDIR for a folder.
    pub(super) fn remove(&mut self, path: &str) -> io::Result<()> {
        self.file(path)?;
        self.push_step(NameStep { removed: Some(path.to_owned()), added: None });
        Ok(())
    }

    /// Puts a file there, live and durable at once, as if it had always been. Its folder must exist: ENOENT if it does
    /// not.
    pub(super) fn insert_durable(&mut self, path: &str, node: SimulatedNode) -> io::Result<()> {
        self.check_folder(parent_folder(path))?;
        for entries in [&mut self.live, &mut self.durable] {
            entries.insert(path.to_owned(), SimulatedEntry::File(Arc::clone(&node)));
        }
        Ok(())
    }

    /// Makes all steps in `folder` durable, and with each step what came before it in its folders.
    ///
    /// A rename between folders is one step, so syncing either folder makes it durable in both.
    pub(super) fn sync(&mut self, folder: &str) {
        let mut synced = BTreeSet::from([folder.to_owned()]);
        let mut due = vec![false; self.unsynced.len()];
        // From the newest back: a rename that is due makes its other folder due as well, with all that came before
        // there.
        for (step, due) in self.unsynced.iter().zip(&mut due).rev() {
            let folders = step.folders();
            if folders.iter().any(|&folder| synced.contains(folder)) {
                synced.extend(folders.into_iter().map(str::to_owned));
                *due = true;
            }
        }
        for (step, due) in std::mem::take(&mut self.unsynced).into_iter().zip(due) {
            if due {
                step.apply(&mut self.durable);
            } else {
                self.unsynced.push(step);
            }
        }
    }

    /// Returns the names that a power cut leaves: of the steps in each folder the first ones, as many as `outcome` says.
    pub(super) fn after_cut(&self, outcome: &mut CutOutcome) -> Entries {
        let mut left: BTreeMap<&str, usize> = BTreeMap::new();
        for folder in self.unsynced.iter().flat_map(NameStep::folders) {
            *left.entry(folder).or_default() += 1;
        }
        for count in left.values_mut() {
            *count = outcome.prefix(*count);
        }
        let mut entries = self.durable.clone();
        for step in &self.unsynced {
            let whole = step.folders().iter().all(|folder| left[folder] > 0);
            if whole {
                step.apply(&mut entries);
            }
            for folder in step.folders() {
                // Once a step of a folder is lost, all later ones of it are: names of a folder survive as a prefix.
                let after = if whole { left[folder] - 1 } else { 0 };
                left.insert(folder, after);
            }
        }
        reachable(entries)
    }

    fn push_step(&mut self, step: NameStep) {
        step.apply(&mut self.live);
        self.unsynced.push(step);
    }
}

/// Drops what lies in a folder that is gone: names in it were synced, its own name was not.
fn reachable(entries: Entries) -> Entries {
    let mut found = Entries::new();
    for (path, entry) in entries {
        let folder = parent_folder(&path);
        if folder.is_empty() || matches!(found.get(folder), Some(SimulatedEntry::Folder)) {
            found.insert(path, entry);
        }
    }
    found
}

fn parent_folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}
