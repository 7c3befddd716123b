//! Kernels that need processor features beyond safe Rust.
//!
//! [`bf16`] and [`mod@f16`] round numbers to types of 16 bits; [`bf16_unit`] multiplies matrices of
//! bfloat16 numbers with tiles or dot products (Intel, Architecture Instruction Set Extensions,
//! chapters "Intel AMX" and "AVX512_BF16"), [`int8_unit`] and [`int8_depthwise`] those of bytes;
//! [`int8`] converts numbers to bytes and back; [`weight_only`] multiplies single-precision rows with
//! weights of 4 or 8 bits, [`double_product`] those of double precision. The functions are safe to call: they check bounds, and whether the
//! processor and the system support the instructions. [`transpose`] transposes single-precision
//! matrices, [`gather`] reads numbers by index, [`scatter`] combines them with others by index, and
//! [`cast`] converts them to integers. Unsafe code is confined to the modules `x86_64`, `tiles`, `dots`,
//! `matrices`, `lanes`, `vectors` and `portable` of these and to calls of them, to the sums of a block in
//! [`int8_unit`], to `amx` and `prefetch`, and to one line of [`scatter`].
//!
//! This crate knows nothing of graphs, programs or threads.
//!
//! ```
//! use corsac_kernels::transpose::transpose;
//!
//! let mut columns = [0.0; 6];
//! transpose(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3, &mut columns, 2, [2, 3]);
//! assert_eq!(columns, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
//! ```

#[cfg(target_arch = "x86_64")]
mod amx;
pub mod bf16;
pub mod bf16_unit;
pub mod cast;
pub mod double_product;
pub mod f16;
pub mod gather;
pub mod int8;
pub mod int8_depthwise;
pub mod int8_unit;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod prefetch;
pub mod scatter;
pub mod transpose;
pub mod weight_only;
