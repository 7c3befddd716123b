//! Numbers of 16 bits, which programs compute with as float32: memory for them during a call.

use std::sync::Mutex;

use corsac_engine::{DataMut, Half};

/// Most bytes that are kept for later calls.
const KEPT: usize = 64 << 20;

/// Memory for converted numbers, reused by later calls: the system clears new memory page by page.
#[derive(Default)]
pub(super) struct Scratch(Mutex<Vec<Vec<f32>>>);

impl Scratch {
    /// `len` numbers with unspecified values.
    pub(super) fn take(&self, len: usize) -> Vec<f32> {
        let found = self.0.lock().ok().and_then(|mut idle| {
            let at = idle.iter().position(|own| own.len() == len)?;
            Some(idle.swap_remove(at))
        });
        found.unwrap_or_else(|| vec![0.0; len])
    }

    /// The numbers with these bits.
    pub(super) fn widened(&self, bits: &[u16], half: Half) -> Vec<f32> {
        let mut wide = self.take(bits.len());
        half.widen(bits, &mut wide);
        wide
    }

    /// Keeps memory that is no longer used.
    pub(super) fn give(&self, own: Vec<f32>) {
        if let Ok(mut idle) = self.0.lock()
            && !own.is_empty()
            && idle.iter().map(Vec::len).sum::<usize>() + own.len() <= KEPT / size_of::<f32>()
        {
            idle.push(own);
        }
    }
}

/// Memory of an input that is written to.
pub(super) enum Target<'a> {
    Direct(DataMut<'a>),
    /// Numbers of 16 bits, and what they become until the program has run.
    Half(&'a mut [u16], Half, Vec<f32>),
}

impl Target<'_> {
    pub(super) fn data_mut(&mut self) -> DataMut<'_> {
        match self {
            Self::Direct(DataMut::F32(data)) => DataMut::F32(data),
            Self::Direct(DataMut::F64(data)) => DataMut::F64(data),
            Self::Direct(DataMut::I64(data)) => DataMut::I64(data),
            Self::Direct(DataMut::Bool(data)) => DataMut::Bool(data),
            Self::Half(_, _, wide) => DataMut::F32(wide),
        }
    }

    /// Writes numbers back that have been converted.
    pub(super) fn finish(self, scratch: &Scratch) {
        if let Self::Half(bits, half, wide) = self {
            half.round(&wide, bits);
            scratch.give(wide);
        }
    }
}
