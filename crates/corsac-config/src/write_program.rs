//! Writes a graph as the lines of a program: one node a line.

use corsac_ir::literal::{bool_repr, write_big_int, write_bytes, write_float, write_str};
use corsac_ir::{Arg, Graph, Node, NodeId, Op, Symbol};
use rustc_hash::FxHashSet;

use crate::config::Config;
use crate::error::WriteError;
use crate::read_document::is_identifier;

/// Words that cannot name a node, since they have another meaning.
const RESERVED: &[&str] = &[
    "Ellipsis", "F", "False", "None", "True", "builtins", "complex", "inf", "nan", "operator",
    "range", "return", "self", "slice", "torch",
];

/// Functions of `operator` that are written between their operands.
fn infix(function: &str) -> Option<&'static str> {
    Some(match function {
        "operator.add" => "+",
        "operator.sub" => "-",
        "operator.mul" => "*",
        "operator.truediv" => "/",
        "operator.floordiv" => "//",
        "operator.mod" => "%",
        "operator.matmul" => "@",
        "operator.pow" => "**",
        "operator.eq" => "==",
        "operator.ne" => "!=",
        "operator.lt" => "<",
        "operator.gt" => ">",
        "operator.le" => "<=",
        "operator.ge" => ">=",
        "operator.and_" => "&",
        "operator.or_" => "|",
        "operator.xor" => "^",
        "operator.lshift" => "<<",
        "operator.rshift" => ">>",
        _ => return None,
    })
}

/// The lines of the graph of `config`, without the inputs.
pub(crate) fn lines(config: &Config) -> Result<Vec<String>, WriteError> {
    let graph = &config.graph;
    let computed = graph.nodes().map(|id| graph.node(id));
    let computed: FxHashSet<&str> = computed
        .filter(|node| node.op() != Op::Placeholder)
        .map(Node::name)
        .collect();
    let mut lines = Vec::new();
    let mut seen_call = false;
    for id in graph.nodes() {
        let node = graph.node(id);
        let problem = |problem| {
            Err(WriteError::Shape {
                node: node.name().to_owned(),
                problem,
            })
        };
        match node.op() {
            Op::Placeholder if seen_call => {
                return problem("an input stands behind a call; topological_sort moves it");
            }
            Op::Placeholder => {}
            _ => {
                seen_call = true;
                let line = Line {
                    computed: &computed,
                    graph,
                    node,
                    out: String::new(),
                };
                lines.push(line.statement()?);
            }
        }
    }
    match graph.output_node() {
        Some(output) if graph.nodes().next_back() == Some(output) => Ok(lines),
        found => Err(WriteError::Shape {
            node: found.map_or("output".into(), |id| graph.node(id).name().to_owned()),
            problem: "the graph must end in its output",
        }),
    }
}

/// The line of one node.
struct Line<'g> {
    /// The names of all nodes but the inputs.
    computed: &'g FxHashSet<&'g str>,
    graph: &'g Graph,
    node: Node<'g>,
    out: String,
}

impl<'g> Line<'g> {
    fn statement(mut self) -> Result<String, WriteError> {
        let node = self.node;
        let (args, kwargs) = (node.args(), node.kwargs());
        if node.op() == Op::Output {
            let [value] = args else {
                return Err(self.unwritten("an output of several arguments"));
            };
            self.out.push_str("return ");
            self.value(value)?;
            return Ok(self.out);
        }
        if !is_identifier(node.name()) || RESERVED.contains(&node.name()) {
            return Err(WriteError::Name {
                what: "the node",
                name: node.name().to_owned(),
                expected: "an identifier that is not reserved",
            });
        }
        self.out.push_str(node.name());
        self.out.push_str(" = ");
        let target = node.target_name();
        match node.op() {
            Op::GetAttr => {
                self.out.push_str("self.");
                self.out.push_str(target);
            }
            Op::CallModule => {
                self.out.push_str("self.");
                self.out.push_str(target);
                self.arguments(args, kwargs)?;
            }
            Op::CallMethod => match args {
                [Arg::Node(object), rest @ ..] if is_identifier(target) => {
                    self.name(*object)?;
                    self.out.push('.');
                    self.out.push_str(target);
                    self.arguments(rest, kwargs)?;
                }
                _ => return Err(self.unwritten("a method of something that is no node")),
            },
            Op::CallFunction => self.function(target, args, kwargs)?,
            Op::Placeholder | Op::Output => {}
        }
        Ok(self.out)
    }

    fn function(
        &mut self,
        function: &str,
        args: &[Arg],
        kwargs: &[(Symbol, Arg)],
    ) -> Result<(), WriteError> {
        match (function, args, kwargs) {
            ("builtins.getattr", [Arg::Node(object), Arg::Str(attribute)], [])
                if is_identifier(self.graph.text(*attribute)) =>
            {
                self.name(*object)?;
                self.out.push('.');
                self.out.push_str(self.graph.text(*attribute));
            }
            ("operator.getitem", [Arg::Node(object), index], []) => {
                self.name(*object)?;
                self.out.push('[');
                self.index(index)?;
                self.out.push(']');
            }
            ("operator.neg", [Arg::Node(operand)], []) => {
                self.out.push('-');
                self.name(*operand)?;
            }
            (_, [left, right], []) if is_operand(left) && is_operand(right) => {
                match infix(function) {
                    Some(symbol) => {
                        self.value(left)?;
                        self.out.push_str(&format!(" {symbol} "));
                        self.value(right)?;
                    }
                    None => self.call(function, args, kwargs)?,
                }
            }
            _ => self.call(function, args, kwargs)?,
        }
        Ok(())
    }

    fn call(
        &mut self,
        function: &str,
        args: &[Arg],
        kwargs: &[(Symbol, Arg)],
    ) -> Result<(), WriteError> {
        if !function.split('.').all(is_identifier) {
            return Err(WriteError::Name {
                what: "the function",
                name: function.to_owned(),
                expected: "names with dots between",
            });
        }
        match function.strip_prefix("torch.nn.functional.") {
            Some(own) => self.out.push_str(&format!("F.{own}")),
            None => self.out.push_str(function),
        }
        self.arguments(args, kwargs)
    }

    fn arguments(&mut self, args: &[Arg], kwargs: &[(Symbol, Arg)]) -> Result<(), WriteError> {
        self.out.push('(');
        let mut separator = "";
        for arg in args {
            self.out.push_str(separator);
            self.value(arg)?;
            separator = ", ";
        }
        for (keyword, arg) in kwargs {
            let keyword = self.graph.text(*keyword);
            if !is_identifier(keyword) {
                return Err(self.unwritten("a keyword that is no identifier"));
            }
            self.out.push_str(separator);
            self.out.push_str(keyword);
            self.out.push('=');
            self.value(arg)?;
            separator = ", ";
        }
        self.out.push(')');
        Ok(())
    }

    /// Writes the contents of the brackets of an index: slices in their short form.
    fn index(&mut self, index: &Arg) -> Result<(), WriteError> {
        match index {
            Arg::Tuple(items) if items.len() > 1 => {
                for (position, item) in items.iter().enumerate() {
                    self.out.push_str(if position > 0 { ", " } else { "" });
                    self.index_item(item)?;
                }
                Ok(())
            }
            _ => self.index_item(index),
        }
    }

    fn index_item(&mut self, item: &Arg) -> Result<(), WriteError> {
        let Arg::Slice(parts) = item else {
            return self.value(item);
        };
        for (position, part) in parts.iter().enumerate() {
            let last = position == 2;
            if *part != Arg::None {
                self.out.push_str(if last { ":" } else { "" });
                self.value(part)?;
            }
            self.out.push_str(if position == 0 { ":" } else { "" });
        }
        Ok(())
    }

    fn value(&mut self, value: &Arg) -> Result<(), WriteError> {
        // Writing to a `String` cannot fail.
        match value {
            Arg::None => self.out.push_str("None"),
            Arg::Ellipsis => self.out.push_str("..."),
            Arg::Bool(value) => self.out.push_str(bool_repr(*value)),
            Arg::Int(value) => self.out.push_str(&value.to_string()),
            Arg::BigInt(value) => {
                let _ = write_big_int(&mut self.out, value);
            }
            Arg::Float(value) => {
                let _ = write_float(&mut self.out, *value);
            }
            Arg::Complex(value) => {
                self.out.push_str("complex(");
                let _ = write_float(&mut self.out, value.0);
                self.out.push_str(", ");
                let _ = write_float(&mut self.out, value.1);
                self.out.push(')');
            }
            Arg::Str(text) => {
                let _ = write_str(&mut self.out, self.graph.text(*text));
            }
            Arg::Bytes(bytes) => {
                let _ = write_bytes(&mut self.out, bytes);
            }
            Arg::DType(value) => self.out.push_str(&value.to_string()),
            Arg::Layout(value) => self.out.push_str(&value.to_string()),
            Arg::MemoryFormat(value) => self.out.push_str(&value.to_string()),
            Arg::Device(value) => self.out.push_str(&format!("torch.device('{value}')")),
            Arg::Node(node) => self.name(*node)?,
            Arg::Tuple(items) => {
                self.items("(", items, if items.len() == 1 { ",)" } else { ")" })?
            }
            Arg::List(items) => self.items("[", items, "]")?,
            Arg::Slice(items) => self.items("slice(", items, ")")?,
            Arg::Range(items) => self.items("range(", items, ")")?,
            Arg::Dict(entries) => {
                self.out.push('{');
                for (position, (key, value)) in entries.iter().enumerate() {
                    self.out.push_str(if position > 0 { ", " } else { "" });
                    self.value(key)?;
                    self.out.push_str(": ");
                    self.value(value)?;
                }
                self.out.push('}');
            }
            Arg::NamedTuple(_) => return Err(self.unwritten("a named tuple")),
            Arg::Opaque(_) => return Err(self.unwritten("a value that only the host understands")),
        }
        Ok(())
    }

    fn items(&mut self, open: &str, items: &[Arg], close: &str) -> Result<(), WriteError> {
        self.out.push_str(open);
        for (position, item) in items.iter().enumerate() {
            self.out.push_str(if position > 0 { ", " } else { "" });
            self.value(item)?;
        }
        self.out.push_str(close);
        Ok(())
    }

    /// Writes the name of a node as its users write it: inputs as they are declared.
    fn name(&mut self, id: NodeId) -> Result<(), WriteError> {
        let node = self.graph.node(id);
        let name = if node.op() == Op::Placeholder {
            node.target_name().trim_start_matches('*')
        } else {
            node.name()
        };
        let hidden = name != node.name() && self.computed.contains(name);
        if hidden {
            return Err(WriteError::Name {
                what: "the input",
                name: name.to_owned(),
                expected: "a name that no node has",
            });
        }
        self.out.push_str(name);
        Ok(())
    }

    fn unwritten(&self, what: &'static str) -> WriteError {
        WriteError::Argument {
            node: self.node.name().to_owned(),
            what,
        }
    }
}

/// Whether a value can stand next to an operator: nodes, and numbers without a sign.
fn is_operand(value: &Arg) -> bool {
    match value {
        Arg::Node(_) => true,
        Arg::Int(value) => *value >= 0,
        Arg::Float(value) => value.is_finite() && value.is_sign_positive(),
        _ => false,
    }
}
