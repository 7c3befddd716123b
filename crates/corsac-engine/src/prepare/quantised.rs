//! Loading of weights of integers, with the scales that make numbers of them.

use std::borrow::Cow;

use super::{Loader, whole};
use crate::data::{Byte, Elements};
use crate::error::RunError;
use crate::kernels::int8::QuantisedWeight;
use crate::program::{Element, Quantised, Sharing, Source, ValueId};

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
            (_, parameters) => {
                let mut parameters = parameters.iter().map(|&own| self.parameters(own));
                let scales = parameters.next().transpose()?.unwrap_or_default();
                (scales, parameters.next().transpose()?.unwrap_or_default())
            }
        };
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
