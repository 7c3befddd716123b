//! Graphs as text: the form that torch.fx prints, a lossless form, and a reader of both.
//!
//! - [`Graph::to_text`] and `Display` write the *shown* form: the text of `print(graph)` in
//!   torch.fx, character for character. [`Graph::to_table`] is its tabular form.
//! - [`Graph::to_lossless`] writes the *lossless* form, which keeps everything that
//!   [`Graph::same_as`] compares.
//! - [`Graph::parse`] reads the lossless form, and the shown form as far as it is unambiguous.
//!
//! `docs/text-form.md` describes both forms.

mod allow;
mod build;
mod cursor;
mod host;
mod lossless;
mod names;
mod parse_error;
mod print;
mod read_lossless;
mod read_shown;
mod table;
mod value;

pub use allow::is_name_within;
pub use host::{HostText, NamedTupleClass, NoHost, SourceLine};
pub use parse_error::ParseError;

use allow::Allowed;
use cursor::Cursor;

use std::fmt;

use crate::entity::NodeId;
use crate::graph::Graph;

/// Bytes that a line of the shown form takes on average, measured on torchvision's models.
const LINE_BYTES: usize = 112;

impl Graph {
    /// The shown form: the text of torch.fx's `print(graph)`.
    #[must_use]
    pub fn to_text(&self, host: &dyn HostText) -> String {
        let mut printer = print::Printer::new(self, host, LINE_BYTES * self.len() + 8);
        printer.graph();
        printer.finish()
    }

    /// The lossless form: reading it back gives the same graph. Erased nodes, and names that are no
    /// longer used, are left out.
    #[must_use]
    pub fn to_lossless(&self) -> String {
        self.to_lossless_with(&NoHost)
    }

    /// The lossless form, with the names that the host gives its values, and the lines it finds
    /// for its code objects, where it does. A function whose object the host finds again under the
    /// function's own name is written without its object.
    #[must_use]
    pub fn to_lossless_with(&self, host: &dyn HostText) -> String {
        lossless::LosslessPrinter::new(self, host).print()
    }

    /// Reads a graph from either form of text.
    ///
    /// Nodes may be used in lines before their own, as in the graph; every name that is used must
    /// be defined somewhere, once. Reading takes time that grows linearly with the text and never
    /// more stack than containers nested [`crate::MAX_DEPTH`] deep.
    ///
    /// ```
    /// use corsac_ir::Graph;
    ///
    /// let text = "graph():
    ///     %x : [num_users=1] = placeholder[target=x]
    ///     %relu : [num_users=1] = call_function[target=torch.relu](args = (%x,), kwargs = {})
    ///     return relu";
    /// let graph = Graph::parse(text)?;
    /// assert_eq!(graph.len(), 3);
    /// let same = Graph::parse(&graph.to_lossless())?;
    /// assert!(same.same_as(&graph));
    /// # Ok::<(), corsac_ir::ParseError>(())
    /// ```
    ///
    /// # Errors
    /// If the text is no graph, with the place and the text expected there.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Self::read(text, Allowed::default())
    }

    /// As [`Graph::parse`], for text that is data and may name only certain things: `allow` is
    /// called for every qualified name of a function, a class or another host value, once each. The
    /// name of a builtin has its module with it, `builtins.len`, and for `list[torch.Tensor]` it is
    /// called for both names. [`is_name_within`] is of use.
    ///
    /// It is not called for names of inputs, attributes, methods and modules: these are looked up
    /// in the program's own values.
    ///
    /// # Errors
    /// As [`Graph::parse`], or for a name that is not allowed.
    pub fn parse_allowing(text: &str, allow: &dyn Fn(&str) -> bool) -> Result<Self, ParseError> {
        Self::read(text, Allowed::by(Some(allow)))
    }

    fn read(text: &str, allowed: Allowed<'_>) -> Result<Self, ParseError> {
        const SHOWN: &str = "graph():";
        let mut cursor = Cursor::new(text);
        let mut lines = cursor::lines(text, 0);
        let (start, end) = loop {
            match lines.next() {
                Some((start, _)) if text[start..].starts_with('#') => {}
                Some(line) => break line,
                None => {
                    cursor.move_to(text.len());
                    return Err(cursor.error("`graph():` or `graph v1:`"));
                }
            }
        };
        let mut header = Cursor::within(text, start, end);
        let lossless = header.eat("graph v");
        if lossless {
            let at = header.at();
            let version = header.number("a version")?;
            if version != lossless::VERSION {
                let expected = format!("version {} of the text form", lossless::VERSION);
                return Err(header.error_at(at, expected));
            }
            header.expect(":")?;
        } else if !header.eat(SHOWN) {
            return Err(header.error("`graph():` or `graph v1:`"));
        }
        header.skip_spaces();
        header.eat("\r");
        if !header.is_at_end() {
            return Err(header.error("the end of the line"));
        }
        if lossless {
            read_lossless::read(text, end, allowed)
        } else {
            read_shown::read(text, end, allowed)
        }
    }

    /// The text of torch.fx's `node.format_node()`.
    ///
    /// # Panics
    /// If the id was never handed out by this graph.
    #[must_use]
    pub fn format_node(&self, id: NodeId, host: &dyn HostText) -> String {
        let mut printer = print::Printer::new(self, host, LINE_BYTES);
        printer.node(id);
        printer.finish()
    }

    /// As [`Graph::format_node`], with `annotation` where the type annotation of a call would
    /// stand, and no space after it.
    ///
    /// # Panics
    /// If the id was never handed out by this graph.
    #[must_use]
    pub fn format_node_as(&self, id: NodeId, annotation: &str, host: &dyn HostText) -> String {
        let mut printer =
            print::Printer::new(self, host, LINE_BYTES).with_call_annotation(annotation);
        printer.node(id);
        printer.finish()
    }

    /// The arguments of one node as its line shows them: positional ones, and keyword ones with
    /// their names.
    ///
    /// # Panics
    /// If the id was never handed out by this graph.
    #[must_use]
    pub fn format_arguments(&self, id: NodeId, host: &dyn HostText) -> Vec<(Option<&str>, String)> {
        let mut printer = print::Printer::new(self, host, 0);
        let node = self.node(id);
        let mut text = |arg| {
            printer.argument(arg);
            printer.take()
        };
        let mut arguments: Vec<_> = node.args().iter().map(|arg| (None, text(arg))).collect();
        let named = node.kwargs().iter();
        arguments.extend(named.map(|(key, arg)| (Some(self.text(*key)), text(arg))));
        arguments
    }

    /// The line of one node without the number of its users, which other nodes decide.
    pub(crate) fn format_definition(&self, id: NodeId, host: &dyn HostText) -> String {
        let mut printer = print::Printer::new(self, host, LINE_BYTES).without_users();
        printer.node(id);
        printer.finish()
    }

    /// The text of torch.fx's `graph.print_tabular()`, without the line break at the end.
    #[must_use]
    pub fn to_table(&self, host: &dyn HostText) -> String {
        table::table(self, host)
    }
}

impl fmt::Display for Graph {
    /// The shown form, with host values by name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(&NoHost))
    }
}

impl fmt::Display for crate::graph::Node<'_> {
    /// The node's line in the shown form, with host values by name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.graph().format_node(self.id(), &NoHost))
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_parse;
