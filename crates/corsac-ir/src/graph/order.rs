//! Sequence numbers, so that "is a before b" is one comparison.
//!
//! A new node gets a number halfway between its neighbours'. Where no number is left, the smallest
//! range around it that is sparse enough is numbered evenly: n insertions at any places cost
//! O(n log n) in all, where numbering the whole graph each time would cost O(n²). The wider a range
//! is, the sparser it has to be, which leaves room for the insertions that follow. This is the
//! algorithm of Bender, Cole, Demaine, Farach-Colton and Zito, "Two simplified algorithms for
//! maintaining order in a list" (ESA 2002), section 3.

use super::{Graph, NodeId};
use crate::entity::EntityId;

/// Distance between the numbers of nodes appended one after the other.
pub(super) const ORDER_GAP: u64 = 1 << 20;

/// A range of 2^i numbers may hold this to the power of i nodes. Between 1 and 2: nearer to 2 fills
/// ranges more before it widens them, and numbers more often.
const DENSITY: f64 = 1.5;

impl Graph {
    /// Numbers `id`, which is linked into the list, and what else is needed to make room for it.
    pub(super) fn number(&mut self, id: NodeId) {
        let (prev, next) = (self.nodes[id.index()].prev, self.nodes[id.index()].next);
        let low = self.nodes[prev.index()].order;
        let order = if next.is_root() {
            low.checked_add(ORDER_GAP)
        } else {
            let high = self.nodes[next.index()].order;
            (high - low > 1).then(|| low + (high - low) / 2)
        };
        match order {
            Some(order) => self.nodes[id.index()].order = order,
            None => self.make_room(id, low),
        }
    }

    /// Numbers `id`, which comes after the number `low`, and its neighbourhood evenly.
    fn make_room(&mut self, id: NodeId, low: u64) {
        let (mut first, mut last) = (id, id);
        let mut count = 1u64;
        let mut capacity = 1.0;
        for bits in 1..=u64::BITS {
            let mask = u64::MAX >> (u64::BITS - bits);
            let (start, end) = (low & !mask, low | mask);
            loop {
                let before = self.nodes[first.index()].prev;
                if before.is_root() || self.nodes[before.index()].order < start {
                    break;
                }
                first = before;
                count += 1;
            }
            loop {
                let after = self.nodes[last.index()].next;
                if after.is_root() || self.nodes[after.index()].order > end {
                    break;
                }
                last = after;
                count += 1;
            }
            capacity *= DENSITY;
            if count as f64 <= capacity || bits == u64::BITS {
                // At least 1: the narrowest range taken is that of 2 numbers for one node.
                let step = mask / (count + 1);
                let mut order = start;
                let mut node = first;
                loop {
                    order += step;
                    self.nodes[node.index()].order = order;
                    if node == last {
                        return;
                    }
                    node = self.nodes[node.index()].next;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Graph, InsertPoint};

    /// Whether the numbers grow along the list.
    fn is_numbered(graph: &Graph) -> bool {
        let order: Vec<_> = graph.nodes().map(|id| graph.data(id).order).collect();
        order[0] > 0 && order.is_sorted_by(|a, b| a < b)
    }

    #[test]
    fn insertions_at_one_place_number_little() {
        for point in [InsertPoint::Before, InsertPoint::After] {
            let mut graph = Graph::new();
            let ids: Vec<_> = (0..3000).map(|_| graph.get_attr("w").unwrap()).collect();
            graph.set_insert_point(point(ids[1500])).unwrap();
            let before: Vec<_> = ids.iter().map(|&id| graph.data(id).order).collect();
            for _ in 0..3000 {
                graph.get_attr("v").unwrap();
            }
            assert!(is_numbered(&graph));
            let far = ids.iter().zip(before).take(1000);
            assert!(
                far.into_iter()
                    .all(|(&id, order)| graph.data(id).order == order)
            );
        }
    }

    #[test]
    fn insertions_at_the_front_and_moves_to_the_end_keep_the_order() {
        let mut graph = Graph::new();
        graph
            .set_insert_point(InsertPoint::After(crate::NodeId::ROOT))
            .unwrap();
        let ids: Vec<_> = (0..500).map(|_| graph.get_attr("w").unwrap()).collect();
        assert!(is_numbered(&graph));
        for &id in &ids[1..] {
            graph.move_after(id, ids[0]).unwrap();
        }
        assert!(is_numbered(&graph));
        assert_eq!(graph.nodes().next(), Some(ids[0]));
        assert_eq!(graph.nodes().nth(1), Some(ids[499]));
    }
}
