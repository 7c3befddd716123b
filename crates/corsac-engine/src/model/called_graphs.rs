//! Graphs of a file that other graphs call: branches and loops of control flow.

use corsac_ir::{Arg, Graph, NodeId, Op};
use rustc_hash::FxHashMap;

use super::error::ModelError;
use super::limits::{Limits, within};
use super::metadata::{GRAPHS, wrong};

/// Deepest nesting of calls.
const DEEPEST: usize = 16;

/// Graphs by name. Nodes `get_attr` with such a name are arguments of operators of `torch.ops.higher_order`.
#[derive(Debug, Default)]
pub(super) struct CalledGraphs(FxHashMap<String, Graph>);

/// What is known of a graph.
#[derive(Clone, Copy, Debug)]
enum Visit<'g> {
    /// It is not known yet: a call of it from here is a recursion, which the node with this name begins.
    Begun(&'g str),
    /// It was visited.
    Done(Extent),
}

/// What a graph needs with all that it calls.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// Number of nodes, where each call counts anew.
    nodes: usize,
    /// Nesting of calls in it.
    depth: usize,
}

/// The graphs that have been visited.
type Visits<'g> = FxHashMap<&'g str, Visit<'g>>;

impl CalledGraphs {
    /// Graphs with names, each of which stands for one.
    pub(super) fn new(graphs: Vec<(String, Graph)>) -> Result<Self, ModelError> {
        let mut known = FxHashMap::default();
        for (name, graph) in graphs {
            if known.contains_key(&name) {
                let name: String = name.chars().take(64).collect();
                return Err(wrong(GRAPHS, format!("the name {name:?} stands twice")));
            }
            known.insert(name, graph);
        }
        Ok(Self(known))
    }

    /// The graph of this name.
    pub(super) fn get(&self, name: &str) -> Option<&Graph> {
        self.0.get(name)
    }

    /// The graphs, by name, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Graph)> {
        self.0.iter().map(|(name, graph)| (&**name, graph))
    }

    /// Checks the calls in graphs that are called by nobody: that they end, that all graphs are called, and that the
    /// nodes of all calls together are within the limits.
    pub(super) fn check<'g>(
        &'g self,
        roots: impl Iterator<Item = &'g Graph>,
        limits: &Limits,
    ) -> Result<(), ModelError> {
        let mut visits = Visits::default();
        let mut nodes = 0_usize;
        for root in roots {
            nodes = nodes.saturating_add(self.visit(root, 0, &mut visits)?.nodes);
            within(
                "nodes of the graph, with those of calls",
                nodes,
                limits.nodes,
            )?;
        }
        let mut names: Vec<&str> = self.0.keys().map(|name| &**name).collect();
        names.sort_unstable();
        match names.into_iter().find(|name| !visits.contains_key(name)) {
            Some(name) => Err(wrong(GRAPHS, format!("no graph calls {name:.64?}"))),
            None => Ok(()),
        }
    }

    /// What a graph needs that is called at this depth.
    fn visit<'g>(
        &'g self,
        graph: &'g Graph,
        depth: usize,
        visits: &mut Visits<'g>,
    ) -> Result<Extent, ModelError> {
        within("graphs that call each other", depth, DEEPEST)?;
        let mut own = Extent {
            nodes: graph.nodes().count(),
            depth: 0,
        };
        for (caller, name) in self.calls(graph)? {
            let inner = match visits.get(name) {
                Some(Visit::Done(inner)) => *inner,
                Some(Visit::Begun(first)) => {
                    let reason = format!("the graph {name:.64} calls itself, through node {first}");
                    return Err(ModelError::graph(caller, reason));
                }
                None => {
                    visits.insert(name, Visit::Begun(caller));
                    let inner = self.visit(&self.0[name], depth + 1, visits)?;
                    visits.insert(name, Visit::Done(inner));
                    inner
                }
            };
            own.nodes = own.nodes.saturating_add(inner.nodes);
            own.depth = own.depth.max(inner.depth + 1);
            let all = depth + own.depth;
            within("graphs that call each other", all, DEEPEST)?;
        }
        Ok(own)
    }

    /// The names of the nodes that call graphs, with the names of these.
    fn calls<'g>(&self, graph: &'g Graph) -> Result<Vec<(&'g str, &'g str)>, ModelError> {
        let called = |id: NodeId| {
            let node = graph.node(id);
            let is_graph = node.op() == Op::GetAttr && self.0.contains_key(node.target_name());
            is_graph.then(|| node.target_name())
        };
        let mut calls = Vec::new();
        for id in graph.nodes() {
            let node = graph.node(id);
            let takes_graphs = node.op() == Op::CallFunction
                && node.target_name().starts_with("torch.ops.higher_order.");
            let args = node.args().iter();
            for arg in args.chain(node.kwargs().iter().map(|(_, arg)| arg)) {
                let is_direct = takes_graphs && matches!(arg, Arg::Node(_));
                let mut refused = None;
                arg.for_each_node(&mut |input| {
                    if let Some(name) = called(input) {
                        calls.push((node.name(), name));
                        refused = (!is_direct).then_some(name).or(refused);
                    }
                });
                if let Some(name) = refused {
                    let reason = format!("it reads the graph {name:.64}, and does not call it");
                    return Err(ModelError::graph(node.name(), reason));
                }
            }
        }
        Ok(calls)
    }
}
