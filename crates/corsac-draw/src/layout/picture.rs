//! Boxes and lines of all levels, in coordinates of the whole.

use super::level::{Item, Level, Net};
use super::place::{Placement, Routes, Size, place};
use crate::kind::Kind;
use crate::scene::{EdgeChange, Group, Scene, SceneNode};
use crate::text_width::{bold_width, text_width};

/// Sizes of text, in pixels.
pub(crate) const TITLE_SIZE: f64 = 13.0;
pub(crate) const SUBTITLE_SIZE: f64 = 11.0;
/// Space between text and the sides of its box.
pub(crate) const TEXT_MARGIN: f64 = 12.0;
/// Height of the lines of a record.
pub(crate) const LINE_HEIGHT: f64 = 15.0;
const NODE_WIDTHS: (f64, f64) = (84.0, 230.0);
const GROUP_WIDTHS: (f64, f64) = (128.0, 250.0);
const GROUP_HEIGHT: f64 = 52.0;
/// Space around the inside of an open module: its title is at the top, above the lines that part
/// below it. Where values come in or go out there is a layer of ports, with space of its own.
const HEADER: f64 = 34.0;
const HEADER_OVER_PORTS: f64 = 24.0;
const SIDE: f64 = 16.0;
/// Space beside the title of an open module: on the left, to a line that comes in, and on the
/// right, where the page has the sign for closing it.
const TITLE_START: f64 = 12.0;
const TITLE_GAP: f64 = 8.0;
const TITLE_END: f64 = 30.0;
/// Additional width that a module may get for a title on the left, where readers expect it.
const TITLE_LEFT: f64 = 60.0;
const FOOT: f64 = 16.0;
/// Room that a port takes among its neighbours.
const PORT_WIDTH: f64 = 8.0;
/// Shapes beside lines: font size, largest width, and the space from line to text and from text to
/// the next line.
pub(crate) const LABEL_SIZE: f64 = 10.5;
pub(crate) const LABEL_WIDTH: f64 = 160.0;
pub(crate) const LABEL_MARGIN: f64 = 6.0;

/// The modules that are open: shown with their contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Opening {
    /// All of them.
    #[default]
    All,
    /// Those with fewer than this many modules around them; 0 for none.
    Depth(u32),
}

/// Something in a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A node, as an index into [`Scene::nodes`].
    Node(u32),
    /// A module with its inside, as an index into [`Scene::groups`].
    Open(u32),
    /// A module as one box.
    Closed(u32),
}

/// A box, in pixels at scale 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoxShape {
    /// Its content.
    pub content: Content,
    /// Its left side.
    pub x: f64,
    /// Its top.
    pub y: f64,
    /// Its width.
    pub width: f64,
    /// Its height.
    pub height: f64,
    /// The start of the title of an open module, and its largest width.
    pub title: (f64, f64),
    /// Likewise for text that does not fit behind the title.
    pub behind: (f64, f64),
}

/// A line, or several that begin as one.
#[derive(Clone, Debug, PartialEq)]
pub struct Wire {
    /// The node whose value it is, as an index into [`Scene::nodes`].
    pub value: u32,
    /// Its points: upright between two points of the same x, and upright in every point.
    pub points: Vec<(f64, f64)>,
    /// Whether it ends at a user of the value, not on the way there.
    pub arrow: bool,
    /// Whether it goes below the boxes in its way.
    pub straight: bool,
    /// Its change.
    pub change: EdgeChange,
}

/// All boxes and lines with their coordinates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// The boxes; an open module comes before its contents.
    pub boxes: Vec<BoxShape>,
    /// The lines.
    pub wires: Vec<Wire>,
    /// The places of shapes: where a value leaves the node that makes it.
    pub labels: Vec<(u32, f64, f64)>,
    /// Width of the whole.
    pub width: f64,
    /// Height of the whole.
    pub height: f64,
}

/// The width and height of a node's box.
#[must_use]
pub fn node_size(node: &SceneNode) -> (f64, f64) {
    let title = bold_width(&node.title, TITLE_SIZE);
    let subtitle = text_width(&node.subtitle, SUBTITLE_SIZE);
    let lines = node
        .lines
        .iter()
        .map(|line| text_width(line, SUBTITLE_SIZE));
    let widest = lines.fold(title.max(subtitle), f64::max);
    let width = (widest + 2.0 * TEXT_MARGIN)
        .clamp(NODE_WIDTHS.0, widths_of(node))
        .round();
    if !node.lines.is_empty() {
        return (width, 30.0 + LINE_HEIGHT * node.lines.len() as f64);
    }
    let height = match node.kind {
        Kind::Input | Kind::Output | Kind::Parameter => 28.0,
        _ if node.subtitle.is_empty() => 30.0,
        _ => 42.0,
    };
    (width, height)
}

/// Width of a node's shape to the right of the line that leaves the node, with the space after it;
/// 0 if no shape is known.
pub(crate) fn label_reach(node: &SceneNode) -> f64 {
    let Some(shape) = &node.shape else {
        return 0.0;
    };
    2.0 * LABEL_MARGIN + text_width(shape, LABEL_SIZE).min(LABEL_WIDTH).round()
}

/// The largest width of a node.
fn widths_of(node: &SceneNode) -> f64 {
    if node.lines.is_empty() {
        NODE_WIDTHS.1
    } else {
        2.0 * NODE_WIDTHS.1
    }
}

/// The text below the title of a closed module.
pub(crate) fn group_subtitle(group: &Group) -> String {
    let nodes = match group.size {
        1 => "1 node".to_owned(),
        size => format!("{size} nodes"),
    };
    match crate::kind::short_name(&group.class) {
        "" => nodes,
        class => format!("{class} · {nodes}"),
    }
}

/// The title of a module, with the number of the call where there are several.
pub(crate) fn group_title(group: &Group) -> String {
    match group.call {
        0 => group.title.clone(),
        call => format!("{} ({})", group.title, call + 1),
    }
}

/// The width and height of the box of a closed module.
pub(crate) fn group_size(group: &Group) -> (f64, f64) {
    let title = bold_width(&group_title(group), TITLE_SIZE + 1.0);
    let subtitle = text_width(&group_subtitle(group), SUBTITLE_SIZE);
    // The sign for opening it is on the right.
    let width = title.max(subtitle) + 2.0 * TEXT_MARGIN + 18.0;
    (
        width.clamp(GROUP_WIDTHS.0, GROUP_WIDTHS.1).round(),
        GROUP_HEIGHT,
    )
}

/// The preferred width of the title of a module.
pub(crate) fn title_width(group: &Group) -> f64 {
    let width = bold_width(&group_title(group), TITLE_SIZE);
    // No line is to touch it, and no rounding to shorten it.
    width.min(GROUP_WIDTHS.1).ceil() + 1.0
}

/// A place in the header of an open module: its start, right of the middle, and its width.
type Place = (f64, f64);

/// The width of an open module that is to be at least `width` wide; the place of its title, left or
/// right of all lines that come in, `inlets` right of the middle; and the room left on the right
/// of those.
fn beside_inlets(title: f64, inlets: &[f64], width: f64) -> (f64, Place, Place) {
    if inlets.is_empty() {
        let room = width - TITLE_START - TITLE_END;
        return (width, (TITLE_START - width / 2.0, room), (0.0, 0.0));
    }
    let first = inlets.iter().copied().fold(f64::INFINITY, f64::min);
    let last = inlets.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let before = 2.0 * (TITLE_START + title + TITLE_GAP - first);
    let behind = 2.0 * (TITLE_GAP + title + TITLE_END + last);
    let is_left = before <= width.max(behind) + TITLE_LEFT;
    let width = width.max(if is_left { before } else { behind });
    let start = last + TITLE_GAP;
    let right = (start, width / 2.0 - TITLE_END - start);
    if is_left {
        let start = TITLE_START - width / 2.0;
        (width, (start, first - TITLE_GAP - start), right)
    } else {
        (width, right, (0.0, 0.0))
    }
}

/// The heights above and below the inside of an open module.
fn frame_of(level: &Level) -> (f64, f64) {
    let has = |what: fn(&Item) -> bool| level.items.iter().any(what);
    let header = if has(|item| matches!(item, Item::Inlet(_))) {
        HEADER_OVER_PORTS
    } else {
        HEADER
    };
    let foot = if has(|item| matches!(item, Item::Outlet(_))) {
        0.0
    } else {
        FOOT
    };
    (header, foot)
}

/// The size of a closed module, as of an item.
fn closed_size(group: &Group) -> Size {
    let (width, height) = group_size(group);
    Size {
        width,
        height,
        ..Size::default()
    }
}

/// The sizes of the items of a level, given those of the modules in it and whether each is open.
fn item_sizes(
    scene: &Scene,
    level: &Level,
    group_size: impl Fn(u32) -> Size,
    is_open: impl Fn(u32) -> bool,
) -> Vec<Size> {
    let mut sizes: Vec<Size> = level
        .items
        .iter()
        .map(|item| match item {
            Item::Node(node) => {
                let (width, height) = node_size(&scene.nodes[*node as usize]);
                Size {
                    width,
                    height,
                    ..Size::default()
                }
            }
            Item::Group(group) => group_size(*group),
            Item::Inlet(_) | Item::Outlet(_) => Size {
                width: PORT_WIDTH,
                ..Size::default()
            },
        })
        .collect();
    for net in &level.nets {
        let labelled = match level.items[net.source as usize] {
            Item::Node(_) => true,
            Item::Group(group) => !is_open(group),
            Item::Inlet(_) | Item::Outlet(_) => false,
        };
        if labelled {
            let size = &mut sizes[net.source as usize];
            let reach = label_reach(&scene.nodes[net.value as usize]);
            size.label = size.label.max(reach);
        }
    }
    sizes
}

/// The placement of a level while all modules in it are closed.
pub(crate) fn closed_placement(scene: &Scene, level: &Level) -> Placement {
    let size = |group: u32| closed_size(&scene.groups[group as usize]);
    place(level, &item_sizes(scene, level, size, |_| false))
}

impl Picture {
    /// The picture with these modules open.
    ///
    /// # Panics
    /// If the levels are not those of the scene.
    #[must_use]
    pub fn of(scene: &Scene, levels: &[Level], opening: &Opening) -> Self {
        let mut depth = vec![0_u32; scene.groups.len()];
        for (at, group) in scene.groups.iter().enumerate() {
            depth[at] = group.parent.map_or(0, |parent| depth[parent as usize] + 1);
        }
        let is_open = |group: usize| match opening {
            Opening::All => true,
            Opening::Depth(open) => depth[group] < *open,
        };
        // From the inside out: a module comes after the one it is in.
        let mut sizes: Vec<Size> = vec![Size::default(); scene.groups.len()];
        let mut placed: Vec<Option<(Vec<Size>, Placement)>> = vec![None; levels.len()];
        for (at, level) in levels.iter().enumerate().rev() {
            let group = at.checked_sub(1);
            if let Some(group) = group.filter(|&group| !is_open(group)) {
                sizes[group] = closed_size(&scene.groups[group]);
                continue;
            }
            let size = |group: u32| sizes[group as usize].clone();
            let items = item_sizes(scene, level, size, |group| is_open(group as usize));
            let placement = place(level, &items);
            if let Some(group) = group {
                let closed = group_size(&scene.groups[group]);
                let width = (placement.width + 2.0 * SIDE).max(closed.0);
                let shift = -placement.width / 2.0;
                let routes = Routes::of(level);
                let (mut ports, mut inlets) = (Vec::new(), Vec::new());
                for (item, (rank, at)) in level.items.iter().zip(routes.item_at) {
                    if let Item::Inlet(value) | Item::Outlet(value) = item {
                        let x = placement.xs[rank][at] + shift;
                        ports.push((*value, x));
                        if matches!(item, Item::Inlet(_)) {
                            inlets.push(x);
                        }
                    }
                }
                ports.sort_unstable_by_key(|(value, _)| *value);
                let title = title_width(&scene.groups[group]);
                let (width, title, behind) = beside_inlets(title, &inlets, width);
                let (header, foot) = frame_of(level);
                sizes[group] = Size {
                    width,
                    height: placement.height + header + foot,
                    ports,
                    label: 0.0,
                    title,
                    behind,
                };
            }
            placed[at] = Some((items, placement));
        }
        // From the outside in.
        let mut picture = Self::default();
        let mut corners = vec![(0.0, 0.0); levels.len()];
        let mut visible = vec![false; levels.len()];
        for (at, level) in levels.iter().enumerate() {
            let Some((sizes, placement)) = &placed[at] else {
                continue;
            };
            if at == 0 {
                (picture.width, picture.height) = (placement.width, placement.height);
            } else if !visible[at] {
                continue;
            }
            let inside = Inside {
                level,
                sizes,
                placement,
                corner: corners[at],
                frame: (at > 0).then(|| frame_of(level)),
            };
            inside.boxes(|item, shape| match item {
                Item::Node(node) => picture.boxes.push(shape(Content::Node(node))),
                Item::Group(group) if is_open(group as usize) => {
                    let shape = shape(Content::Open(group));
                    let level = group as usize + 1;
                    if let Some((_, inside)) = &placed[level] {
                        let side = (shape.width - inside.width) / 2.0;
                        corners[level] = (shape.x + side, shape.y + frame_of(&levels[level]).0);
                        visible[level] = true;
                    }
                    picture.boxes.push(shape);
                }
                Item::Group(group) => picture.boxes.push(shape(Content::Closed(group))),
                Item::Inlet(_) | Item::Outlet(_) => {}
            });
            let opened = |item: u32| match level.items[item as usize] {
                Item::Group(group) => is_open(group as usize),
                Item::Node(_) | Item::Inlet(_) | Item::Outlet(_) => false,
            };
            inside.wires(opened, &mut picture);
        }
        picture
    }
}

/// A level that is shown, with its place.
struct Inside<'a> {
    level: &'a Level,
    sizes: &'a [Size],
    placement: &'a Placement,
    corner: (f64, f64),
    /// The heights above and below the inside of an open module.
    frame: Option<(f64, f64)>,
}

impl Inside<'_> {
    fn boxes(&self, mut each: impl FnMut(Item, &dyn Fn(Content) -> BoxShape)) {
        let routes = Routes::of(self.level);
        for (item, (rank, at)) in self.level.items.iter().zip(routes.item_at) {
            let index = self.index_in(rank, at);
            let size = &self.sizes[index];
            let (top, bottom) = self.span(index, rank);
            let middle = self.corner.0 + self.placement.xs[rank][at];
            let x = middle - size.width / 2.0;
            each(*item, &|content| BoxShape {
                content,
                x,
                y: top,
                width: size.width,
                height: bottom - top,
                title: (middle + size.title.0, size.title.1),
                behind: (middle + size.behind.0, size.behind.1),
            });
        }
    }

    /// The item at a position of a layer.
    fn index_in(&self, rank: usize, at: usize) -> usize {
        match self.level.layers[rank][at] {
            super::level::Slot::Item(item) => item as usize,
            super::level::Slot::Bend(_) => unreachable!("positions of items hold items"),
        }
    }

    /// Top and bottom of an item: the middle of its layer, or the frame for a port.
    fn span(&self, item: usize, rank: usize) -> (f64, f64) {
        let (top, height) = (self.placement.tops[rank], self.placement.heights[rank]);
        let top = self.corner.1 + top;
        match (self.level.items[item], self.frame) {
            (Item::Inlet(_), Some((header, _))) => (self.corner.1 - header, top),
            (Item::Outlet(_), Some((_, foot))) => (top, top + height + foot),
            _ => {
                let own = self.sizes[item].height;
                let top = top + (height - own) / 2.0;
                (top, top + own)
            }
        }
    }

    fn wires(&self, opened: impl Fn(u32) -> bool, picture: &mut Picture) {
        let routes = Routes::of(self.level);
        for (index, net) in self.level.nets.iter().enumerate() {
            let start = self.end(&routes, net, net.source);
            let is_port = matches!(
                self.level.items[net.source as usize],
                Item::Inlet(_) | Item::Outlet(_)
            );
            let from = if is_port { start.1 } else { start.2 };
            if !is_port && !opened(net.source) {
                picture.labels.push((net.value, start.0, start.2));
            }
            let rank = routes.item_at[net.source as usize].0;
            // The points of the value, layer by layer: at the bottom of each.
            let mut trunk = vec![(start.0, from)];
            if !net.straight {
                trunk.push((start.0, self.layer(rank).1));
            }
            let mut reached = vec![trunk.len()];
            for (step, &bend) in routes.bends[index].iter().enumerate() {
                let (top, bottom) = self.layer(rank + 1 + step);
                let x = self.corner.0 + self.placement.xs[rank + 1 + step][bend];
                trunk.extend([(x, top), (x, bottom)]);
                reached.push(trunk.len());
            }
            let last = reached.len() - 1;
            for sink in &net.sinks {
                let (sink_rank, _) = routes.item_at[sink.item as usize];
                let end = self.end(&routes, net, sink.item);
                let is_outlet = matches!(self.level.items[sink.item as usize], Item::Outlet(_));
                let target = if is_outlet { end.2 } else { end.1 };
                let step = if net.straight {
                    0
                } else {
                    sink_rank - rank - 1
                };
                // The first wire to reach the end has the whole line; others begin where they part.
                let first = if step == last { 0 } else { reached[step] - 1 };
                let mut points = trunk[first..reached[step]].to_vec();
                if !net.straight {
                    points.push((end.0, self.layer(sink_rank).0));
                }
                points.push((end.0, target));
                points.dedup();
                picture.wires.push(Wire {
                    value: net.value,
                    points,
                    arrow: !is_outlet && !opened(sink.item),
                    straight: net.straight,
                    change: sink.change,
                });
            }
        }
    }

    /// Top and bottom of a layer, with the text below it.
    fn layer(&self, rank: usize) -> (f64, f64) {
        let (top, height) = (self.placement.tops[rank], self.placement.heights[rank]);
        let top = self.corner.1 + top;
        (top, top + height + self.placement.feet[rank])
    }

    /// The place where a net joins an item: x, top, bottom.
    fn end(&self, routes: &Routes, net: &Net, item: u32) -> (f64, f64, f64) {
        let (rank, at) = routes.item_at[item as usize];
        let (top, bottom) = self.span(item as usize, rank);
        let offset = self.sizes[item as usize].port(net.value);
        let x = self.corner.0 + self.placement.xs[rank][at] + offset;
        (x, top, bottom)
    }
}
