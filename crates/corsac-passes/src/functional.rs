//! Replaces modules of `torch.nn` by function calls, and back.
//!
//! [`ModulesToFunctions`] replaces the call of a module by the function that the module calls, on the
//! module's parameters, which become attributes of the program; [`FunctionsToModules`] replaces
//! functions that are called on parameters, or are activations, by modules.
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

use crate::edits::{Added, Edits};
use crate::error::PassError;
use crate::pass::{Context, Functions, Needs, Pass, Plan, Setting};
use crate::report::{Refusal, Site};
use corsac_ir::{Arg, Graph, InsertPoint, NodeId, Op, Symbol, Target, ThinVec};
use corsac_ops::shape::{Dim, ModuleFacts, Value};
use corsac_ops::{ModuleCall, Requirement, Source};
use rustc_hash::FxHashSet;

use corsac_ops::autocast;

pub use layers::FunctionsToModules;

const HOOKS: Refusal = Refusal::because("it has hooks");
const TRAINING: Refusal = Refusal::because("it is in training mode");
const STATISTICS: Refusal = Refusal::because("it normalises with the statistics of each batch");
/// Its dimension is not given.
const DIMENSION: Refusal = Refusal::because("its dimension depends on the shape");
const ARGUMENTS: Refusal = Refusal::because("it is called with other arguments than one tensor");

/// It lacks an attribute of its class, or has one of another type.
fn no_literal(attribute: &str) -> Refusal {
    format!("its {attribute} is nothing that can be written into a program").into()
}

/// The classes of modules to convert.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Classes {
    /// All for which a function is known.
    #[default]
    All,
    /// Those with these qualified names.
    Named(FxHashSet<String>),
    /// Those whose parameters [`autocast`] casts.
    Autocast,
}

/// The pass.
#[derive(Clone, Debug, Default)]
pub struct ModulesToFunctions {
    /// The modules to convert.
    pub classes: Classes,
}

impl ModulesToFunctions {
    fn converts(&self, module: &ModuleFacts) -> bool {
        match &self.classes {
            Classes::All => true,
            Classes::Named(names) => names.contains(&module.class),
            Classes::Autocast => module.torch_class().is_some_and(autocast::is_layer),
        }
    }
}

impl Pass for ModulesToFunctions {
    fn name(&self) -> &'static str {
        "modules to functions"
    }

    fn set(&mut self, option: &str, setting: Setting) -> bool {
        self.classes = match (option, setting) {
            ("classes", Setting::Names(names)) => Classes::Named(names),
            ("autocast", Setting::Flag(true)) => Classes::Autocast,
            _ => return false,
        };
        true
    }

    fn needs(&self) -> Needs {
        Needs {
            attributes: true,
            ..Needs::default()
        }
    }

    fn plan(&self, graph: &Graph, context: &mut Context<'_>) -> Result<Plan, PassError> {
        let (mut sites, mut planned) = (Vec::new(), Vec::new());
        for id in graph.find_nodes(Op::CallModule, None) {
            let node = graph.node(id);
            let path = node.target_name();
            let facts = context.types.module(path);
            if facts.is_some_and(|facts| !self.converts(facts)) {
                continue;
            }
            let granted = facts
                .ok_or_else(|| format!("there is no module {path}").into())
                .and_then(function_of)
                .and_then(|(call, values)| {
                    let one = matches!((node.args(), node.kwargs()), ([_], []));
                    one.then_some((call, values)).ok_or(ARGUMENTS)
                })
                .and_then(|plan| context.budget.grant(plan));
            let (other, refusal) = match granted {
                Ok((call, values)) => {
                    planned.push(Planned {
                        node: id,
                        call,
                        values,
                    });
                    (Some(corsac_ir::own_name(call.function).to_owned()), None)
                }
                Err(refusal) => (None, Some(refusal)),
            };
            sites.push(Site::new(graph, id, refusal).with_other(other));
        }
        let functions = planned.iter().map(|plan| plan.call.function.to_owned());
        let functions = functions.collect();
        Ok(Plan::other(
            sites,
            functions,
            move |graph, function, _, _| {
                let mut edits = Edits::default();
                for plan in &planned {
                    plan.apply(graph, function, &mut edits)?;
                }
                Ok(edits)
            },
        ))
    }
}

/// A call to be changed.
#[derive(Clone, Debug, PartialEq)]
struct Planned {
    node: NodeId,
    call: &'static ModuleCall,
    /// Attributes of the module for the arguments, in the order of the call.
    values: Vec<Value>,
}

/// The function that a module calls, and the arguments besides its input.
fn function_of(facts: &ModuleFacts) -> Result<(&'static ModuleCall, Vec<Value>), Refusal> {
    let Some(call) = facts.torch_class().and_then(ModuleCall::of) else {
        let class = facts.class.rsplit('.').next().unwrap_or(&facts.class);
        return Err(format!("no function is known for {class}").into());
    };
    if facts.hooked {
        return Err(HOOKS);
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
            _ => Err(no_literal(name)),
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
            Some(Value::Str(mode)) => Err(format!("it pads by {mode}").into()),
            _ => Err(no_literal("padding_mode")),
        },
        Requirement::Statistics if facts.training => Err(TRAINING),
        Requirement::Statistics if is_tensor("running_mean") && is_tensor("running_var") => Ok(()),
        Requirement::Statistics => Err(STATISTICS),
        Requirement::Dimension => match facts.attribute("dim") {
            None | Some(Value::None) => Err(DIMENSION),
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

type Arguments = (ThinVec<Arg>, ThinVec<(Symbol, Arg)>);

impl Planned {
    fn apply(
        &self,
        graph: &mut Graph,
        function: &Functions<'_>,
        edits: &mut Edits,
    ) -> Result<(), PassError> {
        let target = Target::Function(function(graph, self.call.function));
        let outer = graph.set_insert_point(InsertPoint::Before(self.node))?;
        let arguments = self.arguments(graph, edits);
        graph.restore_insert_point(outer);
        let (args, kwargs) = arguments?;
        graph.set_op_and_target(self.node, Op::CallFunction, target)?;
        graph.set_arguments(self.node, args, kwargs)?;
        Ok(())
    }

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
