//! The memory of parts of a chain.

use std::collections::VecDeque;
use std::ops::Range;

use super::{Chain, Request, Training};

/// The memory of each part of a chain. Units are the calls between two borders where parts may end.
pub(super) struct Memory<'c> {
    chain: &'c Chain,
    borders: &'c [usize],
    parts: usize,
    training: Option<Training>,
    /// For inference: the most bytes of activations alive at once in each unit.
    held: Vec<u64>,
    /// For training, by border: bytes of the buffers that are first needed before it, and of those
    /// that are last needed before it.
    begun: Vec<u64>,
    ended: Vec<u64>,
}

/// For each part and each border where it may end, the first border where it may begin.
pub(super) struct Starts(Vec<Vec<u32>>);

impl Starts {
    #[inline]
    pub(super) fn of(&self, part: usize) -> &[u32] {
        &self.0[part.min(self.0.len() - 1)]
    }
}

impl<'c> Memory<'c> {
    pub(super) fn of(chain: &'c Chain, borders: &'c [usize], request: &Request) -> Self {
        let calls = chain.work.len();
        // By call: bytes that come to life, and that end after it.
        let (mut first, mut last) = (vec![0_u64; calls + 1], vec![0_u64; calls + 1]);
        for buffer in &chain.buffers {
            first[buffer.first] += buffer.bytes;
            last[buffer.last.min(calls)] += buffer.bytes;
        }
        let (mut begun, mut ended, mut held) =
            (vec![0; borders.len()], vec![0; borders.len()], vec![]);
        let (mut alive, mut sums) = (0, (0, 0));
        for (unit, ends) in borders.windows(2).enumerate() {
            let mut most = 0;
            for call in ends[0]..ends[1] {
                alive += first[call];
                most = most.max(alive);
                alive -= last[call];
                sums = (sums.0 + first[call], sums.1 + last[call]);
            }
            held.push(most);
            (begun[unit + 1], ended[unit + 1]) = sums;
        }
        Self {
            chain,
            borders,
            parts: request.parts,
            training: request.training,
            held,
            begun,
            ended,
        }
    }

    /// Number of microbatches whose activations a part keeps.
    fn in_flight(&self, part: usize) -> u64 {
        let later = (self.parts - part) as u64;
        self.training
            .map_or(1, |training| training.microbatches.min(later))
    }

    /// Starts of parts if there is no bound.
    pub(super) fn unlimited(&self) -> Starts {
        Starts(vec![vec![0; self.borders.len()]])
    }

    /// The first borders where parts may begin that fit into `bound` bytes.
    pub(super) fn starts(&self, bound: u64) -> Starts {
        let differ = if self.training.is_some() {
            self.parts
        } else {
            1
        };
        let of_part = |part| {
            let mut starts = vec![0];
            let mut window = Window::at(self, 0);
            for border in 1..self.borders.len() {
                window.extend();
                while window.units.start < border && window.bytes(self.in_flight(part)) > bound {
                    window.shrink();
                }
                starts.push(window.units.start as u32);
            }
            starts
        };
        Starts((0..differ).map(of_part).collect())
    }

    /// Bytes of a part of these units.
    pub(super) fn of_part(&self, part: usize, units: Range<usize>) -> u64 {
        let mut window = Window::at(self, units.start);
        units.for_each(|_| window.extend());
        window.bytes(self.in_flight(part))
    }

    /// A bound with which everything fits into one part.
    pub(super) fn most(&self) -> u64 {
        self.of_part(0, 0..self.held.len())
    }

    /// The calls without a border between them that need the most memory at least, and how much.
    pub(super) fn largest(&self) -> (Range<usize>, u64) {
        let mut window = Window::at(self, 0);
        let mut largest = (0..0, 0);
        for ends in self.borders.windows(2) {
            window.extend();
            let bytes = window.bytes(self.in_flight(self.parts - 1));
            if bytes > largest.1 {
                largest = (ends[0]..ends[1], bytes);
            }
            window.shrink();
        }
        largest
    }
}

/// Some units of a chain, in order, and the memory that they need.
struct Window<'m> {
    memory: &'m Memory<'m>,
    units: Range<usize>,
    /// Number of uses of each weight in it.
    uses: Vec<u32>,
    /// Bytes of its weights, with what their training needs.
    weights: u64,
    /// Units that hold more than any later one, in order.
    peaks: VecDeque<usize>,
}

impl<'m> Window<'m> {
    /// An empty window that begins at a border.
    fn at(memory: &'m Memory<'m>, border: usize) -> Self {
        Self {
            memory,
            units: border..border,
            uses: vec![0; memory.chain.sizes.len()],
            weights: 0,
            peaks: VecDeque::new(),
        }
    }

    fn bytes(&self, in_flight: u64) -> u64 {
        let Range { start, end } = self.units;
        let activations = match self.memory.training {
            None => self.peaks.front().map_or(0, |&unit| self.memory.held[unit]),
            Some(_) => in_flight.saturating_mul(self.memory.begun[end] - self.memory.ended[start]),
        };
        self.weights.saturating_add(activations)
    }

    /// The bytes of a weight, with its gradient and the state of the optimizer.
    fn size_of(&self, weight: u32) -> u64 {
        let size = self.memory.chain.sizes[weight as usize];
        let copies = self
            .memory
            .training
            .map_or(0, |training| 1 + training.states);
        size.bytes + copies * size.trained
    }

    fn weights_of(&self, unit: usize) -> impl Iterator<Item = u32> + use<'m> {
        let calls = self.memory.borders[unit]..self.memory.borders[unit + 1];
        self.memory.chain.weights[calls].iter().flatten().copied()
    }

    /// Takes the next unit in.
    fn extend(&mut self) {
        let unit = self.units.end;
        for weight in self.weights_of(unit) {
            if self.uses[weight as usize] == 0 {
                self.weights += self.size_of(weight);
            }
            self.uses[weight as usize] += 1;
        }
        let held = &self.memory.held;
        let is_lower = |last: &mut usize| held[*last] <= held[unit];
        while self.peaks.pop_back_if(is_lower).is_some() {}
        self.peaks.push_back(unit);
        self.units.end += 1;
    }

    /// Takes the first unit out.
    fn shrink(&mut self) {
        let unit = self.units.start;
        for weight in self.weights_of(unit) {
            self.uses[weight as usize] -= 1;
            if self.uses[weight as usize] == 0 {
                self.weights -= self.size_of(weight);
            }
        }
        if self.peaks.front() == Some(&unit) {
            self.peaks.pop_front();
        }
        self.units.start += 1;
    }
}
