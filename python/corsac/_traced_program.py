"""Programs as graphs for all sizes, by corsac's own tracer, watched for what a graph would not do again."""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any

import torch

from corsac._native_graph import CompileError
from corsac._panic import as_compile_error
from corsac._stand_in import Shell
from corsac._trace_watch import WatchingTracer, watched_trace
from corsac.fx import GraphModule, Node
from corsac.fx._module_attributes import _get_attr
from corsac.fx.proxy import TraceError


@dataclass(frozen=True, slots=True)
class Captured:
    """A program as a graph.

    Attributes:
        module: the graph.
        made: the nodes that give tensors, or views of tensors, that were made when it was traced.
        outside: an operator that read other tensors then, whose result is a constant of the graph.
        read: tensors that the program reads, or read then, and that are no inputs, parameters or buffers,
            as :class:`corsac._core.Watch` takes them.
    """

    module: GraphModule
    made: set[Node]
    outside: str | None
    read: list[tuple[tuple[dict[str, Any], str] | None, torch.Tensor]]


def captured(model: torch.nn.Module) -> Captured:
    """The program that ``model`` is.

    Raises:
        CompileError: it is not written in Python, or corsac's tracer panicked.
        TraceError: corsac's own tracer cannot trace it, or its graph would do something else.
    """
    program = model.forward if isinstance(model, Shell) else model
    if not isinstance(program, torch.nn.Module | types.FunctionType):
        raise CompileError(f"{program!r} is neither a module nor a function in Python")
    tracer = WatchingTracer()
    try:
        with as_compile_error("it traced a program"), watched_trace() as watch:
            graph = tracer.trace(program)
    except (TraceError, CompileError):
        raise
    except Exception as error:
        # Programs may do anything with what stands for their inputs.
        raise TraceError(f"{type(error).__name__}: {error}") from error
    # Tensors that are made when a program is traced are with the tracer.
    root = tracer.root if isinstance(model, Shell) else model
    watch.check(graph, root)
    known = {id(own) for own in (*model.parameters(), *model.buffers())}
    read: dict[int, Any] = {id(own): (None, own) for own in watch.read if id(own) not in known}
    for node in graph.find_nodes(op="get_attr"):
        value = _get_attr(root, str(node.target))
        if not isinstance(value, torch.Tensor) or id(value) in known:
            continue
        if value.requires_grad:
            raise TraceError(f"{node.target} wants gradients, and is no input and no parameter")
        if not watch.made(value):
            owner, _, name = str(node.target).rpartition(".")
            attributes = root.get_submodule(owner).__dict__
            place = (attributes, name) if attributes.get(name) is value else None
            read[id(value)] = place, value
    if root is not model:
        root.training = False
    constants = watch.constants(graph, root)
    return Captured(GraphModule(root, graph), constants, watch.outside, list(read.values()))


__all__ = ["Captured", "captured"]
