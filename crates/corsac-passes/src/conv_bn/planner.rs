//! The decision about each batch norm.

use corsac_ir::{Graph, Node, NodeId};
use corsac_ops::{ClassId, Host, ModuleInfo};
use rustc_hash::FxHashMap;

use super::operand::{Layer, LayerKind, Norm};
use super::{Plan, Side, batch_statistics, in_training, not_after};
use crate::analysis::Analysis;
use crate::error::PassError;
use crate::modules::{Modules, hooked, parents};
use crate::report::Refusal;
use crate::tensors::TensorFacts;

/// The layers that a batch norm of this kind can be folded into, in words.
pub(super) fn expected(norm: &Norm, linear: bool) -> &'static str {
    match norm.dims {
        Some(1) if linear => "a 1-d convolution or a linear layer",
        Some(1) => "a 1-d convolution",
        Some(2) => "a 2-d convolution",
        Some(_) => "a 3-d convolution",
        None => "a convolution or a linear layer",
    }
}

pub(super) type Decision = Result<(Layer, Plan), (Option<String>, Refusal)>;

/// State of the search over batch norms, in graph order.
pub(super) struct Planner<'a> {
    pub(super) graph: &'a Graph,
    pub(super) host: &'a dyn Host,
    pub(super) tensors: &'a TensorFacts,
    pub(super) linear: bool,
    pub(super) modules: Modules,
    /// Folded batch norms with the layers that replace them.
    pub(super) folded: FxHashMap<NodeId, NodeId>,
    /// The places of writes, found on demand.
    pub(super) writes: Option<Writes>,
}

/// The writes of a program.
pub(super) struct Writes {
    /// The writing nodes with the classes that they write to, in order.
    places: Vec<(NodeId, Vec<ClassId>)>,
    analysis: Analysis,
}

impl Planner<'_> {
    /// The layer that the batch norm at `node` is folded into, with the plan.
    pub(super) fn decide(&mut self, node: NodeId, norm: &Norm) -> Result<Decision, PassError> {
        let after = self.after_layer(node, norm)?;
        let Err((layer, refusal)) = after else {
            return Ok(after);
        };
        Ok(match self.before_layer(node, norm)? {
            Some(Ok(decided)) => Ok(decided),
            // The reason about the layer before it is more informative, if there is such a layer.
            Some(Err(before)) if layer.is_none() => Err(before),
            Some(Err(_)) | None => Err((layer, refusal)),
        })
    }

    /// The layer whose result the batch norm normalises.
    fn after_layer(&mut self, node: NodeId, norm: &Norm) -> Result<Decision, PassError> {
        let layer_node = self.folded.get(&norm.input).copied().unwrap_or(norm.input);
        let layer = Layer::read(self.graph, &self.modules, layer_node);
        let Some(layer) = layer.filter(|layer| self.fits(norm, layer)) else {
            let input = self.graph.node(layer_node).name();
            let expected = expected(norm, self.linear);
            return Ok(Err((None, not_after(input, expected))));
        };
        // The layer's own result, or that of a batch norm folded into it.
        let result = self.graph.node(norm.input);
        if result.num_users() > 1 {
            return Ok(Err(used(self.graph, &layer, result)));
        }
        Ok(self.check(node, norm, &layer, Side::After)?.map_or_else(
            || Ok((layer.clone(), plan_of(&layer, norm, Side::After))),
            |refusal| Err((Some(layer.name.clone()), refusal)),
        ))
    }

    /// The layer that is the only user of the batch norm; `None` if there is no such layer.
    fn before_layer(&mut self, node: NodeId, norm: &Norm) -> Result<Option<Decision>, PassError> {
        let graph = self.graph;
        let view = graph.node(node);
        let mut users = view.users();
        let (Some(user), None) = (users.next(), users.next()) else {
            return Ok(None);
        };
        let layer = Layer::read(graph, &self.modules, user);
        let Some(layer) = layer.filter(|l| l.input == node && self.fits(norm, l)) else {
            return Ok(None);
        };
        let name = layer.name.clone();
        let refusal = if matches!(layer.kind, LayerKind::ConvTranspose(_)) {
            Some(format!("{name} comes after it and is a transposed convolution").into())
        } else if layer.zero_padded {
            Some(format!("{name} comes after it and pads its input with zeros").into())
        } else {
            self.check(node, norm, &layer, Side::Before)?
        };
        Ok(Some(match refusal {
            Some(refusal) => Err((Some(layer.name), refusal)),
            None => {
                let plan = plan_of(&layer, norm, Side::Before);
                Ok((layer, plan))
            }
        }))
    }

    /// Whether a batch norm of this kind normalises the channels of such a layer.
    fn fits(&self, norm: &Norm, layer: &Layer) -> bool {
        match layer.kind {
            LayerKind::Linear => {
                let flat = self.tensors.rank(norm.input) == Some(2);
                matches!(norm.dims, None | Some(1)) && (flat || self.linear)
            }
            LayerKind::Conv(dims) | LayerKind::ConvTranspose(dims) => {
                norm.dims.is_none_or(|norm| norm == dims)
            }
        }
    }

    /// Why the two cannot be merged, if they cannot.
    fn check(
        &mut self,
        node: NodeId,
        norm: &Norm,
        layer: &Layer,
        side: Side,
    ) -> Result<Option<Refusal>, PassError> {
        let batched = match layer.kind {
            LayerKind::Linear => 2,
            LayerKind::Conv(dims) | LayerKind::ConvTranspose(dims) => usize::from(dims) + 2,
        };
        if let Some(rank) = self.tensors.rank(norm.input).filter(|&r| r != batched) {
            let (layer, has) = (&layer.name, format!("its input has {rank} dimensions"));
            let reason = format!("{has}, so that it does not normalise the channels of {layer}");
            return Ok(Some(reason.into()));
        }
        let modules = &self.modules;
        let info = |path| modules.by_path.get(path);
        let of_layer = layer.tensors.module.as_deref().and_then(info);
        let of_norm = norm.tensors.module.as_deref().and_then(info);
        if let Some(refusal) = refusal(modules, layer, of_layer, norm, of_norm) {
            return Ok(Some(refusal));
        }
        // A module reads its input where it is called, and nothing can write to the value between
        // the two; a function's weights, and values that are now read later, may be written to.
        if side == Side::Before || !norm.is_module || layer.parameters.is_some() {
            let (from, to) = match side {
                Side::After => (layer.node, node),
                Side::Before => (node, layer.node),
            };
            if self.is_written(norm, from, to)? {
                let reason = format!("the program writes to what {} reads", layer.name);
                return Ok(Some(reason.into()));
            }
        }
        Ok(None)
    }

    /// Whether the program writes to attributes anywhere, or between two nodes to the value that is
    /// normalised.
    fn is_written(&mut self, norm: &Norm, from: NodeId, to: NodeId) -> Result<bool, PassError> {
        let writes = match &mut self.writes {
            Some(writes) => writes,
            None => {
                let analysis = Analysis::of_graph(self.graph, self.host)?;
                let places = analysis.special().filter(|(_, effects)| effects.writes());
                let places = places.map(|(place, effects)| {
                    let written = effects.mutates.iter().map(|&n| analysis.classes.class(n));
                    let state = effects.writes_state.then_some(ClassId::OUTSIDE);
                    (
                        analysis.nodes[place as usize],
                        written.chain(state).collect(),
                    )
                });
                let places = places.collect();
                self.writes.insert(Writes { places, analysis })
            }
        };
        let input = writes.analysis.classes.class(norm.input);
        let graph = self.graph;
        Ok(writes.places.iter().any(|(at, classes)| {
            let between = graph.is_before(from, *at) && graph.is_before(*at, to);
            classes.contains(&ClassId::OUTSIDE) || (between && classes.contains(&input))
        }))
    }
}

pub(super) fn used(graph: &Graph, layer: &Layer, result: Node<'_>) -> (Option<String>, Refusal) {
    let users = result.users().map(|user| graph.node(user).name());
    let users: Vec<&str> = users.collect();
    let (count, layer) = (users.len(), layer.name.clone());
    let reason = format!(
        "{count} nodes use the result of {layer}: {}",
        users.join(", ")
    );
    (Some(layer), reason.into())
}

pub(super) fn plan_of(layer: &Layer, norm: &Norm, side: Side) -> Plan {
    Plan {
        layer: layer.tensors.clone(),
        norm: norm.tensors.clone(),
        eps: norm.eps,
        side,
        transposed: matches!(layer.kind, LayerKind::ConvTranspose(_)),
        groups: layer.groups,
        parameters: layer.parameters,
        result: None,
    }
}

/// Why the modules of a layer and a batch norm cannot be merged, if they cannot.
fn refusal(
    modules: &Modules,
    layer: &Layer,
    of_layer: Option<&ModuleInfo>,
    norm: &Norm,
    of_norm: Option<&ModuleInfo>,
) -> Option<Refusal> {
    if let Some(info) = of_layer
        && let Some(refusal) = modules.called_again(&layer.name, info)
    {
        return Some(refusal);
    }
    for (info, path) in [(of_norm, &norm.name), (of_layer, &layer.name)] {
        let Some(info) = info else { continue };
        if info.training {
            return Some(in_training(path));
        }
        if let Some(refusal) = hooked(path, info) {
            return Some(refusal);
        }
        if let Some(attribute) = modules.attribute_of.get(&info.identity) {
            return Some(format!("the graph uses {attribute} by itself").into());
        }
    }
    if of_norm.is_some_and(|info| !info.tracks_statistics) {
        return Some(batch_statistics(&norm.name));
    }
    of_layer?;
    parents(&layer.name).find_map(|parent| {
        let identity = modules.identities.get(parent)?;
        modules.calls.contains_key(identity).then(|| {
            let layer = &layer.name;
            format!("{layer} is part of {parent}, which is called as a whole").into()
        })
    })
}
