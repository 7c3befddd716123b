//! The analysis that precedes printing.

use corsac_ir::{Arg, EntityId, ExternalId, Graph, Node, Op, Target};
use rustc_hash::FxHashSet;

use crate::error::CodegenError;
use crate::host::{Expr, Host, Piece};
use crate::names::{Clash, Namer};
use crate::options::{Calling, Options};
use crate::parameters::identifiers;
use crate::plan::{CallForm, FunctionText, Input, Plan};

/// The reason why an analysis ended early.
pub(crate) enum Stop {
    Clash,
    Error(CodegenError),
}

impl From<Clash> for Stop {
    fn from(Clash: Clash) -> Self {
        Self::Clash
    }
}

/// Makes the plan that the printer needs.
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

pub(crate) fn leading_identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

/// An analysis under way.
pub(crate) struct Analysis<'a, 'g> {
    host: &'a dyn Host,
    pub(crate) options: &'a Options,
    pub(crate) namer: Namer<'g>,
    /// Identifiers in texts of the host.
    pub(crate) mentioned: FxHashSet<Box<str>>,
    /// Whether a node that is no placeholder has been met.
    past_inputs: bool,
    pub(crate) plan: Plan<'g>,
}

impl<'a, 'g> Analysis<'a, 'g> {
    pub(crate) fn new(
        graph: &'g Graph,
        options: &'a Options,
        host: &'a dyn Host,
        namer: Namer<'g>,
    ) -> Self {
        Self {
            host,
            options,
            namer,
            mentioned: FxHashSet::default(),
            past_inputs: false,
            plan: Plan::new(graph),
        }
    }

    pub(crate) fn run(mut self, own: &[&str]) -> Result<Plan<'g>, Stop> {
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

    /// Names the values and globals that a node's code mentions, in the order in which torch.fx
    /// writes them.
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

    /// Records the inputs of a node as used, for arguments that are not written.
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

    /// The text of an expression of the host, with the names that its globals get.
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
