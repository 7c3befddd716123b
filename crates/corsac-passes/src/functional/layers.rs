//! The reverse: modules in place of functions that are called on parameters.

use corsac_ir::{Arg, Graph, Node, NodeId, Op, Target, ThinVec};
use corsac_ops::module_class_of;
use thiserror::Error;

use crate::budget::Budget;
use crate::edits::Edits;
use crate::error::PassError;

/// A call that a module can replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The node.
    pub node: NodeId,
    /// The class of `torch.nn`: `Linear`.
    pub class: &'static str,
    /// The path of the weight, where the class has one.
    pub weight: Option<String>,
    /// The path of the bias, if there is one.
    pub bias: Option<String>,
}

/// A call of a function that a class of modules computes, with the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerSite {
    /// The node.
    pub node: NodeId,
    /// The module to make, or why there is none.
    pub outcome: Result<Layer, LayerRefusal>,
}

/// Why a function is called as before.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LayerRefusal {
    /// The input is a keyword, or no value of the program.
    #[error("its input is not given by position")]
    Input,
    /// An activation has arguments that a module cannot be made with.
    #[error("it has arguments besides its input that are no keyword literals")]
    Activation,
    /// A weight is computed.
    #[error("its {parameter} is no attribute")]
    NotAttribute {
        /// The name of the parameter.
        parameter: &'static str,
    },
    /// A weight is a buffer or a plain tensor.
    #[error("its {parameter} is no parameter")]
    NotParameter {
        /// The name of the parameter.
        parameter: &'static str,
    },
    /// A setting is computed.
    #[error("it has arguments that are no literals")]
    Settings,
    /// There is no weight.
    #[error("it has no weight")]
    NoWeight,
    /// No more changes may be made.
    #[error("{}", Budget::EXHAUSTED)]
    Budget,
}

/// Finds the calls of functions that classes of modules compute, in order, within the budget,
/// without changing the graph. `is_parameter` returns whether the attribute at a path is a
/// parameter.
#[must_use]
pub fn find_layers(
    graph: &Graph,
    is_parameter: &dyn Fn(&str) -> bool,
    budget: &mut Budget,
) -> Vec<LayerSite> {
    let calls = graph.nodes().filter_map(|id| {
        let node = graph.node(id);
        let is_call = node.op() == Op::CallFunction;
        let class = module_class_of(node.target_name()).filter(|_| is_call)?;
        Some((node, class))
    });
    let sites = calls.map(|(node, class)| {
        let layer = layer(node, class, is_parameter);
        let layer = layer.and_then(|l| budget.take().then_some(l).ok_or(LayerRefusal::Budget));
        LayerSite {
            node: node.id(),
            outcome: layer,
        }
    });
    sites.collect()
}

fn layer(
    node: Node<'_>,
    class: &'static str,
    is_parameter: &dyn Fn(&str) -> bool,
) -> Result<Layer, LayerRefusal> {
    if !matches!(node.args().first(), Some(Arg::Node(_))) {
        return Err(LayerRefusal::Input);
    }
    let has_node = |arg: &Arg| {
        let mut found = false;
        arg.for_each_node(&mut |_| found = true);
        found
    };
    let mut layer = Layer {
        node: node.id(),
        class,
        weight: None,
        bias: None,
    };
    if !matches!(class, "Linear" | "Conv2d") {
        let computed = node.kwargs().iter().any(|(_, arg)| has_node(arg));
        let plain = node.args().len() == 1 && !computed;
        return plain.then_some(layer).ok_or(LayerRefusal::Activation);
    }
    let graph = node.graph();
    let parameter = |position: usize, name: &'static str| {
        let given = node.args().get(position).or_else(|| node.kwarg(name));
        match given {
            None | Some(Arg::None) => Ok(None),
            Some(Arg::Node(at)) if graph.node(*at).op() == Op::GetAttr => {
                let path = graph.node(*at).target_name();
                let known = is_parameter(path).then(|| path.to_owned());
                let refusal = LayerRefusal::NotParameter { parameter: name };
                known.map(Some).ok_or(refusal)
            }
            Some(_) => Err(LayerRefusal::NotAttribute { parameter: name }),
        }
    };
    layer.weight = parameter(1, "weight")?;
    layer.bias = parameter(2, "bias")?;
    let settings = node.args().iter().skip(3);
    let keywords = node.kwargs().iter().filter(|(key, _)| {
        let key = graph.text(*key);
        key != "weight" && key != "bias"
    });
    if settings.chain(keywords.map(|(_, arg)| arg)).any(has_node) {
        return Err(LayerRefusal::Settings);
    }
    match layer.weight {
        Some(_) => Ok(layer),
        None => Err(LayerRefusal::NoWeight),
    }
}

/// Makes nodes call modules, by path, on their first argument, instead of functions; attributes
/// that are no longer used are erased.
///
/// # Errors
/// If a node is not of this graph, or calls nothing with an argument.
pub fn call_layers(graph: &mut Graph, modules: &[(NodeId, &str)]) -> Result<Edits, PassError> {
    let mut edits = Edits::default();
    for &(node, path) in modules {
        graph.check_live(node)?;
        let attributes: Vec<NodeId> = graph
            .inputs(node)
            .filter(|&input| graph.node(input).op() == Op::GetAttr)
            .collect();
        let input: ThinVec<Arg> = graph.node(node).args().iter().take(1).cloned().collect();
        let target = Target::Name(graph.intern(path));
        graph.set_op_and_target(node, Op::CallModule, target)?;
        graph.set_arguments(node, input, ThinVec::new())?;
        for attribute in attributes {
            if graph.contains(attribute) && graph.node(attribute).num_users() == 0 {
                graph.erase(attribute)?;
                edits.erased.push(attribute);
            }
        }
    }
    Ok(edits)
}
