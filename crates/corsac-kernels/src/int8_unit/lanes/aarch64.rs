//! Vectors of sums, of 128 bits.

use std::arch::aarch64::{
    int32x4_t, uint8x16_t, vaddq_s32, vdupq_n_s32, vdupq_n_u8, veorq_u8, vld1q_s32,
    vreinterpretq_u8_s32, vst1q_s32, vsubq_s32,
};
use std::arch::{asm, is_aarch64_feature_detected};

use super::{Lanes, Vector};

/// Whether the processor has dot products of signed bytes.
pub(crate) fn has_dot_product() -> bool {
    is_aarch64_feature_detected!("neon") && is_aarch64_feature_detected!("dotprod")
}

impl Vector for int32x4_t {
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the processor has NEON.
        unsafe { vdupq_n_s32(0) }
    }
    #[inline(always)]
    unsafe fn load(from: *const i32) -> Self {
        // SAFETY: the processor has NEON, and four integers can be read.
        unsafe { vld1q_s32(from) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut i32) {
        // SAFETY: the processor has NEON, and four integers can be written.
        unsafe { vst1q_s32(to, self) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the processor has NEON.
        unsafe { vaddq_s32(self, other) }
    }
    #[inline(always)]
    unsafe fn quad(from: *const u8) -> Self {
        // SAFETY: the processor has NEON, and four bytes can be read.
        unsafe { vdupq_n_s32(from.cast::<i32>().read_unaligned()) }
    }
}

/// Dot products of signed bytes. Bytes of rows are made signed by taking 128 away; a row of zeros, which
/// become -128, has what that adds to each sum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DotProduct;

impl Lanes for DotProduct {
    type Sums = int32x4_t;
    type Weights = uint8x16_t;
    type Row = uint8x16_t;

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> uint8x16_t {
        // SAFETY: the processor has NEON, and four quads can be read.
        unsafe { vreinterpretq_u8_s32(vld1q_s32(from.cast())) }
    }
    #[inline(always)]
    unsafe fn row(from: *const u8) -> uint8x16_t {
        // SAFETY: the processor has NEON, and a quad can be read.
        unsafe {
            let quad: int32x4_t = Vector::quad(from);
            veorq_u8(vreinterpretq_u8_s32(quad), vdupq_n_u8(128))
        }
    }
    #[inline(always)]
    unsafe fn dot(sums: int32x4_t, row: uint8x16_t, weights: uint8x16_t) -> int32x4_t {
        let mut sums = sums;
        // SAFETY: the processor has dot products, with which the caller is compiled.
        unsafe {
            asm!(
                "sdot {sums:v}.4s, {row:v}.16b, {weights:v}.16b",
                sums = inout(vreg) sums,
                row = in(vreg) row,
                weights = in(vreg) weights,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        sums
    }
    #[inline(always)]
    unsafe fn excess(excess: int32x4_t, weights: uint8x16_t) -> int32x4_t {
        // SAFETY: by the contract.
        unsafe { Self::dot(excess, vdupq_n_u8(128), weights) }
    }
    #[inline(always)]
    unsafe fn without(sums: int32x4_t, excess: int32x4_t) -> int32x4_t {
        // SAFETY: the processor has NEON.
        unsafe { vsubq_s32(sums, excess) }
    }
}
