//! Lowering of a graph to a program.
//!
//! Every call becomes a few steps of the small set of operators; numbers and shapes that are known
//! before the program runs become attributes of steps. The operator of a call is found by its name,
//! whether it is written as a function, a method or a module of `torch.nn` ([`call`]); its lowering
//! is in the [`table`].

mod activation;
mod arithmetic;
mod attention;
mod call;
mod comparison;
mod control;
mod conversion;
mod convolution;
mod dropout;
mod einsum;
mod element;
mod indexing;
mod joining;
mod linear_algebra;
mod loss;
mod narrow;
mod normalisation;
mod pooling;
mod quantisation;
mod recurrent;
mod reduction;
mod sharing;
mod swin;
mod table;
mod view;
mod writes;

use corsac_ir::{Arg, DType, DeviceKind, Graph, NodeId, Op as GraphOp, SecondaryMap};
use corsac_ops::shape::{Propagator, Storage, Tensor, TensorType, Value};
use corsac_ops::signature::takes;
use corsac_ops::{Catalogue, is_operator};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::program::{Constant, Element, Op, Output, Program, Source, Step, ValueId};
use call::{Call, as_number};
pub use element::DTYPES;
pub(crate) use element::element_of;
pub(crate) use narrow::integer_bits;
use quantisation::Integers;
use sharing::Sharing;
pub use table::lowered_operators;

/// A graph that cannot be lowered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node {name} ({target}) cannot be compiled: {reason}")]
pub struct LowerError {
    /// The node.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// The target of the call.
    pub target: String,
    /// The reason.
    pub reason: String,
}

/// The reason why a call cannot be lowered.
type Reason = String;

/// The lowered value of a node.
#[derive(Clone, Debug)]
enum Lowered {
    /// A tensor.
    Tensor(ValueId),
    /// A tuple or list with tensors in it.
    Items(Vec<Lowered>),
    /// Something that is known before the program runs.
    Known(Value),
}

/// Lowers `graph`, the types of all values of which are in `types`.
///
/// # Errors
/// The first node that is not supported, with the reason.
pub fn lower(graph: &Graph, types: &Propagator<'_>) -> Result<Program, LowerError> {
    lower_with(graph, types, Writes::Nothing)
}

/// Lowers `graph`, whose calls may write to inputs. No input shares memory with another or with a
/// weight.
///
/// # Errors
/// As [`lower`].
pub fn lower_with_writes(graph: &Graph, types: &Propagator<'_>) -> Result<Program, LowerError> {
    lower_with(graph, types, Writes::Inputs)
}

/// Lowers `graph`, whose calls may write to these inputs. None of them shares memory with another or with a weight.
///
/// # Errors
/// As [`lower`].
pub(crate) fn lower_with(
    graph: &Graph,
    types: &Propagator<'_>,
    writes: Writes,
) -> Result<Program, LowerError> {
    let mut lowerer = Lowerer::new(graph, types, writes);
    for node in graph.nodes() {
        lowerer.node = node;
        let lowered = lowerer.step(node);
        lowered.map_err(|reason| lowerer.error(graph, reason))?;
        lowerer.check_sizes(graph)?;
    }
    lowerer.note_written();
    lowerer.note_precision();
    Ok(lowerer.program)
}

/// Lowers every node of `graph` by itself, and returns those that are not supported, with the
/// reasons. The others could be lowered if the values of these were inputs.
#[must_use]
pub fn unsupported(graph: &Graph, types: &Propagator<'_>) -> Vec<(NodeId, String)> {
    unsupported_with(graph, types, Writes::Nothing)
}

/// As [`unsupported`], where calls may write to these inputs.
pub(crate) fn unsupported_with(
    graph: &Graph,
    types: &Propagator<'_>,
    writes: Writes,
) -> Vec<(NodeId, String)> {
    let mut lowerer = Lowerer::new(graph, types, writes);
    let mut found = Vec::new();
    for node in graph.nodes() {
        lowerer.node = node;
        if let Err(reason) = lowerer.step(node) {
            let given = lowerer.given(types.value(node));
            lowerer.lowered.set(node, Some(given));
            found.push((node, reason));
        }
    }
    found
}

/// The inputs that calls may write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// None.
    Nothing,
    /// All, in memory of the caller.
    Inputs,
    /// Those from this number on, which hold the state of a session.
    State(usize),
}

impl Writes {
    /// Whether calls may write to the input with this number.
    fn include(self, input: usize) -> bool {
        match self {
            Self::Nothing => false,
            Self::Inputs => true,
            Self::State(first) => input >= first,
        }
    }
}

struct Lowerer<'g, 'h> {
    graph: &'g Graph,
    types: &'g Propagator<'h>,
    program: Program,
    lowered: SecondaryMap<NodeId, Option<Lowered>>,
    /// The placeholders of tensors, in order.
    inputs: Vec<NodeId>,
    /// Values of weights, by storage and type.
    weights: FxHashMap<Storage, ValueId>,
    /// The values of types of fewer bits than their elements: roots, and aliases of another type.
    narrow: FxHashMap<ValueId, DType>,
    /// Values rounded to such a type; what is rounded already is so to itself.
    rounded: FxHashMap<ValueId, ValueId>,
    /// Sum of the sizes to which images were interpolated.
    resampled: usize,
    /// Integers that are levels of numbers, or halves of bytes.
    integers: FxHashMap<ValueId, Integers>,
    /// The rows of numbers that scales and zero points were computed for, with the bounds of levels.
    row_parameters: FxHashMap<[ValueId; 2], (ValueId, [f32; 2])>,
    /// The operators of nodes.
    catalogue: Catalogue<'g>,
    /// Values that may share memory, computed at the first use.
    sharing: Option<Sharing>,
    /// The current node.
    node: NodeId,
    /// Number of values whose sizes have been checked.
    checked: usize,
    writes: Writes,
    /// The type of the floating-point numbers of the current call.
    float: Element,
    /// The values that are returned, with their storages in the graph.
    returned: Vec<(ValueId, Storage)>,
}

impl<'g, 'h> Lowerer<'g, 'h> {
    fn new(graph: &'g Graph, types: &'g Propagator<'h>, writes: Writes) -> Self {
        Self {
            graph,
            types,
            program: Program::default(),
            lowered: SecondaryMap::new(),
            inputs: Vec::new(),
            weights: FxHashMap::default(),
            narrow: FxHashMap::default(),
            rounded: FxHashMap::default(),
            resampled: 0,
            integers: FxHashMap::default(),
            row_parameters: FxHashMap::default(),
            catalogue: Catalogue::new(types),
            sharing: None,
            node: NodeId::ROOT,
            checked: 0,
            writes,
            float: Element::F32,
            returned: Vec::new(),
        }
    }

    /// The number of the input that a placeholder is.
    fn input_number(&self, placeholder: NodeId) -> Option<usize> {
        self.inputs.iter().position(|&node| node == placeholder)
    }

    /// Records the inputs that were written to.
    fn note_written(&mut self) {
        for (number, &node) in self.inputs.iter().enumerate() {
            if let Some(Lowered::Tensor(value)) = self.lowered.get(node) {
                let root = self.program.root(*value);
                if self.program.value(root).source != Source::Input(number) {
                    self.program.written.push((number, *value));
                }
            }
        }
    }

    /// Checks that the values that were added since the last call do not have too many elements.
    fn check_sizes(&mut self, graph: &Graph) -> Result<(), LowerError> {
        let new = &self.program.values[self.checked..];
        self.checked = self.program.values.len();
        let fits = |shape: &[usize]| {
            let mut sizes = shape.iter().filter(|&&size| size > 0);
            let len = sizes.try_fold(1_usize, |len, &size| len.checked_mul(size));
            len.is_some_and(|len| len < isize::MAX as usize / 8)
        };
        match new.iter().find(|value| !fits(&value.shape)) {
            None => Ok(()),
            Some(value) => Err(self.error(graph, format!("elements for {:?}", value.shape))),
        }
    }

    fn error(&self, graph: &Graph, reason: Reason) -> LowerError {
        let view = graph.node(self.node);
        LowerError {
            node: self.node,
            name: view.name().to_owned(),
            target: view.target_name().to_owned(),
            reason,
        }
    }

    /// A value that is computed outside the program: an input.
    fn given(&mut self, value: &Value) -> Lowered {
        match value {
            Value::Tensor(tensor) => match sizes(tensor) {
                Ok(shape) => self.input(tensor, shape),
                Err(_) => Lowered::Known(value.clone()),
            },
            Value::Tuple(items) | Value::List(items) => {
                Lowered::Items(items.iter().map(|item| self.given(item)).collect())
            }
            other => Lowered::Known(other.clone()),
        }
    }

    fn input(&mut self, tensor: &TensorType, shape: Vec<usize>) -> Lowered {
        let source = Source::Input(self.program.inputs);
        self.program.inputs += 1;
        self.inputs.push(self.node);
        let element = element_of(tensor.dtype).unwrap_or_default();
        let value = self.program.add_typed(element, shape, source);
        self.program.input_dtypes.push(tensor.dtype);
        self.note_narrow(value, tensor.dtype);
        Lowered::Tensor(value)
    }

    fn step(&mut self, node: NodeId) -> Result<(), Reason> {
        let view = self.graph.node(node);
        let lowered = match view.op() {
            GraphOp::Placeholder if self.types.value(node).as_tensor().is_none() => {
                // A default value, or a number for which the program is specialised.
                self.known(self.types.value(node))?
            }
            GraphOp::Placeholder => {
                let tensor = tensor_of(self.types.value(node))?;
                match tensor.storage.index() < self.types.weight_count() {
                    // An operand of a graph that is a weight.
                    true => Lowered::Tensor(self.weight(tensor)?),
                    false => self.input(tensor, sizes(tensor)?),
                }
            }
            // An attribute that the engine cannot hold is no error until a step reads it.
            GraphOp::GetAttr => match self.types.value(node) {
                value @ Value::Tensor(tensor) if sizes(tensor).is_err() => {
                    Lowered::Known(value.clone())
                }
                value => self.known(value)?,
            },
            GraphOp::Output => {
                let result = view
                    .args()
                    .first()
                    .map(|arg| self.output(arg))
                    .transpose()?;
                self.program.output = Some(result.unwrap_or(Output::Constant(Constant::None)));
                let results = self.program.outputs().into_iter();
                self.program.output_dtypes = results.map(|value| self.dtype(value)).collect();
                return Ok(());
            }
            GraphOp::CallFunction | GraphOp::CallMethod | GraphOp::CallModule => {
                let value = self.types.value(node);
                if let Some(reason) = value.unknown_reason() {
                    return Err(format!("its type is not known: {reason}"));
                }
                let mut has_tensors = false;
                value.for_each_tensor(&mut |_| has_tensors = true);
                if has_tensors || is_assignment(view.target_name()) {
                    let first = self.program.steps.len();
                    let lowered = self.call(node)?;
                    self.check_doubles(first)?;
                    lowered
                } else {
                    self.check_writes(node)?;
                    Lowered::Known(value.clone())
                }
            }
        };
        self.lowered.set(node, Some(lowered));
        Ok(())
    }

    /// Calls that return no tensor are left out of programs, so that they must not write to one.
    fn check_writes(&mut self, node: NodeId) -> Result<(), Reason> {
        let effects = self.catalogue.effects(self.graph, node);
        effects.mutates.first().map_or(Ok(()), |&written| {
            let name = self.graph.node(written).name();
            Err(format!("it writes to {name} and gives nothing"))
        })
    }

    fn call(&mut self, node: NodeId) -> Result<Lowered, Reason> {
        self.check_arguments(node)?;
        let mut call = Call::of(self, node)?;
        call.in_place |= is_operator!(call.operator, "setitem");
        self.float = self.float_of(&mut call);
        if let Some(own) = self.taken_result(node, &call) {
            // What has been written to it since is in it.
            return self.operand(&Arg::Node(own));
        }
        self.check_effects(node, &call)?;
        self.check_precision(&mut call)?;
        if !call.out.is_empty() {
            return self.call_into_out(node, call);
        }
        if call.in_place {
            return self.call_in_place(node, call);
        }
        let lowered = self.computed(&mut call)?;
        let lowered = self.as_typed(&call, lowered)?;
        self.check_types(&lowered, self.types.value(node))?;
        Ok(lowered)
    }

    /// The type of the floating-point numbers that a call computes with: those that it returns, or else
    /// those that it reads.
    fn float_of(&self, call: &mut Call) -> Element {
        let mut given = None;
        self.types.value(self.node).for_each_tensor(&mut |tensor| {
            let element = element_of(tensor.dtype).ok();
            given = given.max(element.filter(|own| own.is_float()));
        });
        let mut read = call.tensors_mut().map(|own| self.program.element(*own));
        match given {
            Some(element) => element,
            None if read.any(|own| own == Element::F64) => Element::F64,
            None => Element::F32,
        }
    }

    /// Checks that a call that writes numbers of float32 does not compute them in double precision.
    fn check_precision(&self, call: &mut Call) -> Result<(), Reason> {
        if !call.in_place
            || self.float == Element::F64
            || !call.operator.row().converts_operands
            || is_operator!(call.operator, "copy" | "setitem")
        {
            return Ok(());
        }
        let is_wide = |own: &mut ValueId| {
            self.program.element(*own) == Element::F64 && !self.program.shape(*own).is_empty()
        };
        match call.tensors_mut().any(is_wide) {
            true => Err("a result of float32 computed in float64".to_owned()),
            false => Ok(()),
        }
    }

    /// Checks that there are kernels for the numbers of double precision in the steps from `first` on.
    fn check_doubles(&self, first: usize) -> Result<(), Reason> {
        for step in &self.program.steps[first..] {
            let read = step.reads().chain([step.output]);
            let elements: SmallVec<[Element; 4]> =
                read.map(|own| self.program.element(own)).collect();
            let own = |element: Element| elements.contains(&element);
            let is_mixed = own(Element::F32) && !matches!(step.op, Op::Cast | Op::Control(_));
            if own(Element::F64) && (is_mixed || !step.op.takes_doubles()) {
                return Err(format!("{} of float64", step.op.name()));
            }
        }
        Ok(())
    }

    /// Checks that PyTorch accepts such arguments: type rules have one list of parameters for all
    /// overloads.
    fn check_arguments(&self, node: NodeId) -> Result<(), Reason> {
        let view = self.graph.node(node);
        let keywords = view.kwargs().iter();
        let keywords = keywords.map(|(keyword, _)| self.graph.text(*keyword));
        match takes(view.op(), view.target_name(), view.args().len(), keywords) {
            true => Ok(()),
            false => Err("no overload takes such arguments".to_owned()),
        }
    }

    /// Checks that a call writes to nothing but its results: its first argument, or those given by `out=`.
    fn check_effects(&mut self, node: NodeId, call: &Call) -> Result<(), Reason> {
        let (graph, types) = (self.graph, self.types);
        let truth = |arg: &Arg| truth(&types.argument(graph, arg));
        let effects = self.catalogue.effects_given(graph, node, &truth);
        if effects.opaque {
            // Functions with type rules but without effects: they write to nothing.
            return Ok(());
        }
        let first = self.graph.node(node).args().first().and_then(Arg::as_node);
        let is_first = |written: &NodeId| call.in_place && first == Some(*written);
        let other = |written: &&NodeId| !is_first(written) && !call.out.contains(written);
        match effects.mutates.iter().find(other) {
            None => Ok(()),
            Some(&written) => {
                let name = self.graph.node(written).name();
                Err(format!("it writes to {name}"))
            }
        }
    }

    /// Checks that the result has the types of the call.
    fn check_types(&self, lowered: &Lowered, expected: &Value) -> Result<(), Reason> {
        match (lowered, expected) {
            (Lowered::Tensor(value), Value::Tensor(tensor)) => {
                let (dtype, shape) = (self.dtype(*value), self.program.shape(*value));
                if dtype == tensor.dtype && shape == sizes(tensor)? {
                    return Ok(());
                }
                Err(format!("{dtype}{shape:?} in the place of {}", tensor.ty))
            }
            (Lowered::Items(items), expected) => {
                let types: Vec<&Value> = match expected {
                    Value::Tuple(types) | Value::List(types) => types.iter().collect(),
                    Value::Named(types) => types.iter().map(|(_, own)| own).collect(),
                    _ => return Err("several results in the place of one".to_owned()),
                };
                if types.len() != items.len() {
                    return Err("another number of results".to_owned());
                }
                let mut pairs = items.iter().zip(types);
                pairs.try_for_each(|(item, own)| self.check_types(item, own))
            }
            // Known, or a value that may not be read.
            (Lowered::Known(_), _) => Ok(()),
            (Lowered::Tensor(_), _) => Err("a tensor in the place of something else".to_owned()),
        }
    }

    /// Checks that a call computes with floating-point numbers, or only moves elements; operands of
    /// other types are converted where the operator table allows it.
    fn check_elements(&mut self, call: &mut Call) -> Result<(), Reason> {
        let row = call.operator.row();
        if row.moves_elements {
            return Ok(());
        }
        let mut results = Ok(());
        self.types
            .value(self.node)
            .for_each_tensor(&mut |tensor| match element_of(tensor.dtype) {
                Ok(own) if own == self.float => {}
                _ => results = Err(format!("{} of {}", call.operator.name(), tensor.dtype)),
            });
        results?;
        let casts = row.converts_operands || call.get("dtype").is_some();
        for operand in call.tensors_mut() {
            let element = self.program.element(*operand);
            if element == self.float {
                continue;
            }
            if !casts {
                return Err(format!("an operand of {}", element.name()));
            }
            *operand = self.cast(*operand, self.float);
        }
        Ok(())
    }

    /// The aliases of the tensor that `node` writes to, of those that are read later.
    fn shown(&mut self, node: NodeId, argument: NodeId) -> Result<Vec<NodeId>, Reason> {
        let graph = self.graph;
        let sharing = self
            .sharing
            .get_or_insert_with(|| Sharing::of(graph, self.types, &mut self.catalogue));
        let shown = sharing.shown(graph, node, argument)?;
        let refused = |other: &&NodeId| {
            graph.node(**other).op() == GraphOp::Placeholder
                && !self
                    .input_number(**other)
                    .is_some_and(|input| self.writes.include(input))
        };
        match shown.iter().find(refused) {
            Some(&input) => Err(format!(
                "it writes to the input {}",
                graph.node(input).name()
            )),
            None => Ok(shown),
        }
    }

    /// A weight, a constant tensor, or a known value.
    fn known(&mut self, value: &Value) -> Result<Lowered, Reason> {
        match value {
            Value::Tensor(tensor) => self.weight(tensor).map(Lowered::Tensor),
            Value::Unknown(reason) => Err(format!("its type is not known: {reason}")),
            other => Ok(Lowered::Known(other.clone())),
        }
    }

    fn weight(&mut self, tensor: &Tensor) -> Result<ValueId, Reason> {
        let number = tensor.storage.index();
        if number >= self.types.weight_count() {
            return Err("a tensor that is no weight and no value of the graph".to_owned());
        }
        if let Some(&known) = self.weights.get(&tensor.storage) {
            return Ok(known);
        }
        let shape = sizes(tensor)?;
        let element = element_of(tensor.dtype)?;
        let value = self
            .program
            .add_typed(element, shape, Source::Weight(number));
        self.weights.insert(tensor.storage, value);
        self.note_narrow(value, tensor.dtype);
        Ok(value)
    }

    fn operand(&mut self, arg: &Arg) -> Result<Lowered, Reason> {
        let has_nodes = {
            let mut found = false;
            arg.for_each_node(&mut |_| found = true);
            found
        };
        match arg {
            Arg::Node(id) => match self.lowered.get(*id) {
                Some(lowered) => Ok(lowered.clone()),
                None => Err("it reads a value that is not there".to_owned()),
            },
            Arg::Tuple(items) | Arg::List(items) if has_nodes => {
                let items: Result<Vec<_>, _> = items.iter().map(|i| self.operand(i)).collect();
                let items = items?;
                let known = |item: &Lowered| match item {
                    Lowered::Known(value) => Some(value.clone()),
                    _ => None,
                };
                match items.iter().map(known).collect::<Option<Vec<_>>>() {
                    // An index is another one as a list.
                    Some(known) if matches!(arg, Arg::List(_)) => {
                        Ok(Lowered::Known(Value::List(known.into())))
                    }
                    Some(known) => Ok(Lowered::Known(Value::Tuple(known.into()))),
                    None => Ok(Lowered::Items(items)),
                }
            }
            Arg::Opaque(_) => {
                let value = self.types.argument(self.graph, arg);
                self.known(&value)
            }
            other => Ok(Lowered::Known(self.types.argument(self.graph, other))),
        }
    }

    fn output(&mut self, arg: &Arg) -> Result<Output, Reason> {
        let all = |me: &mut Self, items: &[Arg]| -> Result<Vec<Output>, Reason> {
            items.iter().map(|item| me.output(item)).collect()
        };
        match arg {
            Arg::Tuple(items) => all(self, items).map(Output::Tuple),
            Arg::List(items) => all(self, items).map(Output::List),
            Arg::Dict(entries) => {
                let entries = entries.iter().map(|(key, value)| match key {
                    Arg::Str(key) => Ok((self.graph.text(*key).to_owned(), self.output(value)?)),
                    _ => Err("a dictionary whose keys are no strings".to_owned()),
                });
                entries.collect::<Result<_, _>>().map(Output::Dict)
            }
            Arg::Node(node) => {
                let itself = same_input(self.graph, self.types, *node)
                    .filter(|_| self.writes == Writes::Inputs);
                if let Some(input) = itself.and_then(|input| self.input_number(input)) {
                    return Ok(Output::Input(input));
                }
                let mut lowered = self.operand(arg)?;
                if let Lowered::Tensor(value) = &mut lowered {
                    *value = self.returned_as(*node, *value)?;
                }
                returned(lowered)
            }
            constant => self.operand(constant).and_then(returned),
        }
    }

    /// The value to return for a node: an alias, if the same value is returned for another node
    /// with other storage, as that of a copy.
    fn returned_as(&mut self, node: NodeId, value: ValueId) -> Result<ValueId, Reason> {
        let storage = tensor_of(self.types.value(node))?.storage;
        let mut same = self.returned.iter().filter(|(own, _)| *own == value);
        let value = match same.any(|(_, own)| *own != storage) {
            true => {
                let (element, shape) = (self.program.element(value), self.shape(value));
                let whole = self.program.root(value);
                let alias = self.program.add_typed(element, shape, Source::Alias(whole));
                self.note_alias(alias, value);
                alias
            }
            false => value,
        };
        self.returned.push((value, storage));
        Ok(value)
    }

    // -- building blocks of operators ----------------------------------------------------------

    /// Adds a step whose result has the shape `shape`, and floating-point numbers: of the type of its
    /// inputs, or else of the call.
    fn emit(
        &mut self,
        op: Op,
        inputs: impl IntoIterator<Item = ValueId>,
        shape: impl Into<Vec<usize>>,
    ) -> ValueId {
        let inputs: SmallVec<[ValueId; 4]> = inputs.into_iter().collect();
        let mut elements = inputs.iter().map(|&input| self.program.element(input));
        let element = elements.find(|own| own.is_float());
        self.emit_typed(op, inputs, element.unwrap_or(self.float), shape)
    }

    /// Adds a step whose result has this element type.
    fn emit_typed(
        &mut self,
        op: Op,
        inputs: impl IntoIterator<Item = ValueId>,
        element: Element,
        shape: impl Into<Vec<usize>>,
    ) -> ValueId {
        let output = self.program.add_typed(element, shape.into(), Source::Step);
        self.program.steps.push(Step {
            op,
            inputs: inputs.into_iter().collect(),
            epilogues: SmallVec::new(),
            output,
            node: self.node,
        });
        output
    }

    /// `value` under another shape with the same number of elements.
    fn alias(&mut self, value: ValueId, shape: Vec<usize>) -> ValueId {
        if self.program.shape(value) == shape {
            return value;
        }
        // An alias of the root: chains of aliases cost nothing.
        let whole = self.program.root(value);
        let element = self.program.element(value);
        let alias = self.program.add_typed(element, shape, Source::Alias(whole));
        self.note_alias(alias, value);
        alias
    }

    fn shape(&self, value: ValueId) -> Vec<usize> {
        self.program.shape(value).to_vec()
    }

    /// The shape of the value of the current node.
    fn result_shape(&self) -> Result<Vec<usize>, Reason> {
        sizes(tensor_of(self.types.value(self.node))?)
    }

    /// The shapes of the results of the node.
    fn result_shapes(&self) -> Result<Vec<Vec<usize>>, Reason> {
        let mut shapes = Vec::new();
        let results = self.types.value(self.node);
        results.for_each_tensor(&mut |tensor| shapes.push(sizes(tensor)));
        shapes.into_iter().collect()
    }

    /// A pair of tensors, with the shapes of the results of the node.
    fn pair(&mut self, values: [ValueId; 2]) -> Result<Lowered, Reason> {
        let shapes = self.result_shapes()?;
        if shapes.len() != 2 {
            return Err("it has other results than two tensors".to_owned());
        }
        let both = values.into_iter().zip(shapes);
        let both = both.map(|(value, shape)| Lowered::Tensor(self.alias(value, shape)));
        Ok(Lowered::Items(both.collect()))
    }
}

/// The placeholder whose tensor the value of a node is: calls in place return their input, and so
/// do conversions to the type that it has.
#[must_use]
pub fn same_input(graph: &Graph, types: &Propagator<'_>, mut node: NodeId) -> Option<NodeId> {
    loop {
        let view = graph.node(node);
        let own = types.value(node).as_tensor()?;
        match view.op() {
            GraphOp::Placeholder => return Some(node),
            GraphOp::CallFunction | GraphOp::CallMethod => {}
            GraphOp::CallModule | GraphOp::GetAttr | GraphOp::Output => return None,
        }
        let binding = types.binding(graph, view).ok()?;
        let first = binding.out.or(view.args().first()).and_then(Arg::as_node)?;
        let given = types.value(first).as_tensor()?;
        let converts = binding.operator.row().conversion.is_some();
        let same = own.storage == given.storage
            && own.dtype == given.dtype
            && (own.shape == given.shape && own.strides == given.strides);
        if !same || !(binding.out.is_some() || binding.in_place || converts) {
            return None;
        }
        node = first;
    }
}

/// Whether a function is `x[index] = value`.
fn is_assignment(target: &str) -> bool {
    matches!(target, "operator.setitem" | "_operator.setitem")
}

fn returned(lowered: Lowered) -> Result<Output, Reason> {
    match lowered {
        Lowered::Tensor(value) => Ok(Output::Value(value)),
        Lowered::Items(items) => items
            .into_iter()
            .map(returned)
            .collect::<Result<_, _>>()
            .map(Output::Tuple),
        Lowered::Known(value) => known_result(&value),
    }
}

/// A result that is the same in each call.
fn known_result(value: &Value) -> Result<Output, Reason> {
    let all = |items: &[Value]| items.iter().map(known_result).collect::<Result<_, _>>();
    let constant = match value {
        Value::None => Constant::None,
        Value::Bool(truth) => Constant::Bool(*truth),
        Value::Int(dim) => Constant::Int(dim.known().ok_or("a size that is not known")?),
        Value::Float(number) => Constant::Float(*number),
        Value::Str(text) => Constant::Str(text.to_string()),
        Value::Tuple(items) => return all(items).map(Output::Tuple),
        Value::List(items) => return all(items).map(Output::List),
        other => return Err(not_held(other, "the result")),
    };
    Ok(Output::Constant(constant))
}

/// The reason why a known value is no tensor of the engine.
fn not_held(value: &Value, what: &str) -> Reason {
    match value {
        Value::Tensor(tensor) => format!("a tensor of {}", tensor.dtype),
        _ => format!("{what} is no tensor"),
    }
}

/// Truth of a value, if it is known.
fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::None => Some(false),
        value => as_number(value).map(|number| number != 0.0),
    }
}

fn tensor_of(value: &Value) -> Result<&Tensor, Reason> {
    match value {
        Value::Tensor(tensor) => Ok(tensor),
        Value::Unknown(reason) => Err(format!("its type is not known: {reason}")),
        _ => Err("it is no tensor".to_owned()),
    }
}

/// Largest rank of the operators of PyTorch.
const MOST_DIMENSIONS: usize = 64;

/// The sizes of a tensor, if the engine can hold it.
fn sizes(ty: &TensorType) -> Result<Vec<usize>, Reason> {
    element_of(ty.dtype)?;
    if ty.shape.len() > MOST_DIMENSIONS {
        return Err(format!("a tensor of {} dimensions", ty.shape.len()));
    }
    if ty.device.kind != DeviceKind::Cpu {
        return Err(format!("a tensor on {}", ty.device));
    }
    let size = |dim: &corsac_ops::shape::Dim| {
        dim.known()
            .and_then(|size| usize::try_from(size).ok())
            .ok_or_else(|| format!("the size {dim} is not known"))
    };
    ty.shape.iter().map(size).collect()
}
