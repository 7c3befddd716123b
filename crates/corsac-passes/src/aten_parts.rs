//! Calls of a graph of ATen operators that native parts leave to PyTorch: those with effects, and those whose results
//! need PyTorch's own memory.

use corsac_ir::{Arg, Graph, Node, NodeId, Op, SecondaryMap};
use corsac_ops::schema::Schema;
use corsac_ops::{Catalogue, Effects, Host, OperatorId, Recompute, is_operator};

/// Whether an operator, `torch.ops.aten.t.default`, only returns a view of its first argument, one tensor.
#[must_use]
pub fn is_view(name: &str) -> bool {
    let Some(overload) = name.strip_prefix("torch.ops.aten.") else {
        return false;
    };
    let is_free = OperatorId::of(Op::CallFunction, name).is_some_and(|operator| {
        let row = operator.row();
        row.moves_elements && row.recompute == Some(Recompute::Free)
    });
    let schema = Schema::overload(overload.strip_suffix(".default").unwrap_or(overload));
    is_free
        && schema.is_some_and(|own| {
            own.single && !own.composite && own.params.iter().all(|param| !param.written)
        })
}

/// Reason why no part of a graph can be native: a call, other than a copy to an input, that writes to a value.
#[must_use]
pub fn why_not_split(graph: &Graph, host: &dyn Host) -> Option<String> {
    let mut catalogue = Catalogue::new(host);
    let writes = graph.nodes().find(|&node| {
        let effects = catalogue.effects(graph, node);
        let view = graph.node(node);
        let copies = catalogue
            .operator(graph, node)
            .is_some_and(|operator| is_operator!(operator, "copy_"));
        let updates_input =
            copies && first(view).is_some_and(|to| graph.node(to).op() == Op::Placeholder);
        !effects.opaque && !effects.mutates.is_empty() && !updates_input
    })?;
    let name = graph.node(writes).name();
    Some(format!("{name} writes to what the graph made"))
}

/// Calls that cannot be moved or made native.
#[derive(Debug, Default)]
pub struct Kept {
    /// Why PyTorch runs a call.
    pub reasons: SecondaryMap<NodeId, Option<String>>,
    /// Whether no call may be moved across a node.
    pub barriers: SecondaryMap<NodeId, bool>,
}

impl Kept {
    /// The calls of `graph` that PyTorch has to run.
    ///
    /// `refusals` has reasons that are known already, and `results` is the number of leading outputs that the caller
    /// gets: views among them share memory with their bases. All outputs if it is `None`.
    #[must_use]
    pub fn of_graph(
        graph: &Graph,
        host: &dyn Host,
        refusals: &SecondaryMap<NodeId, Option<String>>,
        results: Option<usize>,
    ) -> Self {
        let mut catalogue = Catalogue::new(host);
        let mut effects = SecondaryMap::<NodeId, Effects>::new();
        for node in graph.nodes() {
            effects.set(node, catalogue.effects(graph, node));
        }
        let mut kept = Self::default();
        kept.read_by_place(graph, &effects);
        kept.returned_views(graph, &effects, results);
        for node in graph.nodes() {
            let view = graph.node(node);
            if view.op() != Op::CallFunction {
                continue;
            }
            let own = &effects[node];
            let is_item = view.calls("operator.getitem");
            let barrier = !is_item && (!own.is_pure() || own.barrier);
            kept.barriers.set(node, barrier);
            if kept.reasons[node].is_some() {
                continue;
            }
            let reason = if is_item {
                // Outputs of parts are tensors: items are in the part of their container.
                let container = first(view).map(|container| graph.node(container));
                container.and_then(|own| {
                    let inside = own.op() == Op::CallFunction && kept.reasons[own.id()].is_none();
                    (!inside).then(|| format!("{} is run by PyTorch", own.name()))
                })
            } else if barrier {
                Some("it has an effect besides its result".to_owned())
            } else {
                refusals[node].clone()
            };
            kept.reasons.set(node, reason);
        }
        kept
    }

    /// Keeps calls whose results need the memory layout that PyTorch would give them.
    fn read_by_place(&mut self, graph: &Graph, effects: &SecondaryMap<NodeId, Effects>) {
        for node in graph.nodes() {
            let view = graph.node(node);
            if view.op() != Op::CallFunction || !view.target_name().contains("as_strided") {
                continue;
            }
            let own = "it reads elements by their place in memory".to_owned();
            self.reasons.set(node, Some(own));
            let mut shown = first(view);
            // Views share the memory of their base.
            while let Some(at) = shown.filter(|&at| graph.node(at).op() == Op::CallFunction) {
                self.reasons.get_mut(at).get_or_insert_with(|| {
                    format!(
                        "{} reads its elements by their place in memory",
                        view.name()
                    )
                });
                shown = first(graph.node(at)).filter(|_| shares(&effects[at]));
            }
        }
    }

    /// Keeps views among the results for the caller: they share memory with their base, with PyTorch's strides.
    /// AOTAutograd makes most of them itself, except those of operators with several results.
    fn returned_views(
        &mut self,
        graph: &Graph,
        effects: &SecondaryMap<NodeId, Effects>,
        results: Option<usize>,
    ) {
        let returned = graph
            .output_node()
            .and_then(|output| graph.node(output).args().first());
        let values = returned.map(|own| own.as_items().unwrap_or(std::slice::from_ref(own)));
        let count = results.unwrap_or(usize::MAX);
        for value in values.unwrap_or_default().iter().take(count) {
            let mut shown = value.as_node();
            while let Some(at) = shown {
                let view = graph.node(at);
                let source =
                    first(view).filter(|_| view.op() == Op::CallFunction && shares(&effects[at]));
                if view.calls("operator.getitem")
                    && !source.is_some_and(|source| shares(&effects[source]))
                {
                    break;
                }
                if source.is_some() {
                    self.reasons.set(
                        at,
                        Some("whoever called gets it, and it is a view".to_owned()),
                    );
                }
                shown = source;
            }
        }
    }
}

/// Whether the result of a call may share memory with its first argument. Dropout may return its operand, which nobody
/// can tell from a copy.
fn shares(effects: &Effects) -> bool {
    !effects.aliases.is_empty() && !effects.random
}

fn first(node: Node<'_>) -> Option<NodeId> {
    node.args().first().and_then(Arg::as_node)
}

#[cfg(test)]
mod tests;
