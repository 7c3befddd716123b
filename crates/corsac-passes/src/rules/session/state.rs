//! Modules and attributes in results.

use corsac_ir::{Graph, Op, Target};
use corsac_ops::{Behaviour, Catalogue, Host, When};

use super::super::rule::{Callee, Place, Replacement};
use super::super::search::Found;
use super::Session;

impl Session<'_> {
    /// The opcode and target of a new node at a match, and whether its value may share storage with
    /// an argument, where that depends on the match.
    pub(super) fn target(
        &self,
        graph: &Graph,
        found: &Found<'_>,
        callee: &Callee,
        view: bool,
    ) -> Result<(Op, Target, bool), String> {
        let matched = |place: &Place| {
            let var = place
                .of
                .ok_or_else(|| format!("there is no {}", place.path))?;
            let module = found.bindings[var.index()].and_then(|bound| bound.module());
            let call = graph.node(module.ok_or("the module is not bound")?);
            if let Target::Name(module) = call.target()
                && self.targets.module_lacks(graph, module, &place.path)
            {
                return Err(format!("{} of {} is None", place.path, call.target_name()));
            }
            let path = place.from(call.target_name());
            let symbol = graph.lookup(&path);
            symbol.ok_or_else(|| format!("the graph does not know {path}"))
        };
        if let Some((op, target)) = self.vocabulary.target(graph, callee) {
            return Ok((op, target, view));
        }
        match callee {
            Callee::Module(place) if !place.path.is_empty() => {
                let path = &place.path;
                Err(format!(
                    "nothing is known of {path} in the module that was found"
                ))
            }
            Callee::Module(place) => {
                let path = matched(place)?;
                let shares = self.targets.module_shares(path);
                Ok((Op::CallModule, Target::Name(path), shares))
            }
            Callee::Attribute(place) => Ok((Op::GetAttr, Target::Name(matched(place)?), true)),
            Callee::Function(name) | Callee::Method(name) => Err(format!("there is no {name}")),
        }
    }
}

/// Why a replacement cannot be used: it calls a module that is not known to only compute a value.
/// Modules that a pattern covers have been checked before.
pub(super) fn obstacle(
    catalogue: &mut Catalogue<'_>,
    graph: &Graph,
    host: &dyn Host,
    replacement: &Replacement,
) -> Option<String> {
    replacement.calls.iter().find_map(|call| {
        let Callee::Module(Place { of: None, path }) = &call.callee else {
            return None;
        };
        if host.module(path).is_none() {
            return Some(format!("there is no module {path}"));
        }
        let target = Target::Name(graph.lookup(path)?);
        let behaviour = catalogue.behaviour_of(graph, Op::CallModule, target);
        let computes = behaviour.is_some_and(only_computes);
        (!computes).then(|| format!("{path} does more than compute a value"))
    })
}

/// Whether a call only computes a value from its arguments, and from parameters and buffers.
fn only_computes(behaviour: &Behaviour) -> bool {
    let mut roles = behaviour.roles.iter();
    !(roles.any(|role| role.written != When::Never)
        || behaviour.random != When::Never
        || behaviour.side_effect
        || behaviour.barrier
        || behaviour.unrepeatable
        || behaviour.writes_state
        || behaviour.opaque)
}
