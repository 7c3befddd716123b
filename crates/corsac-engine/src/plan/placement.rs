//! Placement of buffers with live ranges in as little memory as possible.

use std::cmp::Reverse;

use smallvec::SmallVec;

/// Live range of a buffer, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LiveRange {
    /// The first step of its live range.
    pub(super) first: usize,
    /// The last step of its live range.
    pub(super) last: usize,
    /// Number of elements.
    pub(super) len: usize,
}

impl LiveRange {
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

/// Memory of a result of the program, which can hold buffers until the result is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ResultMemory {
    /// Number of elements.
    pub(super) len: usize,
    /// The first step that writes the result.
    pub(super) until: usize,
}

/// Place of a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Placement {
    /// The number of the result that it lies in.
    pub(super) result: Option<usize>,
    /// Its offset in the result, or in memory of its own.
    pub(super) start: usize,
}

/// Number of steps that share a list of the buffers that are live in them.
const STEPS: usize = 64;

/// Buffers in one piece of memory.
struct Placed {
    /// By time, the buffers that are live then, each with its offset.
    ranges: Vec<Vec<(LiveRange, usize)>>,
}

/// Places of the buffers with these live ranges, and the length of the memory for those that are in no result.
///
/// The longest is placed first, each in the smallest gap that holds it between those that are live
/// at the same time ("greedy by size", Pisarchyk and Lee, Efficient Memory Management for Deep
/// Neural Net Inference, 2020, section 5.2). Each is compared with those of its own time only.
pub(super) fn place(ranges: &[LiveRange], results: &[ResultMemory]) -> (Vec<Placement>, usize) {
    let mut order: Vec<usize> = (0..ranges.len()).filter(|&at| ranges[at].len > 0).collect();
    order.sort_by_key(|&at| (Reverse(ranges[at].len), ranges[at].first, at));
    let mut in_results: Vec<Placed> = results.iter().map(|_| Placed::new()).collect();
    let mut smallest_first: Vec<usize> = (0..results.len()).collect();
    smallest_first.sort_by_key(|&result| results[result].len);
    let mut own = Placed::new();
    let mut found = vec![Placement::default(); ranges.len()];
    let mut end = 0;
    for at in order {
        let range = ranges[at];
        let fitting = smallest_first.iter().copied().filter(|&result| {
            results[result].len >= range.len && results[result].until > range.last
        });
        let in_result = fitting
            .map(|result| (result, in_results[result].gap(&range)))
            .find(|&(result, start)| start + range.len <= results[result].len);
        found[at] = match in_result {
            Some((result, start)) => {
                in_results[result].add(range, start);
                Placement {
                    result: Some(result),
                    start,
                }
            }
            None => {
                let start = own.gap(&range);
                own.add(range, start);
                end = end.max(start + range.len);
                Placement {
                    result: None,
                    start,
                }
            }
        };
    }
    (found, end)
}

impl Placed {
    fn new() -> Self {
        Self { ranges: Vec::new() }
    }

    /// Start of the smallest gap that fits `range`, or the end of all buffers that are live at its
    /// time.
    fn gap(&self, range: &LiveRange) -> usize {
        let mut taken: SmallVec<[(usize, usize); 32]> = SmallVec::new();
        for time in range.first / STEPS..=range.last / STEPS {
            for (met, start) in self.ranges.get(time).into_iter().flatten() {
                // One that is in several lists is considered in the first of them.
                if time == range.first.max(met.first) / STEPS && met.meets(range) {
                    taken.push((*start, start + met.len));
                }
            }
        }
        taken.sort_unstable();
        gap(&taken, range.len)
    }

    fn add(&mut self, range: LiveRange, start: usize) {
        let last = range.last / STEPS;
        if self.ranges.len() <= last {
            self.ranges.resize_with(last + 1, Vec::new);
        }
        for list in &mut self.ranges[range.first / STEPS..=last] {
            list.push((range, start));
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

    fn starts(ranges: &[LiveRange]) -> (Vec<usize>, usize) {
        let (found, end) = place(ranges, &[]);
        assert!(found.iter().all(|found| found.result.is_none()));
        (found.iter().map(|found| found.start).collect(), end)
    }

    #[test]
    fn live_ranges_of_different_times_share_memory() {
        let ranges = [
            LiveRange::new(0, 1, 32),
            LiveRange::new(2, 3, 48),
            LiveRange::new(1, 2, 16),
        ];
        assert_eq!(starts(&ranges), (vec![0, 0, 48], 64));
        assert_eq!(starts(&[]), (vec![], 0));
        assert_eq!(starts(&[LiveRange::new(3, 3, 0)]), (vec![0], 0));
    }

    #[test]
    fn result_memory_is_used_until_it_is_wanted() {
        let ranges = [
            LiveRange::new(0, 1, 32),
            LiveRange::new(1, 2, 16),
            LiveRange::new(2, 3, 48),
            LiveRange::new(0, 1, 16),
        ];
        let result = |len, until| ResultMemory { len, until };
        let (found, end) = place(&ranges, &[result(64, 3), result(16, 2)]);
        let in_result = |result, start| Placement {
            result: Some(result),
            start,
        };
        let own = Placement {
            result: None,
            start: 0,
        };
        assert_eq!(
            found,
            [in_result(0, 0), in_result(0, 32), own, in_result(1, 0)]
        );
        assert_eq!(end, 48);
    }

    #[test]
    fn the_smallest_gap_is_taken() {
        let taken = [(0, 10), (30, 40), (45, 50)];
        assert_eq!(gap(&taken, 5), 40);
        assert_eq!(gap(&taken, 6), 10);
        assert_eq!(gap(&taken, 21), 50);
    }

    fn ranges() -> impl Strategy<Value = Vec<LiveRange>> {
        let one = (0..400_usize, 0..90_usize, 0..9_usize);
        let one =
            one.prop_map(|(first, steps, len)| LiveRange::new(first, first + steps, len * 16));
        prop::collection::vec(one, 0..60)
    }

    fn results() -> impl Strategy<Value = Vec<ResultMemory>> {
        let one = (0..20_usize, 0..500_usize);
        let one = one.prop_map(|(len, until)| ResultMemory {
            len: len * 16,
            until,
        });
        prop::collection::vec(one, 0..4)
    }

    proptest! {
        #[test]
        fn what_is_wanted_at_once_lies_apart(ranges in ranges(), results in results()) {
            let (found, end) = place(&ranges, &results);
            let ends = |at: usize| found[at].start + ranges[at].len;
            for at in 0..ranges.len() {
                match found[at].result {
                    Some(result) => {
                        prop_assert!(ends(at) <= results[result].len);
                        prop_assert!(ranges[at].last < results[result].until);
                    }
                    None => prop_assert!(ends(at) <= end),
                }
                for other in (0..at).filter(|&other| found[other].result == found[at].result) {
                    let apart = ends(at) <= found[other].start || ends(other) <= found[at].start;
                    let empty = ranges[at].len == 0 || ranges[other].len == 0;
                    prop_assert!(apart || empty || !ranges[at].meets(&ranges[other]));
                }
            }
            prop_assert!(end <= ranges.iter().map(|range| range.len).sum());
            // Without results, at least as much as is live at some step.
            let wanted = (0..500).map(|step| {
                let then = ranges.iter().filter(|range| range.first <= step && step <= range.last);
                then.map(|range| range.len).sum::<usize>()
            });
            prop_assert!(wanted.max().unwrap_or(0) <= starts(&ranges).1);
        }
    }
}
