//! Kernels of steps. Shapes are checked when a program is made; slices have matching lengths.

pub mod attention;
pub mod bf16;
pub mod blocked;
pub mod conv;
mod depthwise;
pub mod elementwise;
mod functions;
pub mod fused;
pub mod generic;
mod grouped;
pub mod layout;
pub(crate) mod margins;
pub mod matmul;
pub mod normalise;
pub mod over;
mod piece;
pub mod pool;
pub mod put;
pub(crate) mod recurrent;
pub mod reduce;
pub(crate) mod resample;
mod shifted;
mod small_product;
pub mod softmax;
pub mod volume;

/// Least number of elements of a piece of work that is worth a thread of its own.
pub(crate) const GRAIN: usize = 16 * 1024;
