"""Captured models: the graph of a call, its inputs, and the structure of what it returns."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from corsac._capture.capture import recorded_call
from corsac.fx import Node
from corsac.fx.graph_module import GraphModule
from corsac.fx.node import has_side_effect
from corsac.fx.proxy import TraceError
from corsac.optimum.quantization._inputs import Inputs
from corsac.optimum.quantization._layers import layers_as_modules


@dataclass(frozen=True)
class Outputs:
    """The structure of a model's results.

    Attributes:
        spec: the containers, of the model's classes.
        places: for each tensor in them, its place among the results of the graph; several may be the same one.
        names: the names of the results, by the first key of each.
    """

    spec: Any
    places: tuple[int, ...]
    names: tuple[str, ...]

    def build(self, results: Any) -> Any:
        """The value that the model returns, with the results of the graph."""
        return _pytree.tree_unflatten([results[place] for place in self.places], self.spec)


@dataclass(frozen=True)
class Program:
    """A captured model: its graph returns a tuple of tensors."""

    module: GraphModule
    inputs: Inputs
    outputs: Outputs
    layers: list[str]


@has_side_effect
def require(found: Any, expected: Any, condition: str) -> None:
    """Check a condition on the sizes of inputs, under which a graph was captured.

    Raises:
        ValueError: it does not hold.
    """
    if found is not expected:
        raise ValueError(
            f"the model was captured for inputs of other sizes, where {condition}: quantise it with an example like this "
            "input"
        )


def captured(model: nn.Module, given: Mapping[str, Any]) -> Program:
    """The graph of a call of a model in evaluation mode, for all sizes of batches and sequences that it allows.

    Args:
        model: has ``nn.Linear`` in the place of other linear layers; its parameters are the graph's.
        given: the arguments, by name.

    Raises:
        TraceError: the call is no graph.
        ValueError: the model returns values that are no tensors.
    """
    inputs = Inputs.of(model, given)
    with torch.no_grad():
        # Some models complete their configuration in the first call.
        result = model(**given)
        shapes = {own.name: own.dynamic() for own in inputs.tensors}
        recorded = recorded_call(model, (), given, shapes)
    effects = [] if recorded.replay is None else recorded.replay.effects()
    if effects:
        raise TraceError(f"{type(model).__name__} changes state in Python: {effects[0]}")
    module = recorded.module
    nodes = module.graph.find_nodes(op="placeholder")
    if len(nodes) != len(inputs.tensors):
        raise TraceError(
            f"{type(model).__name__}: expected {len(inputs.tensors)} inputs of the graph, got {len(nodes)}: it has state that "
            "changes"
        )
    for node, own in zip(nodes, inputs.tensors, strict=True):
        node.target = own.name
    outputs = _outputs(module, result)
    if recorded.sizes is not None:
        recorded.sizes.as_nodes(module.graph, require)
    else:
        _fix(module, inputs)
    module.meta["guards"] = []
    module.recompile()
    layers = layers_as_modules(module, model)
    _compare(module, inputs, outputs, given, result)
    return Program(module, inputs, outputs, layers)


def _fix(module: GraphModule, inputs: Inputs) -> None:
    """Require the sizes of the example: the program depends on them in a way that is not known."""
    graph = module.graph
    nodes = graph.find_nodes(op="placeholder")
    with graph.inserting_before(graph.output_node()):
        for node, own in zip(nodes, inputs.tensors, strict=True):
            for dim, size in enumerate(own.shape):
                found = graph.call_function(
                    operator.eq, (graph.call_method("size", (node, dim)), size)
                )
                graph.call_function(require, (found, True, f"{own.name}.shape[{dim}] is {size}"))


def _outputs(module: GraphModule, result: Any) -> Outputs:
    """The structure of a result; the graph returns a tuple afterwards."""
    keyed, spec = _pytree.tree_flatten_with_path(result)
    known: dict[int, int] = {}
    places, names = [], []
    for path, leaf in keyed:
        if not isinstance(leaf, Tensor):
            raise ValueError(
                f"the model returns a {type(leaf).__name__} in {_pytree.keystr(path) or 'its result'}: expected tensors"
            )
        place = known.setdefault(id(leaf), len(known))
        if place == len(names):
            names.append(_name(path))
        places.append(place)
    output = module.graph.output_node()
    flat = [own for own in _pytree.tree_leaves(_plain(output.args[0])) if isinstance(own, Node)]
    flat = [*dict.fromkeys(flat)]
    if len(flat) != len(names):
        raise TraceError(
            f"the model returns {len(names)} tensors, of which the graph computes {len(flat)}"
        )
    output.args = (tuple(flat),)
    return Outputs(spec, tuple(places), tuple(names))


def _plain(value: Any) -> Any:
    """The containers of a node's arguments, as Python's own."""
    if isinstance(value, (list, tuple)):
        return [_plain(own) for own in value]
    if isinstance(value, dict):
        return [_plain(own) for own in value.values()]
    return value


def _name(path: tuple[Any, ...]) -> str:
    return str(getattr(path[0], "key", getattr(path[0], "idx", 0))) if path else "result"


def _compare(
    module: GraphModule, inputs: Inputs, outputs: Outputs, given: Mapping[str, Any], result: Any
) -> None:
    """Check that the graph computes what the model has computed."""
    with torch.no_grad():
        results = module(*(given[own.name] for own in inputs.tensors))
    for expected, place in zip(_pytree.tree_leaves(result), outputs.places, strict=True):
        if not torch.allclose(expected, results[place], rtol=1e-3, atol=1e-4, equal_nan=True):
            raise TraceError(f"the graph computes another {outputs.names[place]} than the model")
