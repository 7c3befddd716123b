//! Sequence numbers, so that "is a before b" is one comparison.
//!
//! A new node gets a number between its neighbours'. Where no number is left, the smallest range
//! around it that is sparse enough is numbered evenly: n insertions at any places cost O(n log n)
//! in all, where numbering the whole graph each time would cost O(n²). The wider a range is, the
//! sparser it has to be, which leaves room for the insertions that follow. This is the algorithm of
//! Bender, Cole, Demaine, Farach-Colton and Zito, "Two simplified algorithms for maintaining order
//! in a list" (ESA 2002), section 3.
//!
//! Most nodes are inserted one after the other at one place. So a new node takes only a little of
//! the gap and leaves the rest to the next one, on the side where the insertion point will be, and
//! a range that is numbered anew keeps some of its room there (after Bender and Hu, "An adaptive
//! packed-memory array", PODS 2006).

use super::list::{List, Place};
use super::{InsertPoint, NodeId};

/// Distance between the numbers of nodes appended one after the other. A million nodes can be
/// inserted between two of them, at one place, before any is numbered anew, and 67 million
/// appended; after that the last ones are numbered closer.
pub(super) const ORDER_GAP: u64 = 1 << 38;

/// A range of 2^i numbers may hold this to the power of i nodes. Between 1 and 2: nearer to 2 fills
/// ranges more before it widens them, and numbers more often.
/// Counted: 400,000 insertions at one place, in Python, renumber 2.2 nodes each at 1.5, under 2 at
/// 1.4 and 0.9 at 1.3; 64 bits have room for 1.4^64 = 2e9 nodes, and for 1.3^64 = 2e7 only.
const DENSITY: f64 = 1.4;

/// The part of a range that is kept free at the place of insertion. The rest of the range gets
/// denser by 8/7, less than the 2 / 1.4 by which a range may be denser than one twice as
/// wide.
const KEPT_FREE: u64 = 8;

/// The part of a gap that a new node takes: about its square root. The gap then lasts for about
/// twice as many nodes one after the other, and between each two of them is as much room again;
/// halving it would use it up in log2(gap).
fn part_of(gap: u64) -> u64 {
    1 << (gap.ilog2() / 2)
}

impl List {
    /// Numbers `id`, which is linked into the list at `point`, and other nodes where that is needed
    /// to make room for it.
    pub(super) fn number(&mut self, id: NodeId, point: InsertPoint) {
        let Place { prev, next, .. } = *self.place(id);
        let low = self.place(prev).order;
        let order = if next.is_root() {
            low.checked_add(ORDER_GAP)
        } else {
            let high = self.place(next).order;
            let gap = high - low;
            (gap > 1).then(|| match point {
                InsertPoint::Before(_) => low + part_of(gap),
                InsertPoint::After(_) => high - part_of(gap),
            })
        };
        match order {
            Some(order) => self.place_mut(id).order = order,
            None => self.make_room(id, low, point),
        }
    }

    /// Numbers `id`, which comes after the number `low`, and its neighbourhood evenly, with room
    /// for the next nodes at `point`.
    fn make_room(&mut self, id: NodeId, low: u64, point: InsertPoint) {
        let (mut first, mut last) = (id, id);
        let mut count = 1u64;
        let mut capacity = 1.0;
        for bits in 1..=u64::BITS {
            let mask = u64::MAX >> (u64::BITS - bits);
            let (start, end) = (low & !mask, low | mask);
            loop {
                let before = self.place(first).prev;
                if before.is_root() || self.place(before).order < start {
                    break;
                }
                first = before;
                count += 1;
            }
            loop {
                let after = self.place(last).next;
                if after.is_root() || self.place(after).order > end {
                    break;
                }
                last = after;
                count += 1;
            }
            capacity *= DENSITY;
            if count as f64 <= capacity || bits == u64::BITS {
                let free = mask / KEPT_FREE;
                // At least 1: the narrowest range taken is that of 4 numbers for two nodes.
                let step = (mask - free) / (count + 1);
                let wide = match point {
                    InsertPoint::Before(_) => self.place(id).next,
                    InsertPoint::After(_) => id,
                };
                let mut order = start;
                let mut node = first;
                loop {
                    order += if node == wide { step + free } else { step };
                    self.place_mut(node).order = order;
                    if node == last {
                        return;
                    }
                    node = self.place(node).next;
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
        let order: Vec<_> = graph.nodes().map(|id| graph.order(id)).collect();
        order[0] > 0 && order.is_sorted_by(|a, b| a < b)
    }

    #[test]
    fn insertions_at_one_place_number_little() {
        for point in [InsertPoint::Before, InsertPoint::After] {
            let mut graph = Graph::new();
            let ids: Vec<_> = (0..3000).map(|_| graph.get_attr("w").unwrap()).collect();
            graph.set_insert_point(point(ids[1500])).unwrap();
            let before: Vec<_> = ids.iter().map(|&id| graph.order(id)).collect();
            for _ in 0..3000 {
                graph.get_attr("v").unwrap();
            }
            assert!(is_numbered(&graph));
            let far = ids.iter().zip(before).take(1000);
            assert!(far.into_iter().all(|(&id, order)| graph.order(id) == order));
        }
    }

    #[test]
    fn where_no_number_is_left_the_neighbourhood_is_numbered_anew() {
        for point in [InsertPoint::Before, InsertPoint::After] {
            let mut graph = Graph::new();
            let ids: Vec<_> = (0..300).map(|_| graph.get_attr("w").unwrap()).collect();
            for (order, id) in (1..).zip(&ids) {
                graph.list.place_mut(*id).order = order;
            }
            graph.set_insert_point(point(ids[150])).unwrap();
            for count in 0..3000 {
                graph.get_attr("v").unwrap();
                assert!(count % 100 > 0 || is_numbered(&graph), "{point:?} {count}");
            }
            assert!(is_numbered(&graph));
        }
    }

    #[test]
    fn insertions_at_changing_places_keep_the_order() {
        let mut graph = Graph::new();
        let mut ids: Vec<_> = (0..8).map(|_| graph.get_attr("w").unwrap()).collect();
        for (order, id) in (1..).zip(&ids) {
            graph.list.place_mut(*id).order = order;
        }
        // From a linear congruential generator: any place, mostly next to the latest nodes.
        let mut random = 12345_u32;
        for _ in 0..4000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let near = ids.len() - 1 - (random >> 24) as usize % ids.len().min(5);
            let at = ids[if random >> 20 & 3 == 0 {
                random as usize >> 8
            } else {
                near
            } % ids.len()];
            let point = if random >> 30 & 1 == 0 {
                InsertPoint::Before(at)
            } else {
                InsertPoint::After(at)
            };
            graph.set_insert_point(point).unwrap();
            ids.push(graph.get_attr("v").unwrap());
        }
        assert!(is_numbered(&graph));
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
