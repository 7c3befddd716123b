//! Vectors of single-precision sums, of 128 bits. The target has NEON on all processors.

use std::arch::aarch64::{
    float32x4_t, uint32x4_t, vaddq_f32, vcvtq_f32_s32, vdupq_n_f32, vdupq_n_s32, vdupq_n_u32,
    veorq_u32, vfmaq_f32, vfmsq_f32, vld1q_f32, vld1q_s32, vld1q_u32, vreinterpretq_s32_u32,
    vshlq_s32, vshrq_n_s32, vst1q_f32,
};

use half::f16;

use super::{Lanes, shift, signs};

/// NEON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neon;

impl Lanes for Neon {
    type Floats = float32x4_t;
    type Words = uint32x4_t;
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn zero() -> float32x4_t {
        // SAFETY: the processor has NEON.
        unsafe { vdupq_n_f32(0.0) }
    }
    #[inline(always)]
    unsafe fn all(x: f32) -> float32x4_t {
        // SAFETY: the processor has NEON.
        unsafe { vdupq_n_f32(x) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> float32x4_t {
        // SAFETY: the processor has NEON, and four numbers can be read.
        unsafe { vld1q_f32(from) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, x: float32x4_t) {
        // SAFETY: the processor has NEON, and four numbers can be written.
        unsafe { vst1q_f32(to, x) }
    }
    #[inline(always)]
    unsafe fn halves(from: *const u16) -> float32x4_t {
        // SAFETY: the processor has NEON, and four halves can be read.
        unsafe {
            let halves = from.cast::<[u16; Self::LANES]>().read_unaligned();
            vld1q_f32(halves.map(|bits| f16::from_bits(bits).to_f32()).as_ptr())
        }
    }
    #[inline(always)]
    unsafe fn bytes(from: *const u8) -> float32x4_t {
        // SAFETY: the processor has NEON, and four bytes can be read.
        unsafe {
            let bytes = from.cast::<[i8; Self::LANES]>().read_unaligned();
            vcvtq_f32_s32(vld1q_s32(bytes.map(i32::from).as_ptr()))
        }
    }
    #[inline(always)]
    unsafe fn words<const BITS: usize>(from: *const u8) -> uint32x4_t {
        // SAFETY: the processor has NEON, and four words can be read.
        unsafe {
            veorq_u32(
                vld1q_u32(from.cast()),
                vdupq_n_u32(signs(BITS).cast_unsigned()),
            )
        }
    }
    #[inline(always)]
    unsafe fn weights<const BITS: usize>(words: uint32x4_t, at: usize) -> float32x4_t {
        // SAFETY: the processor has NEON.
        unsafe {
            let words = vreinterpretq_s32_u32(words);
            let highest = vshlq_s32(words, vdupq_n_s32(shift(BITS, at)));
            vcvtq_f32_s32(match BITS {
                4 => vshrq_n_s32::<28>(highest),
                _ => vshrq_n_s32::<24>(highest),
            })
        }
    }
    #[inline(always)]
    unsafe fn add(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: the processor has NEON.
        unsafe { vaddq_f32(a, b) }
    }
    #[inline(always)]
    unsafe fn add_product(sum: float32x4_t, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: the processor has NEON.
        unsafe { vfmaq_f32(sum, a, b) }
    }
    #[inline(always)]
    unsafe fn subtract_product(sum: float32x4_t, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: the processor has NEON.
        unsafe { vfmsq_f32(sum, a, b) }
    }
}
