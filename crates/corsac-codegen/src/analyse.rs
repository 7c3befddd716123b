//! Everything that has to be known before a line is written.

use corsac_ir::namespace::is_reserved;
use corsac_ir::{Arg, EntityId, ExternalId, FunctionId, Graph, Node, NodeId, Op, Target};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::attribute::{is_parameter_name, is_plain_identifier};
use crate::error::CodegenError;
use crate::host::{Expr, Host, Piece};
use crate::names::{Clash, Namer, Names};
use crate::operator::Operator;
use crate::options::{Calling, Options};

/// What the printer goes by.
pub(crate) struct Plan<'g> {
    pub(crate) graph: &'g Graph,
    pub(crate) names: Names,
    functions: Vec<Option<FunctionText>>,
    values: FxHashMap<ExternalId, Box<str>>,
    annotations: FxHashMap<ExternalId, Box<str>>,
    classes: FxHashMap<ExternalId, Box<str>>,
    /// Placeholders, in order.
    pub(crate) inputs: Vec<Input>,
    /// Output nodes, in order.
    pub(crate) outputs: Vec<NodeId>,
    /// By index of a value: the node that uses it last.
    last_use: Vec<Option<NodeId>>,
    /// Placeholders whose parameter is not called what the target says.
    parameters: FxHashMap<NodeId, Box<str>>,
    /// Names of the arguments that the function called empties itself, with their positions.
    boxed: FxHashMap<NodeId, Vec<(usize, Box<str>)>>,
    /// Names of the functions marked with `wrap`.
    pub(crate) wrapped: Vec<Box<str>>,
    /// How `wrap` is written.
    pub(crate) wrap: Box<str>,
}

/// A placeholder.
#[derive(Clone, Copy)]
pub(crate) struct Input {
    pub(crate) node: NodeId,
    /// Whether other nodes come before it.
    is_late: bool,
}

/// How a function is written.
pub(crate) struct FunctionText {
    pub(crate) operator: Option<Operator>,
    /// Its name, once a call needs it.
    pub(crate) name: Option<Box<str>>,
}

/// How a call_function node is written.
pub(crate) enum CallForm<'g> {
    Operator(Operator),
    /// `x.name`
    Attribute(&'g str),
    Call,
}

impl<'g> Plan<'g> {
    /// What a value is called.
    #[inline]
    pub(crate) fn name(&self, id: NodeId) -> &str {
        if !self.names.renamed.is_empty()
            && let Some(name) = self.names.renamed.get(&id)
        {
            return name;
        }
        self.graph.node(id).name()
    }

    /// What the parameter of a placeholder is called, without stars.
    pub(crate) fn parameter<'a>(&'a self, node: Node<'a>) -> &'a str {
        match self.parameters.get(&node.id()) {
            Some(name) => name,
            None => raw_parameter(node.target_name()).1,
        }
    }

    #[inline]
    pub(crate) fn is_last_use(&self, value: NodeId, user: NodeId) -> bool {
        self.last_use[value.index()] == Some(user)
    }

    pub(crate) fn function(&self, id: FunctionId) -> &str {
        let text = self.functions[id.index()].as_ref();
        text.and_then(|text| text.name.as_deref())
            .expect("analysis named every function that is called")
    }

    /// How host values and named tuple classes are written.
    pub(crate) fn host_texts(&self) -> Vec<(ExternalId, String)> {
        let all = self.values.iter().chain(&self.classes);
        let mut texts: Vec<_> = all.map(|(id, text)| (*id, text.to_string())).collect();
        texts.sort_unstable();
        texts
    }

    pub(crate) fn value(&self, id: ExternalId) -> &str {
        &self.values[&id]
    }

    pub(crate) fn annotation(&self, id: ExternalId) -> &str {
        &self.annotations[&id]
    }

    pub(crate) fn class(&self, id: ExternalId) -> &str {
        &self.classes[&id]
    }

    pub(crate) fn boxed(&self, id: NodeId) -> &[(usize, Box<str>)] {
        if self.boxed.is_empty() {
            return &[];
        }
        self.boxed.get(&id).map_or(&[], Vec::as_slice)
    }

    /// How a call_function node is written.
    #[inline]
    pub(crate) fn call_form(&self, node: Node<'g>, function: FunctionId) -> CallForm<'g> {
        let Some(text) = &self.functions[function.index()] else {
            return CallForm::Call;
        };
        let args = node.args();
        if let Some(operator) = text.operator
            && args.len() == operator.arity()
            && node.kwargs().is_empty()
            && (!operator.assigns() || args[0].as_node().is_some())
        {
            return CallForm::Operator(operator);
        }
        if text.name.as_deref() == Some("getattr")
            && let [_, Arg::Str(name)] = args
            && is_plain_identifier(self.graph.text(*name))
        {
            return CallForm::Attribute(self.graph.text(*name));
        }
        CallForm::Call
    }
}

/// Stars and name of a placeholder's target.
pub(crate) fn raw_parameter(target: &str) -> (&str, &str) {
    let name = target.trim_start_matches('*');
    match target.len() - name.len() {
        stars @ (0..=2) => (&target[..stars], name),
        _ => ("", target),
    }
}

/// Why an analysis ended early.
enum Stop {
    Clash,
    Error(CodegenError),
}

impl From<Clash> for Stop {
    fn from(Clash: Clash) -> Self {
        Self::Clash
    }
}

/// Finds out what the printer has to know.
pub(crate) fn analyse<'g>(
    graph: &'g Graph,
    options: &Options,
    host: &dyn Host,
) -> Result<Plan<'g>, CodegenError> {
    let own = own_names(graph, options);
    let kept = Analysis::new(graph, options, host, Namer::keeping(graph)).run(&own);
    let plan = kept.or_else(|stop| match stop {
        Stop::Clash => Analysis::new(graph, options, host, Namer::in_order(graph, &own)).run(&own),
        Stop::Error(_) => Err(stop),
    });
    plan.map_err(|stop| match stop {
        Stop::Error(error) => error,
        Stop::Clash => unreachable!("names handed out one after the other do not clash"),
    })
}

/// Names that the code uses itself, so that no value may have them.
fn own_names<'a>(graph: &'a Graph, options: &'a Options) -> Vec<&'a str> {
    let mut own = Vec::new();
    let root = leading_identifier(&options.root_module);
    // The first input may be the root itself.
    let first = graph.nodes().next().map(|id| graph.node(id));
    let is_input = first.is_some_and(|node| {
        node.op() == Op::Placeholder && node.target_name() == root && node.name() == root
    });
    if !root.is_empty() && !is_input {
        own.push(root);
    }
    if options.calling == Calling::Boxed {
        own.extend(["args_list", "args_iter"]);
    }
    if options.record_func {
        own.push("_rf");
    }
    own.extend(options.reserved.iter().map(String::as_str));
    own
}

fn leading_identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

struct Analysis<'a, 'g> {
    host: &'a dyn Host,
    options: &'a Options,
    namer: Namer<'g>,
    /// Identifiers in what the host wrote.
    mentioned: FxHashSet<Box<str>>,
    /// Whether a node that is no placeholder has been met.
    past_inputs: bool,
    plan: Plan<'g>,
}

impl<'a, 'g> Analysis<'a, 'g> {
    fn new(graph: &'g Graph, options: &'a Options, host: &'a dyn Host, namer: Namer<'g>) -> Self {
        let mut functions = Vec::new();
        functions.resize_with(graph.functions().len(), || None);
        Self {
            host,
            options,
            namer,
            mentioned: FxHashSet::default(),
            past_inputs: false,
            plan: Plan {
                graph,
                names: Names {
                    renamed: FxHashMap::default(),
                    globals: Vec::new(),
                },
                functions,
                values: FxHashMap::default(),
                annotations: FxHashMap::default(),
                classes: FxHashMap::default(),
                inputs: Vec::new(),
                outputs: Vec::new(),
                last_use: vec![None; graph.id_bound()],
                parameters: FxHashMap::default(),
                boxed: FxHashMap::default(),
                wrapped: Vec::new(),
                wrap: "".into(),
            },
        }
    }

    fn run(mut self, own: &[&str]) -> Result<Plan<'g>, Stop> {
        for global in self.host.builtins() {
            self.namer.global(global)?;
        }
        let graph = self.plan.graph;
        for id in graph.nodes() {
            let node = graph.node(id);
            self.namer.declare(node)?;
            self.node(node)?;
        }
        if !self.plan.wrapped.is_empty() {
            self.plan.wrap = self.resolve(self.host.wrap())?;
        }
        for global in self.host.additional_globals() {
            self.namer.global(global)?;
        }
        self.parameters()?;
        self.namer.check(own)?;
        self.plan.names = self.namer.finish();
        Ok(self.plan)
    }

    /// Names what a node's code mentions, in the order in which torch.fx comes to write it.
    fn node(&mut self, node: Node<'g>) -> Result<(), Stop> {
        if let Some(ty) = node.ty() {
            self.annotation(node, ty)?;
        }
        match node.op() {
            Op::Placeholder => {
                let is_late = self.past_inputs;
                self.plan.inputs.push(Input {
                    node: node.id(),
                    is_late,
                });
                self.args(node, node.args().get(..1).unwrap_or(&[]))?;
                self.namer.value(node.id())?;
                self.use_all(node);
                return Ok(());
            }
            Op::GetAttr => {
                self.namer.value(node.id())?;
                self.use_all(node);
            }
            Op::CallMethod => {
                require(node, "the object whose method is called")?;
                self.namer.value(node.id())?;
                self.args(node, node.args())?;
                self.kwargs(node)?;
            }
            Op::CallModule => {
                self.namer.value(node.id())?;
                self.args(node, node.args())?;
                self.kwargs(node)?;
            }
            Op::CallFunction => self.call_function(node)?,
            Op::Output => {
                require(node, "the result")?;
                self.args(node, &node.args()[..1])?;
                self.use_all(node);
                self.plan.outputs.push(node.id());
            }
        }
        self.past_inputs = true;
        Ok(())
    }

    /// Takes note of inputs in arguments that are not written.
    fn use_all(&mut self, node: Node<'g>) {
        for input in node.inputs() {
            self.plan.last_use[input.index()] = Some(node.id());
        }
    }

    fn call_function(&mut self, node: Node<'g>) -> Result<(), Stop> {
        let Target::Function(function) = node.target() else {
            unreachable!("call_function has a function as its target");
        };
        let unknown = || unknown(node, || format!("function {}", node.target_name()));
        if self.plan.functions[function.index()].is_none() {
            let callee = self.host.callee(function).ok_or_else(unknown)?;
            self.plan.functions[function.index()] = Some(FunctionText {
                operator: callee.operator,
                name: None,
            });
        }
        if let CallForm::Operator(operator) = self.plan.call_form(node, function) {
            if operator.assigns() {
                self.args(node, node.args())?;
                self.namer.value(node.id())?;
            } else {
                self.namer.value(node.id())?;
                self.args(node, node.args())?;
            }
            return Ok(());
        }
        let is_named = |text: &FunctionText| text.name.is_some();
        if !self.plan.functions[function.index()]
            .as_ref()
            .is_some_and(is_named)
        {
            let callee = self.host.callee(function).ok_or_else(unknown)?;
            let name = self.resolve(&callee.expr)?;
            if let Some(text) = &mut self.plan.functions[function.index()] {
                text.name = Some(name);
            }
        }
        if let CallForm::Attribute(_) = self.plan.call_form(node, function) {
            self.namer.value(node.id())?;
            self.args(node, &node.args()[..1])?;
            self.use_all(node);
            return Ok(());
        }
        self.boxed(node)?;
        self.args(node, node.args())?;
        self.kwargs(node)?;
        self.namer.value(node.id())?;
        if self.host.is_wrapped(node.id()) {
            let name = self.plan.function(function);
            if !self.plan.wrapped.iter().any(|known| **known == *name) {
                let name = name.into();
                self.plan.wrapped.push(name);
            }
        }
        Ok(())
    }

    fn boxed(&mut self, node: Node<'g>) -> Result<(), Stop> {
        let mut boxed: Vec<(usize, Box<str>)> = Vec::new();
        for &position in self.host.boxed_arguments(node.id()) {
            if position >= node.args().len() {
                return Err(missing(node, "the arguments that the function empties"));
            }
            if boxed.iter().all(|(known, _)| *known != position) {
                let hint = format!("{}_boxed_arg_{position}", node.name());
                boxed.push((position, self.namer.name(&hint, false)?.into()));
            }
        }
        if !boxed.is_empty() {
            for (position, _) in &boxed {
                self.arg(node, &node.args()[*position])?;
            }
            self.plan.boxed.insert(node.id(), boxed);
        }
        Ok(())
    }

    fn args(&mut self, node: Node<'g>, args: &'g [Arg]) -> Result<(), Stop> {
        args.iter().try_for_each(|arg| self.arg(node, arg))
    }

    fn kwargs(&mut self, node: Node<'g>) -> Result<(), Stop> {
        node.kwargs()
            .iter()
            .try_for_each(|(_, arg)| self.arg(node, arg))
    }

    fn arg(&mut self, node: Node<'g>, arg: &'g Arg) -> Result<(), Stop> {
        match arg {
            Arg::Node(id) => {
                self.namer.value(*id)?;
                self.plan.last_use[id.index()] = Some(node.id());
            }
            Arg::Opaque(external) => {
                if !self.plan.values.contains_key(external) {
                    let unknown = || unknown(node, || format!("value {external}"));
                    let expr = self.host.value(*external).ok_or_else(unknown)?;
                    let text = self.resolve(expr)?;
                    self.plan.values.insert(*external, text);
                }
            }
            Arg::NamedTuple(named) => {
                let class = named.0;
                if !self.plan.classes.contains_key(&class) {
                    let unknown = || unknown(node, || format!("class {class}"));
                    let expr = self.host.class(class).ok_or_else(unknown)?;
                    let text = self.resolve(expr)?;
                    self.plan.classes.insert(class, text);
                }
                self.args(node, &named.1)?;
            }
            Arg::Tuple(items) | Arg::List(items) | Arg::Slice(items) | Arg::Range(items) => {
                self.args(node, items)?;
            }
            Arg::Dict(dict) => {
                for (key, value) in dict.iter() {
                    self.arg(node, key)?;
                    self.arg(node, value)?;
                }
            }
            Arg::None
            | Arg::Ellipsis
            | Arg::Bool(_)
            | Arg::Int(_)
            | Arg::BigInt(_)
            | Arg::Float(_)
            | Arg::Complex(_)
            | Arg::Str(_)
            | Arg::Bytes(_)
            | Arg::DType(_)
            | Arg::Device(_)
            | Arg::Layout(_)
            | Arg::MemoryFormat(_) => {}
        }
        Ok(())
    }

    fn annotation(&mut self, node: Node<'g>, ty: ExternalId) -> Result<(), Stop> {
        if !self.plan.annotations.contains_key(&ty) {
            let unknown = || unknown(node, || format!("type {ty}"));
            let expr = self.host.annotation(ty).ok_or_else(unknown)?;
            let text = self.resolve(expr)?;
            self.plan.annotations.insert(ty, text);
        }
        Ok(())
    }

    /// The text of an expression of the host's, with the names that its globals get.
    fn resolve(&mut self, expr: &Expr) -> Result<Box<str>, Stop> {
        let mut text = String::new();
        for piece in &expr.0 {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Global(global) => text.push_str(self.namer.global(global)?),
                Piece::Import(global) => {
                    self.namer.global(global)?;
                }
            }
        }
        for word in identifiers(&text) {
            if !self.mentioned.contains(word) {
                self.mentioned.insert(word.into());
            }
        }
        Ok(text.into())
    }

    /// Gives parameters another name where the target is none, or would hide what the code
    /// refers to.
    fn parameters(&mut self) -> Result<(), Stop> {
        let graph = self.plan.graph;
        let mut seen = FxHashSet::default();
        for index in 0..self.plan.inputs.len() {
            let Input { node: id, is_late } = self.plan.inputs[index];
            let node = graph.node(id);
            let (_, raw) = raw_parameter(node.target_name());
            let is_root = raw == leading_identifier(&self.options.root_module);
            let may_stay = is_parameter_name(raw)
                && (!is_root || seen.is_empty())
                && !self.hides(raw)
                // `y_1 = y` has to come before a value called y.
                && (!is_late || node.name() == raw || !self.namer.names_value(raw))
                && seen.insert(raw);
            if !may_stay {
                let name = self.namer.name(raw, false)?;
                self.plan.parameters.insert(id, name.into());
                seen.insert(raw);
            }
        }
        Ok(())
    }

    /// Whether a parameter called `name` would hide something that the code refers to.
    fn hides(&self, name: &str) -> bool {
        if !is_reserved(name) && !self.namer.is_global(name) {
            return false;
        }
        if self.mentioned.contains(name) {
            return true;
        }
        let is_written = match name {
            "torch" => {
                |arg: &Arg| matches!(arg, Arg::DType(_) | Arg::Layout(_) | Arg::MemoryFormat(_))
            }
            "device" => |arg: &Arg| matches!(arg, Arg::Device(_)),
            "slice" => |arg: &Arg| matches!(arg, Arg::Slice(_)),
            "range" => |arg: &Arg| matches!(arg, Arg::Range(_)),
            "complex" => |arg: &Arg| matches!(arg, Arg::Complex(_)),
            "Ellipsis" => |arg: &Arg| matches!(arg, Arg::Ellipsis),
            "inf" | "nan" => |arg: &Arg| match arg {
                Arg::Float(value) => !value.is_finite(),
                Arg::Complex(parts) => !parts.0.is_finite() || !parts.1.is_finite(),
                _ => false,
            },
            "getattr" => return self.writes_getattr(),
            "fx_pytree" | "pytree" => {
                return matches!(self.options.calling, Calling::PyTree(_));
            }
            "iter" | "next" | "args_list" | "args_iter" => {
                return self.options.calling == Calling::Boxed;
            }
            "_rf" => return self.options.record_func,
            _ => return false,
        };
        let graph = self.plan.graph;
        graph.nodes().any(|id| {
            let node = graph.node(id);
            let kwargs = node.kwargs().iter().map(|(_, arg)| arg);
            node.args()
                .iter()
                .chain(kwargs)
                .any(|arg| any(arg, is_written))
        })
    }

    fn writes_getattr(&self) -> bool {
        let graph = self.plan.graph;
        graph.nodes().any(|id| {
            let node = graph.node(id);
            matches!(node.op(), Op::GetAttr | Op::CallModule | Op::CallMethod)
                && node
                    .target_name()
                    .split('.')
                    .any(|part| !is_plain_identifier(part))
        })
    }
}

/// Whether `holds` for the argument or a part of it.
fn any(arg: &Arg, holds: fn(&Arg) -> bool) -> bool {
    let mut found = holds(arg);
    arg.for_each_part(&mut |part| found = found || any(part, holds));
    found
}

/// The names in an expression that stand for variables.
fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = text;
    let mut before = ' ';
    std::iter::from_fn(move || {
        loop {
            let start = rest.find(is_part)?;
            before = rest[..start].chars().next_back().unwrap_or(before);
            let tail = &rest[start..];
            let end = tail.find(|c| !is_part(c)).unwrap_or(tail.len());
            let word = &tail[..end];
            rest = &tail[end..];
            let is_attribute = before == '.';
            before = 'x';
            if !is_attribute {
                return Some(word);
            }
        }
    })
}

fn require(node: Node<'_>, expected: &'static str) -> Result<(), Stop> {
    if node.args().is_empty() {
        return Err(missing(node, expected));
    }
    Ok(())
}

fn missing(node: Node<'_>, expected: &'static str) -> Stop {
    Stop::Error(CodegenError::MissingArgument {
        op: node.op(),
        name: node.name().to_owned(),
        expected,
        got: node.args().len(),
    })
}

fn unknown(node: Node<'_>, what: impl FnOnce() -> String) -> Stop {
    Stop::Error(CodegenError::UnknownToHost {
        name: node.name().to_owned(),
        what: what(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_an_expression() {
        let words: Vec<_> = identifiers("typing_List[torch.Tensor, a.b.c]").collect();
        assert_eq!(words, ["typing_List", "torch", "a"]);
        assert_eq!(identifiers("torch.relu").collect::<Vec<_>>(), ["torch"]);
        assert_eq!(identifiers("...").count(), 0);
    }

    #[test]
    fn stars_of_a_parameter() {
        assert_eq!(raw_parameter("*args"), ("*", "args"));
        assert_eq!(raw_parameter("**kwargs"), ("**", "kwargs"));
        assert_eq!(raw_parameter("x"), ("", "x"));
        assert_eq!(raw_parameter("***x"), ("", "***x"));
    }
}
