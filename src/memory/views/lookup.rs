//! Looking things up; nothing here waits for a writer.

use std::sync::Arc;

use serde_json::{Value, json};

use super::documents::padded_bytes;
use crate::branch::BranchVersion;
use crate::file_index::Credentials;
use crate::lineage::{Decision, SignedEntry};
use crate::memory::catalog::settings::Setting;
use crate::memory::catalog::{BranchId, EndedBranch, Revision, View};
use crate::memory::storage::trees::tree_error;
use crate::memory::{Error, Memory};
use crate::object::{Hash, Time};
use crate::record::{Version, write_export_line};
use crate::segment::{Row, SegmentError};
use crate::workspace::{FileNode, ROOT, Tree};

/// What a directory shows of a branch, copied out of one version of the catalog.
#[derive(Clone, Debug)]
pub struct BranchInfo {
    /// Its permanent id, which renames keep.
    pub id: BranchId,
    /// Its name, unique among its siblings.
    pub name: Arc<str>,
    /// Its name path, such as `main/agent-7/try-1`.
    pub path: Arc<str>,
    /// The branch that it was forked from; `None` for a root branch.
    pub parent: Option<BranchId>,
    /// The root branch above it; the branch itself if it is one.
    pub root: BranchId,
    /// The uid of its owner.
    pub uid: u32,
    /// Permission bits of its directory, the lower 12.
    pub mode: u32,
    /// When it was made.
    pub created: Time,
    /// When its records or files last changed.
    pub changed: Time,
    /// Number of its own child branches, without those below them.
    pub children: usize,
    /// Number of its own checkpoints; forks inherit none.
    pub checkpoints: usize,
}

/// An object found by number or hash, or the lines of a comparison.
#[derive(Clone, Debug)]
pub struct ShownObject {
    /// One line of JSON. A file's `text` is null if it is not UTF-8.
    pub line: String,
    /// The bytes of a file or the target of a link; `None` for anything else.
    pub content: Option<Vec<u8>>,
}

impl BranchInfo {
    /// Returns the length of the branch's `status` in bytes, which is padded.
    pub fn status_bytes(&self) -> u64 {
        padded_bytes(&self.path) as u64
    }
}

/// What is looked up: an entry by its number, anything by its hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShowTarget {
    /// The entry with that number, from 1.
    Entry(u64),
    /// Whatever has that hash: a version of a record or a file, an entry, or a head.
    Hash(Hash),
}

impl ShowTarget {
    /// Parses 64 lower-case hex digits, or digits; `None` for anything else.
    pub fn parse(text: &str) -> Option<ShowTarget> {
        text.parse().map(ShowTarget::Hash).ok().or_else(|| text.parse().map(ShowTarget::Entry).ok())
    }
}

impl std::fmt::Display for ShowTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ShowTarget::Entry(seq) => write!(f, "{seq}"),
            ShowTarget::Hash(hash) => write!(f, "{hash}"),
        }
    }
}

/// A state with the owner of its branch, to whom the root of its files belongs.
pub(super) type StateAndOwner<'a> = (&'a BranchVersion, u32);

/// For whom something is looked up: what they may not read is as if it were not there.
#[derive(Clone, Copy)]
pub struct Viewer<'a> {
    /// Returns whether they may read a branch, at the moment of the look-up.
    pub may_read: &'a dyn Fn(BranchId) -> bool,
    /// Whose rights files are held against: one that they could not read by its path is not shown. `None` for whoever
    /// has the store.
    pub reader: Option<&'a Credentials>,
    /// Bytes of the largest file that they are shown; a larger one is [`Error::TooLargeToShow`].
    pub bytes_max: u64,
}

impl Viewer<'_> {
    /// Whoever has the store's folder itself: every branch, files of any length.
    pub const UNRESTRICTED: Viewer<'static> = Viewer { may_read: &|_| true, reader: None, bytes_max: u64::MAX };

    /// Returns whether a file of a tree may be shown.
    pub(super) fn may_read_file(&self, (state, owner): StateAndOwner<'_>, inode: u64) -> bool {
        self.reader.is_none_or(|reader| reader.reaches(state.files(), owner, inode))
    }

    /// An entry shows a step of its branch, and of the parent that it reached.
    fn may_see_entry(&self, signed: &SignedEntry, from: BranchId) -> bool {
        let entry = &signed.entry;
        let is_told = |id: u64| id == 0 || id == from.0 || (self.may_read)(BranchId(id));
        is_told(entry.branch_id) || (entry.merges_into_parent() && is_told(entry.parent_id))
    }
}

impl ShownObject {
    fn from_entry(signed: &SignedEntry) -> ShownObject {
        ShownObject::from_line(signed.to_line() + "\n")
    }

    fn from_line(line: String) -> ShownObject {
        ShownObject { line, content: None }
    }

    /// Returns one line of JSON that holds the bytes of a file, too: as `hex` where they are not text.
    pub fn to_line(&self) -> String {
        let binary = self.content.as_ref().filter(|content| std::str::from_utf8(content).is_err());
        match (binary, self.line.strip_suffix("}\n")) {
            (Some(content), Some(start)) => {
                let hex: String = content.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("{start},\"hex\":\"{hex}\"}}\n")
            }
            _ => self.line.clone(),
        }
    }

    /// Reads such a line back, or the lines of a comparison; `None` if it is neither.
    pub fn parse(line: &str) -> Option<ShownObject> {
        let is_change = |line: &str| serde_json::from_str::<Value>(line).is_ok_and(|it| it.get("change").is_some());
        if line.lines().skip(1).all(is_change) && (line.lines().count() != 1 || is_change(line)) {
            return Some(ShownObject::from_line(line.to_owned()));
        }
        let mut value: Value = serde_json::from_str(line).ok()?;
        if value["kind"] != "file" {
            return Some(ShownObject::from_line(line.to_owned()));
        }
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let content = match value.as_object_mut()?.remove("hex") {
            Some(Value::String(hex)) => hex.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>()?,
            _ => value["text"].as_str()?.as_bytes().to_vec(),
        };
        Some(ShownObject { line: format!("{value}\n"), content: Some(content) })
    }
}

impl Memory {
    /// Returns the root branches, in bytewise order of their names.
    pub fn roots(&self) -> Vec<(Arc<str>, BranchId)> {
        self.catalog().roots.iter().map(|(name, id)| (name.clone(), *id)).collect()
    }

    /// Returns the id of a root branch; `None` if no root branch has that name.
    pub fn root(&self, name: &str) -> Option<BranchId> {
        self.catalog().roots.get(name).copied()
    }

    /// Returns the id of a child branch; `None` if no child has that name, or the parent has ended.
    pub fn child(&self, parent: BranchId, name: &str) -> Option<BranchId> {
        self.catalog().branches.get(&parent)?.children.get(name).copied()
    }

    /// Returns the child branches, in bytewise order of their names. Kind `Gone` if the branch has ended.
    pub fn children(&self, parent: BranchId) -> Result<Vec<(Arc<str>, BranchId)>, Error> {
        let catalog = self.catalog();
        Ok(catalog.branch(parent)?.children.iter().map(|(name, id)| (name.clone(), *id)).collect())
    }

    /// Returns the branch at a path of names such as `main/agent-7/try-1`. Kind `NotFound` if there is none.
    pub fn resolve(&self, name_path: &str) -> Result<BranchId, Error> {
        self.catalog().resolve(name_path)
    }

    /// Returns name, owner, mode and times of a branch. Kind `Gone` if it has ended.
    pub fn info(&self, branch: BranchId) -> Result<BranchInfo, Error> {
        let catalog = self.catalog();
        let branch = catalog.branch(branch)?;
        Ok(BranchInfo {
            id: branch.id,
            name: branch.name.clone(),
            path: branch.path.clone(),
            parent: branch.parent,
            root: branch.root,
            uid: branch.uid,
            mode: branch.mode,
            created: branch.created,
            changed: branch.changed,
            children: branch.children.len(),
            checkpoints: branch.checkpoints.len(),
        })
    }

    /// Returns the branch's small number, from 1; 0 if it has none. Another branch may get the number once this one has
    /// ended.
    pub fn branch_number(&self, branch: BranchId) -> u32 {
        self.catalog().branch(branch).map_or(0, |branch| branch.number)
    }

    /// Returns the labels of the branch's checkpoints, in bytewise order. Kind `Gone` if the branch has ended.
    pub fn checkpoints(&self, branch: BranchId) -> Result<Vec<Arc<str>>, Error> {
        Ok(self.catalog().branch(branch)?.checkpoints.keys().cloned().collect())
    }

    /// Returns when a checkpoint was taken. Kind `NotFound` if there is no checkpoint with that label.
    pub fn checkpoint_time(&self, branch: BranchId, label: &str) -> Result<Time, Error> {
        let catalog = self.catalog();
        let checkpoint = catalog.branch(branch)?.checkpoints.get(label);
        checkpoint.map(|checkpoint| checkpoint.time).ok_or_else(|| Error::NoCheckpoint(label.to_string()))
    }

    /// Returns the view of a branch's state at a revision. Fails like [`Memory::find_state`].
    pub fn view_at(&self, branch: BranchId, revision: &Revision) -> Result<View, Error> {
        self.find_state(branch, revision)?.view(branch)
    }

    /// Returns when the entry with this number gave a branch its state. Code `not_kept` if that state is not kept any
    /// more, kind `Gone` if the branch has ended.
    pub fn state_time(&self, branch: BranchId, entry: u64) -> Result<Time, Error> {
        let catalog = self.catalog().clone();
        let present = catalog.branch(branch)?;
        if present.state_entry == entry {
            return Ok(present.changed);
        }
        let kept = catalog.retained.newest_at_or_before(branch, entry)?.filter(|kept| kept.key.1 == entry);
        Ok(kept.ok_or_else(|| Error::NotKept(entry.to_string()))?.time)
    }

    /// Returns the value of a setting, without a line end; empty if it is unset. A setting shared below a root branch
    /// has the value of the root branch. Fails only with `Gone`, if the branch has ended: a checkpoint in the view need
    /// not exist.
    pub fn setting(&self, view: &View, setting: Setting) -> Result<String, Error> {
        let catalog = self.catalog();
        Ok(catalog.setting(catalog.branch(view.branch())?, setting)?.to_string())
    }

    /// Returns how many bytes a branch's `scratch/` may hold: `config/scratch_size`, 64 MiB by default and 1 GiB at
    /// most. Fails only with `Gone`, if the branch has ended.
    pub fn scratch_bytes_max(&self, branch: BranchId) -> Result<u64, Error> {
        Ok(self.catalog().branch(branch)?.settings.scratch_bytes_max())
    }

    /// Returns the version of a record or file, the entry, or the head that a hash names.
    ///
    /// Versions are searched in the branch, its base, checkpoints and earlier states, in what was merged into it, and
    /// in its parent, if the viewer may read it or a promote decided against the version.
    ///
    /// Kind `NotFound` for any other hash, `TooLarge` for a file that is longer than the viewer accepts.
    pub fn show(&self, branch: BranchId, wanted: ShowTarget, viewer: Viewer<'_>) -> Result<ShownObject, Error> {
        match wanted {
            ShowTarget::Entry(seq) => self.show_entry(branch, seq, viewer),
            ShowTarget::Hash(hash) => self.show_hash(branch, &hash, viewer),
        }
    }

    fn show_hash(&self, branch: BranchId, hash: &Hash, viewer: Viewer<'_>) -> Result<ShownObject, Error> {
        if let Some(signed) = self.history_reader().find_by_hash(hash)?
            // An entry that the viewer may not see is as if it were not there, so the search goes on.
            && viewer.may_see_entry(&signed, branch)
        {
            return Ok(ShownObject::from_entry(&signed));
        }
        for (state, owner) in self.readable_states(branch, viewer)? {
            if state.head() == *hash {
                return Ok(shown_head(&state));
            }
            if let Some(file) = self.find_file((&state, owner), hash, viewer)? {
                return Ok(file);
            }
            if let Some(version) = find_version(&state, hash)? {
                return Ok(shown_version(&version));
            }
        }
        self.show_earlier(branch, hash, viewer)?.ok_or(Error::NoHash(*hash))
    }

    /// Finds what has that hash in earlier states: of the branch, as which its merged children ended, and what a promote of it
    /// decided against in the parent.
    fn show_earlier(&self, branch: BranchId, hash: &Hash, viewer: Viewer<'_>) -> Result<Option<ShownObject>, Error> {
        let catalog = self.catalog().clone();
        let look = |owner: u32, state: &BranchVersion, before: &BranchVersion| {
            self.find_object((state, owner), before, hash, viewer)
        };
        let present = catalog.branch(branch)?;
        let found = catalog.retained.find_in(branch, |state, before| look(present.uid, state, before))?;
        if found.is_some() {
            return Ok(found);
        }
        let is_merged = |ended: &&Arc<EndedBranch>| ended.is_merged && ended.parent == Some(branch);
        for ended in catalog.retained.ended.values().filter(is_merged) {
            if let Some(last) = catalog.retained.find(ended.id, ended.last_entry)?
                && let Some(found) = look(ended.uid, &last.state, &last.base)?
            {
                return Ok(Some(found));
            }
        }
        match present.parent {
            Some(parent) if (viewer.may_read)(parent) || self.was_merge_decision(branch, hash)? => {
                let owner = catalog.branch(parent)?.uid;
                catalog.retained.find_in(parent, |state, before| look(owner, state, before))
            }
            _ => Ok(None),
        }
    }

    /// Returns whether a merge step of a branch was about the version with that hash, so that it may be shown; it walks
    /// the history.
    fn was_merge_decision(&self, branch: BranchId, hash: &Hash) -> Result<bool, Error> {
        let (reader, mut last_seq) = (self.history_reader(), self.last_seq());
        while let Some(step) = reader.last_step(branch.0, last_seq)?.filter(|step| step.seq >= branch.0) {
            let entry = &reader.entry(step.seq)?.entry;
            let is_it = |decision: &Decision| [decision.child, decision.parent].contains(&Some(*hash));
            if entry.branch_id == branch.0 && entry.detail.conflicts.iter().any(is_it) {
                return Ok(true);
            }
            last_seq = step.seq - 1;
        }
        Ok(false)
    }

    /// Finds what has that hash in a state, among what another one has not.
    fn find_object(
        &self,
        (state, owner): StateAndOwner<'_>,
        before: &BranchVersion,
        hash: &Hash,
        viewer: Viewer<'_>,
    ) -> Result<Option<ShownObject>, Error> {
        if state.head() == *hash {
            return Ok(Some(shown_head(state)));
        }
        // Only what `before` has not: the caller searches `before` itself.
        let mut found = None;
        state.for_each_added(before, |row| {
            if found.is_none() && row.hash().is_ok_and(|it| it == *hash) {
                found = Some(row);
            }
        });
        if let Some(row) = found {
            return Ok(Some(shown_version(&*row.version()?)));
        }
        let is_it = |node: &FileNode| node.hash() == Some(*hash) || node.content_hash() == Some(*hash);
        for changed in before.files().changed_nodes(state.files()) {
            let Some(node) = changed.new.filter(|node| is_it(node)) else { continue };
            if !viewer.may_read_file((state, owner), changed.inode) {
                continue;
            }
            if node.size() > viewer.bytes_max {
                return Err(Error::TooLargeToShow(node.size()));
            }
            if let Some((directory, name)) = node.names().next() {
                return self.shown_file(state.files(), directory, name, node).map(Some);
            }
        }
        Ok(None)
    }

    fn show_entry(&self, from: BranchId, seq: u64, viewer: Viewer<'_>) -> Result<ShownObject, Error> {
        let signed = self.history_reader().entry(seq)?;
        if viewer.may_see_entry(&signed, from) {
            Ok(ShownObject::from_entry(&signed))
        } else {
            Err(Error::NoEntry(seq))
        }
    }

    /// Finds a file by the hash that merges and `conflicts` name, or by that of its content alone.
    fn find_file(
        &self,
        owned: StateAndOwner<'_>,
        hash: &Hash,
        viewer: Viewer<'_>,
    ) -> Result<Option<ShownObject>, Error> {
        let tree = owned.0.files();
        let mut directories = vec![ROOT];
        while let Some(directory) = directories.pop() {
            for (name, inode) in tree.entries(directory, None).map_err(tree_error)? {
                let node = tree.node(inode).map_err(tree_error)?;
                if node.directory().is_some() {
                    directories.push(inode);
                } else if (node.hash() == Some(*hash) || node.content_hash() == Some(*hash))
                    // As for a path: another file with the same bytes may be open to the viewer.
                    && viewer.may_read_file(owned, inode)
                {
                    if node.size() > viewer.bytes_max {
                        return Err(Error::TooLargeToShow(node.size()));
                    }
                    return self.shown_file(tree, directory, name, node).map(Some);
                }
            }
        }
        Ok(None)
    }

    fn shown_file(&self, tree: &Tree, directory: u64, name: &[u8], node: &FileNode) -> Result<ShownObject, Error> {
        let content = match node.target() {
            Some(target) => target.to_vec(),
            None => node
                .read(0, usize::try_from(node.size()).unwrap_or(usize::MAX), &self.storage.trees)
                .map_err(tree_error)?,
        };
        let path = [&tree.path(directory).unwrap_or_default()[..], name].join(&b'/');
        let path = format!("files/{}", String::from_utf8_lossy(&path).trim_start_matches('/'));
        let value = json!({
            "kind": "file", "path": path, "mode": format!("{:04o}", node.mode), "size": node.size(),
            "modified": node.mtime.to_string(), "text": String::from_utf8(content.clone()).ok(),
        });
        Ok(ShownObject { line: format!("{value}\n"), content: Some(content) })
    }

    fn readable_states(&self, branch: BranchId, viewer: Viewer<'_>) -> Result<Vec<(Arc<BranchVersion>, u32)>, Error> {
        // A copy: whoever tells what the viewer may read looks there, too.
        let catalog = self.catalog().clone();
        let branch = catalog.branch(branch)?;
        let parent = branch.parent.filter(|id| (viewer.may_read)(*id)).and_then(|id| catalog.branches.get(&id));
        let frozen = branch.frozen_states().map(|frozen| frozen.state.clone());
        let state_and_base = [branch.state.clone(), branch.base.clone()].into_iter();
        let own = state_and_base.chain(frozen).map(|state| (state, branch.uid));
        Ok(own.chain(parent.map(|parent| (parent.state.clone(), parent.uid))).collect())
    }

    /// Returns the figures of a view as a JSON object. Kind `Gone` if the branch has ended, `NotFound` if the
    /// checkpoint or earlier state is not there.
    pub fn status(&self, view: &View) -> Result<Value, Error> {
        let bytes = self.document(view, crate::memory::Document::Status)?;
        serde_json::from_slice(&bytes)
            .map_err(|error| Error::damaged(format!("the status can't be read back: {error}")))
    }
}

fn shown_head(state: &BranchVersion) -> ShownObject {
    let totals = state.totals();
    let head = state.head().to_string();
    let value = json!({ "kind": "head", "head": head, "records": totals.records, "bytes": totals.raw_bytes });
    ShownObject::from_line(format!("{value}\n"))
}

fn shown_version(version: &Version) -> ShownObject {
    let mut line = Vec::new();
    write_export_line(&mut line, version);
    ShownObject::from_line(String::from_utf8_lossy(&line).into_owned())
}

/// Finds a version by its content hash: a scan of all hashes of the state's segments.
fn find_version(state: &BranchVersion, hash: &Hash) -> Result<Option<Arc<Version>>, SegmentError> {
    if let Some(version) = state.unsealed().values().find(|version| version.hash == *hash) {
        return Ok(Some(version.clone()));
    }
    for layer in state.layers() {
        let mut hashes = layer.segment.hashes()?.chunks_exact(32).enumerate();
        let found = hashes.find(|(row, bytes)| *bytes == hash.0 && layer.visible.contains(*row as u32));
        if let Some((row, _)) = found {
            return Row::Sealed(layer.segment.clone(), row as u32).version().map(Some);
        }
    }
    Ok(None)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_a_line_comes_back_whatever_its_bytes_are() {
        for content in [&b"plain\n\"text\""[..], &[0xff, 0x00, 0x1b], b""] {
            let text = String::from_utf8(content.to_vec()).ok();
            let line = format!("{}\n", json!({ "kind": "file", "path": "files/a", "text": text }));
            let shown = ShownObject { line, content: Some(content.to_vec()) };
            let back = ShownObject::parse(&shown.to_line()).unwrap();
            assert_eq!((back.line, back.content), (shown.line, shown.content));
        }
        assert_eq!(ShownObject::parse("{\"kind\":\"head\"}\n").unwrap().content, None);
        assert!(ShownObject::parse("no line").is_none());
    }
}
