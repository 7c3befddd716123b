//! Parts under construction, and the uses of values between them.

use fixedbitset::FixedBitSet;

use super::Program;

/// Nodes that run together.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Calls, and the inputs and attributes that they use, by number.
    pub(super) nodes: FixedBitSet,
    /// The memory that they need, in bytes.
    pub(super) bytes: i64,
    /// The devices it is on.
    pub(super) devices: Vec<i64>,
}

impl Part {
    /// A part with room for all nodes of a program, and none yet.
    pub(super) fn empty(program: &Program<'_>) -> Self {
        Self {
            nodes: FixedBitSet::with_capacity(program.ids.len()),
            bytes: 0,
            devices: Vec::new(),
        }
    }

    /// A part with one call.
    pub(super) fn of(program: &Program<'_>, call: usize) -> Self {
        let mut part = Self::empty(program);
        part.add(program, call);
        part
    }

    /// The nodes of two parts.
    pub(super) fn combined(program: &Program<'_>, a: &Self, b: &Self) -> Self {
        let mut part = Self::empty(program);
        part.nodes.union_with(&a.nodes);
        part.nodes.union_with(&b.nodes);
        part.measure(program);
        part
    }

    fn measure(&mut self, program: &Program<'_>) {
        let nodes = self.nodes.ones();
        self.bytes = nodes
            .map(|node| program.extra_bytes(node, &self.nodes))
            .sum();
    }

    /// Adds a call, with the inputs and attributes that it uses.
    pub(super) fn add(&mut self, program: &Program<'_>, call: usize) {
        for &input in &program.inputs[call] {
            if program.is_given(input) {
                self.nodes.insert(input);
            }
        }
        self.nodes.insert(call);
        self.measure(program);
    }

    /// Removes a call, with the inputs and attributes that nothing else here uses.
    pub(super) fn remove(&mut self, program: &Program<'_>, call: usize) {
        self.nodes.remove(call);
        for &input in &program.inputs[call] {
            let mut users = program.users[input].iter();
            if program.is_given(input) && !users.any(|&user| self.nodes.contains(user)) {
                self.nodes.remove(input);
            }
        }
        self.measure(program);
    }
}

/// Uses of values between parts, which are given by place.
#[derive(Clone, Debug, Default)]
pub(super) struct Relations {
    /// For each part, those whose values it uses.
    pub(super) parents: Vec<Vec<usize>>,
    /// For each part, those that use its values.
    pub(super) children: Vec<Vec<usize>>,
}

impl Relations {
    pub(super) fn of(program: &Program<'_>, parts: &[Part]) -> Self {
        let mut homes: Vec<Vec<usize>> = vec![Vec::new(); program.ids.len()];
        for (at, part) in parts.iter().enumerate() {
            part.nodes.ones().for_each(|node| homes[node].push(at));
        }
        let mut relations = Self {
            parents: vec![Vec::new(); parts.len()],
            children: vec![Vec::new(); parts.len()],
        };
        for (at, part) in parts.iter().enumerate() {
            for node in part.nodes.ones() {
                let homes = program.users[node].iter().flat_map(|&user| &homes[user]);
                for &other in homes {
                    let known = relations.children[at].contains(&other);
                    if other != at && !known && !parts[other].nodes.contains(node) {
                        relations.children[at].push(other);
                        relations.parents[other].push(at);
                    }
                }
            }
        }
        relations
    }

    /// The parts, each after those whose values it uses; parts in a cycle are missing.
    pub(super) fn order(&self) -> Vec<usize> {
        let mut waiting: Vec<usize> = self.parents.iter().map(Vec::len).collect();
        let mut order: Vec<usize> = (0..waiting.len()).filter(|&at| waiting[at] == 0).collect();
        let mut next = 0;
        while let Some(&at) = order.get(next) {
            next += 1;
            for &child in &self.children[at] {
                waiting[child] -= 1;
                if waiting[child] == 0 {
                    order.push(child);
                }
            }
        }
        order
    }

    /// For each part, the length of the longest path to it.
    pub(super) fn levels(&self) -> Vec<usize> {
        let mut levels = vec![0; self.parents.len()];
        for at in self.order() {
            let parents = self.parents[at].iter();
            levels[at] = parents.map(|&parent| levels[parent] + 1).max().unwrap_or(0);
        }
        levels
    }

    /// Whether a part depends on its own values through others.
    pub(super) fn is_in_cycle(&self, part: usize) -> bool {
        self.leads_to(&self.children[part], part)
    }

    /// Whether a path leads from one part to the other through a third, so that the two combined
    /// would be in a cycle.
    pub(super) fn would_cycle(&self, a: usize, b: usize) -> bool {
        [(a, b), (b, a)].into_iter().any(|(start, end)| {
            let others = self.children[start].iter().filter(|&&part| part != end);
            self.leads_to(&others.copied().collect::<Vec<_>>(), end)
        })
    }

    fn leads_to(&self, starts: &[usize], end: usize) -> bool {
        let mut seen = vec![false; self.parents.len()];
        let mut waiting = starts.to_vec();
        while let Some(part) = waiting.pop() {
            if part == end {
                return true;
            }
            if !std::mem::replace(&mut seen[part], true) {
                waiting.extend(&self.children[part]);
            }
        }
        false
    }
}
