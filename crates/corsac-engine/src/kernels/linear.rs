//! Linear layers in the precision of their program.

use super::ApplyEpilogue;
use super::bf16::linear::Bf16Linear;
use super::blocked::linear::LinearKernel;

/// A linear layer in the precision of its program.
#[derive(Debug)]
pub(crate) enum Linear {
    F32(LinearKernel),
    Bf16(Bf16Linear),
}

impl Linear {
    /// Writes a row of outputs for each row of `input`. Calls `epilogue(at, chunk)` with each piece
    /// of the result, which begins at element `at`.
    pub(crate) fn run(
        &self,
        input: &[f32],
        workspace: &mut [f32],
        out: &mut [f32],
        epilogue: ApplyEpilogue<'_>,
    ) {
        match self {
            Self::F32(kernel) => kernel.run(input, workspace, out, epilogue),
            Self::Bf16(kernel) => kernel.run(input, workspace, out, epilogue),
        }
    }
}
