"""Conversion of modules to functions of their parameters, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from corsac.fx import Node
from corsac.fx.graph_module import GraphModule
from corsac.passes._budget import Budget
from corsac.passes._derive import unique_attribute
from corsac.passes._registry import registered
from corsac.passes._report import Report
from corsac.passes._target import drop_unused, graph_of, run_pass


@registered
def modules_to_functions(
    target: GraphModule,
    *,
    classes: tuple[type[nn.Module], ...] | None = None,
    budget: Budget | None = None,
) -> Report:
    """Replace calls of ``torch.nn`` modules by calls of the functions they call, on their parameters.

    ``self.linear(x)`` becomes ``F.linear(x, self.linear.weight, self.linear.bias)``. Parameters
    stay where they are. The present training mode of each module is used.

    Args:
        target: the module to change.
        classes: the classes to convert; all known ones by default.
        budget: largest number of calls to change; see :class:`Budget`.

    The report lists every call of a module, and the reason if it stays: the module has hooks, is of
    another class, or no single function computes the same.
    """
    wanted = {} if classes is None else {"classes": {_qualified_name(c) for c in classes}}
    return run_pass("modules to functions", target, budget=budget, drop=True, **wanted)


def _qualified_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


@registered
def functions_to_modules(target: GraphModule, *, budget: Budget | None = None) -> Report:
    """Replace calls of functions on attributes of the program by calls of ``torch.nn`` modules.

    Converts ``F.linear(x, w, b)`` with parameters ``w`` and ``b``, and activations such as
    ``F.relu(x)``. Modules share their parameters with the attributes; attributes that are no longer
    referenced are removed.

    The report lists every call of such a function, and the reason if it stays: a weight is not a
    parameter, or an argument is not a literal.
    """
    graph = graph_of(target)
    attributes = {node.target for node in graph.find_nodes(op="get_attr")}

    def make(requests: list[dict[str, Any]]) -> list[list[str]]:
        names = []
        for request in requests:
            name = unique_attribute(target, request["node"].name)
            target.add_submodule(name, _module(target, request))
            names.append([name])
        return names

    parameters = {name for name, _ in target.named_parameters(remove_duplicate=False)}
    report = run_pass(
        "functions to modules", target, budget=budget, make=make, parameters=parameters
    )
    if report.changed:
        gone = attributes - {node.target for node in graph.find_nodes(op="get_attr")}
        owners = {attribute.rpartition(".")[0] for attribute in gone} - {""}
        drop_unused(target, [*gone, *owners])
    return report


def _module(gm: GraphModule, request: dict[str, Any]) -> nn.Module:
    """The module that takes the place of a call, whose arguments the pass has checked."""
    node: Node = request["node"]
    kind: Callable[..., nn.Module] = getattr(nn, request["class"])
    paths = request["weight"], request["bias"]
    weight, bias = (None if path is None else gm.get_parameter(path) for path in paths)
    if weight is None:
        return kind(**node.kwargs).train(gm.training)
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    given: dict[str, Any] = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    settings = {key: value for key, value in given.items() if key not in names[:3]}
    with torch.device("meta"):
        if kind is nn.Linear:
            made = kind(weight.shape[1], weight.shape[0], bias is not None)
        else:
            channels = weight.shape[1] * settings.get("groups", 1)
            size = tuple(weight.shape[2:])
            made = kind(channels, weight.shape[0], size, bias=bias is not None, **settings)
    made._parameters["weight"], made._parameters["bias"] = weight, bias
    return made.train(gm.training)


__all__ = ["functions_to_modules", "modules_to_functions"]
