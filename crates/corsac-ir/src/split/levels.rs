//! Puts nodes of one colour together, in time proportional to nodes and uses.

use rustc_hash::FxHashMap;

use super::parts::{Growing, Grown, Parts};
use crate::entity::{NodeId, SecondaryMap};
use crate::graph::Graph;

/// The place of a node on the paths to the end of the program.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    colour: Option<u32>,
    /// For a coloured node: the most times that a path from it to the end enters its colour again.
    /// For others, the same of the nodes that use it, plus one where they are coloured.
    level: u32,
}

impl Parts {
    /// Puts as many nodes of one colour together as possible, connected or not (`None`: in no
    /// part).
    ///
    /// The level of a node is the largest number of times that a path from it to the end of the
    /// program leaves a colour and enters one. Nodes of one colour and level form a part. No use
    /// leads to a higher level, and one that stays in a level stays in a part, so that no path
    /// leads out of a part and back. With one colour there are as few parts as there can be: some
    /// path enters the colour as often as there are parts.
    ///
    /// The graph has to be in order.
    ///
    /// Source: the results of `torch.fx.passes.infra.partitioner` with horizontal fusion, which it
    /// finds by trying all pairs.
    #[must_use]
    pub fn coloured(graph: &Graph, colour: impl FnMut(NodeId) -> Option<u32>) -> Grown {
        Self::coloured_in_sections(graph, |_| 0, colour)
    }

    /// Like [`Parts::coloured`], with no part in two sections of the program. A section is a number
    /// that never falls from one node to the next.
    ///
    /// Levels are counted in each section anew: no path leads back from a later one, so that parts
    /// are as large as if each section were coloured alone.
    #[must_use]
    pub fn coloured_in_sections(
        graph: &Graph,
        section: impl Fn(NodeId) -> u32,
        mut colour: impl FnMut(NodeId) -> Option<u32>,
    ) -> Grown {
        let mut places: SecondaryMap<NodeId, Place> = SecondaryMap::with_capacity(graph.id_bound());
        let mut grown = Growing::default();
        let mut keys: FxHashMap<(u32, u32, u32), usize> = FxHashMap::default();
        for (position, node) in graph.nodes().rev().enumerate() {
            let (own, colour) = (section(node), colour(node));
            let level = |user: NodeId| match (places[user], colour) {
                (
                    Place {
                        colour: None,
                        level,
                    },
                    _,
                ) => level,
                (
                    Place {
                        colour: Some(a),
                        level,
                    },
                    Some(b),
                ) if a == b => level,
                (Place { level, .. }, _) => level + 1,
            };
            let users = graph.users(node).filter(|&user| section(user) == own);
            let level = users.map(level).max().unwrap_or(0);
            places.set(node, Place { colour, level });
            if let Some(colour) = colour {
                let key = keys.entry((own, colour, level));
                let key = *key.or_insert_with(|| grown.add_with_seed(node, position));
                // The second node is as large a part as the first one was.
                if grown.assign(node, key) == 2 {
                    grown.reseed(key, node, position);
                }
            }
        }
        grown.finish()
    }
}
