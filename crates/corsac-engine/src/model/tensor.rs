//! Tensors passed to and returned by models.

use std::fmt;

use corsac_ir::DType;

use super::error::ModelError;
use crate::data::Elements;
use crate::lower::{element_of, integer_bits};
use crate::program::Element;
use crate::program::arithmetic::wrapped;

/// A tensor, row by row. Numbers of 16 bits are `f32`, integers of fewer than 64 bits `i64`.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    elements: Elements,
}

impl Tensor {
    /// A tensor of this shape with these elements, row by row: a vector or an array of `f32`, `f64`,
    /// `i64` or `bool`.
    ///
    /// # Errors
    /// If the shape has another number of elements.
    pub fn new(
        shape: impl Into<Vec<usize>>,
        elements: impl Into<Elements>,
    ) -> Result<Self, ModelError> {
        let (shape, elements) = (shape.into(), elements.into());
        let expected = shape
            .iter()
            .try_fold(1_usize, |len, &size| len.checked_mul(size));
        if expected == Some(elements.len()) {
            return Ok(Self {
                dtype: dtype_of(elements.all().element()),
                shape,
                elements,
            });
        }
        Err(ModelError::Tensor {
            shape,
            got: elements.len(),
        })
    }

    /// The same tensor in a type of fewer bits: of `f32`, rounded to the nearest numbers of bfloat16 or
    /// float16; of `i64`, as int32, int16, int8 or uint8.
    ///
    /// # Errors
    /// If the elements of `dtype` are others, or an integer is out of its range.
    pub fn with_dtype(mut self, dtype: DType) -> Result<Self, ModelError> {
        let wrong = |reason: String| Err(ModelError::Elements { dtype, reason });
        let own = self.elements.all().element();
        if element_of(dtype) != Ok(own) {
            return wrong(format!("elements of {}", own.name()));
        }
        if let Elements::I64(elements) = &self.elements
            && let Some((bits, signed)) = integer_bits(dtype)
            && let Some(number) = elements
                .iter()
                .find(|&&number| wrapped(number, bits, signed) != number)
        {
            return wrong(format!("the number {number}"));
        }
        self.elements.all_mut().round_to(dtype);
        self.dtype = dtype;
        Ok(self)
    }

    /// The type of its elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Its sizes, outermost dimension first.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Its elements, row by row.
    #[must_use]
    pub fn elements(&self) -> &Elements {
        &self.elements
    }

    /// Its elements, row by row.
    #[must_use]
    pub fn into_elements(self) -> Elements {
        self.elements
    }

    pub(super) fn elements_mut(&mut self) -> &mut Elements {
        &mut self.elements
    }

    /// Its elements, row by row, if they are `f32`.
    #[must_use]
    pub fn as_f32(&self) -> Option<&[f32]> {
        match &self.elements {
            Elements::F32(elements) => Some(elements),
            Elements::F64(_) | Elements::I64(_) | Elements::Bool(_) => None,
        }
    }
}

impl From<Vec<f32>> for Elements {
    fn from(elements: Vec<f32>) -> Self {
        Self::F32(elements)
    }
}

impl From<Vec<f64>> for Elements {
    fn from(elements: Vec<f64>) -> Self {
        Self::F64(elements)
    }
}

impl From<Vec<i64>> for Elements {
    fn from(elements: Vec<i64>) -> Self {
        Self::I64(elements)
    }
}

impl From<Vec<bool>> for Elements {
    fn from(elements: Vec<bool>) -> Self {
        Self::Bool(elements.into_iter().map(u8::from).collect())
    }
}

impl<T, const N: usize> From<[T; N]> for Elements
where
    Vec<T>: Into<Self>,
{
    fn from(elements: [T; N]) -> Self {
        Vec::from(elements).into()
    }
}

/// The PyTorch element type.
fn dtype_of(element: Element) -> DType {
    match element {
        Element::F32 => DType::Float32,
        Element::F64 => DType::Float64,
        Element::I64 => DType::Int64,
        Element::Bool => DType::Bool,
    }
}

/// Name, element type and shape of an input, an output or a weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// The name.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// Its sizes, outermost dimension first.
    pub shape: Vec<usize>,
}

impl TensorSpec {
    /// The tensor with these elements, which fit the type and the shape.
    pub(super) fn tensor(&self, elements: Elements) -> Tensor {
        Tensor {
            dtype: self.dtype,
            shape: self.shape.clone(),
            elements,
        }
    }

    /// The elements that the engine has for its type; `None` if it has none.
    #[must_use]
    pub fn element(&self) -> Option<Element> {
        element_of(self.dtype).ok()
    }

    /// A tensor of zeros; `None` if the engine has no such elements.
    #[must_use]
    pub fn zeros(&self) -> Option<Tensor> {
        let len = self.shape.iter().product();
        Some(self.tensor(Elements::zeros(self.element()?, len)))
    }
}

impl fmt::Display for TensorSpec {
    /// `x: float32[1, 3, 224, 224]`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_spec(f, &self.name, self.dtype, &self.shape)
    }
}

/// Writes a name, a type and sizes.
pub(super) fn write_spec(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    dtype: DType,
    shape: impl IntoIterator<Item = impl ToString>,
) -> fmt::Result {
    let shape: Vec<String> = shape.into_iter().map(|size| size.to_string()).collect();
    write!(f, "{name}: {}[{}]", dtype.name(), shape.join(", "))
}
