//! The neighbour graph of a segment: a file of its own, since it comes later than the rows.

use std::sync::{Arc, OnceLock};

use super::{Container, ContainerWriter, Segment, SegmentError};
use crate::graph::{Graph, VectorRows};
use crate::object::{BlobStore, CodecError, Hash, Reader, Writer};
use crate::vector::Metric;

/// Kind byte of a file that holds a graph.
const KIND: u8 = 4;
const GRAPH: usize = 0;

/// The open graph of one segment under one metric.
pub struct GraphFile {
    container: Container,
    segment: Hash,
    metric: Metric,
}

impl GraphFile {
    /// Opens the file with that name; reads its footer alone. [`SegmentError::Damaged`] if it is no file of a graph, or
    /// of a metric that this version does not know.
    pub fn open(blobs: &BlobStore, name: Hash) -> Result<GraphFile, SegmentError> {
        let container = Container::open(blobs, name, KIND)?;
        let mut input = Reader::new(container.extra());
        let mut parse = || -> Result<_, CodecError> {
            let (segment, code) = (input.hash()?, input.byte()?);
            Ok((segment, Metric::from_code(code).ok_or(CodecError::Code(code))?))
        };
        let (segment, metric) = parse().map_err(|error| container.damaged(GRAPH, &error.to_string()))?;
        Ok(GraphFile { container, segment, metric })
    }

    /// Returns the file's name, which is the hash of its footer.
    pub fn name(&self) -> Hash {
        self.container.name()
    }

    /// Returns the name of the segment whose rows are linked.
    pub fn segment(&self) -> Hash {
        self.segment
    }

    /// Returns the metric by which they are near.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Returns the graph; the first call reads and checks the whole file. `SegmentError::Damaged` if a block does not
    /// match its hash, or the bytes are not a graph.
    pub fn graph(&self) -> Result<Graph<&[u8]>, SegmentError> {
        let bytes = self.container.section(GRAPH)?;
        Graph::open(bytes).map_err(|error| self.container.damaged(GRAPH, &error.to_string()))
    }

    /// Returns the length of the file on disk in bytes: what the scrubber has to read of it.
    pub fn file_bytes(&self) -> u64 {
        self.container.file_bytes()
    }

    /// Checks a block again, as [`Container::recheck`] does, with its errors.
    pub fn recheck(&self, number: u64) -> Option<Result<u64, SegmentError>> {
        self.container.recheck(number)
    }

    /// Reads and hashes the whole file. Fails with `SegmentError::Damaged` at the first damage.
    pub fn verify(&self) -> Result<(), SegmentError> {
        self.container.verify()
    }
}

/// Writes the bytes of a graph that was built over a segment's rows and returns the file's name. They are parsed by
/// [`GraphFile::graph`], not here. `SegmentError::Io` if the disk does not take it; nothing has the name then.
pub fn write_graph(blobs: &BlobStore, segment: &Hash, metric: Metric, bytes: &[u8]) -> Result<Hash, SegmentError> {
    let mut out = ContainerWriter::new(blobs)?;
    out.begin()?;
    out.write(bytes)?;
    let mut extra = Writer::new();
    extra.hash(segment).byte(metric.to_code());
    out.finish(KIND, extra.as_slice())
}

impl Segment {
    /// Returns the compact copies of all rows, as a graph is built over them. [`SegmentError::Io`] or
    /// [`SegmentError::Damaged`] if one of these columns can't be read or is damaged.
    pub fn graph_rows(&self) -> Result<VectorRows<'_>, SegmentError> {
        Ok(VectorRows { dim: self.dim(), codes: self.codes()?, scales: self.scales()?.0, norms: self.norms()? })
    }

    /// Gives the segment its graph for a metric; a later one for the same metric is dropped. One of another segment's
    /// rows is not taken.
    pub fn attach(&self, graph: Arc<GraphFile>) {
        let place = &self.graphs[usize::from(graph.metric().to_code())];
        if graph.segment() == self.name() {
            place.get_or_init(|| graph);
        }
    }

    /// Returns the graphs it has so far.
    pub fn graphs(&self) -> impl Iterator<Item = &Arc<GraphFile>> {
        self.graphs.iter().filter_map(OnceLock::get)
    }

    /// Returns the graph for a metric, if there is one yet.
    pub fn graph(&self, metric: Metric) -> Option<&Arc<GraphFile>> {
        self.graphs[usize::from(metric.to_code())].get()
    }
}
