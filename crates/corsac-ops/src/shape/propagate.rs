//! Types of all values of a graph, from the types of its inputs, without running it.

use corsac_ir::{
    Arg, ExternalId, FunctionId, Graph, Node, NodeId, Op, SecondaryMap, Symbol, Target,
};

use super::call::{Call, Settings};
use super::dim::Dim;
use super::error::{Failure, ShapeError};
use super::module;
use super::promotion::{is_inexact, kind};
use super::rule::{Found, InPlace, for_function, for_method};
use super::value::{Storage, Tensor, Value};
use crate::aliases::AliasClasses;
use crate::catalogue::Catalogue;
use crate::host::{FunctionInfo, Host, ModuleInfo};

/// Facts about a module: its class and its attributes.
#[derive(Clone, Debug, Default)]
pub struct ModuleFacts {
    /// Qualified name of its class: `torch.nn.modules.conv.Conv2d`.
    pub class: String,
    /// Whether it is in training mode.
    pub training: bool,
    /// Whether hooks, or a forward of its own, may change what it does.
    pub hooked: bool,
    /// Numbers, strings, tuples, parameters and buffers, by name.
    pub attributes: Vec<(Box<str>, Value)>,
}

impl ModuleFacts {
    /// The attribute called `name`.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&Value> {
        let found = self.attributes.iter().find(|(own, _)| &**own == name);
        found.map(|(_, value)| value)
    }

    /// The name of the class among `torch.nn`'s own: `Conv2d`; `None` for any other class.
    #[must_use]
    pub fn torch_class(&self) -> Option<&str> {
        let (_, class) = self
            .class
            .strip_prefix("torch.nn.modules.")?
            .rsplit_once('.')?;
        Some(class)
    }

    /// The facts that its effects depend on.
    fn info(&self) -> ModuleInfo {
        let is_set = |name: &str| match self.attribute(name) {
            Some(Value::Bool(value)) => *value,
            Some(Value::None) | None => false,
            Some(_) => true,
        };
        let drops = |name: &str| match self.attribute(name) {
            Some(Value::Float(value)) => *value,
            Some(_) => 1.0,
            None => 0.0,
        };
        ModuleInfo {
            class: self.class.clone(),
            training: self.training,
            inplace: is_set("inplace"),
            hooks: self.hooked,
            dropout: drops("dropout"),
            tracks_statistics: is_set("running_mean"),
            renormalises: is_set("max_norm"),
            ..ModuleInfo::default()
        }
    }
}

/// A graph that a call names, with the types of its values.
pub type CalledGraph<'s> = Option<Result<(&'s Graph, Propagator<'s>), Failure>>;

/// Source of the modules, attributes and constants of a graph.
pub trait TypeHost {
    /// The submodule with this qualified name.
    fn module(&self, path: &str) -> Option<&ModuleFacts>;

    /// The attribute with this qualified name.
    fn attribute(&self, path: &str) -> Option<Value>;

    /// The value of an opaque argument.
    fn constant(&self, id: ExternalId) -> Option<Value>;

    /// The graph that a [`Value::Graph`] names, and the types of its values for these inputs; `None` if there is no
    /// such graph. Graphs do not call themselves.
    ///
    /// # Errors
    /// If a call in it fails when it runs, or its types are not known.
    fn graph<'s>(&'s self, _name: &str, _inputs: &[Value], _settings: Settings) -> CalledGraph<'s> {
        None
    }

    /// Number of storages of the tensors of modules and attributes, which have the numbers below
    /// it.
    fn weight_count(&self) -> usize;
}

impl std::fmt::Debug for dyn TypeHost + '_ {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TypeHost")
    }
}

/// A host without modules, attributes and constants.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoModules;

impl TypeHost for NoModules {
    fn module(&self, _path: &str) -> Option<&ModuleFacts> {
        None
    }

    fn attribute(&self, _path: &str) -> Option<Value> {
        None
    }

    fn constant(&self, _id: ExternalId) -> Option<Value> {
        None
    }

    fn weight_count(&self) -> usize {
        0
    }
}

/// A lookup, if it was made, with its result.
type Looked = Option<Option<Found>>;

/// Types of the values of one graph, found node by node in order.
///
/// A call that fails when it runs is an error; a call of which nothing is known has an unknown
/// value, which the caller may replace ([`Propagator::set`]) by one found in another way.
pub struct Propagator<'h> {
    host: &'h dyn TypeHost,
    settings: Settings,
    values: SecondaryMap<NodeId, Option<Value>>,
    functions: SecondaryMap<FunctionId, Looked>,
    methods: SecondaryMap<Symbol, Looked>,
    storages: usize,
}

impl std::fmt::Debug for Propagator<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Propagator")
            .field("settings", &self.settings)
            .field("storages", &self.storages)
            .finish_non_exhaustive()
    }
}

impl<'h> Propagator<'h> {
    /// A propagator without any types yet.
    #[must_use]
    pub fn new(host: &'h dyn TypeHost, settings: Settings) -> Self {
        Self {
            host,
            settings,
            values: SecondaryMap::new(),
            functions: SecondaryMap::new(),
            methods: SecondaryMap::new(),
            storages: host.weight_count(),
        }
    }

    /// Types of all values of `graph` for these inputs, in the order of the placeholders; those
    /// without an input have their default value.
    ///
    /// # Errors
    /// The first call that fails when it runs.
    pub fn run(&mut self, graph: &Graph, inputs: &[Value]) -> Result<(), ShapeError> {
        self.set_inputs(graph, inputs);
        graph.nodes().try_for_each(|node| self.step(graph, node))
    }

    /// Gives the placeholders their types, in order.
    pub fn set_inputs(&mut self, graph: &Graph, inputs: &[Value]) {
        let placeholders = graph
            .nodes()
            .filter(|&node| graph.node(node).op() == Op::Placeholder);
        for (node, input) in placeholders.zip(inputs) {
            self.set(node, input.clone());
        }
    }

    /// Finds the type of the value of `node`; those of its inputs were found before.
    ///
    /// # Errors
    /// If the call fails when it runs.
    pub fn step(&mut self, graph: &Graph, node: NodeId) -> Result<(), ShapeError> {
        let view = graph.node(node);
        let value = match view.op() {
            Op::Placeholder => match (self.values.get(node), view.args().first()) {
                (Some(_), _) => return Ok(()),
                (None, Some(default)) => self.argument(graph, default),
                (None, None) => Value::unknown("no input was given"),
            },
            Op::GetAttr => {
                let value = self.host.attribute(view.target_name());
                value.unwrap_or_else(|| {
                    Value::unknown(&format!("the attribute {}", view.target_name()))
                })
            }
            Op::Output => {
                let value = view.args().first();
                value.map_or(Value::None, |value| self.argument(graph, value))
            }
            Op::CallFunction | Op::CallMethod | Op::CallModule => match self.infer(graph, view) {
                Ok(value) => value,
                Err(Failure::Unknown(reason)) => {
                    self.forget_written(graph, node);
                    Value::Unknown((*reason).into())
                }
                Err(Failure::Invalid { expected, got }) => {
                    return Err(ShapeError {
                        node,
                        name: view.name().to_owned(),
                        target: view.target_name().to_owned(),
                        expected: expected.into(),
                        got: got.into(),
                    });
                }
            },
        };
        self.set(node, value);
        Ok(())
    }

    fn infer(&mut self, graph: &Graph, node: Node<'_>) -> Result<Value, Failure> {
        let (found, call) = self.bind(graph, node)?;
        apply(found, &call)
    }

    /// Makes the types unknown of values that `node` may resize by writing to them: `x.t_()`,
    /// `x.resize_(3)`. All earlier values that may share storage with them may be names of the same
    /// tensor.
    fn forget_written(&mut self, graph: &Graph, node: NodeId) {
        let mut catalogue = Catalogue::new(self);
        let effects = catalogue.effects(graph, node);
        if !effects.reshapes || effects.mutates.is_empty() {
            return;
        }
        let classes = AliasClasses::of_graph(graph, &mut catalogue);
        let before = graph.nodes().take_while(|&other| other != node);
        let same = before.filter(|&other| {
            let mut written = effects.mutates.iter();
            written.any(|&written| classes.may_alias(other, written))
        });
        for other in same {
            let unknown = Value::unknown("its type was changed in place");
            self.values.set(other, Some(unknown));
        }
    }

    /// The rule for a node, and its call.
    pub(super) fn bind(
        &mut self,
        graph: &Graph,
        node: Node<'_>,
    ) -> Result<(Found, Call<'h>), Failure> {
        let found = match (node.op(), node.target()) {
            (Op::CallFunction, Target::Function(function)) => *self
                .functions
                .get_mut(function)
                .get_or_insert_with(|| for_function(graph.function_name(function))),
            (Op::CallMethod, Target::Name(name)) => {
                let receiver = node.args().first().map(|arg| self.argument(graph, arg));
                match receiver {
                    Some(Value::Tensor(_)) => {}
                    Some(Value::Unknown(reason)) => return Err(Failure::Unknown((*reason).into())),
                    _ => return Err(Failure::unknown("a method of something else than a tensor")),
                }
                *self
                    .methods
                    .get_mut(name)
                    .get_or_insert_with(|| for_method(graph.text(name)))
            }
            (Op::CallModule, Target::Name(path)) => {
                let facts = self.host.module(graph.text(path));
                let facts = facts.ok_or_else(|| Failure::unknown("the module is not known"))?;
                let args = node.args().iter().map(|arg| self.argument(graph, arg));
                let kwargs = node.kwargs().iter();
                let kwargs = kwargs.map(|(k, arg)| (graph.text(*k), self.argument(graph, arg)));
                return module::bind(facts, args, kwargs, self.settings);
            }
            _ => None,
        };
        let Some(found) = found else {
            return Err(Failure::unknown(format!(
                "there is no rule for {}",
                node.target_name()
            )));
        };
        let args = node.args().iter().map(|arg| self.argument(graph, arg));
        let kwargs = node.kwargs().iter();
        let kwargs = kwargs.map(|(k, arg)| (graph.text(*k), self.argument(graph, arg)));
        let mut call = Call::bind(&found.entry.signature, args, kwargs, self.settings)?;
        call.exact = found.exact;
        call.host = Some(self.host);
        Ok((found, call))
    }

    /// The value of an argument, as far as known.
    pub fn argument(&self, graph: &Graph, arg: &Arg) -> Value {
        let value_of = |node| self.value(node).clone();
        argument(graph, arg, self.host, &value_of)
    }

    /// The value of `node`, as far as known by now.
    #[must_use]
    pub fn value(&self, node: NodeId) -> &Value {
        static NOT_YET: std::sync::LazyLock<Value> =
            std::sync::LazyLock::new(|| Value::unknown("it was not reached"));
        self.values.get(node).as_ref().unwrap_or(&NOT_YET)
    }

    /// Sets the value of `node`. Tensors in new memory get a number for it.
    pub fn set(&mut self, node: NodeId, value: Value) {
        let storages = &mut self.storages;
        let mut is_new = false;
        value.for_each_tensor(&mut |tensor| is_new |= tensor.storage == Storage::NEW);
        let value = if is_new {
            value.map_tensors(&mut |tensor| {
                if tensor.storage != Storage::NEW {
                    return tensor;
                }
                *storages += 1;
                Tensor {
                    storage: Storage::from_index(*storages - 1),
                    ..tensor
                }
            })
        } else {
            value
        };
        self.values.set(node, Some(value));
    }

    /// The host of modules, attributes, constants and graphs.
    #[must_use]
    pub fn host(&self) -> &'h dyn TypeHost {
        self.host
    }

    /// The settings of calls.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// Number of storages, those of weights first.
    #[must_use]
    pub fn storage_count(&self) -> usize {
        self.storages
    }

    /// Number of storages of weights.
    #[must_use]
    pub fn weight_count(&self) -> usize {
        self.host.weight_count()
    }

    /// The type of the results of a call without its `out=`.
    ///
    /// # Errors
    /// The reason why it is not known.
    pub fn without_out(&self, graph: &Graph, node: Node<'_>) -> Result<Value, String> {
        let name = node.target_name();
        let found = match node.op() {
            Op::CallFunction => for_function(name),
            Op::CallMethod => for_method(name),
            Op::CallModule | Op::Placeholder | Op::GetAttr | Op::Output => None,
        };
        let args: Vec<Value> = node
            .args()
            .iter()
            .map(|arg| self.argument(graph, arg))
            .collect();
        let kwargs = node.kwargs().iter();
        let kwargs = kwargs.map(|(key, arg)| (graph.text(*key), self.argument(graph, arg)));
        let kwargs: Vec<(&str, Value)> = kwargs.filter(|(key, _)| *key != "out").collect();
        let found = infer_found(found, name, &args, &kwargs, self.settings);
        found.map_err(|failure| failure.to_string())
    }

    /// The facts about the module that `node` calls.
    #[must_use]
    pub fn module(&self, node: Node<'_>) -> Option<&'h ModuleFacts> {
        let host = self.host;
        (node.op() == Op::CallModule).then(|| host.module(node.target_name()))?
    }
}

/// Facts for effects, from the host of types.
impl Host for Propagator<'_> {
    fn module(&self, path: &str) -> Option<ModuleInfo> {
        self.host.module(path).map(ModuleFacts::info)
    }

    fn function(&self, _graph: &Graph, _function: FunctionId) -> FunctionInfo {
        FunctionInfo::ByName
    }
}

/// The value of an argument, as far as known, where `value_of` gives those of the nodes in it.
pub(super) fn argument(
    graph: &Graph,
    arg: &Arg,
    host: &dyn TypeHost,
    value_of: &dyn Fn(NodeId) -> Value,
) -> Value {
    let own = |arg: &Arg| argument(graph, arg, host, value_of);
    let all = |items: &[Arg]| items.iter().map(own).collect();
    match arg {
        Arg::Node(node) => value_of(*node),
        Arg::None => Value::None,
        Arg::Ellipsis => Value::Ellipsis,
        Arg::Bool(value) => Value::Bool(*value),
        Arg::Int(value) => Value::int(*value),
        Arg::BigInt(_) | Arg::Bytes(_) => Value::Object,
        Arg::Float(value) => Value::Float(*value),
        Arg::Complex(parts) => Value::Complex(parts.0, parts.1),
        Arg::Str(symbol) => Value::Str(graph.text(*symbol).into()),
        Arg::DType(dtype) => Value::DType(*dtype),
        Arg::Device(device) => Value::Device(*device),
        Arg::Layout(layout) => Value::Layout(*layout),
        Arg::MemoryFormat(format) => Value::MemoryFormat(*format),
        Arg::Tuple(items) => Value::Tuple(all(items)),
        Arg::List(items) => Value::List(all(items)),
        Arg::NamedTuple(named) => Value::Tuple(all(&named.1)),
        Arg::Slice(items) => match &**items {
            [start, stop, step] => Value::Slice([start, stop, step].map(own).into()),
            _ => Value::Object,
        },
        Arg::Range(items) => range(items).map_or(Value::Object, Value::List),
        Arg::Dict(entries) => Value::Dict(
            entries
                .iter()
                .map(|(key, value)| (own(key), own(value)))
                .collect(),
        ),
        Arg::Opaque(id) => host.constant(*id).unwrap_or(Value::Object),
    }
}

/// The items of a short range.
fn range(items: &[Arg]) -> Option<std::sync::Arc<[Value]>> {
    let [Arg::Int(start), Arg::Int(stop), Arg::Int(step)] = items else {
        return None;
    };
    let step_size = usize::try_from(*step).ok().filter(|&step| step > 0)?;
    let count = stop.saturating_sub(*start).max(0) as usize / step_size;
    (count < 1 << 16).then(|| (*start..*stop).step_by(step_size).map(Value::int).collect())
}

/// The result of a rule for a call, in-place forms and `out=` included.
pub(super) fn apply(found: Found, call: &Call<'_>) -> Result<Value, Failure> {
    let rule = found.entry.rule;
    let mut result = (rule.infer)(call)?;
    if call.settings.grad && rule.differentiable {
        result = with_grad(result, call);
    }
    if let Some(out) = &call.out {
        return written_to(out, &result);
    }
    if !found.in_place {
        return Ok(result);
    }
    match (rule.in_place, call.args.first().cloned().flatten()) {
        (InPlace::Writes, Some(Value::Tensor(own))) => in_place(own, &result),
        (InPlace::Writes, _) => Ok(result),
        (InPlace::No, _) => Err(Failure::unknown(
            "it changes the type of its argument in place",
        )),
    }
}

/// Marks floating-point results as recorded by autograd if an argument is.
fn with_grad(result: Value, call: &Call<'_>) -> Value {
    let mut recorded = false;
    let given = call.args.iter().flatten().chain(&call.rest);
    given.for_each(|arg| arg.for_each_tensor(&mut |tensor| recorded |= tensor.requires_grad));
    if !recorded {
        return result;
    }
    result.map_tensors(&mut |tensor| {
        if tensor.requires_grad || !is_inexact(tensor.dtype) {
            return tensor;
        }
        let mut ty = (*tensor.ty).clone();
        ty.requires_grad = true;
        tensor.view(ty)
    })
}

/// The result is written to `own`, whose type stays.
fn in_place(own: Tensor, result: &Value) -> Result<Value, Failure> {
    let Value::Tensor(result) = result else {
        return Ok(Value::Tensor(own));
    };
    if result.shape != own.shape {
        return Err(Failure::invalid(
            format!("a result like {}, which is written to", own.ty),
            result.ty.to_string(),
        ));
    }
    if kind(result.dtype) > kind(own.dtype) {
        return Err(Failure::invalid(
            format!("a result that fits {}", own.dtype),
            result.dtype.to_string(),
        ));
    }
    if result.requires_grad && !own.requires_grad {
        let mut ty = (*own.ty).clone();
        ty.requires_grad = true;
        return Ok(Value::Tensor(own.view(ty)));
    }
    Ok(Value::Tensor(own))
}

/// The tensors that are given for results, which are these: their types stay where their sizes are right.
fn written_to(out: &Value, result: &Value) -> Result<Value, Failure> {
    let (mut given, mut made) = (Vec::new(), Vec::new());
    out.for_each_tensor(&mut |tensor| given.push(tensor.clone()));
    result.for_each_tensor(&mut |tensor| made.push(tensor));
    let count = out.as_items().map_or(1, <[Value]>::len);
    if given.len() != made.len() || given.len() != count {
        return Err(Failure::unknown(format!("out={out} for {result}")));
    }
    if let Some((out, made)) = given.iter().zip(made).find(|(a, b)| a.shape != b.shape) {
        let text = format!("out= of {} is resized to {}", out.ty, made.ty);
        return Err(Failure::unknown(text));
    }
    let mut given = given.into_iter();
    let mut next = |own: Tensor| given.next().unwrap_or(own);
    Ok(result.clone().map_tensors(&mut next))
}

/// The type of the result of the function with this qualified name.
///
/// # Errors
/// If there is no rule, its arguments are not known, or the call fails.
pub fn infer_function(
    name: &str,
    args: &[Value],
    kwargs: &[(&str, Value)],
    settings: Settings,
) -> Result<Value, Failure> {
    let found = for_function(name);
    infer_found(found, name, args, kwargs, settings)
}

/// The type of the result of the tensor method called `name`, its tensor being the first argument.
///
/// # Errors
/// As [`infer_function`].
pub fn infer_method(
    name: &str,
    args: &[Value],
    kwargs: &[(&str, Value)],
    settings: Settings,
) -> Result<Value, Failure> {
    infer_found(for_method(name), name, args, kwargs, settings)
}

fn infer_found(
    found: Option<Found>,
    name: &str,
    args: &[Value],
    kwargs: &[(&str, Value)],
    settings: Settings,
) -> Result<Value, Failure> {
    let found = found.ok_or_else(|| Failure::unknown(format!("there is no rule for {name}")))?;
    let kwargs = kwargs.iter().map(|(name, value)| (*name, value.clone()));
    let mut call = Call::bind(
        &found.entry.signature,
        args.iter().cloned(),
        kwargs,
        settings,
    )?;
    call.exact = found.exact;
    apply(found, &call)
}

/// The symbols in the types of `values`, each once, in order.
#[must_use]
pub fn symbols<'a>(values: impl IntoIterator<Item = &'a Value>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut visit = |dim: &Dim| {
        dim.for_each_symbol(&mut |name| {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        });
    };
    for value in values {
        value.for_each_tensor(&mut |tensor| tensor.shape.iter().for_each(&mut visit));
    }
    names.sort();
    names
}
