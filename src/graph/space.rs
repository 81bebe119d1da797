//! The rows as points: how far they lie apart, as the builder of the graph needs it.

use super::source::VectorRows;
use crate::vector::{self, CoarseQuery, CoarseRows, CoarseSource, Metric};

/// The rows that have a vector, numbered from 0 as nodes of a graph, and the distances between them.
pub(super) struct VectorSpace<'a> {
    /// All rows of the segment, also those without a vector, which are no nodes.
    pub rows: VectorRows<'a>,
    /// What distances and coarse copies are made for.
    pub metric: Metric,
    /// The row of each node, ascending.
    pub nodes: Vec<u32>,
    /// The length of the longest vector: under `dot` one more dimension brings all others to it, see [`Metric::graph_distance`].
    norm_max: f32,
    /// For each node what a step of its code is worth, under cosine by its length; and its size.
    factors: Vec<(f32, f32)>,
    /// The coarse copies of all nodes, by node.
    coarse: Vec<u8>,
}

/// The memory for distances to several nodes, to be used again.
#[derive(Default)]
pub(super) struct Distances {
    rows: Vec<u32>,
    products: Vec<i32>,
    /// The distances, in the order that was asked for.
    pub values: Vec<f32>,
}

impl<'a> VectorSpace<'a> {
    /// Takes the rows that have a vector, and makes their coarse copies.
    pub fn new(rows: VectorRows<'a>, metric: Metric) -> Self {
        let nodes = rows.rows_with_vector();
        let norm_max = nodes.iter().map(|&row| rows.norms[row as usize]).fold(0.0, f32::max);
        let mut space = Self { rows, metric, nodes, norm_max, factors: Vec::new(), coarse: Vec::new() };
        let mut coarse = vec![0; space.nodes.len() * CoarseRows::row_bytes(rows.dim)];
        for (node, place) in CoarseRows::rows_mut(&mut coarse, rows.dim).enumerate() {
            space.source(node as u32).write(metric, place);
        }
        space.coarse = coarse;
        space.factors = (0..space.nodes.len() as u32).map(|node| space.factor(node)).collect();
        space
    }

    /// Returns how many nodes there are; rows without a vector are none.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the coarse copies, by node and not by row.
    pub fn coarse_rows(&self) -> CoarseRows<'_> {
        CoarseRows::new(&self.coarse, self.rows.dim)
    }

    /// Returns a node as a query for its neighbours.
    pub fn query(&self, node: u32) -> CoarseQuery {
        CoarseQuery::new(self.metric, self.source(node))
    }

    fn source(&self, node: u32) -> CoarseSource<'a> {
        let row = self.nodes[node as usize];
        let norm = self.rows.norms[row as usize];
        let extra_dimension = ((self.norm_max - norm) * (self.norm_max + norm)).max(0.0).sqrt();
        let extra_dimension = if extra_dimension.is_finite() { extra_dimension } else { 0.0 };
        CoarseSource { bytes: self.rows.code(row), scale: self.rows.scales[row as usize], norm, extra_dimension }
    }

    /// Returns what a step of a node's code is worth, and its size.
    fn factor(&self, node: u32) -> (f32, f32) {
        let (weight, size) = self.source(node).factors(self.metric);
        (weight as f32, size)
    }

    /// Puts the distances from one node to others into `out.values`: 0 or more, never NaN.
    pub fn measure_distances(&self, node: u32, others: &[u32], out: &mut Distances) {
        out.rows.clear();
        out.rows.extend(others.iter().map(|&other| self.nodes[other as usize]));
        out.products.resize(others.len(), 0);
        let code = self.rows.code(self.nodes[node as usize]);
        vector::dots_i8(code, self.rows.codes, &out.rows, &mut out.products);
        out.values.clear();
        let own = self.factors[node as usize];
        let products = others.iter().zip(&out.products);
        out.values.extend(products.map(|(&other, &product)| self.distance(product, own, self.factors[other as usize])));
    }

    #[inline]
    fn distance(&self, product: i32, (a, a_size): (f32, f32), (b, b_size): (f32, f32)) -> f32 {
        // The factors first, so that both ways give the same bits.
        let product = f64::from(product) * (f64::from(a) * f64::from(b));
        let (a_size, b_size) = (f64::from(a_size), f64::from(b_size));
        let distance = self.metric.graph_distance(product, a_size, b_size, f64::from(self.norm_max));
        distance.clamp(0.0, f64::from(f32::MAX)) as f32
    }
}
