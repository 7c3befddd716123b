"""Models that run as graphs, and are called as the models that they were captured from."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from corsac.fx import Node
from corsac.fx.graph_module import GraphModule
from corsac.optimum.quantization._config import QuantizationConfig
from corsac.optimum.quantization._inputs import Inputs
from corsac.optimum.quantization._pickling import Frozen
from corsac.optimum.quantization._program import Outputs, Program, require

#: The result that needs inputs that may be left out, such as labels.
_LOSS = "loss"


class GraphModel(nn.Module):
    """A model as a graph: it takes the arguments of the model that it was captured from, by name or position, and
    returns an object of the same class.

    Inputs that only the loss depends on may be left out; then there is no loss.

    Args:
        program: the captured model.
        module: the graph, which may be an observed or a quantised one.
        model: the captured model; its ``config`` is kept.

    Attributes:
        graph_module: the graph.
        config: of the captured model, if it has one.
        name: the class of the captured model.
        quantization_config: how it was quantised; None for prepared models, and for those of a ``QConfigMapping``.
        ranges: scale and zero point of quantised inputs of layers, by the names of their observers.
    """

    graph_module: GraphModule

    def __init__(self, program: Program, module: GraphModule, model: nn.Module) -> None:
        super().__init__()
        self.graph_module = module
        self.config = getattr(model, "config", None)
        self.name = type(model).__name__
        self.quantization_config: QuantizationConfig | None = None
        self.ranges: dict[str, tuple[float, int]] = {}
        self._inputs, self._outputs = program.inputs, program.outputs
        self._names = tuple(own.name for own in program.inputs.tensors)
        self._constants = tuple(program.inputs.constants.items())
        self._optional = _optional(module, program.inputs, program.outputs)
        self._alone: tuple[str, GraphModule] | None = None
        self.train(module.training)

    @property
    def inputs(self) -> Inputs:
        """The inputs of the graph."""
        return self._inputs

    @property
    def outputs(self) -> Outputs:
        """The results of the graph."""
        return self._outputs

    @property
    def optional_inputs(self) -> tuple[str, ...]:
        """The inputs that may be left out: only the loss depends on them."""
        return self._optional

    def check(self, given: Mapping[str, Any], where: str) -> None:
        """Check that the arguments of a call are those of the example; see :meth:`Inputs.check`."""
        without = [name for name in self._optional if given.get(name) is None]
        if len(without) < len(self._optional) or not without:
            self._inputs.check(given, where)
        else:
            self._inputs.without(without).check(given, where)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the model.

        Raises:
            TypeError: an argument is missing, or unknown.
            ValueError: an argument that is no tensor has another value than in the example, or sizes differ from those
                that the graph is for.
        """
        given = dict(kwargs)
        parameters = self._inputs.parameters
        if len(args) > len(parameters):
            raise TypeError(f"{self.name} takes {len(parameters)} arguments, got {len(args)}")
        for name, value in zip(parameters, args, strict=False):
            if name in given:
                raise TypeError(f"{self.name} got two values for {name}")
            given[name] = value
        tensors = [given.pop(name, None) for name in self._names]
        for name, value in self._constants:
            if given.pop(name, value) != value:
                raise ValueError(f"{self.name} was captured with {name}={value!r}")
        for name, value in given.items():
            if value is not None:
                raise TypeError(
                    f"{self.name} was quantised for the inputs {', '.join(self._names)}, got {name}, too: quantise it with "
                    "examples that have it"
                )
        missing = [name for name, own in zip(self._names, tensors, strict=True) if own is None]
        if not missing:
            return self._outputs.build(self.graph_module(*tensors))
        for name in missing:
            if name not in self._optional:
                raise TypeError(
                    f"{self.name} was quantised for the inputs {', '.join(self._names)}, got no {name}"
                )
        if len(missing) < len(self._optional):
            raise TypeError(f"{self.name}: expected all of {', '.join(self._optional)}, or none")
        given = dict(zip(self._names, tensors, strict=True))
        results = self._without_loss()(
            *(given[name] for name in self._names if name not in self._optional)
        )
        return self._build_without_loss(results)

    def _without_loss(self) -> GraphModule:
        """The graph without the loss; its modules and tensors are the same."""
        # Loading a state changes scales, which are numbers in the code.
        code = self.graph_module.code
        known = self._alone
        if known is None or known[0] != code:
            # In a tuple it is no submodule: its weights are in the state once.
            known = code, _without(self.graph_module, self._optional, self._outputs)
            self.__dict__["_alone"] = known
        return known[1]

    def _build_without_loss(self, results: Any) -> Any:
        whole = list(results)
        whole.insert(self._outputs.names.index(_LOSS), None)
        made = self._outputs.build(whole)
        # Objects of transformers have no keys for what is None.
        return type(made)(**{key: own for key, own in made.items() if own is not None})

    def __getstate__(self) -> dict[str, Any]:
        modules = {**self._modules, "graph_module": Frozen.of(self.graph_module)}
        return {**self.__dict__, "_alone": None, "_modules": modules}

    def __setstate__(self, state: dict[str, Any]) -> None:
        modules = {**state["_modules"]}
        modules["graph_module"] = modules["graph_module"].module()
        super().__setstate__({**state, "_modules": modules})

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModel:
        made = self.__class__.__new__(self.__class__)
        memo[id(self)] = made
        made.__dict__.update(copy.deepcopy({**self.__dict__, "_alone": None}, memo))
        return made

    def save_pretrained(self, directory: str | os.PathLike[str]) -> Path:
        """:func:`save_quantized`."""
        from corsac.optimum.quantization._saving import save_quantized

        return save_quantized(self, directory)

    def extra_repr(self) -> str:
        return f"{self.name}: {', '.join(map(str, self._inputs.tensors))}"


def _reached(start: Node) -> set[Node]:
    found, waiting = {start}, [start]
    while waiting:
        for user in waiting.pop().users:
            if user not in found:
                found.add(user)
                waiting.append(user)
    return found


def _optional(module: GraphModule, inputs: Inputs, outputs: Outputs) -> tuple[str, ...]:
    """The inputs that only the loss depends on."""
    if _LOSS not in outputs.names or len(outputs.names) == 1:
        return ()
    results = module.graph.output_node().args[0]
    others = {own for own, name in zip(results, outputs.names, strict=True) if name != _LOSS}
    nodes = module.graph.find_nodes(op="placeholder")
    return tuple(
        own.name
        for node, own in zip(nodes, inputs.tensors, strict=True)
        if not _reached(node) & others
    )


def _without(module: GraphModule, names: tuple[str, ...], outputs: Outputs) -> GraphModule:
    """A graph without the loss and the inputs that it alone depends on."""
    graph = copy.deepcopy(module.graph)
    output = graph.output_node()
    kept = [own for own, name in zip(output.args[0], outputs.names, strict=True) if name != _LOSS]
    output.args = (tuple(kept),)
    gone = [node for node in graph.find_nodes(op="placeholder") if node.target in names]
    lost = set().union(*map(_reached, gone))
    for node in reversed([*graph.nodes]):
        if node in lost and node.target is require:
            graph.erase_node(node)
    for node in reversed([*graph.nodes]):
        if node in lost:
            graph.erase_node(node)
    graph.eliminate_dead_code()
    made = GraphModule(module, graph)
    made.training = module.training
    for kind in ("_parameters", "_buffers", "_modules"):
        made.__dict__[kind] = module.__dict__[kind]
    return made


__all__ = ["GraphModel"]
