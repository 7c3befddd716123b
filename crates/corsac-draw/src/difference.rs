//! Two graphs in one picture.

use corsac_ir::{Change, Graph, HostText, NoHost, NodeId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::scene::{Builder, EdgeChange, NodeChange, Notes, Scene};

impl Scene {
    /// The changes that turn `before` into `after`, as one picture: the nodes of both graphs, those
    /// that are in both once. Nodes are matched as [`Graph::diff`] matches them.
    #[must_use]
    pub fn of_difference(before: &Graph, after: &Graph) -> Self {
        let nothing = Notes::default();
        Self::of_difference_with((before, &nothing, &NoHost), (after, &nothing, &NoHost))
    }

    /// As [`Scene::of_difference`], with notes and hosts of the two graphs.
    #[must_use]
    pub fn of_difference_with(
        before: (&Graph, &Notes, &dyn HostText),
        after: (&Graph, &Notes, &dyn HostText),
    ) -> Self {
        let diff = before.0.diff_with(after.0, before.2, after.2);
        let summary = diff.summary();
        let mut builder = Builder::default();
        let mut old: FxHashMap<NodeId, u32> = FxHashMap::default();
        let mut new: FxHashMap<NodeId, u32> = FxHashMap::default();
        for entry in diff.entries {
            let (graph, notes, host) = if entry.after.is_some() { after } else { before };
            // A node that moved is shown where it is.
            if entry.change == Change::MovedFrom {
                continue;
            }
            let Some(id) = entry.after.or(entry.before) else {
                continue;
            };
            let node = builder.node(graph, id, notes, host);
            old.extend(entry.before.map(|id| (id, node)));
            new.extend(entry.after.map(|id| (id, node)));
            let lines = (entry.before_line, entry.after_line);
            let changed = |lines: (Option<String>, Option<String>)| NodeChange::Changed {
                before: lines.0.unwrap_or_default(),
                after: lines.1.unwrap_or_default(),
            };
            let change = match entry.change {
                Change::Kept | Change::MovedFrom => None,
                Change::Added => Some(NodeChange::Added),
                Change::Removed => Some(NodeChange::Removed),
                Change::Changed(_) => Some(changed(lines)),
                Change::MovedTo(aspects) if aspects.is_empty() => Some(NodeChange::Moved),
                Change::MovedTo(_) => Some(changed(lines)),
            };
            if let Some(change) = change {
                builder.change(node, change);
            }
        }
        let edges_of = |graph: &Graph, index: &FxHashMap<NodeId, u32>| -> Vec<(u32, u32)> {
            let nodes = graph.nodes();
            let pairs = nodes.flat_map(|id| graph.inputs(id).map(move |input| (input, id)));
            pairs
                .filter_map(|(from, to)| Some((*index.get(&from)?, *index.get(&to)?)))
                .collect()
        };
        let (was, is) = (edges_of(before.0, &old), edges_of(after.0, &new));
        let known: FxHashSet<_> = was.iter().copied().collect();
        let kept: FxHashSet<_> = is.iter().copied().collect();
        for (from, to) in is {
            let change = if known.contains(&(from, to)) {
                EdgeChange::Kept
            } else {
                EdgeChange::Added
            };
            builder.edge(from, to, change);
        }
        for (from, to) in was {
            if !kept.contains(&(from, to)) {
                builder.edge(from, to, EdgeChange::Removed);
            }
        }
        let mut scene = builder.finish();
        scene.summary = Some(summary);
        scene
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corsac_testkit::parse;

    #[test]
    fn nodes_of_both_graphs_are_in_it_once() {
        let before = parse(
            "graph v1:
    %x = placeholder[target=x]
    %d = call_function[target=torch.dropout](args = (%x, 0.5, False), kwargs = {})
    %r = call_function[target=torch.relu](args = (%d,), kwargs = {})
    %o = output[target=output](args = (%r,), kwargs = {})",
        );
        let mut after = before.clone();
        let ids: Vec<_> = after.nodes().collect();
        after.replace_all_uses(ids[1], ids[0]).unwrap();
        after.erase(ids[1]).unwrap();
        let scene = Scene::of_difference(&before, &after);
        let states: Vec<_> = scene
            .nodes
            .iter()
            .map(|n| (n.name.as_str(), n.change.as_ref().map(NodeChange::class)))
            .collect();
        assert_eq!(
            states,
            [
                ("x", None),
                ("d", Some("removed")),
                ("r", Some("changed")),
                ("o", None)
            ]
        );
        let removed = scene
            .edges
            .iter()
            .filter(|e| e.change == EdgeChange::Removed);
        let added = scene.edges.iter().filter(|e| e.change == EdgeChange::Added);
        assert_eq!((removed.count(), added.count()), (2, 1));
        assert_eq!(scene.summary.as_deref(), Some("1 removed, 1 changed"));
    }
}
