//! Graph-to-graph passes.
//!
//! A pass says what it needs and what it preserves, and answers with a report: what it changed,
//! and where it could have and did not, with the reason. None of them changes what a program
//! computes, what it writes to or in which order it draws random numbers; what a node does is
//! known from [`corsac_ops`].
//!
//! | pass | does |
//! |---|---|
//! | [`dead_code`] | removes what nobody can observe |
//! | [`common_subexpressions`] | computes once what is computed twice |
//! | [`constants`] | finds what is the same in every call |
//! | [`conv_bn`] | folds a batch norm into the weights of the layer beside it |
//! | [`dropout`] | removes dropouts that are the identity |
//! | [`joint`] | takes a graph of the way forward and the way back in two, saving few bytes |
//! | [`linears`] | merges linear layers with one input, makes biases columns of weights |
//! | [`division`] | multiplies by the inverse of a number |
//! | [`functional`] | calls functions in the place of modules, and back |
//! | [`products`] | makes one matrix product of several with one right-hand side |
//! | [`normal_form`] | gives arguments by keyword, writes functions as operators |
//! | [`autocast`] | inserts the casts of automatic mixed precision |
//! | [`decompose`] | takes calls apart by rules |
//! | [`effect_order`] | finds which nodes wait for others since one of the two writes |
//! | [`inversion`] | finds the input of a program from its result |
//! | [`min_cut`] | finds the cheapest cut of a network, for [`joint`] |
//! | [`mkldnn`] | finds subgraphs for oneDNN's layout, and one call for a layer and what follows |
//! | [`placement`] | puts parts on devices, by memory and by cost |
//! | [`no_ops`] | removes what computes what is there already |
//! | [`reinplace`] | computes into the input what may overwrite it |
//! | [`rules`] | applies rewrite rules that are data |
//! | [`simplify`] | applies the laws of algebra, as rules |
//! | [`saturate`] | finds the cheapest of all programs that rules make of one |
//!
//! Each is a [`Pass`] of the [`registry`] too: it runs within a [`Budget`], so that a wrong change
//! is found by bisection ([`first_failing`]), and answers with a [`Report`] that anybody can show.
//! [`canonical`] puts a graph into an order, and gives it a hash, that depend on nothing but what
//! it computes.
//!
//! ```
//! use corsac_ir::Graph;
//! use corsac_ops::Unhosted;
//! use corsac_passes::dead_code;
//!
//! let mut graph = Graph::new();
//! let x = graph.placeholder("x")?;
//! let copy = graph.call_method("clone", [x.into()])?;
//! graph.call_method("add_", [copy.into(), 1.into()])?; // seen: `copy` is returned
//! let other = graph.call_method("clone", [x.into()])?;
//! graph.call_method("add_", [other.into(), 1.into()])?; // not seen by anybody
//! graph.output(copy)?;
//!
//! let report = dead_code::eliminate(&mut graph, &Unhosted, dead_code::Options::default())?;
//! assert_eq!(report.removed.len(), 2);
//! assert_eq!(graph.len(), 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod analysis;
pub mod autocast;
mod budget;
pub mod canonical;
pub mod common_subexpressions;
pub mod constants;
pub mod conv_bn;
pub mod dead_code;
pub mod decompose;
pub mod division;
pub mod dropout;
mod edits;
pub mod effect_order;
mod error;
pub mod functional;
pub mod inversion;
pub mod joint;
pub mod linears;
pub mod min_cut;
pub mod mkldnn;
pub mod no_ops;
pub mod normal_form;
mod pass;
pub mod placement;
pub mod products;
pub mod reinplace;
mod report;
pub mod rules;
pub mod saturate;
pub mod simplify;
mod tensors;
pub mod weights;

pub use budget::{Budget, first_failing};
pub use edits::{Added, Edits};
pub use error::PassError;
pub use pass::{Context, Pass, RunError, registry, run_passes};
pub use report::{Report, Site};
pub use tensors::{TensorFact, TensorFacts};
