//! The inside of a module as a graph of its own.

use rustc_hash::FxHashMap;
use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};

use crate::scene::{EdgeChange, Scene};

/// One thing in a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Item {
    /// A node, as an index into [`Scene::nodes`].
    Node(u32),
    /// A module call, as an index into [`Scene::groups`].
    Group(u32),
    /// The port through which the value of a node outside comes in.
    Inlet(u32),
    /// The port through which the value of a node inside goes out.
    Outlet(u32),
}

/// A value in a level: the item that makes it or lets it in, and all items that it goes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Net {
    /// The node that makes it, as an index into [`Scene::nodes`].
    pub value: u32,
    /// The item that it comes from, as an index into [`Level::items`].
    pub source: u32,
    /// The items that it goes to.
    pub sinks: Vec<Sink>,
    /// Whether lines go straight to their ends, below the boxes in their way.
    pub straight: bool,
}

/// An end of a net.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sink {
    /// The item, as an index into [`Level::items`].
    pub item: u32,
    /// The change of the edge; kept if it stands for several that differ.
    pub change: EdgeChange,
}

/// A place in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// An item, as an index into [`Level::items`].
    Item(u32),
    /// A net on its way past, as an index into [`Level::nets`].
    Bend(u32),
}

/// The inside of a module, or the whole program.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Level {
    /// Its items, in the order of the program; then inlets, then outlets.
    pub items: Vec<Item>,
    /// The values that go from item to item.
    pub nets: Vec<Net>,
    /// The layers, from top to bottom, each from left to right.
    pub layers: Vec<Vec<Slot>>,
}

// In the page's data: `[what, index]`.
impl Serialize for Item {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (what, index) = match self {
            Self::Node(node) => ("node", node),
            Self::Group(group) => ("group", group),
            Self::Inlet(value) => ("inlet", value),
            Self::Outlet(value) => ("outlet", value),
        };
        let mut pair = serializer.serialize_seq(Some(2))?;
        pair.serialize_element(what)?;
        pair.serialize_element(index)?;
        pair.end()
    }
}

// In the page's data: the index of an item, or -1 - the index of a net.
impl Serialize for Slot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(match self {
            Self::Item(item) => i64::from(*item),
            Self::Bend(net) => -1 - i64::from(*net),
        })
    }
}

/// The levels of a scene with their items and nets, without layers.
pub(super) fn split(scene: &Scene) -> Vec<Level> {
    let mut split = Split::new(scene);
    for (at, node) in scene.nodes.iter().enumerate() {
        split.appear(node.group);
        split.add_item(node.group, Item::Node(index(at)));
    }
    for edge in &scene.edges {
        split.edge(edge.from, edge.to, edge.change);
    }
    split.levels
}

struct Split<'s> {
    scene: &'s Scene,
    levels: Vec<Level>,
    /// Number of groups around each group.
    depth: Vec<u32>,
    /// The item in a level of a node, a group or a port.
    item_of: FxHashMap<(u32, Item), u32>,
    net_of: FxHashMap<(u32, u32), u32>,
    sink_of: FxHashMap<(u32, u32, u32), u32>,
}

fn index(at: usize) -> u32 {
    u32::try_from(at).expect("fewer than 2^32 things in a scene")
}

/// The level that is a group's inside; the whole program without one.
fn level_of(group: Option<u32>) -> u32 {
    group.map_or(0, |group| group + 1)
}

impl<'s> Split<'s> {
    fn new(scene: &'s Scene) -> Self {
        let mut depth: Vec<u32> = Vec::with_capacity(scene.groups.len());
        for group in &scene.groups {
            depth.push(group.parent.map_or(0, |parent| depth[parent as usize] + 1));
        }
        Self {
            scene,
            levels: vec![Level::default(); scene.groups.len() + 1],
            depth,
            item_of: FxHashMap::default(),
            net_of: FxHashMap::default(),
            sink_of: FxHashMap::default(),
        }
    }

    fn parent(&self, group: u32) -> Option<u32> {
        self.scene.groups[group as usize].parent
    }

    /// Makes a group, and those around it, items of their levels, at the first node in them.
    fn appear(&mut self, group: Option<u32>) {
        let mut next = group;
        while let Some(group) = next {
            let parent = self.parent(group);
            let known = self.item_of.len();
            self.add_item(parent, Item::Group(group));
            if self.item_of.len() == known {
                break;
            }
            next = parent;
        }
    }

    fn add_item(&mut self, group: Option<u32>, item: Item) -> u32 {
        let level = level_of(group);
        let items = &mut self.levels[level as usize].items;
        *self.item_of.entry((level, item)).or_insert_with(|| {
            items.push(item);
            index(items.len() - 1)
        })
    }

    /// Adds an edge to every level that it passes.
    fn edge(&mut self, from: u32, to: u32, change: EdgeChange) {
        let group_of = |node: u32| self.scene.nodes[node as usize].group;
        let (mut left, mut right) = (group_of(from), group_of(to));
        let (mut source, mut sink) = (Item::Node(from), Item::Node(to));
        let depth =
            |depths: &[u32], group: Option<u32>| group.map_or(0, |g| depths[g as usize] + 1);
        while left != right {
            if depth(&self.depth, left) >= depth(&self.depth, right) {
                let Some(group) = left else { break };
                self.connect(left, from, source, Item::Outlet(from), change);
                (source, left) = (Item::Group(group), self.parent(group));
            } else {
                let Some(group) = right else { break };
                self.connect(right, from, Item::Inlet(from), sink, change);
                (sink, right) = (Item::Group(group), self.parent(group));
            }
        }
        self.connect(left, from, source, sink, change);
    }

    /// Adds a value's line from one item of a level to another.
    fn connect(
        &mut self,
        group: Option<u32>,
        value: u32,
        source: Item,
        sink: Item,
        change: EdgeChange,
    ) {
        // A node that uses its own value has no line to draw.
        if source == sink {
            return;
        }
        let level = level_of(group);
        let (source, sink) = (self.add_item(group, source), self.add_item(group, sink));
        let nets = &mut self.levels[level as usize].nets;
        let net = *self.net_of.entry((level, value)).or_insert_with(|| {
            nets.push(Net {
                value,
                source,
                sinks: Vec::new(),
                straight: false,
            });
            index(nets.len() - 1)
        });
        let sinks = &mut nets[net as usize].sinks;
        match self.sink_of.get(&(level, net, sink)) {
            Some(&known) => {
                let known = &mut sinks[known as usize];
                if known.change != change {
                    known.change = EdgeChange::Kept;
                }
            }
            None => {
                self.sink_of.insert((level, net, sink), index(sinks.len()));
                sinks.push(Sink { item: sink, change });
            }
        }
    }
}
