//! Test kit for programs.

#![allow(dead_code, reason = "each file of tests uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use std::borrow::Cow;

use corsac_engine::{Program, TensorSpec, Weights, lower, optimise};
use corsac_ir::{Arg, DType, Graph, NodeId};
use corsac_ops::shape::{Dim, NoModules, Propagator, Settings, TensorType, Value};

pub(crate) struct NoWeights;

impl Weights for NoWeights {
    fn weight(&self, _number: usize) -> Option<Cow<'_, [f32]>> {
        None
    }
}

pub(crate) fn call(graph: &mut Graph, name: &str, args: impl IntoIterator<Item = Arg>) -> NodeId {
    let function = graph.function(name);
    let args: Vec<Arg> = args.into_iter().collect();
    graph.call_function(function, args).unwrap()
}

pub(crate) fn tensor(shape: &[i64]) -> Value {
    let shape = shape.iter().map(|&size| Dim::Known(size));
    Value::tensor(TensorType::new(DType::Float32, shape))
}

pub(crate) fn program(graph: &Graph, inputs: &[Value]) -> Result<Program, String> {
    let mut types = Propagator::new(&NoModules, Settings::default());
    types.run(graph, inputs).unwrap();
    let mut program = lower(graph, &types).map_err(|error| error.to_string())?;
    optimise(&mut program);
    Ok(program)
}

/// The graph of these lines of text.
pub(crate) fn graph(lines: &str) -> Graph {
    Graph::parse(&format!("graph v1:\n{lines}")).unwrap()
}

/// A float32 tensor of a model file.
pub(crate) fn spec(name: &str, shape: &[usize]) -> TensorSpec {
    typed(name, DType::Float32, shape)
}

pub(crate) fn typed(name: &str, dtype: DType, shape: &[usize]) -> TensorSpec {
    TensorSpec {
        name: name.to_owned(),
        dtype,
        shape: shape.to_vec(),
    }
}

/// Number of elements of a tensor of this shape.
pub(crate) fn len(shape: &[i64]) -> usize {
    usize::try_from(shape.iter().product::<i64>()).unwrap()
}

/// Numbers between -1 and 1.
pub(crate) fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}
