//! Runs parts of a program on oneDNN's kernels and memory layout.
//!
//! There are three steps:
//! 1. [`plan`] finds the maximal subgraphs of operators that keep a channels-last layout, by
//!    colouring connected supported nodes ([`Colours`]).
//! 2. [`convert`] converts each value that enters a subgraph and each that leaves it;
//!    [`unconvert`] removes the conversions where the caller decides against a subgraph.
//! 3. [`fuse`] merges a convolution or linear layer with the sum with another value after it, and
//!    the activation after that, into one call.
//!
//! Needs: a graph in order; modules in evaluation; weights that are not read elsewhere while they
//! are written to.
//!
//! Preserves: order, and names and metadata of the nodes whose values stay: a fused call is the
//! last of the nodes it was made of. Results differ in rounding.
//!
//! ```text
//! conv = self.conv(x)            to_channels_last = to_channels_last(x)
//! add = conv + y           →     to_channels_last_1 = to_channels_last(y)
//! relu = self.relu(add)          relu = self.conv(to_channels_last, to_channels_last_1)
//! flatten = flatten(relu)        to_contiguous = to_contiguous(relu)
//!                                flatten = flatten(to_contiguous)
//! ```
//!
//! Reference: `torch.fx.experimental.optimization.optimize_for_inference`, which ignores writes,
//! and splits a subgraph wherever its opaque tensors have no kernel.

mod colours;
mod conversion;
mod post_ops;
mod table;
#[cfg(test)]
mod tests;
mod writes;

use corsac_ir::{EntityId, FunctionId, Graph, NodeId, Op, Target};
use corsac_ops::{Effects, Host, ModuleInfo};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::Analysis;
use crate::error::PassError;
use crate::report::{Refusal, Site};

pub use colours::Colours;
pub use conversion::{Conversions, convert, unconvert};
pub use post_ops::{Fused, fuse};
pub use table::{Activation, Binary, FUNCTIONS, FUNCTIONS_WITH_OPERAND, MODULES};
pub use writes::Writes;

/// Targets that can be part of a subgraph.
#[derive(Clone, Debug, Default)]
pub struct Supported {
    /// Classes of modules, by qualified name.
    pub classes: FxHashSet<String>,
    /// Functions.
    pub functions: FxHashSet<FunctionId>,
    /// Functions that are part of a subgraph if one of their operands is.
    pub functions_with_operand: FxHashSet<FunctionId>,
    /// Modules of these classes that are not supported, by path, with the reason: the host knows
    /// dtypes and devices.
    pub unfit: FxHashMap<String, String>,
}

impl Supported {
    /// The targets of `graph` that are in the tables of this module.
    #[must_use]
    pub fn of_graph(graph: &Graph) -> Self {
        let named = |names: &[&str]| {
            let found = graph.functions().map(|(id, _)| id);
            found
                .filter(|&id| names.contains(&graph.function_name(id)))
                .collect()
        };
        Self {
            classes: MODULES.iter().map(|&class| class.to_owned()).collect(),
            functions: named(FUNCTIONS),
            functions_with_operand: named(FUNCTIONS_WITH_OPERAND),
            unfit: FxHashMap::default(),
        }
    }
}

/// Connected nodes that run on one layout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subgraph {
    /// The nodes, in order.
    pub nodes: Vec<NodeId>,
}

const EFFECTS: Refusal = Refusal::because("it does more than compute a value");
/// The value, or one that shares its storage.
const WRITTEN: Refusal = Refusal::because("its value may be written to while others use it");

/// The subgraphs of a program.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The subgraphs, in the order of their first nodes.
    pub subgraphs: Vec<Subgraph>,
    /// Supported nodes that are in no subgraph, in order.
    pub refused: Vec<Site>,
    /// The writes of the program.
    pub writes: Writes,
}

/// Finds the maximal subgraphs of supported nodes.
///
/// # Errors
/// If a node of `graph` uses one that comes after it.
pub fn plan(graph: &Graph, host: &dyn Host, supported: &Supported) -> Result<Plan, PassError> {
    let analysis = Analysis::of_graph(graph, host)?;
    let writes = Writes::of_analysis(graph, &analysis);
    let mut refused = Vec::new();
    let mut colours = Colours::new();
    let mut colour_of: Vec<Option<u32>> = vec![None; graph.id_bound()];
    let mut modules = Modules::new(host, supported);
    for (_, node, effects) in analysis.walk() {
        let operands = || graph.inputs(node).filter_map(|i| colour_of[i.index()]);
        let may_join = match (graph.node(node).op(), graph.node(node).target()) {
            (Op::CallModule, Target::Name(path)) => match modules.fits(graph.text(path)) {
                None => continue,
                Some(fits) => fits,
            },
            (Op::CallFunction, Target::Function(function)) => {
                let always = supported.functions.contains(&function);
                let sometimes = supported.functions_with_operand.contains(&function);
                if !always && (!sometimes || operands().next().is_none()) {
                    continue;
                }
                Ok(())
            }
            // Other opcodes call nothing; methods are never supported.
            _ => continue,
        };
        let decision = may_join.and_then(|()| {
            if !computes_only(effects) {
                Err(EFFECTS)
            } else if writes.is_seen(node) {
                Err(WRITTEN)
            } else {
                Ok(())
            }
        });
        if let Err(refusal) = decision {
            refused.push(Site::new(graph, node, Some(refusal)));
            continue;
        }
        let joined = operands().collect::<Vec<_>>();
        let own = colours.add();
        let colour = joined.into_iter().fold(own, |a, b| colours.join(a, b));
        colour_of[node.index()] = Some(colour);
    }
    let subgraphs = collect(graph, &colour_of, &mut colours);
    Ok(Plan {
        subgraphs,
        refused,
        writes,
    })
}

/// Whether a node only computes a value, possibly in place of one of its operands.
fn computes_only(effects: &Effects) -> bool {
    !(effects.random
        || effects.side_effect
        || effects.opaque
        || effects.writes_state
        || effects.barrier)
}

/// Nodes of one colour, in the order of the graph.
fn collect(graph: &Graph, colour_of: &[Option<u32>], colours: &mut Colours) -> Vec<Subgraph> {
    let mut subgraphs: Vec<Subgraph> = Vec::new();
    let mut place_of = FxHashMap::default();
    for node in graph.nodes() {
        let Some(colour) = colour_of[node.index()] else {
            continue;
        };
        let place = *place_of.entry(colours.find(colour)).or_insert_with(|| {
            subgraphs.push(Subgraph::default());
            subgraphs.len() - 1
        });
        subgraphs[place].nodes.push(node);
    }
    subgraphs
}

/// The modules of a graph, each looked up once.
struct Modules<'a> {
    host: &'a dyn Host,
    supported: &'a Supported,
    known: FxHashMap<String, Option<Result<(), Refusal>>>,
}

impl<'a> Modules<'a> {
    fn new(host: &'a dyn Host, supported: &'a Supported) -> Self {
        Self {
            host,
            supported,
            known: FxHashMap::default(),
        }
    }

    /// Whether the module can be part of a subgraph; `None` if its class is not supported.
    fn fits(&mut self, path: &str) -> Option<Result<(), Refusal>> {
        if let Some(known) = self.known.get(path) {
            return known.clone();
        }
        let info = self.host.module(path);
        let found = info
            .filter(|info| self.supported.classes.contains(&info.class))
            .map(|info| self.decide(path, &info));
        self.known.insert(path.to_owned(), found.clone());
        found
    }

    fn decide(&self, path: &str, info: &ModuleInfo) -> Result<(), Refusal> {
        if info.hooks || info.impure == Some(true) {
            return Err(format!("{path} has hooks or declares side effects").into());
        }
        if info.training && info.torch_class() == Some("BatchNorm2d") {
            return Err(format!("{path} is in training mode").into());
        }
        match self.supported.unfit.get(path) {
            Some(reason) => Err(reason.clone().into()),
            None => Ok(()),
        }
    }
}
