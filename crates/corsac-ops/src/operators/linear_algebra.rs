//! Products of matrices and linear algebra.

use super::Precision::{Lower, LowerProducts, Single};
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("addbmm").autocast(Lower).relative_cost(50.0),
    operator("addmv"),
    operator("addmm").signature("input mat1 mat2 beta=1 alpha=1").result_is_free().autocast(Lower)
        .relative_cost(50.0),
    operator("baddbmm").result_is_free().autocast(Lower).relative_cost(50.0),
    operator("bilinear").modules("Bilinear").composed().relative_cost(50.0),
    operator("bmm").signature("input mat2").result_is_free().autocast(Lower).relative_cost(50.0),
    operator("cdist").autocast(Single),
    operator("chain_matmul").autocast(Lower),
    operator("cholesky").autocast(Single),
    operator("cholesky_inverse").autocast(Single),
    operator("cholesky_solve").autocast(Single),
    operator("dot"),
    operator("einsum").autocast(LowerProducts).relative_cost(50.0),
    operator("ger"),
    operator("inner").autocast(LowerProducts),
    operator("inverse").autocast(Single),
    operator("linear").signature("input weight bias=None").modules("Linear NonDynamicallyQuantizableLinear")
        .module_call("torch._C._nn.linear", "weight bias").result_is_free().autocast(Lower).relative_cost(50.0),
    operator("linalg_multi_dot multi_dot").autocast(Lower),
    operator("lu_solve").autocast(Single),
    operator("matmul linalg_matmul").signature("input other").result_is_free().autocast(Lower).relative_cost(50.0),
    operator("mm").signature("input mat2").result_is_free().autocast(Lower).relative_cost(50.0),
    operator("mv"),
    operator("orgqr").autocast(Single),
    operator("ormqr").autocast(Single),
    operator("outer"),
    operator("pinverse").autocast(Single),
    operator("polar").autocast(Single),
    operator("tensordot").autocast(LowerProducts).relative_cost(50.0),
    operator("trace").autocast(Single),
    operator("vdot"),
];
