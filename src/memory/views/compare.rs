//! What one state has other than another, with both versions.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::branch::differences_at_most;
use crate::file_index::ListedPaths;
use crate::lineage::EntryOp;
use crate::memory::catalog::{BranchId, Revision, StateSource, View};
use crate::memory::merging::find_state::StateSearch;
use crate::memory::views::lookup::{ShowTarget, ShownObject, StateAndOwner, Viewer};
use crate::memory::{Actor, Error, Memory, MergeError};
use crate::segment::Row;
use crate::sync::Reservation;
use crate::workspace::InodeNode;

/// Most records and paths of one comparison; more are [`Error::TooManyChanges`].
const CHANGES_MAX: usize = 1 << 20;
/// Bytes of the longest text of a file that is shown.
const TEXT_BYTES_MAX: u64 = 64 << 10;

impl Memory {
    /// Compares two states of a branch. The content has one JSON line for each difference: `kind`, `id` or `path`,
    /// `change`, and what each state has there.
    ///
    /// A state is a checkpoint's label, an entry or a time; `/` and a path for the present state of another branch; or
    /// `None` for the present state of this one. Files include their text if the caller may read it, it is UTF-8 and
    /// has at most 64 KiB. Paths that the viewer could not list are left out.
    ///
    /// Fails like [`Memory::find_state`], and with kind `NotFound` for a branch that the viewer may not read. Code
    /// `too_many_changes` beyond 1,048,576 changes. Kind `Quota` or `Full` if the lines need more memory than the
    /// caller may have.
    pub fn compare(
        &self,
        who: &Actor,
        branch: BranchId,
        [old, new]: [Option<&str>; 2],
        viewer: Viewer<'_>,
    ) -> Result<ShownObject, Error> {
        let state = |text: Option<&str>| {
            let view = self.resolve_view(branch, text, viewer)?;
            Ok::<_, Error>((self.state(&view)?, self.info(view.branch())?.uid))
        };
        let ((old, old_owner), (new, new_owner)) = (state(old)?, state(new)?);
        let lines = self.changes((who, viewer), (&old, old_owner), (&new, new_owner))?;
        Ok(ShownObject { line: lines, content: None })
    }

    /// Returns an entry with what it changed in a branch, one JSON line for each change but those of files that the viewer
    /// could not list.
    ///
    /// Code `not_kept` if the states before and after it are not kept, `not_revertible` if it changed nothing of the
    /// branch, `too_many_changes` (kind `Invalid`) beyond 1,048,576 changes. Otherwise fails like [`Memory::show`].
    pub fn show_changes(
        &self,
        who: &Actor,
        branch: BranchId,
        wanted: ShowTarget,
        viewer: Viewer<'_>,
    ) -> Result<ShownObject, Error> {
        let shown = self.show(branch, wanted, viewer)?;
        let search = StateSearch::new(self, branch)?;
        let signed = match wanted {
            ShowTarget::Entry(seq) => Some(search.reader.entry(seq)?),
            ShowTarget::Hash(hash) => search.reader.find_by_hash(&hash)?,
        };
        let signed = signed.filter(|signed| search.changes_state(&signed.entry) && signed.entry.seq >= branch.0);
        let signed = signed.ok_or_else(|| MergeError::NotRevertible(wanted.to_string()))?;
        let source = |seq: u64| search.catalog.resolve_source(&search.branch, &StateSource::Entry(seq));
        let after = source(signed.entry.seq)?.state;
        let before = match signed.entry.op {
            EntryOp::Root => Arc::default(),
            // A fork changes nothing: what it began with is the state before it.
            EntryOp::Fork => after.clone(),
            _ => {
                let before = search.state_before(signed.entry.seq)?;
                source(before.ok_or_else(|| Error::NotKept(wanted.to_string()))?)?.state
            }
        };
        let owner = search.branch.uid;
        let changes = self.changes((who, viewer), (&before, owner), (&after, owner))?;
        Ok(ShownObject { line: shown.line + &changes, content: None })
    }

    fn resolve_view(&self, branch: BranchId, text: Option<&str>, viewer: Viewer<'_>) -> Result<View, Error> {
        let Some(text) = text else { return Ok(View::Branch(branch)) };
        let Some(path) = text.strip_prefix('/') else { return self.view_at(branch, &Revision::parse(text)?) };
        let other = self.resolve(path)?;
        if other != branch && !(viewer.may_read)(other) {
            return Err(Error::NoBranch(path.to_owned()));
        }
        Ok(View::Branch(other))
    }

    fn changes(
        &self,
        who: (&Actor, Viewer<'_>),
        old: StateAndOwner<'_>,
        new: StateAndOwner<'_>,
    ) -> Result<String, Error> {
        self.changes_at_most(who, old, new, CHANGES_MAX)
    }

    /// The same for at most `limit` records and as many paths; [`Error::TooManyChanges`] beyond that.
    fn changes_at_most(
        &self,
        (who, viewer): (&Actor, Viewer<'_>),
        old: StateAndOwner<'_>,
        new: StateAndOwner<'_>,
        limit: usize,
    ) -> Result<String, Error> {
        let too_many = || Error::TooManyChanges(limit);
        // Both versions of each record may have texts of megabytes: they count for who asks while they are gathered.
        let (mut out, mut held) = (String::new(), self.admission.budget.empty_reservation(who.uid));
        for change in differences_at_most(old.0, new.0, limit)?.ok_or_else(too_many)? {
            let (before, after) = (record(change.old.as_ref())?, record(change.new.as_ref())?);
            let name = change_name(change.old.is_some(), change.new.is_some());
            let line = json!({ "kind": "record", "id": &*change.id, "change": name, "before": before, "after": after });
            push_line(&mut out, &mut held, &line)?;
        }
        let trees = [old, new].map(|(state, owner)| (state.files(), owner));
        let mut listed = viewer.reader.map(|reader| ListedPaths::new(trees, reader));
        for change in old.0.files().differences_at_most(new.0.files(), limit).ok_or_else(too_many)? {
            if listed.as_mut().is_some_and(|listed| !listed.has(&change)) {
                continue;
            }
            let path = format!("files/{}", String::from_utf8_lossy(&change.path));
            let name = change_name(change.old.is_some(), change.new.is_some());
            let before = self.file((who, viewer), old, change.old.as_ref());
            let after = self.file((who, viewer), new, change.new.as_ref());
            let line = json!({ "kind": "file", "path": path, "change": name, "before": before, "after": after });
            push_line(&mut out, &mut held, &line)?;
        }
        Ok(out)
    }

    fn file(
        &self,
        (who, viewer): (&Actor, Viewer<'_>),
        state: StateAndOwner<'_>,
        found: Option<&InodeNode>,
    ) -> Option<Value> {
        let ((inode, node), tree) = (found?, state.0.files());
        let is_own = who.uid == 0 || who.uid == tree.owner(node);
        // A fork gives its owner files also below directories that stay closed to them.
        let is_shown = is_own && node.size() <= TEXT_BYTES_MAX && viewer.may_read_file(state, *inode);
        let read = || tree.read(*inode, 0, node.size() as usize, self.packs()).ok();
        let text = is_shown.then(read).flatten().and_then(|bytes| String::from_utf8(bytes).ok());
        let hash = node.hash().map(|hash| hash.to_string());
        Some(json!({ "hash": hash, "mode": format!("{:04o}", node.mode), "size": node.size(), "text": text }))
    }
}

fn record(row: Option<&Row>) -> Result<Option<Value>, Error> {
    let Some(row) = row else { return Ok(None) };
    let (hash, version) = (row.hash()?, row.version()?);
    let metadata: Value = serde_json::from_str(&version.content.metadata).unwrap_or_default();
    Ok(Some(json!({ "hash": hash.to_string(), "text": version.content.text.as_deref(), "metadata": metadata })))
}

fn change_name(is_before: bool, is_after: bool) -> &'static str {
    match (is_before, is_after) {
        (false, _) => "added",
        (true, true) => "modified",
        (true, false) => "deleted",
    }
}

fn push_line(out: &mut String, held: &mut Reservation, line: &Value) -> Result<(), Error> {
    let line = line.to_string();
    held.grow(line.len() as u64 + 1)?;
    out.push_str(&line);
    out.push('\n');
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::file_index::Credentials;
    use crate::memory::{Environment, FILES_ROOT, FileName, FileOp, Kind, NewInode, OpenMode, RecordEdit, RecordInput};

    #[test]
    fn a_comparison_takes_1048576_records_and_as_many_paths_and_no_more() {
        assert_eq!(CHANGES_MAX, 1_048_576);
        let who = Actor { uid: 7, gid: 7, name: "ann".into() };
        let environment = Environment::real(who.clone());
        let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, environment).unwrap();
        let main = memory.root("main").unwrap();
        let state = || memory.state(&View::Branch(main)).unwrap();
        let empty = state();
        let input = || RecordInput { vector: None, text: Some("t".into()), metadata: "{}".into() };
        let edits = (0..3).map(|n| RecordEdit::Put { id: format!("r{n}").into(), input: input() }).collect();
        memory.commit(&who, main, edits).unwrap();
        let records = state();
        for n in 0..3 {
            let name = FileName::new(format!("f{n}").as_bytes()).unwrap();
            let op = FileOp::Create { parent: FILES_ROOT, name, make: NewInode::File, mode: 0o644, uid: 7, gid: 7 };
            memory.edit(&who, main, op).unwrap();
        }
        let who = (&who, Viewer::UNRESTRICTED);
        for (old, new) in [(&empty, &records), (&records, &state())] {
            assert_eq!(memory.changes_at_most(who, (old, 7), (new, 7), 3).unwrap().lines().count(), 3);
            let error = memory.changes_at_most(who, (old, 7), (new, 7), 2).unwrap_err();
            assert_eq!((error.kind(), error.code()), (Kind::Invalid, "too_many_changes"));
        }
    }

    #[test]
    fn a_comparison_shows_nothing_below_a_directory_that_is_closed_to_its_reader() {
        let who = Actor { uid: 7, gid: 7, name: "ann".into() };
        let environment = Environment::real(who.clone());
        let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, environment).unwrap();
        let main = memory.root("main").unwrap();
        let make = |parent, text: &str, make, (uid, mode)| {
            let name = FileName::new(text.as_bytes()).unwrap();
            memory.edit(&who, main, FileOp::Create { parent, name, make, mode, uid, gid: uid }).unwrap().inode
        };
        let before = memory.state(&View::Branch(main)).unwrap();
        // Only to be searched, only to be listed, and below a closed one.
        let directories = [("open", 7, 0o700), ("shut", 8, 0o700), ("blind", 8, 0o711), ("listed", 8, 0o744)];
        for (name, owner, mode) in directories {
            let directory = make(FILES_ROOT, name, NewInode::Directory, (owner, mode));
            make(directory, "file", NewInode::File, (7, 0o644));
            make(directory, "unreadable", NewInode::File, (7, 0o000));
            let below = make(directory, "below", NewInode::Directory, (7, 0o755));
            make(below, "file", NewInode::File, (7, 0o644));
        }
        let reader = Credentials { uid: 7, groups: vec![7], knows_all_groups: true };
        let viewer = Viewer { reader: Some(&reader), ..Viewer::UNRESTRICTED };
        let after = memory.state(&View::Branch(main)).unwrap();
        let lines = memory.changes((&who, viewer), (&before, 7), (&after, 7)).unwrap();
        let told = |lines: &str| -> Vec<(String, Value)> {
            let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            lines.map(|line| (line["path"].as_str().unwrap().into(), line["after"]["text"].clone())).collect()
        };
        let shown = [
            ("files/blind", Value::Null),
            ("files/listed", Value::Null),
            ("files/open", Value::Null),
            ("files/open/below", Value::Null),
            ("files/open/below/file", "".into()),
            ("files/open/file", "".into()),
            ("files/open/unreadable", Value::Null),
            ("files/shut", Value::Null),
        ];
        assert_eq!(told(&lines), shown.map(|(path, text)| (path.to_owned(), text)));
        // It is so for what was there before, too, and who has the store is told all.
        let gone = memory.changes((&who, viewer), (&after, 7), (&before, 7)).unwrap();
        assert_eq!(gone.lines().count(), 8);
        let all = memory.changes((&who, Viewer::UNRESTRICTED), (&before, 7), (&after, 7)).unwrap();
        assert_eq!(all.lines().count(), 4 * 5);
        assert!(all.contains("files/shut/file"));
    }
}
