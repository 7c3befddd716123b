//! Elements of values, by type.

use std::ops::Range;

use corsac_ir::DType;
use multiversion::multiversion;

use crate::program::{Element, Half, Scalar};

/// Types of integers of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Byte {
    /// -128 to 127.
    Signed,
    /// 0 to 255.
    Unsigned,
}

/// Elements borrowed from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Data<'a> {
    /// Floating-point numbers.
    F32(&'a [f32]),
    /// Floating-point numbers in double precision.
    F64(&'a [f64]),
    /// Integers.
    I64(&'a [i64]),
    /// Bytes: truth values, 0 or 1, or within a program levels of quantised numbers.
    Bool(&'a [u8]),
}

/// Elements to write to.
#[derive(Debug)]
pub enum DataMut<'a> {
    /// Floating-point numbers.
    F32(&'a mut [f32]),
    /// Floating-point numbers in double precision.
    F64(&'a mut [f64]),
    /// Integers.
    I64(&'a mut [i64]),
    /// Booleans: bytes that are 0 or 1.
    Bool(&'a mut [u8]),
}

/// Owned elements.
#[derive(Clone, Debug, PartialEq)]
pub enum Elements {
    /// Floating-point numbers.
    F32(Vec<f32>),
    /// Floating-point numbers in double precision.
    F64(Vec<f64>),
    /// Integers.
    I64(Vec<i64>),
    /// Booleans: bytes that are 0 or 1.
    Bool(Vec<u8>),
}

impl Default for Elements {
    fn default() -> Self {
        Self::F32(Vec::new())
    }
}

/// Whether all bytes are booleans, 0 or 1. All are tested, many at a time.
#[must_use]
#[multiversion(targets("x86_64+avx512f+avx512bw", "x86_64+avx2"))]
pub fn are_booleans(bytes: &[u8]) -> bool {
    let mut all = 0;
    for byte in bytes {
        all |= byte;
    }
    all <= 1
}

impl<'a> Data<'a> {
    /// Type of the elements.
    #[must_use]
    pub fn element(&self) -> Element {
        match self {
            Self::F32(_) => Element::F32,
            Self::F64(_) => Element::F64,
            Self::I64(_) => Element::I64,
            Self::Bool(_) => Element::Bool,
        }
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::F32(data) => data.len(),
            Self::F64(data) => data.len(),
            Self::I64(data) => data.len(),
            Self::Bool(data) => data.len(),
        }
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements in a range, if they are there.
    pub(crate) fn part(self, range: Range<usize>) -> Option<Self> {
        Some(match self {
            Self::F32(data) => Self::F32(data.get(range)?),
            Self::F64(data) => Self::F64(data.get(range)?),
            Self::I64(data) => Self::I64(data.get(range)?),
            Self::Bool(data) => Self::Bool(data.get(range)?),
        })
    }
}

/// Types of elements in memory.
pub(crate) trait Stored: Copy + Sized {
    /// The element type.
    const ELEMENT: Element;

    /// The elements, if they are of this type.
    fn of(data: Data<'_>) -> Option<&[Self]>;

    /// The elements to write to, if they are of this type.
    fn of_mut(data: DataMut<'_>) -> Option<&mut [Self]>;

    /// A number as an element.
    fn number(number: Scalar) -> Self;
}

/// Implements [`Stored`] for the elements of one variant.
macro_rules! stored {
    ($type:ty, $variant:ident, $number:expr) => {
        impl Stored for $type {
            const ELEMENT: Element = Element::$variant;

            fn of(data: Data<'_>) -> Option<&[Self]> {
                match data {
                    Data::$variant(data) => Some(data),
                    _ => None,
                }
            }

            fn of_mut(data: DataMut<'_>) -> Option<&mut [Self]> {
                match data {
                    DataMut::$variant(data) => Some(data),
                    _ => None,
                }
            }

            fn number(number: Scalar) -> Self {
                $number(number)
            }
        }
    };
}

stored!(f32, F32, |number: Scalar| number.float() as f32);
stored!(f64, F64, Scalar::float);
stored!(i64, I64, Scalar::int);
stored!(u8, Bool, |number: Scalar| u8::from(number.float() != 0.0));

impl Default for DataMut<'_> {
    fn default() -> Self {
        Self::F32(&mut [])
    }
}

impl<'a> DataMut<'a> {
    /// The elements in a range, if they are there.
    pub(crate) fn part(self, range: Range<usize>) -> Option<DataMut<'a>> {
        Some(match self {
            Self::F32(data) => Self::F32(data.get_mut(range)?),
            Self::F64(data) => Self::F64(data.get_mut(range)?),
            Self::I64(data) => Self::I64(data.get_mut(range)?),
            Self::Bool(data) => Self::Bool(data.get_mut(range)?),
        })
    }
}

impl DataMut<'_> {
    /// The same elements, for as long as this is borrowed.
    pub(crate) fn reborrowed(&mut self) -> DataMut<'_> {
        match self {
            Self::F32(data) => DataMut::F32(data),
            Self::F64(data) => DataMut::F64(data),
            Self::I64(data) => DataMut::I64(data),
            Self::Bool(data) => DataMut::Bool(data),
        }
    }

    /// The same elements, to read.
    pub(crate) fn shared(&self) -> Data<'_> {
        match self {
            Self::F32(data) => Data::F32(data),
            Self::F64(data) => Data::F64(data),
            Self::I64(data) => Data::I64(data),
            Self::Bool(data) => Data::Bool(data),
        }
    }

    /// Rounds numbers of single precision to the nearest of `dtype`, if that has 16 bits.
    pub fn round_to(&mut self, dtype: DType) {
        if let (Some(half), Self::F32(numbers)) = (Half::of(dtype), self) {
            for number in &mut **numbers {
                *number = half.nearest(*number);
            }
        }
    }

    /// Type of the elements.
    #[must_use]
    pub fn element(&self) -> Element {
        self.shared().element()
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared().len()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies all elements from `from`, of the same number; `None` for another type.
    pub(crate) fn copy_from(&mut self, from: Data<'_>) -> Option<()> {
        match self {
            Self::F32(to) => to.copy_from_slice(Stored::of(from)?),
            Self::F64(to) => to.copy_from_slice(Stored::of(from)?),
            Self::I64(to) => to.copy_from_slice(Stored::of(from)?),
            Self::Bool(to) => to.copy_from_slice(Stored::of(from)?),
        }
        Some(())
    }
}

impl Elements {
    /// `len` zeros.
    #[must_use]
    pub fn zeros(element: Element, len: usize) -> Self {
        match element {
            Element::F32 => Self::F32(vec![0.0; len]),
            Element::F64 => Self::F64(vec![0.0; len]),
            Element::I64 => Self::I64(vec![0; len]),
            Element::Bool => Self::Bool(vec![0; len]),
        }
    }

    /// Booleans from bytes, of which those that are not 0 are true.
    #[must_use]
    pub fn bools(mut bytes: Vec<u8>) -> Self {
        bytes
            .iter_mut()
            .for_each(|byte| *byte = u8::from(*byte != 0));
        Self::Bool(bytes)
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all().len()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All elements, to read.
    #[must_use]
    pub fn all(&self) -> Data<'_> {
        match self {
            Self::F32(data) => Data::F32(data),
            Self::F64(data) => Data::F64(data),
            Self::I64(data) => Data::I64(data),
            Self::Bool(data) => Data::Bool(data),
        }
    }

    /// All elements, to write.
    #[must_use]
    pub fn all_mut(&mut self) -> DataMut<'_> {
        match self {
            Self::F32(data) => DataMut::F32(data),
            Self::F64(data) => DataMut::F64(data),
            Self::I64(data) => DataMut::I64(data),
            Self::Bool(data) => DataMut::Bool(data),
        }
    }
}
