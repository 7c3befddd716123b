//! What generation needs of a model.

use std::ops::Range;

use crate::error::GenerateError;
use crate::request::TextLimits;

/// A model that reads tokens, with caches for what it has read: rows of sequences, and a column for each token.
pub(crate) trait Steps {
    /// The caches of a number of rows and columns.
    type Caches;

    fn limits(&self) -> &TextLimits;

    fn new_caches(&self, rows: usize, columns: usize) -> Result<Self::Caches, GenerateError>;

    fn columns(caches: &Self::Caches) -> usize;

    /// Copies columns of a row to a row and column of other caches, or of the same model with other sizes. The other
    /// columns of the row become zeros: what is masked must be finite.
    fn copy(
        &self,
        from: &Self::Caches,
        row: usize,
        columns: Range<usize>,
        to: &mut Self::Caches,
        place: (usize, usize),
    ) -> Result<(), GenerateError>;

    /// Reads tokens, as many for each row, and gives the logits after the last of each.
    fn read(&self, caches: &mut Self::Caches, step: &Step<'_>) -> Result<Vec<f32>, GenerateError>;
}

/// Tokens that are read at once.
#[derive(Debug)]
pub(crate) struct Step<'a> {
    /// Those of each row, row by row.
    pub(crate) tokens: &'a [u32],
    /// For each row, how many tokens it has read before; they are in the columns before `column`.
    pub(crate) read: &'a [usize],
    /// Where the first token of each row goes.
    pub(crate) column: usize,
}
