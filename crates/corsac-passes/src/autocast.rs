//! Inserts the casts of automatic mixed precision.
//!
//! Convolutions, linear layers, matrix products and attention get their tensors in a lower
//! precision, operators that need the range of float32 get them in float32, and those that join
//! tensors get them in the widest type among them ([`corsac_ops::autocast`] has the lists). A value
//! is cast once, however often it is used, unless it is written to, itself or through shared
//! storage. Linear layers and convolutions become functions of their parameters first
//! ([`crate::functional::Classes::Autocast`]), so that those are cast too.
//!
//! Needs: functions of the host that cast ([`Autocast::cast`]) and widen, which inspect their
//! arguments when the program runs.
//!
//! Preserves: order and names. Results differ in precision. Facts about values that are computed
//! from cast ones are outdated: [`Edits::stale`].
//!
//! Not cast: calls that write to their arguments, as with `out=`; modules and functions whose
//! operators are not known. They get float32 where a value was computed in a lower precision, since
//! their weights are not cast. Each call is one change of the budget.
//!
//! ```text
//!                        cast = cast(x, torch.bfloat16)
//! mm = x @ w      →      cast_1 = cast(w, torch.bfloat16)
//!                        mm = cast @ cast_1
//! ```
//!
//! Reference: docs.pytorch.org/docs/stable/amp.html, "CPU Op-Specific Behavior".

use corsac_ir::{Arg, DType, EntityId, FunctionId, Graph, NodeId, Op, ThinVec};
use corsac_ops::Host;
use corsac_ops::Precision;
use corsac_ops::autocast::{self, is_composed, is_neutral, precision};
use corsac_ops::shape::{ModuleFacts, TypeHost};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::Analysis;
use crate::edits::{Call, Edits};
use crate::error::PassError;
use crate::pass::{Context, Needs, Pass, Plan, Setting};
use crate::report::{Refusal, Site};

/// A module, or a function composed of several operators.
const INSIDE: Refusal = Refusal::because("what it calls inside is not known");
/// A cast would replace them by other tensors.
const WRITES: Refusal = Refusal::because("it writes to its arguments");
const NO_LIST: Refusal = Refusal::because("what it joins is no list of the program");

/// The pass, for graphs whose layers have become functions.
#[derive(Clone, Copy, Debug)]
pub struct Autocast {
    /// The lower precision: bfloat16 or float16.
    pub dtype: DType,
    /// Takes a value and an element type; returns the value in that type, if it is a floating-point
    /// tensor but not float64.
    pub cast: Option<FunctionId>,
    /// Takes a list; returns its tensors in the widest floating-point type among them.
    pub widest: Option<FunctionId>,
}

impl Default for Autocast {
    fn default() -> Self {
        Self {
            dtype: DType::BFloat16,
            cast: None,
            widest: None,
        }
    }
}

impl Pass for Autocast {
    fn name(&self) -> &'static str {
        "casts"
    }

    fn set(&mut self, option: &str, setting: Setting) -> bool {
        match (option, setting) {
            ("dtype", Setting::DType(dtype)) => self.dtype = dtype,
            ("cast", Setting::Function(cast)) => self.cast = Some(cast),
            ("widest", Setting::Function(widest)) => self.widest = Some(widest),
            _ => return false,
        }
        true
    }

    fn needs(&self) -> Needs {
        Needs {
            host: true,
            attributes: true,
            ..Needs::default()
        }
    }

    fn plan(&self, graph: &Graph, context: &mut Context<'_>) -> Result<Plan, PassError> {
        let program = Program::of_graph(graph, context.host)?;
        let (mut sites, mut calls) = (Vec::new(), Vec::new());
        for node in graph.nodes() {
            let wanted = program.wanted(graph, context.types, node);
            let wanted = wanted.map(|w| w.and_then(|precision| context.budget.grant(precision)));
            let precision = wanted.as_ref().and_then(|wanted| wanted.as_ref().ok());
            let refused = matches!(wanted, Some(Err(_)));
            calls.push(Planned {
                node,
                precision: precision.copied(),
                is_restored: refused || is_kept_layer(graph, context.types, node),
            });
            if let Some(wanted) = wanted {
                let other = wanted.as_ref().ok().map(|&precision| self.shown(precision));
                sites.push(Site::new(graph, node, wanted.err()).with_other(other));
            }
        }
        let this = *self;
        let functions = [(self.cast, "cast"), (self.widest, "widest")].into_iter();
        let functions = functions.filter(|(given, _)| given.is_none());
        let functions = functions.map(|(_, name)| name.to_owned()).collect();
        Ok(Plan::other(
            sites,
            functions,
            move |graph, function, _, _| {
                let mut inserter = Inserter {
                    dtype: this.dtype,
                    cast: this.cast.unwrap_or_else(|| function(graph, "cast")),
                    widest: this.widest.unwrap_or_else(|| function(graph, "widest")),
                    program,
                    known: FxHashMap::default(),
                    stale: FxHashSet::default(),
                    edits: Edits::default(),
                };
                for call in calls {
                    inserter.change(graph, &call)?;
                }
                Ok(inserter.edits)
            },
        ))
    }
}

impl Autocast {
    /// The type that a precision means, in words.
    fn shown(&self, precision: Precision) -> String {
        match precision {
            Precision::Lower | Precision::LowerProducts => format!("torch.{}", self.dtype.name()),
            Precision::Single => format!("torch.{}", DType::Float32.name()),
            Precision::Widest => "widest".to_owned(),
        }
    }
}

/// The casts for one node.
struct Planned {
    node: NodeId,
    /// The precision that it computes in; `None` where autocast has no rule, or it is refused.
    precision: Option<Precision>,
    /// Whether its arguments are cast back to float32.
    is_restored: bool,
}

/// The effects of a graph that matter for casts.
struct Program {
    /// By node: the values that it writes to.
    mutates: FxHashMap<NodeId, Vec<NodeId>>,
    /// Unknown calls.
    opaque: FxHashSet<NodeId>,
    /// By node: whether its value is written to, itself or through shared storage.
    written: Vec<bool>,
}

impl Program {
    fn of_graph(graph: &Graph, host: &dyn Host) -> Result<Self, PassError> {
        let analysis = Analysis::of_graph(graph, host)?;
        let len = graph.id_bound().max(1);
        let mut classes = vec![false; len];
        let (mut mutates, mut opaque) = (FxHashMap::default(), FxHashSet::default());
        for (_, node, effects) in analysis.walk() {
            if effects.opaque {
                opaque.insert(node);
            }
            if !effects.mutates.is_empty() {
                mutates.insert(node, effects.mutates.to_vec());
            }
            for &value in &effects.mutates {
                classes[analysis.classes.class(value).index()] = true;
            }
        }
        let mut written = vec![false; len];
        for &node in &analysis.nodes {
            written[node.index()] = classes[analysis.classes.class(node).index()];
        }
        Ok(Self {
            mutates,
            opaque,
            written,
        })
    }

    /// The precision in which a call is to compute; `None` where autocast has no rule.
    fn wanted(
        &self,
        graph: &Graph,
        types: &dyn TypeHost,
        id: NodeId,
    ) -> Option<Result<Precision, Refusal>> {
        let node = graph.node(id);
        if node.op() == Op::CallModule {
            let class = types.module(node.target_name());
            let class = class.and_then(|facts| facts.torch_class());
            // A layer that is still a module has been reported already.
            let is_reported =
                class.is_some_and(|class| is_neutral(class) || autocast::is_layer(class));
            return (!is_reported).then_some(Err(INSIDE));
        }
        if self.opaque.contains(&id) || is_composed(node.op(), node.target_name()) {
            return Some(Err(INSIDE));
        }
        let precision = precision(node.op(), node.target_name())?;
        if self.mutates.contains_key(&id) {
            return Some(Err(WRITES));
        }
        let joins = matches!(node.args().first(), Some(Arg::Tuple(_) | Arg::List(_)));
        if precision == Precision::Widest && !joins {
            return Some(Err(NO_LIST));
        }
        Some(Ok(precision))
    }
}

struct Inserter {
    dtype: DType,
    cast: FunctionId,
    widest: FunctionId,
    program: Program,
    /// Existing casts, by value and type.
    known: FxHashMap<(NodeId, DType), NodeId>,
    /// Values that may be in a lower precision than before.
    stale: FxHashSet<NodeId>,
    edits: Edits,
}

impl Inserter {
    fn change(&mut self, graph: &mut Graph, call: &Planned) -> Result<(), PassError> {
        let node = call.node;
        let given = inputs(graph, node);
        match call.precision {
            Some(Precision::Lower | Precision::LowerProducts) => {
                self.cast_inputs(graph, node, &given, self.dtype)?;
            }
            Some(Precision::Single) => self.cast_inputs(graph, node, &given, DType::Float32)?,
            Some(Precision::Widest) => self.widen(graph, node)?,
            None => {}
        }
        if call.is_restored {
            self.restore(graph, node)?;
        }
        let mut inputs = graph.inputs(node);
        if call.precision.is_some() || inputs.any(|input| self.stale.contains(&input)) {
            self.stale.insert(node);
            self.edits.stale.push(node);
        }
        Ok(())
    }

    /// Casts arguments that now have a lower precision back to float32, for a call that is not
    /// cast.
    fn restore(&mut self, graph: &mut Graph, node: NodeId) -> Result<(), PassError> {
        let mut inputs = inputs(graph, node);
        let written = self.program.mutates.get(&node);
        inputs.retain(|input| {
            let is_written = written.is_some_and(|written| written.contains(input));
            self.stale.contains(input) && !is_written
        });
        self.cast_inputs(graph, node, &inputs, DType::Float32)
    }

    fn cast_inputs(
        &mut self,
        graph: &mut Graph,
        node: NodeId,
        inputs: &[NodeId],
        dtype: DType,
    ) -> Result<(), PassError> {
        if inputs.is_empty() {
            return Ok(());
        }
        let mut replaced = FxHashMap::default();
        for &input in inputs {
            replaced.insert(input, self.cast_of(graph, input, dtype, node)?);
        }
        graph.map_inputs(node, |input| replaced.get(&input).map(|&cast| cast.into()))?;
        Ok(())
    }

    /// A cast of `value` to `dtype`, inserted before `user`.
    fn cast_of(
        &mut self,
        graph: &mut Graph,
        value: NodeId,
        dtype: DType,
        user: NodeId,
    ) -> Result<NodeId, PassError> {
        if let Some(&known) = self.known.get(&(value, dtype)) {
            return Ok(known);
        }
        let call = Call::function(self.cast, [value.into(), Arg::DType(dtype)]);
        let cast = self.edits.add_before(graph, user, value, call)?;
        // A value that is written to has to be cast for each use.
        if !self.program.written[value.index()] {
            self.known.insert((value, dtype), cast);
        }
        Ok(cast)
    }

    /// Casts the tensors of a list, the first argument of `node`, to the widest type among them.
    fn widen(&mut self, graph: &mut Graph, node: NodeId) -> Result<(), PassError> {
        let mut args: ThinVec<Arg> = graph.node(node).args().into();
        if let Some(first) = args.first_mut() {
            let items: ThinVec<Arg> = first.as_items().unwrap_or_default().into();
            let call = Call::function(self.widest, [Arg::list(items)?]);
            let wide = self.edits.add_before(graph, node, node, call)?;
            *first = wide.into();
            graph.set_args(node, args)?;
        }
        Ok(())
    }
}

/// Whether a node calls a layer that has not become a function.
fn is_kept_layer(graph: &Graph, types: &dyn TypeHost, node: NodeId) -> bool {
    let node = graph.node(node);
    let facts = types.module(node.target_name());
    node.op() == Op::CallModule
        && (facts.and_then(ModuleFacts::torch_class)).is_some_and(autocast::is_layer)
}

/// The inputs of a node, each once.
fn inputs(graph: &Graph, node: NodeId) -> Vec<NodeId> {
    let mut inputs: Vec<NodeId> = Vec::new();
    for input in graph.inputs(node) {
        if !inputs.contains(&input) {
            inputs.push(input);
        }
    }
    inputs
}

#[cfg(test)]
mod tests;
