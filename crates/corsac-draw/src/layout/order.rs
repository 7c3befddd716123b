//! The order of the items of each layer, so that lines cross little.

use super::BENDS_PER_ITEM;
use super::level::{Level, Slot};

/// Bends that any level may have, however few items.
const BENDS_FOR_ALL: usize = 1000;
/// Sweeps down and up. Gansner et al. (1993) use 24; the graphs here are mostly chains with
/// branches, and nothing was gained after 8 on torchvision's models.
const SWEEPS: usize = 8;
/// Levels with more slots than this are not improved by exchanging neighbours, whose time grows
/// with the square of a layer.
const MAX_EXCHANGED_SLOTS: usize = 2000;

/// Fills the layers of a level, and marks the nets that go straight.
pub(super) fn fill_layers(level: &mut Level, ranks: &[u32]) {
    mark_straight(level, ranks);
    let mut proper = Proper::new(level, ranks);
    proper.reduce_crossings();
    level.layers = proper
        .layers
        .iter()
        .map(|layer| layer.iter().map(|&at| proper.slots[at as usize]).collect())
        .collect();
}

/// Number of layers that a net passes on its way to its last sink.
fn bends(level: &Level, net: usize, ranks: &[u32]) -> usize {
    let net = &level.nets[net];
    let from = ranks[net.source as usize];
    let to = net.sinks.iter().map(|s| ranks[s.item as usize]).max();
    to.unwrap_or(from).saturating_sub(from + 1) as usize
}

/// Marks nets as straight: those that go up, and the longest ones if there were too many bends.
fn mark_straight(level: &mut Level, ranks: &[u32]) {
    let mut lengths: Vec<(usize, usize)> = (0..level.nets.len())
        .map(|net| (bends(level, net, ranks), net))
        .collect();
    lengths.sort_unstable();
    let mut left = BENDS_PER_ITEM * level.items.len() + BENDS_FOR_ALL;
    for (length, net) in lengths {
        let fits = length <= left;
        if fits {
            left -= length;
        }
        let net = &mut level.nets[net];
        let from = ranks[net.source as usize];
        net.straight = !fits || net.sinks.iter().any(|s| ranks[s.item as usize] <= from);
    }
}

/// A level in which every line goes to the next layer.
struct Proper {
    slots: Vec<Slot>,
    /// The slots in each layer, from left to right.
    layers: Vec<Vec<u32>>,
    /// The slots above and below that each slot is joined to.
    above: Vec<Vec<u32>>,
    below: Vec<Vec<u32>>,
    /// The position of each slot in its layer.
    position: Vec<u32>,
}

impl Proper {
    fn new(level: &Level, ranks: &[u32]) -> Self {
        let depth = ranks.iter().max().map_or(0, |&last| last as usize + 1);
        let items = level.items.len();
        let mut proper = Self {
            slots: (0..items).map(|item| Slot::Item(item as u32)).collect(),
            layers: vec![Vec::new(); depth],
            above: vec![Vec::new(); items],
            below: vec![Vec::new(); items],
            position: Vec::new(),
        };
        // Nets are in the order of their first users, and so layers begin in the program's order.
        let mut by_rank: Vec<Vec<(u32, u32)>> = vec![Vec::new(); depth];
        for (item, &rank) in ranks.iter().enumerate() {
            by_rank[rank as usize].push((item as u32, item as u32));
        }
        for (index, net) in level
            .nets
            .iter()
            .enumerate()
            .filter(|(_, net)| !net.straight)
        {
            let from = ranks[net.source as usize] as usize;
            let mut chain = vec![net.source];
            for layer in by_rank
                .iter_mut()
                .skip(from + 1)
                .take(bends(level, index, ranks))
            {
                let slot = proper.slots.len() as u32;
                proper.slots.push(Slot::Bend(index as u32));
                proper.above.push(Vec::new());
                proper.below.push(Vec::new());
                // A bend begins right of the source of its value.
                layer.push((net.source, slot));
                proper.join(chain[chain.len() - 1], slot);
                chain.push(slot);
            }
            for sink in &net.sinks {
                let rank = ranks[sink.item as usize] as usize;
                proper.join(chain[rank - from - 1], sink.item);
            }
        }
        for (layer, mut slots) in proper.layers.iter_mut().zip(by_rank) {
            slots.sort_by_key(|&(order, slot)| (order, slot));
            *layer = slots.into_iter().map(|(_, slot)| slot).collect();
        }
        proper.position = vec![0; proper.slots.len()];
        proper.note_positions();
        proper
    }

    fn join(&mut self, upper: u32, lower: u32) {
        self.below[upper as usize].push(lower);
        self.above[lower as usize].push(upper);
    }

    fn note_positions(&mut self) {
        for layer in &self.layers {
            for (at, &slot) in layer.iter().enumerate() {
                self.position[slot as usize] = at as u32;
            }
        }
    }

    fn reduce_crossings(&mut self) {
        let mut fewest = self.crossings();
        let mut best = self.layers.clone();
        for sweep in 0..SWEEPS {
            if fewest == 0 {
                return;
            }
            self.sweep(sweep % 2 == 0);
            if self.slots.len() <= MAX_EXCHANGED_SLOTS {
                self.exchange_neighbours();
            }
            let crossings = self.crossings();
            if crossings < fewest {
                fewest = crossings;
                best.clone_from(&self.layers);
            } else if sweep % 2 == 1 {
                break;
            }
        }
        self.layers = best;
        self.note_positions();
    }

    /// Sorts each layer by the mean position of the slots in the layer before that each is joined
    /// to.
    fn sweep(&mut self, down: bool) {
        let depth = self.layers.len();
        for step in 1..depth {
            let rank = if down { step } else { depth - 1 - step };
            let mut keyed: Vec<(f64, u32)> = Vec::with_capacity(self.layers[rank].len());
            for &slot in &self.layers[rank] {
                let joined = if down { &self.above } else { &self.below };
                let joined = &joined[slot as usize];
                let at = |slot: u32| f64::from(self.position[slot as usize]);
                let mean = if joined.is_empty() {
                    // Stays where it is, as far as the others let it.
                    at(slot)
                } else {
                    joined.iter().map(|&other| at(other)).sum::<f64>() / joined.len() as f64
                };
                keyed.push((mean, slot));
            }
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            for (at, &(_, slot)) in keyed.iter().enumerate() {
                self.position[slot as usize] = at as u32;
                self.layers[rank][at] = slot;
            }
        }
    }

    /// Exchanges neighbours as long as that leaves fewer crossings.
    fn exchange_neighbours(&mut self) {
        for rank in 0..self.layers.len() {
            let mut improved = true;
            let mut rounds = 0;
            while improved && rounds < SWEEPS {
                improved = false;
                rounds += 1;
                for at in 1..self.layers[rank].len() {
                    let (left, right) = (self.layers[rank][at - 1], self.layers[rank][at]);
                    if self.crossings_of(right, left) < self.crossings_of(left, right) {
                        self.layers[rank].swap(at - 1, at);
                        self.position[left as usize] = at as u32;
                        self.position[right as usize] = at as u32 - 1;
                        improved = true;
                    }
                }
            }
        }
    }

    /// Crossings among the lines of two slots of a layer, if one is left of the other.
    fn crossings_of(&self, left: u32, right: u32) -> usize {
        let count = |joined: &[Vec<u32>]| {
            let at = |&slot: &u32| self.position[slot as usize];
            let lefts = joined[left as usize].iter().map(at);
            lefts
                .map(|l| {
                    joined[right as usize]
                        .iter()
                        .map(at)
                        .filter(|&r| r < l)
                        .count()
                })
                .sum::<usize>()
        };
        count(&self.above) + count(&self.below)
    }

    /// Number of pairs of lines that cross. Source: W. Barth, P. Mutzel, M. Jünger, *Simple and
    /// efficient bilayer cross counting*, 2004.
    fn crossings(&self) -> u64 {
        let mut total = 0;
        let mut ends: Vec<u32> = Vec::new();
        for (upper, lower) in self.layers.iter().zip(self.layers.iter().skip(1)) {
            // Fenwick tree over the positions of the lower layer.
            let mut tree = vec![0_u64; lower.len() + 1];
            let mut seen = 0;
            for &slot in upper {
                ends.clear();
                ends.extend(
                    self.below[slot as usize]
                        .iter()
                        .map(|&s| self.position[s as usize]),
                );
                for &end in &ends {
                    let mut at = end as usize + 1;
                    let mut not_right = 0;
                    while at > 0 {
                        not_right += tree[at];
                        at &= at - 1;
                    }
                    total += seen - not_right;
                }
                for &end in &ends {
                    let mut at = end as usize + 1;
                    while at < tree.len() {
                        tree[at] += 1;
                        at += at & at.wrapping_neg();
                    }
                    seen += 1;
                }
            }
        }
        total
    }
}
