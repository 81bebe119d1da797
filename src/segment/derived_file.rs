//! The derived vectors of a segment: a file of its own, since they come later than the rows, and are no content.
//!
//! | section | content | width |
//! |---|---|---|
//! | 0 numbers | u32, which vector a row has; 2³² - 1 where it wants none, 2³² - 2 where it has none yet | rows × 4 |
//! | 1 texts | hashes of the embedded texts, in order | vectors × 32 |
//! | 2 vectors | f32, row-major | vectors × dim × 4 |
//! | 3 codes | int8 copy for scans | vectors × dim |
//! | 4 norms, 5 scales, 6 residuals | f32, as in a segment | vectors × 4 each |

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Container, ContainerWriter, Segment, SegmentError};
use crate::object::{BlobStore, CodecError, Hash, Reader, Writer};
use crate::record::{DerivedVector, text_hash};
use crate::sync::RwLock;
use crate::vector::Code;

const NUMBERS: usize = 0;
const TEXTS: usize = 1;
const VECTORS: usize = 2;
const CODES: usize = 3;
const NORMS: usize = 4;
const SCALES: usize = 5;
const RESIDUALS: usize = 6;

/// Stands for a row that wants no vector: it has one of its own, or no text.
const NONE: u32 = u32::MAX;
/// Stands for a row whose text is not embedded yet.
const NOT_EMBEDDED: u32 = u32::MAX - 1;

/// The open file of the vectors that one embedder made for a segment.
pub struct DerivedFile {
    container: Container,
    segment: Hash,
    embedder: Hash,
    dim: usize,
    vectors: u32,
    counts: DerivedCounts,
}

/// How many rows of a segment have a derived vector, and how many still want one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DerivedCounts {
    /// Number of rows with a derived vector.
    pub embedded: u32,
    /// Number of rows whose text is not embedded yet.
    pub unembedded_rows: u32,
    /// Number of rows with a derived vector that have an older one of their own.
    pub replaced: u32,
}

/// What scans compare of derived vectors, by their numbers.
pub struct DerivedColumns<'a> {
    /// Of each row of the segment, the number of its vector; [`DerivedColumns::number`] knows those that mean
    /// none.
    pub numbers: &'a [u32],
    /// One int8 a dimension, row-major, vectors × dim.
    pub codes: &'a [i8],
    /// Euclidean lengths of the vectors.
    pub norms: &'a [f32],
    /// What a step of each code is worth.
    pub scales: &'a [f32],
    /// Lengths of what the codes leave out.
    pub residuals: &'a [f32],
}

/// The files of derived vectors of one segment, of records or of passages: one for each embedder.
#[derive(Default)]
pub struct DerivedFiles(RwLock<Vec<Arc<DerivedFile>>>);

impl DerivedFiles {
    /// Adds a file, in place of the one of the same embedder.
    pub fn attach(&self, derived: Arc<DerivedFile>) {
        let mut files = self.0.write();
        // Both in one hold of the lock, so that a search meets either the old file or the new one, never none.
        files.retain(|file| file.embedder() != derived.embedder());
        files.push(derived);
    }

    /// Drops the files of all embedders that `keep` does not want; searches that have one go on with it.
    pub fn drop_unless(&self, keep: impl Fn(&Hash) -> bool) {
        self.0.write().retain(|file| keep(&file.embedder()));
    }

    /// Returns the files of all embedders, in the order in which they were attached.
    pub fn list(&self) -> Vec<Arc<DerivedFile>> {
        self.0.read().clone()
    }

    /// Returns the file of an embedder; `None` if none is attached yet.
    pub fn get(&self, embedder: &Hash) -> Option<Arc<DerivedFile>> {
        self.0.read().iter().find(|file| file.embedder() == *embedder).cloned()
    }
}

impl DerivedColumns<'_> {
    /// Returns the code of the vector of a number, and its length. Panics where there is no vector with that number.
    pub fn code(&self, number: u32) -> (Code<'_>, f32) {
        let (at, dim) = (number as usize, self.codes.len() / self.norms.len());
        let bytes = &self.codes[at * dim..(at + 1) * dim];
        (Code { bytes, scale: self.scales[at], residual: self.residuals[at] }, self.norms[at])
    }

    /// Returns the number of the vector of a row, if it has one that is there.
    #[inline]
    pub fn number(&self, row: u32) -> Option<u32> {
        self.numbers.get(row as usize).copied().filter(|number| (*number as usize) < self.norms.len())
    }

    /// Returns whether a row's text is not embedded yet.
    pub fn is_unembedded(&self, row: u32) -> bool {
        self.numbers.get(row as usize) == Some(&NOT_EMBEDDED)
    }
}

impl DerivedFile {
    /// Kind byte of a file of derived vectors.
    pub const KIND: u8 = 16;

    /// Opens the file with that name; reads its footer alone. [`SegmentError::Damaged`] if it is no file of derived
    /// vectors, or a column has another length.
    pub fn open(blobs: &BlobStore, name: Hash) -> Result<DerivedFile, SegmentError> {
        let container = Container::open(blobs, name, DerivedFile::KIND)?;
        let mut input = Reader::new(container.extra());
        let mut parse = || -> Result<_, CodecError> {
            let (segment, embedder) = (input.hash()?, input.hash()?);
            let mut number = || u32::try_from(input.number()?).map_err(|_| CodecError::Number);
            let (rows, dim, vectors) = (number()?, number()? as usize, number()?);
            let counts = DerivedCounts { embedded: number()?, unembedded_rows: number()?, replaced: number()? };
            Ok((segment, embedder, rows, dim, vectors, counts))
        };
        let (segment, embedder, rows, dim, vectors, counts) =
            parse().map_err(|error| container.damaged(RESIDUALS + 1, &error.to_string()))?;
        let numbers = [NORMS, SCALES, RESIDUALS].map(|section| (section, vectors, 4));
        let others = [(NUMBERS, rows, 4), (TEXTS, vectors, 32), (VECTORS, vectors, dim * 4), (CODES, vectors, dim)];
        for (section, count, width) in numbers.into_iter().chain(others) {
            // Lengths are compared once here, so that columns can be indexed by number without a look at each.
            if Some(container.section_length(section)?) != u64::from(count).checked_mul(width as u64) {
                return Err(container.damaged(section, "it has another length than its rows"));
            }
        }
        Ok(DerivedFile { container, segment, embedder, dim, vectors, counts })
    }

    /// Returns the file's name, which is the hash of its footer.
    pub fn name(&self) -> Hash {
        self.container.name()
    }

    /// Returns the name of the segment whose rows have the vectors.
    pub fn segment(&self) -> Hash {
        self.segment
    }

    /// Returns the identity of the embedder that made them.
    pub fn embedder(&self) -> Hash {
        self.embedder
    }

    /// Returns how many numbers each vector has, at most 2³² - 1; without vectors it has no meaning.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Returns how many rows have a vector, and how many still want one; they are in the footer.
    pub fn counts(&self) -> DerivedCounts {
        self.counts
    }

    /// Returns what scans compare; the first call reads and checks it whole. `SegmentError::Damaged` if a block does
    /// not match its hash, or a column is not whole.
    pub fn columns(&self) -> Result<DerivedColumns<'_>, SegmentError> {
        Ok(DerivedColumns {
            numbers: self.cast(NUMBERS)?,
            codes: bytemuck::cast_slice(self.container.section(CODES)?),
            norms: self.cast(NORMS)?,
            scales: self.cast(SCALES)?,
            residuals: self.cast(RESIDUALS)?,
        })
    }

    /// Returns the vector of a number, [`DerivedFile::dim`] numbers. `SegmentError::Damaged` for a number that no
    /// vector has, or if the block it lies in does not match its hash.
    pub fn vector(&self, number: u32) -> Result<&[f32], SegmentError> {
        let width = self.dim as u64 * 4;
        let bytes = self.container.slice(VECTORS, u64::from(number) * width, width)?;
        bytemuck::try_cast_slice(bytes).map_err(|_| self.container.damaged(VECTORS, "it is not aligned"))
    }

    /// Returns the vector of a text, by [`text_hash`]; `None` if the file does not have that text. [`SegmentError::Io`]
    /// or [`SegmentError::Damaged`] if the section of texts or the vector can't be read or is damaged.
    pub fn find(&self, text: &Hash) -> Result<Option<&[f32]>, SegmentError> {
        let (hashes, _) = self.container.section(TEXTS)?.as_chunks::<32>();
        let found = hashes.binary_search(&text.0).ok();
        found.map(|number| self.vector(number as u32)).transpose()
    }

    fn cast<T: bytemuck::AnyBitPattern>(&self, section: usize) -> Result<&[T], SegmentError> {
        bytemuck::try_cast_slice(self.container.section(section)?)
            .map_err(|_| self.container.damaged(section, "it is not aligned"))
    }

    /// Returns the length of the file on disk in bytes: what the scrubber has to read of it.
    pub fn file_bytes(&self) -> u64 {
        self.container.file_bytes()
    }

    /// Checks a block again, as [`Container::recheck`] does, with its errors.
    pub fn recheck(&self, number: u64) -> Option<Result<u64, SegmentError>> {
        self.container.recheck(number)
    }

    /// Reads and hashes the whole file, and checks that every row has a vector that is there. The first damage ends it:
    /// `SegmentError::Damaged`.
    pub fn verify(&self) -> Result<(), SegmentError> {
        self.container.verify()?;
        let columns = self.columns()?;
        self.cast::<f32>(VECTORS)?;
        // Searches pass over a number that leads nowhere; only here does it count as damage.
        let is_there = |number: &u32| *number < self.vectors || *number >= NOT_EMBEDDED;
        let all = columns.numbers.iter().all(is_there);
        if all { Ok(()) } else { Err(self.container.damaged(NUMBERS, "a row has a vector that is not there")) }
    }
}

/// Which text each row of a segment wants a vector of.
pub struct DerivableTexts {
    /// Row by row, the hash of its text.
    hashes: Vec<Option<Hash>>,
    replaced: Vec<bool>,
}

impl DerivableTexts {
    /// Takes rows that each want the vector of a text, by its hash.
    pub fn from_hashes(hashes: impl Iterator<Item = Hash>) -> DerivableTexts {
        let hashes: Vec<Option<Hash>> = hashes.map(Some).collect();
        DerivableTexts { replaced: vec![false; hashes.len()], hashes }
    }

    /// Reads the texts of all rows, and calls `each` with those that want a vector. [`SegmentError::Io`] or
    /// [`SegmentError::Damaged`] if the text or the length of a vector can't be read; `each` was called for the rows
    /// before it.
    pub fn read(segment: &Segment, mut each: impl FnMut(u32, Hash, &str)) -> Result<DerivableTexts, SegmentError> {
        let (mut hashes, mut replaced) = (Vec::new(), Vec::new());
        for row in 0..segment.rows() {
            let text = segment.derivable_text(row)?;
            hashes.push(text.map(text_hash));
            replaced.push(text.is_some() && segment.norm(row)? >= 0.0);
            if let (Some(text), Some(Some(hash))) = (text, hashes.last()) {
                each(row, *hash, text);
            }
        }
        Ok(DerivableTexts { hashes, replaced })
    }

    /// Writes the vectors that `find` has of the texts of a segment's rows, and returns the file's name.
    ///
    /// A vector that has not `dim` numbers is left out, and its rows wait as those do of which `find` has none. Each
    /// text is written once, whatever number of rows has it. `SegmentError::Io` if the disk refuses.
    pub fn write(
        &self,
        blobs: &BlobStore,
        segment: &Hash,
        (embedder, dim): (&Hash, usize),
        find: &dyn Fn(&Hash) -> Option<Arc<DerivedVector>>,
    ) -> Result<Hash, SegmentError> {
        let wanted: BTreeMap<&Hash, ()> = self.hashes.iter().flatten().map(|hash| (hash, ())).collect();
        // In order of hashes, which `find` of the finished file searches by halves.
        let found = wanted.into_keys().filter_map(|hash| Some((*hash, find(hash)?)));
        let vectors: BTreeMap<Hash, Arc<DerivedVector>> = found.filter(|(_, it)| it.vector.len() == dim).collect();
        let places: BTreeMap<&Hash, u32> = vectors.keys().zip(0..).collect();
        let mut counts = DerivedCounts::default();
        let number = |(hash, replaced): (&Option<Hash>, &bool)| match hash.as_ref().map(|hash| places.get(hash)) {
            None => NONE,
            Some(None) => {
                counts.unembedded_rows += 1;
                NOT_EMBEDDED
            }
            Some(Some(number)) => {
                counts.embedded += 1;
                counts.replaced += u32::from(*replaced);
                *number
            }
        };
        let numbers: Vec<u32> = self.hashes.iter().zip(&self.replaced).map(number).collect();
        // Sections in the order of their numbers, from `NUMBERS` to `RESIDUALS`; each but the first goes by the order
        // of hashes.
        let mut out = ContainerWriter::new(blobs)?;
        out.begin()?;
        out.write(bytemuck::cast_slice(&numbers))?;
        out.begin()?;
        vectors.keys().try_for_each(|hash| out.write(&hash.0))?;
        out.begin()?;
        vectors.values().try_for_each(|it| out.write(bytemuck::cast_slice(&it.vector)))?;
        out.begin()?;
        vectors.values().try_for_each(|it| out.write(bytemuck::cast_slice(it.code().bytes)))?;
        let columns: [&dyn Fn(&DerivedVector) -> f32; 3] =
            [&|it| it.norm, &|it| it.code().scale, &|it| it.code().residual];
        for column in columns {
            out.begin()?;
            vectors.values().try_for_each(|it| out.write(&column(it).to_le_bytes()))?;
        }
        let mut extra = Writer::new();
        extra.hash(segment).hash(embedder).number(numbers.len() as u64).number(dim as u64);
        extra.number(vectors.len() as u64).number(u64::from(counts.embedded));
        extra.number(u64::from(counts.unembedded_rows)).number(u64::from(counts.replaced));
        out.finish(DerivedFile::KIND, extra.as_slice())
    }
}

impl Segment {
    /// Returns the text of a row to be embedded; `None` if it has a vector that is not older than its text, or no text
    /// but blanks. Fails like [`Segment::norm`], or if the payload can't be parsed.
    pub fn derivable_text(&self, row: u32) -> Result<Option<&str>, SegmentError> {
        let has_vector = self.norm(row)? >= 0.0;
        let (stale, text) = self.row_text(row)?;
        Ok(text.filter(|text| (!has_vector || stale) && !text.trim().is_empty()))
    }

    /// Returns the vectors that embedders made for it.
    pub fn derived(&self) -> &DerivedFiles {
        &self.derived
    }
}
