//! Modules of `torch.nn`: each is a rule, with parameters that the module's attributes supply.

use super::call::{Call, Settings};
use super::error::Failure;
use super::propagate::ModuleFacts;
use super::rule::{Found, in_namespace};
use super::value::Value;
use crate::operators::OperatorId;

/// The rule for modules of this class among `torch.nn`'s own: one for it alone, or that of the
/// function.
pub(super) fn rule_of(class: &str, operator: OperatorId) -> Option<Found> {
    in_namespace(&format!("nn.{class}"), "forward").or_else(|| in_namespace("F", operator.name()))
}

/// The rule for a module, and the operator that it calls.
pub(super) fn find(facts: &ModuleFacts) -> Result<(Found, OperatorId), Failure> {
    if facts.hooked {
        return Err(Failure::unknown(
            "the module has hooks, which may do anything",
        ));
    }
    let known = facts.torch_class().and_then(|class| {
        let operator = OperatorId::of_module(class)?;
        Some((rule_of(class, operator)?, operator))
    });
    known.ok_or_else(|| Failure::unknown(format!("there is no rule for {}", facts.class)))
}

/// The module's attribute for a parameter of its rule.
pub(super) fn attribute(operator: OperatorId, facts: &ModuleFacts, param: &str) -> Option<Value> {
    let renamed = operator.row().module_attributes.split_ascii_whitespace();
    let own = renamed
        .filter_map(|pair| pair.split_once('='))
        .find(|(to, _)| *to == param);
    let own = own.map_or(param, |(_, from)| from);
    if own == "training" {
        return Some(Value::Bool(facts.training));
    }
    facts.attribute(own).cloned()
}

/// The call that a module makes with its own arguments.
pub(super) fn bind<'a>(
    facts: &ModuleFacts,
    args: impl Iterator<Item = Value>,
    kwargs: impl Iterator<Item = (&'a str, Value)>,
    settings: Settings,
) -> Result<(Found, Call<'static>), Failure> {
    let (found, operator) = find(facts)?;
    let signature = &found.entry.signature;
    let mut call = Call::bind(signature, args, kwargs, settings)?;
    for (at, param) in signature.params.iter().enumerate() {
        if call.args[at].is_none() {
            call.args[at] = attribute(operator, facts, param.name);
        }
    }
    Ok((found, call))
}
