//! Pieces that later calls want for the dimensions of a value: where a weight of queries, keys and
//! values is cut.

use corsac_ir::NodeId;
use corsac_ops::shape::{Relation, Run, ShardedCall, Side};
use rustc_hash::FxHashMap;
use smallvec::smallvec;

use super::Pieces;
use super::options::{Builder, PIECES, head, spread};

/// Pieces that later nodes would want for a dimension of a tensor of a value.
pub(super) type Hints = FxHashMap<(usize, usize), Vec<(usize, Pieces)>>;

impl Builder<'_, '_> {
    /// The pieces of dimensions that later calls would cut values into, from the last node on.
    pub(super) fn find_hints(&mut self) {
        let nodes: Vec<NodeId> = self.graph.nodes().collect();
        for &node in nodes.iter().rev() {
            let Some(call) = self.call(node) else {
                continue;
            };
            for relation in &call.relations {
                match relation {
                    Relation::Along {
                        inputs, outputs, ..
                    } => {
                        self.hints_along(node, call, inputs, outputs);
                    }
                    Relation::Regroup { inputs, outputs } => {
                        self.hints_of_runs(node, call, inputs, outputs);
                    }
                }
            }
        }
    }

    fn hint(&mut self, value: usize, tensor: usize, dim: usize, pieces: Pieces) {
        if !self.divides(&pieces) || pieces.len() > PIECES {
            return;
        }
        let known = self.hints.entry((value, tensor)).or_default();
        let new = (dim, pieces);
        if !known.contains(&new) {
            known.push(new);
        }
    }

    pub(super) fn hints_of(&self, value: usize, tensor: usize) -> &[(usize, Pieces)] {
        self.hints.get(&(value, tensor)).map_or(&[], Vec::as_slice)
    }

    fn hints_along(&mut self, node: NodeId, call: &ShardedCall, inputs: &[Side], outputs: &[Side]) {
        let mut wanted: Vec<Pieces> = Vec::new();
        let own = self.number[node];
        for (tensor, side) in outputs.iter().enumerate() {
            if let Side::Dim(dim) = side {
                let hints = self.hints_of(own, tensor).iter();
                wanted.extend(hints.filter(|(at, _)| at == dim).map(|(_, p)| p.clone()));
            }
        }
        let sharded = inputs.iter().filter(|side| matches!(side, Side::Dim(_)));
        let together = sharded.count() > 1;
        for (leaf, side) in inputs.iter().enumerate() {
            let Side::Dim(dim) = *side else { continue };
            let size = self.size_of(call, leaf, dim);
            let (input, tensor) = call.inputs[leaf];
            let value = self.number[input];
            for pieces in &wanted {
                let same = pieces.iter().sum::<i64>() == size;
                let pieces = if same {
                    pieces.clone()
                } else {
                    smallvec![size]
                };
                self.hint(value, tensor, dim, pieces);
            }
            if together {
                self.hint(value, tensor, dim, smallvec![size]);
            }
        }
    }

    fn hints_of_runs(&mut self, node: NodeId, call: &ShardedCall, inputs: &[Run], outputs: &[Run]) {
        let own = self.number[node];
        // The elements in pieces: those of dimensions of the results, or whole results.
        let mut wanted: Vec<Vec<i64>> = Vec::new();
        if let [run] = outputs
            && let Some(tensor) = run.tensor
        {
            let hints = self.hints_of(own, tensor).to_vec();
            for (dim, pieces) in hints {
                if (run.first..run.first + run.sizes.len()).contains(&dim) {
                    wanted.push(spread(run, dim - run.first, &pieces, PIECES));
                }
            }
            // The dimension behind a few others, as queries, keys and values are.
            for dim in 1..run.sizes.len() {
                let outer: i64 = run.sizes[..dim].iter().product();
                if outer <= 4 && inputs.len() == 1 {
                    wanted.push(spread(run, dim, &[run.sizes[dim]], PIECES));
                }
            }
        } else {
            wanted.push(outputs.iter().map(Run::len).collect());
        }
        for pieces in wanted {
            let mut rest = pieces.as_slice();
            for run in inputs {
                let Some((mine, later)) = head(rest, run.len()) else {
                    break;
                };
                rest = later;
                if let Some((dim, pieces)) = self.fold(run, mine)
                    && let Some(leaf) = run.tensor
                {
                    let (input, tensor) = call.inputs[leaf];
                    self.hint(self.number[input], tensor, dim, pieces);
                }
            }
        }
    }
}
