//! Whether a backend computes a pattern as its configuration asks.

use corsac_ir::{Arg, Graph, NodeId};

use super::matched::Match;
use super::requirements::Requirements;
use super::{Backend, Bounded, DTypeConfig, Request};
use crate::quantise::dtypes::FLOAT;
use crate::quantise::qconfigs::Choice;

/// Whether the backend has element types for what is matched, with the configuration that is chosen.
pub(crate) fn is_supported(
    graph: &Graph,
    backend: &Backend,
    request: &Request,
    requirements: &Requirements,
    found: &Match,
    choice: Choice,
) -> bool {
    found.matched.pattern().is_none()
        || supporting(graph, backend, request, requirements, found, choice, true).is_some()
}

/// The place of the first element types that the backend computes a pattern in; with the bounds that
/// it has, or without.
pub(crate) fn supporting(
    graph: &Graph,
    backend: &Backend,
    request: &Request,
    requirements: &Requirements,
    found: &Match,
    choice: Choice,
    bounded: bool,
) -> Option<usize> {
    let pattern = &backend.patterns[found.matched.pattern()?];
    pattern.dtypes.iter().copied().find(|&dtypes| {
        let check = Check {
            graph,
            request,
            requirements,
            dtypes: &backend.dtypes[dtypes],
            breaks: &|value| {
                let breaks = |qconfig| backend.broken.contains(&(qconfig, dtypes, value));
                bounded && choice.is_some_and(breaks)
            },
        };
        let root = graph.node(found.root);
        let mut args = root
            .args()
            .iter()
            .chain(root.kwargs().iter().map(|(_, arg)| arg));
        args.all(|arg| check.takes(found.root, arg)) && check.returns(found.last)
    })
}

struct Check<'a> {
    graph: &'a Graph,
    request: &'a Request,
    requirements: &'a Requirements,
    dtypes: &'a DTypeConfig,
    breaks: &'a dyn Fn(Bounded) -> bool,
}

impl Check<'_> {
    /// Whether an argument is required in the element type that the backend takes.
    fn takes(&self, node: NodeId, arg: &Arg) -> bool {
        if let Some(items) = arg.as_items() {
            return items.iter().all(|item| self.takes(node, item));
        }
        let Some(arg) = arg.as_node() else {
            return true;
        };
        let required = self.requirements.of(node);
        let has = |value_type, dtype: &Option<String>| match dtype {
            None => true,
            Some(dtype) => self.request.dtype_of(value_type).0 == Some(dtype),
        };
        if required.is_weight(self.graph, node, arg) {
            let bounded = || !(self.breaks)(Bounded::Weight);
            self.dtypes.weight.is_none() || (has(required.weight, &self.dtypes.weight) && bounded())
        } else if required.is_bias(self.graph, node, arg) {
            has(required.bias, &self.dtypes.bias)
        } else {
            let (_, dynamic) = self.request.dtype_of(required.input);
            self.dtypes.input.is_none()
                || (has(required.input, &self.dtypes.input)
                    && dynamic == self.dtypes.dynamic
                    && !(self.breaks)(Bounded::Input))
        }
    }

    /// Whether the result is required in the element type that the backend returns.
    fn returns(&self, node: NodeId) -> bool {
        let Some(expected) = &self.dtypes.output else {
            return true;
        };
        let dtype = match self.request.dtype_of(self.requirements.of(node).output) {
            // A configuration has one observer for both; results of dynamic quantisation are floats.
            (_, true) => Some(FLOAT),
            (dtype, false) => dtype,
        };
        dtype == Some(expected) && !(self.breaks)(Bounded::Output)
    }
}
