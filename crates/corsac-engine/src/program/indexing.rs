//! Writes to indexed places.

use smallvec::SmallVec;

/// Combination of an element at an indexed place with the one that is put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combination {
    /// The new element replaces the old one; of several, the last.
    Replace,
    /// The sum.
    Add,
    /// The product.
    Multiply,
    /// The larger one, NaN if one is.
    Largest,
    /// The smaller one, NaN if one is.
    Smallest,
}

/// Target of an indexed write: a strided region of a tensor, with some dimensions indexed.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexPut {
    /// Offset of the first element of the region.
    pub offset: usize,
    /// By index: the size of the indexed dimension, and its stride.
    pub indexed: SmallVec<[(usize, usize); 2]>,
    /// The dimensions of the indices, which all have one shape: sizes, and strides in the source.
    pub along: SmallVec<[(usize, usize); 4]>,
    /// The other dimensions: sizes, strides in the tensor, and strides in the source.
    pub rest: SmallVec<[(usize, usize, usize); 6]>,
    /// Whether negative indices count from the end.
    pub wraps: bool,
    /// Combination of the old and the new elements.
    pub combination: Combination,
}
