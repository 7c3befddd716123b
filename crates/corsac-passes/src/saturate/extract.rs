//! Extraction of a nearly cheapest program from an e-graph.
//!
//! Finding the cheapest program where values are shared is NP-hard. Here every class starts with
//! the call that the program makes itself, or with the cheapest tree; then sweeps over the classes
//! in use take another call wherever it makes the whole program cheaper, with shared values counted
//! once, until none does. The cost never exceeds that of the present program. A second start, from
//! cheapest trees everywhere, is tried as well, and the cheaper of the two results is returned.
//!
//! Reference: cost in place by reference counting is "exact local area", A. Mishchenko,
//! S. Chatterjee and R. Brayton, "Improvements to technology mapping for LUT-based FPGAs", IEEE
//! TCAD 26 (2007); cheapest trees are D. Knuth, "A generalization of Dijkstra's algorithm",
//! Information Processing Letters 6 (1977).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::search::Clock;

/// One way to compute the value of a class.
#[derive(Clone, Debug, Default)]
pub(super) struct Way {
    /// The cost of the call itself.
    pub(super) cost: f64,
    /// The classes it uses, each once.
    pub(super) uses: Vec<u32>,
}

/// The classes of an e-graph, densely numbered, with the ways to compute them.
#[derive(Debug, Default)]
pub(super) struct Problem {
    pub(super) ways: Vec<Vec<Way>>,
    /// The way that the program computes a class now, where it does.
    pub(super) now: Vec<Option<u32>>,
    /// Classes whose value is needed.
    pub(super) roots: Vec<u32>,
}

/// A way for each class in use, free of cycles.
#[derive(Clone, Debug)]
pub(super) struct Solution {
    pub(super) choice: Vec<Option<u32>>,
    /// The sum of the costs of classes in use.
    pub(super) cost: f64,
    /// Number of times that a cheaper way was taken.
    pub(super) switches: u64,
}

/// Relative changes of the cost smaller than this count as none: sums are rounded.
const LEAST_GAIN: f64 = 1e-9;

/// Maximum number of sweeps over all classes; the second rarely finds an improvement.
const SWEEPS: usize = 8;

impl Problem {
    /// The cheapest solution that is found; no more than `limit` cheaper ways are taken.
    pub(super) fn solve(&self, clock: &Clock, limit: u64) -> Solution {
        let trees = self.cheapest_trees();
        let merged = self.now.iter().zip(&trees);
        let merged = merged.map(|(now, tree)| now.or(*tree)).collect();
        let mut own = Descent::new(self, merged);
        own.run(clock, limit);
        let own = own.solution();
        let mut other = Descent::new(self, trees);
        other.run(clock, u64::MAX);
        let mut other = other.solution();
        // It is an entirely different program: one change.
        other.switches = 1;
        if limit > 0 && other.cost < own.cost - own.cost.abs() * LEAST_GAIN {
            return other;
        }
        own
    }

    /// For each class the way of the cheapest tree, in which a value that is used twice counts
    /// twice. Classes are settled in the order of their costs, so that there are no cycles.
    fn cheapest_trees(&self) -> Vec<Option<u32>> {
        let classes = self.ways.len();
        let mut users: Vec<Vec<(u32, u32)>> = vec![Vec::new(); classes];
        let mut missing: Vec<Vec<u32>> = Vec::with_capacity(classes);
        let mut costs: Vec<Vec<f64>> = Vec::with_capacity(classes);
        let mut queue = BinaryHeap::new();
        for (class, ways) in (0..).zip(&self.ways) {
            for (number, way) in (0..).zip(ways) {
                for &used in &way.uses {
                    users[used as usize].push((class, number));
                }
                if way.uses.is_empty() {
                    queue.push(Reverse((Total(way.cost), class, number)));
                }
            }
            missing.push(ways.iter().map(|way| way.uses.len() as u32).collect());
            costs.push(ways.iter().map(|way| way.cost).collect());
        }
        let mut settled: Vec<Option<u32>> = vec![None; classes];
        while let Some(Reverse((Total(cost), class, number))) = queue.pop() {
            if settled[class as usize].is_some() {
                continue;
            }
            settled[class as usize] = Some(number);
            for &(user, way) in &users[class as usize] {
                let (user_at, way_at) = (user as usize, way as usize);
                // Trees grow exponentially where values are shared: costs are clamped to stay
                // comparable.
                let sum = (costs[user_at][way_at] + cost).min(f64::MAX);
                costs[user_at][way_at] = sum;
                missing[user_at][way_at] -= 1;
                if missing[user_at][way_at] == 0 {
                    queue.push(Reverse((Total(sum), user, way)));
                }
            }
        }
        settled
    }
}

/// A cost with a total order.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Total(f64);

impl Eq for Total {}

impl PartialOrd for Total {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Total {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// A solution that is made cheaper step by step.
struct Descent<'p> {
    problem: &'p Problem,
    choice: Vec<Option<u32>>,
    /// By class: the number of its users among classes in use, plus one each time it is a root.
    refs: Vec<u32>,
    cost: f64,
    switches: u64,
    /// By class: its place in an order in which classes come after those that they use.
    rank: Vec<u32>,
    /// Marks of the search for cycles.
    seen: Vec<u32>,
    mark: u32,
    stack: Vec<u32>,
}

impl<'p> Descent<'p> {
    fn new(problem: &'p Problem, choice: Vec<Option<u32>>) -> Self {
        let classes = problem.ways.len();
        let mut descent = Self {
            problem,
            choice,
            refs: vec![0; classes],
            cost: 0.0,
            switches: 0,
            rank: Vec::new(),
            seen: vec![0; classes],
            mark: 0,
            stack: Vec::new(),
        };
        for &root in &problem.roots {
            descent.cost += descent.take(root);
        }
        descent.set_ranks();
        descent
    }

    /// Puts all classes in order.
    fn set_ranks(&mut self) {
        let all: Vec<u32> = (0..self.choice.len() as u32).collect();
        self.rank = vec![0; all.len()];
        for (rank, class) in (1..).zip(self.order_from(&all)) {
            self.rank[class as usize] = rank;
        }
    }

    fn solution(self) -> Solution {
        Solution {
            choice: self.choice,
            cost: self.cost,
            switches: self.switches,
        }
    }

    fn way(&self, class: u32) -> Option<&'p Way> {
        let problem = self.problem;
        let number = self.choice[class as usize]?;
        problem.ways[class as usize].get(number as usize)
    }

    /// Adds a use of a class; returns the cost of all classes that come into use with it.
    fn take(&mut self, class: u32) -> f64 {
        let mut cost = 0.0;
        debug_assert!(self.stack.is_empty(), "the stack is left empty");
        self.stack.push(class);
        while let Some(class) = self.stack.pop() {
            let refs = &mut self.refs[class as usize];
            *refs += 1;
            if *refs == 1 {
                match self.way(class) {
                    Some(way) => {
                        cost += way.cost;
                        self.stack.extend_from_slice(&way.uses);
                    }
                    None => cost = f64::INFINITY,
                }
            }
        }
        cost
    }

    /// Removes a use of a class; returns the cost of all classes that go out of use with it.
    fn release(&mut self, class: u32) -> f64 {
        let mut saved = 0.0;
        self.stack.push(class);
        while let Some(class) = self.stack.pop() {
            let refs = &mut self.refs[class as usize];
            *refs -= 1;
            if *refs == 0
                && let Some(way) = self.way(class)
            {
                saved += way.cost;
                self.stack.extend_from_slice(&way.uses);
            }
        }
        saved
    }

    /// Whether computing `way` needs the value of `class`. Only classes that come after it in the
    /// order can need it, which keeps the search short.
    fn leads_to(&mut self, way: &Way, class: u32) -> bool {
        self.mark += 1;
        let own = self.rank[class as usize];
        self.stack.extend_from_slice(&way.uses);
        while let Some(used) = self.stack.pop() {
            if used == class {
                self.stack.clear();
                return true;
            }
            if self.rank[used as usize] < own && self.choice[used as usize].is_some() {
                continue;
            }
            if std::mem::replace(&mut self.seen[used as usize], self.mark) == self.mark {
                continue;
            }
            let Some(way) = self.way(used) else {
                self.stack.clear();
                return true;
            };
            self.stack.extend_from_slice(&way.uses);
        }
        false
    }

    /// Classes in use, each after those that it uses.
    fn in_use(&mut self) -> Vec<u32> {
        let problem = self.problem;
        self.order_from(&problem.roots)
    }

    /// The classes needed to compute `roots`, each after those that it uses.
    fn order_from(&mut self, roots: &[u32]) -> Vec<u32> {
        self.mark += 1;
        let mut order = Vec::new();
        let mut stack: Vec<(u32, usize)> = Vec::new();
        for &root in roots {
            stack.push((root, 0));
            while let Some((class, next)) = stack.pop() {
                if next == 0
                    && std::mem::replace(&mut self.seen[class as usize], self.mark) == self.mark
                {
                    continue;
                }
                let uses = self.way(class).map_or(&[][..], |way| &way.uses);
                match uses.get(next) {
                    Some(&used) => {
                        stack.push((class, next + 1));
                        stack.push((used, 0));
                    }
                    None => order.push(class),
                }
            }
        }
        order
    }

    fn run(&mut self, clock: &Clock, limit: u64) {
        for _ in 0..SWEEPS {
            let before = self.switches;
            for class in self.in_use() {
                if self.refs[class as usize] > 0 && self.problem.ways[class as usize].len() > 1 {
                    if self.switches >= limit || clock.is_over() {
                        return;
                    }
                    self.improve(class);
                }
            }
            if self.switches == before {
                return;
            }
        }
    }

    /// Takes the way of a class that makes the whole program cheapest.
    fn improve(&mut self, class: u32) {
        let problem = self.problem;
        let at = class as usize;
        let Some(old) = self.choice[at] else { return };
        let ways = &problem.ways[at];
        let least = self.cost.abs() * LEAST_GAIN;
        let mut best = (-least, old);
        for (number, way) in (0..).zip(ways) {
            if number == old || self.leads_to(way, class) {
                continue;
            }
            let gain = self.exchange(&ways[old as usize], way);
            self.exchange(way, &ways[old as usize]);
            if gain < best.0 {
                best = (gain, number);
            }
        }
        if best.1 != old {
            self.exchange(&ways[old as usize], &ways[best.1 as usize]);
            self.choice[at] = Some(best.1);
            self.cost += best.0;
            self.switches += 1;
            let uses = &ways[best.1 as usize].uses;
            if uses
                .iter()
                .any(|&used| self.rank[used as usize] > self.rank[at])
            {
                self.set_ranks();
            }
        }
    }

    /// Replaces the uses of `old` by those of `new`; returns the growth of the cost.
    fn exchange(&mut self, old: &Way, new: &Way) -> f64 {
        let mut change = new.cost - old.cost;
        for &used in &new.uses {
            change += self.take(used);
        }
        for &used in &old.uses {
            change -= self.release(used);
        }
        change
    }
}
