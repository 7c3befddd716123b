//! Contents and order of the forward and the backward graph.

use corsac_ir::{NodeId, Op};
use fixedbitset::FixedBitSet;

use super::again::Again;
use super::{Chosen, GENERATOR_BYTES, Joint, Kind, Partition, Role};

impl Joint<'_> {
    /// The two graphs. The forward graph keeps the order of the joint graph. In the backward graph,
    /// nodes that depend on tangents keep it too, and the others run just before their first use,
    /// so that recomputed values have short live ranges.
    pub(super) fn parted(&self, chosen: &Chosen) -> Partition {
        let (backward, read) = self.backward_order(&chosen.saved);
        // A value that is cut but not read is not saved.
        let saved: Vec<usize> = chosen
            .saved
            .ones()
            .filter(|&at| read.contains(at))
            .collect();
        let mut roots = self.forward_roots.clone();
        roots.extend(saved.iter().map(|&at| at as u32));
        let ahead = self.ancestors(&roots, |_| true);
        let forward: Vec<usize> = ahead.ones().filter(|&at| self.runs(at)).collect();

        let is_number = |&at: &usize| self.values[at].kind != Kind::Tensor;
        let is_call = |at: usize| self.graph.node(self.nodes[at]).op() != Op::GetAttr;
        let mut again = backward.clone();
        again.retain(|&at| ahead.contains(at) && is_call(at));
        again.sort_unstable();
        let mut redrawn = again.clone();
        redrawn.retain(|&at| self.again[at] == Again::Redrawn);
        let states = GENERATOR_BYTES * redrawn.len() as u64;
        let counted = saved.iter().map(|&at| self.values[at]);
        let counted = counted.filter(|v| v.kind == Kind::Tensor && v.role != Role::Parameter);
        let saved_bytes = counted.map(|value| value.bytes).sum::<u64>() + states;
        let (numbers, tensors): (Vec<usize>, Vec<usize>) = saved.into_iter().partition(is_number);
        let merged = self.merged.iter().enumerate();
        Partition {
            merged: merged
                .filter_map(|(at, kept)| Some((self.nodes[at], self.nodes[(*kept)? as usize])))
                .collect(),
            saved_bytes,
            saved: self.named(tensors),
            saved_numbers: self.named(numbers),
            redrawn: self.named(redrawn),
            forward: self.named(forward),
            backward: self.named(backward),
            recomputed: self.named(again),
        }
    }

    fn named(&self, nodes: impl IntoIterator<Item = usize>) -> Vec<NodeId> {
        nodes.into_iter().map(|at| self.nodes[at]).collect()
    }

    /// Whether a node runs: placeholders and the output do not.
    fn runs(&self, at: usize) -> bool {
        !matches!(
            self.graph.node(self.nodes[at]).op(),
            Op::Placeholder | Op::Output
        )
    }

    /// The nodes of the backward graph, in order, and all values that it reads or computes.
    fn backward_order(&self, saved: &FixedBitSet) -> (Vec<usize>, FixedBitSet) {
        let len = self.nodes.len();
        let mut seen = FixedBitSet::with_capacity(len);
        let mut order = Vec::new();
        let mut roots: Vec<usize> = self.behind.intersection(&self.back).collect();
        // Results that depend on no tangent come last.
        roots.extend(self.backward_roots.iter().map(|&root| root as usize));
        // A node, and the number of its operands visited.
        let mut open: Vec<(usize, usize)> = Vec::new();
        for root in roots {
            if seen.put(root) {
                continue;
            }
            open.push((root, 0));
            while let Some((at, next)) = open.last_mut() {
                let operands = if saved.contains(*at) {
                    &[][..]
                } else {
                    &self.inputs[*at][..]
                };
                let Some(&operand) = operands.get(*next) else {
                    if self.runs(*at) && !saved.contains(*at) {
                        order.push(*at);
                    }
                    open.pop();
                    continue;
                };
                *next += 1;
                if !seen.put(operand as usize) {
                    open.push((operand as usize, 0));
                }
            }
        }
        (order, seen)
    }
}
