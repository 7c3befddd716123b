//! The types that nodes require of their inputs and results.

use corsac_ir::{Arg, Graph, NodeId, Op};
use rustc_hash::{FxHashMap, FxHashSet};

use super::matched::{Match, Matched, Matches};
use super::support::{is_supported, supporting};
use super::{Backend, Observer, Part, QConfig, Request};
use crate::quantise::dtypes::{FLOAT, HALF, QUINT8};
use crate::quantise::numbers::Numbers;
use crate::quantise::pattern::Call;

/// The type that a value is required in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ValueType {
    /// Any: it is no tensor, or its configuration has no observer.
    NoTensor,
    /// Floats.
    #[default]
    Float,
    /// Half precision.
    Half,
    /// Quantised outside of the program.
    Quantised,
    /// That of an observer, which a part of a configuration makes.
    Observed(usize, Part),
}

/// Requirements of a node for its inputs and its result.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Required {
    pub(crate) input: ValueType,
    pub(crate) output: ValueType,
    pub(crate) weight: ValueType,
    pub(crate) bias: ValueType,
    pub(crate) weight_at: Option<usize>,
    pub(crate) bias_at: Option<usize>,
    /// Whether its configuration gives results the observer of the input.
    pub(crate) reuses_input: bool,
    /// Whether the backend does.
    pub(crate) shared: bool,
    pub(crate) standalone: bool,
}

/// Requirements of the nodes of a graph.
pub(crate) struct Requirements {
    by_node: FxHashMap<NodeId, Required>,
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

impl Requirements {
    pub(crate) fn of_graph(
        graph: &Graph,
        backend: &Backend,
        request: &Request,
        matches: &Matches,
        numbers: &Numbers,
    ) -> Self {
        let mut requirements = Self {
            by_node: FxHashMap::default(),
            unbounded: Vec::new(),
        };
        let mut done = FxHashSet::default();
        for &node in &matches.order {
            let Some(found) = matches.of(node) else {
                continue;
            };
            let choice = request.choices.get(&node).copied().flatten();
            for &member in &found.nodes {
                if !done.insert(member) {
                    continue;
                }
                if let Some(qconfig) = choice {
                    let required =
                        required(graph, backend, request, numbers, found, member, qconfig);
                    requirements.by_node.insert(member, required);
                }
            }
        }
        requirements.add_known_types(graph, request, numbers, matches);
        let mut reset = FxHashSet::default();
        for &node in &matches.order {
            let Some(found) = matches.of(node) else {
                continue;
            };
            let choice = request.choices.get(&node).copied().flatten();
            if is_supported(graph, backend, request, &requirements, found, choice) {
                continue;
            }
            if let Some(qconfig) = choice
                && node == found.last
                && let Some(dtypes) =
                    supporting(graph, backend, request, &requirements, found, choice, false)
            {
                requirements.unbounded.push((node, qconfig, dtypes));
            }
            for &member in &found.nodes {
                if reset.insert(member) {
                    let required = match numbers.only(member) {
                        true => Required::of_number(),
                        false => Required::default(),
                    };
                    requirements.by_node.insert(member, required);
                }
            }
        }
        requirements.unbounded.reverse();
        requirements
    }

    pub(crate) fn of(&self, node: NodeId) -> Required {
        self.by_node.get(&node).copied().unwrap_or_default()
    }

    /// Sets the type that the result of a node has.
    pub(crate) fn set_output(&mut self, node: NodeId, output: ValueType) {
        self.by_node.entry(node).or_default().output = output;
    }

    /// Adds what is known without patterns: inputs that are quantised, and values that are no tensors.
    fn add_known_types(
        &mut self,
        graph: &Graph,
        request: &Request,
        numbers: &Numbers,
        matches: &Matches,
    ) {
        let inputs = graph.find_nodes(Op::Placeholder, None);
        for (number, input) in inputs.into_iter().enumerate() {
            if request.quantised_inputs.contains(&number) {
                let required = Required {
                    input: ValueType::Quantised,
                    output: ValueType::Quantised,
                    ..Required::default()
                };
                self.by_node.insert(input, required);
            }
        }
        for node in graph.nodes() {
            let op = graph.node(node).op();
            if matches!(op, Op::CallModule | Op::CallMethod | Op::CallFunction)
                && numbers.only(node)
            {
                self.by_node.insert(node, Required::of_number());
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
            let required = self.by_node.entry(node).or_default();
            (required.input, required.output) = (ValueType::NoTensor, ValueType::NoTensor);
            let keeps = matches.of(node).is_some_and(|found| found.shared);
            next = match graph.node(node).args().first() {
                Some(Arg::Node(input)) if keeps => Some(*input),
                _ => None,
            };
        }
    }
}

impl Required {
    fn of_number() -> Self {
        Self {
            input: ValueType::NoTensor,
            output: ValueType::NoTensor,
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

/// Requirements of a node in a match, with this configuration.
fn required(
    graph: &Graph,
    backend: &Backend,
    request: &Request,
    numbers: &Numbers,
    found: &Match,
    node: NodeId,
    qconfig: usize,
) -> Required {
    if numbers.only(node) {
        return Required::of_number();
    }
    let config = &request.qconfigs[qconfig];
    let view = graph.node(node);
    let single = match (view.op(), view.target()) {
        (Op::CallFunction, corsac_ir::Target::Function(function)) => {
            backend.single(&Call::Function(function))
        }
        _ => None,
    };
    let made = |observer: &Option<Observer>, part| match observer {
        Some(_) => ValueType::Observed(qconfig, part),
        None => ValueType::NoTensor,
    };
    let activation = made(&config.activation, Part::Activation);
    // The kernels of normalisations have float weights.
    let floats = [
        "torch.nn.functional.layer_norm",
        "torch.nn.functional.group_norm",
        "torch.nn.functional.instance_norm",
    ];
    Required {
        input: activation,
        output: activation,
        weight: match floats.iter().any(|name| view.calls(name)) {
            true => ValueType::NoTensor,
            false => made(&config.weight, Part::Weight),
        },
        bias: match is_static_half(config) {
            true => ValueType::Half,
            false => ValueType::Float,
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

impl Request {
    /// The element type of a value, by name, and whether it is quantised at each call; none for what is
    /// no tensor.
    pub(crate) fn dtype_of(&self, value_type: ValueType) -> (Option<&str>, bool) {
        match value_type {
            ValueType::NoTensor => (None, false),
            ValueType::Float => (Some(FLOAT), false),
            ValueType::Half => (Some(HALF), false),
            ValueType::Quantised => (Some(QUINT8), false),
            ValueType::Observed(qconfig, part) => match self.observer(qconfig, part) {
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
