//! The program that computes the input of another one from its result.
//!
//! What it does: walks from the result to the input, and undoes each step: sums, differences,
//! products and quotients with what does not depend on the input, functions of one tensor that have
//! an inverse ([`corsac_ops::inverse_of_unary`]), transpositions, permutations, flips. What does not
//! depend on the input is computed as before.
//!
//! Needs: one input and one result, with every value on the way used once; nothing written to, and
//! nothing unknown, since that may write too. What does not depend on the input must not be random.
//!
//! Preserves: where steps come from. Exact up to rounding where the functions are.
//!
//! ```text
//! y = exp(x) * w     →     div = y / w
//!                          x = log(div)
//! ```
//!
//! Reference: J. Reed et al., "torch.fx: Practical Program Capture and Transformation for Deep
//! Learning in Python", MLSys 2022, which shows the idea.

use corsac_ir::{
    Arg, ExternalId, FunctionId, Graph, GraphError, NodeId, Op, SecondaryMap, ThinVec, Translation,
};
use corsac_ops::{BinaryInverse, Host, inverse_of_binary, inverse_of_unary, operator_name};
use rustc_hash::FxHashMap;
use thiserror::Error;

use crate::analysis::Analysis;
use crate::edits::Added;
use crate::error::PassError;

/// An inverse.
#[derive(Debug)]
pub struct Inverse {
    /// The program.
    pub graph: Graph,
    /// Its nodes, each with the one of the original that it is there because of.
    pub added: Vec<Added>,
    /// Host values of the original with what they are here.
    pub externals: Vec<(ExternalId, ExternalId)>,
    /// Functions of the original with what they are here. Further functions are known by name.
    pub functions: Vec<(FunctionId, FunctionId)>,
}

/// Why a program has no inverse, or none that is known.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InversionError {
    /// Something is in the way.
    #[error("the program cannot be inverted at {place}: {obstacle}")]
    NotInvertible {
        /// The name of the node, or which part of the program.
        place: String,
        /// What is the matter with it.
        obstacle: Obstacle,
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

/// What is in the way of an inverse.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Obstacle {
    /// There is not one input.
    #[error("there are {count} of them")]
    Inputs {
        /// How many there are.
        count: usize,
    },
    /// The result is a container, or nothing.
    #[error("it is not one value")]
    Result,
    /// The result has nothing to do with the input.
    #[error("it does not depend on the input")]
    Independent,
    /// More than one step uses a value on the way.
    #[error("its value is used more than once")]
    UsedTwice,
    /// It is no call of a function or method.
    #[error("what {op} does is not known to have an inverse")]
    Opcode {
        /// The opcode.
        op: Op,
    },
    /// Nothing is known to undo it.
    #[error("the inverse of {name} is not known")]
    Unknown {
        /// What it calls.
        name: String,
    },
    /// Keyword arguments may change what it computes.
    #[error("{name} is called with keyword arguments")]
    Keywords {
        /// What it calls.
        name: String,
    },
    /// More than one operand would have to be found.
    #[error("several of its operands depend on the input")]
    SeveralOperands,
    /// It writes, or nothing is known of it.
    #[error("it writes to something, or may do")]
    Writes,
    /// It draws random numbers, which an inverse would draw anew.
    #[error("it draws random numbers, which the inverse would draw anew")]
    Random,
}

fn at(graph: &Graph, node: NodeId, obstacle: Obstacle) -> InversionError {
    InversionError::NotInvertible {
        place: graph.node(node).name().to_owned(),
        obstacle,
    }
}

/// The program that computes the input of `graph` from its result.
///
/// # Errors
/// [`InversionError::NotInvertible`] with the node that is in the way.
pub fn invert(graph: &Graph, host: &dyn Host) -> Result<Inverse, InversionError> {
    let part = |place: &str, obstacle| InversionError::NotInvertible {
        place: place.to_owned(),
        obstacle,
    };
    let inputs = graph.find_nodes(Op::Placeholder, None);
    let &[input] = inputs.as_slice() else {
        let count = inputs.len();
        return Err(part("the inputs", Obstacle::Inputs { count }));
    };
    let output = graph.output_node();
    let result = output.and_then(|output| graph.node(output).args().first()?.as_node());
    let Some(result) = result else {
        return Err(part("the output", Obstacle::Result));
    };
    let analysis = Analysis::of_graph(graph, host)?;
    let mut random = SecondaryMap::new();
    for (_, node, effects) in analysis.walk() {
        if !effects.mutates.is_empty() || effects.writes_state || effects.opaque {
            // Something of which nothing is known has no known inverse either, which says more.
            let calls = graph.node(node).op() == Op::CallModule;
            let obstacle = match (effects.opaque, calls) {
                (true, false) => unknown_inverse(graph, node),
                (true, true) => Obstacle::Opcode { op: Op::CallModule },
                (false, _) => Obstacle::Writes,
            };
            return Err(at(graph, node, obstacle));
        }
        random.set(node, effects.random);
    }
    let mut dependent: SecondaryMap<NodeId, bool> = SecondaryMap::new();
    dependent.set(input, true);
    for node in graph.nodes() {
        if graph.inputs(node).any(|used| dependent[used]) {
            dependent.set(node, true);
        }
    }
    if !dependent[result] {
        return Err(at(graph, result, Obstacle::Independent));
    }
    let mut inverter = Inverter {
        graph,
        dependent,
        random,
        translation: Translation::new(),
        known: FxHashMap::default(),
        inverse: Graph::new(),
        added: Vec::new(),
    };
    let mut value = inverter.inverse.placeholder(graph.node(result).name())?;
    let mut current = result;
    while current != input {
        let on_the_way = graph
            .users(current)
            .filter(|&user| inverter.dependent[user] && graph.node(user).op() != Op::Output);
        if current != result && on_the_way.count() > 1 {
            return Err(at(graph, current, Obstacle::UsedTwice));
        }
        (current, value) = inverter.undo(current, value)?;
    }
    inverter.inverse.output(value)?;
    Ok(Inverse {
        graph: inverter.inverse,
        added: inverter.added,
        externals: inverter.translation.take_new_externals(),
        functions: inverter.translation.take_new_functions(),
    })
}

fn unknown_inverse(graph: &Graph, node: NodeId) -> Obstacle {
    Obstacle::Unknown {
        name: corsac_ir::own_name(graph.node(node).target_name()).to_owned(),
    }
}

struct Inverter<'g> {
    graph: &'g Graph,
    /// What depends on the input.
    dependent: SecondaryMap<NodeId, bool>,
    random: SecondaryMap<NodeId, bool>,
    translation: Translation,
    /// What does not, as it is called in the inverse.
    known: FxHashMap<NodeId, NodeId>,
    inverse: Graph,
    added: Vec<Added>,
}

impl Inverter<'_> {
    /// Undoes `node`, whose value is `value` in the inverse. Answers the operand on the way to the
    /// input, and what it is in the inverse.
    fn undo(&mut self, node: NodeId, value: NodeId) -> Result<(NodeId, NodeId), InversionError> {
        let view = self.graph.node(node);
        let fail = |obstacle| at(self.graph, node, obstacle);
        if !matches!(view.op(), Op::CallFunction | Op::CallMethod) {
            return Err(fail(Obstacle::Opcode { op: view.op() }));
        }
        let unknown = || fail(unknown_inverse(self.graph, node));
        let Some(name) = operator_name(view.op(), view.target_name()) else {
            return Err(unknown());
        };
        if !view.kwargs().is_empty() {
            let name = name.to_owned();
            return Err(fail(Obstacle::Keywords { name }));
        }
        let on_the_way = |arg: &Arg| arg.as_node().is_some_and(|node| self.dependent[node]);
        let mut ways = view
            .args()
            .iter()
            .enumerate()
            .filter(|(_, arg)| on_the_way(arg));
        let (Some((place, Arg::Node(operand))), None) = (ways.next(), ways.next()) else {
            return Err(fail(Obstacle::SeveralOperands));
        };
        // Containers may hold operands that depend on the input too.
        if self
            .graph
            .inputs(node)
            .filter(|&used| self.dependent[used])
            .count()
            != 1
        {
            return Err(fail(Obstacle::SeveralOperands));
        }
        let operand = *operand;
        let others = view.args().iter().enumerate();
        let others: Vec<&Arg> = others
            .filter(|(at, _)| *at != place)
            .map(|(_, a)| a)
            .collect();
        let steps: Vec<(&str, Vec<Arg>)> = match (name, others.as_slice()) {
            (name, []) => {
                let functions = inverse_of_unary(name).ok_or_else(unknown)?;
                let steps = functions.iter().map(|function| (*function, Vec::new()));
                steps.collect()
            }
            ("transpose", [a, b]) if place == 0 => {
                vec![("torch.transpose", vec![self.arg(a)?, self.arg(b)?])]
            }
            ("permute", dims) if place == 0 => {
                let back = inverse_permutation(dims).ok_or_else(unknown)?;
                let back: ThinVec<Arg> = back.into_iter().map(Arg::Int).collect();
                vec![("torch.permute", vec![Arg::tuple(back)?])]
            }
            ("flip", [dims]) if place == 0 => vec![("torch.flip", vec![self.arg(dims)?])],
            (name, [other]) => {
                let inverse = inverse_of_binary(name, place).ok_or_else(unknown)?;
                let other = self.arg(other)?;
                let (function, args) = match inverse {
                    BinaryInverse::OfResult(function) => (function, [value.into(), other]),
                    BinaryInverse::OfOther(function) => (function, [other, value.into()]),
                };
                let undone = self.call(node, function, args.into())?;
                return Ok((operand, undone));
            }
            _ => return Err(unknown()),
        };
        let mut undone = value;
        for (function, further) in steps {
            let args = std::iter::once(undone.into()).chain(further);
            undone = self.call(node, function, args.collect())?;
        }
        Ok((operand, undone))
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

    /// Computes in the inverse what does not depend on the input; without recursion, since programs
    /// may be deep.
    fn know(&mut self, node: NodeId) -> Result<(), InversionError> {
        let mut open = vec![(node, false)];
        while let Some((node, ready)) = open.pop() {
            if self.known.contains_key(&node) {
                continue;
            }
            if self.random[node] {
                return Err(at(self.graph, node, Obstacle::Random));
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

/// The permutation that undoes one of literal dimensions, given one by one or as a list.
fn inverse_permutation(dims: &[&Arg]) -> Option<Vec<i64>> {
    let dims: Vec<&Arg> = match dims {
        [list] if list.as_items().is_some() => list.as_items()?.iter().collect(),
        dims => dims.to_vec(),
    };
    let rank = i64::try_from(dims.len()).ok()?;
    let order = dims.iter().map(|dim| match dim {
        Arg::Int(dim) if (-rank..rank).contains(dim) => Some(dim.rem_euclid(rank)),
        _ => None,
    });
    let order = order.collect::<Option<Vec<i64>>>()?;
    let place = |dim| order.iter().position(|&d| d == dim);
    let back = (0..rank).map(|dim| i64::try_from(place(dim)?).ok());
    back.collect()
}

#[cfg(test)]
mod tests;
