//! Minimum cuts: the cheapest set of arcs without which nothing flows from a source to a sink.
//!
//! A [`Network`] is a directed graph with a source, a sink and a [`Capacity`] on each arc. A cut
//! divides its vertices into those on the side of the source and those on the side of the sink, and
//! costs the sum of the capacities of the arcs from the first to the second. Of all the cheapest
//! cuts, [`Network::min_cut`] returns the one with the fewest vertices on the side of the sink.
//!
//! The maximum flow, which equals the cost, is found by push-relabel with the highest vertex first,
//! global relabelling from time to time, and the gap heuristic; excess that does not reach the sink
//! is not pushed back, since no cut needs it. In the worst case that takes `V² √E` steps; on
//! networks of programs, which are long and narrow, it is about linear in `E`.
//!
//! Sources: A. V. Goldberg and R. E. Tarjan, "A new approach to the maximum-flow problem", Journal
//! of the ACM 35, 1988; B. V. Cherkassky and A. V. Goldberg, "On implementing the push-relabel
//! method for the maximum flow problem", Algorithmica 19, 1997.
//!
//! ```
//! use corsac_passes::min_cut::{Capacity, Network};
//!
//! let mut network = Network::new();
//! let [a, b] = [network.vertex(), network.vertex()];
//! network.arc(Network::SOURCE, a, Capacity::of(5));
//! network.arc(a, b, Capacity::of(2));
//! network.arc(b, Network::SINK, Capacity::of(4));
//! let cut = network.min_cut().unwrap();
//! assert_eq!(cut.cost(), 2);
//! assert!(!cut.is_with_sink(a) && cut.is_with_sink(b));
//! ```

#[cfg(test)]
mod tests;

use fixedbitset::FixedBitSet;

/// The maximum flow along an arc: a number, or unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity(Option<u128>);

impl Capacity {
    /// The capacity of an arc that no cut may contain.
    pub const UNLIMITED: Self = Self(None);

    /// The capacity of an arc that costs `amount` to cut. The capacities of a network must sum up
    /// to less than 2¹²⁷.
    #[must_use]
    pub const fn of(amount: u128) -> Self {
        Self(Some(amount))
    }
}

/// A vertex of a [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vertex(u32);

impl Vertex {
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// Vertices, and arcs with capacities between them.
#[derive(Clone, Debug)]
pub struct Network {
    vertices: u32,
    arcs: Vec<(Vertex, Vertex, Capacity)>,
}

/// The cheapest cut of a network.
#[derive(Clone, Debug)]
pub struct Cut {
    cost: u128,
    with_sink: FixedBitSet,
}

impl Cut {
    /// The sum of the capacities of the arcs that it cuts.
    #[must_use]
    pub fn cost(&self) -> u128 {
        self.cost
    }

    /// Whether a vertex is on the side of the sink.
    #[must_use]
    pub fn is_with_sink(&self, vertex: Vertex) -> bool {
        self.with_sink.contains(vertex.index())
    }
}

impl Default for Network {
    fn default() -> Self {
        Self::new()
    }
}

impl Network {
    /// The vertex from which everything flows.
    pub const SOURCE: Vertex = Vertex(0);
    /// The vertex to which everything flows.
    pub const SINK: Vertex = Vertex(1);

    /// The source and the sink, with nothing between them.
    #[must_use]
    pub fn new() -> Self {
        Self {
            vertices: 2,
            arcs: Vec::new(),
        }
    }

    /// Adds a vertex.
    ///
    /// # Panics
    /// If there are 2³² of them.
    pub fn vertex(&mut self) -> Vertex {
        let vertex = Vertex(self.vertices);
        self.vertices = self.vertices.checked_add(1).expect("fewer vertices");
        vertex
    }

    /// Adds an arc. Several arcs between two vertices are equivalent to one with the sum of their
    /// capacities.
    pub fn arc(&mut self, from: Vertex, to: Vertex, capacity: Capacity) {
        if from != to && capacity != Capacity::of(0) {
            self.arcs.push((from, to, capacity));
        }
    }

    /// The cheapest cut, and of several the one with the fewest vertices on the side of the sink;
    /// `None` if all contain arcs that may not be cut.
    #[must_use]
    pub fn min_cut(&self) -> Option<Cut> {
        let sides = self.sides()?;
        let mut free = Residual::new(self, &sides);
        free.push_all();
        let mut with_sink = FixedBitSet::with_capacity(self.vertices as usize);
        let reaching = free.reaching_the_sink();
        for (vertex, side) in sides.iter().enumerate() {
            let is_with_sink = match *side {
                Side::Source => false,
                Side::Sink => true,
                Side::Free(number) => reaching.contains(number as usize),
            };
            with_sink.set(vertex, is_with_sink);
        }
        Some(Cut {
            cost: free.arrived,
            with_sink,
        })
    }

    /// The sides that vertices must be on because of unlimited arcs; the other vertices are
    /// numbered. `None` if such arcs lead from the source to the sink.
    fn sides(&self) -> Option<Vec<Side>> {
        let mut sides = vec![Side::Free(0); self.vertices as usize];
        for (end, side) in [(Self::SOURCE, Side::Source), (Self::SINK, Side::Sink)] {
            let backwards = side == Side::Sink;
            let unlimited = self.arcs.iter().filter(|arc| arc.2 == Capacity::UNLIMITED);
            let pairs =
                unlimited.map(|&(from, to, _)| if backwards { (to, from) } else { (from, to) });
            let next = Lists::new(self.vertices as usize, pairs.map(|(a, b)| (a.0, b.0)));
            let mut found = vec![end.0];
            sides[end.index()] = side;
            while let Some(vertex) = found.pop() {
                for &other in next.of(vertex) {
                    match sides[other as usize] {
                        Side::Free(_) => {
                            sides[other as usize] = side;
                            found.push(other);
                        }
                        other if other == side => {}
                        _ => return None,
                    }
                }
            }
        }
        let mut count = 0;
        for side in &mut sides {
            if let Side::Free(number) = side {
                *number = count;
                count += 1;
            }
        }
        Some(sides)
    }
}

/// The side that a vertex must be on, or its number if it is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Source,
    Sink,
    Free(u32),
}

/// Lists of numbers, indexed by number, in one allocation.
struct Lists {
    starts: Vec<u32>,
    items: Vec<u32>,
}

impl Lists {
    /// Groups the second numbers of `pairs` by the first ones, in order.
    fn new(len: usize, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> Self {
        let mut starts = vec![0; len + 1];
        for (at, _) in pairs.clone() {
            starts[at as usize + 1] += 1;
        }
        for at in 0..len {
            starts[at + 1] += starts[at];
        }
        let mut ends = starts.clone();
        let mut items = vec![0; starts[len] as usize];
        for (at, item) in pairs {
            items[ends[at as usize] as usize] = item;
            ends[at as usize] += 1;
        }
        Self { starts, items }
    }

    fn range(&self, at: u32) -> std::ops::Range<usize> {
        self.starts[at as usize] as usize..self.starts[at as usize + 1] as usize
    }

    fn of(&self, at: u32) -> &[u32] {
        &self.items[self.range(at)]
    }
}

/// The free vertices and the residual capacities between them.
struct Residual {
    /// Residual capacity of each arc; arcs `2 * k` and `2 * k + 1` are the reverse of each other.
    left: Vec<u128>,
    /// The vertex to which each arc leads.
    head: Vec<u32>,
    /// The arcs out of each vertex.
    out: Lists,
    /// Residual capacity of the arc from each vertex to the sink.
    to_sink: Vec<u128>,
    /// Flow that has come to each vertex and not left it.
    excess: Vec<u128>,
    /// Lower bound of the distance from each vertex to the sink, in arcs; the number of vertices
    /// plus one if there is no path.
    height: Vec<u32>,
    /// The first arc out of each vertex that has not been tried at its height.
    current: Vec<u32>,
    /// Flow that has come to the sink.
    arrived: u128,
}

impl Residual {
    fn new(network: &Network, sides: &[Side]) -> Self {
        let free = sides.iter().filter(|side| matches!(side, Side::Free(_)));
        let len = free.count();
        let finite = network.arcs.iter().filter_map(|arc| arc.2.0);
        // No arc can carry more than this.
        let unlimited = finite.sum::<u128>() + 1;
        let mut residual = Self {
            left: Vec::new(),
            head: Vec::new(),
            out: Lists::new(0, std::iter::empty()),
            to_sink: vec![0; len],
            excess: vec![0; len],
            height: vec![0; len],
            current: vec![0; len],
            arrived: 0,
        };
        let mut tails = Vec::new();
        for &(from, to, capacity) in &network.arcs {
            let amount = capacity.0.unwrap_or(unlimited);
            match (sides[from.index()], sides[to.index()]) {
                (Side::Source, Side::Sink) => residual.arrived += amount,
                (Side::Source, Side::Free(to)) => residual.excess[to as usize] += amount,
                (Side::Free(from), Side::Sink) => residual.to_sink[from as usize] += amount,
                (Side::Free(from), Side::Free(to)) => {
                    residual.left.extend([amount, 0]);
                    residual.head.extend([to, from]);
                    tails.extend([from, to]);
                }
                // Flow into the source or out of the sink is never needed.
                (_, Side::Source) | (Side::Sink, _) => {}
            }
        }
        residual.out = Lists::new(len, tails.into_iter().zip(0..));
        residual
    }

    fn len(&self) -> u32 {
        self.height.len() as u32
    }

    /// The height of vertices without a path to the sink.
    fn beyond(&self) -> u32 {
        self.len() + 1
    }

    /// Computes the maximum flow to the sink.
    fn push_all(&mut self) {
        let mut layers = Layers::default();
        self.measure(&mut layers);
        // The frequency that Cherkassky and Goldberg found best: after work for about four times
        // all vertices.
        let often = 6 * u64::from(self.len()) + self.left.len() as u64 / 2;
        let mut work = 0;
        while let Some(vertex) = layers.take_highest(&self.height, &self.excess) {
            work += self.discharge(vertex, &mut layers);
            if work > often {
                self.measure(&mut layers);
                work = 0;
            }
        }
    }

    /// Sets heights to exact distances to the sink.
    fn measure(&mut self, layers: &mut Layers) {
        let beyond = self.beyond();
        self.height.fill(beyond);
        layers.clear();
        let mut queue = Vec::with_capacity(self.height.len());
        for vertex in 0..self.len() {
            if self.to_sink[vertex as usize] > 0 {
                self.height[vertex as usize] = 1;
                queue.push(vertex);
            }
        }
        let mut at = 0;
        while let Some(&vertex) = queue.get(at) {
            at += 1;
            let height = self.height[vertex as usize] + 1;
            for &arc in self.out.of(vertex) {
                let other = self.head[arc as usize];
                if self.left[arc as usize ^ 1] > 0 && self.height[other as usize] == beyond {
                    self.height[other as usize] = height;
                    queue.push(other);
                }
            }
        }
        for vertex in queue {
            self.current[vertex as usize] = self.out.range(vertex).start as u32;
            let height = self.height[vertex as usize];
            layers.add(vertex, height, self.excess[vertex as usize] > 0);
        }
    }

    /// Pushes the excess of `vertex` on, and lifts the vertex as long as excess is left and the
    /// sink may be reached. Returns the work done.
    fn discharge(&mut self, vertex: u32, layers: &mut Layers) -> u64 {
        let own = vertex as usize;
        let beyond = self.beyond();
        let arcs = self.out.range(vertex);
        let mut work = 0;
        loop {
            let height = self.height[own];
            if height == 1 {
                let amount = self.excess[own].min(self.to_sink[own]);
                self.to_sink[own] -= amount;
                self.excess[own] -= amount;
                self.arrived += amount;
            }
            while self.excess[own] > 0 && (self.current[own] as usize) < arcs.end {
                let arc = self.out.items[self.current[own] as usize] as usize;
                let other = self.head[arc] as usize;
                work += 1;
                if self.left[arc] > 0 && self.height[other] + 1 == height {
                    let amount = self.excess[own].min(self.left[arc]);
                    if self.excess[other] == 0 {
                        layers.activate(other as u32, height - 1);
                    }
                    self.left[arc] -= amount;
                    self.left[arc ^ 1] += amount;
                    self.excess[own] -= amount;
                    self.excess[other] += amount;
                    if self.excess[own] == 0 {
                        return work;
                    }
                }
                self.current[own] += 1;
            }
            if self.excess[own] == 0 {
                return work;
            }
            work += arcs.len() as u64 + 12;
            let mut lowest = if self.to_sink[own] > 0 { 0 } else { beyond };
            for at in arcs.clone() {
                let arc = self.out.items[at] as usize;
                if self.left[arc] > 0 {
                    lowest = lowest.min(self.height[self.head[arc] as usize]);
                }
            }
            let lifted = lowest.saturating_add(1).min(beyond);
            self.height[own] = lifted;
            self.current[own] = arcs.start as u32;
            if layers.leave(height) {
                // A gap: no vertex is left at its height, so that none above can reach the sink.
                layers.lose_above(height, &mut self.height, beyond);
                self.height[own] = beyond;
            }
            if self.height[own] == beyond {
                return work;
            }
            layers.enter(vertex, lifted);
        }
    }

    /// The vertices from which more could flow to the sink.
    fn reaching_the_sink(&mut self) -> FixedBitSet {
        self.measure(&mut Layers::default());
        let beyond = self.beyond();
        let heights = self.height.iter().enumerate();
        let reaching = heights.filter(|&(_, &height)| height < beyond);
        reaching.map(|(vertex, _)| vertex).collect()
    }
}

/// Vertices by height.
#[derive(Default)]
struct Layers {
    /// Vertices with excess, by their height when added; some may be higher by now.
    active: Vec<Vec<u32>>,
    /// All vertices, by their height when added.
    all: Vec<Vec<u32>>,
    /// Number of vertices of each height.
    count: Vec<u32>,
    /// Upper bound of the heights of vertices with excess.
    highest: usize,
}

impl Layers {
    fn clear(&mut self) {
        self.active.iter_mut().for_each(Vec::clear);
        self.all.iter_mut().for_each(Vec::clear);
        self.count.fill(0);
        self.highest = 0;
    }

    fn add(&mut self, vertex: u32, height: u32, is_active: bool) {
        self.enter(vertex, height);
        if is_active {
            self.activate(vertex, height);
        }
    }

    fn activate(&mut self, vertex: u32, height: u32) {
        let height = height as usize;
        if self.active.len() <= height {
            self.active.resize_with(height + 1, Vec::new);
        }
        self.active[height].push(vertex);
        self.highest = self.highest.max(height);
    }

    /// Counts a vertex at its height.
    fn enter(&mut self, vertex: u32, height: u32) {
        let height = height as usize;
        if self.all.len() <= height {
            self.all.resize_with(height + 1, Vec::new);
            self.count.resize(height + 1, 0);
        }
        self.all[height].push(vertex);
        self.count[height] += 1;
    }

    /// Removes a vertex from the count of its height; returns whether it was the last one.
    fn leave(&mut self, height: u32) -> bool {
        let count = &mut self.count[height as usize];
        *count -= 1;
        *count == 0
    }

    /// Lifts the vertices above `height` out of reach.
    fn lose_above(&mut self, height: u32, heights: &mut [u32], beyond: u32) {
        let above = height as usize + 1;
        for (layer, at) in self.all.drain(above..).zip(above..) {
            for vertex in layer {
                let own = &mut heights[vertex as usize];
                if *own as usize == at {
                    *own = beyond;
                }
            }
        }
        self.count.truncate(above);
    }

    /// Takes the highest vertex with excess.
    fn take_highest(&mut self, heights: &[u32], excess: &[u128]) -> Option<u32> {
        loop {
            let Some(layer) = self.active.get_mut(self.highest) else {
                self.highest = self.highest.checked_sub(1)?;
                continue;
            };
            match layer.pop() {
                Some(vertex)
                    if heights[vertex as usize] as usize == self.highest
                        && excess[vertex as usize] > 0 =>
                {
                    return Some(vertex);
                }
                Some(_) => {}
                None => self.highest = self.highest.checked_sub(1)?,
            }
        }
    }
}
