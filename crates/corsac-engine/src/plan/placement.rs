//! Placement of buffers with live ranges in as little memory as possible.

use std::cmp::Reverse;

use smallvec::SmallVec;

/// A buffer with its live range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// The first step of its live range.
    pub(super) first: usize,
    /// The last step of its live range.
    pub(super) last: usize,
    /// Number of elements.
    pub(super) len: usize,
}

impl Span {
    pub(super) fn new(first: usize, last: usize, len: usize) -> Self {
        Self { first, last, len }
    }

    /// Extends the live range to include `first` to `last`.
    pub(super) fn extend(&mut self, first: usize, last: usize) {
        self.first = self.first.min(first);
        self.last = self.last.max(last);
    }

    fn meets(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Memory that is allocated anyway, and can hold buffers until something else is written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// Number of elements.
    pub(super) len: usize,
    /// The first step that writes to it for its own purpose.
    pub(super) until: usize,
}

/// Place of a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// The number of the room that it lies in.
    pub(super) room: Option<usize>,
    /// Its offset in the room, or in memory of its own.
    pub(super) start: usize,
}

/// Number of steps that share a list of the buffers that are live in them.
const STEPS: usize = 64;

/// Buffers in one piece of memory.
struct Placed {
    /// By time, the buffers that are live then, each with its offset.
    spans: Vec<Vec<(Span, usize)>>,
}

/// Places of `spans`, and the length of the memory for those that are in no room.
///
/// The longest is placed first, each in the smallest gap that holds it between those that are live
/// at the same time ("greedy by size", Pisarchyk and Lee, Efficient Memory Management for Deep
/// Neural Net Inference, 2020, section 5.2). Each is compared with those of its own time only.
pub(super) fn place(spans: &[Span], rooms: &[Room]) -> (Vec<Found>, usize) {
    let mut order: Vec<usize> = (0..spans.len()).filter(|&at| spans[at].len > 0).collect();
    order.sort_by_key(|&at| (Reverse(spans[at].len), spans[at].first, at));
    let mut in_rooms: Vec<Placed> = rooms.iter().map(|_| Placed::new()).collect();
    let mut smallest_first: Vec<usize> = (0..rooms.len()).collect();
    smallest_first.sort_by_key(|&room| rooms[room].len);
    let mut own = Placed::new();
    let mut found = vec![Found::default(); spans.len()];
    let mut end = 0;
    for at in order {
        let span = spans[at];
        let fitting = smallest_first
            .iter()
            .copied()
            .filter(|&room| rooms[room].len >= span.len && rooms[room].until > span.last);
        let in_room = fitting
            .map(|room| (room, in_rooms[room].gap(&span)))
            .find(|&(room, start)| start + span.len <= rooms[room].len);
        found[at] = match in_room {
            Some((room, start)) => {
                in_rooms[room].add(span, start);
                Found {
                    room: Some(room),
                    start,
                }
            }
            None => {
                let start = own.gap(&span);
                own.add(span, start);
                end = end.max(start + span.len);
                Found { room: None, start }
            }
        };
    }
    (found, end)
}

impl Placed {
    fn new() -> Self {
        Self { spans: Vec::new() }
    }

    /// Start of the smallest gap that fits `span`, or the end of all buffers that are live at its
    /// time.
    fn gap(&self, span: &Span) -> usize {
        let mut taken: SmallVec<[(usize, usize); 32]> = SmallVec::new();
        for time in span.first / STEPS..=span.last / STEPS {
            for (met, start) in self.spans.get(time).into_iter().flatten() {
                // One that is in several lists is considered in the first of them.
                if time == span.first.max(met.first) / STEPS && met.meets(span) {
                    taken.push((*start, start + met.len));
                }
            }
        }
        taken.sort_unstable();
        gap(&taken, span.len)
    }

    fn add(&mut self, span: Span, start: usize) {
        let last = span.last / STEPS;
        if self.spans.len() <= last {
            self.spans.resize_with(last + 1, Vec::new);
        }
        for list in &mut self.spans[span.first / STEPS..=last] {
            list.push((span, start));
        }
    }
}

/// Start of the smallest gap of at least `len` between `taken`, which are in order; their end if
/// there is none.
fn gap(taken: &[(usize, usize)], len: usize) -> usize {
    let (mut best, mut smallest) = (None, usize::MAX);
    let mut free = 0;
    for &(start, end) in taken {
        let size = start.saturating_sub(free);
        if size >= len && size < smallest {
            (best, smallest) = (Some(free), size);
        }
        free = free.max(end);
    }
    best.unwrap_or(free)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn starts(spans: &[Span]) -> (Vec<usize>, usize) {
        let (found, end) = place(spans, &[]);
        assert!(found.iter().all(|found| found.room.is_none()));
        (found.iter().map(|found| found.start).collect(), end)
    }

    #[test]
    fn spans_of_different_times_share_memory() {
        let spans = [
            Span::new(0, 1, 32),
            Span::new(2, 3, 48),
            Span::new(1, 2, 16),
        ];
        assert_eq!(starts(&spans), (vec![0, 0, 48], 64));
        assert_eq!(starts(&[]), (vec![], 0));
        assert_eq!(starts(&[Span::new(3, 3, 0)]), (vec![0], 0));
    }

    #[test]
    fn rooms_are_used_until_they_are_wanted() {
        let spans = [
            Span::new(0, 1, 32),
            Span::new(1, 2, 16),
            Span::new(2, 3, 48),
            Span::new(0, 1, 16),
        ];
        let room = |len, until| Room { len, until };
        let (found, end) = place(&spans, &[room(64, 3), room(16, 2)]);
        let in_room = |room, start| Found {
            room: Some(room),
            start,
        };
        let own = Found {
            room: None,
            start: 0,
        };
        assert_eq!(found, [in_room(0, 0), in_room(0, 32), own, in_room(1, 0)]);
        assert_eq!(end, 48);
    }

    #[test]
    fn the_smallest_gap_is_taken() {
        let taken = [(0, 10), (30, 40), (45, 50)];
        assert_eq!(gap(&taken, 5), 40);
        assert_eq!(gap(&taken, 6), 10);
        assert_eq!(gap(&taken, 21), 50);
    }

    fn spans() -> impl Strategy<Value = Vec<Span>> {
        let one = (0..400_usize, 0..90_usize, 0..9_usize);
        let one = one.prop_map(|(first, steps, len)| Span::new(first, first + steps, len * 16));
        prop::collection::vec(one, 0..60)
    }

    fn rooms() -> impl Strategy<Value = Vec<Room>> {
        let one = (0..20_usize, 0..500_usize);
        let one = one.prop_map(|(len, until)| Room {
            len: len * 16,
            until,
        });
        prop::collection::vec(one, 0..4)
    }

    proptest! {
        #[test]
        fn what_is_wanted_at_once_lies_apart(spans in spans(), rooms in rooms()) {
            let (found, end) = place(&spans, &rooms);
            let ends = |at: usize| found[at].start + spans[at].len;
            for at in 0..spans.len() {
                match found[at].room {
                    Some(room) => {
                        prop_assert!(ends(at) <= rooms[room].len);
                        prop_assert!(spans[at].last < rooms[room].until);
                    }
                    None => prop_assert!(ends(at) <= end),
                }
                for other in (0..at).filter(|&other| found[other].room == found[at].room) {
                    let apart = ends(at) <= found[other].start || ends(other) <= found[at].start;
                    let empty = spans[at].len == 0 || spans[other].len == 0;
                    prop_assert!(apart || empty || !spans[at].meets(&spans[other]));
                }
            }
            prop_assert!(end <= spans.iter().map(|span| span.len).sum());
            // Without rooms, at least as much as is live at some step.
            let wanted = (0..500).map(|step| {
                let then = spans.iter().filter(|span| span.first <= step && step <= span.last);
                then.map(|span| span.len).sum::<usize>()
            });
            prop_assert!(wanted.max().unwrap_or(0) <= starts(&spans).1);
        }
    }
}
