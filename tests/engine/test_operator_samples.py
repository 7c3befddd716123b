"""Samples of torch's own operator tests on the engine: native and correct, or left to PyTorch."""

import pytest

from kit.operator_samples import entries, full_name, run

OPERATORS = list(entries())
#: Always run: operators of models. All others together take minutes.
QUICK = frozenset(
    [
        "add",
        "mul",
        "div",
        "pow",
        "where",
        "masked_fill",
        "cumsum",
        "gather",
        "index_select",
        "sort",
        "topk",
        "argmax",
        "amax",
        "sum",
        "mean",
        "var",
        "softmax",
        "nn.functional.gelu",
        "nn.functional.silu",
        "nn.functional.layer_norm",
        "nn.functional.group_norm",
        "nn.functional.linear",
        "nn.functional.embedding",
        "matmul",
        "bmm",
        "einsum",
        "cat",
        "stack",
        "permute",
        "expand",
        "repeat",
        "flip",
        "tril",
        "arange",
        "full",
        "nn.functional.interpolate",
        "floor_divide",
        "remainder",
        "eq",
        "logical_and",
    ]
)


@pytest.mark.parametrize("op", [op for op in OPERATORS if op.name in QUICK], ids=full_name)
def test_common_operators(op):
    outcome = run(op, 3)
    assert outcome.failing == []


@pytest.mark.slow
@pytest.mark.parametrize("op", OPERATORS, ids=full_name)
def test_all_operators(op):
    outcome = run(op, 10)
    assert outcome.failing == []
