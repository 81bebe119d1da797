//! The rows and the queries: real embeddings, and more made of them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use engramfs::memory::{RecordEdit, RecordInput};
use serde_json::{Map, Value};

use crate::store::DIM;

/// Rows of the grown corpus, where `ENGRAMFS_BENCH_ROWS` says no other number.
const GROWN: usize = 1_000_000;
/// Rows of `records` and `more` in the folder of real embeddings.
const REAL: usize = 118_053;
/// Queries: those held out, and after them records of `edits`, which no corpus holds either.
const QUESTIONS: usize = 1_000;
/// Rows are mixed with one of so many near neighbours.
const NEIGHBOURS: usize = 10;
/// Rows to a cell in which near neighbours are looked for.
const CELL: usize = 350;
/// The seed of all that is made up.
pub const SEED: u64 = 20_240_601;
/// Values of the metadata key `bucket`, which filters ask for.
pub const BUCKETS: usize = 1_000;

/// A line of the real data beside its vector.
#[derive(Clone)]
struct Line {
    text: Arc<str>,
    metadata: Map<String, Value>,
}

/// Rows of unit length, what belongs to them, and queries.
pub struct Corpus {
    vectors: Arc<Vec<f32>>,
    pub names: Vec<Arc<str>>,
    lines: Vec<Line>,
    pub queries: Vec<Vec<f32>>,
    /// Texts of the queries, where they have one.
    pub question_texts: Vec<String>,
    /// Exact answers computed elsewhere, of the first queries: ids, best first.
    pub truth: Option<Vec<Vec<String>>>,
    /// The near neighbours of each real row.
    neighbours: Arc<Vec<[u32; NEIGHBOURS]>>,
    /// Raw f32 of rows and queries, for engines in other processes.
    pub rows_file: PathBuf,
    pub questions_file: PathBuf,
}

impl Corpus {
    /// Reads the real rows, as many as `ENGRAMFS_BENCH_ROWS` allows.
    pub fn real(data: &Path, folder: &Path) -> Corpus {
        let (mut vectors, mut names, mut lines) = (Vec::new(), Vec::new(), Vec::new());
        let limit = wanted().unwrap_or(REAL).min(REAL);
        for part in ["records", "more"] {
            vectors.extend(halves(data, part));
            for value in json_lines(data, part) {
                names.push(Arc::from(value["id"].as_str().unwrap()));
                let metadata = value["metadata"].as_object().cloned().unwrap_or_default();
                lines.push(Line { text: value["text"].as_str().unwrap().into(), metadata });
            }
        }
        vectors.truncate(limit * DIM);
        names.truncate(limit);
        lines.truncate(limit);
        let mut asked = halves(data, "questions");
        asked.extend(halves(data, "edits"));
        asked.truncate(QUESTIONS * DIM);
        vectors.chunks_exact_mut(DIM).chain(asked.chunks_exact_mut(DIM)).for_each(to_unit);
        let neighbours = Arc::new(neighbours(&vectors));
        let queries = asked.chunks_exact(DIM).map(<[f32]>::to_vec).collect();
        let text = |value: Value| value["text"].as_str().unwrap_or_default().to_owned();
        let question_texts = json_lines(data, "questions").into_iter().map(text).collect();
        let truth = truth(data, limit);
        let (rows_file, questions_file) = (folder.join(format!("rows-{limit}.f32")), folder.join("questions.f32"));
        write_floats(&rows_file, &vectors);
        write_floats(&questions_file, &asked);
        let vectors = Arc::new(vectors);
        Corpus { vectors, names, lines, queries, question_texts, truth, neighbours, rows_file, questions_file }
    }

    /// Returns a larger corpus: these rows, and after them mixtures of a row with a near neighbour.
    pub fn grown(&self, folder: &Path) -> Corpus {
        let rows = wanted().unwrap_or(GROWN).max(self.rows() + 1);
        let mut vectors = self.vectors.to_vec();
        vectors.reserve_exact((rows - self.rows()) * DIM);
        let mut names = self.names.clone();
        for number in self.rows()..rows {
            vectors.extend(self.mixture(number as u64));
            names.push(format!("mixed-{number:07}").into());
        }
        let rows_file = folder.join(format!("rows-{rows}.f32"));
        write_floats(&rows_file, &vectors);
        Corpus {
            vectors: Arc::new(vectors),
            names,
            lines: self.lines.clone(),
            queries: self.queries.clone(),
            question_texts: Vec::new(),
            truth: None,
            neighbours: self.neighbours.clone(),
            rows_file,
            questions_file: self.questions_file.clone(),
        }
    }

    pub fn rows(&self) -> usize {
        self.names.len()
    }

    /// Whether these are all real rows, or as many grown ones as figures are about.
    pub fn is_full(&self) -> bool {
        self.rows() == REAL || self.rows() == GROWN
    }

    pub fn is_real(&self) -> bool {
        self.lines.len() == self.rows()
    }

    pub fn vector(&self, row: usize) -> &[f32] {
        &self.vectors[row * DIM..][..DIM]
    }

    /// How rows are called in the table.
    pub fn title(&self) -> String {
        let kind = if self.is_real() { "real" } else { "real and mixed" };
        format!("{} {kind} rows", self.rows())
    }

    /// Returns a row as an edit: its bucket is its number modulo [`BUCKETS`].
    pub fn put(&self, row: usize) -> RecordEdit {
        let mut input = RecordInput::from_vector(self.vector(row).to_vec()).unwrap();
        let mut metadata = Map::new();
        if let Some(line) = self.lines.get(row) {
            input.text = Some(line.text.clone());
            metadata.clone_from(&line.metadata);
        }
        metadata.insert("bucket".into(), (row % BUCKETS).into());
        RecordEdit::Put { id: self.names[row].clone(), input: input.with_metadata(metadata) }
    }

    /// Returns what an agent may change, from number `start` on: of 20 edits 9 replace a row, 9 are
    /// new, 2 delete one. No row is edited twice.
    pub fn edits(&self, start: usize, count: usize) -> Vec<RecordEdit> {
        let edit = |number: usize| {
            // The factor is prime: rows repeat only after all of them.
            let row = number * 7919 % self.rows();
            let id = self.names[row].clone();
            let id = match number % 20 {
                0 | 10 => return RecordEdit::Delete { id },
                even if even % 2 == 0 => id,
                _ => format!("new-{number:07}").into(),
            };
            let mut input = RecordInput::from_vector(self.mixture(u64::MAX - number as u64)).unwrap();
            input.text = Some(self.lines[row % self.lines.len()].text.clone());
            let metadata = Map::from_iter([("bucket".to_owned(), (row % BUCKETS).into())]);
            RecordEdit::Put { id, input: input.with_metadata(metadata) }
        };
        (start..start + count).map(edit).collect()
    }

    /// A mixture, of unit length, of a real row with one of its near neighbours; the same for the same number.
    fn mixture(&self, number: u64) -> Vec<f32> {
        let mut chance = Chance(SEED ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let row = (chance.next() % self.neighbours.len() as u64) as usize;
        let other = self.neighbours[row][(chance.next() % NEIGHBOURS as u64) as usize] as usize;
        let share = 0.25 + 0.5 * (chance.next() >> 40) as f32 / (1u64 << 24) as f32;
        let pairs = self.vector(row).iter().zip(self.vector(other));
        let mut mixed: Vec<f32> = pairs.map(|(one, two)| one * share + two * (1.0 - share)).collect();
        to_unit(&mut mixed);
        mixed
    }
}

/// The generator splitmix64.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// Near neighbours of each row: the nearest among the rows of its cell, which are nearest to the same
/// of some rows. An exact search would cost hours, and a library's would make the data depend on it.
fn neighbours(vectors: &[f32]) -> Vec<[u32; NEIGHBOURS]> {
    let row = |number: usize| &vectors[number * DIM..][..DIM];
    let rows = vectors.len() / DIM;
    let centres: Vec<usize> = (0..rows).step_by(CELL).collect();
    let mut cells = vec![Vec::new(); centres.len()];
    for number in 0..rows {
        let near = |cell: &usize| dot(row(number), row(centres[*cell]));
        let nearest = (0..centres.len()).max_by(|one, two| near(one).total_cmp(&near(two))).unwrap();
        cells[nearest].push(number);
    }
    let mut all = vec![[0; NEIGHBOURS]; rows];
    for cell in &cells {
        for &number in cell {
            let mut near: Vec<(f32, u32)> = cell
                .iter()
                .filter(|other| **other != number)
                .map(|other| (-dot(row(number), row(*other)), *other as u32))
                .collect();
            near.sort_by(|one, two| one.0.total_cmp(&two.0));
            // A lonely row is its own neighbour; few neighbours take turns.
            all[number] = std::array::from_fn(|at| near.get(at % near.len().max(1)).map_or(number as u32, |it| it.1));
        }
    }
    all
}

/// The product of two rows, in an order of adding that compilers may not change.
pub fn dot(one: &[f32], two: &[f32]) -> f32 {
    let mut sums = [0.0f32; 32];
    for (one, two) in one.chunks_exact(32).zip(two.chunks_exact(32)) {
        for lane in 0..32 {
            sums[lane] += one[lane] * two[lane];
        }
    }
    sums.iter().sum()
}

fn to_unit(vector: &mut [f32]) {
    let norm = vector.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>().sqrt();
    vector.iter_mut().for_each(|number| *number = (f64::from(*number) / norm) as f32);
}

/// The number of rows that the environment asks for.
fn wanted() -> Option<usize> {
    std::env::var("ENGRAMFS_BENCH_ROWS").ok().and_then(|text| text.parse().ok())
}

fn truth(data: &Path, rows: usize) -> Option<Vec<Vec<String>>> {
    let key = match rows {
        20_000 => "records",
        REAL => "records_and_more",
        _ => return None,
    };
    let mut all: Value = serde_json::from_slice(&std::fs::read(data.join("truth.json")).unwrap()).unwrap();
    Some(serde_json::from_value(all[key].take()).unwrap())
}

fn json_lines(data: &Path, name: &str) -> Vec<Value> {
    let unpacked = Command::new("gzip").arg("-dc").arg(data.join(format!("{name}.jsonl.gz"))).output().unwrap();
    String::from_utf8(unpacked.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn halves(data: &Path, name: &str) -> Vec<f32> {
    let bytes = std::fs::read(data.join(format!("{name}.f16.bin"))).unwrap();
    bytes.chunks_exact(2).map(|pair| widened(u16::from_le_bytes([pair[0], pair[1]]))).collect()
}

/// The f32 of an IEEE half float that is finite.
fn widened(half: u16) -> f32 {
    let (exponent, fraction) = (i32::from(half >> 10 & 31), f32::from(half & 1023));
    let magnitude =
        if exponent == 0 { fraction / 1024.0 * 2.0 } else { 1.0 + fraction / 1024.0 } * 2f32.powi(exponent - 15);
    if half >> 15 == 1 { -magnitude } else { magnitude }
}

/// Writes numbers once: a file of the right length is what an earlier run wrote.
fn write_floats(path: &Path, numbers: &[f32]) {
    let length = numbers.len() as u64 * 4;
    if std::fs::metadata(path).is_ok_and(|found| found.len() == length) {
        return;
    }
    let mut out = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    numbers.iter().for_each(|number| out.write_all(&number.to_le_bytes()).unwrap());
    out.flush().unwrap();
}
