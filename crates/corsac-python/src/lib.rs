//! The Python extension module `corsac._core`: handles on the Rust graph.
//!
//! There is one graph, in Rust. A Python `Graph` holds it together with the Python objects that it
//! refers to ([`graph::host`]); a Python `Node` is a graph and an id. Values are converted in [`graph::value`].
//!
//! Two rules keep this sound: no Python code runs while a graph is borrowed to be changed, and
//! objects that are taken out of a graph are dropped after the borrow has ended, since dropping a
//! Python object may run any code.
//!
//! No class here asks PyO3 for a `dict`: CPython 3.11 allocates it, and so may run the garbage
//! collector, before the Rust half of a new object is filled in, and the collector then visits
//! uninitialised fields. Attributes that users set are kept by a subclass, of Python or, for nodes,
//! of [`graph::node_class`].
//!
//! This is the only crate that names `pyo3`. All unsafe code is in [`graph::node_class`], [`graph::next_slot`],
//! `engine` and `capture`.

#![deny(unsafe_code)]

mod aggregate;
mod allowed_names;
mod analysis;
mod budget;
mod bytecode;
mod callable;
mod canonical;
mod capture;
mod codegen;
mod collector;
mod config;
mod drawing;
mod effects;
mod engine;
mod error;
mod graph;
mod host_text;
mod inversion;
mod joint;
mod linears;
mod liveness;
mod matching;
mod mkldnn;
mod model_file;
mod model_session;
mod namespace;
mod operators;
mod packages;
mod passes;
mod placement;
mod quantise;
mod resolve;
mod rewriting;
mod rules;
mod runtime;
mod saturate;
mod splitting;
mod state_copy;
mod text;
mod text_model;
mod trace;

use pyo3::prelude::*;

/// The native half of the `corsac` package.
///
/// It relies on the interpreter's lock.
#[pymodule(gil_used = true)]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    corsac_engine::let_callers_work();
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    graph::register(m)?;
    m.add_class::<matching::PyMatches>()?;
    m.add_class::<rewriting::PyRewriter>()?;
    m.add_function(wrap_pyfunction!(matching::match_subgraph, m)?)?;
    m.add_function(wrap_pyfunction!(passes::pass_names, m)?)?;
    m.add_function(wrap_pyfunction!(passes::run_pass, m)?)?;
    m.add_function(wrap_pyfunction!(passes::find_constants, m)?)?;
    m.add_class::<budget::PyBudget>()?;
    m.add_function(wrap_pyfunction!(budget::first_failing_change, m)?)?;
    m.add_function(wrap_pyfunction!(passes::has_effects, m)?)?;
    capture::register(m)?;
    bytecode::register(m)?;
    mkldnn::register(m)?;
    linears::register(m)?;
    placement::register(m)?;
    quantise::register(m)?;
    joint::register(m)?;
    m.add_function(wrap_pyfunction!(inversion::invert, m)?)?;
    m.add_function(wrap_pyfunction!(passes::node_effects, m)?)?;
    m.add_function(wrap_pyfunction!(passes::graph_effects, m)?)?;
    m.add_class::<rules::PyRewriteRule>()?;
    m.add_class::<rules::PyRuleSet>()?;
    m.add_function(wrap_pyfunction!(rules::parse_rules, m)?)?;
    m.add_function(wrap_pyfunction!(rules::rule_from_graphs, m)?)?;
    m.add_function(wrap_pyfunction!(saturate::saturate, m)?)?;
    m.add_function(wrap_pyfunction!(rules::simplification_laws, m)?)?;
    m.add_function(wrap_pyfunction!(drawing::draw_graph, m)?)?;
    m.add_function(wrap_pyfunction!(drawing::draw_difference, m)?)?;
    m.add_function(wrap_pyfunction!(drawing::draw_records, m)?)?;
    m.add_function(wrap_pyfunction!(aggregate::map_arg, m)?)?;
    m.add_function(wrap_pyfunction!(aggregate::map_aggregate, m)?)?;
    m.add_class::<namespace::PyNamespace>()?;
    m.add_class::<codegen::PyLineMap>()?;
    m.add_class::<codegen::PyCodeDraft>()?;
    m.add_function(wrap_pyfunction!(codegen::generate_code, m)?)?;
    m.add_function(wrap_pyfunction!(codegen::draft_code, m)?)?;
    m.add_function(wrap_pyfunction!(codegen::assemble_code, m)?)?;
    m.add_function(wrap_pyfunction!(state_copy::copy_submodules, m)?)?;
    m.add_function(wrap_pyfunction!(splitting::split_graph, m)?)?;
    m.add_function(wrap_pyfunction!(splitting::extract_nodes, m)?)?;
    m.add_function(wrap_pyfunction!(splitting::extract_subgraph, m)?)?;
    m.add_function(wrap_pyfunction!(splitting::find_part_cycle, m)?)?;
    m.add_function(wrap_pyfunction!(splitting::effect_pairs, m)?)?;
    m.add_function(wrap_pyfunction!(splitting::gather_parts, m)?)?;
    m.add_function(wrap_pyfunction!(splitting::propose_parts, m)?)?;
    m.add_function(wrap_pyfunction!(splitting::grow_parts, m)?)?;
    m.add_function(wrap_pyfunction!(splitting::training_parts, m)?)?;
    m.add_function(wrap_pyfunction!(splitting::why_not_split, m)?)?;
    m.add_function(wrap_pyfunction!(splitting::is_view, m)?)?;
    m.add_function(wrap_pyfunction!(splitting::alternate_groups, m)?)?;
    m.add_function(wrap_pyfunction!(splitting::sort_nodes, m)?)?;
    m.add_function(wrap_pyfunction!(splitting::sort_breadth_first, m)?)?;
    trace::register(m)?;
    operators::register(m)?;
    m.add_function(wrap_pyfunction!(config::read_config, m)?)?;
    m.add_function(wrap_pyfunction!(config::write_config, m)?)?;
    m.add("ConfigError", m.py().get_type::<config::ConfigError>())?;
    analysis::register(m)?;
    engine::register(m)?;
    model_file::register(m)?;
    model_session::register(m)?;
    text_model::register(m)?;
    m.add_class::<text::PyGraphDiff>()?;
    m.add("GraphTextError", m.py().get_type::<text::GraphTextError>())?;
    Ok(())
}
