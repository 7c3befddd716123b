//! Kernels of steps. Shapes are checked when a program is made; slices have matching lengths.

pub mod attention;
pub mod bf16;
pub mod blocked;
pub mod conv;
pub mod conv_nd;
mod depthwise;
pub(crate) mod double;
pub mod elementwise;
mod functions;
pub mod fused;
mod grouped;
pub mod indexing;
pub mod int8;
pub mod layout;
pub(crate) mod linear;
pub(crate) mod margins;
pub mod matmul;
pub mod normalise;
mod piece;
pub mod pool;
pub(crate) mod recurrent;
pub mod reduce;
pub(crate) mod resample;
pub mod result_tiles;
pub mod round_rows;
pub mod rows;
mod shifted;
pub(crate) mod small_product;
pub mod softmax;
pub mod sort;

/// Least number of elements of a piece of work that is worth a thread of its own.
pub(crate) const GRAIN: usize = 16 * 1024;

/// An epilogue: called with the start of a piece of a result, and the piece.
pub type ApplyEpilogue<'a> = &'a (dyn Fn(usize, &mut [f32]) + Sync);
