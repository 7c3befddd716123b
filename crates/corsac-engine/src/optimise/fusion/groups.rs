//! Division of a program into groups of steps.

use rustc_hash::FxHashMap;

use super::build;
use super::group::Group;
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
    pub(super) fn of(program: &Program, flow: &Flow, pairs: &FxHashMap<usize, Group>) -> Self {
        let count = program.steps.len();
        let mut all = Self {
            groups: vec![None; count],
            fused: vec![None; count],
            taken: vec![false; count],
        };
        for at in (0..count).rev() {
            if all.taken[at] {
                continue;
            }
            let pair = pairs.get(&at).cloned();
            let Some(group) = pair.or_else(|| Group::grow(program, flow, at)) else {
                continue;
            };
            if let Some(step) = build::step(program, flow, &group) {
                group.members().for_each(|member| all.taken[member] = true);
                all.fused[at] = Some(step);
            }
            // One that is not worth a fused step may still be part of a pair.
            all.groups[at] = Some(group);
        }
        all
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
