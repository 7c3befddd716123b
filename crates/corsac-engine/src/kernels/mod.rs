//! What steps do to elements. Shapes are checked when a program is made; slices have their lengths.

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

/// How many elements a piece of work has at least, to be worth a thread of its own.
pub(crate) const GRAIN: usize = 16 * 1024;
