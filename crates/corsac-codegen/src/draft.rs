//! Generated code in parts.

use corsac_ir::{ExternalId, Graph, NodeId};

use crate::analyse::analyse;
use crate::body::Body;
use crate::error::CodegenError;
use crate::host::{GlobalValue, Host};
use crate::options::Options;
use crate::print::Printer;
use crate::signature::Parameter;

/// Parts of generated code, for a host that puts them together itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// All pieces of the body, one after the other.
    pub text: String,
    /// The end of each piece in `text`.
    pub ends: Vec<usize>,
    /// Pieces of output nodes, which are empty: the host writes the return statements.
    pub outputs: Vec<(usize, NodeId)>,
    /// The inputs.
    pub parameters: Vec<Parameter>,
    /// The type of the result, with its arrow.
    pub return_annotation: String,
    /// Statements before the function.
    pub wraps: String,
    /// The globals of the code by name.
    pub globals: Vec<(String, GlobalValue)>,
    /// Values whose name differs from that in the graph.
    pub renamed: Vec<(NodeId, String)>,
    /// Texts of host values and named tuple classes.
    pub host_texts: Vec<(ExternalId, String)>,
}

impl Draft {
    /// The pieces of the body.
    pub fn pieces(&self) -> impl ExactSizeIterator<Item = &str> {
        self.ends.iter().enumerate().map(|(index, &end)| {
            let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
            &self.text[start..end]
        })
    }
}

/// The parts of the code of `graph`. With `own_output`, the statements of output nodes are left
/// to the host.
///
/// # Errors
/// As [`python_code`](crate::python_code).
pub fn draft(
    graph: &Graph,
    options: &Options,
    host: &dyn Host,
    own_output: bool,
) -> Result<Draft, CodegenError> {
    let plan = analyse(graph, options, host)?;
    let signature = plan.signature(options, host);
    let wraps = plan.wrap_statements();
    let mut printer = Printer::new(&plan, options, host, Body::in_pieces());
    printer.outputs = own_output.then(Vec::new);
    printer.body();
    let outputs = printer.outputs.take().unwrap_or_default();
    let (text, ends) = printer.body.into_pieces();
    let host_texts = plan.host_texts();
    let mut renamed: Vec<_> = plan
        .names
        .renamed
        .into_iter()
        .map(|(id, name)| (id, name.into()))
        .collect();
    renamed.sort_unstable();
    Ok(Draft {
        text,
        ends,
        outputs,
        parameters: signature.parameters,
        return_annotation: signature.return_annotation,
        wraps,
        globals: plan.names.globals,
        renamed,
        host_texts,
    })
}
