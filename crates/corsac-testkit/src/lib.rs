//! Test support for the other crates (unpublished): programs as text or expressions, random graphs
//! and edits for property tests, the filetest runner, imports between modules, and the bodies of
//! the fuzz targets.
//!
//! ```
//! use corsac_testkit::{chain, parse};
//!
//! let graph = parse("graph v1:
//!     %x = placeholder[target=x]
//!     %y = call_method[target=neg](args = (%x,), kwargs = {})");
//! assert_eq!(graph.len(), 2);
//! assert_eq!(chain(10).len(), 12);
//! ```
//!
//! Programs written as expressions are [`corsac_ir::proxy::trace`]'s.

#![forbid(unsafe_code)]

pub mod bytes;
pub mod edit;
pub mod filetest;
pub mod fuzz;
#[cfg(feature = "engine")]
mod fuzz_model;
#[cfg(feature = "engine")]
mod fuzz_text;
pub mod imports;
pub mod model_header;
pub mod recipe;
pub mod strategy;
#[cfg(feature = "engine")]
pub mod text_model;

use corsac_ir::{Arg, Fault, Graph};

/// Parses a graph.
///
/// # Panics
/// With the error, if `text` is no graph.
#[must_use]
pub fn parse(text: &str) -> Graph {
    Graph::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// `x + 1 + 1 + ...`, `len` times, with input and output.
///
/// # Panics
/// Never: the graph is valid.
#[must_use]
pub fn chain(len: usize) -> Graph {
    let mut graph = Graph::new();
    let add = graph.function("operator.add");
    let mut last = graph.placeholder("x").expect("no arguments");
    for _ in 0..len {
        last = graph
            .call_function(add, [last.into(), Arg::Int(1)])
            .expect("arguments of this graph");
    }
    graph.output(last).expect("an argument of this graph");
    graph
}

/// Checks the invariants that a graph keeps whatever was done to it.
///
/// # Panics
/// With the faults, if there is one that only a bug of the graph can cause.
pub fn assert_sound(graph: &Graph) {
    let Err(report) = graph.verify() else { return };
    assert!(!report.faults.iter().any(Fault::is_internal), "{report}");
}
