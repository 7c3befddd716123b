//! Tensors that models take and give.

use corsac_ir::DType;

use super::error::ModelError;

/// A tensor of `f32`, row by row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tensor {
    shape: Vec<usize>,
    elements: Vec<f32>,
}

impl Tensor {
    /// The tensor of this shape with these elements, row by row.
    ///
    /// # Errors
    /// If the shape has another number of elements.
    pub fn new(
        shape: impl Into<Vec<usize>>,
        elements: impl Into<Vec<f32>>,
    ) -> Result<Self, ModelError> {
        let (shape, elements) = (shape.into(), elements.into());
        let expected = shape
            .iter()
            .try_fold(1_usize, |len, &size| len.checked_mul(size));
        if expected == Some(elements.len()) {
            return Ok(Self { shape, elements });
        }
        Err(ModelError::Tensor {
            shape,
            got: elements.len(),
        })
    }

    /// Its sizes, outermost dimension first.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Its elements, row by row.
    #[must_use]
    pub fn elements(&self) -> &[f32] {
        &self.elements
    }

    /// Its elements, row by row.
    #[must_use]
    pub fn into_elements(self) -> Vec<f32> {
        self.elements
    }
}

/// What is known of an input, a result or a weight without its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// What it is called.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// Its sizes, outermost dimension first.
    pub shape: Vec<usize>,
}

impl std::fmt::Display for TensorSpec {
    /// `x: float32[1, 3, 224, 224]`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}{:?}", self.name, self.dtype.name(), self.shape)
    }
}
