//! Vectors of single-precision sums, of 128 bits. The target has NEON on all processors.

use std::arch::aarch64::{
    float32x4_t, uint32x4_t, vaddq_f32, vcvtq_f32_s32, vdupq_n_f32, vdupq_n_u32, veorq_u32,
    vfmaq_f32, vfmsq_f32, vld1q_f32, vld1q_s32, vld1q_u32, vreinterpretq_s32_u32, vshlq_n_s32,
    vshrq_n_s32, vshrq_n_u32, vst1q_f32,
};

use half::f16;

use super::Lanes;

/// NEON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neon;

impl Lanes for Neon {
    type Floats = float32x4_t;
    type Chunk = uint32x4_t;
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
    unsafe fn chunk(from: *const u8) -> uint32x4_t {
        // The weight plus 8 has the highest of its four bits where the weight, as a signed number,
        // has not.
        // SAFETY: the processor has NEON, and four times four bytes can be read.
        unsafe { veorq_u32(vld1q_u32(from.cast()), vdupq_n_u32(0x8888_8888)) }
    }
    #[inline(always)]
    unsafe fn next(chunk: uint32x4_t) -> (float32x4_t, uint32x4_t) {
        // SAFETY: the processor has NEON.
        unsafe {
            let weights = vshrq_n_s32::<28>(vshlq_n_s32::<28>(vreinterpretq_s32_u32(chunk)));
            (vcvtq_f32_s32(weights), vshrq_n_u32::<4>(chunk))
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
