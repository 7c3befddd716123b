//! A program of a model file.

use corsac_ir::{Graph, Op as GraphOp};
use corsac_ops::shape::Propagator;
use rustc_hash::FxHashSet;

use super::called_graphs::CalledGraphs;
use super::compile::{Checked, Compiler, output_specs};
use super::error::{ModelError, without_panic};
use super::metadata;
use super::output_shapes::{OutputSpec, dynamic_outputs};
use super::signature::Signature;
use super::tensor::TensorSpec;
use crate::program::{Precision, Program};

/// A program of a model file: a graph with its inputs, its outputs, and the state that it reads and writes.
#[derive(Debug)]
pub struct ModelProgram {
    name: String,
    pub(super) compiler: Compiler,
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
    /// The places of its state among that of the file.
    pub(super) state: Vec<usize>,
    /// For the least sizes, or the only ones.
    program: Program,
}

impl ModelProgram {
    /// The program with this graph, compiled for its least sizes.
    pub(super) fn new(
        name: String,
        compiler: Compiler,
        state: Vec<usize>,
    ) -> Result<Self, ModelError> {
        let least = compiler.signature().least();
        let program = without_panic(|| compiler.program(&least)).map_err(|error| match error {
            // Sizes in the range that it declares.
            ModelError::Condition { .. } | ModelError::Size { .. } => {
                metadata::wrong(metadata::SIZES, error.to_string())
            }
            error => error,
        })?;
        Ok(Self {
            name,
            inputs: compiler.signature().specs_at(&least)?,
            outputs: output_specs(&program),
            state,
            compiler,
            program,
        })
    }

    /// Compiles it anew in another precision.
    pub(super) fn set_precision(&mut self, precision: Precision) -> Result<(), ModelError> {
        self.compiler.precision = precision;
        let least = self.signature().least();
        self.program = without_panic(|| self.compiler.program(&least))?;
        Ok(())
    }

    /// Its name; empty if it is the only one, without a name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The graph.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        self.compiler.graph()
    }

    /// The inputs and the state with their sizes, which may be symbols, and the ranges of these.
    #[must_use]
    pub fn signature(&self) -> &Signature {
        self.compiler.signature()
    }

    /// The inputs, in order; with the least sizes, where these are symbols.
    #[must_use]
    pub fn inputs(&self) -> &[TensorSpec] {
        &self.inputs
    }

    /// The outputs, in order, for [`inputs`](Self::inputs). Each is named after its place in the result: `1.0`, or
    /// `logits`; a single one is named `output`.
    #[must_use]
    pub fn outputs(&self) -> &[TensorSpec] {
        &self.outputs
    }

    /// The outputs, with sizes as expressions of the symbols where they are products and sums of these.
    #[must_use]
    pub fn dynamic_outputs(&self) -> Vec<OutputSpec> {
        dynamic_outputs(&self.compiler, &self.outputs)
    }

    /// The names of the state that it writes, in order.
    pub fn written(&self) -> impl Iterator<Item = &str> {
        let (first, state) = (self.inputs.len(), self.signature().state());
        let written = self.program.written.iter();
        written.filter_map(move |&(input, _)| Some(&*state.get(input.checked_sub(first)?)?.name))
    }

    /// The program that the engine runs, for [`inputs`](Self::inputs).
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Calls `work` with the types of all values of the graph, where symbols have [these
    /// values](Signature::values): for costs, and to run the graph in another way.
    ///
    /// # Errors
    /// If the program does not take such sizes.
    pub fn with_types<T>(
        &self,
        values: &[usize],
        work: impl FnOnce(&mut Propagator<'_>) -> T,
    ) -> Result<T, ModelError> {
        self.compiler.at(values, || {
            Ok(work(&mut self.compiler.types(values, Checked::Yes)?))
        })
    }

    /// The program that the engine runs where symbols have [these values](Signature::values).
    ///
    /// # Errors
    /// If it does not take such sizes.
    pub fn program_for(&self, values: &[usize]) -> Result<Program, ModelError> {
        self.compiler.at(values, || self.compiler.program(values))
    }
}

/// The names of tensors and graphs in a file.
pub(super) struct Names<'f> {
    pub(super) weights: &'f FxHashSet<&'f str>,
    pub(super) graphs: &'f CalledGraphs,
}

impl Names<'_> {
    /// Checks that a graph reads weights and graphs of the file, calls functions only, and has an output; adds the
    /// weights that it reads to `read`.
    pub(super) fn check<'g>(
        &self,
        graph: &'g Graph,
        read: &mut FxHashSet<&'g str>,
    ) -> Result<(), ModelError> {
        let mut has_output = false;
        for id in graph.nodes() {
            let node = graph.node(id);
            let target = node.target_name();
            match node.op() {
                GraphOp::GetAttr if self.weights.contains(target) => {
                    read.insert(target);
                }
                GraphOp::GetAttr if self.graphs.get(target).is_some() => {}
                GraphOp::GetAttr => {
                    let reason = format!("the weight {target} is not in the file");
                    return Err(ModelError::graph(node.name(), reason));
                }
                GraphOp::CallModule => {
                    let reason =
                        format!("it calls the module {target}; models have functions only");
                    return Err(ModelError::graph(node.name(), reason));
                }
                GraphOp::Placeholder | GraphOp::CallFunction | GraphOp::CallMethod => {}
                GraphOp::Output => has_output = true,
            }
        }
        match has_output {
            true => Ok(()),
            false => Err(ModelError::graph("output", "the graph has no output")),
        }
    }
}

/// Checks that the inputs and the state of a program are the placeholders of its graph.
pub(super) fn check_inputs(graph: &Graph, signature: &Signature) -> Result<(), ModelError> {
    let inputs = signature.inputs();
    let mut wanted = signature.tensors().iter().enumerate();
    let nodes = graph.nodes().map(|id| graph.node(id));
    for node in nodes.filter(|node| node.op() == GraphOp::Placeholder) {
        let target = node.target_name();
        match wanted.next() {
            // Those of state have names of their own.
            Some((at, spec)) if at >= inputs.len() || spec.name == target => {}
            Some((_, spec)) => {
                let reason = format!("an input called {target}, where {} is", spec.name);
                return Err(ModelError::graph(node.name(), reason));
            }
            None if node.args().is_empty() => {
                let reason = "an input that the file does not describe, without a default";
                return Err(ModelError::graph(node.name(), reason));
            }
            None => {}
        }
    }
    if let Some((_, spec)) = wanted.next() {
        return Err(ModelError::graph(&spec.name, "the graph has no such input"));
    }
    let mut names: Vec<&str> = signature.tensors().iter().map(|spec| &*spec.name).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(ModelError::graph(pair[0], "two inputs have this name")),
        None => Ok(()),
    }
}
