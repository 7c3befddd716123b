"""Automatic mixed precision as a graph pass: the casts that ``torch.autocast`` makes, as nodes."""

from __future__ import annotations

from typing import Any

import torch

from corsac.fx.graph_module import GraphModule
from corsac.passes._budget import Budget
from corsac.passes._registry import registered
from corsac.passes._report import Report
from corsac.passes._target import run_pass


def cast(x: Any, dtype: torch.dtype) -> Any:
    """Cast ``x`` to ``dtype`` if it is a floating-point tensor other than float64, as autocast does."""
    if isinstance(x, torch.Tensor) and x.is_floating_point() and x.dtype != torch.float64:
        return x.to(dtype)
    return x


def widest(tensors: Any) -> Any:
    """Cast the tensors of a list to the widest floating-point type among them, unless one is float64."""
    dtypes = [x.dtype for x in tensors if isinstance(x, torch.Tensor) and x.is_floating_point()]
    if not dtypes or torch.float64 in dtypes:
        return tensors
    wide = torch.float32 if torch.float32 in dtypes else dtypes[0]
    return [cast(x, wide) for x in tensors]


@registered
def autocast(
    target: GraphModule, dtype: torch.dtype = torch.bfloat16, *, budget: Budget | None = None
) -> Report:
    """Insert the casts that ``torch.autocast("cpu", dtype)`` makes, so that the module computes in
    mixed precision by itself.

    Convolutions, linear layers, matrix products and attention run in ``dtype``, operators that need
    the range in float32, ``cat`` and ``stack`` in the widest type of their inputs, all others in the
    type of their inputs. A value is cast once, however often it is used. Linear layers and
    convolutions become functions of their parameters, which are cast as well: fold the casts with
    :func:`fold_constants`.

    Args:
        target: the module to change.
        dtype: bfloat16 or float16.
        budget: largest number of calls to insert casts for; see :class:`Budget`.

    Calls that write to their arguments, as with ``out=``, are left alone, and so are unknown modules
    and functions. The report lists them, and every call that got casts, with the type. Entries of
    ``node.meta`` about values whose type has changed are removed.
    """
    if dtype not in (torch.bfloat16, torch.float16):
        raise ValueError(f"autocast computes in bfloat16 or float16, not in {dtype}")
    layers = run_pass("modules to functions", target, budget=budget, drop=True, autocast=True)
    casts = run_pass("casts", target, budget=budget, dtype=dtype, cast=cast, widest=widest)
    sites = (*layers.kept, *casts.sites)
    return Report("autocast", sites, layers.nodes_before, casts.nodes_after)
