//! The element types that nodes want their inputs and results in.

use corsac_ir::{Arg, Graph, NodeId, Op};
use rustc_hash::{FxHashMap, FxHashSet};

use super::matched::{Match, Matched, Matches};
use super::support::{is_supported, supporting};
use super::{Backend, Demand, Observer, Part, QConfig};
use crate::quantise::dtypes::{FLOAT, HALF, QUINT8};
use crate::quantise::numbers::Numbers;
use crate::quantise::pattern::Call;

/// The observer that a value is wanted with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// None: it is no tensor, or its configuration has no observer.
    Nothing,
    /// None: it stays a float.
    #[default]
    Float,
    /// None: it is in half precision.
    Half,
    /// None: it comes quantised.
    Quantised,
    /// That of a configuration.
    Made(usize, Part),
}

/// The wishes of a node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wishes {
    pub(crate) input: Wanted,
    pub(crate) output: Wanted,
    pub(crate) weight: Wanted,
    pub(crate) bias: Wanted,
    pub(crate) weight_at: Option<usize>,
    pub(crate) bias_at: Option<usize>,
    /// Whether its configuration gives results the observer of the input.
    pub(crate) reuses_input: bool,
    /// Whether the backend does.
    pub(crate) shared: bool,
    pub(crate) standalone: bool,
}

/// The wishes of all nodes.
pub(crate) struct Demands {
    by_node: FxHashMap<NodeId, Wishes>,
    pub(crate) unbounded: Vec<(NodeId, usize, usize)>,
}

/// The arguments of methods that are no tensors to observe, though they may be values.
const NOT_OBSERVED: [(&str, std::ops::Range<usize>); 9] = [
    ("masked_fill", 1..3),
    ("permute", 1..usize::MAX),
    ("repeat", 1..usize::MAX),
    ("reshape", 1..usize::MAX),
    ("size", 1..2),
    ("transpose", 1..usize::MAX),
    ("unsqueeze", 1..2),
    ("unsqueeze_", 1..2),
    ("view", 1..usize::MAX),
];

impl Demands {
    pub(crate) fn of_graph(
        graph: &Graph,
        backend: &Backend,
        demand: &Demand,
        matches: &Matches,
        numbers: &Numbers,
    ) -> Self {
        let mut demands = Self {
            by_node: FxHashMap::default(),
            unbounded: Vec::new(),
        };
        let mut done = FxHashSet::default();
        for &node in &matches.order {
            let Some(found) = matches.of(node) else {
                continue;
            };
            let choice = demand.choices.get(&node).copied().flatten();
            for &member in &found.nodes {
                if !done.insert(member) {
                    continue;
                }
                if let Some(qconfig) = choice {
                    let wishes = wishes(graph, backend, demand, numbers, found, member, qconfig);
                    demands.by_node.insert(member, wishes);
                }
            }
        }
        demands.add_known_types(graph, demand, numbers, matches);
        let mut reset = FxHashSet::default();
        for &node in &matches.order {
            let Some(found) = matches.of(node) else {
                continue;
            };
            let choice = demand.choices.get(&node).copied().flatten();
            if is_supported(graph, backend, demand, &demands, found, choice) {
                continue;
            }
            if let Some(qconfig) = choice
                && node == found.last
                && let Some(dtypes) =
                    supporting(graph, backend, demand, &demands, found, choice, false)
            {
                demands.unbounded.push((node, qconfig, dtypes));
            }
            for &member in &found.nodes {
                if reset.insert(member) {
                    let wishes = match numbers.only(member) {
                        true => Wishes::of_number(),
                        false => Wishes::default(),
                    };
                    demands.by_node.insert(member, wishes);
                }
            }
        }
        demands.unbounded.reverse();
        demands
    }

    pub(crate) fn of(&self, node: NodeId) -> Wishes {
        self.by_node.get(&node).copied().unwrap_or_default()
    }

    /// Adds what is known without patterns: inputs that are quantised, and values that are no tensors.
    fn add_known_types(
        &mut self,
        graph: &Graph,
        demand: &Demand,
        numbers: &Numbers,
        matches: &Matches,
    ) {
        let inputs = graph.find_nodes(Op::Placeholder, None);
        for (number, input) in inputs.into_iter().enumerate() {
            if demand.quantised_inputs.contains(&number) {
                let wishes = Wishes {
                    input: Wanted::Quantised,
                    output: Wanted::Quantised,
                    ..Wishes::default()
                };
                self.by_node.insert(input, wishes);
            }
        }
        for node in graph.nodes() {
            let op = graph.node(node).op();
            if matches!(op, Op::CallModule | Op::CallMethod | Op::CallFunction)
                && numbers.only(node)
            {
                self.by_node.insert(node, Wishes::of_number());
            }
        }
        for (method, places) in NOT_OBSERVED {
            let Some(method) = graph.lookup(method) else {
                continue;
            };
            let calls = graph.find_nodes(Op::CallMethod, Some(corsac_ir::Target::Name(method)));
            for node in calls {
                let args = graph.node(node).args();
                let end = places.end.min(args.len());
                for arg in args.get(places.start..end).unwrap_or_default() {
                    let items = arg.as_items().unwrap_or(std::slice::from_ref(arg));
                    for input in items.iter().filter_map(Arg::as_node) {
                        self.unobserve(graph, matches, input);
                    }
                }
            }
        }
    }

    /// Leaves a value alone that is no tensor, and those that it was computed from by calls that keep
    /// element types.
    fn unobserve(&mut self, graph: &Graph, matches: &Matches, node: NodeId) {
        let mut next = Some(node);
        while let Some(node) = next {
            let wishes = self.by_node.entry(node).or_default();
            (wishes.input, wishes.output) = (Wanted::Nothing, Wanted::Nothing);
            let keeps = matches.of(node).is_some_and(|found| found.shared);
            next = match graph.node(node).args().first() {
                Some(Arg::Node(input)) if keeps => Some(*input),
                _ => None,
            };
        }
    }
}

impl Wishes {
    fn of_number() -> Self {
        Self {
            input: Wanted::Nothing,
            output: Wanted::Nothing,
            ..Self::default()
        }
    }

    /// Whether an argument is the weight of a call.
    pub(crate) fn is_weight(&self, graph: &Graph, node: NodeId, arg: NodeId) -> bool {
        is_at(graph, node, arg, self.weight_at, "weight")
    }

    /// Whether an argument is the bias of a call.
    pub(crate) fn is_bias(&self, graph: &Graph, node: NodeId, arg: NodeId) -> bool {
        is_at(graph, node, arg, self.bias_at, "bias")
    }
}

fn is_at(graph: &Graph, node: NodeId, arg: NodeId, at: Option<usize>, name: &str) -> bool {
    let view = graph.node(node);
    let by_place = at.and_then(|at| view.args().get(at));
    [by_place, view.kwarg(name)]
        .into_iter()
        .flatten()
        .any(|found| found.as_node() == Some(arg))
}

/// The wishes of a node in a match, with this configuration.
fn wishes(
    graph: &Graph,
    backend: &Backend,
    demand: &Demand,
    numbers: &Numbers,
    found: &Match,
    node: NodeId,
    qconfig: usize,
) -> Wishes {
    if numbers.only(node) {
        return Wishes::of_number();
    }
    let config = &demand.qconfigs[qconfig];
    let view = graph.node(node);
    let single = match (view.op(), view.target()) {
        (Op::CallFunction, corsac_ir::Target::Function(function)) => {
            backend.single(&Call::Function(function))
        }
        _ => None,
    };
    let made = |observer: &Option<Observer>, part| match observer {
        Some(_) => Wanted::Made(qconfig, part),
        None => Wanted::Nothing,
    };
    let activation = made(&config.activation, Part::Activation);
    // The kernels of normalisations have float weights.
    let floats = [
        "torch.nn.functional.layer_norm",
        "torch.nn.functional.group_norm",
        "torch.nn.functional.instance_norm",
    ];
    Wishes {
        input: activation,
        output: activation,
        weight: match floats.iter().any(|name| view.calls(name)) {
            true => Wanted::Nothing,
            false => made(&config.weight, Part::Weight),
        },
        bias: match is_static_half(config) {
            true => Wanted::Half,
            false => Wanted::Float,
        },
        weight_at: single.and_then(|single| single.weight),
        bias_at: single.and_then(|single| single.bias),
        reuses_input: config.reuses_input,
        shared: found.shared,
        standalone: found.matched == Matched::Standalone,
    }
}

fn is_static_half(config: &QConfig) -> bool {
    let is_half = |observer: &Option<Observer>| {
        observer
            .as_ref()
            .is_some_and(|observer| observer.dtype == HALF)
    };
    let dynamic = config
        .activation
        .as_ref()
        .is_some_and(|activation| activation.dynamic);
    is_half(&config.activation) && is_half(&config.weight) && !dynamic
}

impl Demand {
    /// The element type of a wanted observer, by name, and whether it is dynamic; none for what is no
    /// tensor.
    pub(crate) fn dtype_of(&self, wanted: Wanted) -> (Option<&str>, bool) {
        match wanted {
            Wanted::Nothing => (None, false),
            Wanted::Float => (Some(FLOAT), false),
            Wanted::Half => (Some(HALF), false),
            Wanted::Quantised => (Some(QUINT8), false),
            Wanted::Made(qconfig, part) => match self.observer(qconfig, part) {
                Some(observer) => (Some(&observer.dtype), observer.dynamic),
                None => (None, false),
            },
        }
    }

    /// The observer that a part of a configuration makes.
    pub(crate) fn observer(&self, qconfig: usize, part: Part) -> Option<&Observer> {
        let config = self.qconfigs.get(qconfig)?;
        match part {
            Part::Activation => config.activation.as_ref(),
            Part::Weight => config.weight.as_ref(),
        }
    }
}
