//! Kernels of attention.

use crate::kernels::blocked::attention::{Attention as Kernel, Head, Pitch};
use crate::program::{Attention, View};

impl Attention {
    /// The kernel that runs it.
    pub(crate) fn kernel(&self) -> Kernel {
        let rank = self.result.shape.len();
        let batch = &self.result.shape[..rank - 2];
        let size = |view: &View, back: usize| view.shape[view.shape.len() - back];
        let heads = (0..batch.iter().product()).map(|index| Head {
            query: self.query.start(batch, index),
            key: self.key.start(batch, index),
            value: self.value.start(batch, index),
            mask: self
                .mask
                .as_ref()
                .map_or(0, |mask| mask.start(batch, index)),
            result: self.result.start(batch, index),
        });
        Kernel {
            heads: heads.collect(),
            rows: size(&self.query, 2),
            keys: size(&self.key, 2),
            width: size(&self.key, 1),
            outputs: size(&self.value, 1),
            query: self.query.pitch(),
            key: self.key.pitch(),
            value: self.value.pitch(),
            mask: self.mask.as_ref().map(View::pitch),
            result: self.result.pitch().row,
            scale: self.scale as f32,
            causal: self.causal,
            safe: self.safe,
        }
    }
}

impl View {
    /// The strides of its matrices.
    fn pitch(&self) -> Pitch {
        let rank = self.shape.len();
        // Dimensions of size 1 are broadcast: their step is 0.
        let step = |dim: usize| match self.shape[dim] {
            1 => 0,
            _ => self.strides[dim],
        };
        Pitch {
            row: step(rank - 2),
            column: step(rank - 1),
        }
    }

    /// Start of matrix number `index` of a stack of shape `batch`.
    fn start(&self, batch: &[usize], mut index: usize) -> usize {
        let own = self.shape.len() - 2;
        let mut start = self.offset;
        for (back, &size) in batch.iter().rev().enumerate() {
            let here = index % size;
            index /= size;
            if let Some(dim) = own.checked_sub(back + 1)
                && self.shape[dim] != 1
            {
                start += here * self.strides[dim];
            }
        }
        start
    }
}
