"""Runs the same program under torch.fx and corsac.fx, and compares the recordings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx

import corsac.fx
from corsac import _core

PACKAGES = (torch.fx, corsac.fx)


def node_list(graph: Any) -> list[tuple[Any, ...]]:
    """The nodes of a graph of either package, as comparable values."""
    return [
        (
            node.op,
            node.name,
            node.target if isinstance(node.target, str) else getattr(node.target, "__name__", None),
            str(node.args),
            str(node.kwargs),
            node.type,
            str({k: v for k, v in node.meta.items() if k in ("nn_module_stack", "is_wrapped")}),
        )
        for node in graph.nodes
    ]


def record(fx: Any, root: Any, concrete_args: Any = None, tracer: Any = None, **options: Any):
    """The result of tracing: the nodes, and the tracer's data about modules."""
    tracer = (tracer or fx.Tracer)(**options)
    nodes = node_list(tracer.trace(root, concrete_args))
    return {
        "nodes": nodes,
        "scopes": tracer.node_name_to_scope,
        "calls": list(tracer.num_calls.items()),
        "open": (tracer.scope.module_path, dict(tracer.module_stack), tracer.submodule_paths),
        "constants": sorted(tracer.tensor_attrs.values()),
    }


def outcome(program: Callable[[Any], Any], fx: Any) -> tuple[str, Any]:
    try:
        return "value", program(fx)
    except Exception as error:
        return "error", error


def assert_same(program: Callable[[Any], Any]) -> None:
    """Check that a program gives equal values, or exceptions of the same class (or a subclass)."""
    (kind, expected), (our_kind, ours) = (outcome(program, fx) for fx in PACKAGES)
    assert _core.active_traces() == 0
    if kind == our_kind == "error":
        assert isinstance(ours, type(expected)), (expected, ours)
        return
    assert (our_kind, ours) == (kind, expected)
