//! Writes the lossless form. `docs/text-form.md` has the grammar.

use std::fmt::Write;

use super::host::HostText;
use crate::arg::Arg;
use crate::entity::{ExternalId, FunctionId, NodeId, ScopeId, SecondaryMap, Symbol};
use crate::graph::{Graph, Source};
use crate::literal;
use crate::op::Target;

/// The version of the form, in its first line.
pub(super) const VERSION: u32 = 1;

/// Writes one graph. Host values and module calls are numbered in the order in which they are met.
///
/// Writing to a `String` cannot fail, so results of `write!` are dropped here.
pub(super) struct LosslessPrinter<'g> {
    graph: &'g Graph,
    host: &'g dyn HostText,
    out: String,
    externals: Vec<ExternalId>,
    external_numbers: SecondaryMap<ExternalId, Option<u32>>,
    scopes: String,
    scope_count: u32,
    scope_numbers: SecondaryMap<ScopeId, Option<u32>>,
}

impl<'g> LosslessPrinter<'g> {
    pub(super) fn new(graph: &'g Graph, host: &'g dyn HostText) -> Self {
        Self {
            graph,
            host,
            out: String::new(),
            externals: Vec::new(),
            external_numbers: SecondaryMap::new(),
            scopes: String::new(),
            scope_count: 0,
            scope_numbers: SecondaryMap::new(),
        }
    }

    pub(super) fn print(mut self) -> String {
        let _ = write!(self.out, "graph v{VERSION}:");
        let header = self.out.len();
        for id in self.graph.nodes() {
            self.out.push_str("\n    ");
            self.node(id);
        }
        self.out.push('\n');
        // The values and module calls that the nodes mention are known now.
        let declarations = self.declarations();
        self.out.insert_str(header, &declarations);
        self.out
    }

    /// The lines of host values and module calls.
    fn declarations(&self) -> String {
        let mut text = String::new();
        for (number, &value) in self.externals.iter().enumerate() {
            let _ = write!(text, "\n    extern @{number}");
            let name = self.host.qualified_name(value);
            if let Some(name) = name.as_deref().or_else(|| self.graph.external_name(value)) {
                text.push_str(" = ");
                let _ = literal::write_str(&mut text, name);
            }
        }
        text.push_str(&self.scopes);
        text
    }

    fn node(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        self.mention(id);
        self.out.push_str(" : ");
        if let Some(ty) = node.ty() {
            self.external(ty);
            self.out.push(' ');
        }
        self.users(id);
        self.out.push_str(" = ");
        self.out.push_str(node.op().name());
        self.out.push_str("[target=");
        match node.target() {
            Target::Name(symbol) => {
                self.word(self.graph.text(symbol), |c| is_path_char(c) || c == '*');
            }
            Target::Function(function) => self.function(function),
        }
        self.out.push(']');
        if !node.args().is_empty() || !node.kwargs().is_empty() {
            self.out.push_str("(args = ");
            self.items("(", node.args(), ")");
            self.out.push_str(", kwargs = {");
            for (i, (key, value)) in node.kwargs().iter().enumerate() {
                if i > 0 {
                    self.out.push_str(", ");
                }
                self.key(*key);
                self.out.push_str(": ");
                self.value(value);
            }
            self.out.push_str("})");
        }
        let origin = node.origin();
        if let Some(source) = origin.source {
            self.source(self.graph.source(source));
        }
        if let Some(scope) = origin.scope {
            let number = self.scope(scope);
            let _ = write!(self.out, " scope ${number}");
        }
    }

    fn source(&mut self, source: Source) {
        self.out.push_str(" at ");
        match source {
            Source::Line {
                file,
                line,
                function,
            } => self.source_line(self.graph.text(file), line, self.graph.text(function)),
            Source::Host { code, offset } => match self.host.source_line(code, offset) {
                Some(at) => self.source_line(&at.file, at.line, &at.function),
                None => {
                    self.external(code);
                    let _ = write!(self.out, ":{offset}");
                }
            },
        }
    }

    fn source_line(&mut self, file: &str, line: u32, function: &str) {
        let _ = literal::write_str(&mut self.out, file);
        let _ = write!(self.out, ":{line} in ");
        let _ = literal::write_str(&mut self.out, function);
    }

    /// `[num_users=2]`, or `[users=(%b, %a)]` where they are not in the order of the graph.
    fn users(&mut self, id: NodeId) {
        let mut in_order = true;
        let mut previous = None;
        for user in self.graph.users(id) {
            in_order &= previous.is_none_or(|previous| self.graph.is_before(previous, user));
            previous = Some(user);
        }
        if in_order {
            self.out.push_str("[num_users=");
            literal::push_int(&mut self.out, self.graph.node(id).num_users() as i64);
            self.out.push(']');
            return;
        }
        self.out.push_str("[users=(");
        for (i, user) in self.graph.users(id).enumerate() {
            if i > 0 {
                self.out.push_str(", ");
            }
            self.mention(user);
        }
        self.out.push_str(")]");
    }

    fn mention(&mut self, id: NodeId) {
        self.out.push('%');
        self.word(self.graph.node(id).name(), super::value::is_name_char);
    }

    fn function(&mut self, id: FunctionId) {
        let function = self.graph.function_info(id);
        let name = self.graph.text(function.name);
        self.word(name, is_path_char);
        if let Some(external) = function.external
            && self.host.qualified_name(external).as_deref() != Some(name)
        {
            self.external(external);
        }
        let base = self.graph.text(function.base);
        if base != Graph::default_base(name) {
            self.out.push_str(" as ");
            let _ = literal::write_str(&mut self.out, base);
        }
    }

    fn key(&mut self, key: Symbol) {
        self.word(self.graph.text(key), super::value::is_name_char);
    }

    /// `text` as it is if all its characters are `plain`, otherwise between quotes.
    fn word(&mut self, text: &str, plain: impl Fn(char) -> bool) {
        if !text.is_empty() && text.chars().all(plain) {
            self.out.push_str(text);
        } else {
            let _ = literal::write_str(&mut self.out, text);
        }
    }

    fn value(&mut self, arg: &Arg) {
        let out = &mut self.out;
        match arg {
            Arg::None => out.push_str("None"),
            Arg::Ellipsis => out.push_str("Ellipsis"),
            Arg::Bool(value) => out.push_str(literal::bool_repr(*value)),
            Arg::Int(value) => literal::push_int(out, *value),
            Arg::BigInt(value) => {
                let _ = literal::write_big_int(out, value);
            }
            Arg::Float(value) => {
                let _ = literal::write_float(out, *value);
            }
            Arg::Complex(value) => {
                let _ = literal::write_complex(out, value.0, value.1);
            }
            Arg::Str(text) => {
                let _ = literal::write_str(out, self.graph.text(*text));
            }
            Arg::Bytes(bytes) => {
                let _ = literal::write_bytes(out, bytes);
            }
            Arg::DType(value) => {
                let _ = write!(out, "{value}");
            }
            Arg::Layout(value) => {
                let _ = write!(out, "{value}");
            }
            Arg::MemoryFormat(value) => {
                let _ = write!(out, "{value}");
            }
            Arg::Device(device) => {
                let _ = literal::write_device(out, *device);
            }
            Arg::Node(id) => self.mention(*id),
            Arg::Tuple(items) => self.items("(", items, ")"),
            Arg::List(items) => self.items("[", items, "]"),
            Arg::Slice(items) => self.items("slice(", items, ")"),
            Arg::Range(items) => self.items("range(", items, ")"),
            Arg::Dict(entries) => {
                out.push('{');
                for (i, (key, value)) in entries.iter().enumerate() {
                    if i > 0 {
                        self.out.push_str(", ");
                    }
                    self.value(key);
                    self.out.push_str(": ");
                    self.value(value);
                }
                self.out.push('}');
            }
            Arg::NamedTuple(named) => {
                self.external(named.0);
                self.items("(", &named.1, ")");
            }
            Arg::Opaque(value) => self.external(*value),
        }
    }

    fn items(&mut self, open: &str, items: &[Arg], close: &str) {
        self.out.push_str(open);
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                self.out.push_str(", ");
            }
            self.value(item);
        }
        if open == "(" && items.len() == 1 {
            self.out.push(',');
        }
        self.out.push_str(close);
    }

    fn external(&mut self, value: ExternalId) {
        let number = self.external_number(value);
        let _ = write!(self.out, "@{number}");
    }

    fn external_number(&mut self, value: ExternalId) -> u32 {
        if let Some(number) = self.external_numbers[value] {
            return number;
        }
        // Ids are 32 bits wide, so there are no more of them.
        let number = self.externals.len() as u32;
        self.externals.push(value);
        self.external_numbers.set(value, Some(number));
        number
    }

    /// The number of a module call, declared together with the calls around it.
    fn scope(&mut self, id: ScopeId) -> u32 {
        let mut missing = Vec::new();
        let mut next = Some(id);
        while let Some(id) = next
            && self.scope_numbers[id].is_none()
        {
            missing.push(id);
            next = self.graph.scope(id).parent;
        }
        for id in missing.into_iter().rev() {
            let scope = self.graph.scope(id);
            let class = self.external_number(scope.class);
            let number = self.scope_count;
            let _ = write!(self.scopes, "\n    scope ${number} = ");
            let _ = literal::write_str(&mut self.scopes, self.graph.text(scope.path));
            let _ = write!(self.scopes, " class @{class} call {}", scope.call);
            if let Some(parent) = scope.parent.and_then(|parent| self.scope_numbers[parent]) {
                let _ = write!(self.scopes, " in ${parent}");
            }
            self.scope_numbers.set(id, Some(number));
            self.scope_count += 1;
        }
        self.scope_numbers[id].unwrap_or_default()
    }
}

/// Characters of qualified names.
pub(super) fn is_path_char(c: char) -> bool {
    super::value::is_name_char(c) || c == '.'
}
