"""Scales, zero points and ranges of quantised values as a part of the state of graph modules.

They are numbers in the code, so that graphs can be compiled, and in state dicts as ``{value}_scale_0``,
``{value}_zero_point_0`` and ``{value}_quant_range_0``, by the module, function or input whose value is quantised, and a
number where there are several. Names of nodes may change when a module is pickled.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from corsac.fx import _code_state

#: The places of scale, zero point and bounds among the arguments.
_SCALE, _ZERO_POINT, _BOUNDS = 1, 2, slice(3, 5)
#: The same by the parts of names in state dicts, and the types of the numbers.
_PARTS = (
    ("scale", slice(_SCALE, _SCALE + 1), float),
    ("zero_point", slice(_ZERO_POINT, _ZERO_POINT + 1), int),
    ("quant_range", _BOUNDS, int),
)


def quantised_values(module: Any) -> dict[tuple[str, int], list[Any]]:
    """The nodes that have one scale, quantise and dequantise nodes, by the name of the value and a number."""
    graph = module.__dict__.get("_graph")
    if graph is None:
        return {}
    quantise = torch.ops.corsac.quantize_per_tensor.default
    dequantise = torch.ops.corsac.dequantize_per_tensor.default
    found: dict[tuple[str, int], list[Any]] = {}
    numbers: dict[str, int] = {}
    # With others of a pair, a dequantise node has the numbers of the quantise node.
    seen: set[Any] = set()
    for target in (quantise, dequantise):
        for node in graph.find_nodes(op="call_function", target=target):
            if node in seen or len(node.args) < 6 or not _is_constant(node):
                continue
            own = [
                user
                for user in node.users
                if user.target is dequantise
                and user.args[0] is node
                and user.args[1:] == node.args[1:]
            ]
            seen.update(own)
            name = _name(node.args[0])
            number = numbers.get(name, 0)
            while hasattr(module, f"{name}_scale_{number}"):
                number += 1
            numbers[name] = number + 1
            found[name, number] = [node, *own]
    return found


def _name(node: Any) -> str:
    """The module, function, method, attribute or input that a node is of, as a part of a name."""
    target = node.target
    called = target if isinstance(target, str) else getattr(target, "__name__", node.name)
    return called.lstrip("*").replace(".", "_")


def _is_constant(node: Any) -> bool:
    return (
        hasattr(node.args[0], "name")
        and isinstance(node.args[_SCALE], float)
        and all(isinstance(bound, int) for bound in node.args[_ZERO_POINT : _BOUNDS.stop])
    )


def _number(value: float) -> torch.Tensor:
    """A number in single precision if that is exact."""
    single = torch.tensor(value, dtype=torch.float32)
    return single if single.item() == value else torch.tensor(value, dtype=torch.float64)


def _read(module: Any) -> dict[str, torch.Tensor]:
    state = {}
    for (name, number), nodes in quantised_values(module).items():
        args = nodes[0].args
        state[f"{name}_scale_{number}"] = _number(args[_SCALE])
        state[f"{name}_zero_point_{number}"] = torch.tensor(args[_ZERO_POINT])
        state[f"{name}_quant_range_{number}"] = torch.tensor(args[_BOUNDS])
    return state


def _write(module: Any, state: dict[str, torch.Tensor]) -> list[str]:
    errors, changed = [], False
    for (name, number), nodes in quantised_values(module).items():
        args = list(nodes[0].args)
        for part, place, kind in _PARTS:
            given = state.get(f"{name}_{part}_{number}")
            if given is None:
                continue
            if given.numel() == len(args[place]):
                args[place] = map(kind, given.flatten().tolist())
            else:
                wanted = "two numbers" if place is _BOUNDS else "one number"
                errors.append(f"{name}_{part}_{number}: expected {wanted}, got {given.numel()}")
        reason = _refusal(args)
        if reason is not None:
            errors.append(f"{name}: {reason}")
        elif args != list(nodes[0].args):
            changed = True
            for node in nodes:
                node.args = (node.args[0], *args[1:])
    if changed:
        module._refresh()
    return errors


def _refusal(args: list[Any]) -> str | None:
    """The reason why numbers cannot be those of a quantised value; None if they can."""
    scale, bounds = args[_SCALE], args[_BOUNDS]
    limits = torch.iinfo(args[5])
    if not (math.isfinite(scale) and scale > 0):
        return f"expected a positive scale, got {scale}"
    if not limits.min <= bounds[0] <= bounds[1] <= limits.max:
        return f"expected a range of {args[5]}, got {bounds}"
    return None


def _translate(module: Any, state: dict[str, Any], prefix: str) -> list[str]:
    from corsac.quantization.torch_ao._graph_states import translate

    return translate(module, quantised_values(module), state, prefix)


_code_state.register(_code_state.CodeState(_read, _write, _translate))
