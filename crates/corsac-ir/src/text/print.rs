//! The shown form. Source: `torch/fx/node.py` (`format_node`, `_format_arg`), by behaviour.
//!
//! An argument is written in one of three ways, as the original does:
//!
//! - *shown*, directly or in containers among a node's arguments: strings bare, nodes as `%x`;
//! - *str*, for default values and the result: strings bare, nodes as `x`, and items of containers
//!   as repr;
//! - *repr*, inside slices and everywhere under *str*: strings quoted, nodes as `x`.

use std::fmt::Write;

use super::host::HostText;
use crate::arg::Arg;
use crate::entity::{ExternalId, NodeId, Symbol};
use crate::graph::Graph;
use crate::literal;
use crate::op::Op;

/// Writes nodes and arguments of one graph to a string.
///
/// Writing to a `String` cannot fail, so results of `write!` are dropped here.
pub(super) struct Printer<'a> {
    graph: &'a Graph,
    host: &'a dyn HostText,
    out: String,
    /// Whether a node's line has the number of its users.
    num_users: bool,
    /// Text in the place of the annotation of a call.
    call_annotation: Option<&'a str>,
}

impl<'a> Printer<'a> {
    pub(super) fn new(graph: &'a Graph, host: &'a dyn HostText, capacity: usize) -> Self {
        Self {
            graph,
            host,
            out: String::with_capacity(capacity),
            num_users: true,
            call_annotation: None,
        }
    }

    /// Writes this where the annotation of a call would stand.
    pub(super) fn with_call_annotation(mut self, annotation: &'a str) -> Self {
        self.call_annotation = Some(annotation);
        self
    }

    /// Leaves the numbers of users out.
    pub(super) fn without_users(mut self) -> Self {
        self.num_users = false;
        self
    }

    pub(super) fn finish(self) -> String {
        self.out
    }

    /// The text written since the last call.
    pub(super) fn take(&mut self) -> String {
        std::mem::take(&mut self.out)
    }

    pub(super) fn graph(&mut self) {
        self.out.push_str("graph():");
        for id in self.graph.nodes() {
            self.out.push_str("\n    ");
            self.node(id);
        }
    }

    pub(super) fn node(&mut self, id: NodeId) {
        let data = self.graph.data(id);
        if data.op == Op::Output {
            self.out.push_str("return ");
            match data.args.first() {
                Some(value) => self.str(value),
                None => self.out.push_str("None"),
            }
            return;
        }
        self.out.push('%');
        self.out.push_str(self.graph.text(data.name));
        if self.num_users || data.ty.is_some() {
            self.out.push_str(" : ");
        }
        let is_call = !matches!(data.op, Op::Placeholder | Op::GetAttr);
        if let Some(annotation) = self.call_annotation.filter(|_| is_call) {
            self.out.push_str(annotation);
        } else if let Some(ty) = data.ty {
            self.annotation(ty);
            if self.num_users {
                self.out.push(' ');
            }
        }
        if self.num_users {
            self.out.push_str("[num_users=");
            literal::push_int(&mut self.out, data.num_users() as i64);
            self.out.push(']');
        }
        self.out.push_str(" = ");
        self.out.push_str(data.op.name());
        self.out.push_str("[target=");
        self.out.push_str(self.graph.node(id).target_name());
        self.out.push(']');
        match data.op {
            Op::Placeholder => {
                if let Some(default) = data.args.first() {
                    self.out.push_str("(default=");
                    self.str(default);
                    self.out.push(')');
                }
            }
            Op::GetAttr | Op::Output => {}
            Op::CallFunction | Op::CallMethod | Op::CallModule => {
                self.out.push_str("(args = ");
                self.shown_items('(', &data.args, ')');
                self.out.push_str(", kwargs = {");
                for (i, (key, value)) in data.kwargs.iter().enumerate() {
                    if i > 0 {
                        self.out.push_str(", ");
                    }
                    self.out.push_str(self.graph.text(*key));
                    self.out.push_str(": ");
                    self.shown(value);
                }
                self.out.push_str("})");
            }
        }
    }

    /// An argument among the arguments of a call, on its own.
    pub(super) fn argument(&mut self, arg: &Arg) {
        self.shown(arg);
    }

    /// An argument among the arguments of a call.
    fn shown(&mut self, arg: &Arg) {
        match arg {
            Arg::Node(id) => {
                self.out.push('%');
                self.out.push_str(self.graph.node(*id).name());
            }
            Arg::Tuple(items) => self.shown_items('(', items, ')'),
            Arg::NamedTuple(named) => self.shown_items('(', &named.1, ')'),
            Arg::List(items) => self.shown_items('[', items, ']'),
            Arg::Dict(entries) => {
                self.out.push('{');
                for (i, (key, value)) in entries.iter().enumerate() {
                    if i > 0 {
                        self.out.push_str(", ");
                    }
                    self.str(key);
                    self.out.push_str(": ");
                    self.shown(value);
                }
                self.out.push('}');
            }
            Arg::Opaque(value) => match self.host.shown(*value) {
                Some(text) => self.out.push_str(&text),
                None => self.external(*value),
            },
            other => self.str(other),
        }
    }

    fn shown_items(&mut self, open: char, items: &[Arg], close: char) {
        self.out.push(open);
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                self.out.push_str(", ");
            }
            self.shown(item);
        }
        if open == '(' && items.len() == 1 {
            self.out.push(',');
        }
        self.out.push(close);
    }

    /// `str` of an argument.
    fn str(&mut self, arg: &Arg) {
        match arg {
            Arg::Str(text) => self.out.push_str(self.graph.text(*text)),
            Arg::Device(device) => {
                let _ = write!(self.out, "{device}");
            }
            Arg::Opaque(value) => match self.host.str(*value) {
                Some(text) => self.out.push_str(&text),
                None => self.external(*value),
            },
            other => self.repr(other),
        }
    }

    /// `repr` of an argument.
    pub(super) fn repr(&mut self, arg: &Arg) {
        match arg {
            Arg::None => self.out.push_str("None"),
            Arg::Ellipsis => self.out.push_str("Ellipsis"),
            Arg::Bool(value) => self.out.push_str(literal::bool_repr(*value)),
            Arg::Int(value) => literal::push_int(&mut self.out, *value),
            Arg::BigInt(value) => {
                let _ = literal::write_big_int(&mut self.out, value);
            }
            Arg::Float(value) => {
                let _ = literal::write_float(&mut self.out, *value);
            }
            Arg::Complex(value) => {
                let _ = literal::write_complex(&mut self.out, value.0, value.1);
            }
            Arg::Str(text) => {
                let _ = literal::write_str(&mut self.out, self.graph.text(*text));
            }
            Arg::Bytes(bytes) => {
                let _ = literal::write_bytes(&mut self.out, bytes);
            }
            Arg::DType(value) => self.torch(value.name()),
            Arg::Layout(value) => self.torch(value.name()),
            Arg::MemoryFormat(value) => self.torch(value.name()),
            Arg::Device(device) => {
                let _ = literal::write_device(&mut self.out, *device);
            }
            Arg::Node(id) => self.out.push_str(self.graph.node(*id).name()),
            Arg::Tuple(items) => self.repr_items("(", items, ")"),
            Arg::List(items) => self.repr_items("[", items, "]"),
            Arg::Slice(items) => self.repr_items("slice(", items, ")"),
            Arg::Range(items) => match &items[..] {
                [start, stop, Arg::Int(1)] => {
                    self.out.push_str("range(");
                    self.repr(start);
                    self.out.push_str(", ");
                    self.repr(stop);
                    self.out.push(')');
                }
                items => self.repr_items("range(", items, ")"),
            },
            Arg::Dict(entries) => {
                self.out.push('{');
                for (i, (key, value)) in entries.iter().enumerate() {
                    if i > 0 {
                        self.out.push_str(", ");
                    }
                    self.repr(key);
                    self.out.push_str(": ");
                    self.repr(value);
                }
                self.out.push('}');
            }
            Arg::NamedTuple(named) => self.named_tuple(named.0, &named.1),
            Arg::Opaque(value) => match self.host.repr(*value) {
                Some(text) => self.out.push_str(&text),
                None => self.external(*value),
            },
        }
    }

    /// `repr` of a tuple of arguments.
    pub(super) fn repr_tuple(&mut self, args: &[Arg]) {
        self.repr_items("(", args, ")");
    }

    /// `repr` of a dictionary of keyword arguments.
    pub(super) fn repr_kwargs(&mut self, kwargs: &[(Symbol, Arg)]) {
        self.out.push('{');
        for (i, (key, value)) in kwargs.iter().enumerate() {
            if i > 0 {
                self.out.push_str(", ");
            }
            let _ = literal::write_str(&mut self.out, self.graph.text(*key));
            self.out.push_str(": ");
            self.repr(value);
        }
        self.out.push('}');
    }

    fn repr_items(&mut self, open: &str, items: &[Arg], close: &str) {
        self.out.push_str(open);
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                self.out.push_str(", ");
            }
            self.repr(item);
        }
        if open == "(" && items.len() == 1 {
            self.out.push(',');
        }
        self.out.push_str(close);
    }

    fn named_tuple(&mut self, class: ExternalId, items: &[Arg]) {
        let known = self.host.named_tuple(class);
        match &known {
            Some(class) => self.out.push_str(&class.name),
            None => self.external(class),
        }
        self.out.push('(');
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                self.out.push_str(", ");
            }
            if let Some(field) = known.as_ref().and_then(|class| class.fields.get(i)) {
                self.out.push_str(field);
                self.out.push('=');
            }
            self.repr(item);
        }
        self.out.push(')');
    }

    fn annotation(&mut self, ty: ExternalId) {
        match self.host.annotation(ty) {
            Some(text) => self.out.push_str(&text),
            None => self.external(ty),
        }
    }

    /// Writes a host value without a text of the host: its name or number.
    fn external(&mut self, value: ExternalId) {
        match self.graph.external_name(value) {
            Some(name) => self.out.push_str(name),
            None => {
                let _ = write!(self.out, "<{value}>");
            }
        }
    }

    fn torch(&mut self, name: &str) {
        self.out.push_str("torch.");
        self.out.push_str(name);
    }
}
