//! Patterns of calls: a call, and what computes its arguments.

use corsac_ir::{Arg, FunctionId, Graph, NodeId, Op, Target};
use rustc_hash::FxHashMap;

use crate::modules::Modules;

/// One call of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Anything, also what is no node.
    Any,
    /// A call of a module of exactly this class, by its qualified name.
    Class(String),
    /// A call of this function of the graph.
    Function(FunctionId),
    /// A call of the method with this name.
    Method(String),
}

/// A call, and patterns of its positional arguments; without any, the arguments do not matter.
///
/// The values of inner calls have no other user, or the pattern does not match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The call, which is the last one of the pattern to run.
    pub call: Call,
    /// Patterns of all of its positional arguments.
    pub args: Vec<Pattern>,
}

impl From<Call> for Pattern {
    fn from(call: Call) -> Self {
        let args = Vec::new();
        Self { call, args }
    }
}

impl Pattern {
    /// Number of calls in the pattern.
    #[must_use]
    pub fn len(&self) -> usize {
        1 + self.args.iter().map(Self::len).sum::<usize>()
    }

    /// False: a pattern has at least one call.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// The nodes that `node` and its inputs are, in the order of the calls of the pattern: a call
    /// before its arguments. None where a call matches what is no node. `None` if it does not match.
    pub(crate) fn matches(
        &self,
        graph: &Graph,
        classes: &Classes,
        node: NodeId,
    ) -> Option<Vec<Option<NodeId>>> {
        let mut found = Vec::new();
        self.add(graph, classes, &Arg::Node(node), usize::MAX, &mut found)
            .then_some(found)
    }

    fn add(
        &self,
        graph: &Graph,
        classes: &Classes,
        value: &Arg,
        max_users: usize,
        found: &mut Vec<Option<NodeId>>,
    ) -> bool {
        let node = value.as_node();
        found.push(node);
        if self.call == Call::Any {
            return self.args.is_empty();
        }
        let Some(node) = node else { return false };
        let view = graph.node(node);
        if view.num_users() > max_users || !self.call.is_made_by(graph, classes, node) {
            return false;
        }
        let args = view.args();
        self.args.is_empty()
            || (self.args.len() == args.len()
                && (self.args.iter().zip(args))
                    .all(|(inner, arg)| inner.add(graph, classes, arg, 1, found)))
    }
}

impl Call {
    fn is_made_by(&self, graph: &Graph, classes: &Classes, node: NodeId) -> bool {
        let view = graph.node(node);
        match (self, view.op()) {
            (Self::Any, _) => true,
            (Self::Class(class), Op::CallModule) => classes.of(view.target_name()) == Some(class),
            (Self::Function(function), Op::CallFunction) => {
                view.target() == Target::Function(*function)
            }
            (Self::Method(name), Op::CallMethod) => view.target_name() == name,
            (Self::Class(_) | Self::Function(_) | Self::Method(_), _) => false,
        }
    }
}

/// The classes of modules, by path.
pub(crate) struct Classes(FxHashMap<String, String>);

impl Classes {
    /// The classes of the modules that a graph calls.
    pub(crate) fn of_modules(modules: &Modules) -> Self {
        let classes = modules.by_path.iter();
        Self(
            classes
                .map(|(path, info)| (path.clone(), info.class.clone()))
                .collect(),
        )
    }

    /// The qualified name of the class of the module at this path.
    pub(crate) fn of(&self, path: &str) -> Option<&String> {
        self.0.get(path)
    }
}

/// The order in which patterns are tried, by their places in the list: those with most calls first.
pub(crate) fn longest_first<'p>(
    patterns: impl ExactSizeIterator<Item = &'p Pattern>,
) -> Vec<usize> {
    let lengths: Vec<usize> = patterns.map(Pattern::len).collect();
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(lengths[at]));
    order
}
