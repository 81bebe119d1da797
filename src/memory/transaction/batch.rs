//! Edits that wait for their commit: in memory within the user's share, and on disk beyond.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::disk::{Disk, DiskFile};
use crate::memory::command::record_input::RecordInput;
use crate::memory::command::record_patch::RecordPatch;
use crate::memory::{Error, LimitError, Memory, RecordEdit};
use crate::object::{CodecError, Reader, Writer};
use crate::sync::Reservation;

/// Bytes of edits that a batch holds in memory before it moves them to a file.
const HELD_BYTES_MAX: u64 = 4 << 20;
/// Bytes that an edit is taken to need in memory beside its content.
const EDIT_BYTES: usize = 512;
/// Beginning of the names that files of batches have for a moment, in the store's folder.
pub(in crate::memory) const SPILL_PREFIX: &str = "spill-";

/// Edits that wait for their commit, in order.
///
/// Up to 4 MiB are held in memory, the rest in a file without a name, which ends with the batch or the process.
pub struct IngestBatch {
    disk: Arc<dyn Disk>,
    edits: Vec<RecordEdit>,
    edit_count: usize,
    reservation: Reservation,
    spill_file: Option<Box<dyn DiskFile>>,
    spilled: SpilledEdits,
}

#[derive(Clone, Copy, Default)]
struct SpilledEdits {
    file_bytes: u64,
    /// Bytes that the edits take once they are back in memory.
    memory_bytes: u64,
}

impl Memory {
    /// Starts a batch of edits that is counted in the memory share of the user `uid`.
    pub fn batch(&self, uid: u32) -> IngestBatch {
        let reservation = self.admission.budget.empty_reservation(uid);
        IngestBatch {
            disk: self.disk.clone(),
            edits: Vec::new(),
            edit_count: 0,
            reservation,
            spill_file: None,
            spilled: SpilledEdits::default(),
        }
    }
}

impl IngestBatch {
    /// Adds an edit. Kind `Quota` or `Full` if there is no room in memory or on disk.
    pub fn push(&mut self, edit: RecordEdit) -> Result<(), Error> {
        let bytes = edit_memory_bytes(&edit);
        // The batch spills where its user's share is used up as well as at its own bound, since the disk takes what
        // memory can't.
        if self.reservation.bytes() + bytes > HELD_BYTES_MAX || self.reservation.grow(bytes).is_err() {
            self.spill()?;
            self.reservation.grow(bytes)?;
        }
        self.edits.push(edit);
        self.edit_count += 1;
        Ok(())
    }

    /// Returns whether there are no edits.
    pub fn is_empty(&self) -> bool {
        self.edit_count == 0
    }

    /// Returns all edits, with the reservation of their memory. Kind `Quota` or `Full` if there is not enough for them.
    pub fn into_edits(mut self) -> Result<(Vec<RecordEdit>, Reservation), Error> {
        // Asked before anything is read back, so that a batch that is too large is refused and does not fill the memory
        // first.
        self.reservation.grow(self.spilled.memory_bytes).map_err(LimitError::Batch)?;
        let mut edits = Vec::with_capacity(self.edit_count);
        // What is in the file came before what is in memory.
        if let Some(file) = &self.spill_file {
            read_spilled(&**file, self.spilled.file_bytes, &mut edits)?;
        }
        edits.append(&mut self.edits);
        Ok((edits, self.reservation))
    }

    /// Moves what is in memory to the file, and so gives the user's share back.
    fn spill(&mut self) -> Result<(), Error> {
        if self.edits.is_empty() {
            return Ok(());
        }
        let mut out = Writer::new();
        for edit in &self.edits {
            let mut frame = Writer::new();
            write_edit(edit, &mut frame);
            out.bytes(frame.as_slice());
        }
        let failed = |error| Error::io("the edits that wait for their commit could not be put on disk", error);
        if self.spill_file.is_none() {
            self.spill_file = Some(create_unnamed(&*self.disk).map_err(failed)?);
        }
        if let Some(file) = &self.spill_file {
            file.write_all_at(out.as_slice(), self.spilled.file_bytes).map_err(failed)?;
        }
        self.spilled.file_bytes += out.as_slice().len() as u64;
        self.spilled.memory_bytes += self.reservation.bytes();
        self.edits = Vec::new();
        Ok(self.reservation.resize(0)?)
    }
}

/// Makes a file that no name leads to, so that nothing has to remove it.
fn create_unnamed(disk: &dyn Disk) -> std::io::Result<Box<dyn DiskFile>> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let name = format!("{SPILL_PREFIX}{}", LAST.fetch_add(1, Ordering::Relaxed));
    let file = disk.create(&name)?;
    // The name goes at once: the kernel frees the file with its last descriptor, so no crash after this leaves it
    // behind.
    disk.remove(&name)?;
    Ok(file)
}

/// Removes files of batches whose process died between making the file and taking its name away. The first error of the
/// disk ends it and is returned; files removed until then stay removed.
pub(in crate::memory) fn remove_spill_files(disk: &dyn Disk) -> std::io::Result<()> {
    let names = disk.list("")?;
    names.iter().filter(|name| name.starts_with(SPILL_PREFIX)).try_for_each(|name| disk.remove(name))
}

/// What an edit takes in memory, also while it is committed: its words and values are indexed then.
fn edit_memory_bytes(edit: &RecordEdit) -> u64 {
    let content = match edit {
        RecordEdit::Put { input, .. } => input.bytes(),
        RecordEdit::Correct { patch, .. } => patch.bytes(),
        RecordEdit::Delete { .. } | RecordEdit::Rename { .. } => 0,
    };
    (EDIT_BYTES + edit.id().len() + 2 * content) as u64
}

/// Frames are read this many bytes at a time; a longer one is read in several steps.
const READ_BYTES: usize = 1 << 20;

fn read_spilled(file: &dyn DiskFile, length: u64, edits: &mut Vec<RecordEdit>) -> Result<(), Error> {
    let failed = |error| Error::io("the edits that wait for their commit could not be read back", error);
    let (mut buffer, mut at) = (Vec::new(), 0);
    while at < length {
        let more = (READ_BYTES as u64).min(length - at) as usize;
        let start = buffer.len();
        buffer.resize(start + more, 0);
        file.read_exact_at(&mut buffer[start..], at).map_err(failed)?;
        at += more as u64;
        let mut used = 0;
        loop {
            let mut input = Reader::new(&buffer[used..]);
            // The end of the buffer cuts a frame in two: its first bytes stay for the next part.
            let Ok(frame) = input.bytes() else { break };
            edits.push(read_edit(&mut Reader::new(frame))?);
            used = buffer.len() - input.remaining().len();
        }
        buffer.drain(..used);
    }
    if buffer.is_empty() {
        Ok(())
    } else {
        Err(Error::damaged("a file of edits that wait for their commit breaks off"))
    }
}

fn write_edit(edit: &RecordEdit, out: &mut Writer) {
    match edit {
        RecordEdit::Put { id, input } => {
            out.byte(0).text(id).optional_text(input.text.as_deref()).text(&input.metadata);
            write_vector(input.vector.as_deref(), out);
        }
        RecordEdit::Correct { id, patch, line } => {
            out.byte(3).text(id).number(*line as u64).byte(u8::from(patch.replaces));
            out.byte(patch.vector_stale.map_or(2, u8::from)).optional_text(patch.metadata.as_deref());
            out.byte(u8::from(patch.text.is_some()))
                .optional_text(patch.text.iter().flatten().next().map(|text| &**text));
            out.byte(u8::from(patch.vector.is_some()));
            write_vector(patch.vector.iter().flatten().next().map(|vector| &**vector), out);
        }
        RecordEdit::Delete { id } => {
            out.byte(1).text(id);
        }
        RecordEdit::Rename { from, to } => {
            out.byte(2).text(from).text(to);
        }
    }
}

fn write_vector(vector: Option<&[f32]>, out: &mut Writer) {
    out.byte(u8::from(vector.is_some())).bytes(bytemuck::cast_slice(vector.unwrap_or_default()));
}

fn read_vector(input: &mut Reader<'_>) -> Result<Option<Arc<[f32]>>, CodecError> {
    let has_vector = input.byte()? == 1;
    let numbers = input.bytes()?;
    Ok(has_vector.then(|| numbers.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect()))
}

fn read_patch(input: &mut Reader<'_>) -> Result<RecordPatch, CodecError> {
    let replaces = input.byte()? == 1;
    let vector_stale = Some(input.byte()?).filter(|stale| *stale < 2).map(|stale| stale == 1);
    let metadata = input.optional_text()?.map(Arc::from);
    let (has_text, text) = (input.byte()? == 1, input.optional_text()?.map(Arc::from));
    let (has_vector, vector) = (input.byte()? == 1, read_vector(input)?);
    Ok(RecordPatch {
        vector: has_vector.then_some(vector),
        text: has_text.then_some(text),
        metadata,
        vector_stale,
        replaces,
    })
}

fn read_edit(input: &mut Reader<'_>) -> Result<RecordEdit, CodecError> {
    match input.byte()? {
        0 => {
            let id = input.text()?.into();
            let (text, metadata) = (input.optional_text()?.map(Arc::from), input.text()?.into());
            Ok(RecordEdit::Put { id, input: RecordInput { vector: read_vector(input)?, text, metadata } })
        }
        1 => Ok(RecordEdit::Delete { id: input.text()?.into() }),
        3 => {
            let (id, line) = (input.text()?.into(), input.number()? as usize);
            Ok(RecordEdit::Correct { id, patch: read_patch(input)?, line })
        }
        2 => Ok(RecordEdit::Rename { from: input.text()?.into(), to: input.text()?.into() }),
        // The file is this process's own, yet a disk may give other bytes back, and these must not become an edit.
        code => Err(CodecError::Code(code)),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::memory::{Environment, Kind, OpenMode};

    fn memory() -> Arc<Memory> {
        let owner = crate::memory::Actor { uid: 0, gid: 0, name: "root".into() };
        let disk = Arc::new(ForgetfulDisk::new());
        Memory::open_on(disk, OpenMode::Create, None, Environment::real(owner)).unwrap()
    }

    fn put(number: usize) -> RecordEdit {
        let input = RecordInput {
            vector: number.is_multiple_of(2).then(|| vec![number as f32; 3].into()),
            text: (!number.is_multiple_of(3)).then(|| "x".repeat(number).into()),
            metadata: "{}".into(),
        };
        RecordEdit::Put { id: number.to_string().into(), input }
    }

    #[test]
    fn edits_of_more_than_4_mib_go_to_a_file() {
        let memory = memory();
        let (mut batch, mut most) = (memory.batch(7), 0);
        for number in 1_000..10_000 {
            batch.push(put(number)).unwrap();
            if batch.spilled.file_bytes > 0 {
                break;
            }
            most = memory.admission.budget.held_bytes();
        }
        assert!(((4 << 20) - (64 << 10)..=4 << 20).contains(&most), "{most}");
    }

    #[test]
    fn what_is_spilled_comes_back_in_order() {
        let memory = memory();
        let mut batch = memory.batch(7);
        assert!(batch.is_empty());
        for number in 0..3000 {
            let edit = if number % 7 == 0 { RecordEdit::Delete { id: number.to_string().into() } } else { put(number) };
            batch.push(edit).unwrap();
            if number % 500 == 499 {
                batch.spill().unwrap();
            }
        }
        assert!(batch.spilled.file_bytes > READ_BYTES as u64 && memory.admission.budget.held_bytes() < HELD_BYTES_MAX);
        assert!(memory.disk.list("").unwrap().iter().all(|name| !name.starts_with(SPILL_PREFIX)));
        let (edits, _held) = batch.into_edits().unwrap();
        assert_eq!(edits.len(), 3000);
        for (number, edit) in edits.iter().enumerate() {
            assert_eq!(&**edit.id(), number.to_string());
            match (edit, put(number)) {
                (RecordEdit::Delete { .. }, _) => assert_eq!(number % 7, 0),
                (RecordEdit::Put { input: one, .. }, RecordEdit::Put { input: other, .. }) => {
                    assert_eq!((&one.vector, &one.text, &one.metadata), (&other.vector, &other.text, &other.metadata));
                }
                _ => panic!("{edit:?}"),
            }
        }
    }

    #[test]
    fn a_spilled_correction_comes_back_with_what_it_leaves_open() {
        for vector_stale in [None, Some(false), Some(true)] {
            let patch = RecordPatch {
                vector: Some(None),
                text: None,
                metadata: Some("{}".into()),
                vector_stale,
                replaces: vector_stale.is_none(),
            };
            let mut out = Writer::new();
            write_edit(&RecordEdit::Correct { id: "a".into(), patch: patch.clone(), line: 7 }, &mut out);
            let RecordEdit::Correct { id, patch: read, line } = read_edit(&mut Reader::new(out.as_slice())).unwrap()
            else {
                panic!("another edit")
            };
            assert_eq!((&*id, line), ("a", 7));
            assert_eq!((read.vector_stale, read.replaces), (vector_stale, patch.replaces));
            assert_eq!((read.vector, read.text, read.metadata), (patch.vector, patch.text, patch.metadata));
        }
    }

    #[test]
    fn files_that_batches_left_over_are_removed_and_no_others() {
        let disk = Arc::new(ForgetfulDisk::new());
        let open = |mode| {
            let owner = crate::memory::Actor { uid: 0, gid: 0, name: "root".into() };
            Memory::open_on(disk.clone(), mode, None, Environment::real(owner)).unwrap()
        };
        drop(open(OpenMode::Create));
        for name in ["spill-0", "spill-17", "other"] {
            disk.create(name).unwrap();
        }
        let memory = open(OpenMode::Existing);
        let names = memory.disk.list("").unwrap();
        assert!(!names.iter().any(|name| name.starts_with(SPILL_PREFIX)), "{names:?}");
        assert!(names.iter().any(|name| name == "other"), "{names:?}");
    }

    #[test]
    fn more_than_the_share_waits_on_disk_but_is_not_committed_at_once() {
        let memory = memory();
        memory.admission.budget.limit(200_000, 100_000);
        let mut batch = memory.batch(7);
        for number in 0..1000 {
            batch.push(put(number)).unwrap();
        }
        assert!(memory.admission.budget.held_bytes() <= 100_000);
        let error = batch.into_edits().map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), Kind::Quota);
        assert!(error.hint().contains("several parts"), "{error}");
        assert_eq!(memory.admission.budget.held_bytes(), 0);
    }
}
