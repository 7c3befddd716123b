"""Captures a model and runs the passes on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from corsac import fx, passes
from corsac.analysis import ShapeInferenceError, propagate
from corsac.cli.capture import graph_module
from corsac.cli.failure import Failure
from corsac.cli.progress import working
from corsac.cli.timing import timed


@dataclass(frozen=True)
class Step:
    """Result of one pass."""

    name: str
    nodes_before: int
    nodes_after: int
    seconds: float
    #: The largest difference found by verification, if requested.
    error: float | None = None
    #: Sites that the pass changed, or did not, with the reason.
    sites: tuple[passes.Site, ...] = ()


#: The passes, in order. Fusion precedes the clean-up that it needs.
PASSES: tuple[tuple[str, Callable[[fx.GraphModule], Any]], ...] = (
    ("dropout removal", passes.remove_dropout),
    ("no-op removal", passes.remove_no_ops),
    ("Conv+BatchNorm fusion", passes.fuse_conv_bn),
    ("common subexpressions", passes.common_subexpressions),
    ("dead code", passes.eliminate_dead_code),
)


def capture_and_optimize(
    model: torch.nn.Module,
    inputs: Sequence[Any],
    *,
    verify: bool = False,
    tolerance: float | None = None,
) -> tuple[fx.GraphModule, list[Step]]:
    """The optimized model, which shares no changed module with ``model``, and the steps taken.

    ``inputs`` determine the number of dimensions of values, which folding a batch norm after a linear layer
    needs; with ``verify``, the model is run on them before and after each pass.
    """
    with working("capturing the model"):
        module, seconds = timed(lambda: graph_module(model, lambda: tuple(inputs)))
    nodes = len(module.graph.nodes)
    steps = [Step("capture", nodes, nodes, seconds)]
    for name, run in PASSES:
        with working(name), _types(module, inputs if run is passes.fuse_conv_bn else None):
            checked_on = list(inputs) if verify else None
            seconds, checked, report = _apply(run, module, checked_on, tolerance)
        nodes = len(module.graph.nodes)
        sites = report.sites if isinstance(report, passes.Report) else ()
        steps.append(Step(name, steps[-1].nodes_after, nodes, seconds, checked, sites))
    with working("generating code"):
        module.delete_all_unused_submodules()
        module.graph.lint()
        _, seconds = timed(lambda: (module.recompile(), module.code))
    steps.append(Step("Python code", nodes, nodes, seconds))
    return module, steps


@contextmanager
def _types(module: fx.GraphModule, inputs: list[Any] | None) -> Iterator[None]:
    """Context in which the types of all values are in ``meta``, if the graph has none yet."""
    known = inputs is None or any("tensor_meta" in node.meta for node in module.graph.nodes)
    if not known:
        try:
            propagate(module, inputs, fallback=False)
        except ShapeInferenceError:
            known = True
    try:
        yield
    finally:
        for node in module.graph.nodes if not known else ():
            for key in ("tensor_meta", "type"):
                node.meta.pop(key, None)


def _apply(
    run: Callable[[fx.GraphModule], Any],
    module: fx.GraphModule,
    verify: list[Any] | None,
    tolerance: float | None,
) -> tuple[float, float | None, Any]:
    """Run one pass, verified if requested; return the seconds taken, the largest error, and its report."""
    if verify is None:
        report, seconds = timed(lambda: run(module))
        return seconds, None, report
    manager = passes.PassManager([run], verify=verify, tolerance=tolerance)
    before = fx.GraphModule(module, module.graph.__deepcopy__({}))
    try:
        (step,) = manager(module).steps
    except passes.VerificationError as error:
        culprit = manager.bisect(before)
        raise Failure(f"{error}" + ("" if culprit is None else f"\n{culprit}")) from error
    assert step.agreement is not None
    return step.seconds, step.agreement.error, step.report
