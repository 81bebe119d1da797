//! The parts of an ONNX file that weights are found by: nodes with their integer attributes, and constant tensors.

use std::collections::HashMap;

use super::super::weights::{decode_bf16, decode_f16, decode_f32};
use super::protobuf::{WireValue, fields, packed_varints};

/// Nodes and names at most, so that no file of small parts takes many times its size. MiniLM has some 2,000.
const PARTS_MAX: usize = 1 << 17;
/// Dimensions of a tensor, and numbers of a list that says something of them, at most.
const DIMS_MAX: usize = 8;

/// A graph of operators. What it names is borrowed from the file.
#[derive(Default)]
pub struct OnnxGraph<'a> {
    /// In the order of the file.
    pub nodes: Vec<OnnxNode<'a>>,
    tensors: HashMap<&'a str, OnnxTensor<'a>>,
    /// Which node makes a value.
    producers: HashMap<&'a str, usize>,
    parts: usize,
}

/// An operator with its inputs and outputs.
#[derive(Default)]
pub struct OnnxNode<'a> {
    /// The operator's name, such as `MatMul`.
    pub operator: &'a str,
    /// Whose operator it is; empty for ONNX itself.
    pub domain: &'a str,
    /// Names of values; empty for one that is left out.
    pub inputs: Vec<&'a str>,
    outputs: Vec<&'a str>,
    attributes: Vec<OnnxAttribute<'a>>,
}

#[derive(Default)]
struct OnnxAttribute<'a> {
    name: &'a str,
    integer: Option<i64>,
    float: Option<f32>,
    integers: Vec<i64>,
    tensor: Option<OnnxTensor<'a>>,
}

/// A constant with its shape; its numbers stay in the file's bytes until they are asked for.
#[derive(Clone, Default)]
pub struct OnnxTensor<'a> {
    name: &'a str,
    /// Its dimensions, outermost first; 8 at most.
    pub dims: Vec<usize>,
    kind: i64,
    raw: Option<&'a [u8]>,
    floats: Option<&'a [u8]>,
    integers: Option<&'a [u8]>,
    is_external: bool,
}

impl<'a> OnnxGraph<'a> {
    /// Reads the graph of a file. The error says what is wrong, without the file's name: a field that does not parse,
    /// no graph, or two.
    pub fn read(file: &'a [u8]) -> Result<OnnxGraph<'a>, String> {
        let mut found = None;
        for field in fields(file) {
            // The numbers of fields are those of ONNX's `onnx.proto`: here `ModelProto.graph`, below `GraphProto.node`
            // and `initializer`.
            if let (7, value) = field?
                && found.replace(value.bytes()?).is_some()
            {
                return Err("it holds two graphs".to_owned());
            }
        }
        let message = found.ok_or("it holds no graph; it is no ONNX file")?;
        let mut graph = OnnxGraph::default();
        for field in fields(message) {
            match field? {
                (1, value) => graph.add_node(OnnxNode::read(value.bytes()?)?)?,
                (5, value) => graph.add_tensor(OnnxTensor::read(value.bytes()?)?)?,
                _ => {}
            }
        }
        Ok(graph)
    }

    fn add_node(&mut self, mut node: OnnxNode<'a>) -> Result<(), String> {
        self.add_parts(1 + node.inputs.len() + node.outputs.len() + node.attributes.len())?;
        let value = node.attributes.iter_mut().find(|attribute| attribute.name == "value");
        if let ("Constant", Some(tensor), [name]) =
            (node.operator, value.and_then(|value| value.tensor.take()), node.outputs.as_slice())
        {
            return self.add_tensor(OnnxTensor { name, ..tensor });
        }
        for output in node.outputs.iter().filter(|output| !output.is_empty()) {
            if self.producers.insert(output, self.nodes.len()).is_some() {
                return Err(format!("two nodes make {output}"));
            }
        }
        self.nodes.push(node);
        Ok(())
    }

    fn add_tensor(&mut self, tensor: OnnxTensor<'a>) -> Result<(), String> {
        self.add_parts(1)?;
        let name = tensor.name;
        if self.tensors.insert(name, tensor).is_some() { Err(format!("{name} is there twice")) } else { Ok(()) }
    }

    fn add_parts(&mut self, parts: usize) -> Result<(), String> {
        self.parts += parts;
        if self.parts > PARTS_MAX { Err(format!("it has more than {PARTS_MAX} nodes and names")) } else { Ok(()) }
    }

    /// Returns the constant of a name; `None` if nothing constant has it.
    pub fn tensor(&self, name: &str) -> Option<&OnnxTensor<'a>> {
        self.tensors.get(name)
    }

    /// Returns the node that makes a value; `None` if no node does.
    pub fn producer(&self, name: &str) -> Option<&OnnxNode<'a>> {
        self.producers.get(name).map(|at| &self.nodes[*at])
    }
}

impl<'a> OnnxNode<'a> {
    fn read(message: &'a [u8]) -> Result<OnnxNode<'a>, String> {
        let mut node = OnnxNode::default();
        for field in fields(message) {
            match field? {
                (1, value) => node.inputs.push(value.text()?),
                (2, value) => node.outputs.push(value.text()?),
                (4, value) => node.operator = value.text()?,
                (5, value) => node.attributes.push(OnnxAttribute::read(value.bytes()?)?),
                (7, value) => node.domain = value.text()?,
                _ => {}
            }
            if node.inputs.len().max(node.outputs.len()).max(node.attributes.len()) > PARTS_MAX {
                return Err(format!("a node has more than {PARTS_MAX} inputs or outputs"));
            }
        }
        Ok(node)
    }

    /// Returns an input; an empty text for one that is left out.
    pub fn input(&self, number: usize) -> &'a str {
        self.inputs.get(number).copied().unwrap_or_default()
    }

    /// Returns the first output; an empty text where there is none.
    pub fn output(&self) -> &'a str {
        self.outputs.first().copied().unwrap_or_default()
    }

    fn attribute(&self, name: &str) -> Option<&OnnxAttribute<'a>> {
        self.attributes.iter().find(|attribute| attribute.name == name)
    }

    /// Returns a whole number that is an attribute; `None` if there is no such attribute, or it is no whole number.
    pub fn integer(&self, name: &str) -> Option<i64> {
        self.attribute(name)?.integer
    }

    /// Returns a fraction that is an attribute; `None` if there is no such attribute, or it is no fraction.
    pub fn float(&self, name: &str) -> Option<f32> {
        self.attribute(name)?.float
    }

    /// Returns the whole numbers that are an attribute, none of them where it is something else; `None` if there is no
    /// such attribute.
    pub fn integers(&self, name: &str) -> Option<&[i64]> {
        Some(&self.attribute(name)?.integers)
    }
}

impl<'a> OnnxAttribute<'a> {
    fn read(message: &'a [u8]) -> Result<OnnxAttribute<'a>, String> {
        let mut attribute = OnnxAttribute::default();
        for field in fields(message) {
            match field? {
                (1, value) => attribute.name = value.text()?,
                (2, WireValue::Fixed32(bytes)) => attribute.float = Some(f32::from_le_bytes(bytes)),
                (3, value) => attribute.integer = Some(value.integer()?),
                (5, value) => attribute.tensor = Some(OnnxTensor::read(value.bytes()?)?),
                (8, value) => value.append_integers(&mut attribute.integers, DIMS_MAX)?,
                _ => {}
            }
        }
        Ok(attribute)
    }
}

impl<'a> OnnxTensor<'a> {
    fn read(message: &'a [u8]) -> Result<OnnxTensor<'a>, String> {
        let (mut tensor, mut dims) = (OnnxTensor::default(), Vec::new());
        for field in fields(message) {
            match field? {
                (1, value) => value.append_integers(&mut dims, DIMS_MAX)?,
                (2, value) => tensor.kind = value.integer()?,
                (4, value) => tensor.floats = Some(value.bytes()?),
                (5, value) => tensor.integers = Some(value.bytes()?),
                (8, value) => tensor.name = value.text()?,
                (9, value) => tensor.raw = Some(value.bytes()?),
                (14, value) => tensor.is_external = value.integer()? != 0,
                _ => {}
            }
        }
        let is_negative = |_| format!("{} is of shape {dims:?}", tensor.name);
        tensor.dims = dims.iter().map(|dim| usize::try_from(*dim)).collect::<Result<_, _>>().map_err(is_negative)?;
        Ok(tensor)
    }

    /// Returns whether its numbers are whole ones, which need a scale.
    pub fn is_quantized(&self) -> bool {
        matches!(self.kind, 2 | 3)
    }

    /// Returns its numbers, once the file was found to hold as many as its shape says. Fails if they lie in another
    /// file, or are of a type other than float, float16, bfloat16, int8 and uint8.
    pub fn numbers(&self) -> Result<Vec<f32>, String> {
        if self.is_external {
            return Err(
                "lies in another file (external data), which is not read; save the model as one file".to_owned()
            );
        }
        let count = self.dims.iter().try_fold(1usize, |product, dim| product.checked_mul(*dim));
        let raw = |width: usize| {
            let bytes = self.raw.or(if width == 4 { self.floats } else { None }).unwrap_or_default();
            let fits = count.and_then(|count| count.checked_mul(width)) == Some(bytes.len());
            if fits { Ok(bytes) } else { Err(format!("is of shape {:?} and has {} bytes", self.dims, bytes.len())) }
        };
        match (self.kind, self.integers) {
            (1, _) => raw(4).map(decode_f32),
            (2 | 3, Some(integers)) if self.raw.is_none() => {
                let numbers: Vec<f32> =
                    packed_varints(integers).map(|number| Ok(number? as f32)).collect::<Result<_, String>>()?;
                let fits = count == Some(numbers.len());
                if fits { Ok(numbers) } else { Err(format!("is of shape {:?} and has {}", self.dims, numbers.len())) }
            }
            (2, _) => Ok(raw(1)?.iter().map(|byte| f32::from(*byte)).collect()),
            (3, _) => Ok(raw(1)?.iter().map(|byte| f32::from(byte.cast_signed())).collect()),
            (10, _) => raw(2).map(decode_f16),
            (16, _) => raw(2).map(decode_bf16),
            (kind, _) => {
                Err(format!("is of ONNX's type {kind}, and float, float16, bfloat16, int8 and uint8 can be read"))
            }
        }
    }
}
