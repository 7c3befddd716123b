//! A picture as SVG.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::escape::xml;
use crate::heat::{Metric, Overlay, Quantities, STEPS, step};
use crate::kind::{Kind, short_name};
use crate::layout::{BoxShape, Content, Opening, Picture, Wire, levels};
use crate::layout::{
    LABEL_MARGIN, LABEL_SIZE, LABEL_WIDTH, LINE_HEIGHT, SUBTITLE_SIZE, TEXT_MARGIN, TITLE_SIZE,
    group_subtitle, group_title,
};
use crate::palette;
use crate::scene::{EdgeChange, Group, NodeChange, Scene, SceneNode};
use crate::text_width::{bold_width, fit, fit_bold, text_width};

/// Space around everything.
const MARGIN: f64 = 24.0;
/// Height of title and legend.
const HEAD: f64 = 58.0;
const LEGEND_SIZE: f64 = 11.0;
/// Distance from the lower edge of a box to the baseline of its shape: below the box that stands
/// behind that of a closed module.
const LABEL_BASE: f64 = 14.5;

/// Options of the picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SvgOptions {
    /// The modules that are shown with their contents.
    pub opening: Opening,
    /// What colours show, instead of the kind of operator.
    pub overlay: Option<Overlay>,
}

/// The scene as an SVG document. It has no scripts and refers to nothing outside it; its colours
/// follow the reader's setting of light or dark.
#[must_use]
pub fn to_svg(scene: &Scene, options: &SvgOptions) -> String {
    let picture = Picture::of(scene, &levels(scene), &options.opening);
    Drawing {
        scene,
        overlay: options.overlay,
        out: String::with_capacity(600 * picture.boxes.len() + 4096),
    }
    .document(&picture)
}

struct Drawing<'a> {
    scene: &'a Scene,
    overlay: Option<Overlay>,
    out: String,
}

/// A coordinate with one decimal.
struct N(f64);

impl std::fmt::Display for N {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tenths = (self.0 * 10.0).round() / 10.0;
        if tenths.fract() == 0.0 {
            write!(f, "{tenths:.0}")
        } else {
            write!(f, "{tenths:.1}")
        }
    }
}

/// Writing to a `String` cannot fail.
macro_rules! put {
    ($drawing:expr, $($format:tt)*) => {{
        let _ = write!($drawing.out, $($format)*);
    }};
}

impl Drawing<'_> {
    fn document(mut self, picture: &Picture) -> String {
        let legend = self.legend_entries();
        let legend_width: f64 = legend.iter().map(|(_, label)| entry_width(label)).sum();
        let title_width = bold_width(&self.scene.title, 18.0);
        let inner = picture.width.max(legend_width.min(900.0)).max(title_width);
        let (width, height) = (inner + 2.0 * MARGIN, picture.height + HEAD + 2.0 * MARGIN);
        put!(
            self,
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{}" height="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">"#,
            N(width),
            N(height),
            N(width),
            N(height),
            xml(&self.scene.title),
        );
        self.style();
        put!(self, r#"<rect class="page" width="100%" height="100%"/>"#);
        self.head(&legend, inner);
        let left = MARGIN + (inner - picture.width) / 2.0;
        put!(
            self,
            "\n<g transform=\"translate({},{})\">",
            N(left),
            N(MARGIN + HEAD)
        );
        // Modules lie below lines, lines below nodes.
        let (frames, nodes): (Vec<_>, Vec<_>) = picture
            .boxes
            .iter()
            .partition(|shape| matches!(shape.content, Content::Open(_)));
        for straight in [true, false] {
            if !straight {
                frames.iter().for_each(|shape| self.shape(shape));
            }
            let wires = picture.wires.iter();
            wires
                .filter(|wire| wire.straight == straight)
                .for_each(|wire| self.wire(wire));
        }
        for (value, x, y) in &picture.labels {
            if let Some(shape) = &self.scene.nodes[*value as usize].shape {
                let text = fit(shape, LABEL_SIZE, LABEL_WIDTH);
                put!(
                    self,
                    "\n<text class=\"label\" x=\"{}\" y=\"{}\">{}</text>",
                    N(x + LABEL_MARGIN),
                    N(y + LABEL_BASE),
                    xml(&text)
                );
            }
        }
        nodes.iter().for_each(|shape| self.shape(shape));
        for shape in &frames {
            if let Content::Open(group) = shape.content {
                self.frame_title(&self.scene.groups[group as usize], shape);
            }
        }
        self.out.push_str("\n</g>\n</svg>\n");
        self.out
    }

    fn style(&mut self) {
        put!(
            self,
            "\n<style>\nsvg{{{}}}\n@media(prefers-color-scheme:dark){{svg{{{}}}}}\n{}",
            palette::properties(false),
            palette::properties(true),
            include_str!("../assets/picture.css")
        );
        let kinds = Kind::ALL.map(Kind::class);
        for name in kinds
            .iter()
            .chain(&["added", "removed", "changed", "moved"])
        {
            let color = if kinds.contains(name) { "kind-" } else { "" };
            put!(
                self,
                ".{name}{{fill:var(--tint-{name});stroke:var(--{color}{name})}}"
            );
        }
        for part in (0..palette::PART_COLORS as u32).map(palette::part_class) {
            put!(
                self,
                ".{part}{{fill:var(--tint-{part});stroke:var(--{part})}}"
            );
        }
        for step in 0..STEPS {
            put!(self, ".heat-{step}{{fill:var(--heat-{step})}}");
        }
        self.out.push_str("\n</style>\n");
    }

    /// The entries of the legend: the class of the colour, and its meaning.
    fn legend_entries(&self) -> Vec<(String, String)> {
        let entry = |class: &str, label: &str| (class.to_owned(), label.to_owned());
        if self.scene.summary.is_some() {
            let nodes = &self.scene.nodes;
            let seen = |state: &&str| {
                let mut changes = nodes.iter().filter_map(|node| node.change.as_ref());
                changes.any(|change| change.class() == *state)
            };
            let states = ["added", "removed", "changed", "moved"];
            let states = states.into_iter().filter(|state| seen(state));
            return states.map(|state| entry(state, state)).collect();
        }
        if self.overlay == Some(Overlay::Part) {
            let parts = self.scene.nodes.iter().filter_map(|node| node.part);
            let parts: BTreeSet<u32> = parts.collect();
            let parts = parts.into_iter();
            return parts
                .map(|part| entry(&palette::part_class(part), &format!("part {part}")))
                .collect();
        }
        if let Some(metric) = self.overlay.and_then(Overlay::metric) {
            let largest = self.scene.largest(metric).unwrap_or(0.0);
            let steps = (0..STEPS).step_by(2).map(|at| {
                let share = at as f64 / (STEPS - 1) as f64;
                let amount = metric.format(largest * share * share);
                (format!("heat-{at}"), amount)
            });
            return steps.collect();
        }
        let seen = |kind: &Kind| self.scene.nodes.iter().any(|node| node.kind == *kind);
        let kinds = Kind::ALL.into_iter().filter(seen);
        kinds
            .map(|kind| entry(kind.class(), kind.label()))
            .collect()
    }

    fn head(&mut self, legend: &[(String, String)], room: f64) {
        put!(
            self,
            "<text class=\"head\" x=\"{}\" y=\"{}\">{}</text>",
            N(MARGIN),
            N(MARGIN + 16.0),
            xml(&self.scene.title)
        );
        let mut x = MARGIN;
        let y = MARGIN + 38.0;
        for (class, label) in legend {
            if x + entry_width(label) > MARGIN + room.max(900.0) {
                break;
            }
            put!(
                self,
                "<rect class=\"swatch {class}\" x=\"{}\" y=\"{}\" width=\"10\" height=\"10\" rx=\"3\"/><text class=\"legend\" x=\"{}\" y=\"{}\">{}</text>",
                N(x),
                N(y - 9.0),
                N(x + 15.0),
                N(y),
                xml(label)
            );
            x += entry_width(label);
        }
    }

    fn wire(&mut self, wire: &Wire) {
        let class = match wire.change {
            EdgeChange::Kept => "",
            EdgeChange::Added => " new",
            EdgeChange::Removed => " gone",
        };
        let straight = if wire.straight { " straight" } else { "" };
        put!(self, "\n<path class=\"wire{class}{straight}\" d=\"");
        let mut last: Option<(f64, f64)> = None;
        for &(x, y) in &wire.points {
            match last {
                None => put!(self, "M{} {}", N(x), N(y)),
                Some((before, _)) if before == x => put!(self, "V{}", N(y)),
                Some((before, top)) => {
                    let middle = (top + y) / 2.0;
                    put!(
                        self,
                        "C{} {} {} {} {} {}",
                        N(before),
                        N(middle),
                        N(x),
                        N(middle),
                        N(x),
                        N(y)
                    );
                }
            }
            last = Some((x, y));
        }
        self.out.push_str("\"/>");
        if let Some((x, y)) = last.filter(|_| wire.arrow) {
            put!(
                self,
                "<path class=\"tip{class}\" d=\"M{} {}l-3.5 -6h7z\"/>",
                N(x),
                N(y)
            );
        }
    }

    fn shape(&mut self, shape: &BoxShape) {
        match shape.content {
            Content::Node(node) => self.node(&self.scene.nodes[node as usize], shape),
            Content::Open(group) => self.frame(&self.scene.groups[group as usize], shape),
            Content::Closed(group) => self.closed(&self.scene.groups[group as usize], shape),
        }
    }

    /// The class that gives a box its colour. `part` is the part that all of it is in.
    fn color(
        &self,
        kind: &str,
        quantities: &Quantities,
        part: Option<u32>,
        change: Option<&NodeChange>,
    ) -> String {
        if let Some(change) = change {
            return change.class().to_owned();
        }
        if self.overlay == Some(Overlay::Part) {
            return part.map_or_else(|| "unknown".to_owned(), palette::part_class);
        }
        let metric = self.overlay.and_then(Overlay::metric);
        let amount = metric.and_then(|metric| quantities.get(metric));
        match metric.and_then(|metric| self.scene.largest(metric)) {
            Some(largest) => amount.map_or_else(
                || "unknown".to_owned(),
                |amount| format!("heat-{}", step(amount, largest)),
            ),
            None if self.scene.summary.is_some() => "kept".to_owned(),
            None => kind.to_owned(),
        }
    }

    fn node(&mut self, node: &SceneNode, shape: &BoxShape) {
        let kind = node.kind.class();
        let color = self.color(kind, &node.quantities, node.part, node.change.as_ref());
        let is_end = node.op == "placeholder" || node.op == "output";
        let round = if is_end && node.lines.is_empty() {
            shape.height / 2.0
        } else {
            7.0
        };
        self.open_box(&format!("node {color}"), shape, round, &tooltip(node));
        let middle = shape.x + shape.width / 2.0;
        let room = shape.width - TEXT_MARGIN;
        let has_subtitle = !node.subtitle.is_empty() && shape.height > 34.0;
        let lines = LINE_HEIGHT * node.lines.len() as f64;
        let centre = shape.y + (shape.height - lines) / 2.0;
        let baseline = centre + if has_subtitle { -2.5 } else { 4.5 };
        let hot = matches!(color.as_str(), "heat-6" | "heat-7" | "heat-8");
        let hot = if hot { " hot" } else { "" };
        self.text(
            &format!("title{hot}"),
            middle,
            baseline,
            &fit_bold(&node.title, TITLE_SIZE, room),
        );
        if has_subtitle {
            let subtitle = fit(&node.subtitle, SUBTITLE_SIZE, room);
            self.text(
                &format!("subtitle{hot}"),
                middle,
                baseline + 15.0,
                &subtitle,
            );
        }
        for (at, line) in node.lines.iter().enumerate() {
            let y = baseline + LINE_HEIGHT * (at + 1) as f64;
            self.text("subtitle", middle, y, &fit(line, SUBTITLE_SIZE, room));
        }
        self.out.push_str("</g>");
    }

    fn frame(&mut self, group: &Group, shape: &BoxShape) {
        self.open_box("frame", shape, 10.0, &group.path);
        self.out.push_str("</g>");
    }

    /// The title of an open module, and the class where there is room for it.
    fn frame_title(&mut self, group: &Group, shape: &BoxShape) {
        let class = short_name(&group.class);
        let (x, room) = shape.title;
        let title = fit_bold(&group_title(group), TITLE_SIZE, room);
        let used = bold_width(&title, TITLE_SIZE) + 8.0;
        let y = shape.y + 20.0;
        put!(
            self,
            "<text class=\"name\" x=\"{}\" y=\"{}\">{}</text>",
            N(x),
            N(y),
            xml(&title)
        );
        let places = [(x + used, room - used), shape.behind];
        let width = text_width(class, SUBTITLE_SIZE);
        if let Some((x, _)) = places.into_iter().find(|(_, room)| *room > width) {
            put!(
                self,
                "<text class=\"class\" x=\"{}\" y=\"{}\">{}</text>",
                N(x),
                N(y),
                xml(class)
            );
        }
    }

    fn closed(&mut self, group: &Group, shape: &BoxShape) {
        // A module costs more than a node, and has a colour of the same scale.
        let color = match (self.overlay, group.parts.as_slice()) {
            (Some(Overlay::Part), [_, _, ..]) => "module".to_owned(),
            (_, parts) => {
                let part = parts.first().map(|(part, _)| *part);
                self.color("module", &group.quantities, part, None)
            }
        };
        self.open_box(&format!("closed {color}"), shape, 9.0, &group.path);
        let middle = shape.x + shape.width / 2.0;
        let room = shape.width - TEXT_MARGIN;
        let top = shape.y + shape.height / 2.0;
        let title = fit_bold(&group_title(group), TITLE_SIZE + 1.0, room);
        self.text("title large", middle, top - 4.0, &title);
        let subtitle = fit(&group_subtitle(group), SUBTITLE_SIZE, room);
        self.text("subtitle", middle, top + 12.0, &subtitle);
        if color == "module" {
            self.mix(group, shape);
        }
        self.out.push_str("</g>");
    }

    /// Draws the contents of a closed module: a bar, by kind or part.
    fn mix(&mut self, group: &Group, shape: &BoxShape) {
        let room = shape.width - 20.0;
        let mut x = shape.x + 10.0;
        let by_kind = |(kind, count): &(Kind, u32)| (format!("kind-{}", kind.class()), *count);
        let by_part = |(part, count): &(u32, u32)| (palette::part_class(*part), *count);
        let counts: Vec<(String, u32)> = match self.overlay {
            Some(Overlay::Part) => group.parts.iter().map(by_part).collect(),
            _ => group.kinds.iter().map(by_kind).collect(),
        };
        for (color, count) in counts {
            let width = room * f64::from(count) / f64::from(group.size.max(1));
            put!(
                self,
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"3.5\" fill=\"var(--{color})\"/>",
                N(x),
                N(shape.y + shape.height - 9.0),
                N(width)
            );
            x += width;
        }
    }

    /// A group element with a box in it, to be closed by the caller.
    fn open_box(&mut self, class: &str, shape: &BoxShape, round: f64, tooltip: &str) {
        put!(
            self,
            "\n<g><title>{}</title><rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{}\"/>",
            xml(tooltip),
            N(shape.x),
            N(shape.y),
            N(shape.width),
            N(shape.height),
            N(round)
        );
    }

    fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        put!(
            self,
            "<text class=\"{class}\" x=\"{}\" y=\"{}\">{}</text>",
            N(x),
            N(y),
            xml(text)
        );
    }
}

fn entry_width(label: &str) -> f64 {
    text_width(label, LEGEND_SIZE) + 30.0
}

/// The tooltip of a node.
fn tooltip(node: &SceneNode) -> String {
    let mut out = format!("{} = {}[{}]", node.name, node.op, node.target);
    let quantities = Metric::ALL.map(|metric| {
        let amount = node.quantities.get(metric)?;
        Some(metric.format(amount))
    });
    let facts = [
        &node.class,
        &node.settings,
        &node.shape,
        &node.dtype,
        &node.source,
    ];
    for fact in facts.into_iter().chain(&quantities).flatten() {
        // Writing to a `String` cannot fail.
        let _ = write!(out, " · {fact}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::{ModuleCall, Note, Notes};
    use corsac_ir::{Graph, NoHost};

    /// The title of a module is bold: its class begins after that.
    #[test]
    fn the_class_of_a_module_is_right_of_its_title() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").expect("no arguments");
        let mut notes = Notes::default();
        // Beside each other, so that the module is wide.
        for method in ["neg", "exp", "sin"] {
            let node = graph
                .call_method(method, [x.into()])
                .expect("a node of this graph");
            let call = ModuleCall {
                path: "encoder_layer_10".to_owned(),
                class: "model.EncoderBlock".to_owned(),
                call: 0,
            };
            let modules = Some(vec![call]);
            notes.insert(
                node,
                Note {
                    modules,
                    ..Note::default()
                },
            );
        }
        let svg = to_svg(
            &Scene::with(&graph, &notes, &NoHost),
            &SvgOptions::default(),
        );
        let place = |class: &str| {
            let text = svg.split_once(&format!("<text class=\"{class}\" x=\""));
            let (x, rest) = text?.1.split_once('"')?;
            let (_, rest) = rest.split_once('>')?;
            Some((x.parse::<f64>().ok()?, rest.split_once('<')?.0))
        };
        let (name, title) = place("name").expect("the module has a title");
        assert_eq!(title, "encoder_layer_10");
        let (class, _) = place("class").expect("there is room for the class");
        let end = name + bold_width(title, TITLE_SIZE);
        assert!(
            end < class,
            "the title ends at {end}, the class is at {class}"
        );
    }
}
