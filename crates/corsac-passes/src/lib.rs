//! Graph-to-graph passes.
//!
//! A pass states what it needs and what it preserves, and reports the changes it made, and the places
//! where it made none, with the reason. No pass changes the results of a program,
//! its writes or the order in which it uses random numbers; the effects of nodes come from
//! [`corsac_ops`].
//!
//! | pass | does |
//! |---|---|
//! | [`dead_code`] | removes nodes without observable effect |
//! | [`common_subexpressions`] | merges nodes that compute the same value |
//! | [`constants`] | finds values that are the same in every call |
//! | [`conv_bn`] | folds a batch norm into the weights of the layer beside it |
//! | [`dropout`] | removes dropouts that are the identity |
//! | [`joint`] | splits a joint graph into forward and backward, saving few bytes |
//! | [`linears`] | merges linear layers with the same input, makes biases columns of weights |
//! | [`division`] | replaces division by a number by multiplication |
//! | [`functional`] | replaces modules by function calls, and back |
//! | [`products`] | merges matrix products with the same right-hand side |
//! | [`normal_form`] | gives arguments by keyword, writes functions as operators |
//! | [`aten_parts`] | finds calls of graphs of ATen operators that cannot be native |
//! | [`autocast`] | inserts the casts of automatic mixed precision |
//! | [`balance`] | cuts a program into parts of which the slowest is as fast as possible |
//! | [`effect_order`] | finds nodes that must run after others because one of the two writes |
//! | [`inversion`] | inverts a program: computes its input from its result |
//! | [`min_cut`] | finds the cheapest cut of a network, for [`joint`] |
//! | [`mkldnn`] | finds subgraphs for oneDNN's layout, and fuses layers with what follows |
//! | [`placement`] | puts parts on devices, by memory and by cost |
//! | [`quantise`] | fuses layers, observes values and quantises them |
//! | [`no_ops`] | removes nodes that return their input |
//! | [`reinplace`] | lets operators overwrite their input |
//! | [`rules`] | applies rewrite rules that are data |
//! | [`simplify`] | applies the laws of algebra, as rules |
//! | [`tensor_parallel`] | finds which part of each value each of several ranks has |
//! | [`saturate`] | finds the cheapest of all programs that rules make of one |
//!
//! A [`Pass`] makes a [`Plan`] within a [`Budget`], so that a wrong change is found by bisection
//! ([`first_failing`]): each place that it considers is a [`Site`], with a [`Refusal`] where it makes
//! no change. Weights and modules that it needs are [requests](Request) to its host. The [`registry`] has all passes;
//! what searches and changes a graph in turn, measures, or makes another graph has functions of its own. [`canonical`]
//! gives a graph an order and a hash that depend only on what it computes.
//!
//! ```
//! use corsac_ir::Graph;
//! use corsac_passes::dead_code::DeadCode;
//! use corsac_passes::{Budget, Context, run};
//!
//! let mut graph = Graph::new();
//! let x = graph.placeholder("x")?;
//! let copy = graph.call_method("clone", [x.into()])?;
//! graph.call_method("add_", [copy.into(), 1.into()])?; // seen: `copy` is returned
//! let other = graph.call_method("clone", [x.into()])?;
//! graph.call_method("add_", [other.into(), 1.into()])?; // not seen by anybody
//! graph.output(copy)?;
//!
//! let mut budget = Budget::unlimited();
//! let mut context = Context::within(&mut budget);
//! let report = run(&DeadCode::default(), &mut graph, &mut context)?;
//! assert_eq!(report.edits.erased.len(), 2);
//! assert_eq!(graph.len(), 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod analysis;
pub mod aten_parts;
pub mod autocast;
pub mod balance;
mod budget;
pub mod canonical;
pub mod common_subexpressions;
pub mod constants;
pub mod conv_bn;
pub mod dead_code;
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
mod modules;
pub mod no_ops;
pub mod normal_form;
mod pass;
pub mod placement;
pub mod products;
pub mod quantise;
mod registry;
pub mod reinplace;
mod report;
pub mod rules;
pub mod saturate;
pub mod simplify;
pub mod tensor_parallel;
mod tensors;

pub use budget::{Budget, first_failing};
pub use edits::{Added, Edits};
pub use error::PassError;
pub use pass::{Changes, Context, Functions, Needs, Pass, Plan, Report, Request, Setting, run};
pub use registry::registry;
pub use report::{Refusal, Site};
pub use tensors::{TensorFact, TensorFacts};
