//! The line that defines the function, and the statements that bind its arguments.

use std::fmt;

use corsac_ir::{Node, literal};

use crate::attribute::push_double_quoted;
use crate::host::Host;
use crate::options::{Calling, Options, PyTree};
use crate::plan::{Plan, raw_parameter};
use crate::value::Values;

/// An input of the generated function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name, with stars.
    pub name: String,
    /// Its type, with the separator from the name: ` : int`, or `: "f32[2]"`.
    pub annotation: String,
    /// Its default value.
    pub default: Option<String>,
    /// Its description, on one line.
    pub description: Option<String>,
}

/// As torch.fx writes it between the parentheses.
impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_declaration(f)?;
        match &self.description {
            Some(description) => write!(f, "  # {description}"),
            None => Ok(()),
        }
    }
}

impl Parameter {
    /// A parameter with a name only.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            annotation: String::new(),
            default: None,
            description: None,
        }
    }

    fn write_declaration(&self, f: &mut impl fmt::Write) -> fmt::Result {
        write!(f, "{}{}", self.name, self.annotation)?;
        match &self.default {
            Some(default) => write!(f, " = {default}"),
            None => Ok(()),
        }
    }

    fn variable(&self) -> &str {
        self.name.trim_start_matches('*')
    }
}

/// The contents of the function's first line.
pub(crate) struct Signature {
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) return_annotation: String,
}

impl<'g> Plan<'g> {
    pub(crate) fn signature(&self, options: &Options, host: &dyn Host) -> Signature {
        let mut signature = Signature {
            parameters: Vec::new(),
            return_annotation: String::new(),
        };
        for input in &self.inputs {
            let node = self.graph.node(input.node);
            let parameter = self.signature_part(node, options, host);
            signature.parameters.push(parameter);
        }
        let mut annotated = self
            .outputs
            .iter()
            .filter_map(|&id| self.graph.node(id).ty());
        if let Some(ty) = annotated.next_back() {
            signature.return_annotation = format!(" -> {}", self.annotation(ty));
        }
        signature
    }

    fn signature_part(&self, node: Node<'g>, options: &Options, host: &dyn Host) -> Parameter {
        let notes = host.notes(node.id());
        let mut annotation = String::new();
        push_annotation(&mut annotation, self, host, node);
        let default = node.args().first().map(|default| {
            let mut text = String::new();
            Values::new(self, options.colored).arg(&mut text, default);
            text
        });
        let descriptions = notes.and_then(|notes| notes.descriptions.as_ref());
        let description = descriptions
            .filter(|_| options.expanded_def)
            .map(|all| on_one_line(&all.join(" ")));
        Parameter {
            name: format!(
                "{}{}",
                raw_parameter(node.target_name()).0,
                self.parameter(node)
            ),
            annotation,
            default,
            description,
        }
    }

    /// A statement for each function that was marked with `wrap`.
    pub(crate) fn wrap_statements(&self) -> String {
        let mut text = String::new();
        for (index, name) in self.wrapped.iter().enumerate() {
            if index > 0 {
                text.push('\n');
            }
            text.push_str(&self.wrap);
            text.push('(');
            push_double_quoted(&mut text, name);
            text.push(')');
        }
        text
    }
}

/// Appends the type annotation of a node, with the separator from the name.
pub(crate) fn push_annotation(out: &mut String, plan: &Plan<'_>, host: &dyn Host, node: Node<'_>) {
    let notes = host.notes(node.id());
    if let Some(annotation) = notes.and_then(|notes| notes.annotation.as_deref()) {
        out.push_str(": ");
        out.push_str(annotation);
    } else if let Some(ty) = node.ty() {
        out.push_str(" : ");
        out.push_str(plan.annotation(ty));
    }
}

/// A comment with its line breaks escaped, since it ends with its line.
pub(crate) fn on_one_line(comment: &str) -> String {
    comment
        .replace('\n', "\\n")
        .replace('\r', "\\r")
        .replace('\0', "\\0")
}

/// Everything up to the first line of the body, without a line break at the end.
pub(crate) fn prologue(
    options: &Options,
    parameters: &[Parameter],
    return_annotation: &str,
) -> String {
    match &options.calling {
        Calling::Plain => definition(options, parameters, return_annotation),
        Calling::Boxed => boxed(options, parameters, return_annotation),
        Calling::PyTree(tree) => {
            let outer: Vec<_> = tree.parameters.iter().map(Parameter::named).collect();
            let mut text = definition(options, &outer, return_annotation);
            bind_tree(&mut text, options, tree, parameters);
            text
        }
    }
}

fn definition(options: &Options, parameters: &[Parameter], return_annotation: &str) -> String {
    let has_self = parameters.first().is_some_and(|p| p.name == "self");
    let own = Parameter::named("self");
    let all = (!has_self).then_some(&own).into_iter().chain(parameters);
    let mut text = format!("def {}(", options.function_name);
    for (index, parameter) in all.enumerate() {
        if options.expanded_def {
            text.push_str("\n    ");
            // Writing to a `String` cannot fail.
            let _ = parameter.write_declaration(&mut text);
            text.push(',');
            if let Some(description) = &parameter.description {
                text.push_str("  # ");
                text.push_str(description);
            }
        } else {
            if index > 0 {
                text.push_str(", ");
            }
            text.push_str(&parameter.to_string());
        }
    }
    if options.expanded_def {
        text.push('\n');
    }
    text.push(')');
    text.push_str(return_annotation);
    text.push(':');
    text
}

fn boxed(options: &Options, parameters: &[Parameter], return_annotation: &str) -> String {
    let name = &options.function_name;
    let mut text = format!("def {name}(self, args_list){return_annotation}:");
    let mut inputs = parameters.iter().filter(|p| p.name != "self").peekable();
    if inputs.peek().is_some() {
        text.push_str("\n    args_iter = iter(args_list)");
        for input in inputs {
            text.push_str("\n    ");
            text.push_str(input.variable());
            text.push_str(" = next(args_iter)");
        }
        text.push_str("\n    args_list.clear()");
    }
    text
}

/// Flattens the arguments and gives the inputs their values.
fn bind_tree(text: &mut String, options: &Options, tree: &PyTree, parameters: &[Parameter]) {
    let own = Parameter::named("self");
    let has_self = tree.parameters.first().is_some_and(|name| name == "self");
    let all: Vec<_> = has_self
        .then_some(&own)
        .into_iter()
        .chain(parameters)
        .collect();
    if all.is_empty() {
        return;
    }
    // Python has no syntax for annotations in an assignment to several variables.
    let annotated: Vec<_> = all
        .iter()
        .filter(|p| !p.annotation.is_empty())
        .map(ToString::to_string)
        .collect();
    if !annotated.is_empty() {
        text.push_str("\n    ");
        if options.expanded_def {
            text.push_str(&annotated.join("\n    "));
        } else {
            text.push_str(&annotated.join("; "));
            text.push_str(";\n");
        }
    }
    let variables: Vec<_> = all
        .iter()
        .map(|p| {
            // torch.fx cuts the annotation off and leaves the space before its colon.
            let spaces = if p.annotation.is_empty() {
                if p.description.is_some() { "  " } else { "" }
            } else {
                &p.annotation[..p.annotation.find(':').unwrap_or(0)]
            };
            format!("{}{spaces}", p.variable())
        })
        .collect();
    let outer = |names: &[String]| names.join(", ");
    let arguments = match &tree.keywords {
        None => format!("[{}]", outer(&tree.parameters)),
        Some((positional, keys)) => {
            let (args, rest) = tree
                .parameters
                .split_at_checked(*positional)
                .unwrap_or((&tree.parameters, &[]));
            let mut keywords = Vec::new();
            for (key, name) in keys.iter().zip(rest) {
                let mut entry = String::new();
                let _ = literal::write_str(&mut entry, key);
                entry.push(':');
                entry.push_str(name);
                keywords.push(entry);
            }
            format!("([{}], {{{}}})", outer(args), keywords.join(", "))
        }
    };
    text.push_str(&format!(
        "\n    {}, = fx_pytree.tree_flatten_spec({arguments}, self._in_spec)",
        variables.join(", ")
    ));
}
