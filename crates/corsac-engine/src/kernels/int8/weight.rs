//! Weights of integers, with the scales that make numbers of them.

use std::borrow::Cow;

use rayon::prelude::*;

use crate::data::Byte;
use crate::parallel::Parallel;
use crate::program::{Quantised, Sharing};

/// A weight of integers.
pub(crate) struct QuantisedWeight<'a> {
    pub(crate) format: Quantised,
    /// The integers of its bytes, or two of each byte.
    pub(crate) bytes: Cow<'a, [u8]>,
    pub(crate) byte: Byte,
    pub(crate) scales: Vec<f32>,
    /// The integers of 0, for each scale; none if all are 0.
    pub(crate) zero_points: Vec<f32>,
}

impl QuantisedWeight<'_> {
    /// The integers, row by row.
    fn integers(&self) -> Vec<i16> {
        match (self.format.packed, self.byte) {
            (true, _) => {
                let signed = |bits: u8| i16::from(bits as i8 >> 4);
                let pairs = self.bytes.iter();
                pairs
                    .flat_map(|&byte| [signed(byte << 4), signed(byte)])
                    .collect()
            }
            (false, Byte::Signed) => self
                .bytes
                .iter()
                .map(|&byte| i16::from(byte as i8))
                .collect(),
            (false, Byte::Unsigned) => self.bytes.iter().map(|&byte| i16::from(byte)).collect(),
        }
    }

    /// The integers as signed bytes, row by row, and what was subtracted from each for that.
    pub(crate) fn signed(&self) -> (Vec<i8>, u8) {
        let moved = match (self.format.packed, self.byte) {
            (false, Byte::Unsigned) => 128,
            _ => 0,
        };
        let integers = self.integers().into_iter();
        let moved_by = i16::from(moved);
        (integers.map(|own| (own - moved_by) as i8).collect(), moved)
    }

    /// Whether all integers with the same index along dimension 0 share a scale.
    #[must_use]
    pub(crate) fn is_by_output(&self) -> bool {
        matches!(self.format.sharing, Sharing::Along(0) | Sharing::Tensor(..))
    }

    /// The scale of an output, where it has one.
    pub(crate) fn scale_of(&self, output: usize) -> f32 {
        self.scales[output % self.scales.len()]
    }

    /// The distances of its integers from their zero points, row by row, for this number of outputs;
    /// `None` if bytes do not hold them.
    pub(crate) fn centred(&self, outputs: usize) -> Option<Vec<i8>> {
        let integers = self.integers();
        let row = (integers.len() / outputs.max(1)).max(1);
        let zero_points = &self.zero_points;
        let centred = integers.iter().enumerate().map(|(at, &integer)| {
            let zero = match zero_points.len() {
                0 => 0.0,
                len => zero_points[at / row % len],
            };
            let distance = f32::from(integer) - zero;
            let byte = distance as i8;
            (f32::from(byte) == distance).then_some(byte)
        });
        centred.collect()
    }

    /// For a weight of this shape, the number of neighbours with the same scale, and of scales
    /// after which they repeat.
    pub(crate) fn period(&self, shape: &[usize]) -> [usize; 2] {
        match self.format.sharing {
            Sharing::Tensor(..) => [shape.iter().product::<usize>().max(1), 1],
            Sharing::Along(dim) => [
                shape[dim + 1..].iter().product::<usize>().max(1),
                shape[dim].max(1),
            ],
            Sharing::Group(len) => [len, self.scales.len().max(1)],
        }
    }

    /// Its numbers, for this shape.
    pub(crate) fn numbers(&self, shape: &[usize]) -> Vec<f32> {
        let [same, repeat] = self.period(shape);
        let integers = self.integers();
        let mut numbers = vec![0.0; integers.len()];
        let runs = numbers.par_chunks_mut(same).zip(integers.par_chunks(same));
        runs.enumerate()
            .with_min_len(crate::kernels::GRAIN.div_ceil(same))
            .run_parallel(|(at, (numbers, integers))| {
                let at = at % repeat;
                let zero = self.zero_points.get(at).copied().unwrap_or(0.0);
                for (number, &integer) in numbers.iter_mut().zip(integers) {
                    *number = (f32::from(integer) - zero) * self.scales[at];
                }
            });
        numbers
    }
}
