//! Inserts the casts of automatic mixed precision.
//!
//! Convolutions, linear layers, matrix products and attention get their tensors in a lower
//! precision, operators that need the range of float32 get them in float32, and those that join
//! tensors get them in the widest type among them ([`corsac_ops::autocast`] has the lists). A value
//! is cast once, however often it is used, unless it is written to, itself or through shared
//! storage. Linear layers and convolutions become functions of their parameters first
//! ([`crate::functional::Classes::Autocast`]), so that those are cast too.
//!
//! Needs: a function of the host that casts floating-point tensors ([`Casts::ByHost`]), or element
//! types ([`TensorFacts`]) that hold for every call ([`Casts::ByType`]).
//!
//! Preserves: order and names. Results differ in precision. Facts about values that are computed
//! from cast ones are outdated: [`Casted::stale`].
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

use corsac_ir::{Arg, DType, EntityId, FunctionId, Graph, NodeId, Op, Target, ThinVec};
use corsac_ops::Host;
use corsac_ops::Precision;
use corsac_ops::autocast::{self, is_composed, is_neutral, precision};
use corsac_ops::shape::{ModuleFacts, TypeHost};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::Analysis;
use crate::budget::Budget;
use crate::edits::{Call, Edits};
use crate::error::PassError;
use crate::report::{Refusal, Site};
use crate::tensors::TensorFacts;

/// The way in which values are cast.
#[derive(Clone, Copy, Debug)]
pub enum Casts<'a> {
    /// By functions of the host, which inspect their arguments when the program runs.
    ByHost {
        /// Takes a value and an element type; returns the value in that type, if it is a
        /// floating-point tensor but not float64.
        cast: FunctionId,
        /// Takes a list; returns its tensors in the widest floating-point type among them.
        widest: FunctionId,
    },
    /// By the method `to`, where the element type is known. Operators that join tensors are not
    /// changed: they promote their arguments themselves.
    ByType(&'a TensorFacts),
}

/// A module, or a function composed of several operators.
const INSIDE: Refusal = Refusal::because("what it calls inside is not known");
/// A cast would replace them by other tensors.
const WRITES: Refusal = Refusal::because("it writes to its arguments");
const NO_LIST: Refusal = Refusal::because("what it joins is no list of the program");
/// The types of what it joins are known only when the program runs, and it does not promote them.
const WIDEST: Refusal =
    Refusal::because("it is not known what the widest type among its tensors is");

/// Result of [`insert`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Casted {
    /// Every call that autocast casts for, with the type, and every unknown one, in order.
    pub sites: Vec<Site>,
    /// Added and erased nodes.
    pub edits: Edits,
    /// Nodes whose values have, or may have, other element types than before.
    pub stale: Vec<NodeId>,
}

/// Inserts casts to `dtype`, which is bfloat16 or float16, after layers have become functions.
///
/// # Errors
/// If a node of `graph` uses one that comes after it.
pub fn insert(
    graph: &mut Graph,
    host: &dyn Host,
    types: &dyn TypeHost,
    dtype: DType,
    casts: &Casts<'_>,
    budget: &mut Budget,
) -> Result<Casted, PassError> {
    let mut inserter = Inserter {
        casts: *casts,
        dtype,
        program: Program::of_graph(graph, host)?,
        known: FxHashMap::default(),
        stale: FxHashSet::default(),
        done: Casted::default(),
    };
    for node in graph.nodes().collect::<Vec<_>>() {
        let wanted = inserter.wanted(graph, types, node);
        let wanted = wanted.map(|wanted| wanted.and_then(|precision| budget.grant(precision)));
        let outcome = match wanted {
            Some(Ok(precision)) => Some(inserter.cast(graph, node, precision)?),
            Some(Err(refusal)) => Some(Err(refusal)),
            None => None,
        };
        if matches!(outcome, Some(Err(_))) || is_kept_layer(graph, types, node) {
            inserter.restore(graph, node)?;
        }
        let mut inputs = graph.inputs(node);
        let cast_for = matches!(outcome, Some(Ok(_)));
        if cast_for || inputs.any(|input| inserter.stale.contains(&input)) {
            inserter.stale.insert(node);
            inserter.done.stale.push(node);
        }
        if let Some(outcome) = outcome {
            let (other, refusal) = match outcome {
                Ok(precision) => (Some(inserter.shown(precision)), None),
                Err(refusal) => (None, Some(refusal)),
            };
            let site = Site::new(graph, node, refusal).with_other(other);
            inserter.done.sites.push(site);
        }
    }
    Ok(inserter.done)
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
}

struct Inserter<'a> {
    casts: Casts<'a>,
    dtype: DType,
    program: Program,
    /// Existing casts, by value and type.
    known: FxHashMap<(NodeId, DType), NodeId>,
    /// Values that may be in a lower precision than before.
    stale: FxHashSet<NodeId>,
    done: Casted,
}

impl Inserter<'_> {
    /// The type that a precision means, in words.
    fn shown(&self, precision: Precision) -> String {
        match precision {
            Precision::Lower => format!("torch.{}", self.dtype.name()),
            Precision::Single => format!("torch.{}", DType::Float32.name()),
            Precision::Widest => "widest".to_owned(),
        }
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
            let told = class.is_some_and(|class| is_neutral(class) || autocast::is_layer(class));
            return (!told).then_some(Err(INSIDE));
        }
        let opaque = self.program.opaque.contains(&id);
        if opaque || is_composed(node.op(), node.target_name()) {
            return Some(Err(INSIDE));
        }
        let precision = precision(node.op(), node.target_name())?;
        if self.program.mutates.contains_key(&id) {
            return Some(Err(WRITES));
        }
        if precision == Precision::Widest {
            let joined = node.args().first();
            return match (self.casts, joined) {
                (Casts::ByHost { .. }, Some(Arg::Tuple(_) | Arg::List(_))) => Some(Ok(precision)),
                (Casts::ByHost { .. }, _) => Some(Err(NO_LIST)),
                (Casts::ByType(_), Some(Arg::Tuple(_) | Arg::List(_))) => None,
                (Casts::ByType(_), _) => Some(Err(WIDEST)),
            };
        }
        if let Casts::ByType(facts) = self.casts {
            let unknown = node.inputs().find(|&input| facts.dtype(input).is_none());
            if let Some(value) = unknown {
                let value = graph.node(value).name();
                let reason = format!("the element type of {value} is not known");
                return Some(Err(reason.into()));
            }
            if !node.inputs().any(|input| is_cast(facts, input)) {
                return None;
            }
        }
        Some(Ok(precision))
    }

    fn cast(
        &mut self,
        graph: &mut Graph,
        node: NodeId,
        precision: Precision,
    ) -> Result<Result<Precision, Refusal>, PassError> {
        let dtype = match precision {
            Precision::Lower => self.dtype,
            Precision::Single => DType::Float32,
            Precision::Widest => return self.widen(graph, node),
        };
        let inputs = inputs(graph, node);
        self.cast_inputs(graph, node, &inputs, dtype)?;
        Ok(Ok(precision))
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
        let mut replaced = FxHashMap::default();
        for &input in inputs {
            if let Some(cast) = self.cast_of(graph, input, dtype, node)? {
                replaced.insert(input, cast);
            }
        }
        if replaced.is_empty() {
            return Ok(());
        }
        graph.map_inputs(node, |input| replaced.get(&input).map(|&cast| cast.into()))?;
        Ok(())
    }

    /// A cast of `value` to `dtype`, inserted before `user`; `None` where no cast is needed.
    fn cast_of(
        &mut self,
        graph: &mut Graph,
        value: NodeId,
        dtype: DType,
        user: NodeId,
    ) -> Result<Option<NodeId>, PassError> {
        if let Some(&known) = self.known.get(&(value, dtype)) {
            return Ok(Some(known));
        }
        let args = [value.into(), Arg::DType(dtype)];
        let call = match self.casts {
            Casts::ByHost { cast, .. } => Call::function(cast, args),
            Casts::ByType(facts) => {
                // For values computed from cast ones the facts have the old type: only whether it
                // is a floating-point type matters.
                if !is_cast(facts, value) {
                    return Ok(None);
                }
                let to = Target::Name(graph.intern("to"));
                Call::new(Op::CallMethod, to, args)
            }
        };
        let cast = self.done.edits.add_before(graph, user, value, call)?;
        // A value that is written to has to be cast for each use.
        if !self.program.written[value.index()] {
            self.known.insert((value, dtype), cast);
        }
        Ok(Some(cast))
    }

    fn widen(
        &mut self,
        graph: &mut Graph,
        node: NodeId,
    ) -> Result<Result<Precision, Refusal>, PassError> {
        let Casts::ByHost { widest, .. } = self.casts else {
            return Ok(Err(WIDEST));
        };
        let mut args: ThinVec<Arg> = graph.node(node).args().into();
        let Some(first) = args.first_mut() else {
            return Ok(Err(NO_LIST));
        };
        let items: ThinVec<Arg> = first.as_items().unwrap_or_default().into();
        let call = Call::function(widest, [Arg::list(items)?]);
        let wide = self.done.edits.add_before(graph, node, node, call)?;
        *first = wide.into();
        graph.set_args(node, args)?;
        Ok(Ok(Precision::Widest))
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

/// Whether a value is a tensor that autocast casts: float64 stays.
fn is_cast(facts: &TensorFacts, value: NodeId) -> bool {
    let floats = [DType::Float32, DType::Float16, DType::BFloat16];
    facts
        .dtype(value)
        .is_some_and(|known| floats.contains(&known))
}

#[cfg(test)]
mod tests;
