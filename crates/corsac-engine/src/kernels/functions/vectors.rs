//! Functions of vectors, for kernels that use vectors explicitly.

use rten_simd::ops::{BitOps, IntOps, NumOps};
use rten_simd::{Isa, Simd};

use super::single::{EXP, EXPONENT, LN_2_PARTS, ROUND};

/// [`exp_of_negative`](super::single::exp_of_negative) of each number.
#[inline(always)]
pub(in crate::kernels) fn exp_of_negative<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    let (ops, integers) = (isa.f32(), isa.i32());
    let least = ops.splat(-EXPONENT);
    let is_far = ops.lt(x, least);
    let near = ops.select(least, x, is_far);
    let round = ops.splat(ROUND);
    let rounded = ops.mul_add(near, ops.splat(std::f32::consts::LOG2_E), round);
    let n = ops.sub(rounded, round);
    let r = ops.mul_add(n, ops.splat(-LN_2_PARTS[0]), near);
    let r = ops.mul_add(n, ops.splat(-LN_2_PARTS[1]), r);
    let [first @ .., last] = EXP;
    let mut sum = ops.splat(last);
    for coefficient in first.into_iter().rev() {
        sum = ops.mul_add(sum, r, ops.splat(coefficient));
    }
    let power: I::F32 = integers
        .shift_left::<23>(rounded.reinterpret_cast())
        .reinterpret_cast();
    ops.select(ops.zero(), ops.mul(power, sum), is_far)
}
