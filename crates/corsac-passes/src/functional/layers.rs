//! The reverse: modules in place of functions that are called on parameters.

use corsac_ir::{Arg, Graph, Node, NodeId, Op, Target, ThinVec};
use corsac_ops::module_class_of;

use crate::budget::Budget;
use crate::edits::Edits;
use crate::error::PassError;
use crate::report::{Refusal, Site};

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

/// It is a keyword, or no value of the program.
const INPUT: Refusal = Refusal::because("its input is not given by position");
/// A module cannot be made with them.
const ACTIVATION: Refusal =
    Refusal::because("it has arguments besides its input that are no keyword literals");
const SETTINGS: Refusal = Refusal::because("it has arguments that are no literals");
const NO_WEIGHT: Refusal = Refusal::because("it has no weight");

/// Finds the calls of functions that classes of modules compute, in order, within the budget,
/// without changing the graph; and those among them that a module can replace. `is_parameter`
/// returns whether the attribute at a path is a parameter.
#[must_use]
pub fn find_layers(
    graph: &Graph,
    is_parameter: &dyn Fn(&str) -> bool,
    budget: &mut Budget,
) -> (Vec<Site>, Vec<Layer>) {
    let calls = graph.nodes().filter_map(|id| {
        let node = graph.node(id);
        let is_call = node.op() == Op::CallFunction;
        let class = module_class_of(node.target_name()).filter(|_| is_call)?;
        Some((node, class))
    });
    let mut layers = Vec::new();
    let sites = calls.map(|(node, class)| {
        let layer = layer(node, class, is_parameter);
        let layer = layer.and_then(|layer| budget.grant(layer));
        let refusal = layer.as_ref().err().cloned();
        layers.extend(layer);
        Site::new(graph, node.id(), refusal)
    });
    (sites.collect(), layers)
}

fn layer(
    node: Node<'_>,
    class: &'static str,
    is_parameter: &dyn Fn(&str) -> bool,
) -> Result<Layer, Refusal> {
    if !matches!(node.args().first(), Some(Arg::Node(_))) {
        return Err(INPUT);
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
        return plain.then_some(layer).ok_or(ACTIVATION);
    }
    let graph = node.graph();
    let parameter = |position: usize, name: &str| -> Result<_, Refusal> {
        let given = node.args().get(position).or_else(|| node.kwarg(name));
        match given {
            None | Some(Arg::None) => Ok(None),
            Some(Arg::Node(at)) if graph.node(*at).op() == Op::GetAttr => {
                let path = graph.node(*at).target_name();
                let known = is_parameter(path).then(|| path.to_owned());
                known
                    .map(Some)
                    .ok_or_else(|| format!("its {name} is no parameter").into())
            }
            Some(_) => Err(format!("its {name} is no attribute").into()),
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
        return Err(SETTINGS);
    }
    match layer.weight {
        Some(_) => Ok(layer),
        None => Err(NO_WEIGHT),
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
