//! Views of memory of their own, right or wrong.

use std::ptr::{null, null_mut};

use super::choices::Choices;
use crate::{Spec, View};

/// More dimensions than tensors may have, so that every rank has numbers to read.
pub(super) const NUMBERS: usize = 70;

/// Numbers and memory of a view.
pub(super) struct Owned {
    shape: [i64; NUMBERS],
    strides: [i64; NUMBERS],
    memory: Box<[u8]>,
    view: View,
}

/// Views as the specs want them, more or less.
pub(super) fn owned(specs: Vec<&Spec>, choices: &mut Choices<'_>) -> Vec<Owned> {
    let own = specs.into_iter().map(|spec| Owned::new(spec, choices));
    own.collect()
}

impl Owned {
    fn new(spec: &Spec, choices: &mut Choices<'_>) -> Self {
        let rank = usize::try_from(spec.rank).unwrap_or(0);
        let (mut shape, mut strides) = ([1; NUMBERS], [0; NUMBERS]);
        let mut size_bytes = crate::corsac_dtype_size_bytes(spec.dtype);
        let mut next = 1 + i64::from(choices.below(3));
        let mut last = 0;
        // Dimensions from the innermost one out, in any order, with gaps.
        let turned = choices.below(2) == 1;
        for at in 0..rank {
            let dim = if turned { at } else { rank - 1 - at };
            // SAFETY: a spec has as many sizes as its rank says.
            shape[dim] = match unsafe { spec.shape.add(dim).read() } {
                // It differs between calls.
                -1 => choices.below(5).into(),
                size => size,
            };
            strides[dim] = next;
            last += (shape[dim] - 1).max(0) * next;
            next = next * shape[dim].max(1) + i64::from(choices.below(2));
        }
        size_bytes *= usize::try_from(last + 1).unwrap_or(1);
        let view = View {
            data: null_mut(),
            size_bytes,
            dtype: spec.dtype,
            rank: spec.rank,
            shape: null(),
            strides: null(),
            flags: 0,
        };
        let fill = if choices.rarely() { choices.byte() } else { 0 };
        let mut own = Self {
            shape,
            strides,
            memory: vec![fill; size_bytes].into(),
            view,
        };
        // Whether strides are given, and what is null, stands in addresses until `view`.
        own.view.strides = own.strides.as_ptr();
        own.view.shape = own.shape.as_ptr();
        own.view.data = own.memory.as_mut_ptr().cast();
        if choices.below(8) == 7 {
            own.damage(choices);
        }
        own
    }

    /// Changes something, so that the view may be wrong.
    fn damage(&mut self, choices: &mut Choices<'_>) {
        let at = usize::from(choices.below(4));
        match choices.below(9) {
            0 => self.view.dtype = i32::from(choices.byte()) - 2,
            1 => self.view.rank = i32::from(choices.byte()) % 68 - 1,
            2 => self.shape[at] = choices.number(),
            3 => self.strides[at] = choices.number(),
            4 => self.view.size_bytes -= self.view.size_bytes.min(choices.byte().into()),
            5 => self.view.flags = u64::from(choices.byte()),
            6 => self.view.data = null_mut(),
            7 => self.view.shape = null(),
            _ => self.view.strides = null(),
        }
    }

    /// The view, with the addresses that its parts have now.
    pub(super) fn view(&mut self) -> View {
        if !self.view.shape.is_null() {
            self.view.shape = self.shape.as_ptr();
        }
        if !self.view.strides.is_null() {
            self.view.strides = self.strides.as_ptr();
        }
        if !self.view.data.is_null() {
            self.view.data = self.memory.as_mut_ptr().cast();
        }
        self.view
    }
}
