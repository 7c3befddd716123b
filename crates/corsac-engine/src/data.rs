//! Elements of the types that values are made of.

use multiversion::multiversion;

use crate::program::Element;

/// Elements that somebody else owns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Data<'a> {
    /// Floating-point numbers.
    F32(&'a [f32]),
    /// Integers.
    I64(&'a [i64]),
    /// Truth values: bytes that are 0 or 1.
    Bool(&'a [u8]),
}

/// Elements to write to.
#[derive(Debug)]
pub enum DataMut<'a> {
    /// Floating-point numbers.
    F32(&'a mut [f32]),
    /// Integers.
    I64(&'a mut [i64]),
    /// Truth values: bytes that are 0 or 1.
    Bool(&'a mut [u8]),
}

/// Elements.
#[derive(Clone, Debug, PartialEq)]
pub enum Elements {
    /// Floating-point numbers.
    F32(Vec<f32>),
    /// Integers.
    I64(Vec<i64>),
    /// Truth values: bytes that are 0 or 1.
    Bool(Vec<u8>),
}

impl Default for Elements {
    fn default() -> Self {
        Self::F32(Vec::new())
    }
}

/// Whether all bytes are truth values, 0 or 1. All are looked at, many at a time.
#[must_use]
#[multiversion(targets("x86_64+avx512f+avx512bw", "x86_64+avx2"))]
pub fn are_truth_values(bytes: &[u8]) -> bool {
    let mut all = 0;
    for byte in bytes {
        all |= byte;
    }
    all <= 1
}

impl<'a> Data<'a> {
    /// What they are.
    #[must_use]
    pub fn element(&self) -> Element {
        match self {
            Self::F32(_) => Element::F32,
            Self::I64(_) => Element::I64,
            Self::Bool(_) => Element::Bool,
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::F32(data) => data.len(),
            Self::I64(data) => data.len(),
            Self::Bool(data) => data.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The floating-point numbers; none of another type.
    pub(crate) fn numbers(self) -> &'a [f32] {
        match self {
            Self::F32(data) => data,
            Self::I64(_) | Self::Bool(_) => &[],
        }
    }

    /// The integers; none of another type.
    pub(crate) fn integers(self) -> &'a [i64] {
        match self {
            Self::I64(data) => data,
            Self::F32(_) | Self::Bool(_) => &[],
        }
    }

    /// The truth values; none of another type.
    pub(crate) fn flags(self) -> &'a [u8] {
        match self {
            Self::Bool(data) => data,
            Self::F32(_) | Self::I64(_) => &[],
        }
    }
}

impl Default for DataMut<'_> {
    fn default() -> Self {
        Self::F32(&mut [])
    }
}

impl DataMut<'_> {
    /// The same, to read.
    pub(crate) fn shared(&self) -> Data<'_> {
        match self {
            Self::F32(data) => Data::F32(data),
            Self::I64(data) => Data::I64(data),
            Self::Bool(data) => Data::Bool(data),
        }
    }

    /// What they are.
    #[must_use]
    pub fn element(&self) -> Element {
        self.shared().element()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies as many elements of the same type.
    pub(crate) fn copy_from(&mut self, from: Data<'_>) {
        match (self, from) {
            (Self::F32(to), Data::F32(from)) => to.copy_from_slice(from),
            (Self::I64(to), Data::I64(from)) => to.copy_from_slice(from),
            (Self::Bool(to), Data::Bool(from)) => to.copy_from_slice(from),
            _ => unreachable!("types were checked when the program was made"),
        }
    }
}

impl Elements {
    /// This many zeros.
    #[must_use]
    pub fn zeros(element: Element, len: usize) -> Self {
        match element {
            Element::F32 => Self::F32(vec![0.0; len]),
            Element::I64 => Self::I64(vec![0; len]),
            Element::Bool => Self::Bool(vec![0; len]),
        }
    }

    /// Truth values from bytes, of which those that are not 0 are true.
    #[must_use]
    pub fn flags(mut bytes: Vec<u8>) -> Self {
        bytes
            .iter_mut()
            .for_each(|byte| *byte = u8::from(*byte != 0));
        Self::Bool(bytes)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Data<'_> {
        match self {
            Self::F32(data) => Data::F32(data),
            Self::I64(data) => Data::I64(data),
            Self::Bool(data) => Data::Bool(data),
        }
    }

    /// All of them, to write to.
    #[must_use]
    pub fn all_mut(&mut self) -> DataMut<'_> {
        match self {
            Self::F32(data) => DataMut::F32(data),
            Self::I64(data) => DataMut::I64(data),
            Self::Bool(data) => DataMut::Bool(data),
        }
    }

    /// The first ones.
    pub(crate) fn first(&self, len: usize) -> Data<'_> {
        match self {
            Self::F32(data) => Data::F32(&data[..len]),
            Self::I64(data) => Data::I64(&data[..len]),
            Self::Bool(data) => Data::Bool(&data[..len]),
        }
    }
}
