//! The search for the cut of which the slowest part is the fastest.

use std::collections::VecDeque;

use super::Chain;
use super::memory::Starts;

/// Sums of times have at most so many bits.
const TIME_BITS: i32 = 60;

/// Times and traffic by border, for borders where parts may end.
pub(super) struct Search {
    parts: usize,
    /// Work before each border.
    work: Vec<i64>,
    /// The work and the time to send what crosses the border, which the part before it pays for.
    end: Vec<i64>,
    /// The work without that time, which the part after it pays for, too.
    start: Vec<i64>,
    traffic: Vec<u64>,
}

/// For each number of parts from 0, the borders where so many can end, ascending.
struct Levels {
    borders: Vec<Vec<u32>>,
    /// The time of the slowest part of one of these cuts: that in which each part begins as late as it can.
    slowest: i64,
}

impl Search {
    pub(super) fn of(chain: &Chain, borders: &[usize], bandwidth: f64, parts: usize) -> Self {
        let sent = |border: usize| chain.crossing[border] as f64 / bandwidth;
        let largest = borders
            .iter()
            .map(|&border| sent(border))
            .fold(0.0, f64::max);
        let total = chain.work.iter().sum::<f64>() + 2.0 * largest;
        // A power of two: no bit of a time is lost that is not far below the smallest of the sum.
        let bits = if total > 0.0 {
            total.log2().ceil() as i32
        } else {
            0
        };
        let scale = 2_f64.powi((TIME_BITS - bits).min(f64::MAX_EXP - 1));
        let ticks = |seconds: f64| (seconds * scale).round() as i64;
        let mut work = vec![0];
        let mut before = 0;
        for ends in borders.windows(2) {
            let unit = &chain.work[ends[0]..ends[1]];
            before += unit.iter().map(|&seconds| ticks(seconds)).sum::<i64>();
            work.push(before);
        }
        let sent = borders.iter().map(|&border| ticks(sent(border)));
        let (end, start) = (work.iter().zip(sent))
            .map(|(work, sent)| (work + sent, work - sent))
            .unzip();
        Self {
            parts,
            work,
            end,
            start,
            traffic: borders.iter().map(|&b| chain.crossing[b]).collect(),
        }
    }

    fn last(&self) -> usize {
        self.work.len() - 1
    }

    /// A time in which any part runs.
    fn most(&self) -> i64 {
        let sent = (self.end.iter().zip(&self.start)).map(|(end, start)| end - start);
        self.work[self.last()] + sent.max().unwrap_or(0)
    }

    /// Whether there is a cut, however slow.
    pub(super) fn is_possible(&self, starts: &Starts) -> bool {
        self.reachable(self.most(), starts).is_ok()
    }

    /// The borders of the best cut, both ends included; `None` if none fits into memory.
    pub(super) fn fastest(&self, starts: &Starts) -> Option<Vec<usize>> {
        let longest = self.work.windows(2).map(|ends| ends[1] - ends[0]).max();
        let mean = self.work[self.last()] / self.parts as i64;
        let mut low = mean.max(longest.unwrap_or(0));
        let mut levels = self.reachable(self.most(), starts).ok()?;
        while low < levels.slowest {
            let limit = low + (levels.slowest - low) / 2;
            match self.reachable(limit, starts) {
                Ok(found) => levels = found,
                Err(next) => low = next.min(levels.slowest),
            }
        }
        // Levels for this very limit, which may be below that of the last search.
        let limit = levels.slowest;
        let levels = self.reachable(limit, starts).ok()?;
        Some(self.least_traffic(limit, starts, &levels.borders))
    }

    /// The borders where a number of parts can end that take at most `limit` each, for all numbers.
    ///
    /// # Errors
    /// If so many parts as are wanted do not reach the end: the least limit above this one for
    /// which the result may be another.
    fn reachable(&self, limit: i64, starts: &Starts) -> Result<Levels, i64> {
        let (last, total) = (self.last(), self.work[self.last()]);
        let mut levels = vec![vec![0]];
        // For each border of the last level, the time of the slowest part up to it.
        let mut slowest = vec![0];
        let mut next = i64::MAX;
        for part in 0..self.parts {
            let (done, left) = ((part + 1) as i64, (self.parts - part - 1) as i64);
            // Work alone says how near the ends a border may be.
            let least = total - left.saturating_mul(limit).min(total);
            let most = done.saturating_mul(limit);
            let low = self.work.partition_point(|&work| work < least);
            let high = self.work.partition_point(|&work| work <= most);
            if low > 0 && left > 0 {
                next = next.min((total - self.work[low - 1] + left - 1) / left);
            }
            if let Some(work) = self.work.get(high) {
                next = next.min((work + done - 1) / done);
            }
            let low = if left == 0 { last } else { low.max(part + 1) };
            let high = high.min(last + 1 - left as usize);
            let (starts, before) = (starts.of(part), &levels[part]);
            let mut feed = before.iter().copied().zip(slowest).peekable();
            // Borders where this part may begin, each better than all that come after it.
            let mut window: VecDeque<(u32, i64)> = VecDeque::new();
            let (mut found, mut times) = (Vec::new(), Vec::new());
            for (border, &first) in starts.iter().enumerate().take(high).skip(low) {
                while let Some(from) = feed.next_if(|from| (from.0 as usize) < border) {
                    let start = self.start[from.0 as usize];
                    let is_worse = |other: &mut (u32, i64)| self.start[other.0 as usize] <= start;
                    while window.pop_back_if(is_worse).is_some() {}
                    window.push_back(from);
                }
                while window.pop_front_if(|from| from.0 < first).is_some() {}
                let Some(&(from, before)) = window.front() else {
                    continue;
                };
                let time = self.end[border] - self.start[from as usize];
                if time <= limit {
                    found.push(border as u32);
                    times.push(before.max(time));
                } else {
                    next = next.min(time);
                }
            }
            if found.is_empty() {
                return Err(next);
            }
            levels.push(found);
            slowest = times;
        }
        Ok(Levels {
            borders: levels,
            // Only the end is left on the last level.
            slowest: slowest[0],
        })
    }

    /// The cut with the least traffic of those whose parts take at most `limit`. `levels` has the
    /// borders where a number of parts can end.
    ///
    /// Borders are taken in by their start, latest first, so that all that are in fit the border
    /// whose turn it is; those that fit into memory are a range.
    fn least_traffic(&self, limit: i64, starts: &Starts, levels: &[Vec<u32>]) -> Vec<usize> {
        let by = |times: &[i64]| {
            let mut order: Vec<u32> = (0..times.len() as u32).collect();
            order.sort_by_key(|&border| std::cmp::Reverse(times[border as usize]));
            order
        };
        let (by_start, by_end) = (by(&self.start), by(&self.end));
        // The index of each border in a level, the number of borders if it is not in it.
        let none = self.work.len() as u32;
        let indices = |level: &[u32]| {
            let mut indices = vec![none; self.work.len()];
            for (at, &border) in (0..).zip(level) {
                indices[border as usize] = at;
            }
            indices
        };
        let mut sums: Vec<u64> = vec![0];
        let mut sources = indices(&levels[0]);
        // For each level and each border of it, the border of the level before, as indices.
        let mut origins: Vec<Vec<u32>> = Vec::new();
        for (part, level) in levels.windows(2).enumerate() {
            let (before, here) = (&level[0], &level[1]);
            let starts = starts.of(part);
            let targets = indices(here);
            let mut begins = by_start
                .iter()
                .filter(|&&b| sources[b as usize] != none)
                .peekable();
            let mut tree = MinTree::of_len(before.len());
            let mut best = vec![(u64::MAX, 0); here.len()];
            for &border in by_end.iter().filter(|&&b| targets[b as usize] != none) {
                let least = self.end[border as usize] - limit;
                while let Some(&from) = begins.next_if(|&&b| self.start[b as usize] >= least) {
                    let source = sources[from as usize] as usize;
                    tree.set(source, sums[source]);
                }
                let first = before.partition_point(|&from| from < starts[border as usize]);
                let end = before.partition_point(|&from| from < border);
                let (sum, origin) = tree.least(first, end);
                let sum = sum.saturating_add(self.traffic[border as usize]);
                best[targets[border as usize] as usize] = (sum, origin);
            }
            sources = targets;
            let origin;
            (sums, origin) = best.into_iter().unzip();
            origins.push(origin);
        }
        // Only the end is left on the last level.
        let mut at = 0;
        let mut ends = vec![self.last()];
        for (origin, level) in origins.iter().zip(levels).rev() {
            at = origin[at] as usize;
            ends.push(level[at] as usize);
        }
        ends.reverse();
        ends
    }
}

/// Numbers of which the least in a range is found fast, with its index.
struct MinTree {
    len: usize,
    nodes: Vec<(u64, u32)>,
}

impl MinTree {
    const NONE: (u64, u32) = (u64::MAX, u32::MAX);

    fn of_len(len: usize) -> Self {
        Self {
            len,
            nodes: vec![Self::NONE; 2 * len],
        }
    }

    fn set(&mut self, index: usize, number: u64) {
        let mut at = index + self.len;
        let entry = (number, index as u32);
        while at > 0 && self.nodes[at] > entry {
            self.nodes[at] = entry;
            at /= 2;
        }
    }

    /// The least number at the indices `first..end`; of equal ones, that of the lowest index.
    fn least(&self, first: usize, end: usize) -> (u64, u32) {
        let (mut low, mut high) = (first + self.len, end + self.len);
        let mut least = Self::NONE;
        while low < high {
            if low % 2 == 1 {
                least = least.min(self.nodes[low]);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                least = least.min(self.nodes[high]);
            }
            (low, high) = (low / 2, high / 2);
        }
        least
    }
}
