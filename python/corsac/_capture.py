"""``corsac.capture``: what a model does with certain inputs, as a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from corsac._compiled_function import module_of
from corsac._engine_module import EngineModule
from corsac._example_inputs import ExampleInputs, as_tuple
from corsac._recorder import Refusal
from corsac._recordings import record_at_once
from corsac._stand_in import root_of
from corsac.fx import GraphModule, symbolic_trace
from corsac.fx.proxy import TraceError


def capture(model: Callable[..., Any], example_inputs: ExampleInputs) -> GraphModule:
    """The graph of what ``model`` does with inputs such as these, whatever it decides in Python.

    The model is called, and watched: control flow, hooks and other Python code are as they are in that call, and
    sizes may have become numbers in the graph. :func:`corsac.fx.symbolic_trace` makes graphs for all sizes, of
    models that decide nothing by them.

    Args:
        model: a module, a bound method or a function of tensors. Modules in training mode that draw random numbers
            or write to buffers are refused.
        example_inputs: what it is called with: the placeholders, in this order.

    Returns:
        A graph module of functions of PyTorch, with the model's parameters and buffers under their names. If the
        model returns other objects than tuples, lists and dictionaries of tensors, it returns a tuple of the
        tensors in them.

    Raises:
        TraceError: values decide what the model does, or it does something that no graph says.
    """
    inputs = as_tuple(example_inputs)
    for number, own in enumerate(inputs):
        if not isinstance(own, torch.Tensor):
            raise TypeError(f"example input {number} is a {type(own).__name__}, not a tensor")
    program = module_of(model)
    if isinstance(program, EngineModule):
        program = program._callable
    with torch.no_grad():
        # Each by itself, so that each is a placeholder, and row by row.
        inputs = tuple(own.clone(memory_format=torch.contiguous_format) for own in inputs)
        recorded = record_at_once(root_of(program), program, inputs)
    if isinstance(recorded, Refusal):
        raise TraceError(f"the model is no graph: {recorded.reason}")
    return recorded.module


def graph_of(model: torch.nn.Module, example_inputs: Callable[[], ExampleInputs]) -> GraphModule:
    """The model as a graph for all sizes, or if it is none, for inputs such as these, which are made then.

    Raises:
        TraceError: it is neither.
    """
    try:
        return symbolic_trace(model)
    except Exception as error:
        # Programs may do anything with what stands for their inputs.
        try:
            return capture(model, example_inputs())
        except TraceError as other:
            raise other from error


__all__ = ["capture", "graph_of"]
