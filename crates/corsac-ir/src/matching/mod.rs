//! Search for a pattern in a graph.
//!
//! A pattern is a graph. Its placeholders match anything; values that its output returns may be
//! used outside the match, all others may not. The nodes that only the output uses are the anchors:
//! the search takes the nodes of the graph that look like an anchor, from the target index, and
//! compares backwards from there, argument by argument. With one anchor, or anchors with a common
//! input, the search looks at the candidates and their surroundings only, so that it is linear in
//! the number of candidates for a given pattern.
//!
//! Semantics are those of `SubgraphMatcher` in torch.fx 2.15
//! (`torch/fx/passes/utils/matcher_utils.py`), by behaviour. Two differences: where an anchor has
//! nothing in the graph that looks like it, there is no match (torch.fx raises `KeyError`); and
//! whether fusing a match would make a cycle is searched in the part of the graph that the match
//! spans, not from there to the end, which takes the graph to be in order.
//!
//! ```
//! use corsac_ir::Graph;
//! use corsac_ir::matching::{MatchOptions, SubgraphMatcher};
//!
//! let mut pattern = Graph::new();
//! let x = pattern.placeholder("x")?;
//! let relu = pattern.function("torch.relu");
//! let y = pattern.call_function(relu, [x.into()])?;
//! pattern.output(y)?;
//!
//! let mut graph = Graph::new();
//! let a = graph.placeholder("a")?;
//! let relu = graph.function("torch.relu");
//! let b = graph.call_function(relu, [a.into()])?;
//! graph.output(b)?;
//!
//! let matcher = SubgraphMatcher::new(&pattern, MatchOptions::default())?;
//! let matches = matcher.find(&graph)?;
//! assert_eq!(matches[0].node(y), Some(b));
//! assert_eq!(matches[0].node(x), Some(a));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod boundary;
mod error;
mod host;
mod literal;
mod pattern;
mod search;

#[cfg(test)]
mod tests;

pub use error::MatchError;
pub use host::{ByName, MatchHost, Parameter, Query, Schema};
pub use pattern::{MatchOptions, SubgraphMatcher};

use smallvec::SmallVec;

use crate::arg::Arg;
use crate::entity::NodeId;

/// One place where a pattern was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Match {
    /// Pattern nodes with their counterparts, in the order in which the search reached them.
    bindings: Vec<(NodeId, Arg)>,
    /// Positions in `bindings`, in the order of the pattern.
    placeholders: Positions,
    returning: Positions,
}

type Positions = SmallVec<[u32; 4]>;

impl Match {
    /// Pattern nodes with their counterparts, in the order in which the search reached them: a node
    /// of the graph, or for placeholders any argument.
    #[must_use]
    pub fn bindings(&self) -> &[(NodeId, Arg)] {
        &self.bindings
    }

    /// The counterpart of a pattern node.
    #[must_use]
    pub fn get(&self, pattern_node: NodeId) -> Option<&Arg> {
        let found = self.bindings.iter().find(|(p, _)| *p == pattern_node);
        found.map(|(_, bound)| bound)
    }

    /// The counterpart of a pattern node, if it is a node of the graph.
    #[must_use]
    pub fn node(&self, pattern_node: NodeId) -> Option<NodeId> {
        self.get(pattern_node).and_then(Arg::as_node)
    }

    /// The counterparts of the pattern's placeholders, in their order.
    pub fn placeholders(&self) -> impl ExactSizeIterator<Item = &Arg> {
        self.placeholders
            .iter()
            .map(|&at| &self.bindings[at as usize].1)
    }

    /// The counterparts of the returned nodes, in the order in which the pattern's output mentions
    /// them.
    pub fn returning(&self) -> impl ExactSizeIterator<Item = &Arg> {
        self.returning
            .iter()
            .map(|&at| &self.bindings[at as usize].1)
    }

    /// Replaces the counterpart of the `index`-th placeholder.
    pub(crate) fn rebind_placeholder(&mut self, index: usize, to: Arg) {
        let at = self.placeholders[index] as usize;
        self.bindings[at].1 = to;
    }
}
