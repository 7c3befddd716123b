//! The computation of a model: statements that record nodes.
//!
//! A statement is `name = expression`, an expression by itself, `x[i] = value`, or
//! `return expression`, as in Python. A name may be assigned again; each assignment is a new node.

use corsac_ir::{
    Arg, DType, Device, Dict, Graph, GraphError, Layout, MemoryFormat, NodeId, NodeSpec, Op, Seq,
    Symbol, Target, ThinVec,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::{ConfigError, Position};
use crate::expression::{Call, Expr, ExprKind, Parser};
use crate::policy::Policy;
use crate::token::{Kind, Source, tokens};

/// The names that graph lines may use.
pub(crate) struct Declared<'d> {
    pub(crate) modules: &'d FxHashSet<String>,
    pub(crate) tensors: &'d FxHashSet<String>,
    pub(crate) policy: &'d Policy,
}

/// The recorded graph.
pub(crate) struct Program<'d> {
    declared: Declared<'d>,
    graph: Graph,
    variables: FxHashMap<String, NodeId>,
    /// The names of the nodes.
    names: FxHashSet<Symbol>,
    functions: Vec<(String, Position)>,
    seen_functions: FxHashSet<String>,
}

/// The meaning of a path.
enum Meaning {
    Module(String),
    Tensor(String),
    /// A node, and the attributes of it that follow.
    Value(NodeId, Option<String>),
    Constant(Arg),
    Function(String),
}

type Result<T> = std::result::Result<T, ConfigError>;

impl<'d> Program<'d> {
    pub(crate) fn new(declared: Declared<'d>) -> Self {
        Self {
            declared,
            graph: Graph::new(),
            variables: FxHashMap::default(),
            names: FxHashSet::default(),
            functions: Vec::new(),
            seen_functions: FxHashSet::default(),
        }
    }

    /// Declares an input. `default` builds its default value.
    pub(crate) fn input(
        &mut self,
        name: &str,
        default: Option<&crate::Literal>,
        position: Position,
    ) -> Result<()> {
        let default = default.map(|value| self.literal(value, position));
        let default = default.transpose()?;
        let node = match default {
            None => self.graph.placeholder(name),
            Some(value) => self.graph.placeholder_with_default(name, value),
        };
        let node = node.map_err(|error| refused(position, &error))?;
        self.names.insert(self.graph.node(node).name_symbol());
        let bare = name.trim_start_matches('*').to_owned();
        if self.variables.insert(bare, node).is_some() {
            return Err(ConfigError::new(
                position,
                format!("the input {name} is declared twice"),
            ));
        }
        Ok(())
    }

    /// Records the statements of `lines`.
    pub(crate) fn run(&mut self, lines: &Source<'_>) -> Result<()> {
        let tokens = tokens(lines, 0)?;
        let mut parser = Parser::new(lines, &tokens);
        while parser.peek().kind != Kind::End {
            if parser.peek().kind == Kind::Newline {
                parser.bump();
                continue;
            }
            let start = parser.peek().start;
            if self.graph.output_node().is_some() {
                return Err(ConfigError::new(
                    lines.position(start),
                    "nothing may stand behind `return`",
                ));
            }
            self.statement(&mut parser, lines)?;
            let max_nodes = self.declared.policy.max_nodes();
            if self.graph.len() > max_nodes {
                let message = format!("the graph has more than {max_nodes} nodes");
                return Err(ConfigError::new(lines.position(start), message));
            }
        }
        Ok(())
    }

    /// The graph, and the functions that it calls. `end` is where a missing `return` should stand.
    pub(crate) fn finish(self, end: Position) -> Result<(Graph, Vec<(String, Position)>)> {
        if self.graph.output_node().is_none() {
            return Err(ConfigError::new(end, "expected `return` with the result"));
        }
        Ok((self.graph, self.functions))
    }

    fn statement(&mut self, parser: &mut Parser<'_>, lines: &Source<'_>) -> Result<()> {
        let at = parser.peek().start;
        if parser.eat_word("return") {
            let value = if matches!(parser.peek().kind, Kind::Newline | Kind::End) {
                Arg::None
            } else {
                let result = parser.expressions()?;
                self.value(&result, lines, None)?
            };
            parser.end_of_line()?;
            let node = self.graph.output(value);
            return node.map(drop).map_err(|e| refused(lines.position(at), &e));
        }
        let left = parser.expressions()?;
        if !parser.eat("=") {
            parser.end_of_line()?;
            return self.value(&left, lines, None).map(drop);
        }
        let right = parser.expressions()?;
        parser.end_of_line()?;
        match left.kind {
            ExprKind::Path(name) if !name.contains('.') => {
                let value = self.value(&right, lines, Some(&name))?;
                let Arg::Node(node) = value else {
                    return Err(self.error(
                        lines,
                        right.at,
                        format!("{name} is assigned a constant: write it where it is used"),
                    ));
                };
                self.variables.insert(name, node);
                Ok(())
            }
            ExprKind::Index(object, index) => {
                let object = self.value(&object, lines, None)?;
                let index = self.value(&index, lines, None)?;
                let value = self.value(&right, lines, None)?;
                self.function("operator.setitem", [object, index, value], lines, at, None)
                    .map(drop)
            }
            _ => Err(self.error(lines, left.at, "only a name or x[i] can be assigned to")),
        }
    }

    fn error(
        &self,
        lines: &Source<'_>,
        at: usize,
        message: impl Into<std::borrow::Cow<'static, str>>,
    ) -> ConfigError {
        ConfigError::new(lines.position(at), message)
    }

    /// The value of an expression; nodes that it needs are recorded. If it is a call, its node
    /// gets the name `name`.
    fn value(&mut self, expr: &Expr, lines: &Source<'_>, name: Option<&str>) -> Result<Arg> {
        let at = expr.at;
        let too_deep = |error: GraphError| refused(lines.position(at), &error);
        Ok(match &expr.kind {
            ExprKind::Path(path) => match self.meaning(path, false, lines, at)? {
                Meaning::Value(node, None) => Arg::Node(node),
                Meaning::Value(node, Some(attributes)) => {
                    self.attributes(node, &attributes, lines, at, name)?
                }
                Meaning::Tensor(path) => {
                    let target = Target::Name(self.graph.intern(&path));
                    self.record(Op::GetAttr, target, Arguments::default(), lines, at, name)?
                }
                Meaning::Constant(value) => value,
                Meaning::Module(path) => {
                    let message = format!("the module {path} is no value: call it");
                    return Err(self.error(lines, at, message));
                }
                Meaning::Function(path) => {
                    let message = format!("{path} is not defined before this line");
                    return Err(self.error(lines, at, message));
                }
            },
            ExprKind::Int(value) => match i64::try_from(value) {
                Ok(value) => Arg::Int(value),
                Err(_) => Arg::BigInt(Box::new(value.clone())),
            },
            ExprKind::Float(value) => Arg::Float(*value),
            ExprKind::Str(value) => Arg::Str(self.graph.intern(value)),
            ExprKind::Bytes(value) => Arg::Bytes(Box::new(value.clone())),
            ExprKind::Ellipsis => Arg::Ellipsis,
            ExprKind::Prefix(function, operand) => {
                let operand = self.value(operand, lines, None)?;
                self.function(&format!("operator.{function}"), [operand], lines, at, name)?
            }
            ExprKind::Infix(function, left, right) => {
                let left = self.value(left, lines, None)?;
                let right = self.value(right, lines, None)?;
                let function = format!("operator.{function}");
                self.function(&function, [left, right], lines, at, name)?
            }
            ExprKind::Call(call) => self.call(call, lines, at, name)?,
            ExprKind::Attribute(object, path) => {
                let Arg::Node(object) = self.value(object, lines, None)? else {
                    return Err(self.error(lines, at, "a constant has no attributes"));
                };
                self.attributes(object, path, lines, at, name)?
            }
            ExprKind::Index(object, index) => {
                let object = self.value(object, lines, None)?;
                let index = self.value(index, lines, None)?;
                self.function("operator.getitem", [object, index], lines, at, name)?
            }
            ExprKind::Slice(parts) => {
                let mut values = ThinVec::new();
                for part in parts.iter() {
                    values.push(match part {
                        Some(part) => self.value(part, lines, None)?,
                        None => Arg::None,
                    });
                }
                Arg::Slice(Seq::new(values).map_err(too_deep)?)
            }
            ExprKind::Tuple(items) => Arg::Tuple(self.items(items, lines, at)?),
            ExprKind::List(items) => Arg::List(self.items(items, lines, at)?),
            ExprKind::Dict(entries) => {
                let mut values = ThinVec::new();
                for (key, value) in entries {
                    let key = self.value(key, lines, None)?;
                    values.push((key, self.value(value, lines, None)?));
                }
                Arg::Dict(Dict::new(values).map_err(too_deep)?)
            }
        })
    }

    fn items(&mut self, items: &[Expr], lines: &Source<'_>, at: usize) -> Result<Seq> {
        let values: Result<ThinVec<Arg>> = items
            .iter()
            .map(|item| self.value(item, lines, None))
            .collect();
        Seq::new(values?).map_err(|error| refused(lines.position(at), &error))
    }

    /// The meaning of a path. Of modules and variables with one name, a call means the module.
    fn meaning(
        &mut self,
        path: &str,
        called: bool,
        lines: &Source<'_>,
        at: usize,
    ) -> Result<Meaning> {
        let declared = &self.declared;
        if let Some(own) = path.strip_prefix("self.") {
            return if declared.modules.contains(own) {
                Ok(Meaning::Module(own.to_owned()))
            } else if declared.tensors.contains(own) {
                Ok(Meaning::Tensor(own.to_owned()))
            } else {
                let message = format!("no module, parameter or buffer {own} is declared");
                Err(self.error(lines, at, message))
            };
        }
        let (first, rest) = match path.split_once('.') {
            Some((first, rest)) => (first, Some(rest)),
            None => (path, None),
        };
        if called && rest.is_none() && declared.modules.contains(path) {
            return Ok(Meaning::Module(path.to_owned()));
        }
        let numbered = path
            .split('.')
            .any(|part| part.starts_with(|c: char| c.is_ascii_digit()));
        if !numbered && let Some(&node) = self.variables.get(first) {
            return Ok(Meaning::Value(node, rest.map(str::to_owned)));
        }
        if declared.modules.contains(path) {
            return Ok(Meaning::Module(path.to_owned()));
        }
        if declared.tensors.contains(path) {
            return Ok(Meaning::Tensor(path.to_owned()));
        }
        if !called && let Some(value) = constant(path) {
            return Ok(Meaning::Constant(value));
        }
        let qualified = match path.split_once('.') {
            Some(("F", own)) => format!("torch.nn.functional.{own}"),
            _ => path.to_owned(),
        };
        Ok(Meaning::Function(qualified))
    }

    fn call(
        &mut self,
        call: &Call,
        lines: &Source<'_>,
        at: usize,
        name: Option<&str>,
    ) -> Result<Arg> {
        if let ExprKind::Path(path) = &call.callee.kind
            && !self
                .variables
                .contains_key(path.split('.').next().unwrap_or(path))
            && let Some(value) = self.constructed(path, call, lines, at)?
        {
            return Ok(value);
        }
        // The callee comes first, as Python evaluates.
        let (op, target, object) = match &call.callee.kind {
            ExprKind::Path(path) => match self.meaning(path, true, lines, call.callee.at)? {
                Meaning::Module(path) => {
                    (Op::CallModule, Target::Name(self.graph.intern(&path)), None)
                }
                Meaning::Value(node, Some(path)) => self.method(node, &path, lines, at)?,
                Meaning::Tensor(path) => {
                    let message = format!("{path} is a tensor and cannot be called");
                    return Err(self.error(lines, at, message));
                }
                Meaning::Value(_, None) => {
                    let message = format!("{path} is a value and cannot be called");
                    return Err(self.error(lines, at, message));
                }
                Meaning::Constant(_) => return Err(self.error(lines, at, "a constant is called")),
                Meaning::Function(function) => {
                    self.check_function(&function, lines, at)?;
                    let function = Target::Function(self.graph.function(&function));
                    (Op::CallFunction, function, None)
                }
            },
            ExprKind::Attribute(object, path) => {
                let Arg::Node(object) = self.value(object, lines, None)? else {
                    return Err(self.error(lines, at, "a constant has no methods"));
                };
                self.method(object, path, lines, at)?
            }
            _ => {
                return Err(self.error(
                    lines,
                    at,
                    "only modules, functions and methods are called",
                ));
            }
        };
        let mut arguments = Arguments::default();
        arguments.args.extend(object.map(Arg::Node));
        for arg in &call.args {
            let value = self.value(arg, lines, None)?;
            arguments.args.push(value);
        }
        for (key, arg) in &call.kwargs {
            let value = self.value(arg, lines, None)?;
            arguments.kwargs.push((self.graph.intern(key), value));
        }
        let getattr = op == Op::CallFunction
            && matches!(target, Target::Function(f) if self.graph.function_name(f) == "builtins.getattr");
        if getattr {
            self.check_getattr(&arguments, lines, at)?;
        }
        self.record(op, target, arguments, lines, at, name)
    }

    /// Values that Python writes as calls: `slice`, `range`, `complex`, `torch.device`.
    fn constructed(
        &mut self,
        path: &str,
        call: &Call,
        lines: &Source<'_>,
        at: usize,
    ) -> Result<Option<Arg>> {
        let expected = match path {
            "slice" => "slice(start, stop, step)",
            "range" => "range(start, stop, step) with integers",
            "complex" => "complex(real, imaginary) with numbers",
            "torch.device" => "torch.device(\"cuda:0\")",
            _ => return Ok(None),
        };
        let wrong = || ConfigError::expected(lines.position(at), expected, "other arguments");
        if !call.kwargs.is_empty() {
            return Err(wrong());
        }
        let items = self.items(&call.args, lines, at)?;
        let value = match (path, &items[..]) {
            ("slice", [_, _, _]) => Arg::Slice(items),
            ("range", [Arg::Int(_), Arg::Int(_), Arg::Int(step)]) if *step != 0 => {
                Arg::Range(items)
            }
            ("complex", [real, imaginary]) => match (number(real), number(imaginary)) {
                (Some(real), Some(imaginary)) => Arg::Complex(Box::new((real, imaginary))),
                _ => return Err(wrong()),
            },
            ("torch.device", [Arg::Str(text)]) => {
                let device: std::result::Result<Device, ()> = self.graph.text(*text).parse();
                Arg::Device(device.map_err(|()| wrong())?)
            }
            _ => return Err(wrong()),
        };
        Ok(Some(value))
    }

    /// Opcode, target and object of a call of `path` on `object`: attributes first, a method last.
    fn method(
        &mut self,
        object: NodeId,
        path: &str,
        lines: &Source<'_>,
        at: usize,
    ) -> Result<(Op, Target, Option<NodeId>)> {
        let (object, method) = match path.rsplit_once('.') {
            None => (object, path),
            Some((attributes, method)) => {
                match self.attributes(object, attributes, lines, at, None)? {
                    Arg::Node(object) => (object, method),
                    _ => (object, method),
                }
            }
        };
        if !self.declared.policy.calls_method(method) {
            let message = format!("{method} is no method that a configuration may call");
            return Err(self.error(lines, at, message));
        }
        let target = Target::Name(self.graph.intern(method));
        Ok((Op::CallMethod, target, Some(object)))
    }

    /// Reads attributes, one after the other.
    fn attributes(
        &mut self,
        object: NodeId,
        path: &str,
        lines: &Source<'_>,
        at: usize,
        name: Option<&str>,
    ) -> Result<Arg> {
        let mut value = Arg::Node(object);
        let count = path.split('.').count();
        for (index, attribute) in path.split('.').enumerate() {
            let name = name.filter(|_| index + 1 == count);
            let attribute = Arg::Str(self.graph.intern(attribute));
            value = self.function("builtins.getattr", [value, attribute], lines, at, name)?;
        }
        Ok(value)
    }

    fn function<const N: usize>(
        &mut self,
        function: &str,
        args: [Arg; N],
        lines: &Source<'_>,
        at: usize,
        name: Option<&str>,
    ) -> Result<Arg> {
        self.check_function(function, lines, at)?;
        let arguments = Arguments {
            args: args.into(),
            kwargs: ThinVec::new(),
        };
        if function == "builtins.getattr" {
            self.check_getattr(&arguments, lines, at)?;
        }
        let target = Target::Function(self.graph.function(function));
        self.record(Op::CallFunction, target, arguments, lines, at, name)
    }

    fn check_function(&mut self, function: &str, lines: &Source<'_>, at: usize) -> Result<()> {
        if self.seen_functions.contains(function) {
            return Ok(());
        }
        if !self.declared.policy.calls_function(function) {
            let message = if function.contains('.') {
                format!("{function} is no function that a configuration may call")
            } else {
                format!(
                    "{function} is no module declared here; a function is written with the name \
                     of its module, as torch.{function}"
                )
            };
            return Err(self.error(lines, at, message));
        }
        self.seen_functions.insert(function.to_owned());
        self.functions
            .push((function.to_owned(), lines.position(at)));
        Ok(())
    }

    fn check_getattr(&self, arguments: &Arguments, lines: &Source<'_>, at: usize) -> Result<()> {
        let Arguments { args, kwargs } = arguments;
        let (true, [_, Arg::Str(attribute)]) = (kwargs.is_empty(), &args[..]) else {
            return Err(self.error(
                lines,
                at,
                "getattr takes a value and the name of an attribute",
            ));
        };
        let attribute = self.graph.text(*attribute);
        if self.declared.policy.reads_attribute(attribute) {
            return Ok(());
        }
        let message = format!("{attribute} is no attribute that a configuration may read");
        Err(self.error(lines, at, message))
    }

    fn record(
        &mut self,
        op: Op,
        target: Target,
        arguments: Arguments,
        lines: &Source<'_>,
        at: usize,
        name: Option<&str>,
    ) -> Result<Arg> {
        let spec = NodeSpec {
            op,
            target,
            args: arguments.args,
            kwargs: arguments.kwargs,
            ty: None,
        };
        let node = self
            .graph
            .create(spec, name)
            .map_err(|error| refused(lines.position(at), &error))?;
        // A name that tracing would not give, such as `input`, is given if it is free.
        if let Some(name) = name
            && self.graph.node(node).name() != name
            && !self.names.contains(&self.graph.intern(name))
        {
            let renamed = self.graph.set_name(node, name);
            renamed.map_err(|error| refused(lines.position(at), &error))?;
        }
        self.names.insert(self.graph.node(node).name_symbol());
        Ok(Arg::Node(node))
    }

    fn literal(&mut self, value: &crate::Literal, position: Position) -> Result<Arg> {
        use crate::Literal;
        let sequence = |program: &mut Self, items: &[Literal]| -> Result<Seq> {
            let values: Result<ThinVec<Arg>> = items
                .iter()
                .map(|item| program.literal(item, position))
                .collect();
            Seq::new(values?).map_err(|error| refused(position, &error))
        };
        Ok(match value {
            Literal::None => Arg::None,
            Literal::Bool(value) => Arg::Bool(*value),
            Literal::Int(value) => Arg::Int(*value),
            Literal::Float(value) => Arg::Float(*value),
            Literal::Str(value) => Arg::Str(self.graph.intern(value)),
            Literal::DType(value) => Arg::DType(*value),
            Literal::List(items) => Arg::List(sequence(self, items)?),
            Literal::Tuple(items) => Arg::Tuple(sequence(self, items)?),
            Literal::Dict(entries) => {
                let mut values = ThinVec::new();
                for (key, value) in entries {
                    let key = Arg::Str(self.graph.intern(key));
                    values.push((key, self.literal(value, position)?));
                }
                Arg::Dict(Dict::new(values).map_err(|error| refused(position, &error))?)
            }
        })
    }
}

#[derive(Default)]
struct Arguments {
    args: ThinVec<Arg>,
    kwargs: ThinVec<(Symbol, Arg)>,
}

/// The constant called `path`.
fn constant(path: &str) -> Option<Arg> {
    match path {
        "None" => return Some(Arg::None),
        "True" => return Some(Arg::Bool(true)),
        "False" => return Some(Arg::Bool(false)),
        "inf" => return Some(Arg::Float(f64::INFINITY)),
        "nan" => return Some(Arg::Float(f64::NAN)),
        "Ellipsis" => return Some(Arg::Ellipsis),
        _ => {}
    }
    let own = path.strip_prefix("torch.")?;
    (own.parse::<DType>().map(Arg::DType))
        .or_else(|()| own.parse::<Layout>().map(Arg::Layout))
        .or_else(|()| own.parse::<MemoryFormat>().map(Arg::MemoryFormat))
        .ok()
}

fn number(value: &Arg) -> Option<f64> {
    match value {
        Arg::Float(value) => Some(*value),
        #[expect(clippy::cast_precision_loss, reason = "as Python converts it")]
        Arg::Int(value) => Some(*value as f64),
        _ => None,
    }
}

fn refused(position: Position, error: &GraphError) -> ConfigError {
    ConfigError::new(position, error.to_string())
}
