"""The transformations as passes: functions that change a module in place and report."""

from __future__ import annotations

from corsac.fx.graph_module import GraphModule
from corsac.optimum._batch_norms import FuseBatchNorm1dInLinear, FuseBatchNorm2dInConv2d
from corsac.optimum._bias import FuseBiasInLinear
from corsac.optimum._division import ChangeTrueDivToMulByInverse
from corsac.optimum._merge import MergeLinears
from corsac.optimum._transformation import Transformation
from corsac.passes import Budget, Report
from corsac.passes._registry import registered


def _run(transformation: Transformation, gm: GraphModule, budget: Budget | None) -> Report:
    transformation(gm, budget=budget)
    report = transformation.report
    if report is None:
        raise AssertionError(f"{type(transformation).__name__} reports nothing")
    return report


@registered
def merge_linears(gm: GraphModule, *, budget: Budget | None = None) -> Report:
    """:class:`MergeLinears` as a pass."""
    return _run(MergeLinears(), gm, budget)


@registered
def fuse_bias_in_linear(gm: GraphModule, *, budget: Budget | None = None) -> Report:
    """:class:`FuseBiasInLinear` as a pass."""
    return _run(FuseBiasInLinear(), gm, budget)


@registered
def change_true_div_to_mul_by_inverse(gm: GraphModule, *, budget: Budget | None = None) -> Report:
    """:class:`ChangeTrueDivToMulByInverse` as a pass."""
    return _run(ChangeTrueDivToMulByInverse(), gm, budget)


@registered
def fuse_batch_norm_2d_in_conv_2d(gm: GraphModule, *, budget: Budget | None = None) -> Report:
    """:class:`FuseBatchNorm2dInConv2d` as a pass."""
    return _run(FuseBatchNorm2dInConv2d(), gm, budget)


@registered
def fuse_batch_norm_1d_in_linear(gm: GraphModule, *, budget: Budget | None = None) -> Report:
    """:class:`FuseBatchNorm1dInLinear` as a pass."""
    return _run(FuseBatchNorm1dInLinear(), gm, budget)
