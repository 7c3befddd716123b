//! Replaces modules of `torch.nn` by function calls, and back.
//!
//! [`find`] and [`Functional::apply`] replace the call of a module by the function that the module
//! calls, on the module's parameters, which become attributes of the program; [`find_layers`] and
//! [`call_layers`] replace functions that are called on parameters, or are activations, by modules.
//!
//! Needs: modes and settings that do not change from now on. For the reverse, a host that makes the
//! modules.
//!
//! Preserves: order, names and metadata of the calls; results are the same to the last bit. Modules
//! with hooks, of other classes, and those that no single function computes stay. Each call is one
//! change of the budget.
//!
//! ```text
//!                            fc_weight = self.fc.weight
//!                            fc_bias = self.fc.bias
//! fc = self.fc(x)     →      fc = torch._C._nn.linear(x, fc_weight, fc_bias)
//! ```

mod layers;

use corsac_ir::{Arg, FunctionId, Graph, InsertPoint, NodeId, Op, Symbol, Target, ThinVec};
use corsac_ops::shape::{Dim, ModuleFacts, TypeHost, Value};
use corsac_ops::{ModuleCall, Requirement, Source};
use thiserror::Error;

use crate::budget::Budget;
use crate::edits::{Added, Edits};
use crate::error::PassError;
use crate::pass::{Context, Pass};
use crate::report;

pub use layers::{Layer, LayerRefusal, LayerSite, call_layers, find_layers};

/// The pass, for modules of all classes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModulesToFunctions;

impl Pass for ModulesToFunctions {
    fn name(&self) -> &'static str {
        "modules to functions"
    }

    fn run(
        &self,
        graph: &mut Graph,
        context: &mut Context<'_>,
    ) -> Result<report::Report, PassError> {
        let nodes_before = graph.len();
        let found = find(graph, context.types, &|_| true, &mut context.budget);
        // The targets of the nodes are those before the change.
        let sites = found.report_sites(graph);
        found.apply(graph, Graph::function)?;
        Ok(report::Report {
            pass: self.name().to_owned(),
            sites,
            nodes_before,
            nodes_after: graph.len(),
        })
    }
}

/// A call of a module, with the outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// The node.
    pub node: NodeId,
    /// The function that is called instead, or why the module stays.
    pub outcome: Result<&'static str, Refusal>,
}

/// Why a call stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// There is no such module.
    #[error("there is no module {path}")]
    NoModule {
        /// The path.
        path: String,
    },
    /// No function is known for modules of its class.
    #[error("no function is known for {class}")]
    Class {
        /// The class.
        class: String,
    },
    /// It has hooks.
    #[error("it has hooks")]
    Hooks,
    /// It pads in another way than with zeros.
    #[error("it pads by {mode}")]
    Padding {
        /// The padding mode.
        mode: String,
    },
    /// It is in training mode.
    #[error("it is in training mode")]
    Training,
    /// It has no running statistics.
    #[error("it normalises with the statistics of each batch")]
    Statistics,
    /// Its dimension is not given, and depends on the shape.
    #[error("its dimension depends on the shape")]
    Dimension,
    /// It is called with other arguments than one tensor.
    #[error("it is called with other arguments than one tensor")]
    Arguments,
    /// It lacks an attribute of its class, or has one that cannot be written into a program.
    #[error("its {attribute} is nothing that can be written into a program")]
    Attribute {
        /// The name of the attribute.
        attribute: String,
    },
    /// No more changes may be made.
    #[error("{}", Budget::EXHAUSTED)]
    Budget,
}

/// The calls of modules, in order, with their replacements.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Functional {
    /// All calls of modules of the requested classes.
    pub sites: Vec<Site>,
    planned: Vec<Planned>,
}

/// A call to be changed.
#[derive(Clone, Debug, PartialEq)]
struct Planned {
    node: NodeId,
    call: &'static ModuleCall,
    /// Attributes of the module for the arguments, in the order of the call.
    values: Vec<Value>,
}

/// Finds the calls of modules whose classes, by qualified name, are `wanted`, within the budget,
/// without changing the graph.
#[must_use]
pub fn find(
    graph: &Graph,
    types: &dyn TypeHost,
    wanted: &dyn Fn(&str) -> bool,
    budget: &mut Budget,
) -> Functional {
    let mut found = Functional::default();
    for id in graph.find_nodes(Op::CallModule, None) {
        let node = graph.node(id);
        let path = node.target_name();
        let facts = types.module(path);
        if facts.is_some_and(|facts| !wanted(&facts.class)) {
            continue;
        }
        let planned = facts
            .ok_or_else(|| Refusal::NoModule {
                path: path.to_owned(),
            })
            .and_then(function_of)
            .and_then(|(call, values)| {
                let one = matches!((node.args(), node.kwargs()), ([_], []));
                one.then_some((call, values)).ok_or(Refusal::Arguments)
            })
            .and_then(|plan| budget.take().then_some(plan).ok_or(Refusal::Budget));
        let outcome = planned.map(|(call, values)| {
            found.planned.push(Planned {
                node: id,
                call,
                values,
            });
            call.function
        });
        found.sites.push(Site { node: id, outcome });
    }
    found
}

/// The function that a module calls, and the arguments besides its input.
fn function_of(facts: &ModuleFacts) -> Result<(&'static ModuleCall, Vec<Value>), Refusal> {
    let Some(call) = facts.torch_class().and_then(ModuleCall::of) else {
        let class = facts.class.rsplit('.').next().unwrap_or(&facts.class);
        let class = class.to_owned();
        return Err(Refusal::Class { class });
    };
    if facts.hooked {
        return Err(Refusal::Hooks);
    }
    check(facts, call.requirement)?;
    let keywords = call.keywords.iter().map(|(_, source)| source);
    let sources = call.positional.iter().chain(keywords);
    let values = sources.map(|source| {
        let (Source::Tensor(name) | Source::Setting(name) | Source::SettingOrZero(name)) = source;
        let value = match *name {
            "training" => Some(Value::Bool(facts.training)),
            name => facts.attribute(name).cloned(),
        };
        let fits = match (source, &value) {
            (Source::Tensor(_), Some(Value::Tensor(_) | Value::None)) => true,
            (Source::Tensor(_), _) | (_, None) => false,
            (_, Some(value)) => is_literal(value),
        };
        match value {
            Some(Value::None) if matches!(source, Source::SettingOrZero(_)) => {
                Ok(Value::Float(0.0))
            }
            Some(value) if fits => Ok(value),
            _ => Err(Refusal::Attribute {
                attribute: (*name).to_owned(),
            }),
        }
    });
    Ok((call, values.collect::<Result<_, _>>()?))
}

fn check(facts: &ModuleFacts, requirement: Requirement) -> Result<(), Refusal> {
    let is_tensor = |name| matches!(facts.attribute(name), Some(Value::Tensor(_)));
    match requirement {
        Requirement::None => Ok(()),
        Requirement::ZeroPadding => match facts.attribute("padding_mode") {
            Some(Value::Str(mode)) if &**mode == "zeros" => Ok(()),
            Some(Value::Str(mode)) => Err(Refusal::Padding {
                mode: mode.to_string(),
            }),
            _ => Err(Refusal::Attribute {
                attribute: "padding_mode".to_owned(),
            }),
        },
        Requirement::Statistics if facts.training => Err(Refusal::Training),
        Requirement::Statistics if is_tensor("running_mean") && is_tensor("running_var") => Ok(()),
        Requirement::Statistics => Err(Refusal::Statistics),
        Requirement::Dimension => match facts.attribute("dim") {
            None | Some(Value::None) => Err(Refusal::Dimension),
            Some(_) => Ok(()),
        },
    }
}

/// Whether a setting can be written into a program as a literal.
fn is_literal(value: &Value) -> bool {
    match value {
        Value::None | Value::Bool(_) | Value::Float(_) | Value::Str(_) => true,
        Value::Int(dim) => matches!(dim, Dim::Known(_)),
        Value::Tuple(items) | Value::List(items) => items.iter().all(is_literal),
        _ => false,
    }
}

/// A setting as an argument.
fn literal(graph: &mut Graph, value: &Value) -> Result<Arg, PassError> {
    Ok(match value {
        Value::Bool(flag) => Arg::Bool(*flag),
        Value::Float(number) => Arg::Float(*number),
        Value::Str(text) => Arg::Str(graph.intern(text)),
        Value::Int(Dim::Known(number)) => Arg::Int(*number),
        Value::Tuple(items) | Value::List(items) => {
            let items = items.iter().map(|item| literal(graph, item));
            let items = items.collect::<Result<ThinVec<_>, PassError>>()?;
            match value {
                Value::List(_) => Arg::list(items)?,
                _ => Arg::tuple(items)?,
            }
        }
        // Other values were refused before.
        _ => Arg::None,
    })
}

impl Functional {
    /// Whether there is a call to replace.
    #[must_use]
    pub fn changed(&self) -> bool {
        !self.planned.is_empty()
    }

    /// The qualified names of the functions that will be called, each once.
    pub fn functions(&self) -> impl Iterator<Item = &'static str> {
        let mut names: Vec<_> = self.planned.iter().map(|plan| plan.call.function).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter()
    }

    /// The sites in the form of a report.
    #[must_use]
    pub fn report_sites(&self, graph: &Graph) -> Vec<report::Site> {
        let sites = self.sites.iter().map(|site| match &site.outcome {
            Ok(function) => {
                let own = corsac_ir::own_name(function).to_owned();
                report::Site::new(graph, site.node, Some(own), None)
            }
            Err(refusal) => report::Site::new(graph, site.node, None, Some(refusal.to_string())),
        });
        sites.collect()
    }

    /// Replaces the calls; `function` returns a function of the graph by its qualified name.
    ///
    /// # Errors
    /// If the graph is not the one that the calls were found in.
    pub fn apply(
        &self,
        graph: &mut Graph,
        mut function: impl FnMut(&mut Graph, &str) -> FunctionId,
    ) -> Result<Edits, PassError> {
        let mut edits = Edits::default();
        for plan in &self.planned {
            let target = Target::Function(function(graph, plan.call.function));
            let outer = graph.set_insert_point(InsertPoint::Before(plan.node))?;
            let arguments = plan.arguments(graph, &mut edits);
            graph.restore_insert_point(outer);
            let (args, kwargs) = arguments?;
            graph.set_op_and_target(plan.node, Op::CallFunction, target)?;
            graph.set_arguments(plan.node, args, kwargs)?;
        }
        Ok(edits)
    }
}

type Arguments = (ThinVec<Arg>, ThinVec<(Symbol, Arg)>);

impl Planned {
    /// The arguments of the function; adds the attributes among them to the graph.
    fn arguments(&self, graph: &mut Graph, edits: &mut Edits) -> Result<Arguments, PassError> {
        let path = graph.node(self.node).target_name().to_owned();
        let mut args: ThinVec<Arg> = graph.node(self.node).args().into();
        let mut kwargs = ThinVec::new();
        let mut values = self.values.iter();
        let mut next = |graph: &mut Graph, source: &Source| -> Result<Arg, PassError> {
            match (source, values.next()) {
                (Source::Tensor(name), Some(Value::Tensor(_))) => {
                    let node = graph.get_attr(&format!("{path}.{name}"))?;
                    graph.set_origin(node, graph.origin(self.node));
                    edits.added.push(Added {
                        node,
                        root: self.node,
                        has_its_value: false,
                    });
                    Ok(node.into())
                }
                (_, Some(value)) => literal(graph, value),
                (_, None) => Ok(Arg::None),
            }
        };
        for source in &self.call.positional {
            args.push(next(graph, source)?);
        }
        for (key, source) in &self.call.keywords {
            let arg = next(graph, source)?;
            kwargs.push((graph.intern(key), arg));
        }
        Ok((args, kwargs))
    }
}

#[cfg(test)]
mod tests;
