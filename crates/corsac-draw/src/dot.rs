//! A picture as DOT text, for Graphviz and other readers of it.

use std::fmt::Write;

use crate::escape::dot as quoted;
use crate::layout::{Item, levels};
use crate::palette;
use crate::scene::{EdgeChange, NodeChange, Scene, SceneNode};

/// The scene in Graphviz's DOT language: modules are clusters, and shapes are on the edges.
#[must_use]
pub fn to_dot(scene: &Scene) -> String {
    let mut out = String::with_capacity(200 * scene.nodes.len() + 512);
    let name = quoted(&scene.title);
    // Writing to a `String` cannot fail.
    let _ = writeln!(
        out,
        "digraph {name} {{\n  label={name}; labelloc=t; fontname=\"sans-serif\"; rankdir=TB; compound=true;\n  \
         node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\", fontsize=12];\n  \
         edge [fontname=\"sans-serif\", fontsize=10, color=\"#9aa3b0\", fontcolor=\"#626b7a\"];"
    );
    nodes(scene, &mut out);
    for edge in &scene.edges {
        let mut attributes = Vec::new();
        if let Some(shape) = &scene.nodes[edge.from as usize].shape {
            attributes.push(format!("label={}", quoted(shape)));
        }
        match edge.change {
            EdgeChange::Kept => {}
            EdgeChange::Added => attributes.push("color=\"#168a4a\"".to_owned()),
            EdgeChange::Removed => attributes.push("color=\"#d0363b\", style=dashed".to_owned()),
        }
        let _ = write!(out, "  n{} -> n{}", edge.from, edge.to);
        if !attributes.is_empty() {
            let _ = write!(out, " [{}]", attributes.join(", "));
        }
        out.push_str(";\n");
    }
    out.push_str("}\n");
    out
}

/// The nodes, in clusters that are modules.
fn nodes(scene: &Scene, out: &mut String) {
    enum Step {
        Item(Item, usize),
        Close(usize),
    }
    let levels = levels(scene);
    let steps_of = |level: usize, depth: usize| {
        let items = levels[level].items.iter().rev();
        items.map(move |item| Step::Item(*item, depth))
    };
    // A stack in the place of recursion: modules may nest deeply.
    let mut stack: Vec<Step> = steps_of(0, 1).collect();
    while let Some(step) = stack.pop() {
        match step {
            Step::Item(Item::Node(node), depth) => {
                let indent = "  ".repeat(depth);
                let attributes = attributes(&scene.nodes[node as usize]);
                let _ = writeln!(out, "{indent}n{node} [{attributes}];");
            }
            Step::Item(Item::Group(group), depth) => {
                let indent = "  ".repeat(depth);
                let known = &scene.groups[group as usize];
                let class = crate::kind::short_name(&known.class);
                let label = format!("{} {class}", crate::layout::group_title(known));
                let _ = writeln!(
                    out,
                    "{indent}subgraph cluster_{group} {{\n{indent}  label={}; labeljust=l; \
                     style=\"rounded,filled\"; color=\"#cbd1da\"; fillcolor=\"#f1f3f6\";",
                    quoted(label.trim_end())
                );
                stack.push(Step::Close(depth));
                stack.extend(steps_of(group as usize + 1, depth + 1));
            }
            Step::Item(Item::Inlet(_) | Item::Outlet(_), _) => {}
            Step::Close(depth) => {
                let _ = writeln!(out, "{}}}", "  ".repeat(depth));
            }
        }
    }
}

fn attributes(node: &SceneNode) -> String {
    let label = if node.subtitle.is_empty() {
        node.title.clone()
    } else {
        format!("{}\n{}", node.title, node.subtitle)
    };
    let color = match &node.change {
        None => palette::tint_of(node.kind),
        Some(NodeChange::Added) => "#c4e8d0".to_owned(),
        Some(NodeChange::Removed) => "#f7cfd0".to_owned(),
        Some(NodeChange::Changed { .. }) => "#f6e2bd".to_owned(),
        Some(NodeChange::Moved) => "#d0def5".to_owned(),
    };
    let tooltip = format!("{} = {}[{}]", node.name, node.op, node.target);
    format!(
        "label={}, fillcolor=\"{color}\", tooltip={}",
        quoted(&label),
        quoted(&tooltip)
    )
}
