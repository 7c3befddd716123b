//! Products and sums that are rounded once.

/// Products and sums that are rounded once.
pub(in crate::kernels) trait MultiplyAdd {
    /// `self * factor + term`
    fn multiply_add(self, factor: Self, term: Self) -> Self;
}

impl MultiplyAdd for f32 {
    #[inline(always)]
    fn multiply_add(self, factor: f32, term: f32) -> f32 {
        if cfg!(target_family = "wasm") {
            // There is no instruction for it, and the function in its place is not vectorised. In double
            // precision the product is exact, and the error of the sum is 2^-29 of the last place here.
            return (f64::from(self) * f64::from(factor) + f64::from(term)) as f32;
        }
        self.mul_add(factor, term)
    }
}
