//! Attention over strided views.

use smallvec::SmallVec;

/// A strided view of the elements of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Offset of the first element.
    pub offset: usize,
    /// Its sizes.
    pub shape: SmallVec<[usize; 6]>,
    /// Strides in elements.
    pub strides: SmallVec<[usize; 6]>,
}

/// `softmax(query @ key.T * scale + mask) @ value`, for stacks of matrices, which are broadcast to
/// each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// `[…, rows, width]`
    pub query: View,
    /// `[…, keys, width]`
    pub key: View,
    /// `[…, keys, outputs]`
    pub value: View,
    /// `[…, rows, keys]`, or one row for all
    pub mask: Option<View>,
    /// `[…, rows, outputs]`
    pub result: View,
    /// Factor of the products.
    pub scale: f64,
    /// Whether a query sees no keys after it.
    pub causal: bool,
    /// Whether rows whose keys are all masked are zero; otherwise they are NaN.
    pub safe: bool,
}
