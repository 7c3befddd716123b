//! Kernels that need more of the processor than safe Rust gives.
//!
//! [`bf16`] rounds numbers to bfloat16; [`amx`] multiplies matrices of them with the tiles that
//! processors from Sapphire Rapids on have (Intel, Architecture Instruction Set Extensions, chapter
//! "Intel AMX"). The functions are safe to call: they check what they read and write, and whether the
//! processor and the system know the instructions. [`transpose`] turns matrices of single precision, [`gather`]
//! collects numbers, [`scatter`] combines them with others, and [`cast`] makes integers of them. What is unsafe lies in
//! the modules `x86_64` of these, and in one line of [`scatter`].
//!
//! This crate knows nothing of graphs, programs or threads.

pub mod amx;
pub mod bf16;
pub mod cast;
pub mod gather;
pub mod scatter;
pub mod transpose;
