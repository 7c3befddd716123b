//! Parts that alternate between two kinds of machine.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The machine that something runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// On the accelerator.
    Device,
    /// On the processor that the program runs on.
    Host,
}

impl Kind {
    fn other(self) -> Self {
        match self {
            Self::Device => Self::Host,
            Self::Host => Self::Device,
        }
    }
}

/// Things to run, with the constraints on their order.
#[derive(Clone, Debug, Default)]
pub struct Alternation {
    /// The machine of each thing.
    pub kinds: Vec<Option<Kind>>,
    /// Pairs: the first has to run before the second.
    pub before: Vec<(u32, u32)>,
    /// Things that have to run together.
    pub together: Vec<Vec<u32>>,
}

/// Groups that take turns, host and device, each with everything of its kind that can run by then:
/// as few groups as there can be for the kind that starts.
///
/// Things of kind `None` are in no group and nothing waits for them. Things that have to run
/// together, or that wait for each other in a cycle, are in one group, which is the host's unless
/// all of them are the device's. Groups have their things in the order of their numbers as far as
/// that is possible. `first` is the kind that starts; without it, the host does if it can run
/// anything.
///
/// ```
/// use corsac_ir::split::{Alternation, Kind, alternate};
///
/// let (device, host) = (Some(Kind::Device), Some(Kind::Host));
/// let groups = alternate(
///     &Alternation {
///         kinds: vec![device, host, device, device],
///         before: vec![(0, 1), (1, 2)],
///         together: Vec::new(),
///     },
///     None,
/// );
/// assert_eq!(
///     groups,
///     [(Kind::Device, vec![0, 3]), (Kind::Host, vec![1]), (Kind::Device, vec![2])]
/// );
/// ```
///
/// Source: `torch.fx.passes.splitter_base`, which uses sets of waiting nodes.
#[must_use]
pub fn alternate(things: &Alternation, first: Option<Kind>) -> Vec<(Kind, Vec<u32>)> {
    let units = Units::new(things);
    let mut waits = vec![0_u32; units.len()];
    let mut users: Vec<Vec<u32>> = vec![Vec::new(); units.len()];
    for &(before, after) in &things.before {
        let (before, after) = (units.of(before), units.of(after));
        let both = units.kind(before).is_some() && units.kind(after).is_some();
        if before != after && both {
            users[before as usize].push(after);
            waits[after as usize] += 1;
        }
    }
    let mut ready = [BinaryHeap::new(), BinaryHeap::new()];
    for (unit, &waits) in (0_u32..).zip(&waits) {
        if let (Some(kind), 0) = (units.kind(unit), waits) {
            ready[kind as usize].push(Reverse(unit));
        }
    }
    let mut turn = first.unwrap_or(if ready[Kind::Host as usize].is_empty() {
        Kind::Device
    } else {
        Kind::Host
    });
    let mut groups = Vec::new();
    let mut group = Vec::new();
    loop {
        if let Some(Reverse(unit)) = ready[turn as usize].pop() {
            group.extend_from_slice(&units.members[unit as usize]);
            for &user in &users[unit as usize] {
                waits[user as usize] -= 1;
                if let (Some(kind), 0) = (units.kind(user), waits[user as usize]) {
                    ready[kind as usize].push(Reverse(user));
                }
            }
            continue;
        }
        if !group.is_empty() {
            groups.push((turn, std::mem::take(&mut group)));
        }
        if ready.iter().all(BinaryHeap::is_empty) {
            return groups;
        }
        turn = turn.other();
    }
}

/// Things that run together, numbered by the smallest of their things.
struct Units {
    of_thing: Vec<u32>,
    members: Vec<Vec<u32>>,
    kinds: Vec<Option<Kind>>,
}

impl Units {
    fn new(things: &Alternation) -> Self {
        let count = things.kinds.len();
        let mut joined: Vec<(u32, u32)> = things.before.clone();
        // Things that wait for each other cannot be told apart by order: both ways.
        for together in &things.together {
            for pair in together.windows(2) {
                joined.extend([(pair[0], pair[1]), (pair[1], pair[0])]);
            }
        }
        let component = components(count, &joined);
        let mut number: Vec<Option<u32>> = vec![None; count];
        let mut units = Self {
            of_thing: Vec::with_capacity(count),
            members: Vec::new(),
            kinds: Vec::new(),
        };
        for (thing, &component) in component.iter().enumerate() {
            let unit = *number[component as usize].get_or_insert_with(|| {
                units.members.push(Vec::new());
                units.kinds.push(things.kinds[thing]);
                u32::try_from(units.members.len() - 1).unwrap_or(u32::MAX)
            });
            units.of_thing.push(unit);
            units.members[unit as usize].push(u32::try_from(thing).unwrap_or(u32::MAX));
            let kind = &mut units.kinds[unit as usize];
            if *kind != things.kinds[thing] {
                *kind = Some(Kind::Host);
            }
        }
        units
    }

    fn len(&self) -> usize {
        self.members.len()
    }

    fn of(&self, thing: u32) -> u32 {
        self.of_thing[thing as usize]
    }

    fn kind(&self, unit: u32) -> Option<Kind> {
        self.kinds[unit as usize]
    }
}

/// The strongly connected component of each of `count` vertices.
///
/// Source: Tarjan, "Depth-first search and linear graph algorithms" (1972), with a stack of its own
/// in the place of recursion.
fn components(count: usize, edges: &[(u32, u32)]) -> Vec<u32> {
    const UNSEEN: u32 = u32::MAX;
    let mut start = vec![0_usize; count + 1];
    for &(from, _) in edges {
        start[from as usize + 1] += 1;
    }
    for vertex in 0..count {
        start[vertex + 1] += start[vertex];
    }
    let mut fill = start.clone();
    let mut targets = vec![0_u32; edges.len()];
    for &(from, to) in edges {
        targets[fill[from as usize]] = to;
        fill[from as usize] += 1;
    }
    let (mut index, mut low) = (vec![UNSEEN; count], vec![0_u32; count]);
    let mut component = vec![UNSEEN; count];
    let (mut path, mut open) = (Vec::new(), Vec::new());
    let mut next_index = 0;
    let mut next_edge = start.clone();
    for root in 0..count {
        if index[root] != UNSEEN {
            continue;
        }
        path.push(root);
        while let Some(&vertex) = path.last() {
            if index[vertex] == UNSEEN {
                (index[vertex], low[vertex]) = (next_index, next_index);
                next_index += 1;
                open.push(vertex);
            }
            if next_edge[vertex] < start[vertex + 1] {
                let to = targets[next_edge[vertex]] as usize;
                next_edge[vertex] += 1;
                if index[to] == UNSEEN {
                    path.push(to);
                } else if component[to] == UNSEEN {
                    low[vertex] = low[vertex].min(index[to]);
                }
                continue;
            }
            path.pop();
            if let Some(&caller) = path.last() {
                low[caller] = low[caller].min(low[vertex]);
            }
            if low[vertex] == index[vertex] {
                let name = u32::try_from(vertex).unwrap_or(UNSEEN);
                while let Some(member) = open.pop() {
                    component[member] = name;
                    if member == vertex {
                        break;
                    }
                }
            }
        }
    }
    component
}
