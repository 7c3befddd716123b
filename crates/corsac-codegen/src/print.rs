//! Writes statements, one node after the other.

use std::fmt::Write;

use corsac_ir::{Arg, Node, NodeId, Op, Target};

use crate::attribute::{is_identifier, push_attribute, push_path};
use crate::body::Body;
use crate::host::Host;
use crate::operator::Operator;
use crate::options::{Calling, Options};
use crate::plan::{CallForm, Plan};
use crate::signature::{on_one_line, push_annotation};
use crate::value::{Color, Place, Values};

/// Characters that may stand behind a backslash in any string literal, besides another one.
const ESCAPED: [char; 5] = ['\'', '"', 'n', 'r', 't'];

/// Writes the body of the function.
pub(crate) struct Printer<'p, 'g> {
    plan: &'p Plan<'g>,
    options: &'p Options,
    host: &'p dyn Host,
    values: Values<'p, 'g>,
    pub(crate) body: Body,
    /// The places of the return statements, if the host writes them.
    pub(crate) outputs: Option<Vec<(usize, NodeId)>>,
}

// Writing to a `String` cannot fail, so results of `write!` are dropped in this file.
impl<'p, 'g> Printer<'p, 'g> {
    pub(crate) fn new(
        plan: &'p Plan<'g>,
        options: &'p Options,
        host: &'p dyn Host,
        body: Body,
    ) -> Self {
        Self {
            plan,
            options,
            host,
            values: Values::new(plan, options.colored),
            body,
            outputs: None,
        }
    }

    pub(crate) fn body(&mut self) {
        let graph = self.plan.graph;
        let mut has_statements = self.options.record_func;
        if self.options.record_func {
            self.profile("_rf", "ENTER_GRAPH_PLACEHOLDER_KEY");
        }
        let mut comment: Option<&str> = None;
        for (index, id) in graph.nodes().enumerate() {
            let node = graph.node(id);
            let notes = self.host.notes(id);
            let note = notes.and_then(|notes| notes.comment.as_deref());
            if note.is_some() && note != comment {
                comment = note;
                self.comment(note.unwrap_or_default());
            }
            self.body.begin(index);
            let is_call = matches!(
                node.op(),
                Op::CallFunction | Op::CallMethod | Op::CallModule
            );
            let profiled = (is_call && self.options.record_func).then(|| {
                // torch.fx uses the name that the node has in the graph.
                let own = node.name();
                let name = if is_identifier(own) {
                    own
                } else {
                    self.plan.name(id)
                };
                format!("_rf_{name}")
            });
            if let Some(variable) = &profiled {
                self.profile(variable, &index.to_string());
            }
            if let Some(metadata) = notes.and_then(|notes| notes.metadata.as_deref()) {
                has_statements = true;
                self.metadata(metadata);
            }
            has_statements |= self.statement(node);
            if let Some(variable) = &profiled {
                let _ = write!(self.body.text, "{variable}.__exit__(None, None, None)");
                self.finish_line();
            }
        }
        if self.options.record_func {
            self.body.text.push_str("_rf.__exit__(None, None, None)");
            self.finish_line();
        }
        if !has_statements {
            self.body.text.push_str("pass");
            self.finish_line();
        }
    }

    /// Ends a line and a piece.
    #[inline]
    fn finish_line(&mut self) {
        self.body.end_line();
        self.body.cut();
    }

    fn profile(&mut self, variable: &str, key: &str) {
        let _ = write!(
            self.body.text,
            "{variable} = torch._C._profiler._RecordFunctionFast('## {key} ##'); {variable}.__enter__()"
        );
        self.finish_line();
    }

    fn comment(&mut self, comment: &str) {
        self.body.end_line();
        let comment = on_one_line(comment);
        let values = self.values;
        values.color(&mut self.body.text, Color::Dim, |out| {
            out.push_str(&comment)
        });
        self.finish_line();
    }

    fn metadata(&mut self, metadata: &str) {
        // A raw string where Python might not read an escape sequence.
        let mut escaped = metadata.split('\\').skip(1);
        let prefix = if escaped.all(|rest| rest.is_empty() || rest.starts_with(ESCAPED)) {
            ""
        } else {
            "r"
        };
        self.body.text.push_str(prefix);
        self.body.text.push_str("\"\"\"");
        self.finish_line();
        self.body
            .push_lines(&metadata.replace("\"\"\"", "'''").replace(['\r', '\0'], " "));
        self.finish_line();
        self.body.text.push_str("\"\"\"");
        self.finish_line();
    }

    /// Writes a node's statement and frees values that are no longer needed. Returns whether there
    /// is a statement.
    fn statement(&mut self, node: Node<'g>) -> bool {
        match node.op() {
            Op::Placeholder => return self.placeholder(node),
            Op::Output => {
                self.output(node);
                return true;
            }
            Op::GetAttr => {
                self.result(node);
                self.attribute_of_root(node);
            }
            Op::CallModule => {
                self.result(node);
                self.attribute_of_root(node);
                let out = &mut self.body.text;
                out.push('(');
                self.values.call(out, node.args(), node.kwargs());
                out.push(')');
            }
            Op::CallMethod => {
                self.result(node);
                let out = &mut self.body.text;
                let start = out.len();
                if let [receiver, args @ ..] = node.args() {
                    self.values.operand(out, receiver, Place::Receiver);
                    push_path(out, start, node.target_name());
                    out.push('(');
                    self.values.call(out, args, node.kwargs());
                    out.push(')');
                }
            }
            Op::CallFunction => self.call_function(node),
        }
        self.body.cut();
        self.free(node);
        true
    }

    /// `name : annotation = `
    #[inline]
    fn result(&mut self, node: Node<'g>) {
        self.body.text.push_str(self.plan.name(node.id()));
        push_annotation(&mut self.body.text, self.plan, self.host, node);
        self.body.text.push_str(" = ");
    }

    fn attribute_of_root(&mut self, node: Node<'g>) {
        let out = &mut self.body.text;
        let start = out.len();
        out.push_str(&self.options.root_module);
        push_path(out, start, node.target_name());
    }

    fn placeholder(&mut self, node: Node<'g>) -> bool {
        let (parameter, name) = (self.plan.parameter(node), self.plan.name(node.id()));
        if parameter == name {
            return false;
        }
        let _ = write!(self.body.text, "{name} = {parameter}");
        self.finish_line();
        true
    }

    fn call_function(&mut self, node: Node<'g>) {
        let Target::Function(function) = node.target() else {
            unreachable!("call_function has a function as its target");
        };
        match self.plan.call_form(node, function) {
            CallForm::Operator(operator) => self.operator(node, operator),
            CallForm::Attribute(name) => {
                self.result(node);
                let out = &mut self.body.text;
                let start = out.len();
                self.values.operand(out, &node.args()[0], Place::Receiver);
                push_attribute(out, start, name);
            }
            CallForm::Call => {
                let boxed = self.plan.boxed(node.id());
                if boxed.is_empty() {
                    self.result(node);
                    let out = &mut self.body.text;
                    out.push_str(self.plan.function(function));
                    out.push('(');
                    self.values.call(out, node.args(), node.kwargs());
                    out.push(')');
                } else {
                    self.boxed_call(node, self.plan.function(function), boxed);
                }
            }
        }
    }

    fn operator(&mut self, node: Node<'g>, operator: Operator) {
        let values = self.values;
        let args = node.args();
        if !operator.assigns() {
            self.result(node);
        }
        let out = &mut self.body.text;
        match operator {
            Operator::Prefix(sign) => {
                out.push_str(sign);
                values.arg(out, &args[0]);
            }
            Operator::Infix(sign) => {
                let place = if sign == "**" {
                    Place::Base
                } else {
                    Place::Free
                };
                values.operand(out, &args[0], place);
                out.push(' ');
                out.push_str(sign);
                out.push(' ');
                values.arg(out, &args[1]);
            }
            Operator::GetItem => {
                values.arg(out, &args[0]);
                out.push('[');
                values.arg(out, &args[1]);
                out.push(']');
            }
            Operator::InPlace(sign) => {
                values.arg(out, &args[0]);
                out.push(' ');
                out.push_str(sign);
                out.push(' ');
                values.arg(out, &args[1]);
            }
            Operator::SetItem => {
                values.arg(out, &args[0]);
                out.push('[');
                values.arg(out, &args[1]);
                out.push_str("] = ");
                values.arg(out, &args[2]);
            }
        }
        if operator.assigns() {
            out.push_str(";  ");
            self.result(node);
            values.arg(&mut self.body.text, &args[0]);
        }
    }

    /// Writes a call whose callee empties some of its arguments: they get a variable each, so that
    /// the values in them can be freed before the call.
    fn boxed_call(&mut self, node: Node<'g>, function: &str, boxed: &[(usize, Box<str>)]) {
        for (index, (position, name)) in boxed.iter().enumerate() {
            if index > 0 {
                self.body.end_line();
            }
            let _ = write!(self.body.text, "{name} = ");
            self.values
                .arg(&mut self.body.text, &node.args()[*position]);
        }
        self.body.cut();
        let only_boxed: Vec<_> = self
            .last_uses(node)
            .filter(|id| is_only_in(*id, node, boxed))
            .collect();
        if !only_boxed.is_empty() {
            self.free_names(only_boxed.iter().map(|id| self.plan.name(*id)).collect());
            self.body.cut();
        }
        self.body.end_line();
        self.body.cut();

        self.result(node);
        self.body.text.push_str(function);
        self.body.text.push('(');
        for (index, arg) in node.args().iter().enumerate() {
            if index > 0 {
                self.body.text.push_str(", ");
            }
            match boxed.iter().find(|(position, _)| *position == index) {
                Some((_, name)) => self.body.text.push_str(name),
                None => self.values.arg(&mut self.body.text, arg),
            }
        }
        for (key, arg) in node.kwargs() {
            self.body.text.push_str(", ");
            self.values.keyword(&mut self.body.text, *key, arg);
        }
        self.body.text.push(')');
        self.body.cut();
        self.free_names(boxed.iter().map(|(_, name)| &**name).collect());
    }

    fn output(&mut self, node: Node<'g>) {
        if let Some(outputs) = &mut self.outputs {
            outputs.push((self.body.pieces(), node.id()));
            self.body.leave_piece();
            self.finish_line();
            return;
        }
        let value = &node.args()[0];
        let unflatten = matches!(&self.options.calling, Calling::PyTree(tree) if tree.has_out_spec);
        self.body.text.push_str("return ");
        if unflatten {
            self.body.text.push_str("pytree.tree_unflatten(");
        }
        let notes = self.host.notes(node.id());
        let descriptions = notes.and_then(|notes| notes.descriptions.as_deref());
        match (descriptions, value) {
            (Some(descriptions), Arg::Tuple(_) | Arg::List(_)) if self.options.expanded_def => {
                self.expanded_result(value, descriptions);
            }
            _ => self.values.arg(&mut self.body.text, value),
        }
        if unflatten {
            self.body.text.push_str(", self._out_spec)");
        }
        self.body.cut();
        self.finish_line();
    }

    /// Each item on a line of its own, with its description.
    fn expanded_result(&mut self, value: &Arg, descriptions: &[String]) {
        let (open, close) = match value {
            Arg::Tuple(_) => ('(', ')'),
            _ => ('[', ']'),
        };
        self.body.text.push(open);
        self.body.end_line();
        for (index, item) in value.as_items().unwrap_or_default().iter().enumerate() {
            self.body.text.push_str("    ");
            self.values.arg(&mut self.body.text, item);
            self.body.text.push(',');
            if let Some(description) = descriptions.get(index) {
                let _ = write!(self.body.text, "  # {}", on_one_line(description));
            }
            self.body.end_line();
        }
        self.body.text.push(close);
    }

    /// Values that are used here and nowhere later, in the order of the arguments.
    fn last_uses(&self, node: Node<'g>) -> impl Iterator<Item = NodeId> + use<'p, 'g> {
        let plan = self.plan;
        node.inputs()
            .filter(move |&input| plan.is_last_use(input, node.id()))
    }

    /// Frees values that are no longer needed and ends the line.
    fn free(&mut self, node: Node<'g>) {
        let boxed = self.plan.boxed(node.id());
        let unused = (node.num_users() == 0).then(|| node.id());
        let dying = self
            .last_uses(node)
            .filter(|id| boxed.is_empty() || !is_only_in(*id, node, boxed));
        let mut dying = dying.chain(unused).peekable();
        if dying.peek().is_some() {
            let plan = self.plan;
            let values = self.values;
            let out = &mut self.body.text;
            out.push_str(";  ");
            values.color(out, Color::Dim, |out| {
                for id in dying {
                    out.push_str(plan.name(id));
                    out.push_str(" = ");
                }
                out.push_str("None");
            });
        }
        self.finish_line();
    }

    fn free_names(&mut self, names: Vec<&str>) {
        self.body.text.push_str(";  ");
        self.values.color(&mut self.body.text, Color::Dim, |out| {
            for name in names {
                out.push_str(name);
                out.push_str(" = ");
            }
            out.push_str("None");
        });
        self.body.cut();
    }
}

/// Whether `value` appears in boxed arguments of the node and nowhere else in it.
fn is_only_in(value: NodeId, node: Node<'_>, boxed: &[(usize, Box<str>)]) -> bool {
    let mut is_boxed = false;
    for (index, arg) in node.args().iter().enumerate() {
        if arg.mentions(value) {
            if boxed.iter().all(|(position, _)| *position != index) {
                return false;
            }
            is_boxed = true;
        }
    }
    is_boxed && !node.kwargs().iter().any(|(_, arg)| arg.mentions(value))
}
