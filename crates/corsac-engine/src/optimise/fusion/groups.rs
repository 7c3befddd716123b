//! Division of a program into groups of steps.

use rustc_hash::FxHashMap;

use super::build;
use super::group::Group;
use super::repeat::Cheap;
use crate::optimise::flow::Flow;
use crate::program::{Program, Step};

/// The groups of a program.
pub(super) struct Groups {
    /// By step, the group that is computed there.
    groups: Vec<Option<Group>>,
    /// By step, the fused step that is computed there.
    fused: Vec<Option<Step>>,
    /// By step, whether fused steps compute what it does.
    taken: Vec<bool>,
}

impl Groups {
    /// The groups that grow from the last steps, and `pairs`, each at the position where it is computed.
    pub(super) fn of(
        program: &Program,
        flow: &Flow,
        cheap: &Cheap,
        pairs: &FxHashMap<usize, Group>,
    ) -> Self {
        let count = program.steps.len();
        let mut all = Self {
            groups: vec![None; count],
            fused: vec![None; count],
            taken: vec![false; count],
        };
        // By step, how many reads are left to fused steps that compute its result anew.
        let mut left = vec![0; count];
        for at in (0..count).rev() {
            let output = program.root(program.steps[at].output);
            let reads = flow.readers(output).len();
            all.taken[at] |= left[at] > 0 && left[at] == reads && !flow.is_returned(output);
            if all.taken[at] {
                continue;
            }
            let pair = pairs.get(&at).cloned();
            let Some(group) = pair.or_else(|| Group::grow(program, flow, cheap, at)) else {
                continue;
            };
            if let Some(step) = build::step(program, flow, &group) {
                for member in group.members() {
                    match group.owns(program, flow, member) {
                        true => all.taken[member] = true,
                        false => left[member] += group.reads_of(program, flow, member),
                    }
                }
                all.fused[at] = Some(step);
            }
            // One that is not worth a fused step may still be part of a pair.
            all.groups[at] = Some(group);
        }
        all
    }

    /// Whether the result of step `at` is stored.
    pub(super) fn stores(&self, at: usize) -> bool {
        !self.taken[at] || self.fused[at].is_some()
    }

    /// The groups, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().flatten()
    }

    /// Puts the fused steps in place of those that they compute.
    pub(super) fn replace(self, program: &mut Program) {
        let steps = std::mem::take(&mut program.steps);
        let replaced = steps.into_iter().zip(self.fused).zip(self.taken);
        program.steps = replaced
            .filter_map(|((step, fused), taken)| match taken {
                true => fused,
                false => Some(step),
            })
            .collect();
    }
}
