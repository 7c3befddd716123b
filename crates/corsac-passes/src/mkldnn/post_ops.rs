//! Fusion of layers with the operators after them, their epilogue.

use corsac_ir::{Arg, Graph, NodeId, Op, ThinVec};
use corsac_ops::{Host, ModuleInfo};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Activation, Binary, Subgraph, Writes};
use crate::error::PassError;

/// A call of a layer that replaces several nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fused {
    /// The node: the last of those it replaces. Its arguments are the input, and the other operand
    /// if there is one.
    pub node: NodeId,
    /// The qualified name of the layer, which the node calls.
    pub layer: String,
    /// The operation that combines the result with the node's second argument.
    pub binary: Option<Binary>,
    /// The activation that follows.
    pub activation: Option<Activation>,
    /// The qualified name of the activation's module, which has its parameters.
    pub activation_module: Option<String>,
    /// The erased nodes.
    pub gone: Vec<NodeId>,
}

/// Fuses the layers of `subgraph` with the operators after them: a convolution adds or multiplies
/// another value, then applies relu, or applies any activation of the table; a linear layer applies
/// an activation. Layers without such operators are returned too.
///
/// # Errors
/// If the graph refuses a change, which it does not for a plan that was made for it.
pub fn fuse(
    graph: &mut Graph,
    host: &dyn Host,
    subgraph: &Subgraph,
    writes: &Writes,
) -> Result<Vec<Fused>, PassError> {
    let inside: FxHashSet<NodeId> = subgraph.nodes.iter().copied().collect();
    let mut modules = FxHashMap::default();
    let mut fused = Vec::new();
    // From the last one on: of two layers whose results are added, the later one is fused with the
    // sum, so that the other operand has been computed by then.
    for &node in subgraph.nodes.iter().rev() {
        let Some(layer) = layer(graph, host, &mut modules, node) else {
            continue;
        };
        let chain = Chain {
            graph,
            host,
            inside: &inside,
            writes,
        };
        let found = chain.after(node, layer.torch_class() == Some("Conv2d"));
        fused.push(found.apply(graph, node)?);
    }
    fused.reverse();
    Ok(fused)
}

/// The convolution or linear layer that `node` calls with one value.
fn layer(
    graph: &Graph,
    host: &dyn Host,
    modules: &mut FxHashMap<String, Option<ModuleInfo>>,
    node: NodeId,
) -> Option<ModuleInfo> {
    let view = graph.node(node);
    let calls_with_one = matches!((view.args(), view.kwargs()), ([Arg::Node(_)], []));
    if !graph.contains(node) || view.op() != Op::CallModule || !calls_with_one {
        return None;
    }
    let path = view.target_name();
    let known = modules
        .entry(path.to_owned())
        .or_insert_with(|| host.module(path));
    let info = known.as_ref()?;
    matches!(info.torch_class(), Some("Conv2d" | "Linear")).then(|| info.clone())
}

/// Context of the search for the nodes after a layer.
struct Chain<'a> {
    graph: &'a Graph,
    host: &'a dyn Host,
    inside: &'a FxHashSet<NodeId>,
    writes: &'a Writes,
}

/// The nodes after a layer that it can be fused with, in order.
#[derive(Default)]
struct Found {
    nodes: Vec<NodeId>,
    binary: Option<(Binary, NodeId)>,
    activation: Option<(Activation, Option<String>)>,
}

impl Chain<'_> {
    fn after(&self, layer: NodeId, combines: bool) -> Found {
        let mut found = Found::default();
        let mut last = layer;
        if combines && let Some((node, binary, other)) = self.combination(last) {
            found.nodes.push(node);
            found.binary = Some((binary, other));
            last = node;
        }
        if let Some((node, activation, module)) = self.activation(last)
            && (found.binary.is_none() || activation == Activation::Relu)
        {
            found.nodes.push(node);
            found.activation = Some((activation, module));
        }
        if self.stays_the_same(layer, &found) {
            found
        } else {
            Found::default()
        }
    }

    /// Whether the layer and the other operand read the same values at the place the call moves to.
    fn stays_the_same(&self, layer: NodeId, found: &Found) -> bool {
        let Some(&last) = found.nodes.last() else {
            return true;
        };
        let mut read = self
            .graph
            .inputs(layer)
            .chain(found.binary.map(|(_, other)| other));
        !self.writes.come_between(self.graph, layer, last)
            || !read.any(|value| self.writes.is_seen(value))
    }

    /// The only user of a value, if it is in the subgraph.
    fn only_user(&self, node: NodeId) -> Option<NodeId> {
        let mut users = self.graph.users(node);
        let user = users.next().filter(|user| self.inside.contains(user))?;
        users.next().is_none().then_some(user)
    }

    fn combination(&self, value: NodeId) -> Option<(NodeId, Binary, NodeId)> {
        let user = self.only_user(value)?;
        let binary = Binary::of_function(self.graph, self.graph.node(user))?;
        let other = self.graph.inputs(user).find(|&i| i != value)?;
        Some((user, binary, other))
    }

    fn activation(&self, value: NodeId) -> Option<(NodeId, Activation, Option<String>)> {
        let user = self.only_user(value)?;
        let view = self.graph.node(user);
        if view.op() != Op::CallModule {
            return Some((user, Activation::of_function(view)?, None));
        }
        let path = view.target_name();
        let info = self.host.module(path)?;
        let one = matches!((view.args(), view.kwargs()), ([Arg::Node(_)], []));
        let activation = Activation::of_module(&info).filter(|_| one)?;
        Some((user, activation, Some(path.to_owned())))
    }
}

impl Found {
    /// Makes the last node the call of the layer in place of `node`, and erases the others.
    fn apply(self, graph: &mut Graph, node: NodeId) -> Result<Fused, PassError> {
        let layer = graph.node(node).target_name().to_owned();
        let mut fused = Fused {
            node,
            layer,
            binary: self.binary.map(|(binary, _)| binary),
            activation: self.activation.as_ref().map(|(activation, _)| *activation),
            activation_module: self.activation.and_then(|(_, module)| module),
            gone: Vec::new(),
        };
        let Some(&last) = self.nodes.last() else {
            return Ok(fused);
        };
        let target = graph.node(node).target();
        let mut args: ThinVec<Arg> = graph.node(node).args().iter().cloned().collect();
        args.extend(self.binary.map(|(_, other)| Arg::Node(other)));
        graph.set_op_and_target(last, Op::CallModule, target)?;
        graph.set_arguments(last, args, ThinVec::new())?;
        for &between in self.nodes[..self.nodes.len() - 1].iter().rev() {
            graph.erase(between)?;
            fused.gone.push(between);
        }
        graph.erase(node)?;
        fused.gone.push(node);
        fused.node = last;
        Ok(fused)
    }
}
