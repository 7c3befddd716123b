"""Automatic mixed precision as a graph pass: the casts that ``torch.autocast`` makes, as nodes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from corsac.fx import Node
from corsac.fx.graph_module import GraphModule
from corsac.fx.node import map_arg
from corsac.passes._budget import Budget, current_budget
from corsac.passes._conversion import modules_to_functions
from corsac.passes._derive import derived
from corsac.passes._report import Report, Site

#: Operators that autocast runs in the lower precision on a CPU, by their own names. Source:
#: docs.pytorch.org/docs/stable/amp.html, "CPU Ops that autocast to bfloat16".
LOWER_PRECISION = frozenset(
    {
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "conv_tbc",
        "linear",
        "matmul",
        "mm",
        "bmm",
        "baddbmm",
        "addmm",
        "addbmm",
        "prelu",
        "scaled_dot_product_attention",
    }
)
#: Operators that autocast runs in float32 on a CPU. Source: as above.
SINGLE_PRECISION = frozenset(
    {
        "avg_pool3d",
        "binary_cross_entropy",
        "grid_sampler",
        "polar",
        "prod",
        "quantile",
        "nanquantile",
        "stft",
        "cdist",
        "trace",
        "view_as_complex",
        "cholesky",
        "cholesky_inverse",
        "cholesky_solve",
        "inverse",
        "lu_solve",
        "orgqr",
        "ormqr",
        "pinverse",
        "max_unpool2d",
        "max_unpool3d",
        "adaptive_avg_pool3d",
        "mse_loss",
        "cosine_embedding_loss",
        "nll_loss",
        "hinge_embedding_loss",
        "poisson_nll_loss",
        "smooth_l1_loss",
        "cross_entropy_loss",
        "l1_loss",
        "huber_loss",
        "margin_ranking_loss",
        "soft_margin_loss",
        "triplet_margin_loss",
        "multi_margin_loss",
        "ctc_loss",
        "kl_div",
        "multilabel_margin_loss",
        "binary_cross_entropy_with_logits",
    }
)
#: Operators that run in the widest type among their tensors. Source: as above.
WIDEST = frozenset({"stack", "cat", "index_copy"})
#: Python operators under the name of what they call.
_OPERATORS = {"_operator.matmul": "matmul", "operator.matmul": "matmul"}
#: Modules that call one operator of the lower precision on their weights.
_LAYERS = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)
#: Modules that call nothing that autocast casts for.
_NEUTRAL = (
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.ReLU,
    nn.ReLU6,
    nn.SiLU,
    nn.GELU,
    nn.Hardswish,
    nn.Hardsigmoid,
    nn.LeakyReLU,
    nn.ELU,
    nn.Sigmoid,
    nn.Tanh,
    nn.Softmax,
    nn.LogSoftmax,
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.Flatten,
    nn.Identity,
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.MaxPool3d,
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.Embedding,
)


def cast(x: Any, dtype: torch.dtype) -> Any:
    """``x`` in ``dtype`` if it is a floating-point tensor that autocast casts: not float64."""
    if isinstance(x, torch.Tensor) and x.is_floating_point() and x.dtype != torch.float64:
        return x.to(dtype)
    return x


def widest(tensors: Any) -> Any:
    """The tensors of a list in the widest floating-point type among them."""
    dtypes = [x.dtype for x in tensors if isinstance(x, torch.Tensor) and x.is_floating_point()]
    if not dtypes or torch.float64 in dtypes:
        return tensors
    wide = torch.float32 if torch.float32 in dtypes else dtypes[0]
    return [cast(x, wide) for x in tensors]


def autocast(
    target: GraphModule, dtype: torch.dtype = torch.bfloat16, *, budget: Budget | None = None
) -> Report:
    """Insert the casts that ``torch.autocast("cpu", dtype)`` makes, so that the module computes in
    mixed precision by itself.

    Convolutions, linear layers, matrix products and attention run in ``dtype``, what needs the range
    runs in float32, ``cat`` and ``stack`` in the widest type that they get, all else in what it
    gets. A value is cast once, however often it is used. Linear layers and convolutions become
    functions of their parameters, which are cast as well: fold the casts with
    :func:`fold_constants`.

    Args:
        target: the module to change.
        dtype: bfloat16 or float16.
        budget: how many calls may be cast for; see :class:`Budget`.

    The report lists every call that is cast for, and modules whose insides are not known, which run
    as they are.
    """
    if dtype not in (torch.bfloat16, torch.float16):
        raise ValueError(f"autocast computes in bfloat16 or float16, not in {dtype}")
    budget = current_budget(budget)
    graph, before = target.graph, len(target.graph.nodes)
    sites = list(modules_to_functions(target, classes=_LAYERS, budget=budget).kept)
    known: dict[tuple[Node, torch.dtype], Node] = {}
    for node in list(graph.nodes):
        label = node._pretty_print_target(node.target)
        if node.op == "call_module" and not any(site.node == node.name for site in sites):
            if not isinstance(target.get_submodule(node.target), _NEUTRAL):
                sites.append(Site(node.name, label, None, "what it calls inside is not known"))
            continue
        wanted = _precision(node, dtype)
        if wanted is None:
            continue
        if budget is not None and not budget.take():
            sites.append(Site(node.name, label, None, "the budget of changes is used up"))
            continue
        with graph.inserting_before(node):
            if wanted == "widest":
                first = node.args[0] if node.args else None
                if not isinstance(first, (tuple, list)):
                    continue
                wide = derived(node, "call_function", widest, (list(first),))
                node.args = (wide, *node.args[1:])
            else:
                _cast_inputs(node, wanted, known)
        sites.append(Site(node.name, label, str(wanted), None))
    report = Report("autocast", tuple(sites), before, len(graph.nodes))
    target.recompile()
    return report


def _precision(node: Node, dtype: torch.dtype) -> torch.dtype | str | None:
    """The type that a call runs in, if autocast casts for it."""
    if node.op == "call_method":
        name = str(node.target)
    elif node.op == "call_function":
        qualified = node._pretty_print_target(node.target)
        name = _OPERATORS.get(qualified)
        if name is None:
            module, _, name = qualified.rpartition(".")
            if qualified.startswith("torch.ops.aten."):
                name = qualified.split(".")[3]
            elif not module.startswith("torch"):
                return None
    else:
        return None
    if name in LOWER_PRECISION:
        return dtype
    if name in SINGLE_PRECISION:
        return torch.float32
    return "widest" if name in WIDEST else None


def _cast_inputs(
    node: Node, dtype: torch.dtype, known: dict[tuple[Node, torch.dtype], Node]
) -> None:
    """Cast what ``node`` is applied to; at the insertion point."""

    def cast_of(used: Node) -> Node:
        found = known.get((used, dtype))
        if found is None:
            found = derived(used, "call_function", cast, (used, dtype))
            # A value that is written to has to be cast again.
            if not _is_written(used):
                known[used, dtype] = found
        return found

    node.args = map_arg(node.args, cast_of)
    node.kwargs = map_arg(node.kwargs, cast_of)


def _is_written(node: Node) -> bool:
    from corsac.passes._effects import effects

    return any(effects(user).mutates for user in node.users)
