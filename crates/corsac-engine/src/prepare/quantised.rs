//! Weights of integers, with the scales that make numbers of them.

use std::borrow::Cow;

use rayon::prelude::*;

use super::{Loader, whole};
use crate::data::Elements;
use crate::error::RunError;
use crate::parallel::Parallel;
use crate::program::{Element, Quantised, Sharing, Source, ValueId};

/// Types of integers of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Byte {
    /// -128 to 127.
    Signed,
    /// 0 to 255.
    Unsigned,
}

/// A weight of integers.
pub(crate) struct QuantisedWeight<'a> {
    pub(crate) format: Quantised,
    /// The integers of its bytes, or two of each byte.
    bytes: Cow<'a, [u8]>,
    byte: Byte,
    pub(crate) scales: Vec<f32>,
    /// The integers of 0, for each scale; none if all are 0.
    pub(crate) zero_points: Vec<f32>,
}

impl QuantisedWeight<'_> {
    /// The integers, row by row.
    pub(crate) fn integers(&self) -> Cow<'_, [i16]> {
        let all = match (self.format.packed, self.byte) {
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
        };
        Cow::Owned(all)
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

impl<'a> Loader<'a> {
    /// Loads a weight of integers with its scales and zero points, the inputs of its transform.
    pub(super) fn quantised(
        &mut self,
        format: Quantised,
        inputs: &[ValueId],
    ) -> Result<QuantisedWeight<'a>, RunError> {
        let (bytes, byte) = self.bytes(inputs[0])?;
        let (scales, zero_points) = match (format.sharing, &inputs[1..]) {
            (Sharing::Tensor(scale, zero), _) => (vec![f32::from_bits(scale)], vec![zero as f32]),
            (_, []) => (Vec::new(), Vec::new()),
            (_, [scales, zero_points @ ..]) => {
                let scales = self.parameters(*scales)?;
                let zero_points = zero_points.first().map(|&own| self.parameters(own));
                (scales, zero_points.transpose()?.unwrap_or_default())
            }
        };
        let [same, repeat] = [self.program.value(inputs[0]).len(), scales.len()];
        if same > 0 && repeat == 0 {
            return Err(RunError::MissingWeight { number: 0 });
        }
        Ok(QuantisedWeight {
            format,
            bytes,
            byte,
            scales,
            zero_points,
        })
    }

    /// The bytes of a weight of the source.
    fn bytes(&self, value: ValueId) -> Result<(Cow<'a, [u8]>, Byte), RunError> {
        let info = self.program.value(self.program.root(value));
        let Source::Weight(number) = info.source else {
            return Err(RunError::MissingWeight {
                number: value.index(),
            });
        };
        whole(
            self.source.byte_weight(number),
            number,
            info,
            |(bytes, _)| bytes.len(),
        )
    }

    /// Scales or zero points, as numbers.
    fn parameters(&mut self, value: ValueId) -> Result<Vec<f32>, RunError> {
        self.load(value)?;
        let root = self.program.root(value);
        Ok(match self.program.element(root) {
            Element::F32 => self.get(root).to_vec(),
            _ => match self.others[root.index()].as_deref() {
                Some(Elements::I64(own)) => own.iter().map(|&zero| zero as f32).collect(),
                _ => Vec::new(),
            },
        })
    }
}
