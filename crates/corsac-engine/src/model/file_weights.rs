//! The weights of a model file, read for packing.

use std::borrow::Cow;
use std::sync::Mutex;

use corsac_ir::DType;

use super::error::ModelError;
use super::file::ModelFile;
use crate::data::{Byte, Elements};
use crate::lower::element_of;
use crate::prepare::{HalfBits, Weights};
use crate::program::{Element, Half};

/// The weights of a file, for packing.
pub(super) struct FileWeights<'f> {
    file: &'f ModelFile,
    /// The error of the first weight that could not be read.
    failed: Mutex<Option<ModelError>>,
}

impl<'f> FileWeights<'f> {
    pub(super) fn of(file: &'f ModelFile) -> Self {
        Self {
            file,
            failed: Mutex::default(),
        }
    }

    /// The error of the first weight that could not be read, if there was one.
    pub(super) fn into_error(self) -> Option<ModelError> {
        self.failed.into_inner().ok().flatten()
    }

    /// The elements of weight `number`; `None` if it cannot be read, or the engine has no such elements.
    pub(super) fn elements(&self, number: usize) -> Option<Elements> {
        Some(match element_of(self.dtype(number)?).ok()? {
            Element::F32 => self.weight(number)?.into_owned().into(),
            Element::F64 => self.f64_weight(number)?.into_owned().into(),
            Element::I64 => self.i64_weight(number)?.into(),
            Element::Bool => Elements::bools(self.bool_weight(number)?),
        })
    }

    fn dtype(&self, number: usize) -> Option<DType> {
        self.file.weights().nth(number).map(|spec| spec.dtype)
    }

    /// The bytes of weight `number`, if it is of this type.
    fn bytes(&self, number: usize, dtype: DType) -> Option<Vec<u8>> {
        if self.dtype(number)? != dtype {
            return None;
        }
        match self.file.weight_bytes(number) {
            Ok(bytes) => bytes,
            Err(error) => {
                if let Ok(mut failed) = self.failed.lock() {
                    failed.get_or_insert(error);
                }
                None
            }
        }
    }
}

impl Weights for FileWeights<'_> {
    fn weight(&self, number: usize) -> Option<Cow<'_, [f32]>> {
        if let Some((bits, half)) = self.half_weight(number) {
            let mut numbers = vec![0.0; bits.len()];
            half.widen(&bits, &mut numbers);
            return Some(Cow::Owned(numbers));
        }
        let bytes = self.bytes(number, DType::Float32)?;
        let (numbers, _) = bytes.as_chunks();
        let numbers = numbers.iter().map(|&own| f32::from_le_bytes(own));
        Some(numbers.collect())
    }

    fn half_weight(&self, number: usize) -> Option<HalfBits<'_>> {
        let half = Half::of(self.dtype(number)?)?;
        let bytes = self.bytes(number, half.dtype())?;
        let bits = bytes.as_chunks().0.iter();
        Some((bits.map(|&own| u16::from_le_bytes(own)).collect(), half))
    }

    fn f64_weight(&self, number: usize) -> Option<Cow<'_, [f64]>> {
        let bytes = self.bytes(number, DType::Float64)?;
        let numbers = bytes.as_chunks().0.iter();
        Some(numbers.map(|&own| f64::from_le_bytes(own)).collect())
    }

    fn byte_weight(&self, number: usize) -> Option<(Cow<'_, [u8]>, Byte)> {
        let of = |dtype, byte| Some((Cow::Owned(self.bytes(number, dtype)?), byte));
        of(DType::Int8, Byte::Signed).or_else(|| of(DType::UInt8, Byte::Unsigned))
    }

    fn i64_weight(&self, number: usize) -> Option<Vec<i64>> {
        let dtype = self.dtype(number)?;
        let bytes = self.bytes(number, dtype)?;
        /// Numbers of as many bytes as `from` takes.
        fn numbers<const N: usize>(bytes: &[u8], from: fn([u8; N]) -> i64) -> Vec<i64> {
            bytes.as_chunks().0.iter().map(|&own| from(own)).collect()
        }
        Some(match dtype {
            DType::Int64 => numbers(&bytes, i64::from_le_bytes),
            DType::Int32 => numbers(&bytes, |own| i32::from_le_bytes(own).into()),
            DType::Int16 => numbers(&bytes, |own| i16::from_le_bytes(own).into()),
            DType::Int8 => numbers(&bytes, |own| i8::from_le_bytes(own).into()),
            DType::UInt8 => numbers(&bytes, |[own]| own.into()),
            _ => return None,
        })
    }

    fn bool_weight(&self, number: usize) -> Option<Vec<u8>> {
        self.bytes(number, DType::Bool)
    }
}
