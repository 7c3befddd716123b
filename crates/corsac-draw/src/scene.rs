//! The content of a picture: nodes, the modules they are in, edges.

use corsac_ir::{Graph, HostText, NoHost, NodeId, Op, ScopeId, Source};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::heat::{Metric, Quantities};
use crate::kind::{Kind, short_name};
use crate::shape_arithmetic::shape_arithmetic;

/// Levels of nested modules that are shown; deeper nodes are shown in the deepest of them.
const MAX_NESTING: usize = 64;

/// Facts about a node that are not in the graph. All of it is text to be shown, and none of it is
/// interpreted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Note {
    /// Qualified name of the class of the module that a node calls.
    pub class: Option<String>,
    /// The shape of its value: `1×64×112×112`.
    pub shape: Option<String>,
    /// The element type of its value.
    pub dtype: Option<String>,
    /// The user's source line.
    pub source: Option<String>,
    /// The settings of the module that it calls: `kernel_size=(3, 3), stride=(1, 1)`.
    pub settings: Option<String>,
    /// Its costs.
    pub quantities: Quantities,
    /// The part of the program that it is in.
    pub part: Option<u32>,
    /// The module calls that it was made in, outermost first; if `None`, those in the graph.
    pub modules: Option<Vec<ModuleCall>>,
    /// Anything else to be listed with it: name and text.
    pub more: Vec<(String, String)>,
}

/// One call of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ModuleCall {
    /// The module's qualified name.
    pub path: String,
    /// Qualified name of its class; empty if it is not known.
    pub class: String,
    /// Number of the call among those of this module, counted from 0.
    pub call: u32,
}

/// Notes on the nodes of a graph.
pub type Notes = FxHashMap<NodeId, Note>;

/// A node to be shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SceneNode {
    /// The name of its value.
    pub name: String,
    /// Its opcode, as torch.fx calls it.
    pub op: &'static str,
    /// The kind of its operator.
    pub kind: Kind,
    /// Its operator, in a word or two.
    pub title: String,
    /// Its name or path, where that is not the title.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subtitle: String,
    /// Lines below, in a still picture.
    #[serde(skip)]
    pub lines: Vec<String>,
    /// Its target.
    pub target: String,
    /// Qualified name of the class of the module that it calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The settings of that module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<String>,
    /// Its arguments: the keyword, empty for positional ones, and the value.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<(String, String)>,
    /// The shape of its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// The element type of its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// The user's source line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Its costs.
    #[serde(flatten)]
    pub quantities: Quantities,
    /// The part of the program that it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<u32>,
    /// Anything else that is listed with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<(String, String)>,
    /// The innermost module call that it is in, as an index into [`Scene::groups`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// Its change, if two graphs are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<NodeChange>,
    /// Whether it reads sizes of tensors, or computes numbers of sizes alone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shape_arithmetic: bool,
}

/// A call of a module that has nodes in it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// The call that it is inside, as an index into [`Scene::groups`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// The last part of the module's name.
    pub title: String,
    /// Its qualified name.
    pub path: String,
    /// Qualified name of its class; empty if it is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub class: String,
    /// Number of the call among those of this module, counted from 0.
    pub call: u32,
    /// Number of nodes in it, with those in modules inside.
    pub size: u32,
    /// Number of nodes of each kind, in the order of [`Kind::ALL`].
    pub kinds: Vec<(Kind, u32)>,
    /// Number of nodes in each part, in the order of parts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<(u32, u32)>,
    /// The sum of their known costs.
    #[serde(flatten)]
    pub quantities: Quantities,
}

/// A use of the value of one node by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Edge {
    /// The node that makes the value, as an index into [`Scene::nodes`].
    pub from: u32,
    /// The node that uses it.
    pub to: u32,
    /// Its change, if two graphs are compared.
    pub change: EdgeChange,
}

/// The change of an edge between two graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EdgeChange {
    /// It is as it was, or there is nothing to compare with.
    #[default]
    Kept,
    /// It is new.
    Added,
    /// It is gone.
    Removed,
}

/// The change of a node between two graphs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum NodeChange {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// It is not the same: its line before.
    Changed {
        /// The line that it was.
        before: String,
        /// The line that it is.
        after: String,
    },
    /// It is the same, elsewhere in the order.
    Moved,
}

impl NodeChange {
    /// The name in style sheets.
    #[must_use]
    pub fn class(&self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Changed { .. } => "changed",
            Self::Moved => "moved",
        }
    }
}

/// The content of a picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scene {
    /// The text above the picture.
    pub title: String,
    /// The nodes, in the order of the program.
    pub nodes: Vec<SceneNode>,
    /// The module calls; each comes after the one that it is inside.
    pub groups: Vec<Group>,
    /// The edges, by the node that uses the value.
    pub edges: Vec<Edge>,
    /// The changes, in a line, if two graphs are compared.
    pub summary: Option<String>,
}

impl Scene {
    /// The scene of `graph` alone.
    #[must_use]
    pub fn of(graph: &Graph) -> Self {
        Self::with(graph, &Notes::default(), &NoHost)
    }

    /// The scene of `graph` with `notes` on its nodes, and with the texts of the `host` for values
    /// that only it understands.
    #[must_use]
    pub fn with(graph: &Graph, notes: &Notes, host: &dyn HostText) -> Self {
        let mut scene = Self::without(graph, notes, host, &FxHashSet::default());
        let arithmetic = shape_arithmetic(graph, host);
        for (node, id) in scene.nodes.iter_mut().zip(graph.nodes()) {
            node.shape_arithmetic = arithmetic.contains(&id);
        }
        scene
    }

    /// As [`Scene::with`], without the nodes that read sizes of tensors or compute numbers of sizes
    /// alone.
    #[must_use]
    pub fn without_shape_arithmetic(graph: &Graph, notes: &Notes, host: &dyn HostText) -> Self {
        Self::without(graph, notes, host, &shape_arithmetic(graph, host))
    }

    fn without(
        graph: &Graph,
        notes: &Notes,
        host: &dyn HostText,
        hidden: &FxHashSet<NodeId>,
    ) -> Self {
        let mut builder = Builder::default();
        let mut index: FxHashMap<NodeId, u32> = FxHashMap::default();
        let shown = || graph.nodes().filter(|id| !hidden.contains(id));
        for id in shown() {
            index.insert(id, builder.node(graph, id, notes, host));
        }
        for id in shown() {
            for input in graph.inputs(id) {
                if let Some(&from) = index.get(&input) {
                    builder.edge(from, index[&id], EdgeChange::Kept);
                }
            }
        }
        builder.finish()
    }

    /// The largest amount of one metric of a node; `None` if it is known of no node.
    #[must_use]
    pub fn largest(&self, metric: Metric) -> Option<f64> {
        let known = self.nodes.iter().filter_map(|n| n.quantities.get(metric));
        known.reduce(f64::max)
    }
}

/// Counts one more of `item`; `counts` is sorted.
fn count<T: Copy + Ord>(counts: &mut Vec<(T, u32)>, item: T) {
    match counts.binary_search_by_key(&item, |(other, _)| *other) {
        Ok(at) => counts[at].1 += 1,
        Err(at) => counts.insert(at, (item, 1)),
    }
}

/// Puts a scene together, node by node.
#[derive(Default)]
pub(crate) struct Builder {
    scene: Scene,
    groups: FxHashMap<(Option<u32>, String, u32), u32>,
}

impl Builder {
    /// Adds a node of a graph; returns its index.
    pub(crate) fn node(
        &mut self,
        graph: &Graph,
        id: NodeId,
        notes: &Notes,
        host: &dyn HostText,
    ) -> u32 {
        let node = graph.node(id);
        let note = notes.get(&id).cloned().unwrap_or_default();
        let calls = note.modules.unwrap_or_else(|| scopes(graph, id));
        let group = self.group_of(calls, node.op(), node.target_name());
        let operator = note.class.as_deref().unwrap_or(node.target_name());
        let (title, subtitle) = titles(node.op(), node.name(), node.target_name(), operator);
        let arguments = graph.format_arguments(id, host).into_iter();
        self.scene.nodes.push(SceneNode {
            name: node.name().to_owned(),
            op: node.op().name(),
            kind: Kind::of(node.op(), operator),
            title,
            subtitle,
            lines: Vec::new(),
            target: node.target_name().to_owned(),
            class: note.class,
            settings: note.settings,
            arguments: arguments
                .map(|(key, value)| (key.unwrap_or_default().to_owned(), value))
                .collect(),
            shape: note.shape,
            dtype: note.dtype,
            source: note.source.or_else(|| source_line(graph, id, host)),
            quantities: note.quantities,
            part: note.part,
            more: note.more,
            group,
            change: None,
            shape_arithmetic: false,
        });
        u32::try_from(self.scene.nodes.len() - 1).expect("fewer than 2^32 nodes")
    }

    /// Sets the change of a node.
    pub(crate) fn change(&mut self, node: u32, change: NodeChange) {
        self.scene.nodes[node as usize].change = Some(change);
    }

    pub(crate) fn edge(&mut self, from: u32, to: u32, change: EdgeChange) {
        self.scene.edges.push(Edge { from, to, change });
    }

    /// The group for a chain of module calls, outermost first.
    fn group_of(&mut self, mut calls: Vec<ModuleCall>, op: Op, target: &str) -> Option<u32> {
        // A call of a module is made inside that module's call, and stands for it in the picture.
        if op == Op::CallModule && calls.last().is_some_and(|call| call.path == target) {
            calls.pop();
        }
        // The program itself is the whole picture.
        calls.retain(|call| !call.path.is_empty());
        if calls.is_empty() && op == Op::CallModule {
            calls = containers(target);
        }
        calls.truncate(MAX_NESTING);
        let mut parent = None;
        for call in calls {
            let key = (parent, call.path.clone(), call.call);
            let groups = &mut self.scene.groups;
            parent = Some(*self.groups.entry(key).or_insert_with(|| {
                groups.push(Group {
                    parent,
                    title: short_name(&call.path).to_owned(),
                    path: call.path,
                    class: call.class,
                    call: call.call,
                    size: 0,
                    kinds: Vec::new(),
                    parts: Vec::new(),
                    quantities: Quantities::default(),
                });
                u32::try_from(groups.len() - 1).expect("fewer than 2^32 groups")
            }));
        }
        parent
    }

    pub(crate) fn finish(mut self) -> Scene {
        self.adopt_strays();
        self.count();
        self.dissolve_single();
        self.scene
    }

    /// Adds up the contents of groups.
    fn count(&mut self) {
        let Scene { nodes, groups, .. } = &mut self.scene;
        for node in nodes.iter() {
            let mut next = node.group;
            while let Some(group) = next {
                let group = &mut groups[group as usize];
                group.size += 1;
                count(&mut group.kinds, node.kind);
                if let Some(part) = node.part {
                    count(&mut group.parts, part);
                }
                group.quantities.add(&node.quantities);
                next = group.parent;
            }
        }
    }

    /// Removes groups of one node: a box around it would show nothing more.
    fn dissolve_single(&mut self) {
        let Scene { nodes, groups, .. } = &mut self.scene;
        let mut index: Vec<Option<u32>> = Vec::with_capacity(groups.len());
        let mut kept: Vec<Group> = Vec::with_capacity(groups.len());
        for mut group in groups.drain(..) {
            group.parent = group.parent.and_then(|parent| index[parent as usize]);
            if group.size > 1 {
                index.push(Some(kept.len() as u32));
                kept.push(group);
            } else {
                index.push(group.parent);
            }
        }
        *groups = kept;
        for node in nodes {
            node.group = node.group.and_then(|group| index[group as usize]);
        }
    }

    /// Puts nodes without a known module into the one that all their neighbours are in: nodes that
    /// a pass adds have no origin.
    fn adopt_strays(&mut self) {
        let Scene { nodes, edges, .. } = &mut self.scene;
        let mut homes: Vec<Option<Option<u32>>> = vec![None; nodes.len()];
        let mut settled = vec![true; nodes.len()];
        let mut see = |node: u32, group: Option<u32>| {
            let at = node as usize;
            settled[at] &= homes[at].is_none_or(|known| known == group);
            homes[at] = Some(group);
        };
        for edge in edges.iter() {
            see(edge.to, nodes[edge.from as usize].group);
            see(edge.from, nodes[edge.to as usize].group);
        }
        for (at, node) in nodes.iter_mut().enumerate() {
            let is_edge_of_program = matches!(node.kind, Kind::Input | Kind::Output);
            if node.group.is_none() && !is_edge_of_program && settled[at] {
                node.group = homes[at].flatten();
            }
        }
    }
}

/// The module calls of a node in the graph, outermost first.
fn scopes(graph: &Graph, id: NodeId) -> Vec<ModuleCall> {
    let innermost: Option<ScopeId> = graph.origin(id).scope;
    let mut calls: Vec<ModuleCall> = graph
        .scope_chain(innermost)
        .map(|scope| ModuleCall {
            path: graph.text(scope.path).to_owned(),
            class: graph
                .external_name(scope.class)
                .unwrap_or_default()
                .to_owned(),
            call: scope.call,
        })
        .collect();
    calls.reverse();
    calls
}

/// The modules around one with this path: `a` and `a.b` for `a.b.c`.
fn containers(path: &str) -> Vec<ModuleCall> {
    let ends = path.match_indices('.').map(|(at, _)| at);
    ends.filter(|&end| end > 0)
        .take(MAX_NESTING)
        .map(|end| ModuleCall {
            path: path[..end].to_owned(),
            ..ModuleCall::default()
        })
        .collect()
}

fn source_line(graph: &Graph, id: NodeId, host: &dyn HostText) -> Option<String> {
    match graph.source(graph.origin(id).source?) {
        Source::Line { file, line, .. } => Some(format!("{}:{line}", graph.text(file))),
        Source::Host { code, offset } => {
            let line = host.source_line(code, offset)?;
            Some(format!("{}:{}", line.file, line.line))
        }
    }
}

/// Title and subtitle of a node: its operator, and its name or path.
fn titles(op: Op, name: &str, target: &str, operator: &str) -> (String, String) {
    let (title, subtitle) = match op {
        Op::Placeholder => (name, ""),
        Op::Output => ("output", ""),
        Op::GetAttr => (short_name(target), target),
        Op::CallFunction | Op::CallMethod => (short_name(operator).trim_matches('_'), name),
        Op::CallModule => (short_name(operator), short_name(target)),
    };
    let title = if title.is_empty() { name } else { title };
    let subtitle = if subtitle == title { "" } else { subtitle };
    (title.to_owned(), subtitle.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use corsac_testkit::parse;

    #[test]
    fn modules_are_read_off_paths_where_nothing_else_is_known() {
        let scene = Scene::of(&parse(
            "graph v1:
    %x = placeholder[target=x]
    %a = call_module[target=body.0.conv](args = (%x,), kwargs = {})
    %b = call_module[target=body.0.bn](args = (%a,), kwargs = {})
    %c = call_function[target=torch.relu](args = (%b,), kwargs = {})
    %d = call_module[target=body.0.act](args = (%c,), kwargs = {})
    %o = output[target=output](args = (%d,), kwargs = {})",
        ));
        let paths: Vec<_> = scene
            .groups
            .iter()
            .map(|g| (g.path.as_str(), g.size))
            .collect();
        assert_eq!(paths, [("body", 4), ("body.0", 4)]);
        // Both neighbours are in `body.0`, and so is the function between them.
        assert_eq!(scene.nodes[3].group, Some(1));
        assert_eq!(scene.nodes[0].group, None);
        assert_eq!(scene.edges.len(), 5);
    }

    #[test]
    fn shape_arithmetic_can_be_left_out() {
        let graph = parse(
            "graph v1:
    %x = placeholder[target=x]
    %n = placeholder[target=n]
    %size = call_method[target=size](args = (%x, 1), kwargs = {})
    %shape = call_function[target=builtins.getattr](args = (%x, 'shape'), kwargs = {})
    %item = call_function[target=operator.getitem](args = (%shape, 0), kwargs = {})
    %half = call_function[target=operator.floordiv](args = (%item, 2), kwargs = {})
    %both = call_function[target=operator.mul](args = (%half, %size), kwargs = {})
    %data = call_function[target=builtins.getattr](args = (%x, 'T'), kwargs = {})
    %scaled = call_function[target=operator.mul](args = (%data, %both), kwargs = {})
    %given = call_function[target=operator.add](args = (%n, %half), kwargs = {})
    %view = call_method[target=view](args = (%scaled, %size, %given), kwargs = {})
    %o = output[target=output](args = (%view,), kwargs = {})",
        );
        let scene = Scene::without_shape_arithmetic(&graph, &Notes::default(), &NoHost);
        let names: Vec<_> = scene.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["x", "n", "data", "scaled", "given", "view", "o"]);
        let edges: Vec<_> = scene
            .edges
            .iter()
            .map(|edge| (edge.from, edge.to))
            .collect();
        assert_eq!(edges, [(0, 2), (2, 3), (1, 4), (3, 5), (4, 5), (5, 6)]);
        let all = Scene::of(&graph).nodes;
        let shown = all.iter().filter(|node| !node.shape_arithmetic);
        let shown: Vec<_> = shown.map(|node| node.name.as_str()).collect();
        assert_eq!((all.len(), shown), (12, names));
    }

    #[test]
    fn sums_leave_out_what_is_unknown() {
        let graph = parse(
            "graph v1:
    %x = placeholder[target=x]
    %a = call_module[target=m.a](args = (%x,), kwargs = {})
    %b = call_module[target=m.b](args = (%a,), kwargs = {})",
        );
        let a = graph.nodes().nth(1).unwrap();
        let quantities = Quantities {
            flops: Some(3.0),
            ..Quantities::default()
        };
        let note = Note {
            quantities,
            ..Note::default()
        };
        let scene = Scene::with(&graph, &Notes::from_iter([(a, note)]), &NoHost);
        assert_eq!(scene.groups[0].quantities, quantities);
        assert_eq!(
            (scene.largest(Metric::Flops), scene.largest(Metric::Time)),
            (Some(3.0), None)
        );
    }
}
