//! What several targets need: files on a disk in memory, and records in a branch.

use std::collections::BTreeMap;
use std::sync::Arc;

use engramfs::branch::BranchVersion;
use engramfs::disk::{Disk, ForgetfulDisk};
use engramfs::memory::{RecordEdit, RecordInput, RecordPatch};
use engramfs::object::{BlobStore, Hash, Time};
use engramfs::record::{Provenance, RecordContent, Version};
use engramfs::search::{DerivedVectors, Query, SearchError, SearchResult, SearchSource, run_query};
use engramfs::segment::{FOLDER, Row, Segment, write_segment};
use engramfs::vector::Metric;

/// The name of the one file in the blob store of [`blobs_with`].
pub const NAME: Hash = Hash([7; 32]);

/// Returns a disk in memory with those files, whose folders are made.
pub fn disk_with(files: &[(&str, &[u8])]) -> Arc<dyn Disk> {
    let disk = ForgetfulDisk::new();
    for (path, bytes) in files {
        if let Some((folder, _)) = path.split_once('/') {
            disk.create_dir(folder).expect("a folder can be made in memory");
        }
        disk.create(path).and_then(|file| file.write_all_at(bytes, 0)).expect("there is room in memory");
    }
    Arc::new(disk)
}

/// Returns a blob store with one file, whatever its bytes are, under [`NAME`].
pub fn blobs_with(bytes: &[u8]) -> BlobStore {
    BlobStore::open_existing(disk_with(&[(&format!("{FOLDER}/{NAME}"), bytes)]), FOLDER)
}

/// Cuts input in two: a length as u16, so many bytes, and the rest. What is too short is all in the first part.
pub fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk() else { return (bytes, &[]) };
    rest.split_at_checked(u16::from_le_bytes(*length).into()).unwrap_or((rest, &[]))
}

/// Reads records from lines as `ingest` takes them; those that are none, or whose vectors differ in length from the
/// first, are left out.
pub fn records<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeMap<Arc<str>, RecordInput> {
    let (mut records, mut dim) = (BTreeMap::new(), None);
    for (number, line) in lines.take(200).enumerate() {
        let fresh_id = || format!("fresh-{number}").into();
        let Ok(Some(RecordEdit::Correct { id, patch, .. })) =
            RecordEdit::parse_line(line.as_bytes(), number, &fresh_id)
        else {
            continue;
        };
        let input = whole(patch);
        if let Some(vector) = &input.vector
            && *dim.get_or_insert(vector.len()) != vector.len()
        {
            continue;
        }
        records.insert(id, input);
    }
    records
}

/// Returns the record that a correction makes where there is none.
pub fn whole(patch: RecordPatch) -> RecordInput {
    let metadata = patch.metadata.unwrap_or_else(|| "{}".into());
    RecordInput { vector: patch.vector.flatten(), text: patch.text.flatten(), metadata }
}

/// Returns who wrote the records of [`branches`], where and when.
pub fn provenance() -> Provenance {
    Provenance {
        created: Time(1),
        modified: Time(2),
        branch: "main".into(),
        agent: "ann".into(),
        session: "s".into(),
        task: "t".into(),
        uid: 1000,
        vector_stale: false,
    }
}

/// Returns a branch with these records in memory, and one with the same records in a segment.
pub fn branches(records: &BTreeMap<Arc<str>, RecordInput>) -> [Arc<BranchVersion>; 2] {
    let version = |(id, input): (&Arc<str>, &RecordInput)| {
        let RecordInput { vector, text, metadata } = input.clone();
        Row::Unsealed(Arc::new(Version::new(id.clone(), RecordContent { vector, text, metadata }, provenance())))
    };
    let rows: Vec<Row> = records.iter().map(version).collect();
    let dim = records.values().find_map(|input| input.vector.as_ref()).map_or(0, |vector| vector.len());
    let [mut unsealed, mut sealed] = [BranchVersion::default(), BranchVersion::default()];
    for row in &rows {
        unsealed.put(row.clone()).expect("nothing is read");
    }
    if !rows.is_empty() {
        let blobs = BlobStore::new(disk_with(&[]), FOLDER).expect("a folder can be made in memory");
        let name = write_segment(&blobs, &rows, dim).expect("rows in memory can be written");
        let segment = Segment::open(&blobs, name).expect("what was written can be opened");
        sealed.put_segment(&Arc::new(segment)).expect("what was written can be read");
    }
    [Arc::new(unsealed), Arc::new(sealed)]
}

/// Answers a query from a state of a branch.
pub fn answer(state: Arc<BranchVersion>, metric: Metric, query: &Query) -> Result<SearchResult, SearchError> {
    answer_with(None, state, metric, query)
}

/// The same, with the vectors that an embedder made.
pub fn answer_with(
    derived: Option<DerivedVectors>,
    state: Arc<BranchVersion>,
    metric: Metric,
    query: &Query,
) -> Result<SearchResult, SearchError> {
    let source = SearchSource { source: "branch".into(), state, derived, is_log: false };
    run_query((&source, std::slice::from_ref(&source), None), metric, None, query, "", &|| None)
}

/// Returns states of a branch whose records stand in a segment: without records, with three, and with two of them.
pub fn states() -> [Arc<BranchVersion>; 3] {
    let lines = [r#"{"id":"a","text":"fox"}"#, r#"{"id":"b","text":"dog"}"#, r#"{"id":"c","text":"note"}"#];
    let [_, full] = branches(&records(lines.into_iter()));
    let mut fewer = BranchVersion::clone(&full);
    fewer.delete("b", Time(3)).expect("it was written");
    [Arc::default(), full, Arc::new(fewer)]
}
