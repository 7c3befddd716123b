"""Facts about nodes of exported graphs, of torch.fx as well as of corsac.fx."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch

aten = torch.ops.aten

CONVOLUTIONS = frozenset(
    getattr(getattr(aten, f"conv{rank}d"), overload)
    for rank in (1, 2, 3)
    for overload in ("default", "padding")
)
TRANSPOSED = frozenset(
    [aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input]
)
BATCH_NORMS = frozenset([aten.batch_norm.default])

_LINE = re.compile(r'File "([^"]+)", line (\d+)')


def described(node: Any) -> str:
    """A node with its line of the program outside PyTorch, for messages: ``conv2d (model.py:12)``."""
    lines = _LINE.findall(node.meta.get("stack_trace") or "")
    source = getattr(node, "source", None)
    if not lines and source is not None and source.file:
        lines = [(source.file, source.line)]
    if not lines:
        return str(node.name)
    path, number = next((one for one in reversed(lines) if "/torch/" not in one[0]), lines[-1])
    return f"{node.name} ({path.rpartition('/')[2]}:{number})"


def is_node(value: Any) -> bool:
    """Whether an argument is a node, of either package."""
    return isinstance(value, torch.fx.Node) or (
        hasattr(value, "all_input_nodes") and hasattr(value, "meta")
    )


def calls(node: Any, *targets: Any) -> bool:
    """Whether ``node`` calls one of these functions."""
    return is_node(node) and node.op == "call_function" and node.target in targets


def mapped(value: Any, change: Any) -> Any:
    """An argument with its nodes changed by a function."""
    if isinstance(value, (list, tuple)):
        parts = [mapped(one, change) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return {key: mapped(one, change) for key, one in value.items()}
    if isinstance(value, slice):
        return slice(*(mapped(one, change) for one in (value.start, value.stop, value.step)))
    return change(value) if is_node(value) else value


def argument(node: Any, name: str) -> Any:
    """An argument of a call of an operator, by its name in the schema."""
    for place, own in enumerate(node.target._schema.arguments):
        if own.name == name:
            if place < len(node.args):
                return node.args[place]
            return node.kwargs.get(name, own.default_value if own.has_default_value() else None)
    raise KeyError(name)


def attribute(model: torch.nn.Module, path: str) -> Any:
    """The attribute of a qualified name."""
    value: Any = model
    for part in path.split("."):
        value = getattr(value, part)
    return value


def constant(model: torch.nn.Module, node: Any) -> torch.Tensor | None:
    """The tensor that a node reads from the model; None for other nodes, and for None."""
    if not is_node(node) or node.op != "get_attr":
        return None
    value = attribute(model, node.target)
    return value if isinstance(value, torch.Tensor) else None


def set_parameter(model: torch.nn.Module, path: str, value: torch.nn.Parameter) -> None:
    """Set, or replace, a parameter of a qualified name."""
    owner_path, _, name = path.rpartition(".")
    owner = model.get_submodule(owner_path)
    if isinstance(getattr(owner, name, None), torch.Tensor):
        delattr(owner, name)
    setattr(owner, name, value)


def sources(node: Any) -> Iterator[Any]:
    """The nodes without inputs that a value is computed of."""
    waiting, seen = [node], {node}
    while waiting:
        own = waiting.pop()
        inputs = own.all_input_nodes
        if not inputs:
            yield own
        for one in inputs:
            if one not in seen:
                seen.add(one)
                waiting.append(one)


def base(node: Any) -> Any:
    """The node whose memory a value is in: that of which it is a view, or itself."""
    while node.op == "call_function" and node.args and is_node(node.args[0]):
        returns = getattr(getattr(node.target, "_schema", None), "returns", ())
        if not returns or returns[0].alias_info is None:
            break
        node = node.args[0]
    return node


def writes_first(node: Any) -> bool:
    """Whether a node calls an operator that writes to its first argument."""
    schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
    if schema is None or not schema.arguments or not node.args:
        return False
    alias = schema.arguments[0].alias_info
    return alias is not None and alias.is_write
