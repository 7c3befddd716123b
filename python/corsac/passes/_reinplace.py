"""Operators that overwrite their inputs."""

from __future__ import annotations

import torch

from corsac.fx import Graph
from corsac.fx.graph_module import GraphModule
from corsac.passes._budget import Budget
from corsac.passes._registry import registered
from corsac.passes._report import Report
from corsac.passes._target import run_pass


@registered
def reinplace(
    target: GraphModule | Graph, *, gradients: bool | None = None, budget: Budget | None = None
) -> Report:
    """Let operators write their results into inputs that are not used afterwards, so that no memory is
    allocated for the results.

    ``torch.add(x, y)`` becomes ``x.add_(y)``, ``x + y`` becomes ``operator.iadd(x, y)``,
    ``F.relu(x)`` gets ``inplace=True``, ``nn.ReLU`` becomes that function, and operators of
    ``torch.ops.aten`` become their in-place overloads. Inputs of the program, parameters, values
    passed to unknown functions, and values used or returned later, themselves or through a view, are
    never overwritten.

    Most operators promote and broadcast: they are changed only where element types and shapes are
    known from ``node.meta["tensor_meta"]``, which :func:`corsac.analysis.propagate` writes and which
    have to hold for every call.

    Args:
        target: the module or graph to change.
        gradients: whether gradients may be computed through the program. Then only results that
            no gradient is computed from are overwritten, such as those of convolutions, linear
            layers and batch norms. The default is the mode in which this function is called: false
            under ``torch.no_grad()`` and ``torch.inference_mode()``. If gradients are computed
            nevertheless, PyTorch raises an error in ``backward``.
        budget: largest number of operators to change; see :class:`Budget`.

    The report lists every call of an operator with an in-place form: the value it overwrites, or the
    reason why it stays.

    Example::

        corsac.analysis.propagate(gm, x)
        with torch.no_grad():
            print(corsac.passes.reinplace(gm))
    """
    needed = torch.is_grad_enabled() if gradients is None else gradients
    return run_pass("in place", target, budget=budget, drop=True, gradients=needed)
