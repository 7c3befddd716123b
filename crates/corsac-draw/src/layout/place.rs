//! Coordinates in a level, given the sizes of its items.
//!
//! `layout.js` does the same when modules open and close, to the same result: change both.

use serde::{Serialize, Serializer};

use super::level::{Item, Level, Slot};

/// Space between two boxes of a layer.
pub(crate) const GAP: f64 = 28.0;
/// Space between a line and its neighbours in a layer.
pub(crate) const LINE_GAP: f64 = 14.0;
/// Space between two layers.
pub(crate) const LAYER_GAP: f64 = 34.0;
/// Height of text below an item.
pub(crate) const LABEL_HEIGHT: f64 = 16.0;
/// Number of sweeps over the layers, down and up.
const SWEEPS: usize = 6;

/// The size of an item, and the places where lines join it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Size {
    /// In pixels at scale 1.
    pub width: f64,
    /// In pixels at scale 1.
    pub height: f64,
    /// The places where values come in at the top and go out at the bottom of an open module, right
    /// of its middle; sorted by value. Other values are joined in the middle.
    pub ports: Vec<(u32, f64)>,
    /// Reach of the text below it, right of its middle, with the space beside that; 0 for none.
    pub label: f64,
    /// The start of the title of an open module, right of its middle, and its largest width.
    pub title: (f64, f64),
    /// Likewise for text that does not fit behind the title: the other side of the lines that come
    /// in.
    pub behind: (f64, f64),
}

impl Size {
    pub(super) fn port(&self, value: u32) -> f64 {
        let found = self.ports.binary_search_by_key(&value, |(value, _)| *value);
        found.map_or(0.0, |at| self.ports[at].1)
    }
}

/// The coordinates of everything in a level. The level's own corner is (0, 0).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Placement {
    /// The middles of the slots of each layer, from the left.
    #[serde(serialize_with = "in_hundredths")]
    pub xs: Vec<Vec<f64>>,
    /// The top of each layer.
    pub tops: Vec<f64>,
    /// The height of each layer.
    pub heights: Vec<f64>,
    /// Room below each layer for text, through which lines go upright.
    pub feet: Vec<f64>,
    /// Width of the whole.
    pub width: f64,
    /// Height of the whole.
    pub height: f64,
}

/// The form in the page's data: no more digits than can be seen.
fn in_hundredths<S: Serializer>(xs: &[Vec<f64>], serializer: S) -> Result<S::Ok, S::Error> {
    let rounded = |row: &Vec<f64>| {
        row.iter()
            .map(|x| (x * 100.0).round() / 100.0)
            .collect::<Vec<_>>()
    };
    serializer.collect_seq(xs.iter().map(rounded))
}

/// A line from a slot of one layer to a slot of the next.
#[derive(Clone, Copy, Debug)]
struct Segment {
    upper: usize,
    lower: usize,
    /// The places where it joins them, right of their middles.
    offsets: (f64, f64),
    /// Weight of keeping it upright: larger for long lines than for short ones (1, 2, 8 as in
    /// Gansner et al., 1993).
    weight: f64,
}

/// Places the items of a level with these sizes. Layers are as high as their highest item, and
/// items of a layer do not overlap; within that, lines are as upright as they can be.
///
/// # Panics
/// If there are fewer sizes than items.
#[must_use]
pub fn place(level: &Level, sizes: &[Size]) -> Placement {
    let bend = Size::default();
    let size_of = |slot: &Slot| match slot {
        Slot::Item(item) => &sizes[*item as usize],
        Slot::Bend(_) => &bend,
    };
    let segments = segments(level, sizes);
    // Least distance between the middles of neighbours.
    let apart = |a: &Slot, b: &Slot| {
        let gap = match (a, b) {
            (Slot::Item(_), Slot::Item(_)) => GAP,
            _ => LINE_GAP,
        };
        let (a, b) = (size_of(a), size_of(b));
        // Text ends before the next line, and before a neighbour that reaches as far down.
        let beside = if b.height > a.height {
            b.width / 2.0
        } else {
            0.0
        };
        ((a.width + b.width) / 2.0 + gap).max(a.label + beside)
    };
    let distances: Vec<Vec<f64>> = level
        .layers
        .iter()
        .map(|layer| {
            layer
                .windows(2)
                .map(|pair| apart(&pair[0], &pair[1]))
                .collect()
        })
        .collect();
    let mut xs: Vec<Vec<f64>> = distances
        .iter()
        .zip(&level.layers)
        .map(|(distances, layer)| {
            let half = distances.iter().sum::<f64>() / 2.0;
            let mut x = -half;
            (0..layer.len())
                .map(|at| {
                    if at > 0 {
                        x += distances[at - 1];
                    }
                    x
                })
                .collect()
        })
        .collect();
    let depth = level.layers.len();
    for sweep in 0..=SWEEPS {
        let down = sweep % 2 == 0;
        for step in 0..depth {
            let rank = if down { step } else { depth - 1 - step };
            // In the last sweep the layers above and below decide together.
            let both = sweep == SWEEPS;
            let above = (rank > 0 && (down || both)).then(|| rank - 1);
            let below = (rank + 1 < depth && (!down || both)).then_some(rank);
            let count = level.layers[rank].len();
            let (mut wanted, mut weights) = (vec![0.0; count], vec![0.0; count]);
            if let Some(above) = above {
                for s in &segments[above] {
                    wanted[s.lower] += s.weight * (xs[above][s.upper] + s.offsets.0 - s.offsets.1);
                    weights[s.lower] += s.weight;
                }
            }
            if let Some(below) = below {
                for s in &segments[below] {
                    wanted[s.upper] +=
                        s.weight * (xs[below + 1][s.lower] + s.offsets.1 - s.offsets.0);
                    weights[s.upper] += s.weight;
                }
            }
            for at in 0..count {
                if weights[at] == 0.0 {
                    // No line pulls: a small weight on staying.
                    (wanted[at], weights[at]) = (xs[rank][at], 0.01);
                } else {
                    wanted[at] /= weights[at];
                }
            }
            xs[rank] = settle(&wanted, &weights, &distances[rank]);
        }
    }
    straighten(level, &mut xs, &distances, &segments);
    align_ports(level, &mut xs, &distances, &segments);
    finish(level, xs, size_of, &segments)
}

/// Puts the outlet of a module below its inlet, so that modules in a row are below each other.
/// Of several inlets it is the one that most lines begin at. That inlet moves if several lines
/// begin there, which bend in any case; otherwise the outlet does.
fn align_ports(
    level: &Level,
    xs: &mut [Vec<f64>],
    distances: &[Vec<f64>],
    segments: &[Vec<Segment>],
) {
    let routes = Routes::of(level);
    let ports = |is: fn(&Item) -> bool| {
        let items = level.items.iter().zip(&routes.item_at);
        items.filter_map(move |(item, &at)| is(item).then_some(at))
    };
    let mut outlets = ports(|item| matches!(item, Item::Outlet(_)));
    let (Some(outlet), None) = (outlets.next(), outlets.next()) else {
        return;
    };
    let mut fans: Vec<Vec<u32>> = level.layers.iter().map(|l| vec![0; l.len()]).collect();
    for (fans, segments) in fans.iter_mut().zip(segments) {
        segments.iter().for_each(|line| fans[line.upper] += 1);
    }
    let fan = |&(rank, at): &(usize, usize)| fans[rank][at];
    // `rev`, since of several equal ones `max_by_key` takes the last.
    let inlets: Vec<_> = ports(|item| matches!(item, Item::Inlet(_))).collect();
    let Some(&inlet) = inlets.iter().rev().max_by_key(|at| fan(at)) else {
        return;
    };
    let (moved, fixed) = if fan(&inlet) > 1 {
        (inlet, outlet)
    } else {
        (outlet, inlet)
    };
    let wanted = xs[fixed.0][fixed.1];
    let ((row, at), apart) = ((&mut xs[moved.0], moved.1), &distances[moved.0]);
    let low = (at > 0).then(|| row[at - 1] + apart[at - 1]);
    let high = (at + 1 < row.len()).then(|| row[at + 1] - apart[at]);
    let x = wanted.max(low.unwrap_or(wanted));
    row[at] = x.min(high.unwrap_or(x));
}

/// Slots below each other that are joined by nothing else: a line past several layers, or a chain
/// of items. Each with its layer and position, and its offset to the right of the first when all
/// lines are upright.
type Run = Vec<(usize, usize, f64)>;

/// Puts runs upright where their neighbours leave room for that, the longest ones first.
fn straighten(
    level: &Level,
    xs: &mut [Vec<f64>],
    distances: &[Vec<f64>],
    segments: &[Vec<Segment>],
) {
    let joints = Joints::of(level, segments);
    let mut runs = joints.runs(level, segments);
    runs.sort_by_key(|run| std::cmp::Reverse(run.len()));
    for run in runs {
        let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
        let mut sum = 0.0;
        for &(rank, at, shift) in &run {
            let (xs, distances) = (&xs[rank], &distances[rank]);
            if at > 0 {
                low = low.max(xs[at - 1] + distances[at - 1] - shift);
            }
            if at + 1 < xs.len() {
                high = high.min(xs[at + 1] - distances[at] - shift);
            }
            sum += xs[at] - shift;
        }
        if low > high {
            continue;
        }
        // Below its source or above its target, whichever is closer to its present place.
        let is = sum / run.len() as f64;
        let ((top, first, _), (bottom, last, shift)) = (run[0], run[run.len() - 1]);
        let upper = joints.above[top][first].map(|s| {
            let s = segments[top - 1][s];
            xs[top - 1][s.upper] + s.offsets.0 - s.offsets.1
        });
        let lower = joints.below[bottom][last].map(|s| {
            let s = segments[bottom][s];
            xs[bottom + 1][s.lower] + s.offsets.1 - s.offsets.0 - shift
        });
        let clamp = |x: f64| x.max(low).min(high);
        let near = |x: f64| (clamp(x) - is).abs();
        let wanted = match (upper, lower) {
            (Some(upper), Some(lower)) if near(lower) < near(upper) => lower,
            (Some(x), _) | (None, Some(x)) => x,
            (None, None) => is,
        };
        let x = clamp(wanted);
        for (rank, at, shift) in run {
            xs[rank][at] = x + shift;
        }
    }
}

/// The one line above and below each slot, as an index into the segments there; for a bend, the
/// line of its chain.
struct Joints {
    above: Vec<Vec<Option<usize>>>,
    below: Vec<Vec<Option<usize>>>,
}

impl Joints {
    fn of(level: &Level, segments: &[Vec<Segment>]) -> Self {
        let none = || {
            level
                .layers
                .iter()
                .map(|layer| vec![None; layer.len()])
                .collect()
        };
        let mut joints = Self {
            above: none(),
            below: none(),
        };
        let mut counts: Vec<(Vec<u32>, Vec<u32>)> = level
            .layers
            .iter()
            .map(|layer| (vec![0; layer.len()], vec![0; layer.len()]))
            .collect();
        let is_bend = |rank: usize, at: usize| matches!(level.layers[rank][at], Slot::Bend(_));
        for (rank, segments) in segments.iter().enumerate() {
            for (index, s) in segments.iter().enumerate() {
                let chain = is_bend(rank, s.upper) && is_bend(rank + 1, s.lower);
                // A line that leaves the chain on the way does not count.
                if !is_bend(rank, s.upper) || chain || joints.below[rank][s.upper].is_none() {
                    counts[rank].1[s.upper] += u32::from(!is_bend(rank, s.upper));
                    joints.below[rank][s.upper] = Some(index);
                }
                counts[rank + 1].0[s.lower] += 1;
                joints.above[rank + 1][s.lower] = Some(index);
            }
        }
        for (rank, counts) in counts.iter().enumerate() {
            for at in 0..level.layers[rank].len() {
                if counts.0[at] > 1 {
                    joints.above[rank][at] = None;
                }
                if counts.1[at] > 1 {
                    joints.below[rank][at] = None;
                }
            }
        }
        joints
    }

    fn runs(&self, level: &Level, segments: &[Vec<Segment>]) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut seen: Vec<Vec<bool>> = level.layers.iter().map(|l| vec![false; l.len()]).collect();
        for (rank, layer) in level.layers.iter().enumerate() {
            for at in 0..layer.len() {
                if seen[rank][at] {
                    continue;
                }
                let mut run = vec![(rank, at, 0.0)];
                seen[rank][at] = true;
                let (mut rank, mut at, mut shift) = (rank, at, 0.0);
                while let Some(index) = self.below[rank][at] {
                    let s = segments[rank][index];
                    if self.above[rank + 1][s.lower] != Some(index) {
                        break;
                    }
                    shift += s.offsets.0 - s.offsets.1;
                    (rank, at) = (rank + 1, s.lower);
                    seen[rank][at] = true;
                    run.push((rank, at, shift));
                }
                runs.push(run);
            }
        }
        runs
    }
}

/// Moves everything so that the corner is (0, 0), and stacks the layers.
fn finish<'s>(
    level: &Level,
    mut xs: Vec<Vec<f64>>,
    size_of: impl Fn(&Slot) -> &'s Size,
    segments: &[Vec<Segment>],
) -> Placement {
    let (mut left, mut right) = (f64::INFINITY, f64::NEG_INFINITY);
    for (layer, xs) in level.layers.iter().zip(&xs) {
        for (slot, x) in layer.iter().zip(xs) {
            let size = size_of(slot);
            left = left.min(x - size.width / 2.0);
            right = right.max(x + size.label.max(size.width / 2.0));
        }
    }
    if left > right {
        (left, right) = (0.0, 0.0);
    }
    xs.iter_mut().flatten().for_each(|x| *x -= left);
    let heights: Vec<f64> = level
        .layers
        .iter()
        .map(|layer| layer.iter().map(|s| size_of(s).height).fold(0.0, f64::max))
        .collect();
    let feet: Vec<f64> = (0..level.layers.len())
        .map(|rank| {
            let bends = |s: &Segment| {
                let upper = xs[rank][s.upper] + s.offsets.0;
                (upper - xs[rank + 1][s.lower] - s.offsets.1).abs() > 0.5
            };
            if !segments[rank].iter().any(bends) {
                return 0.0;
            }
            // Items are in the middle of their layer: there may be room below them.
            let labelled = level.layers[rank].iter().map(&size_of);
            let labelled = labelled.filter(|size| size.label > 0.0);
            let needs = labelled.map(|size| LABEL_HEIGHT - (heights[rank] - size.height) / 2.0);
            needs.fold(0.0, f64::max)
        })
        .collect();
    let mut bottom = 0.0;
    let mut tops = Vec::with_capacity(heights.len());
    for (rank, height) in heights.iter().enumerate() {
        if rank > 0 {
            bottom += feet[rank - 1] + LAYER_GAP;
        }
        tops.push(bottom);
        bottom += height;
    }
    Placement {
        xs,
        tops,
        heights,
        feet,
        width: right - left,
        height: bottom,
    }
}

/// The lines between each layer and the next.
fn segments(level: &Level, sizes: &[Size]) -> Vec<Vec<Segment>> {
    let mut all: Vec<Vec<Segment>> = vec![Vec::new(); level.layers.len()];
    let routes = Routes::of(level);
    for (index, net) in level.nets.iter().enumerate().filter(|(_, n)| !n.straight) {
        let (from, source) = routes.item_at[net.source as usize];
        let chain = &routes.bends[index];
        let offset = |item: u32| sizes[item as usize].port(net.value);
        let mut last = (source, offset(net.source), 1.0);
        let mut add = |rank: usize, upper: (usize, f64), lower: (usize, f64), weight| {
            all[rank].push(Segment {
                upper: upper.0,
                lower: lower.0,
                offsets: (upper.1, lower.1),
                weight,
            });
        };
        let mut ends = vec![last];
        for (step, &bend) in chain.iter().enumerate() {
            let weight = if step == 0 { 2.0 } else { 8.0 };
            add(from + step, (last.0, last.1), (bend, 0.0), weight);
            last = (bend, 0.0, 2.0);
            ends.push(last);
        }
        for sink in &net.sinks {
            let (rank, at) = routes.item_at[sink.item as usize];
            let end = ends[rank - from - 1];
            add(rank - 1, (end.0, end.1), (at, offset(sink.item)), end.2);
        }
    }
    all
}

/// The places of items and bends in the layers of a level.
pub(super) struct Routes {
    /// Layer and position of each item.
    pub(super) item_at: Vec<(usize, usize)>,
    /// Positions of the bends of each net, from the layer below its source on.
    pub(super) bends: Vec<Vec<usize>>,
}

impl Routes {
    pub(super) fn of(level: &Level) -> Self {
        let mut routes = Self {
            item_at: vec![(0, 0); level.items.len()],
            bends: vec![Vec::new(); level.nets.len()],
        };
        for (rank, layer) in level.layers.iter().enumerate() {
            for (at, slot) in layer.iter().enumerate() {
                match slot {
                    Slot::Item(item) => routes.item_at[*item as usize] = (rank, at),
                    Slot::Bend(net) => routes.bends[*net as usize].push(at),
                }
            }
        }
        routes
    }
}

/// The positions closest to the wanted ones, by weighted squares, at which neighbours are at least
/// `distances` apart: isotonic regression by pooling adjacent violators (Barlow et al., 1972), in
/// linear time.
fn settle(wanted: &[f64], weights: &[f64], distances: &[f64]) -> Vec<f64> {
    // Blocks of slots that touch: weighted sum of wanted positions, weight, number of slots. The
    // positions are relative to the place of a slot if all touched.
    let mut blocks: Vec<(f64, f64, usize)> = Vec::with_capacity(wanted.len());
    let mut packed = 0.0;
    for at in 0..wanted.len() {
        if at > 0 {
            packed += distances[at - 1];
        }
        let mut block = (weights[at] * (wanted[at] - packed), weights[at], 1);
        while let Some(&(sum, weight, count)) = blocks.last() {
            if sum / weight <= block.0 / block.1 {
                break;
            }
            blocks.pop();
            block = (block.0 + sum, block.1 + weight, block.2 + count);
        }
        blocks.push(block);
    }
    let mut xs = Vec::with_capacity(wanted.len());
    let mut packed = 0.0;
    for (sum, weight, count) in blocks {
        for _ in 0..count {
            if !xs.is_empty() {
                packed += distances[xs.len() - 1];
            }
            xs.push(sum / weight + packed);
        }
    }
    xs
}
