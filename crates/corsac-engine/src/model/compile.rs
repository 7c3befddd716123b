//! Graphs of model files, compiled for sizes of their inputs.

use std::sync::Arc;

use corsac_ir::{ExternalId, Graph, NodeId, Op as GraphOp};
use corsac_ops::shape::{
    CalledGraph, Dim, Failure, ModuleFacts, Propagator, Settings, Storage, Tensor as TypedTensor,
    TensorType, TypeHost, Value, element_bytes, node_cost,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::called_graphs::CalledGraphs;
use super::check::{check_program, find_types};
use super::conditions::{check_conditions, condition_nodes, failed_condition};
use super::error::{ModelError, without_panic};
use super::limits::{Limits, within};
use super::signature::Signature;
use super::tensor::TensorSpec;
use crate::lower::{LowerError, Writes, lower_with, unsupported_with};
use crate::optimise::optimise;
use crate::program::{Output, Precision, Program};

/// A graph with the types of its weights and the signature of its inputs.
#[derive(Debug)]
pub(super) struct Compiler {
    graph: Graph,
    signature: Signature,
    /// The nodes that have to be true.
    conditions: Vec<NodeId>,
    host: FileHost,
    limits: Limits,
    pub(super) precision: Precision,
    /// Whether other programs, or those for other sizes, share its weights.
    shares_weights: bool,
}

/// Whether conditions on sizes are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checked {
    Yes,
    No,
}

impl Compiler {
    /// The compiler of a graph with these weights.
    pub(super) fn new<'w>(
        graph: Graph,
        signature: Signature,
        weights: impl Iterator<Item = &'w TensorSpec>,
        graphs: &Arc<CalledGraphs>,
        limits: &Limits,
    ) -> Result<Self, ModelError> {
        Ok(Self {
            shares_weights: signature.is_dynamic(),
            conditions: condition_nodes(&graph, signature.conditions())?,
            graph,
            signature,
            host: FileHost::of(weights, Arc::clone(graphs), *limits),
            limits: *limits,
            precision: Precision::default(),
        })
    }

    /// The same, beside other programs with these weights.
    pub(super) fn sharing_weights(mut self) -> Self {
        self.shares_weights = true;
        self
    }

    pub(super) fn graph(&self) -> &Graph {
        &self.graph
    }

    pub(super) fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The types of all values, where the symbols have these values. With `checked`, the conditions on the sizes
    /// hold.
    pub(super) fn types(
        &self,
        values: &[usize],
        checked: Checked,
    ) -> Result<Propagator<'_>, ModelError> {
        let inputs = self.signature.tensors_at(values)?;
        for spec in &inputs {
            let sizes = spec.shape.iter().map(|&size| size.max(1) as u64);
            let each = u64::try_from(element_bytes(spec.dtype)).unwrap_or(1);
            let bytes = sizes.fold(each.max(1), u64::saturating_mul);
            within("bytes of an input", bytes, self.limits.value_bytes)?;
        }
        let mut types = Propagator::new(&self.host, Settings::default());
        let found = find_types(&self.graph, &mut types, &typed(&inputs), &self.limits);
        let (graph, nodes) = (&self.graph, &self.conditions[..]);
        let sizes = (&self.signature, values);
        match (found, checked) {
            (Err(error), Checked::Yes) => {
                // A call may fail because of the sizes.
                let condition = failed_condition(graph, &types, nodes, sizes);
                return Err(condition.unwrap_or(error));
            }
            (found, Checked::No) => found?,
            (Ok(()), Checked::Yes) => check_conditions(graph, &types, nodes, sizes)?,
        }
        Ok(types)
    }

    /// The program where the symbols have these values.
    pub(super) fn program(&self, values: &[usize]) -> Result<Program, ModelError> {
        let types = self.types(values, Checked::Yes)?;
        let graph = &self.graph;
        let writes = match self.signature.state().is_empty() {
            true => Writes::Nothing,
            false => Writes::State(self.signature.inputs().len()),
        };
        let mut program = lower_with(graph, &types, writes).map_err(|first| {
            let found = unsupported_with(graph, &types, writes);
            ModelError::Unsupported(all_unknown(graph, found, first))
        })?;
        self.set_options(&mut program);
        check_program(&program, &self.limits)?;
        optimise(&mut program);
        check_program(&program, &self.limits)?;
        Ok(program)
    }

    /// Sets the options of a program, and of those that its control flow runs.
    fn set_options(&self, program: &mut Program) {
        program.precision = program.precision.or(self.precision);
        program.any_rows = self.shares_weights;
        for control in program.controls_mut() {
            control.most_iterations = self.limits.iterations;
            let bodies = control.bodies.iter_mut();
            bodies.for_each(|body| self.set_options(body));
        }
    }

    /// The result of `work` for these values of symbols; its errors name them.
    pub(super) fn at<T>(
        &self,
        values: &[usize],
        work: impl FnOnce() -> Result<T, ModelError>,
    ) -> Result<T, ModelError> {
        without_panic(work).map_err(|error| match error {
            ModelError::Types(_) | ModelError::Graph { .. } | ModelError::Unsupported(_)
                if self.signature.is_dynamic() =>
            {
                ModelError::Sizes {
                    sizes: self.signature.placed(values),
                    error: Box::new(error),
                }
            }
            error => error,
        })
    }

    /// Floating-point operations where the symbols have these values, as far as they are known.
    pub(super) fn flops(&self, values: &[usize]) -> Result<i64, ModelError> {
        let mut types = self.types(values, Checked::Yes)?;
        let count = |node| {
            node_cost(&mut types, &self.graph, node)
                .work
                .ok()?
                .flops
                .known()
        };
        Ok(self
            .graph
            .nodes()
            .filter_map(count)
            .fold(0, i64::saturating_add))
    }
}

/// All nodes that cannot be lowered, except those that fail only because of others.
fn all_unknown(graph: &Graph, found: Vec<(NodeId, String)>, first: LowerError) -> Vec<LowerError> {
    let found = found.into_iter().map(|(node, reason)| LowerError {
        node,
        name: graph.node(node).name().to_owned(),
        target: graph.node(node).target_name().to_owned(),
        reason,
    });
    // Nodes that depend on a call of unknown type have the same reason.
    let mut reasons = FxHashSet::default();
    let mut own: Vec<LowerError> = found
        .filter(|error| reasons.insert(error.reason.clone()))
        .collect();
    if own.len() > 1 {
        own.retain(|error| graph.node(error.node).op() != GraphOp::Output);
    }
    if own.is_empty() { vec![first] } else { own }
}

/// Names, types and shapes of the results of `program`.
pub(super) fn output_specs(program: &Program) -> Vec<TensorSpec> {
    let mut outputs = Vec::new();
    if let Some(output) = &program.output {
        name_outputs(program, output, String::new(), &mut outputs);
    }
    outputs
}

fn name_outputs(program: &Program, output: &Output, path: String, names: &mut Vec<TensorSpec>) {
    let inner = |key: &str| match path.is_empty() {
        true => key.to_owned(),
        false => format!("{path}.{key}"),
    };
    match output {
        Output::Value(value) => names.push(TensorSpec {
            name: match path.is_empty() {
                true => "output".to_owned(),
                false => path,
            },
            dtype: program.output_dtypes[names.len()],
            shape: program.shape(*value).to_vec(),
        }),
        Output::Tuple(items) | Output::List(items) => {
            for (number, item) in items.iter().enumerate() {
                name_outputs(program, item, inner(&number.to_string()), names);
            }
        }
        Output::Dict(entries) => {
            for (key, item) in entries {
                name_outputs(program, item, inner(key), names);
            }
        }
        Output::Input(_) | Output::Constant(_) => {}
    }
}

fn typed(inputs: &[TensorSpec]) -> Vec<Value> {
    let value = |spec: &TensorSpec| Value::tensor(type_of(spec));
    inputs.iter().map(value).collect()
}

fn type_of(spec: &TensorSpec) -> TensorType {
    let sizes = spec.shape.iter();
    // Larger sizes are refused before any memory is allocated for them.
    let sizes = sizes.map(|&size| Dim::Known(i64::try_from(size).unwrap_or(i64::MAX)));
    TensorType::new(spec.dtype, sizes)
}

/// The types of the attributes of a graph, as the file gives them.
#[derive(Debug)]
struct FileHost {
    attributes: FxHashMap<String, Value>,
    count: usize,
    graphs: Arc<CalledGraphs>,
    limits: Limits,
}

impl FileHost {
    fn of<'w>(
        weights: impl Iterator<Item = &'w TensorSpec>,
        graphs: Arc<CalledGraphs>,
        limits: Limits,
    ) -> Self {
        let attribute = |(number, spec): (usize, &TensorSpec)| {
            let tensor = TypedTensor {
                storage: Storage::from_index(number),
                ..TypedTensor::new(type_of(spec))
            };
            (spec.name.clone(), Value::Tensor(tensor))
        };
        let attributes: FxHashMap<String, Value> = weights.enumerate().map(attribute).collect();
        Self {
            count: attributes.len(),
            attributes,
            graphs,
            limits,
        }
    }
}

impl TypeHost for FileHost {
    fn module(&self, _path: &str) -> Option<&ModuleFacts> {
        None
    }

    fn attribute(&self, path: &str) -> Option<Value> {
        let graph = || self.graphs.get(path).map(|_| Value::Graph(path.into()));
        self.attributes.get(path).cloned().or_else(graph)
    }

    fn graph<'s>(&'s self, name: &str, inputs: &[Value], settings: Settings) -> CalledGraph<'s> {
        let graph = self.graphs.get(name)?;
        let mut types = Propagator::new(self, settings);
        let found = find_types(graph, &mut types, inputs, &self.limits);
        let found = found.map_err(|error| match error {
            ModelError::Types(error) => Failure::invalid(
                format!(
                    "{} in node {} of the graph {name}",
                    error.expected, error.name
                ),
                error.got,
            ),
            error => Failure::unknown(format!("the graph {name}: {error}")),
        });
        Some(found.map(|()| (graph, types)))
    }

    fn constant(&self, _id: ExternalId) -> Option<Value> {
        None
    }

    fn weight_count(&self) -> usize {
        self.count
    }
}
