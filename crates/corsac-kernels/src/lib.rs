//! Kernels that need processor features beyond safe Rust.
//!
//! [`bf16`] rounds numbers to bfloat16; [`amx`] multiplies matrices of them with the tiles that
//! processors from Sapphire Rapids on have (Intel, Architecture Instruction Set Extensions, chapter
//! "Intel AMX"). The functions are safe to call: they check bounds, and whether the processor and
//! the system support the instructions. [`transpose`] transposes single-precision matrices,
//! [`gather`] reads numbers by index, [`scatter`] combines them with others by index, and [`cast`]
//! converts them to integers. Unsafe code is confined to the modules `x86_64` of these, and one
//! line of [`scatter`].
//!
//! This crate knows nothing of graphs, programs or threads.

pub mod amx;
pub mod bf16;
pub mod cast;
pub mod f16;
pub mod gather;
pub mod scatter;
pub mod transpose;
