//! Products of matrices and linear algebra.

use super::Precision::{Lower, Single};
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("addbmm").autocast(Lower),
    operator("addmm").result_is_free().autocast(Lower),
    operator("baddbmm").result_is_free().autocast(Lower),
    operator("bilinear").modules("Bilinear").composed(),
    operator("bmm").result_is_free().autocast(Lower),
    operator("cdist").autocast(Single),
    operator("chain_matmul").autocast(Lower),
    operator("cholesky").autocast(Single),
    operator("cholesky_inverse").autocast(Single),
    operator("cholesky_solve").autocast(Single),
    operator("einsum").autocast(Lower),
    operator("inner").autocast(Lower),
    operator("inverse").autocast(Single),
    operator("linear").modules("Linear NonDynamicallyQuantizableLinear")
        .module_call("torch._C._nn.linear", "weight bias").result_is_free().autocast(Lower),
    operator("lu_solve").autocast(Single),
    operator("matmul linalg_matmul").result_is_free().autocast(Lower),
    operator("mm").result_is_free().autocast(Lower),
    operator("multi_dot").autocast(Lower),
    operator("orgqr").autocast(Single),
    operator("ormqr").autocast(Single),
    operator("pinverse").autocast(Single),
    operator("polar").autocast(Single),
    operator("tensordot").autocast(Lower),
    operator("trace").autocast(Single),
];
