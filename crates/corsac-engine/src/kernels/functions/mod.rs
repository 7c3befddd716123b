//! Functions of single numbers, written so that the compiler makes vectors of them.
//!
//! They take numbers of single precision. There are no tables, and no branches but choices between numbers that are
//! there, so that a loop over any of them is one over vectors, for whatever instructions it is compiled; all of them are
//! compiled into the loop in any build (`inline(always)`), since a call has not its instructions.

pub(super) mod double;
pub(super) mod single;
#[cfg(test)]
mod tests;
pub(super) mod vectors;
