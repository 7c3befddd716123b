"""The passes by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from corsac.fx.experimental._inference import optimize_layout
from corsac.optimum._passes import (
    change_true_div_to_mul_by_inverse,
    fuse_batch_norm_1d_in_linear,
    fuse_batch_norm_2d_in_conv_2d,
    fuse_bias_in_linear,
    merge_linears,
)
from corsac.passes._autocast import autocast
from corsac.passes._cleaning import (
    canonicalize,
    common_subexpressions,
    eliminate_dead_code,
    remove_no_ops,
)
from corsac.passes._constants import fold_constants
from corsac.passes._conversion import functions_to_modules, modules_to_functions
from corsac.passes._decompose import decompose
from corsac.passes._dropout import remove_dropout
from corsac.passes._fusion import fuse_conv_bn
from corsac.passes._normal_form import functions_to_operators, keyword_arguments
from corsac.passes._products import merge_matmul
from corsac.passes._reinplace import reinplace
from corsac.passes._replace_op import replace_op
from corsac.passes._rules import rewrite, simplify
from corsac.passes._saturate import saturate

#: Every pass that changes a graph module in place. A pass that is missing here is missing from the
#: tests that go over all passes.
REGISTRY: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        autocast,
        canonicalize,
        change_true_div_to_mul_by_inverse,
        common_subexpressions,
        decompose,
        eliminate_dead_code,
        fold_constants,
        functions_to_modules,
        functions_to_operators,
        fuse_batch_norm_1d_in_linear,
        fuse_batch_norm_2d_in_conv_2d,
        fuse_bias_in_linear,
        fuse_conv_bn,
        keyword_arguments,
        merge_linears,
        merge_matmul,
        modules_to_functions,
        optimize_layout,
        reinplace,
        remove_dropout,
        remove_no_ops,
        replace_op,
        rewrite,
        saturate,
        simplify,
    )
}
