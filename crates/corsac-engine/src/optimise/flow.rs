//! Makers and readers of values.

use smallvec::SmallVec;

use crate::program::{Program, ValueId};

/// Makers and readers of the values of a program.
pub(super) struct Flow {
    /// By value, the step that computes it.
    maker: Vec<Option<usize>>,
    /// By value, the steps that read it, and the alias that each reads.
    readers: Vec<SmallVec<[(usize, ValueId); 2]>>,
    /// By value, whether it is a result.
    returned: Vec<bool>,
}

impl Flow {
    pub(super) fn of(program: &Program) -> Self {
        let count = program.values.len();
        let mut flow = Self {
            maker: vec![None; count],
            readers: vec![SmallVec::new(); count],
            returned: vec![false; count],
        };
        for (at, step) in program.steps.iter().enumerate() {
            for value in step.results() {
                flow.maker[program.root(value).index()] = Some(at);
            }
            for value in step.reads() {
                flow.readers[program.root(value).index()].push((at, value));
            }
        }
        for value in program.results() {
            flow.returned[program.root(value).index()] = true;
        }
        flow
    }

    /// The step that computes the root of `value`.
    pub(super) fn maker(&self, program: &Program, value: ValueId) -> Option<usize> {
        self.maker[program.root(value).index()]
    }

    /// The steps that read `value`, which is no alias, and the alias that each reads.
    pub(super) fn readers(&self, value: ValueId) -> &[(usize, ValueId)] {
        &self.readers[value.index()]
    }

    /// Whether `value`, which is no alias, is a result.
    pub(super) fn is_returned(&self, value: ValueId) -> bool {
        self.returned[value.index()]
    }

    /// Whether one step reads `value`, which is no alias, and it is no result.
    pub(super) fn is_read_once(&self, value: ValueId) -> bool {
        self.readers(value).len() == 1 && !self.is_returned(value)
    }
}
