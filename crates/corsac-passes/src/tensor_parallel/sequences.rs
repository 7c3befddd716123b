//! Sums that may become parts of sequences.

use smallvec::smallvec;

use super::Placement;
use super::options::{Builder, PIECES, ValueFacts};

/// The most pieces where sequences are sharded: each item of a batch is one once they are merged.
const ITEMS: usize = 1024;

impl Builder<'_, '_> {
    /// Lets a sum become parts of a sequence: along the last dimension that the ranks divide, but for that
    /// of the features.
    pub(super) fn open_sequence(&mut self, value: usize) {
        let ValueFacts {
            node, placements, ..
        } = &self.values[value];
        if self.problem.activations == 0.0
            || !placements.iter().any(|own| own[..] == [Placement::Partial])
        {
            return;
        }
        let keeps_order = |user| self.call(user).is_some_and(|call| call.keeps_order);
        if self.graph.users(*node).all(keeps_order) {
            // Parts of the view are those of a sequence rather.
            return;
        }
        let Some((_, outer)) = self.shapes[value][0].split_last() else {
            return;
        };
        let mut outer = outer.iter().enumerate().rev();
        if let Some((dim, &size)) = outer.find(|(_, size)| self.divides(&[**size])) {
            let pieces = smallvec![size];
            let own = self.placed(value, smallvec![Placement::Shard { dim, pieces }]);
            self.values[value].sequence = Some(own);
        }
    }

    /// The most pieces of a dimension of a view.
    pub(super) fn most_pieces(&self) -> usize {
        if self.problem.activations > 0.0 {
            ITEMS
        } else {
            PIECES
        }
    }
}
