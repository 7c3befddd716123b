"""Types of all values of a program for given sizes, found without memory or arithmetic."""

from __future__ import annotations

import itertools
import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from corsac import _core
from corsac._capture.sizes import Condition, Expression
from corsac.distributed._errors import PipelineError
from corsac.distributed._program import Program, Weight
from corsac.fx import Graph, Node
from corsac.fx.node import map_arg

#: Shape and element type of an input.
InputType = tuple[tuple[int, ...], torch.dtype]


def input_types(tensors: Sequence[torch.Tensor]) -> list[InputType]:
    """The types of inputs."""
    return [(tuple(own.shape), own.dtype) for own in tensors]


def dtype_name(dtype: torch.dtype) -> str:
    """The name of a type without that of the library."""
    return str(dtype).removeprefix("torch.")


def shown_types(inputs: Sequence[InputType]) -> str:
    """The types of inputs as text."""
    return ", ".join(f"{dtype_name(dtype)}{list(shape)}" for shape, dtype in inputs)


def values_of(
    graph: Graph,
    inputs: Sequence[InputType],
    weights: Mapping[str, Weight],
    gradients: Sequence[bool] = (),
    entered: Callable[[Node], None] | None = None,
) -> dict[Node, Any]:
    """The values of all nodes for inputs of these types: fake tensors, with ``requires_grad`` as in training, and
    numbers. ``gradients`` are the ``requires_grad`` of the inputs, false by default. ``entered`` is called before each
    call.

    Raises:
        PipelineError: a call fails, or its sizes depend on values.
    """
    found: dict[Node, Any] = {}
    given = itertools.zip_longest(inputs, gradients, fillvalue=False)
    mode = FakeTensorMode()
    before = torch.is_grad_enabled()
    torch._C._set_grad_enabled(True)
    try:
        with mode:
            known = {
                name: torch.empty(own.shape, dtype=own.dtype).requires_grad_(own.requires_grad)
                for name, own in weights.items()
            }
            for node in graph.nodes:
                if node.op == "placeholder":
                    (shape, dtype), has_gradient = next(given)
                    found[node] = torch.empty(shape, dtype=dtype).requires_grad_(has_gradient)
                elif node.op == "get_attr":
                    found[node] = known[str(node.target)]
                elif node.op != "output":
                    if entered is not None:
                        entered(node)
                    found[node] = _call(node, found)
    finally:
        torch._C._set_grad_enabled(before)
    return found


def values_for(program: Program, inputs: Sequence[InputType]) -> dict[Node, Any]:
    """The values of all nodes as :func:`values_of` finds them, if the graph is that of the model for such inputs.

    Raises:
        PipelineError: it is not.
    """
    found = values_of(program.graph, inputs, program.weights)
    reason = failing(program.conditions, found)
    if reason is not None:
        shapes = [list(shape) for shape, _ in inputs]
        raise PipelineError(f"the graph is not valid for inputs of sizes {shapes}: {reason}")
    return found


def _call(node: Node, found: Mapping[Node, Any]) -> Any:
    args = map_arg(node.args, found.__getitem__)
    kwargs = map_arg(node.kwargs, found.__getitem__)
    try:
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        if node.op == "call_function":
            return node.target(*args, **kwargs)
    except Exception as error:
        raise PipelineError(f"{described(node)}: {summary(error)}") from error
    raise PipelineError(f"{described(node)} calls a module: only functions can be cut")


def data_of(tensor: torch.Tensor) -> Any:
    """The elements of a tensor as an array of bytes."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def summary(error: BaseException) -> str:
    """The class of an error, and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def described(node: Node) -> str:
    """A node with its source line."""
    source = getattr(node, "source", None) or (node.stack_trace or "").strip()
    return f"node {node.name} ({source})" if source else f"node {node.name}"


def reads_places(node: Node) -> bool:
    """Whether a call depends on where elements lie in memory, which values that are sent do not keep."""
    if node.op not in ("call_function", "call_method"):
        return False
    classes = _core.operator_classes(node.op, node.target)
    # A view is the same of a copy.
    return "places" in classes or ("strides" in classes and "view" not in classes)


def failing(conditions: Sequence[Condition], found: Mapping[Node, Any]) -> str | None:
    """The first condition on sizes that these values do not fulfil, as text; None if there is none."""
    by_name = {node.name: own for node, own in found.items()}

    def value(expression: Expression) -> Any:
        if isinstance(expression, int):
            return expression
        name, first, second = expression
        if name == "size":
            return by_name[first].shape[second]
        if name == "count":
            return len(by_name[first])
        return getattr(operator, name)(value(first), value(second))

    def text(expression: Expression) -> str:
        if isinstance(expression, int):
            return str(expression)
        name, first, second = expression
        if name == "size":
            return f"{first}.shape[{second}]"
        return f"len({first})" if name == "count" else f"{name}({text(first)}, {text(second)})"

    for name, left, right, expected in conditions:
        if getattr(operator, name)(value(left), value(right)) is not expected:
            return (
                f"{text((name, left, right))} was {expected} when the model was captured "
                f"({text(left)} is {value(left)})"
            )
    return None


def bytes_of(value: Any) -> int:
    """Size of a value in bytes: of a tensor, or of the tensors in a tuple."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.dtype.itemsize
    return sum(map(bytes_of, value)) if isinstance(value, (tuple, list)) else 0


def written_bytes(value: Any) -> int:
    """Bytes that computing a value writes: none for views."""
    if isinstance(value, torch.Tensor):
        return 0 if value._is_view() else bytes_of(value)
    return sum(map(written_bytes, value)) if isinstance(value, (tuple, list)) else 0


class quiet:
    """Keep PyTorch from logging calls that fail in the block."""

    def __enter__(self) -> None:
        self._logger = logging.getLogger("torch._subclasses.fake_tensor")
        self._before, self._logger.disabled = self._logger.disabled, True

    def __exit__(self, *_: object) -> None:
        self._logger.disabled = self._before


__all__ = [
    "InputType",
    "bytes_of",
    "data_of",
    "described",
    "dtype_name",
    "failing",
    "input_types",
    "quiet",
    "reads_places",
    "shown_types",
    "summary",
    "values_for",
    "values_of",
    "written_bytes",
]
