//! Effects of the nodes of a graph, and values that share storage, found in one walk.

use corsac_ir::{Graph, NodeId};
use corsac_ops::{AliasClasses, Catalogue, Effects, Host};

use crate::error::{PassError, check_sorted};

/// Effects and storage of a graph.
pub(crate) struct Analysis {
    /// The nodes, in order.
    pub(crate) nodes: Vec<NodeId>,
    /// Effects of the nodes that do more than compute a value of their own, by their index in
    /// `nodes`, ascending. Most nodes are not in it.
    special: Vec<(u32, Effects)>,
    /// Classes of values that share storage.
    pub(crate) classes: AliasClasses,
}

/// Effects of a node that only computes a value of its own.
static PLAIN: std::sync::LazyLock<Effects> = std::sync::LazyLock::new(Effects::default);

impl Analysis {
    /// Analyses every node of `graph` once.
    pub(crate) fn of_graph(graph: &Graph, host: &dyn Host) -> Result<Self, PassError> {
        Self::with_tensors(graph, host, |_| false)
    }

    /// The same, where some values are known to be tensors: a sum of two of them is no concatenated
    /// list that holds the items of both.
    pub(crate) fn with_tensors(
        graph: &Graph,
        host: &dyn Host,
        is_tensor: impl Fn(NodeId) -> bool,
    ) -> Result<Self, PassError> {
        let mut catalogue = Catalogue::new(host);
        let mut analysis = Self {
            nodes: Vec::with_capacity(graph.len()),
            special: Vec::new(),
            classes: AliasClasses::new(graph),
        };
        for (place, node) in (0..).zip(graph.nodes()) {
            check_sorted(graph, node)?;
            let mut effects = catalogue.effects(graph, node);
            if effects.concatenates && is_tensor(node) {
                (effects.concatenates, effects.single) = (false, true);
            }
            analysis.classes.add(graph, &mut catalogue, node, &effects);
            analysis.nodes.push(node);
            if !effects.is_plain() {
                analysis.special.push((place, effects));
            }
        }
        analysis.classes.finish();
        Ok(analysis)
    }

    /// Whether some node writes to a value.
    pub(crate) fn writes(&self) -> bool {
        self.special.iter().any(|(_, e)| !e.mutates.is_empty())
    }

    /// The nodes that do more than compute a value of their own, with their indices.
    pub(crate) fn special(&self) -> impl DoubleEndedIterator<Item = (u32, &Effects)> {
        self.special
            .iter()
            .map(|(place, effects)| (*place, effects))
    }

    /// Every node with its effects and its index in order, from both ends.
    pub(crate) fn walk(&self) -> Walk<'_> {
        Walk {
            analysis: self,
            places: 0..self.nodes.len(),
            special: &self.special,
        }
    }
}

/// An iterator over the nodes of a graph with their effects.
pub(crate) struct Walk<'a> {
    analysis: &'a Analysis,
    places: std::ops::Range<usize>,
    /// The special nodes not visited yet.
    special: &'a [(u32, Effects)],
}

impl<'a> Iterator for Walk<'a> {
    type Item = (u32, NodeId, &'a Effects);

    fn next(&mut self) -> Option<Self::Item> {
        let place = self.places.next()?;
        let node = self.analysis.nodes[place];
        if let Some(((at, effects), rest)) = self.special.split_first()
            && *at as usize == place
        {
            self.special = rest;
            return Some((*at, node, effects));
        }
        Some((place as u32, node, &PLAIN))
    }
}

impl DoubleEndedIterator for Walk<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let place = self.places.next_back()?;
        let node = self.analysis.nodes[place];
        if let Some(((at, effects), rest)) = self.special.split_last()
            && *at as usize == place
        {
            self.special = rest;
            return Some((*at, node, effects));
        }
        Some((place as u32, node, &PLAIN))
    }
}
