"""Every pass of the registry on random programs: results are unchanged."""

import functools

import pytest
import torch
import torch.utils._pytree as pytree
from hypothesis import given, settings

import corsac.fx
from corsac.fx.passes.shape_prop import ShapeProp
from corsac.passes import simplify
from corsac.passes._registry import REGISTRY
from generated.programs import Holder, programs


def softplus(x):
    return torch.maximum(x, torch.zeros_like(x))


#: Passes with arguments.
TOLD = {
    "decompose": functools.partial(REGISTRY["decompose"], rules={torch.relu: softplus}),
    "reinplace": functools.partial(REGISTRY["reinplace"], gradients=False),
    "replace_op": functools.partial(REGISTRY["replace_op"], table={torch.neg: torch.negative}),
    "rewrite": functools.partial(
        REGISTRY["rewrite"],
        rules="twice: add(?x, ?y) => torch.sub(?x, torch.neg(?y))  if node(?x) and node(?y)",
    ),
}
#: Tolerances of passes that change results: the precision that they ask for, or rounding.
ROUNDED = {
    "autocast": 5e-2,
    "change_true_div_to_mul_by_inverse": 1e-5,
    "fuse_bias_in_linear": 1e-5,
    "fuse_conv_bn": 1e-5,
    "merge_linears": 1e-5,
    "optimize_layout": 1e-5,
}


PASSES = {name: TOLD.get(name, function) for name, function in REGISTRY.items()}
PASSES["simplify, fast math"] = functools.partial(simplify, fast_math=True)
PASSES["saturate, fast math"] = functools.partial(
    REGISTRY["saturate"], fast_math=True, max_nodes=300, iterations=5
)
PASSES["saturate"] = functools.partial(REGISTRY["saturate"], max_nodes=300, iterations=5)
ROUNDED |= {"simplify, fast math": 1e-4, "saturate, fast math": 1e-4}


@pytest.mark.parametrize("name", sorted(PASSES))
def test_results_are_as_before(name):
    @settings(max_examples=25, deadline=None)
    @given(programs)
    def check(program):
        inputs = program.inputs()
        with torch.no_grad():
            gm = corsac.fx.GraphModule(Holder().eval(), program.build(corsac.fx)).eval()
            expected = pytree.tree_leaves(gm(*[x.clone() for x in inputs]))
            expected = [x.clone() for x in expected if isinstance(x, torch.Tensor)]
            ShapeProp(gm).propagate(*[x.clone() for x in inputs])
            PASSES[name](gm)
            gm.graph.lint()
            gm.recompile()
            given_inputs = [x.clone() for x in inputs]
            found = [
                x for x in pytree.tree_leaves(gm(*given_inputs)) if isinstance(x, torch.Tensor)
            ]
        assert all(torch.equal(x, y) for x, y in zip(inputs, given_inputs, strict=True))
        tolerance = ROUNDED.get(name, 0.0)
        assert len(found) == len(expected)
        for x, y in zip(found, expected, strict=True):
            if name != "autocast":
                assert x.dtype == y.dtype and x.shape == y.shape
            torch.testing.assert_close(
                x.float(), y.float(), rtol=tolerance, atol=tolerance, equal_nan=True
            )

    check()
