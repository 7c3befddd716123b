"""State dicts of graph modules that torch.ao has converted, for the same graphs converted by this package."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corsac._pytorch.quantised_parts import operator_name
from corsac.fx._module_attributes import get_submodule
from corsac.quantization._dtypes import full_range, quantised
from corsac.quantization._kinds import is_a
from corsac.quantization.torch_ao import _functions
from corsac.quantization.torch_ao._function_weights import FunctionWeights, entries
from corsac.quantization.torch_ao._graph_names import NAMES, GraphNames, ValueNames
from corsac.quantization.torch_ao._values import Steps
from corsac.quantization.torch_ao._weights import is_quantised

_ARITHMETIC = {operator.add: "add", torch.add: "add", operator.mul: "mul", torch.mul: "mul"}
#: Functions with results in the steps of their first input.
_KEEPING = _functions.SELECTING | _functions.ROUNDING | _functions.JOINING


def translate(
    module: Any, values: dict[tuple[str, int], list[Any]], state: dict[str, Any], prefix: str
) -> list[str]:
    """Put what a state dict of torch.ao has for a graph module under the names of this package.

    Args:
        module: a graph module of this package.
        values: the nodes of its quantised values, by name and number.
        state: the state dict, which is changed; others than those of torch.ao stay as they are.
        prefix: the beginning of the names of the module.

    Returns:
        Messages about what cannot be taken.
    """
    names = vars(module).get(NAMES)
    if not _is_theirs(names, values, state, prefix):
        return []
    if names is not None and names.keys == {*values}:
        return _Translation(module, values, state, prefix).errors_of(names)
    if not values:
        return []
    return [
        "the state dict is that of a graph module that torch.ao has converted, which names scales by its own graph, and "
        "this module's is not the one that convert_fx has made: load it into the result of convert_fx"
    ]


def _is_theirs(
    names: GraphNames | None,
    values: dict[tuple[str, int], list[Any]],
    state: dict[str, Any],
    prefix: str,
) -> bool:
    """Whether a state dict is that of a graph module that torch.ao has converted."""
    if any(f"{prefix}{name}_quant_range_{number}" in state for name, number in values):
        return False
    if any(
        "_packed_" in name or name.endswith("_qscheme") or is_quantised(value)
        for name, value in state.items()
        if name.startswith(prefix)
    ):
        return True
    if names is None:
        return False
    if any(
        prefix + own.scale in state and f"{prefix}{own.conversion.attribute}" not in state
        for own in names.weights
    ):
        return True
    # Names of this package may be names of torch.ao's, but not all of them.
    found = [own for own in names.values.values() if own and prefix + own.scale in state]
    return len(found) > sum(f"{prefix}{name}_scale_{number}" in state for name, number in values)


class _Translation:
    """A state dict of torch.ao under the names of this package.

    Where torch.ao runs operators of quantised types, it keeps no steps of results that have those of the input, or that
    the operator has chosen: they are found here from those of the inputs.

    Args:
        module, values, state, prefix: those of :func:`translate`.
    """

    def __init__(
        self,
        module: Any,
        values: dict[tuple[str, int], list[Any]],
        state: dict[str, Any],
        prefix: str,
    ) -> None:
        self._module, self._values = module, values
        self._state, self._prefix = state, prefix
        self._errors: list[str] = []
        #: The steps that were found, by the nodes of the value.
        self._steps: dict[Any, Steps] = {}
        self._made: dict[str, Any] = {}

    def errors_of(self, names: GraphNames) -> list[str]:
        """Change the state dict; the messages about what cannot be taken."""
        layers = {
            node.target
            for node in self._module.graph.find_nodes(op="call_module")
            if not hasattr(get_submodule(self._module, node.target), "scale")
        }
        given = {
            key: self._taken(own.scale, own.zero_point) for key, own in names.values.items() if own
        }
        of_layers = {
            path: self._taken(f"{path}.scale", f"{path}.zero_point") for path in sorted(layers)
        }
        used = set()
        for key in self._in_order():
            nodes, own = self._values[key], names.values.get(key)
            if own is None:
                continue
            layer = self._layer(nodes[0].args[0])
            found = given[key]
            if found is None and layer is not None:
                found = of_layers[layer]
                used.add(layer)
            steps = self._all_steps(nodes, own, found, layer)
            if steps is not None:
                self._made |= entries(*key, steps)
        for path, found in of_layers.items():
            # Dynamic layers of torch.ao have these numbers, and do not use them.
            if path not in used and found not in (None, (1.0, 0)):
                self._errors.append(
                    f"{self._prefix}{path}.scale: expected a layer whose result is quantised"
                )
        weights = FunctionWeights(self._state, self._prefix)
        weights.take(names, dict(self._module.named_parameters(remove_duplicate=False)))
        self._errors += weights.errors
        self._made |= weights.made
        self._fused(layers)
        self._state.update({self._prefix + name: value for name, value in self._made.items()})
        return self._errors

    def _in_order(self) -> list[tuple[str, int]]:
        """The keys of values in the order of the graph."""
        keys = {nodes[0]: key for key, nodes in self._values.items()}
        return [keys[node] for node in self._module.graph.nodes if node in keys]

    def _taken(self, scale: str, zero_point: str) -> tuple[float, int] | None:
        """Numbers of the state dict, which are taken out of it; None if it has not both."""
        names = self._prefix + scale, self._prefix + zero_point
        found = [self._state.get(name) for name in names]
        if not all(_is_number(value) for value in found):
            return None
        own = [self._state.pop(name) for name in names]
        return float(own[0]), int(own[1])

    def _all_steps(
        self, nodes: list[Any], own: ValueNames, found: tuple[float, int] | None, layer: str | None
    ) -> Steps | None:
        """The steps of a value, given those that the state dict has for it or for the layer that makes it."""
        node = nodes[0]
        dtype = quantised(node.args[5])
        steps = Steps(*found, dtype) if found is not None else self._chosen(node.args[0])
        if steps is None and own.fixed:
            steps = Steps(node.args[1], node.args[2], dtype)
        expected = None
        if steps is None:
            expected = f"the scale of {node.args[0]}"
        elif steps.dtype != dtype or not _holds(dtype, steps.zero_point):
            expected = (
                f"{dtype} for {node.args[0]}, got {steps.dtype} with zero point {steps.zero_point}"
            )
        if expected is not None:
            places = own.scale if layer is None else f"{own.scale} or {layer}.scale"
            self._errors.append(f"{self._prefix}{places}: expected {expected}")
            return None
        assert steps is not None
        self._steps.update(dict.fromkeys(nodes, steps))
        return steps

    def _chosen(self, value: Any) -> Steps | None:
        """The steps of the result of an operator of torch.ao that takes none; None if it takes some."""
        before = _first_input(value)
        if self._is_relu(value) and before is not None and _scalar(before) is not None:
            value = before
        steps = self._steps.get(_first_input(value))
        number = _scalar(value)
        if number is not None:
            operand = next((self._steps.get(one) for one in value.all_input_nodes), None)
            return None if operand is None else _functions.scalar_steps(*number, operand)
        if steps is None:
            return None
        name = self._name(value)
        if name in _functions.FIXED:
            return _functions.fixed_steps(name, steps)
        return steps if name in _KEEPING else None

    def _is_relu(self, node: Any) -> bool:
        if node.op == "call_module":
            return type(get_submodule(self._module, node.target)) is nn.ReLU
        return node.op == "call_function" and node.target in (F.relu, torch.relu)

    def _layer(self, value: Any) -> str | None:
        """The path of the module that makes a value, also with ReLU behind it; None if none does."""
        before = _first_input(value) if self._is_relu(value) else None
        layer = value if before is None or before.op != "call_module" else before
        return layer.target if layer.op == "call_module" else None

    def _name(self, node: Any) -> str:
        """The name of the function that a node calls, or that its module is for."""
        if node.op == "call_module":
            return _functions.of_class(type(get_submodule(self._module, node.target)).__name__)
        return node.target.strip("_") if node.op == "call_method" else operator_name(node.target)

    def _fused(self, layers: set[str]) -> None:
        """Name what fused layers have after the layer in them."""
        for path in layers:
            start = f"{self._prefix}{path}."
            own = [name for name in self._state if name.startswith(start)]
            if is_a(get_submodule(self._module, path), "_FusedModule") and not any(
                name.startswith(f"{start}0.") for name in own
            ):
                for name in own:
                    self._state[f"{start}0.{name.removeprefix(start)}"] = self._state.pop(name)


def _holds(dtype: torch.dtype, number: int) -> bool:
    low, high = full_range(dtype)
    return low <= number <= high


def _is_number(value: Any) -> bool:
    return isinstance(value, Tensor) and value.numel() == 1


def _first_input(node: Any) -> Any:
    """The first input of a node, the first of several if it is a tuple of them; None if that is no value."""
    first = next(iter([*node.args, *node.kwargs.values()]), None)
    if isinstance(first, list | tuple):
        first = next(iter(first), None)
    return first if hasattr(first, "users") else None


def _scalar(node: Any) -> tuple[str, float] | None:
    """The operation and the number of a sum or a product with a number; None for other nodes."""
    name = _ARITHMETIC.get(node.target) if node.op == "call_function" else None
    numbers = [own for own in node.args if isinstance(own, int | float)]
    if name is None or len(numbers) != 1 or len(node.args) != 2 or node.kwargs:
        return None
    return name, float(numbers[0])
