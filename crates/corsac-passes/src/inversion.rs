//! Inversion: the program that computes the input of another one from its result.
//!
//! Walks from the result to the input, and undoes each step: sums, differences, products and
//! quotients with values that do not depend on the input, functions of one tensor that have an
//! inverse (`inverse` of [`corsac_ops::Operator`]), transpositions, permutations, flips. Values that do
//! not depend on the input are computed as before.
//!
//! Needs: one input and one result, with every value on the way used once; no writes, and no
//! unknown calls, since they may write too. Values that do not depend on the input must not be
//! random.
//!
//! Where there is an obstacle, the error lists every step, and why those that cannot be undone
//! cannot.
//!
//! Preserves: origins of the steps. Exact up to rounding where the functions are.
//!
//! ```text
//! y = exp(x) * w     →     div = y / w
//!                          x = log(div)
//! ```
//!
//! Reference: J. Reed et al., "torch.fx: Practical Program Capture and Transformation for Deep
//! Learning in Python", MLSys 2022, which shows the idea.

mod step;

use corsac_ir::{
    Arg, ExternalId, FunctionId, Graph, GraphError, NodeId, Op, SecondaryMap, ThinVec, Translation,
};
use corsac_ops::{BinaryInverse, Host};
use rustc_hash::FxHashMap;
use thiserror::Error;

use crate::analysis::Analysis;
use crate::edits::Added;
use crate::error::PassError;
use crate::report::{Refusal, Site};
use step::{Step, Undo, step};

/// The result is a container, or nothing.
const NO_VALUE: Refusal = Refusal::because("it is not one value");
const INDEPENDENT: Refusal = Refusal::because("it does not depend on the input");
const USED_TWICE: Refusal = Refusal::because("its value is used more than once");
const WRITES: Refusal = Refusal::because("it writes to something, or may do");
const RANDOM: Refusal =
    Refusal::because("it uses random numbers, which the inverse would generate anew");

/// An inverse.
#[derive(Debug)]
pub struct Inverse {
    /// The program.
    pub graph: Graph,
    /// Its nodes, each with the one of the original that it is there because of.
    pub added: Vec<Added>,
    /// Host values of the original with those of the inverse.
    pub externals: Vec<(ExternalId, ExternalId)>,
    /// Functions of the original with those of the inverse. Further functions are known by name.
    pub functions: Vec<(FunctionId, FunctionId)>,
    /// The steps that were undone.
    pub sites: Vec<Site>,
}

/// Why a program has no inverse, or none that is known.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InversionError {
    /// There is an obstacle.
    #[error("the program cannot be inverted at {place}: {refusal}")]
    NotInvertible {
        /// The name of the node, or the part of the program, with the first obstacle.
        place: String,
        /// The obstacle there.
        refusal: Refusal,
        /// Every step, with the reason why it cannot be undone if it cannot, in order of the program.
        sites: Vec<Site>,
    },
    /// The graph is not well formed.
    #[error(transparent)]
    Graph(#[from] PassError),
}

impl From<GraphError> for InversionError {
    fn from(error: GraphError) -> Self {
        Self::Graph(error.into())
    }
}

/// The program that computes the input of `graph` from its result.
///
/// # Errors
/// [`InversionError::NotInvertible`] with all obstacles.
pub fn invert(graph: &Graph, host: &dyn Host) -> Result<Inverse, InversionError> {
    let part = |place: &str, refusal: Refusal, nodes: &[NodeId]| {
        let sites = nodes.iter();
        let sites = sites.map(|&node| Site::new(graph, node, Some(refusal.clone())));
        InversionError::NotInvertible {
            place: place.to_owned(),
            sites: sites.collect(),
            refusal,
        }
    };
    let inputs = graph.find_nodes(Op::Placeholder, None);
    let &[input] = inputs.as_slice() else {
        let refusal = format!("there are {} of them", inputs.len()).into();
        return Err(part("the inputs", refusal, &inputs));
    };
    let output = graph.output_node();
    let result = output.and_then(|output| graph.node(output).args().first()?.as_node());
    let Some(result) = result else {
        return Err(part("the output", NO_VALUE, output.as_slice()));
    };
    let program = Program::of_graph(graph, host, input, result)?;
    if !program.dependent[result] {
        let name = graph.node(result).name();
        return Err(part(name, INDEPENDENT, &[result]));
    }
    let sites = program.sites()?;
    let mut inverter = Inverter {
        graph,
        translation: Translation::new(),
        known: FxHashMap::default(),
        inverse: Graph::new(),
        added: Vec::new(),
    };
    let mut value = inverter.inverse.placeholder(graph.node(result).name())?;
    let mut current = result;
    while current != input {
        let step = step(graph, current, &program.dependent)
            .map_err(|refusal| part(graph.node(current).name(), refusal, &[current]))?;
        value = inverter.undo(current, value, &step)?;
        current = step.operand;
    }
    inverter.inverse.output(value)?;
    Ok(Inverse {
        graph: inverter.inverse,
        added: inverter.added,
        externals: inverter.translation.take_new_externals(),
        functions: inverter.translation.take_new_functions(),
        sites,
    })
}

/// A program of one input and one result.
struct Program<'g> {
    graph: &'g Graph,
    analysis: Analysis,
    /// By node: whether it depends on the input.
    dependent: SecondaryMap<NodeId, bool>,
    /// By node: whether the result depends on it.
    needed: SecondaryMap<NodeId, bool>,
}

impl<'g> Program<'g> {
    fn of_graph(
        graph: &'g Graph,
        host: &dyn Host,
        input: NodeId,
        result: NodeId,
    ) -> Result<Self, PassError> {
        let analysis = Analysis::of_graph(graph, host)?;
        let (mut dependent, mut needed) = (SecondaryMap::new(), SecondaryMap::new());
        dependent.set(input, true);
        needed.set(result, true);
        for &node in &analysis.nodes {
            if graph.inputs(node).any(|used| dependent[used]) {
                dependent.set(node, true);
            }
        }
        for &node in analysis.nodes.iter().rev() {
            if needed[node] {
                graph.inputs(node).for_each(|used| needed.set(used, true));
            }
        }
        Ok(Self {
            graph,
            analysis,
            dependent,
            needed,
        })
    }

    /// The steps from the input to the result, if all can be undone.
    fn sites(&self) -> Result<Vec<Site>, InversionError> {
        let mut sites = Vec::new();
        // A write anywhere is reported first; then the obstacle nearest to the result.
        let (mut first, mut writes) = (None, false);
        for (_, node, effects) in self.analysis.walk() {
            let op = self.graph.node(node).op();
            let does_more = !effects.mutates.is_empty() || effects.writes_state || effects.opaque;
            let refusal = if does_more {
                // An unknown call has no known inverse either, which is the better message.
                Some(match (effects.opaque, op) {
                    (true, Op::CallModule) => step::of_opcode(op),
                    (true, _) => step::unknown(self.graph, node),
                    (false, _) => WRITES,
                })
            } else if !self.needed[node] {
                continue;
            } else if !self.dependent[node] {
                effects.random.then_some(RANDOM)
            } else if op == Op::Placeholder {
                None
            } else {
                let step = step(self.graph, node, &self.dependent);
                step.err().or_else(|| self.used_twice(node))
            };
            let is_step = self.dependent[node] && op != Op::Placeholder;
            if let Some(refusal) = &refusal
                && !writes
            {
                first = Some((node, refusal.clone()));
                writes = does_more;
            }
            if is_step || refusal.is_some() {
                sites.push(Site::new(self.graph, node, refusal));
            }
        }
        let Some((node, refusal)) = first else {
            return Ok(sites);
        };
        let place = self.graph.node(node).name().to_owned();
        for site in &mut sites {
            let elsewhere = || format!("it could be undone, were it not for {place}").into();
            site.refusal.get_or_insert_with(elsewhere);
        }
        Err(InversionError::NotInvertible {
            place,
            refusal,
            sites,
        })
    }

    /// The obstacle that there are two ways from `node` to the result, if there are.
    fn used_twice(&self, node: NodeId) -> Option<Refusal> {
        let users = self.graph.users(node);
        let ways = users.filter(|&user| self.needed[user]).count();
        (ways > 1).then_some(USED_TWICE)
    }
}

struct Inverter<'g> {
    graph: &'g Graph,
    translation: Translation,
    /// Nodes that do not depend on the input, with their copies in the inverse.
    known: FxHashMap<NodeId, NodeId>,
    inverse: Graph,
    added: Vec<Added>,
}

impl Inverter<'_> {
    /// Undoes `node`, whose value is `value` in the inverse. Returns the value of its operand
    /// there.
    fn undo(
        &mut self,
        node: NodeId,
        value: NodeId,
        step: &Step<'_>,
    ) -> Result<NodeId, InversionError> {
        match &step.undo {
            Undo::Functions(functions) => {
                let mut undone = value;
                for function in *functions {
                    undone = self.call(node, function, [undone.into()].into())?;
                }
                Ok(undone)
            }
            Undo::With(function, further) => {
                let mut args = ThinVec::from([value.into()]);
                for arg in further {
                    args.push(self.arg(arg)?);
                }
                self.call(node, function, args)
            }
            Undo::Permute(dims) => {
                let dims: ThinVec<Arg> = dims.iter().copied().map(Arg::Int).collect();
                let dims = Arg::tuple(dims)?;
                self.call(node, "torch.permute", [value.into(), dims].into())
            }
            Undo::Binary(inverse, other) => {
                let other = self.arg(other)?;
                let (function, args) = match *inverse {
                    BinaryInverse::OfResult(function) => (function, [value.into(), other]),
                    BinaryInverse::OfOther(function) => (function, [other, value.into()]),
                };
                self.call(node, function, args.into())
            }
        }
    }

    /// Calls a function in the inverse, because of `node`.
    fn call(
        &mut self,
        node: NodeId,
        function: &str,
        args: ThinVec<Arg>,
    ) -> Result<NodeId, InversionError> {
        let function = self.inverse.function(function);
        let call = self.inverse.call_function(function, args)?;
        let origin = self.graph.origin(node);
        let origin = self
            .translation
            .origin(self.graph, &mut self.inverse, origin);
        self.inverse.set_origin(call, origin);
        self.added.push(Added {
            node: call,
            root: node,
            has_its_value: false,
        });
        Ok(call)
    }

    /// An argument that does not depend on the input, in the inverse.
    fn arg(&mut self, arg: &Arg) -> Result<Arg, InversionError> {
        let mut needed = Vec::new();
        arg.for_each_node(&mut |node| needed.push(node));
        for node in needed {
            self.know(node)?;
        }
        let known = &self.known;
        let mut value = |node: NodeId| -> Result<Arg, GraphError> {
            let found = known.get(&node).copied().map(Arg::Node);
            found.ok_or(GraphError::UnknownNode { node })
        };
        let (from, to) = (self.graph, &mut self.inverse);
        Ok(self.translation.arg(from, to, arg, &mut value)?)
    }

    /// Copies a node that does not depend on the input to the inverse, with its inputs; without
    /// recursion, since programs may be deep.
    fn know(&mut self, node: NodeId) -> Result<(), InversionError> {
        let mut open = vec![(node, false)];
        while let Some((node, ready)) = open.pop() {
            if self.known.contains_key(&node) {
                continue;
            }
            if !ready {
                open.push((node, true));
                let inputs: Vec<NodeId> = self.graph.inputs(node).collect();
                open.extend(inputs.into_iter().rev().map(|input| (input, false)));
                continue;
            }
            let known = &self.known;
            let mut value = |node: NodeId| -> Result<Arg, GraphError> {
                let found = known.get(&node).copied().map(Arg::Node);
                found.ok_or(GraphError::UnknownNode { node })
            };
            let translation = &mut self.translation;
            let copy = self
                .inverse
                .copy_node(self.graph, node, translation, &mut value)?;
            self.known.insert(node, copy);
            self.added.push(Added {
                node: copy,
                root: node,
                has_its_value: true,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
