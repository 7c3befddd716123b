//! Graphs as text: what torch.fx prints, a lossless form, and reading both back.
//!
//! - [`Graph::to_text`] and `Display` write the *shown* form: what `print(graph)` writes in
//!   torch.fx, character for character. [`Graph::to_table`] is its tabular form.

mod host;
mod print;
mod table;

pub use host::{HostText, NamedTupleClass, NoHost};

use std::fmt;

use crate::entity::NodeId;
use crate::graph::Graph;

/// Bytes that a line of the shown form takes on average, measured on torchvision's models.
const LINE_BYTES: usize = 112;

impl Graph {
    /// What torch.fx's `print(graph)` shows.
    #[must_use]
    pub fn to_text(&self, host: &dyn HostText) -> String {
        let mut printer = print::Printer::new(self, host, LINE_BYTES * self.len() + 8);
        printer.graph();
        printer.finish()
    }

    /// What torch.fx's `node.format_node()` shows.
    ///
    /// # Panics
    /// If the id was never handed out by this graph.
    #[must_use]
    pub fn format_node(&self, id: NodeId, host: &dyn HostText) -> String {
        let mut printer = print::Printer::new(self, host, LINE_BYTES);
        printer.node(id);
        printer.finish()
    }

    /// What torch.fx's `graph.print_tabular()` prints, without the line break at the end.
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
