//! The weights in an ONNX file of BERT, among them int8 ones, which are scaled to f32 as they are read.
//!
//! The graph is not run: the layers of `bert.rs` are, with the weights that it names. Exporters keep the names of
//! embeddings, of biases and of what normalizes; the matrix of a linear map is the one whose product that map's bias is
//! added to. Quantised weights are found in the forms
//!
//! - `Mul(Cast(Q), scale)` and `DequantizeLinear(Q, scale, zero)`, for weights that are stored as int8 alone;
//! - `Mul(Cast(MatMulInteger(x, Q, …, zero)), Mul(…, scale))` and `DequantizeLinear(Gather(Q, …), scale, zero)`, which ONNX
//!   Runtime's dynamic quantisation makes. What is rounded of states there is not rounded here.

mod graph;
mod protobuf;

use super::weights::{WeightSource, WeightTensor};
use graph::{OnnxGraph, OnnxNode};

/// The first weights of BERT, which shows the prefix of all names.
const WORD_EMBEDDINGS: &str = "embeddings.word_embeddings.weight";
/// Nodes between a weight and what is stored of it, at most.
const DEPTH_MAX: usize = 6;
/// What BERT is exported as: another operator means a form whose weights might mean something else.
const OPERATORS: &str = "Add And Cast Clip Concat Constant ConstantOfShape DequantizeLinear Div DynamicQuantizeLinear \
    Equal Erf Expand Flatten Gather GatherElements GatherND Gelu Gemm Greater GreaterOrEqual Identity IsNaN \
    LayerNormalization Less LessOrEqual MatMul MatMulInteger Max Min Mul Neg Not Or Pow QuantizeLinear Range Reciprocal \
    ReduceL2 ReduceMean ReduceSum Reshape ScatterND Shape Slice Softmax Split Sqrt Squeeze Sub Tanh Transpose Unsqueeze Where";

/// The weights of a BERT that was exported to ONNX, also where they were quantised.
pub struct OnnxWeights<'a> {
    graph: OnnxGraph<'a>,
    /// What exporters put in front of each name of a weight; may be empty.
    prefix: &'a str,
}

/// A tensor that depends on no input. One that is `raw` has whole numbers and no scale yet.
struct Constant {
    tensor: WeightTensor,
    is_raw: bool,
}

impl<'a> OnnxWeights<'a> {
    /// Reads the graph of a file, which has to have `layers` layers. The error says what is wrong: no graph, an
    /// operator that a plain export of BERT has not got, none or several tables of words, more layers.
    pub fn new(file: &'a [u8], layers: usize) -> Result<OnnxWeights<'a>, String> {
        let graph = OnnxGraph::read(file)?;
        let is_known = |node: &&OnnxNode| {
            matches!(node.domain, "" | "ai.onnx") && OPERATORS.split_whitespace().any(|known| known == node.operator)
        };
        if let Some(node) = graph.nodes.iter().find(|node| !is_known(node)) {
            let name = [node.domain, node.operator].join(if node.domain.is_empty() { "" } else { "." });
            return Err(format!("it has the operator {name}, which no plain export of BERT has"));
        }
        let lookups = graph.nodes.iter().filter(|node| node.operator == "Gather");
        let mut prefixes: Vec<&str> =
            lookups.filter_map(|node| Some(&node.input(0)[..node.input(0).find(WORD_EMBEDDINGS)?])).collect();
        prefixes.dedup();
        let prefix = match *prefixes {
            [prefix] => prefix,
            [] => return Err(format!("no node looks words up in {WORD_EMBEDDINGS}, which BERT begins with")),
            _ => return Err(format!("it has more than one {WORD_EMBEDDINGS}")),
        };
        let more = format!("{prefix}encoder.layer.{layers}.");
        if graph.nodes.iter().flat_map(|node| &node.inputs).any(|input| input.starts_with(&more)) {
            return Err(format!("it has more than the {layers} layers of config.json"));
        }
        Ok(OnnxWeights { graph, prefix })
    }

    /// Returns the constant of a name; `None` for a value that depends on an input.
    fn constant(&self, name: &str, depth: usize) -> Result<Option<Constant>, String> {
        if let Some(stored) = self.graph.tensor(name) {
            let tensor = WeightTensor { values: stored.numbers()?, shape: stored.dims.clone() };
            return Ok(Some(Constant { tensor, is_raw: stored.is_quantized() }));
        }
        let Some(node) = self.graph.producer(name).filter(|_| depth > 0) else { return Ok(None) };
        let input = |number: usize| self.constant(node.input(number), depth - 1);
        Ok(match node.operator {
            "Identity" => input(0)?,
            // `to` is a data type of ONNX: 1 is f32, 10 f16, 16 bfloat16. Values are held as f32 here, so that these
            // change nothing.
            "Cast" if matches!(node.integer("to"), Some(1 | 10 | 16)) => input(0)?,
            "Transpose" if node.integers("perm").is_none_or(|perm| *perm == [1, 0]) => match input(0)? {
                Some(Constant { tensor, is_raw }) => Some(Constant { tensor: transpose(tensor)?, is_raw }),
                None => None,
            },
            "Mul" => match (input(0)?, input(1)?) {
                (Some(a), Some(b)) if a.tensor.values.len() < b.tensor.values.len() => {
                    Some(apply_scale(b, &a, None, None)?)
                }
                (Some(a), Some(b)) => Some(apply_scale(a, &b, None, None)?),
                _ => None,
            },
            "DequantizeLinear" => match input(0)? {
                Some(values) => Some(self.dequantize(values, node, depth)?),
                None => None,
            },
            _ => None,
        })
    }

    /// Scales numbers as a node `DequantizeLinear` does.
    fn dequantize(&self, values: Constant, node: &OnnxNode, depth: usize) -> Result<Constant, String> {
        let parameter = |number| self.parameter(node.input(number), depth - 1);
        let scale = parameter(1)?.ok_or("has a scale that is not constant")?;
        apply_scale(values, &scale, parameter(2)?.as_ref(), Some(node.integer("axis").unwrap_or(1)))
    }

    /// Returns a scale or a zero point; `None` for one that is left out.
    fn parameter(&self, name: &str, depth: usize) -> Result<Option<Constant>, String> {
        if name.is_empty() {
            Ok(None)
        } else {
            self.constant(name, depth)?.map(Some).ok_or_else(|| format!("depends on {name}, which is not constant"))
        }
    }

    /// Returns the rows that a node `Gather` looks up, which may be scaled behind it.
    fn gather_table(&self, name: &str) -> Result<Option<Constant>, String> {
        let is_lookup = |node: &&OnnxNode| node.operator == "Gather" && node.input(0).starts_with(name);
        let Some(lookup) = self.graph.nodes.iter().find(is_lookup) else { return Ok(None) };
        let Some(rows) = self.constant(lookup.input(0), DEPTH_MAX)? else { return Ok(None) };
        let scaling = |node: &&OnnxNode| node.operator == "DequantizeLinear" && node.input(0) == lookup.output();
        match self.graph.nodes.iter().find(scaling) {
            Some(node) => self.dequantize(rows, node, DEPTH_MAX).map(Some),
            None => Ok(Some(rows)),
        }
    }

    /// Returns the matrix that a value is the product of, a column for each output.
    fn factor(&self, product: &str) -> Result<Option<Constant>, String> {
        let Some(node) = self.graph.producer(product) else { return Ok(None) };
        match node.operator {
            "MatMul" => self.constant(node.input(1), DEPTH_MAX),
            "Mul" => {
                let casts = |name: &str| {
                    let cast = self.graph.producer(name).filter(|node| node.operator == "Cast")?;
                    self.graph.producer(cast.input(0)).filter(|node| node.operator == "MatMulInteger")
                };
                let (product, scale) = match (casts(node.input(0)), casts(node.input(1))) {
                    (Some(product), None) => (product, node.input(1)),
                    (None, Some(product)) => (product, node.input(0)),
                    _ => return Ok(None),
                };
                let Some(values) = self.constant(product.input(1), DEPTH_MAX)? else { return Ok(None) };
                let zero = self.parameter(product.input(3), DEPTH_MAX)?;
                let scale = self.weight_scale(scale)?.ok_or("has a scale that is not constant")?;
                apply_scale(values, &scale, zero.as_ref(), None).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Returns the weights' part of a scale, the other part of which is that of states.
    fn weight_scale(&self, name: &str) -> Result<Option<Constant>, String> {
        let Some(node) = self.graph.producer(name).filter(|node| node.operator == "Mul") else { return Ok(None) };
        match (self.constant(node.input(0), DEPTH_MAX)?, self.constant(node.input(1), DEPTH_MAX)?) {
            (Some(scale), None) | (None, Some(scale)) => Ok(Some(scale)),
            _ => Ok(None),
        }
    }
}

impl WeightSource for OnnxWeights<'_> {
    fn tensor(&self, name: &str) -> Result<WeightTensor, String> {
        let name = [self.prefix, name].concat();
        let looked_up = self.gather_table(&name)?;
        require_weights(if looked_up.is_some() { looked_up } else { self.constant(&name, DEPTH_MAX)? })
    }

    fn matrix(&self, map: &str) -> Result<WeightTensor, String> {
        let bias = [self.prefix, map, ".bias"].concat();
        let mut users = self.graph.nodes.iter().filter(|node| node.inputs.contains(&&*bias));
        let (user, another) = (users.next(), users.next());
        let Some(node) = user else { return Err("is missing: nothing adds its bias".to_owned()) };
        if another.is_some() {
            return Err("is there twice: two nodes add its bias".to_owned());
        }
        let is_one = |name| node.float(name).is_none_or(|factor| factor == 1.0);
        let (found, is_turned) = match node.operator {
            "Add" => (self.factor(node.input(usize::from(node.input(0) == bias)))?, false),
            "Gemm" if is_one("alpha") && is_one("beta") && node.integer("transA").unwrap_or(0) == 0 => {
                (self.constant(node.input(1), DEPTH_MAX)?, node.integer("transB") == Some(1))
            }
            other => return Err(format!("is not found: a node {other} has its bias")),
        };
        let matrix = require_weights(found)?;
        if is_turned { Ok(matrix) } else { transpose(matrix) }
    }
}

/// Returns what was found as weights.
fn require_weights(found: Option<Constant>) -> Result<WeightTensor, String> {
    match found {
        Some(Constant { is_raw: true, .. }) => Err("has whole numbers and no scale".to_owned()),
        Some(Constant { tensor, .. }) => Ok(tensor),
        None => Err("is missing".to_owned()),
    }
}

fn transpose(tensor: WeightTensor) -> Result<WeightTensor, String> {
    let [rows, columns] = *tensor.shape else {
        return Err(format!("is of shape {:?}, and is no matrix", tensor.shape));
    };
    let values = (0..rows * columns).map(|at| tensor.values[at % rows * columns + at / rows]).collect();
    Ok(WeightTensor { shape: vec![columns, rows], values })
}

/// Subtracts a zero point from numbers and multiplies them by a scale. Of one dimension, these are spread along `axis`,
/// else along the last one.
fn apply_scale(
    mut values: Constant,
    scale: &Constant,
    zero: Option<&Constant>,
    axis: Option<i64>,
) -> Result<Constant, String> {
    let columns = *values.tensor.shape.last().unwrap_or(&1);
    let (row_step, column_step) = parameter_strides(&scale.tensor, &values.tensor.shape, axis)?;
    let zeros = match zero {
        Some(zero) => Some((&zero.tensor.values, parameter_strides(&zero.tensor, &values.tensor.shape, axis)?)),
        None => None,
    };
    for (at, number) in values.tensor.values.iter_mut().enumerate() {
        let (row, column) = (at / columns, at % columns);
        if let Some((zeros, (row_step, column_step))) = &zeros {
            *number -= zeros[row * row_step + column * column_step];
        }
        *number *= scale.tensor.values[row * row_step + column * column_step];
    }
    Ok(Constant { is_raw: false, ..values })
}

/// Returns how far apart the parameters of neighbouring rows and of neighbouring columns lie.
fn parameter_strides(parameters: &WeightTensor, shape: &[usize], axis: Option<i64>) -> Result<(usize, usize), String> {
    let (rows, columns) = match *shape {
        [] => (1, 1),
        [columns] => (1, columns),
        [rows, columns] => (rows, columns),
        _ => return Err(format!("is of shape {shape:?}, and is no matrix")),
    };
    let by_rows = axis == Some(0) && shape.len() == 2 || axis == Some(-2);
    match *parameters.shape {
        _ if parameters.values.len() == 1 => Ok((0, 0)),
        [count] if by_rows && count == rows => Ok((1, 0)),
        [count] if !by_rows && count == columns => Ok((0, 1)),
        [count, 1] if count == rows => Ok((1, 0)),
        [1, count] if count == columns => Ok((0, 1)),
        _ => Err(format!("is of shape {shape:?}, and its scale or zero point of {:?}", parameters.shape)),
    }
}
