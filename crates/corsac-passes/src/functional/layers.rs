//! The reverse: modules in place of functions that are called on parameters.

use corsac_ir::{Arg, Graph, Node, NodeId, Op, Target, ThinVec};
use corsac_ops::module_class_of;
use corsac_ops::shape::Value;
use rustc_hash::FxHashSet;

use crate::edits::Edits;
use crate::error::PassError;
use crate::pass::{Context, Pass, Plan, Request, Setting, path};
use crate::report::{Refusal, Site};

/// The pass. For each call, the host makes a module of the class of `torch.nn`, with the parameters
/// `weight` and `bias`, and adds it to the program.
#[derive(Clone, Debug, Default)]
pub struct FunctionsToModules {
    /// The paths of all parameters of the program.
    pub parameters: FxHashSet<String>,
}

/// A call that a module can replace.
struct Layer {
    class: &'static str,
    /// The path of the weight, where the class has one.
    weight: Option<String>,
    /// The path of the bias, if there is one.
    bias: Option<String>,
}

/// It is a keyword, or no value of the program.
const INPUT: Refusal = Refusal::because("its input is not given by position");
/// A module cannot be made with them.
const ACTIVATION: Refusal =
    Refusal::because("it has arguments besides its input that are no keyword literals");
const SETTINGS: Refusal = Refusal::because("it has arguments that are no literals");
const NO_WEIGHT: Refusal = Refusal::because("it has no weight");

impl Pass for FunctionsToModules {
    fn name(&self) -> &'static str {
        "functions to modules"
    }

    fn set(&mut self, option: &str, setting: Setting) -> bool {
        let ("parameters", Setting::Names(parameters)) = (option, setting) else {
            return false;
        };
        self.parameters = parameters;
        true
    }

    fn plan(&self, graph: &Graph, context: &mut Context<'_>) -> Result<Plan, PassError> {
        let (mut sites, mut requests) = (Vec::new(), Vec::new());
        for id in graph.find_nodes(Op::CallFunction, None) {
            let node = graph.node(id);
            let Some(class) = module_class_of(node.target_name()) else {
                continue;
            };
            let layer = layer(node, class, &self.parameters);
            let layer = layer.and_then(|layer| context.budget.grant(layer));
            let refusal = layer.as_ref().err().cloned();
            if let Ok(layer) = layer {
                let facts = vec![
                    ("class", Value::Str(layer.class.into())),
                    ("weight", path(layer.weight)),
                    ("bias", path(layer.bias)),
                ];
                requests.push(Request::new(sites.len(), facts));
            }
            sites.push(Site::new(graph, id, refusal));
        }
        let plan = Plan::other(sites, Vec::new(), |graph, _, sites, requests| {
            let mut edits = Edits::default();
            for request in requests {
                let site = &mut sites[request.site];
                if let (true, Some(name)) = (site.is_applied(), request.names.first()) {
                    call_module(graph, site.node, name, &mut edits)?;
                    site.other = Some(name.clone());
                }
            }
            Ok(edits)
        });
        Ok(Plan { requests, ..plan })
    }
}

fn layer(
    node: Node<'_>,
    class: &'static str,
    parameters: &FxHashSet<String>,
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
                let known = parameters.contains(path).then(|| path.to_owned());
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

/// Makes `node` call a module on its first argument, instead of a function; attributes that are no
/// longer used are erased.
fn call_module(
    graph: &mut Graph,
    node: NodeId,
    path: &str,
    edits: &mut Edits,
) -> Result<(), PassError> {
    let is_attribute = |&input: &NodeId| graph.node(input).op() == Op::GetAttr;
    let attributes: Vec<NodeId> = graph.inputs(node).filter(is_attribute).collect();
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
    Ok(())
}
