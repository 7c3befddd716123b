//! Observers become quantise and dequantise nodes.
//!
//! A value that is observed is quantised and dequantised at once, so that its users compute on floats
//! that are whole steps. Scale and zero point are numbers in the graph; those of channels, and
//! quantised weights of functions, are attributes that the host has made. Values that are quantised at
//! each call have a scale and a zero point for each row.
//!
//! Needs: what observers have seen, from the host.
//!
//! Preserves: names and metadata of the nodes that stay.
//!
//! ```text
//! activation_post_process_0 =                    quantize = quantize_per_tensor(x, 0.1, 3, 0, 255, uint8)
//!     self.activation_post_process_0(x)     →    dequantize = dequantize_per_tensor(quantize, 0.1, 3, …)
//! relu = relu(activation_post_process_0)         relu = relu(dequantize)
//! ```
//!
//! Reference: `torch.ao.quantization.quantize_fx.convert_to_reference_fx`.

use corsac_ir::{
    Arg, DType, EntityId, FunctionId, Graph, InsertPoint, NodeId, NodeSpec, Op, Target, ThinVec,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::edits::{Added, Edits};
use crate::error::PassError;

/// The smallest and largest number of a quantised value, and its element type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The smallest number.
    pub min: i64,
    /// The largest number.
    pub max: i64,
    /// The element type.
    pub dtype: DType,
}

/// Attributes with the scales and zero points of channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channels {
    /// The dimension of the channels.
    pub axis: i64,
    /// The qualified name of the scales.
    pub scales: String,
    /// The qualified name of the zero points.
    pub zero_points: String,
}

/// The scale and zero point of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Steps {
    /// One for all.
    Tensor {
        /// The size of a step.
        scale: f64,
        /// The number that zero becomes.
        zero_point: i64,
    },
    /// One for each channel.
    Channels(Channels),
}

/// The replacement of an observer.
#[derive(Clone, Debug, PartialEq)]
pub enum Conversion {
    /// Nothing: the value stays as it is.
    Dropped,
    /// The value is quantised and dequantised.
    Static(Steps, Range),
    /// The value is quantised at each call, row by row.
    Dynamic(Range),
    /// The value is rounded to half precision.
    Half,
    /// The value does not change, and an attribute of this name has it quantised.
    Constant(String, Steps, Range),
}

/// The functions that new nodes call.
#[derive(Clone, Copy, Debug)]
pub struct Operators {
    /// `quantize_per_tensor`
    pub quantise: FunctionId,
    /// `dequantize_per_tensor`
    pub dequantise: FunctionId,
    /// `quantize_per_channel`
    pub quantise_channels: FunctionId,
    /// `dequantize_per_channel`
    pub dequantise_channels: FunctionId,
    /// `choose_qparams_per_token`
    pub choose: FunctionId,
    /// `quantize_per_token`
    pub quantise_rows: FunctionId,
    /// `dequantize_per_token`
    pub dequantise_rows: FunctionId,
    /// `operator.getitem`
    pub getitem: FunctionId,
}

/// The request to convert a graph.
#[derive(Clone, Debug)]
pub struct Request {
    /// The replacements of observers, by the paths of their modules.
    pub observers: FxHashMap<String, Conversion>,
    /// Nodes that are not to be quantised: between them, observers are dropped.
    pub left_alone: FxHashSet<NodeId>,
    /// The numbers of inputs that are quantised.
    pub quantised_inputs: Vec<usize>,
    /// The numbers of results that stay quantised.
    pub quantised_outputs: Vec<usize>,
    /// The element type of dequantised values; float32 if there is none.
    pub floats: Option<DType>,
}

/// Replaces the observers of a graph.
///
/// # Errors
/// If the graph refuses a change.
pub fn convert(
    graph: &mut Graph,
    request: &Request,
    operators: &Operators,
) -> Result<Edits, PassError> {
    let mut convert = Convert {
        operators,
        floats: request.floats,
        edits: Edits::default(),
    };
    let inputs = graph.find_nodes(Op::Placeholder, None);
    for (number, input) in inputs.into_iter().enumerate() {
        if request.quantised_inputs.contains(&number) {
            convert.dequantise_input(graph, input)?;
        }
    }
    for node in graph.find_nodes(Op::CallModule, None) {
        let view = graph.node(node);
        let Some(conversion) = request.observers.get(view.target_name()) else {
            continue;
        };
        let Some(value) = view.args().first().and_then(Arg::as_node) else {
            continue;
        };
        let left_alone = |one| request.left_alone.contains(&one);
        let skipped = view.inputs().chain(view.users()).all(left_alone);
        let by = match skipped {
            true => value,
            false => convert.value(graph, node, value, conversion)?,
        };
        graph.replace_all_uses(node, by)?;
        graph.erase(node)?;
        convert.edits.erased.push(node);
    }
    if let Some(output) = graph.output_node() {
        convert.keep_quantised(graph, output, &request.quantised_outputs)?;
    }
    Ok(convert.edits)
}

struct Convert<'a> {
    operators: &'a Operators,
    floats: Option<DType>,
    edits: Edits,
}

impl Convert<'_> {
    /// The node that an observed value becomes.
    fn value(
        &mut self,
        graph: &mut Graph,
        observer: NodeId,
        value: NodeId,
        conversion: &Conversion,
    ) -> Result<NodeId, PassError> {
        match conversion {
            Conversion::Dropped => Ok(value),
            Conversion::Half => {
                let half = self.method(
                    graph,
                    observer,
                    "to",
                    [value.into(), Arg::DType(DType::Float16)],
                )?;
                self.method(
                    graph,
                    observer,
                    "to",
                    [
                        half.into(),
                        Arg::DType(self.floats.unwrap_or(DType::Float32)),
                    ],
                )
            }
            Conversion::Dynamic(range) => self.rows(graph, observer, value, *range),
            Conversion::Constant(attribute, steps, range) => {
                let value = self.attribute(graph, observer, attribute)?;
                let rest = self.parameters(graph, observer, steps, *range)?;
                self.dequantised(graph, observer, steps, value, rest)
            }
            Conversion::Static(steps, range) => {
                let rest = self.parameters(graph, observer, steps, *range)?;
                // Whole steps stay what they are.
                if matches!(steps, Steps::Tensor { .. }) && self.is_whole(graph, value, &rest) {
                    return Ok(value);
                }
                let quantise = match steps {
                    Steps::Tensor { .. } => self.operators.quantise,
                    Steps::Channels(_) => self.operators.quantise_channels,
                };
                let quantised = self.call(graph, observer, quantise, value, rest.clone())?;
                self.dequantised(graph, observer, steps, quantised, rest)
            }
        }
    }

    fn dequantised(
        &mut self,
        graph: &mut Graph,
        observer: NodeId,
        steps: &Steps,
        quantised: NodeId,
        rest: ThinVec<Arg>,
    ) -> Result<NodeId, PassError> {
        let function = match steps {
            Steps::Tensor { .. } => self.operators.dequantise,
            Steps::Channels(_) => self.operators.dequantise_channels,
        };
        let node = self.call(graph, observer, function, quantised, rest)?;
        if let Some(floats) = self.floats {
            let args = graph.node(node).args().into();
            let out_dtype = graph.intern("out_dtype");
            graph.set_arguments(node, args, [(out_dtype, Arg::DType(floats))].into())?;
        }
        Ok(node)
    }

    /// Whether a value was dequantised with the same parameters.
    fn is_whole(&self, graph: &Graph, value: NodeId, rest: &[Arg]) -> bool {
        let view = graph.node(value);
        view.op() == Op::CallFunction
            && view.target() == Target::Function(self.operators.dequantise)
            && view.kwarg("out_dtype") == self.floats.map(Arg::DType).as_ref()
            && view.args().get(1..) == Some(rest)
    }

    /// The arguments after the value: scale, zero point, axis, range and element type.
    fn parameters(
        &mut self,
        graph: &mut Graph,
        observer: NodeId,
        steps: &Steps,
        range: Range,
    ) -> Result<ThinVec<Arg>, PassError> {
        let mut rest: ThinVec<Arg> = match steps {
            Steps::Tensor { scale, zero_point } => {
                [Arg::Float(*scale), Arg::Int(*zero_point)].into()
            }
            Steps::Channels(Channels {
                axis,
                scales,
                zero_points,
            }) => {
                let scales = self.attribute(graph, observer, scales)?;
                let zero_points = self.attribute(graph, observer, zero_points)?;
                [scales.into(), zero_points.into(), Arg::Int(*axis)].into()
            }
        };
        rest.extend([
            Arg::Int(range.min),
            Arg::Int(range.max),
            Arg::DType(range.dtype),
        ]);
        Ok(rest)
    }

    fn rows(
        &mut self,
        graph: &mut Graph,
        observer: NodeId,
        value: NodeId,
        range: Range,
    ) -> Result<NodeId, PassError> {
        let bounds = [Arg::Int(range.min), Arg::Int(range.max)];
        let chosen = self.call(
            graph,
            observer,
            self.operators.choose,
            value,
            bounds.clone(),
        )?;
        let getitem = self.operators.getitem;
        let scales = self.call(graph, observer, getitem, chosen, [Arg::Int(0)])?;
        let zero_points = self.call(graph, observer, getitem, chosen, [Arg::Int(1)])?;
        let mut rest: ThinVec<Arg> = [scales.into(), zero_points.into()].into();
        rest.extend(bounds);
        rest.push(Arg::DType(range.dtype));
        let quantise = self.operators.quantise_rows;
        let quantised = self.call(graph, observer, quantise, value, rest.clone())?;
        rest.push(Arg::DType(self.floats.unwrap_or(DType::Float32)));
        self.call(
            graph,
            observer,
            self.operators.dequantise_rows,
            quantised,
            rest,
        )
    }

    fn call(
        &mut self,
        graph: &mut Graph,
        observer: NodeId,
        function: FunctionId,
        value: NodeId,
        rest: impl IntoIterator<Item = Arg>,
    ) -> Result<NodeId, PassError> {
        let args = std::iter::once(Arg::Node(value)).chain(rest).collect();
        self.add(
            graph,
            observer,
            Op::CallFunction,
            Target::Function(function),
            args,
        )
    }

    fn method(
        &mut self,
        graph: &mut Graph,
        observer: NodeId,
        name: &str,
        args: [Arg; 2],
    ) -> Result<NodeId, PassError> {
        let name = Target::Name(graph.intern(name));
        self.add(graph, observer, Op::CallMethod, name, args.into())
    }

    fn attribute(
        &mut self,
        graph: &mut Graph,
        observer: NodeId,
        name: &str,
    ) -> Result<NodeId, PassError> {
        let name = Target::Name(graph.intern(name));
        self.add(graph, observer, Op::GetAttr, name, ThinVec::new())
    }

    /// Adds a node before an observer.
    fn add(
        &mut self,
        graph: &mut Graph,
        observer: NodeId,
        op: Op,
        target: Target,
        args: ThinVec<Arg>,
    ) -> Result<NodeId, PassError> {
        let outer = graph.set_insert_point(InsertPoint::Before(observer))?;
        let spec = NodeSpec {
            op,
            target,
            args,
            kwargs: ThinVec::new(),
            ty: None,
        };
        let node = graph.create(spec, None);
        graph.restore_insert_point(outer);
        let node = node?;
        graph.set_origin(node, graph.origin(observer));
        self.edits.added.push(Added {
            node,
            root: observer,
            has_its_value: false,
        });
        Ok(node)
    }

    /// Makes a float of an input that comes quantised, with scale and zero point.
    fn dequantise_input(&mut self, graph: &mut Graph, input: NodeId) -> Result<(), PassError> {
        let outer = graph.set_insert_point(InsertPoint::After(input))?;
        let node = graph.call_method("dequantize", [input.into()]);
        graph.restore_insert_point(outer);
        let node = node?;
        graph.set_origin(node, graph.origin(input));
        graph.replace_uses_if(input, node, |_, user| user != node)?;
        self.edits.added.push(Added {
            node,
            root: input,
            has_its_value: false,
        });
        Ok(())
    }

    /// Returns results as they are before they are dequantised.
    fn keep_quantised(
        &mut self,
        graph: &mut Graph,
        output: NodeId,
        numbers: &[usize],
    ) -> Result<(), PassError> {
        let Some(result) = graph.node(output).args().first().cloned() else {
            return Ok(());
        };
        let mut kept = FxHashSet::default();
        match &result {
            Arg::Tuple(items) | Arg::List(items) => {
                for item in numbers.iter().filter_map(|&number| items.get(number)) {
                    item.for_each_node(&mut |node| _ = kept.insert(node));
                }
            }
            other if numbers.contains(&0) => other.for_each_node(&mut |node| _ = kept.insert(node)),
            _ => {}
        }
        let mut quantised: FxHashMap<NodeId, NodeId> = FxHashMap::default();
        for node in kept {
            let view = graph.node(node);
            let is_dequantised = view.op() == Op::CallFunction
                && [
                    self.operators.dequantise,
                    self.operators.dequantise_channels,
                ]
                .iter()
                .any(|&function| view.target() == Target::Function(function));
            if let Some(source) = view.args().first().and_then(Arg::as_node)
                && is_dequantised
            {
                quantised.insert(node, source);
            }
        }
        graph.map_inputs(output, |node| quantised.get(&node).copied().map(Arg::Node))?;
        Ok(())
    }
}

/// The observers whose inputs do not depend on the inputs of the program, each with the nodes that
/// compute its input, in order.
#[must_use]
pub fn constant_inputs(graph: &Graph, observers: &FxHashSet<&str>) -> Vec<(NodeId, Vec<NodeId>)> {
    // Nodes come after their inputs.
    let mut varies = vec![true; graph.id_bound()];
    for node in graph.nodes() {
        varies[node.index()] = match graph.node(node).op() {
            Op::Placeholder | Op::Output => true,
            Op::GetAttr => false,
            Op::CallFunction | Op::CallMethod | Op::CallModule => {
                let mut inputs = graph.inputs(node).peekable();
                inputs.peek().is_none() || inputs.any(|input| varies[input.index()])
            }
        };
    }
    let mut found = Vec::new();
    for node in graph.find_nodes(Op::CallModule, None) {
        if varies[node.index()] || !observers.contains(graph.node(node).target_name()) {
            continue;
        }
        let mut needed: Vec<NodeId> = graph.inputs(node).collect();
        let mut seen: FxHashSet<NodeId> = needed.iter().copied().collect();
        let mut next = 0;
        while let Some(&one) = needed.get(next) {
            next += 1;
            needed.extend(graph.inputs(one).filter(|&input| seen.insert(input)));
        }
        needed.sort_by_key(|&one| graph.node(one).order());
        found.push((node, needed));
    }
    found
}
