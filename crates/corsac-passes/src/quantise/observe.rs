//! Places of observers: on the values that a backend quantises.
//!
//! A backend has patterns of calls with the element types that it computes them in. Where the
//! configuration of a pattern asks for one of them, its inputs are observed, weights of functions too,
//! and its result, each value once. Calls that only move or choose elements, such as pooling,
//! reshaping and concatenation, share one observer between inputs and result, so that they can be
//! computed on quantised values.
//!
//! Needs: a graph in order, the classes of modules.
//!
//! Preserves: everything, as long as observers return their input.
//!
//! ```text
//! conv = self.conv(x)     →   activation_post_process_0 = self.activation_post_process_0(x)
//!                             conv = self.conv(activation_post_process_0)
//!                             activation_post_process_1 = self.activation_post_process_1(conv)
//! ```
//!
//! Reference: `torch.ao.quantization.quantize_fx.prepare_fx`.

mod insert;
mod matched;
mod requirements;
mod results;
mod support;

use corsac_ir::{Graph, NodeId, Op};
use corsac_ops::Host;
use rustc_hash::{FxHashMap, FxHashSet};

pub use results::{Structure, TupleFunctions};

use super::pattern::{Call, Pattern};
use super::qconfigs::Choice;
use crate::error::PassError;
use crate::report::{Refusal, Site};

const NO_PATTERN: Refusal = Refusal::because("the backend does not quantise it");
const NO_CONFIGURATION: Refusal = Refusal::because("it has no configuration");
const BOUNDS: Refusal = Refusal::because("its configuration breaks the bounds of the backend");
const ELEMENT_TYPES: Refusal =
    Refusal::because("the backend does not compute it in the types of its configuration");

/// The facts about an observer that a configuration makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observer {
    /// The element type that it quantises to, by name.
    pub dtype: String,
    /// Whether scale and zero point are chosen at each call.
    pub dynamic: bool,
    /// The number of its class.
    pub class: usize,
}

/// A configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QConfig {
    /// The observer of inputs and results.
    pub activation: Option<Observer>,
    /// The observer of weights.
    pub weight: Option<Observer>,
    /// Whether results have the observer of the input.
    pub reuses_input: bool,
}

/// Element types that a backend computes a pattern in, by name; `None` for any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DTypeConfig {
    /// Of inputs.
    pub input: Option<String>,
    /// Of results.
    pub output: Option<String>,
    /// Of weights.
    pub weight: Option<String>,
    /// Of biases.
    pub bias: Option<String>,
    /// Whether inputs are quantised at each call.
    pub dynamic: bool,
}

/// The values of a pattern that a backend's bounds are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bounded {
    /// Its inputs.
    Input,
    /// Its results.
    Output,
    /// Its weights.
    Weight,
}

/// The observer of a pattern's result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Observation {
    /// One of its own.
    #[default]
    Own,
    /// That of the input.
    Shared,
    /// None.
    Unobserved,
}

/// A pattern that a backend quantises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantisable {
    /// The calls.
    pub pattern: Pattern,
    /// The place of the first call to run, whose inputs are observed.
    pub root: usize,
    /// The observer of the result.
    pub observation: Observation,
    /// The observer of the result by the number of tensors among the inputs; if there are any, it
    /// decides.
    pub by_tensors: FxHashMap<usize, Observation>,
    /// The places of the element types in [`Backend::dtypes`], in the order of preference.
    pub dtypes: Vec<usize>,
    /// The place of the weight among the arguments, where the pattern is a function.
    pub weight: Option<usize>,
    /// The place of the bias.
    pub bias: Option<usize>,
}

/// A backend's patterns.
#[derive(Clone, Debug, Default)]
pub struct Backend {
    /// The patterns.
    pub patterns: Vec<Quantisable>,
    /// The element types that they are computed in.
    pub dtypes: Vec<DTypeConfig>,
    /// The configurations that break the bounds of element types: configuration, element types and
    /// the values concerned.
    pub broken: FxHashSet<(usize, usize, Bounded)>,
}

/// Modules that are quantised as a whole, by path.
#[derive(Clone, Debug, Default)]
pub struct Wholes {
    /// Modules that are replaced by observed ones of the user's.
    pub custom: FxHashSet<String>,
    /// Custom modules whose results are tuples of quantised values.
    pub tuples: FxHashMap<String, Structure>,
    /// Modules that are quantised by themselves, with the places of inputs that they get quantised.
    pub standalone: FxHashMap<String, Vec<usize>>,
}

/// The request of observers for a graph.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The configurations, which nodes have by their place in the list.
    pub qconfigs: Vec<QConfig>,
    /// The choice of each node.
    pub choices: FxHashMap<NodeId, Choice>,
    /// Modules that are quantised as a whole.
    pub wholes: Wholes,
    /// The numbers of inputs that are quantised already.
    pub quantised_inputs: Vec<usize>,
    /// Whether an attribute name is taken.
    pub taken: FxHashSet<String>,
    /// The functions of results that are tuples; without them, such results are left as they are.
    pub tuple_functions: Option<TupleFunctions>,
}

/// The part of a configuration that makes an observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// That for inputs and results.
    Activation,
    /// That for weights.
    Weight,
}

/// A module that is an observer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its name.
    pub name: String,
    /// The configuration that makes it.
    pub qconfig: usize,
    /// The part of the configuration.
    pub part: Part,
    /// The place in the list of the observer that is in its place: its own, or one that it shares.
    pub module: usize,
    /// Its node; none where it was removed again.
    pub node: Option<NodeId>,
}

/// The observers of a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The observers, in the order in which they were placed.
    pub placed: Vec<Placed>,
    /// The nodes that are to be quantised.
    pub nodes: Vec<NodeId>,
    /// The nodes of custom modules that are to be replaced.
    pub custom: Vec<NodeId>,
    /// The names of the modules that values of tuples become floats in.
    pub stubs: Vec<String>,
    /// Every call, with the reason why it is not quantised.
    pub sites: Vec<Site>,
    /// The nodes whose configuration breaks the bounds of a backend: with the configuration, and the
    /// place of the element types that it would else be computed in.
    pub unbounded: Vec<(NodeId, usize, usize)>,
}

/// Puts observers into a graph. The host has to make the modules.
///
/// # Errors
/// If the graph refuses a change: a node uses one that input_type after it.
pub fn observe(
    graph: &mut Graph,
    host: &dyn Host,
    backend: &Backend,
    request: &Request,
) -> Result<Observed, PassError> {
    let numbers = super::numbers::Numbers::of_graph(graph);
    let matches = matched::Matches::of_graph(graph, host, backend, request, &numbers);
    let requirements =
        requirements::Requirements::of_graph(graph, backend, request, &matches, &numbers);
    let unbounded = requirements.unbounded.clone();
    let sites = sites(graph, backend, request, &matches, &requirements);
    let mut insert = insert::Insertion::new(backend, request, &matches, requirements);
    let nodes: Vec<NodeId> = graph.nodes().collect();
    for node in nodes {
        insert.visit(graph, node)?;
    }
    let mut observed = insert.finish();
    observed.unbounded = unbounded;
    observed.sites = sites;
    Ok(observed)
}

/// The calls of a graph, with the reasons for those that stay as they are.
fn sites(
    graph: &Graph,
    backend: &Backend,
    request: &Request,
    matches: &matched::Matches,
    requirements: &requirements::Requirements,
) -> Vec<Site> {
    let is_call = |op| matches!(op, Op::CallModule | Op::CallFunction | Op::CallMethod);
    let calls = graph.nodes().filter(|&node| is_call(graph.node(node).op()));
    let refusal = |node| {
        let choice = request.choices.get(&node).copied().flatten();
        let Some(found) = matches.of(node) else {
            return Some(NO_PATTERN);
        };
        if choice.is_none() {
            return Some(NO_CONFIGURATION);
        }
        let supported = support::is_supported(graph, backend, request, requirements, found, choice);
        let bounded = || {
            requirements
                .unbounded
                .iter()
                .any(|&(last, ..)| last == found.last)
        };
        (!supported).then(|| if bounded() { BOUNDS } else { ELEMENT_TYPES })
    };
    calls
        .map(|node| Site::new(graph, node, refusal(node)))
        .collect()
}

impl Backend {
    /// The pattern that is one call of this function or method.
    fn single(&self, call: &Call) -> Option<&Quantisable> {
        let single = |one: &&Quantisable| one.pattern.args.is_empty() && one.pattern.call == *call;
        self.patterns.iter().rfind(single)
    }
}
