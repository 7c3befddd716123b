//! Functions of single numbers, written so that the compiler vectorises them.
//!
//! They take numbers of single precision, those of [`wide`] of double precision. There are no tables, and no branches but selections
//! between computed numbers, so that a loop over any of them is vectorised for any instruction set.
//! All of them are inlined into the loop in any build (`inline(always)`), since a called function
//! would not use those instructions.

pub(super) mod double;
pub(super) mod multiply_add;
pub(super) mod single;
#[cfg(test)]
mod tests;
pub(super) mod vectors;
pub(super) mod wide;
