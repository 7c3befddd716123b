//! A picture as one HTML file that opens offline.

use serde::Serialize;

use crate::escape::{json_in_script, xml};
use crate::heat::{Overlay, STEPS};
use crate::kind::Kind;
use crate::layout::{
    Level, Placement, closed_placement, group_size, group_subtitle, group_title, label_reach,
    levels, node_size, title_width,
};
use crate::palette;
use crate::scene::{Edge, Group, Scene, SceneNode};

const PAGE: &str = include_str!("../assets/viewer.html");
const STYLE: &str = include_str!("../assets/viewer.css");
const LAYOUT_SCRIPT: &str = include_str!("../assets/layout.js");
const COLUMNS_SCRIPT: &str = include_str!("../assets/columns.js");
const PAINT_SCRIPT: &str = include_str!("../assets/paint.js");
const SVG_SCRIPT: &str = include_str!("../assets/svg_context.js");
const SCRIPT: &str = include_str!("../assets/viewer.js");

/// The state in which the page opens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HtmlOptions {
    /// What colours show at first, instead of the kind of operator.
    pub overlay: Option<Overlay>,
    /// Number of nested modules open at first; if `None`, as many as are easily read.
    pub depth: Option<u32>,
}

/// The data of the page's script.
#[derive(Serialize)]
struct Data<'s> {
    title: &'s str,
    summary: Option<&'s str>,
    overlay: Option<&'static str>,
    depth: Option<u32>,
    kinds: Vec<(&'static str, &'static str)>,
    steps: usize,
    part_colors: usize,
    nodes: Vec<NodeData<'s>>,
    groups: Vec<GroupData<'s>>,
    edges: Vec<(u32, u32)>,
    levels: Vec<LevelData>,
}

#[derive(Serialize)]
struct NodeData<'s> {
    #[serde(flatten)]
    node: &'s SceneNode,
    /// Width and height of its box.
    box_size: (f64, f64),
    /// Width of its shape to the right of its line.
    label_reach: f64,
}

#[derive(Serialize)]
struct GroupData<'s> {
    #[serde(flatten)]
    group: &'s Group,
    /// The text of its closed box, and the size of that box.
    label: (String, String),
    box_size: (f64, f64),
    title_width: f64,
}

#[derive(Serialize)]
struct LevelData {
    #[serde(flatten)]
    level: Level,
    /// The placement while the modules in it are closed: most of the layout before the page is
    /// first painted.
    closed: Placement,
}

/// The scene as an HTML document that needs nothing else: no network, no other files.
///
/// Text of the graph is in it as JSON alone, which its script shows as text; a content security
/// policy forbids everything that is not in the file.
///
/// # Panics
/// Never: everything in a scene can be written as JSON.
#[must_use]
pub fn to_html(scene: &Scene, options: &HtmlOptions) -> String {
    let data = Data {
        title: &scene.title,
        summary: scene.summary.as_deref(),
        overlay: options.overlay.map(Overlay::name),
        depth: options.depth,
        kinds: Kind::ALL.map(|kind| (kind.class(), kind.label())).to_vec(),
        steps: STEPS,
        part_colors: palette::PART_COLORS,
        nodes: scene.nodes.iter().map(node_data).collect(),
        groups: scene.groups.iter().map(group_data).collect(),
        edges: scene
            .edges
            .iter()
            .map(|Edge { from, to, .. }| (*from, *to))
            .collect(),
        levels: levels(scene)
            .into_iter()
            .map(|level| LevelData {
                closed: closed_placement(scene, &level),
                level,
            })
            .collect(),
    };
    let json = serde_json::to_string(&data).expect("numbers, strings and lists are JSON");
    let mut style = format!(
        ":root{{{}}}\n@media(prefers-color-scheme:dark){{:root{{{}}}}}\n",
        palette::properties(false),
        palette::properties(true)
    );
    style.push_str(STYLE);
    let script = [
        LAYOUT_SCRIPT,
        COLUMNS_SCRIPT,
        PAINT_SCRIPT,
        SVG_SCRIPT,
        SCRIPT,
    ]
    .concat();
    fill(
        PAGE,
        &[
            ("{{title}}", &xml(&scene.title)),
            ("{{style}}", &style),
            ("{{data}}", &json_in_script(&json)),
            ("{{script}}", &script),
        ],
    )
}

/// Fills the fields of a page, in the order in which they stand in it. Text filled in is not
/// searched again: a title may look like a field.
fn fill(page: &str, fields: &[(&str, &str)]) -> String {
    let filled: usize = fields.iter().map(|(_, value)| value.len()).sum();
    let mut out = String::with_capacity(page.len() + filled);
    let mut rest = page;
    for (field, value) in fields {
        let (before, after) = rest.split_once(field).expect("the page has the field");
        out.push_str(before);
        out.push_str(value);
        rest = after;
    }
    out.push_str(rest);
    out
}

fn node_data(node: &SceneNode) -> NodeData<'_> {
    NodeData {
        node,
        box_size: node_size(node),
        label_reach: label_reach(node),
    }
}

fn group_data(group: &Group) -> GroupData<'_> {
    GroupData {
        group,
        label: (group_title(group), group_subtitle(group)),
        box_size: group_size(group),
        title_width: title_width(group),
    }
}
