"""torch's operator samples through ``torch.compile(backend="corsac")``: values and gradients are eager's."""

import pytest

from kit.compiled_samples import compare
from kit.operator_samples import entries, full_name

OPERATORS = list(entries())
#: Always run: one operator of each kind that occurs in backward graphs of models.
QUICK = frozenset(
    [
        "add",
        "addmm",
        "atan2",
        "bernoulli",
        "bmm",
        "cat",
        "clamp",
        "cumsum",
        "diagonal",
        "div",
        "einsum",
        "expand",
        "gather",
        "index_select",
        "logsumexp",
        "masked_fill",
        "matmul",
        "max",
        "mean",
        "mul",
        "native_layer_norm",
        "nn.functional.adaptive_avg_pool1d",
        "nn.functional.avg_pool2d",
        "nn.functional.batch_norm",
        "nn.functional.conv2d",
        "nn.functional.cross_entropy",
        "nn.functional.dropout",
        "nn.functional.embedding",
        "nn.functional.gelu",
        "nn.functional.glu",
        "nn.functional.group_norm",
        "nn.functional.hardtanh",
        "nn.functional.interpolate",
        "nn.functional.layer_norm",
        "nn.functional.leaky_relu",
        "nn.functional.linear",
        "nn.functional.pad",
        "nn.functional.relu",
        "nn.functional.rms_norm",
        "nn.functional.scaled_dot_product_attention",
        "nn.functional.silu",
        "normal",
        "permute",
        "pow",
        "randn",
        "rsqrt",
        "scatter_add",
        "select",
        "slice",
        "softmax",
        "sort",
        "split",
        "squeeze",
        "stack",
        "std",
        "sub",
        "sum",
        "tanh",
        "transpose",
        "tril",
        "unfold",
        "where",
    ]
)


@pytest.mark.parametrize("op", [op for op in OPERATORS if op.name in QUICK], ids=full_name)
def test_common_operators(op):
    assert compare(op, 2).failing == []


@pytest.mark.slow
@pytest.mark.parametrize("op", OPERATORS, ids=full_name)
def test_all_operators(op):
    assert compare(op, 10).failing == []


def test_some_operators_are_native_both_ways():
    by_name = {full_name(op): op for op in OPERATORS}
    for name in (
        "mul",
        "bmm",
        "nn.functional.gelu",
        "nn.functional.layer_norm",
        "softmax",
        "std",
    ):
        found = compare(by_name[name], 1)
        assert found.places == {"native": 1}, found
        assert found.gradients == 1
    assert compare(by_name["nn.functional.conv2d"], 1).places == {"partly native": 1}
