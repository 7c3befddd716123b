//! Generated code.

use corsac_ir::Graph;

use crate::analyse::analyse;
use crate::assemble::head;
use crate::body::{Body, NO_NODE};
use crate::error::CodegenError;
use crate::host::{GlobalValue, Host};
use crate::options::Options;
use crate::print::Printer;
use crate::signature::prologue;

/// Python source of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// A module with one function.
    pub src: String,
    /// The globals of the module's code by name, in the order of the first mention.
    pub globals: Vec<(String, GlobalValue)>,
    /// The node of each line of the function.
    pub lines: LineMap,
    /// The line of `src` that the function starts on, counted from 1.
    pub prologue_start: u32,
}

/// The index of the node of each line of a function, counted from its `def` line as 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineMap {
    first: usize,
    nodes: Vec<u32>,
}

impl LineMap {
    pub(crate) fn after(prologue: &str, nodes: Vec<u32>) -> Self {
        Self {
            first: prologue.matches('\n').count() + 1,
            nodes,
        }
    }

    /// Lines with the index of their node, `None` for those before the first node.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (usize, Option<usize>)> + '_ {
        self.nodes.iter().enumerate().map(|(index, &node)| {
            (
                self.first + index,
                (node != NO_NODE).then_some(node as usize),
            )
        })
    }
}

/// Python source of `graph`.
///
/// # Errors
/// If a node lacks an argument that its opcode needs, or the host lacks a value that the graph
/// refers to.
pub fn python_code(
    graph: &Graph,
    options: &Options,
    host: &dyn Host,
) -> Result<Code, CodegenError> {
    let plan = analyse(graph, options, host)?;
    let signature = plan.signature(options, host);
    let prologue = prologue(options, &signature.parameters, &signature.return_annotation);
    let (mut src, prologue_start) = head(&plan.wrap_statements(), &prologue);
    // Lines of real models come to 40 to 90 bytes a node.
    src.reserve(64 * graph.len());
    let mut printer = Printer::new(&plan, options, host, Body::after(src, graph.len() + 2));
    printer.body();
    let (src, lines) = printer.body.into_lines();
    Ok(Code {
        src,
        globals: plan.names.globals,
        lines: LineMap::after(&prologue, lines),
        prologue_start,
    })
}
