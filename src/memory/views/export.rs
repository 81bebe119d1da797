//! The files of `export/`: lengths by arithmetic, reading at any offset, nothing held in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::branch::BranchVersion;
use crate::memory::{Error, Snapshot};
use crate::record::{EXPORT_LINE_FIXED_BYTES, vector_bytes, write_export_line};
use crate::segment::{Blocks, Row, SegmentError};

/// A file in which a view is exported. Its bytes are made as they are read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Export {
    /// `vectors.npy`: (records with a vector × dimension) little-endian f32 in C order.
    Vectors,
    /// `ids.txt`: one id a line of the records with a vector, in the order of the rows of `vectors.npy`.
    Ids,
    /// `records.jsonl`: one record a line, as `ingest` takes it.
    Records,
}

/// Where in an export a row begins: which export, the offset, and the id of the row before.
#[derive(Clone)]
pub struct ExportCursor {
    export: Export,
    offset: u64,
    previous_id: Option<Arc<str>>,
}

/// Places in the exports of a snapshot that reads went by, so that others begin near where they want to be.
#[derive(Default)]
pub struct ExportCursors {
    /// Where the last read ended.
    last: Option<ExportCursor>,
    /// The first row to begin in each [`MARK_BYTES`], by its export and offset, with the id of the row before.
    marks: BTreeMap<(Export, u64), Arc<str>>,
}

/// How far marks lie apart.
const MARK_BYTES: u64 = 1 << 20;
/// Rows per look at the state; bounds what one read holds.
const BATCH_ROWS: usize = 512;

impl Snapshot {
    /// Returns the exact length of an export in bytes, without rendering it.
    pub fn export_length(&self, export: Export) -> u64 {
        let totals = self.state.totals();
        match export {
            Export::Vectors => npy_header(&self.state).len() as u64 + totals.vectors * self.dim() as u64 * 4,
            Export::Ids => totals.id_line_bytes,
            Export::Records => {
                let without = totals.records - totals.vectors;
                let vectors =
                    totals.vectors * vector_bytes(Some(self.dim())) as u64 + without * vector_bytes(None) as u64;
                totals.json_bytes + totals.records * EXPORT_LINE_FIXED_BYTES as u64 + vectors
            }
        }
    }

    /// Fills `buf` from byte `offset` on. Returns how many bytes were read: fewer only at the end, and 0 there.
    ///
    /// Reading on from the last end is cheap. A jump past all that was read computes the lengths of the rows on the
    /// way, any other jump those of 1 MiB. Fails if a row can't be read, or is not what was written.
    pub fn export_read(&self, export: Export, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        let header = if export == Export::Vectors { npy_header(&self.state) } else { Vec::new() };
        let mut filled = copy(&header, offset, buf);
        let mut cursor = self.cursor_before(export, offset, header.len() as u64);
        let (mut line, mut blocks) = (Vec::new(), Blocks::default());
        while filled < buf.len() {
            let mut seen = 0;
            for row in self.state.rows(cursor.previous_id.as_deref())?.take(BATCH_ROWS) {
                let row = row?;
                seen += 1;
                let length = row_bytes(export, &row, &mut blocks)?;
                let (end, wanted) = (cursor.offset + length, offset + filled as u64);
                if end > wanted {
                    line.clear();
                    render(export, &row, &mut line, &mut blocks)?;
                    filled += copy(&line, wanted - cursor.offset, &mut buf[filled..]);
                    if filled == buf.len() && offset + (filled as u64) < end {
                        // The row goes on: the next read begins with it again.
                        self.put_cursor(cursor);
                        return Ok(filled);
                    }
                }
                let id = Arc::<str>::from(&*row.id()?);
                if cursor.offset / MARK_BYTES != end / MARK_BYTES {
                    self.export_cursors.lock().marks.insert((export, end), id.clone());
                }
                cursor = ExportCursor { export, offset: end, previous_id: Some(id) };
            }
            if seen < BATCH_ROWS {
                break;
            }
        }
        self.put_cursor(cursor);
        Ok(filled)
    }

    fn dim(&self) -> usize {
        vector_dim(&self.state)
    }

    /// Returns the nearest place before an offset that is known; the rows begin at `start`.
    fn cursor_before(&self, export: Export, offset: u64, start: u64) -> ExportCursor {
        let cursors = self.export_cursors.lock();
        let mark = cursors.marks.range(..=(export, offset)).next_back().filter(|((of, _), _)| *of == export);
        let mark = mark.map(|((_, at), id)| ExportCursor { export, offset: *at, previous_id: Some(id.clone()) });
        let last = cursors.last.clone().filter(|cursor| cursor.export == export && cursor.offset <= offset);
        let nearest = [mark, last].into_iter().flatten().max_by_key(|cursor| cursor.offset);
        nearest.unwrap_or(ExportCursor { export, offset: start, previous_id: None })
    }

    fn put_cursor(&self, cursor: ExportCursor) {
        self.export_cursors.lock().last = Some(cursor);
    }
}

/// The dimension of a state's vectors; 0 if it has none.
fn vector_dim(state: &BranchVersion) -> usize {
    let sealed = state.layers().iter().map(|layer| layer.segment.dim()).find(|dim| *dim > 0);
    let unsealed =
        || state.unsealed().values().find_map(|version| version.content.vector.as_ref().map(|vector| vector.len()));
    sealed.or_else(unsealed).unwrap_or(0)
}

/// The header of NumPy's format 1.0, padded to 128 bytes.
fn npy_header(state: &BranchVersion) -> Vec<u8> {
    let shape = format!("({}, {})", state.totals().vectors, vector_dim(state));
    let mut header = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    header.extend_from_slice(format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}").as_bytes());
    header.resize(127, b' ');
    header.push(b'\n');
    header
}

fn row_bytes(export: Export, row: &Row, blocks: &mut Blocks) -> Result<u64, SegmentError> {
    let dim = row.verified_dim(blocks)?;
    Ok(match (export, dim) {
        (Export::Vectors, dim) => dim.unwrap_or(0) as u64 * 4,
        (Export::Ids, None) => 0,
        (Export::Ids, Some(_)) => row.verified_id(blocks)?.len() as u64 + 1,
        (Export::Records, dim) => {
            u64::from(row.verified_json_bytes(blocks)?) + (EXPORT_LINE_FIXED_BYTES + vector_bytes(dim)) as u64
        }
    })
}

fn render(export: Export, row: &Row, out: &mut Vec<u8>, blocks: &mut Blocks) -> Result<(), SegmentError> {
    match export {
        Export::Vectors => {
            out.extend_from_slice(bytemuck::cast_slice(row.verified_vector(blocks)?.as_deref().unwrap_or_default()));
        }
        Export::Ids => {
            out.extend_from_slice(row.verified_id(blocks)?.as_bytes());
            out.push(b'\n');
        }
        Export::Records => write_export_line(out, &*row.read_version(blocks)?),
    }
    Ok(())
}

/// Copies what `from` has from `offset` on, as far as `to` has room.
fn copy(from: &[u8], offset: u64, to: &mut [u8]) -> usize {
    let Some(from) = usize::try_from(offset).ok().and_then(|offset| from.get(offset..)) else { return 0 };
    let count = from.len().min(to.len());
    to[..count].copy_from_slice(&from[..count]);
    count
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::memory::{Actor, Environment, Memory, OpenMode, RecordEdit, RecordInput, View};

    #[test]
    fn a_jump_goes_through_few_rows_once_they_were_passed() {
        let who = Actor { uid: 1, gid: 1, name: "u1".into() };
        let disk = Arc::new(ForgetfulDisk::new());
        let memory = Memory::open_on(disk, OpenMode::Create, None, Environment::real(who.clone())).unwrap();
        let main = memory.root("main").unwrap();
        let put = |n: usize| {
            let (vector, text) = (Some(vec![1.0, n as f32].into()), Some("word ".repeat(200).into()));
            RecordEdit::Put {
                id: format!("r{n:04}").into(),
                input: RecordInput { vector, text, metadata: "{}".into() },
            }
        };
        memory.commit(&who, main, (0..3_000).map(put).collect()).unwrap();
        let snapshot = memory.snapshot(&View::Branch(main)).unwrap();
        let mut seed = 7_u64;
        for export in [Export::Records, Export::Ids, Export::Vectors] {
            let mut all = vec![0; snapshot.export_length(export) as usize];
            assert_eq!(snapshot.export_read(export, 0, &mut all).unwrap(), all.len());
            for _ in 0..50 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let offset = (seed >> 33) % all.len() as u64;
                let near = snapshot.cursor_before(export, offset, 0);
                assert!(near.export == export && offset - near.offset <= MARK_BYTES + 4096, "{export:?} {offset}");
                let mut part = [0; 3_000];
                let read = snapshot.export_read(export, offset, &mut part).unwrap();
                assert_eq!(part[..read], all[offset as usize..][..read], "{export:?} {offset}");
                assert!(read == part.len() || offset as usize + read == all.len());
            }
        }
        assert!(snapshot.export_cursors.lock().marks.len() >= 3);
    }
}
