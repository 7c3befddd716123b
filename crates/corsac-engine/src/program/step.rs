//! Steps of programs.

use corsac_ir::NodeId;
use smallvec::SmallVec;

use super::{Op, Unary, ValueId};

/// An epilogue: it is applied to a result before that is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Epilogue {
    /// A value of the same shape is added.
    Add(ValueId),
    /// A function of each element.
    Unary(Unary),
}

/// One step of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The operator.
    pub op: Op,
    /// The operands.
    pub inputs: SmallVec<[ValueId; 4]>,
    /// The epilogues, in order.
    pub epilogues: SmallVec<[Epilogue; 2]>,
    /// The result.
    pub output: ValueId,
    /// The node of the graph that it was lowered from.
    pub node: NodeId,
}

impl Step {
    /// Number of steps, with those of micro-batches.
    pub(crate) fn count(&self) -> usize {
        match &self.op {
            Op::BatchTiling(tiling) => tiling.body.step_count(),
            _ => 1,
        }
    }

    /// The weight and bias of a layer, which are packed if they are known before the program runs.
    pub(crate) fn weights(&self) -> &[ValueId] {
        match self.op {
            Op::ChannelScaledConv(_) => &self.inputs[1..3],
            Op::Recurrent(ref own) => &self.inputs[1..2 + usize::from(own.bias)],
            _ => &self.inputs[1..],
        }
    }

    /// The values of [`reads`](Self::reads), to be replaced.
    pub(crate) fn reads_mut(&mut self) -> impl Iterator<Item = &mut ValueId> {
        let added = self
            .epilogues
            .iter_mut()
            .filter_map(|epilogue| match epilogue {
                Epilogue::Add(value) => Some(value),
                Epilogue::Unary(_) => None,
            });
        self.inputs.iter_mut().chain(added)
    }

    /// The values that the step computes: its output, the row result of a fused step, and the other results of control
    /// flow.
    pub fn results(&self) -> impl Iterator<Item = ValueId> + '_ {
        let others: &[ValueId] = match &self.op {
            Op::Control(control) => &control.others,
            _ => &[],
        };
        let fused = std::iter::once(self.output).chain(self.row_result());
        fused.chain(others.iter().copied())
    }

    /// The row result of a fused step.
    pub(crate) fn row_result(&self) -> Option<ValueId> {
        match &self.op {
            Op::Fused(fused) => fused.row_result,
            _ => None,
        }
    }

    /// All values that the step reads: its inputs, and those that its epilogues add.
    pub fn reads(&self) -> impl Iterator<Item = ValueId> + '_ {
        let added = self.epilogues.iter().filter_map(|epilogue| match epilogue {
            Epilogue::Add(value) => Some(*value),
            Epilogue::Unary(_) => None,
        });
        self.inputs.iter().copied().chain(added)
    }
}
