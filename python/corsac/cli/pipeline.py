"""Capturing a model and running the passes on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from corsac import fx, passes
from corsac.cli.failure import Failure, first_line
from corsac.cli.progress import working
from corsac.cli.timing import timed


@dataclass(frozen=True)
class Step:
    """What one pass did."""

    name: str
    nodes_before: int
    nodes_after: int
    seconds: float


#: What is run, in order. Fusion comes before the clean-up that it makes work for.
PASSES: tuple[tuple[str, Callable[[fx.GraphModule], Any]], ...] = (
    ("dropout removal", passes.remove_dropout),
    ("Conv+BatchNorm fusion", passes.fuse_conv_bn),
    ("common subexpressions", passes.common_subexpressions),
    ("dead code", passes.eliminate_dead_code),
)


def capture_and_optimize(model: torch.nn.Module) -> tuple[fx.GraphModule, list[Step]]:
    """The optimized model, which shares no changed module with ``model``, and how it came about."""
    with working("capturing the model"):
        try:
            module, seconds = timed(lambda: fx.symbolic_trace(model))
        except Exception as error:
            raise Failure(f"the model cannot be captured: {first_line(error, 1500)}") from error
    nodes = len(module.graph.nodes)
    steps = [Step("capture", nodes, nodes, seconds)]
    for name, run in PASSES:
        with working(name):
            _, seconds = timed(lambda run=run: run(module))
        nodes = len(module.graph.nodes)
        steps.append(Step(name, steps[-1].nodes_after, nodes, seconds))
    with working("generating code"):
        module.delete_all_unused_submodules()
        module.graph.lint()
        _, seconds = timed(lambda: (module.recompile(), module.code))
    steps.append(Step("Python code", nodes, nodes, seconds))
    return module, steps
