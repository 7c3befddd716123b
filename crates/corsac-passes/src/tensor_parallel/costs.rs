//! Costs of values: what is sent to change how ranks hold one, and what they keep of it.

use super::options::ValueFacts;
use super::{Placement, Problem};

/// What sending a message costs besides its bytes, so that of equal plans the one with fewer is taken.
const MESSAGE: f64 = 64.0;

/// The costs of a byte, in bytes that are sent, and what is counted.
pub(super) struct Costs {
    ranks: f64,
    pub(super) training: bool,
    /// Of a byte of a weight that a rank keeps.
    kept: f64,
    /// Of a byte of another value that it keeps.
    pub(super) activations: f64,
}

impl Costs {
    pub(super) fn of(problem: &Problem<'_>) -> Self {
        Self {
            ranks: problem.ranks as f64,
            training: problem.training,
            kept: problem.kept,
            activations: problem.activations,
        }
    }

    pub(super) fn gather(&self, bytes: f64) -> f64 {
        bytes * (self.ranks - 1.0) / self.ranks + MESSAGE
    }

    pub(super) fn reduce(&self, bytes: f64) -> f64 {
        2.0 * self.gather(bytes)
    }

    /// The cost of using a value that lies in one way in another way.
    fn change(&self, value: &ValueFacts, from: usize, to: usize) -> f64 {
        if from == to {
            return 0.0;
        }
        let tensors = value.placements[from].len().max(1) as f64;
        let bytes = value.bytes / tensors;
        let back = self.training && value.gradient;
        let pairs = value.placements[from].iter().zip(&value.placements[to]);
        let costs = pairs.map(|(lies, wanted)| match (lies, wanted) {
            (lies, wanted) if lies == wanted => 0.0,
            // Each takes its own part, or all but one take zeros.
            (Placement::Replicate, Placement::Shard { .. }) if back => self.gather(bytes),
            (Placement::Replicate, Placement::Shard { .. }) => 0.0,
            // Nothing is sent, but sums are better made whole before something is added.
            (Placement::Replicate, _) => 1.0,
            (Placement::Partial, Placement::Replicate) => self.reduce(bytes),
            // A part of a sequence, whose gradients are gathered.
            (Placement::Partial, _) if value.sequence == Some(to) => {
                self.gather(bytes) * if back { 2.0 } else { 1.0 }
            }
            (Placement::Partial, _) => {
                self.reduce(bytes) + if back { self.gather(bytes) } else { 0.0 }
            }
            (Placement::Shard { .. }, Placement::Replicate | Placement::Partial) => {
                self.gather(bytes)
            }
            (Placement::Shard { .. }, Placement::Shard { .. }) => {
                self.gather(bytes) * if back { 2.0 } else { 1.0 }
            }
        });
        costs.sum()
    }

    /// The cost of a value's first use as something else than it lies as.
    pub(super) fn used_as(&self, value: &ValueFacts, from: usize, to: usize) -> f64 {
        // As if a weight were kept whole, and worse.
        let is_part = value.is_weight && from != 0;
        let whole = if is_part {
            2.0 * self.kept * value.bytes
        } else {
            0.0
        };
        let kept = self.keep(value, to) - self.keep(value, from);
        whole + self.change(value, from, to) + kept.max(0.0)
    }

    /// The cost of keeping a value in one of its placements for its gradient.
    pub(super) fn keep(&self, value: &ValueFacts, placement: usize) -> f64 {
        if self.activations == 0.0 || !value.gradient || value.is_weight {
            return 0.0;
        }
        let own = &value.placements[placement];
        let shares = own.iter().map(|own| match own {
            Placement::Replicate => 1.0,
            // A sum is gone once it is added up, and yet no better than a part.
            Placement::Partial | Placement::Shard { .. } => 1.0 / self.ranks,
        });
        self.activations * value.bytes / own.len().max(1) as f64 * shares.sum::<f64>()
    }
}
