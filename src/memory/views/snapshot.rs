//! A view as it was at one moment.

use std::sync::Arc;

use super::export::ExportCursors;
use crate::branch::BranchVersion;
use crate::memory::catalog::ResolvedView;
use crate::memory::{Error, Memory, View};
use crate::object::{Hash, Time};
use crate::record::{Version, document_bytes, write_document};
use crate::segment::{Row, SegmentError};
use crate::sync::Mutex;

/// The records of a view at one moment: cheap to take, holds no lock, never changes.
#[derive(Clone)]
pub struct Snapshot {
    /// What the view showed when this was taken.
    pub(in crate::memory) state: Arc<BranchVersion>,
    /// Where reads of exports went by, so that reading on costs no search, and a jump a short one.
    pub(in crate::memory) export_cursors: Arc<Mutex<ExportCursors>>,
}

/// One stored version of a record, whose bytes were checked when it was read.
pub struct Record(Arc<Version>);

impl Record {
    /// Returns the id, without `.json`.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// Returns the hash of id and content. It does not cover who wrote the record, and when.
    pub fn hash(&self) -> Hash {
        self.0.hash
    }

    /// Returns whether a row is this version. [`SegmentError::Io`] or [`SegmentError::Damaged`] if the row's hash or
    /// provenance can't be read.
    pub(in crate::memory) fn is_version(&self, row: &Row) -> Result<bool, SegmentError> {
        Ok(row.hash()? == self.0.hash && row.provenance()? == self.0.provenance)
    }

    /// Returns when the record was first written. Corrections and replacements keep it.
    pub fn created(&self) -> Time {
        self.0.provenance.created
    }

    /// Returns when this version was written, which is the time of its entry.
    pub fn modified(&self) -> Time {
        self.0.provenance.modified
    }

    /// Returns the JSON document of `vectors/<id>.json`, with who wrote it and when.
    pub fn to_document(&self) -> Vec<u8> {
        let mut out = Vec::new();
        write_document(&mut out, &self.0);
        out
    }

    /// Returns the vector as it was written; `None` if the record has none of its own.
    pub fn vector(&self) -> Option<&[f32]> {
        self.0.content.vector.as_deref()
    }

    /// Returns the text; `None` if the record is a vector alone.
    pub fn text(&self) -> Option<&str> {
        self.0.content.text.as_deref()
    }
}

/// What stat(2) tells of a record, read without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordStat {
    /// Length of its document in bytes, computed without rendering it.
    pub length: u64,
    /// When this version was written: its mtime.
    pub modified: Time,
    /// When the record was first written; a replacement keeps it.
    pub created: Time,
}

impl Snapshot {
    /// Takes a state, by reference: nothing is copied.
    pub(in crate::memory) fn new(state: Arc<BranchVersion>) -> Snapshot {
        Snapshot { state, export_cursors: Arc::default() }
    }

    /// Returns the number of records, in constant time.
    pub fn count(&self) -> u64 {
        self.state.totals().records
    }

    /// Returns the head: one hash of all records and files. The first call may hash all files.
    pub fn head(&self) -> Hash {
        self.state.head()
    }

    /// Returns a record, read and checked now; `None` if no record has that id. Kind `Damaged` if its bytes are not
    /// those that were written.
    pub fn get(&self, id: &str) -> Result<Option<Record>, Error> {
        let row = self.state.find(id)?;
        Ok(row.map(|row| row.version()).transpose()?.map(Record))
    }

    /// Returns length and times of a record without rendering it; `None` if no record has that id. Kind `Io` or
    /// `Damaged` if its columns can't be read.
    pub fn stat(&self, id: &str) -> Result<Option<RecordStat>, Error> {
        let Some(row) = self.state.find(id)? else { return Ok(None) };
        let provenance = row.provenance()?;
        let dim = row.vector()?.map(<[f32]>::len);
        let json_bytes = match &row {
            Row::Unsealed(version) => version.json_bytes,
            Row::Sealed(segment, row) => segment.json_bytes_and_terms(*row)?.0,
        };
        let length = document_bytes(json_bytes, provenance.vector_stale, dim);
        Ok(Some(RecordStat { length, modified: provenance.modified, created: provenance.created }))
    }

    /// Returns up to `limit` ids after `after`, or from the first, in bytewise order; fewer only at the end. Kind `Io`
    /// or `Damaged` if an id can't be read.
    pub fn ids_after(&self, after: Option<&str>, limit: usize) -> Result<Vec<Arc<str>>, Error> {
        let mut ids = Vec::with_capacity(limit.min(4096));
        for row in self.state.rows(after)?.take(limit) {
            ids.push(Arc::from(&*row?.id()?));
        }
        Ok(ids)
    }
}

impl Memory {
    /// Takes a snapshot of a view. Kind `Gone` if the branch was merged or discarded, `NotFound` if the checkpoint or
    /// earlier state is not there.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use engramfs::disk::ForgetfulDisk;
    /// use engramfs::memory::{Actor, Environment, Error, Kind, Memory, OpenMode, RecordEdit, RecordInput, View};
    ///
    /// # fn main() -> Result<(), Error> {
    /// # let ann = Actor { uid: 1000, gid: 1000, name: "ann".into() };
    /// # let environment = Environment::real(ann.clone());
    /// # let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, environment)?;
    /// # let main = memory.root("main").unwrap();
    /// # let put = |id: &str, text: &str| {
    /// #     let input = RecordInput { vector: None, text: Some(text.into()), metadata: "{}".into() };
    /// #     vec![RecordEdit::Put { id: id.into(), input }]
    /// # };
    /// memory.commit(&ann, main, put("tea", "tea is at four"))?;
    /// let before = memory.snapshot(&View::Branch(main))?;
    /// memory.commit(&ann, main, vec![RecordEdit::Delete { id: "tea".into() }])?;
    ///
    /// // What was taken does not change with the branch.
    /// let record = before.get("tea")?.unwrap();
    /// assert_eq!(record.text(), Some("tea is at four"));
    /// assert_eq!(before.stat("tea")?.unwrap().length, record.to_document().len() as u64);
    /// assert_eq!(&*before.ids_after(None, 10)?[0], "tea");
    ///
    /// let now = memory.snapshot(&View::Branch(main))?;
    /// assert!(now.get("tea")?.is_none() && now.head() != before.head());
    /// let missing = memory.snapshot(&View::Checkpoint(main, "monday".into()));
    /// assert_eq!(missing.err().unwrap().kind(), Kind::NotFound);
    /// # Ok(())
    /// # }
    /// ```
    pub fn snapshot(&self, view: &View) -> Result<Snapshot, Error> {
        self.state(view).map(Snapshot::new)
    }

    /// Returns what a view shows now. Fails like [`Memory::snapshot`].
    pub(in crate::memory) fn state(&self, view: &View) -> Result<Arc<BranchVersion>, Error> {
        if let View::Branch(branch) = view {
            return Ok(self.catalog().branch(*branch)?.state.clone());
        }
        // An earlier state may have to be read: not with the catalog's lock held.
        let catalog = self.catalog().clone();
        Ok(ResolvedView::new(&catalog, view)?.state)
    }
}
