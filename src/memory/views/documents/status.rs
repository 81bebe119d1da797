//! The file `status`: a branch in figures.

use serde::Serialize;
use serde_json::Value;

use super::{Document, DocumentSpec};
use crate::memory::admission::reserve::ReserveFill;
use crate::memory::catalog::ResolvedView;
use crate::memory::catalog::settings::Setting;
use crate::memory::catalog::{Branch, BranchId, Catalog, View};
use crate::memory::maintenance::scrub::ScrubProgress;
use crate::memory::{Error, Memory};

pub(super) const STATUS: DocumentSpec =
    DocumentSpec { file_name: "status", has_length: true, shows_parent: false, change_count, render };

/// A status is this long, or a multiple for branches that are nested very deep.
const PADDED_BYTES: usize = 8 << 10;
/// Bytes that everything but the last refusal and the name paths takes at the most: three labels of 200 bytes are
/// 3,600 bytes where each has to be escaped.
const FIGURES_BYTES: usize = 6 << 10;
/// Bytes of the longest field of the last refusal; a longer one is cut, so that the line keeps its length.
const LAST_ERROR_BYTES: usize = 4 << 10;

/// The keys of `status`, in the order in which they are written.
#[derive(Serialize)]
struct Status<'a> {
    name: &'a str,
    path: &'a str,
    parent: Option<&'a str>,
    created: String,
    owner: u32,
    head: String,
    base: String,
    tip: String,
    records: u64,
    own_edits: u64,
    deleted: u64,
    files: u64,
    bytes_own: u64,
    bytes_shared: u64,
    depth: u64,
    children: usize,
    checkpoints: usize,
    dim: Option<usize>,
    metric: &'a str,
    strategy: &'a str,
    agent: &'a str,
    session: &'a str,
    task: &'a str,
    log_entries: u64,
    unread: u64,
    log_bytes: u64,
    index: IndexProgress,
    embedder: Value,
    scrub: ScrubProgress,
    reserve: ReserveFill,
    lease: LeaseStatus,
    #[serde(flatten)]
    live: LiveStatus,
    kept_since: Option<String>,
    bytes_kept: u64,
    clock: &'static str,
}

/// Whether somebody holds the lease, and since when, in RFC 3339; null if nobody does.
#[derive(Serialize)]
pub(in crate::memory::views) struct LeaseStatus {
    held: bool,
    since: Option<String>,
}

impl LeaseStatus {
    /// Looks whether somebody holds the lease of a branch now, whatever its stored state says.
    pub fn for_branch(memory: &Memory, branch: BranchId) -> LeaseStatus {
        let since = memory.lease_since(branch);
        LeaseStatus { held: since.is_some(), since: since.map(|since| since.to_string()) }
    }
}

#[derive(Serialize)]
struct IndexProgress {
    rows: u64,
    indexed: u64,
    segments: usize,
    building: bool,
    /// Files that are looked at for words, and how many were; `None` if nobody has asked since the opening.
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files_indexed: Option<u64>,
    unembedded: u64,
}

/// What a mount knows of a branch and the store does not.
#[derive(Default, Serialize)]
pub struct LiveStatus {
    /// How many temporaries are in `vectors/`, for as long as it is mounted.
    pub temporaries: usize,
    /// The last refusal that the reader may see, as `errors` has it.
    pub last_error: Option<Value>,
}

impl LiveStatus {
    /// Its keys and values as they stand in `status`: JSON without the braces around.
    fn to_fields(&self) -> Option<String> {
        let object = serde_json::to_string(self).ok()?;
        Some(object.strip_prefix('{')?.strip_suffix('}')?.to_owned())
    }
}

/// Counts the entries of the whole store, whose tip it shows, and the steps of all that works in the background.
fn change_count(memory: &Memory, _: &Catalog, _: &ResolvedView<'_>) -> u64 {
    memory.last_seq()
        + memory.maintenance.indexer.change_count()
        + memory.maintenance.embedding.change_count()
        + memory.maintenance.scrubber.change_count()
        + memory.storage.file_index.segment_set().version
        // A query that finds all contents indexed makes no other set of segments, and is a look all the same.
        + memory.file_views.change_count()
        + memory.admission.room.reserve.change_count()
        + memory.maintenance.retained.change_count()
}

/// What a view has other than its base: how many records and paths differ, how many of those are deleted, the bytes of the rest.
#[derive(Default)]
struct OwnEdits {
    edits: u64,
    deleted: u64,
    bytes: u64,
}

/// Renders the status of a view, one padded line, without what the mount alone knows. Kind `Io` or `Damaged` if records
/// of the view can't be read.
fn render(memory: &Memory, catalog: &Catalog, view: &View, resolved: &ResolvedView<'_>) -> Result<Vec<u8>, Error> {
    let branch = resolved.branch;
    let (path, totals, own) = (branch.path.clone(), resolved.state.totals(), own_edits(resolved)?);
    let parent = branch.parent.and_then(|id| catalog.branches.get(&id)).map(|parent| parent.path.clone());
    let setting = |setting| catalog.setting(branch, setting);
    let (log, read) = catalog.log_progress(branch)?;
    let (agent, metric) = (setting(Setting::Agent)?, setting(Setting::Metric)?);
    let status = Status {
        name: &branch.name,
        path: &path,
        parent: parent.as_deref(),
        created: branch.created.to_string(),
        owner: branch.uid,
        head: resolved.state.head().to_string(),
        base: resolved.base.head().to_string(),
        tip: memory.tip().to_string(),
        records: totals.records,
        own_edits: own.edits,
        deleted: own.deleted,
        files: resolved.state.files().totals().files,
        bytes_own: own.bytes,
        bytes_shared: (totals.raw_bytes + resolved.state.files().totals().bytes).saturating_sub(own.bytes),
        depth: catalog.depth(branch),
        children: branch.children.len(),
        checkpoints: branch.checkpoints.len(),
        dim: catalog.shared_settings(branch)?.dim(),
        metric: &metric,
        strategy: branch.settings.strategy().name(),
        agent: &agent,
        session: branch.settings.get(Setting::Session),
        task: branch.settings.get(Setting::Task),
        log_entries: log.entries,
        unread: log.entries.saturating_sub(read),
        log_bytes: log.bytes - log.archived_bytes,
        index: memory.index_progress(catalog, view, resolved)?,
        embedder: memory.embedding_status(catalog, branch)?.to_json(),
        scrub: memory.maintenance.scrubber.progress(),
        reserve: memory.admission.room.reserve.fill_state(),
        lease: LeaseStatus::for_branch(memory, branch.id),
        // Known to the mount alone, and filled in later: `with_live`.
        live: LiveStatus::default(),
        kept_since: kept_since(catalog, branch)?,
        bytes_kept: memory.maintenance.retained.for_branch(branch.id),
        clock: memory.clock_state(),
    };
    let mut line = serde_json::to_vec(&status).unwrap_or_default();
    pad(&mut line, padded_bytes(&path));
    Ok(line)
}

/// Returns since when earlier states of a branch are kept; `None` if there are none but the present one.
fn kept_since(catalog: &Catalog, branch: &Branch) -> Result<Option<String>, Error> {
    let oldest = catalog.retained.oldest(branch.id)?.filter(|oldest| oldest.key.1 != branch.state_entry);
    Ok(oldest.map(|oldest| oldest.time.to_string()))
}

/// Returns the bytes of the status of a branch at a path, the same at all times: stat(2) tells it unasked.
pub(in crate::memory::views) fn padded_bytes(path: &str) -> usize {
    // It holds the path, and that of the parent, which is shorter.
    (FIGURES_BYTES + 2 * path.len()).next_multiple_of(PADDED_BYTES)
}

/// Ends a line with blanks before its line feed, so that it has that length.
fn pad(line: &mut Vec<u8>, bytes: usize) {
    line.resize(line.len().max(bytes - 1), b' ');
    line.push(b'\n');
}

/// Puts what the mount knows into a status that has none of it. The fields of a refusal are cut where it would not fit.
fn with_live(status: &[u8], mut live: LiveStatus) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(status).ok()?.trim_end();
    // The fields stand together, as `Status` has them as one. No value has these bytes in it: quotes in strings are
    // escaped with a backslash.
    let (before, after) = text.split_once(&LiveStatus::default().to_fields()?)?;
    let compose = |live: &LiveStatus| Some(format!("{before}{}{after}", live.to_fields()?));
    let (mut line, mut most) = (compose(&live)?, LAST_ERROR_BYTES);
    while line.len() >= status.len() && most > 0 {
        most /= 2;
        cut_fields(live.last_error.as_mut(), most);
        line = compose(&live)?;
    }
    let mut line = line.into_bytes();
    pad(&mut line, status.len());
    Some(line)
}

fn cut_fields(error: Option<&mut Value>, limit: usize) {
    let fields = error.and_then(Value::as_object_mut).into_iter().flat_map(|fields| fields.values_mut());
    for field in fields {
        if let Value::String(text) = field {
            text.truncate(text.floor_char_boundary(limit));
        }
    }
}

impl Memory {
    /// Returns how far a view's records are indexed: all but those of large segments whose graph is
    /// not there yet, and of the one at hand those that are done.
    fn index_progress(
        &self,
        catalog: &Catalog,
        view: &View,
        resolved: &ResolvedView<'_>,
    ) -> Result<IndexProgress, Error> {
        let metric = catalog.shared_settings(resolved.branch)?.metric();
        let mut waiting = 0;
        let current = self.maintenance.indexer.current();
        for layer in self.segments_without_graph(&resolved.state, metric) {
            let done = current.filter(|(segment, _)| *segment == layer.segment.name()).map_or(0, |(_, rows)| rows);
            // At least 1: until the graph is in use the segment waits, also when all its rows are done.
            waiting += u64::from(layer.visible.count()).saturating_sub(done).max(1);
        }
        let rows = resolved.state.totals().records;
        // As of the last look: a status does not index.
        let files = self.file_views.get(view).map(|files| files.counts());
        Ok(IndexProgress {
            rows,
            indexed: rows.saturating_sub(waiting),
            segments: resolved.state.layers().len(),
            building: waiting > 0,
            files: files.map(|(all, _)| all),
            files_indexed: files.map(|(all, missing)| all - missing),
            unembedded: self.embedding_status(catalog, resolved.branch)?.unembedded(&resolved.state)?,
        })
    }
}

fn own_edits(resolved: &ResolvedView<'_>) -> Result<OwnEdits, Error> {
    let (records, files) = (own_records(resolved)?, own_files(resolved));
    Ok(OwnEdits {
        edits: records.edits + files.edits,
        deleted: records.deleted + files.deleted,
        bytes: records.bytes + files.bytes,
    })
}

fn own_records(resolved: &ResolvedView<'_>) -> Result<OwnEdits, Error> {
    let totals = resolved.state.totals();
    if resolved.base.totals().records == 0 {
        // Without a base all records are its own; a root branch may hold very many.
        return Ok(OwnEdits { edits: totals.records, deleted: 0, bytes: totals.raw_bytes });
    }
    let mut own = OwnEdits::default();
    for change in crate::branch::differences(&resolved.base, &resolved.state)? {
        own.edits += 1;
        match &change.new {
            Some(row) => own.bytes += row.totals()?.raw_bytes,
            None => own.deleted += 1,
        }
    }
    Ok(own)
}

/// The same of files and directories, as `diff` lists them. What shares chunks with the base counts whole.
fn own_files(resolved: &ResolvedView<'_>) -> OwnEdits {
    let (base, files) = (resolved.base.files(), resolved.state.files());
    if let Some(edits) = base.differences_from_empty(files) {
        return OwnEdits { edits, deleted: 0, bytes: files.totals().bytes };
    }
    let mut own = OwnEdits::default();
    for difference in base.differences(files) {
        own.edits += 1;
        match &difference.new {
            Some((_, node)) => own.bytes += node.content().map_or(0, |content| content.size()),
            None => own.deleted += 1,
        }
    }
    own
}

impl Memory {
    /// Returns the status of a view as one line of JSON, with the figures that only the mount knows. The line of a
    /// branch always has the same length in bytes, so that stat(2) can tell it. Fails like [`Memory::document`].
    pub fn status_with(&self, view: &View, live: LiveStatus) -> Result<Vec<u8>, Error> {
        let status = self.document(view, Document::Status)?;
        Ok(with_live(&status, live).unwrap_or_else(|| status.to_vec()))
    }

    /// Returns a view's own edits, one JSON line each, like [`Document::Diff`]. Fails like [`Memory::document`].
    pub fn diff(&self, view: &View) -> Result<std::sync::Arc<[u8]>, Error> {
        self.document(view, Document::Diff)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::memory::{Actor, Environment, OpenMode, RecordEdit, RecordInput};

    #[test]
    fn each_figure_of_status_stands_on_the_page() {
        let page = include_str!("../../../../docs/SEMANTICS.md");
        let section = page.split("\n## ").find(|section| section.starts_with("Status\n")).unwrap();
        let actor = Actor { uid: 1, gid: 1, name: "u1".into() };
        let disk = Arc::new(ForgetfulDisk::new());
        let memory = Memory::open_on(disk, OpenMode::Create, None, Environment::real(actor)).unwrap();
        let main = memory.resolve("main").unwrap();
        let status = memory.status(&View::Branch(main)).unwrap();
        let cells = section.lines().filter(|line| line.starts_with("| `")).filter_map(|row| row.split('|').nth(1));
        let on_page: Vec<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
        let text = String::from_utf8(memory.status_with(&View::Branch(main), LiveStatus::default()).unwrap()).unwrap();
        let mut shown: Vec<&String> = status.as_object().unwrap().keys().collect();
        // A part that has the name of a figure stands behind that figure.
        shown.sort_by_key(|key| text.find(&format!("\"{key}\":")).unwrap());
        assert_eq!(shown, on_page, "the keys in their order, and those of docs/SEMANTICS.md");
        for (key, figure) in status.as_object().unwrap() {
            let row = section.lines().find(|line| line.split('|').nth(1).is_some_and(|cell| names(cell, key)));
            let row = row.unwrap_or_else(|| panic!("the section Status of docs/SEMANTICS.md has no row of {key}"));
            for part in figure.as_object().into_iter().flat_map(|parts| parts.keys()) {
                assert!(names(row, part), "docs/SEMANTICS.md says nothing of {key}.{part}");
            }
        }
    }

    #[test]
    fn figures_of_a_branch_follow_what_is_done_to_it() {
        let who = Actor { uid: 7, gid: 7, name: "ann".into() };
        let disk = Arc::new(ForgetfulDisk::new());
        let memory = Memory::open_on(disk, OpenMode::Create, None, Environment::real(who.clone())).unwrap();
        let main = memory.resolve("main").unwrap();
        let x = memory.fork(&who, main, "x", None).unwrap();
        let y = memory.fork(&who, x, "y", None).unwrap();
        memory.checkpoint(&who, x, "v1", None).unwrap();
        let status = |branch| memory.status(&View::Branch(branch)).unwrap();
        let fields = |branch, keys: [&str; 3]| json!(keys.map(|key| status(branch)[key].clone()));
        assert_eq!(fields(main, ["name", "path", "parent"]), json!(["main", "main", null]));
        assert_eq!(fields(y, ["name", "path", "parent"]), json!(["y", "main/x/y", "main/x"]));
        for (branch, figures) in [(main, [0, 1, 0]), (x, [1, 1, 1]), (y, [2, 0, 0])] {
            assert_eq!(fields(branch, ["depth", "children", "checkpoints"]), json!(figures));
        }
        assert_eq!((&status(x)["owner"], &status(x)["tip"]), (&json!(7), &json!(memory.tip().to_string())));
        assert_eq!(status(x)["created"], memory.info(x).unwrap().created.to_string());
        assert_eq!(fields(x, ["dim", "metric", "strategy"]), json!([null, "cosine", "newest-wins"]));
        for (setting, value) in [
            (Setting::Dim, "2"),
            (Setting::Metric, "l2"),
            (Setting::Strategy, "manual"),
            (Setting::Agent, "a"),
            (Setting::Session, "s"),
            (Setting::Task, "t"),
        ] {
            memory.set(&who, x, setting, value).unwrap();
        }
        assert_eq!(fields(x, ["dim", "metric", "strategy"]), json!([2, "l2", "manual"]));
        assert_eq!(fields(x, ["agent", "session", "task"]), json!(["a", "s", "t"]));
        assert_eq!(status(x)["tip"], memory.tip().to_string());
        let before = status(x)["head"].clone();
        let input = RecordInput { vector: None, text: Some("t".into()), metadata: "{}".into() };
        memory.commit(&who, x, vec![RecordEdit::Put { id: "r".into(), input }]).unwrap();
        assert_eq!((status(x)["base"] == before, status(x)["head"] != before), (true, true));
        assert_eq!(status(x)["records"], 1);
    }

    #[test]
    fn a_refusal_that_does_not_fit_is_cut_and_all_else_stays() {
        let actor = Actor { uid: 1, gid: 1, name: "u1".into() };
        let environment = Environment::real(actor);
        let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, environment).unwrap();
        let view = View::Branch(memory.resolve("main").unwrap());
        for (characters, fits) in [(100, true), (1_000_000, false)] {
            let error = json!({ "code": "conflicts", "message": "ß".repeat(characters), "seq": 3 });
            let live = LiveStatus { temporaries: 2, last_error: Some(error.clone()) };
            let line = memory.status_with(&view, live).unwrap();
            assert_eq!(line.len(), padded_bytes("main"));
            let shown: Value = serde_json::from_slice(&line).unwrap();
            assert_eq!(shown["last_error"] == error, fits);
            let message = shown["last_error"]["message"].as_str().unwrap();
            assert!(!message.is_empty() && message.chars().all(|character| character == 'ß'));
            let rest = [&shown["last_error"]["code"], &shown["last_error"]["seq"], &shown["temporaries"]];
            assert_eq!(rest, [&json!("conflicts"), &json!(3), &json!(2)]);
        }
    }

    fn names(text: &str, key: &str) -> bool {
        text.contains(&format!("`{key}`"))
    }
}
