"""Every translation, against eager, on both runtimes."""

from __future__ import annotations

from typing import Any

import layer_cases
import operator_cases
import pytest
import torch
from operator_cases import Case

import corsac
from corsac.fx import GraphModule, Tracer
from corsac.lowering import LoweredPart

CASES = [*operator_cases.CASES, *layer_cases.CASES]


def traced(program: Any, count: int) -> GraphModule:
    """The program as a graph; a function has ``count`` inputs, whatever its signature."""
    if isinstance(program, torch.nn.Module):
        root, call = program.eval(), None
    else:
        root, call = torch.nn.Module().eval(), program
    if call is not None:
        names = [f"x{at}" for at in range(count)]
        given = ", ".join(names)
        scope: dict[str, Any] = {"call": call}
        exec(f"def forward(self, {given}):\n    return call({given})\n", scope)
        root = type("Program", (torch.nn.Module,), {"forward": scope["forward"]})().eval()
    graph = Tracer().trace(root)
    return GraphModule(root, graph).eval()


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_translation_agrees_with_eager(case: Case, backend: str):
    module = traced(case.program, len(case.inputs))
    lowered = corsac.lower(module, backend, case.inputs, min_nodes=0)
    stays = [row for row in lowered.meta["lowering"].placements if row.part is None]
    assert bool(stays) == (backend in case.stays), [f"{row.node}: {row.reason}" for row in stays]
    with torch.no_grad():
        expected = module(*[x.clone() for x in case.inputs])
    inputs = [x.clone() for x in case.inputs]
    actual = lowered(*inputs)
    torch.testing.assert_close(
        actual, expected, rtol=2e-5, atol=2e-6, check_stride=False, equal_nan=True
    )
    for before, after in zip(case.inputs, inputs, strict=True):
        assert torch.equal(before, after) or before.isnan().any()
    if not stays:
        assert any(isinstance(part, LoweredPart) for part in lowered.modules())


def test_names_of_cases_differ():
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
