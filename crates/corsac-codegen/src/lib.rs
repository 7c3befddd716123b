//! Python source from a graph, character for character as torch.fx 2.15 writes it.
//!
//! Two steps: *analyse* finds every name (of values, of the globals that the code refers to, of
//! parameters) and the last use of each value; *print* writes text and decides nothing. The
//! [`Host`] trait supplies the rest (texts of values that the graph holds by reference, globals of
//! type annotations, comments); graphs without such values need [`NamedHost`] only.
//!
//! Whatever a graph holds, the code is a program of that graph: names are checked identifiers, and
//! targets and strings are quoted. Where torch.fx would write something else, the difference is in
//! `docs/compatibility.md`.
//!
//! This crate has no Python objects and runs no Python.
//!
//! ```
//! use corsac_codegen::{NamedHost, Options, python_code};
//! use corsac_ir::Graph;
//!
//! let mut graph = Graph::new();
//! let x = graph.placeholder("x")?;
//! let relu = graph.function("torch.nn.functional.relu");
//! let y = graph.call_function(relu, [x.into()])?;
//! graph.output(y)?;
//! let code = python_code(&graph, &Options::default(), &NamedHost::new(&graph)).unwrap();
//! assert_eq!(
//!     code.src.trim_start(),
//!     "def forward(self, x):\n    relu = torch.nn.functional.relu(x);  x = None\n    return relu\n    "
//! );
//! # Ok::<(), corsac_ir::GraphError>(())
//! ```

#![forbid(unsafe_code)]

mod analyse;
mod assemble;
mod attribute;
mod body;
mod code;
mod draft;
mod error;
mod host;
mod named_host;
mod names;
mod needs;
mod operator;
mod options;
mod parameters;
mod plan;
mod print;
mod signature;
mod value;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use assemble::assemble;
pub use code::{Code, LineMap, python_code};
pub use draft::{Draft, draft};
pub use error::CodegenError;
pub use host::{Callee, Expr, Global, GlobalValue, Host, Notes, Piece};
pub use named_host::NamedHost;
pub use needs::Needs;
pub use operator::Operator;
pub use options::{Calling, Options, PyTree};
pub use signature::Parameter;
