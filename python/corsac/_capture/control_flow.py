"""Modules for control flow that depends on elements.

In calls they run as Python does; in graphs that are recorded (:func:`corsac.capture`, :func:`corsac.save`) they are calls
of ``torch.ops.higher_order.cond``, ``while_loop`` and ``scan``, where sizes do not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch import nn

from corsac._capture.called_graphs import GraphCaller
from corsac._capture.markers import keeps_control_flow, refuse
from corsac.fx import GraphModule, Node
from corsac.fx._module_attributes import _get_attr
from corsac.fx._own_copy import own_copy
from corsac.fx.convert import from_torch
from corsac.fx.proxy import TraceError

#: Operators of ``torch.ops.higher_order`` that are read.
_OPERATORS = ("cond", "map_impl", "scan", "while_loop")


class If(GraphCaller):
    """One of two graphs, which are called with the same values."""

    operator = "cond"

    def __init__(self, then_branch: nn.Module, else_branch: nn.Module) -> None:
        super().__init__()
        self.then_branch, self.else_branch = then_branch, else_branch

    def forward(self, condition: torch.Tensor, *values: Any) -> tuple[Any, ...]:
        if keeps_control_flow() and isinstance(condition, torch.Tensor):
            return self.called_as_graph(condition, *values)
        return (self.then_branch if bool(condition) else self.else_branch)(*values)

    def arguments(self, operands: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        return operands[0], self.then_branch, self.else_branch, tuple(operands[1:])


class While(GraphCaller):
    """A graph that is called with its own results as long as another one returns true.

    Args:
        condition: called with values of the loop, and values of the graph around it.
        body: called with the same; returns the next values of the loop.
        carried: the number of values of the loop.
    """

    operator = "while_loop"

    def __init__(self, condition: nn.Module, body: nn.Module, carried: int) -> None:
        super().__init__()
        self.condition, self.body, self.carried = _Truth(condition), body, carried

    def forward(self, *values: Any) -> tuple[Any, ...]:
        own, others = values[: self.carried], values[self.carried :]
        if keeps_control_flow():
            return self.called_as_graph(*values)
        while bool(self.condition(*own, *others)):
            own = self.body(*own, *others)
        return tuple(own)

    def arguments(self, operands: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        own, others = operands[: self.carried], operands[self.carried :]
        return self.condition, self.body, tuple(own), tuple(others)


class Loop(nn.Module):
    """A graph that is called again and again.

    Args:
        body: called with the number of the iteration, the condition, values of the loop and ``values`` of the graph
            around it; returns the condition, the next values of the loop and results of the iteration.
        carried: the number of values of the loop.
        rows: types and shapes of the results of an iteration, for loops without one.
        length: the number of iterations, if it is known.
    """

    def __init__(
        self,
        body: nn.Module,
        carried: int,
        rows: Sequence[tuple[torch.dtype, Sequence[int]]],
        length: int | None = None,
    ) -> None:
        super().__init__()
        self.body, self.carried, self.rows, self.length = body, carried, list(rows), length
        axes, backwards = [0] * len(self.rows), [False] * len(self.rows)
        self.counted = Scan(_Counted(body, carried), carried, 1, [0], [False], axes, backwards)
        self.uncounted = While(_Below(carried + 2), _Iteration(body, carried), carried + 2)

    def forward(self, count: Any, condition: Any, *values: Any) -> tuple[Any, ...]:
        own, others = values[: self.carried], values[self.carried :]
        if keeps_control_flow() and self.length is not None:
            return self.counted(*own, torch.arange(self.length), *others)
        go_on = torch.ones((), dtype=torch.bool) if condition is None else condition
        if keeps_control_flow() and not self.rows:
            return self._as_graph(count, go_on, own, others)
        if keeps_control_flow():
            refuse(
                "a loop returns results of each iteration, and the number of iterations is not known"
            )
        results: list[list[torch.Tensor]] = [[] for _ in self.rows]
        at = 0
        while (count is None or at < int(count)) and bool(go_on):
            found = self.body(torch.tensor(at), go_on, *own, *others)
            go_on, own = found[0], found[1 : 1 + self.carried]
            for parts, result in zip(results, found[1 + self.carried :], strict=True):
                parts.append(result)
            at += 1
        stacked = [
            torch.stack(parts) if parts else torch.empty((0, *shape), dtype=dtype)
            for parts, (dtype, shape) in zip(results, self.rows, strict=True)
        ]
        return (*own, *stacked)

    def _as_graph(self, count: Any, go_on: Any, own: Any, others: Any) -> tuple[Any, ...]:
        most = torch.full((), torch.iinfo(torch.int64).max) if count is None else count
        if not isinstance(most, torch.Tensor):
            most = torch.full((), most)
        carried = (torch.zeros((), dtype=torch.int64), go_on.reshape(()), *own)
        operands = (most.reshape(()), *others)
        return self.uncounted(*carried, *operands)[2:]


class _Counted(nn.Module):
    """An iteration of a loop whose condition does not change: called with its values and the number of the iteration."""

    def __init__(self, body: nn.Module, carried: int) -> None:
        super().__init__()
        self.body, self.carried = body, carried

    def forward(self, *values: Any) -> tuple[Any, ...]:
        own, at, others = values[: self.carried], values[self.carried], values[self.carried + 1 :]
        return tuple(self.body(at, torch.full((), True), *own, *others)[1:])


class _Below(nn.Module):
    """Whether a loop goes on."""

    def __init__(self, carried: int) -> None:
        super().__init__()
        self.carried = carried

    def forward(self, at: torch.Tensor, go_on: torch.Tensor, *values: Any) -> torch.Tensor:
        return torch.logical_and(at < values[self.carried - 2], go_on)


class _Iteration(nn.Module):
    """An iteration of a loop: called with its number, the condition and its values."""

    def __init__(self, body: nn.Module, carried: int) -> None:
        super().__init__()
        self.body, self.carried = body, carried

    def forward(self, at: torch.Tensor, go_on: torch.Tensor, *values: Any) -> tuple[Any, ...]:
        own, others = values[: self.carried], values[self.carried + 1 :]
        go_on, *found = self.body(at, go_on, *own, *others)
        return (at + 1, go_on.reshape(()), *found)


class _Truth(nn.Module):
    """The only result of a graph, which may return it in a tuple."""

    def __init__(self, graph: nn.Module) -> None:
        super().__init__()
        self.graph = graph

    def forward(self, *values: Any) -> torch.Tensor:
        result = self.graph(*values)
        return result[0] if isinstance(result, (tuple, list)) else result


class Scan(GraphCaller):
    """A graph that is called for each part of tensors.

    Args:
        body: called with values of the loop, a part of each tensor, and values of the graph around it; returns the
            next values of the loop and results.
        carried: the number of values of the loop.
        scanned: the number of tensors.
        input_axes: the dimension of each tensor along which its parts are.
        input_backwards: whether the parts of a tensor are taken from its end.
        output_axes: the dimension along which results are joined.
        output_backwards: whether results are joined from the last one on.
    """

    operator = "scan"

    def __init__(
        self,
        body: nn.Module,
        carried: int,
        scanned: int,
        input_axes: Sequence[int],
        input_backwards: Sequence[bool],
        output_axes: Sequence[int],
        output_backwards: Sequence[bool],
    ) -> None:
        super().__init__()
        self.body, self.carried, self.scanned = body, carried, scanned
        self.input_axes, self.input_backwards = list(input_axes), list(input_backwards)
        self.output_axes, self.output_backwards = list(output_axes), list(output_backwards)

    def forward(self, *values: Any) -> tuple[Any, ...]:
        own, rest = values[: self.carried], values[self.carried :]
        tensors, others = rest[: self.scanned], rest[self.scanned :]
        if keeps_control_flow():
            return self._as_graph(own, tensors, others)
        length = tensors[0].shape[self.input_axes[0]]
        results: list[list[torch.Tensor]] = [[] for _ in self.output_axes]
        for at in range(length):
            parts = [
                tensor.select(axis, length - 1 - at if backwards else at)
                for tensor, axis, backwards in zip(
                    tensors, self.input_axes, self.input_backwards, strict=True
                )
            ]
            found = self.body(*own, *parts, *others)
            own = found[: self.carried]
            for joined, result in zip(results, found[self.carried :], strict=True):
                joined.append(result)
        stacked = [
            torch.stack(joined[::-1] if backwards else joined, axis)
            for joined, axis, backwards in zip(
                results, self.output_axes, self.output_backwards, strict=True
            )
        ]
        return (*own, *stacked)

    def _as_graph(self, own: Any, tensors: Any, others: Any) -> tuple[Any, ...]:
        rows = [
            tensor.movedim(axis, 0).flip(0) if backwards else tensor.movedim(axis, 0)
            for tensor, axis, backwards in zip(
                tensors, self.input_axes, self.input_backwards, strict=True
            )
        ]
        found = self.called_as_graph(*own, *rows, *others)
        stacked = [
            (result.flip(0) if backwards else result).movedim(0, axis)
            for result, axis, backwards in zip(
                found[self.carried :], self.output_axes, self.output_backwards, strict=True
            )
        ]
        return (*found[: self.carried], *stacked)

    def arguments(self, operands: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        end = self.carried + self.scanned
        own, rows, others = operands[: self.carried], operands[self.carried : end], operands[end:]
        return self.body, tuple(own), tuple(rows), tuple(others)


def control_module(
    operator: str, bodies: Sequence[GraphModule], values: Sequence[Any]
) -> tuple[nn.Module, tuple[Any, ...]]:
    """The module that does what an operator of ``torch.ops.higher_order`` does, and the arguments of its call.

    Args:
        operator: ``"cond"``, ``"map_impl"``, ``"scan"`` or ``"while_loop"``.
        bodies: its graphs.
        values: its other arguments.

    Raises:
        TraceError: a value of a loop is a number.
    """
    first, *others = values
    parts = [tuple(own) for own in others]
    if operator == "map_impl":
        # A scan that carries nothing.
        first, parts = (), [tuple(first), *parts]
    operands = tuple(own for part in parts for own in part)
    if operator != "cond":
        operands = (*first, *operands)
    numbers = {at: own for at, own in enumerate(operands) if isinstance(own, (int, float))}
    called = [_Bound(own, numbers) if numbers else own for own in bodies]
    operands = tuple(own for at, own in enumerate(operands) if at not in numbers)
    if operator == "cond":
        return If(*called), (first, *operands)
    carried = len(first)
    if any(at < carried for at in numbers):
        raise TraceError(f"numbers as values of {operator}")
    if operator == "while_loop":
        return While(*called, carried), operands
    scanned = len(parts[0])
    results = len(bodies[0].graph.output_node().args[0]) - carried
    inputs, outputs = ([0] * scanned, [False] * scanned), ([0] * results, [False] * results)
    return Scan(*called, carried, scanned, *inputs, *outputs), operands


class _Bound(nn.Module):
    """A graph with numbers among its arguments, by their places."""

    def __init__(self, graph: nn.Module, numbers: Mapping[int, Any]) -> None:
        super().__init__()
        self.graph, self.numbers = graph, dict(numbers)

    def forward(self, *values: Any) -> Any:
        given = list(values)
        for at, number in self.numbers.items():
            given.insert(at, number)
        return self.graph(*given)


def with_control_modules(
    module: GraphModule | torch.fx.GraphModule,
) -> GraphModule | torch.fx.GraphModule:
    """``module``, or a copy in which control flow of ``torch.ops.higher_order`` is calls of modules."""
    if not any(map(_operator_of, module.graph.nodes)):
        return module
    module = own_copy(module) if isinstance(module, GraphModule) else from_torch(module)
    for node in list(module.graph.nodes):
        operator = _operator_of(node)
        if operator is None:
            continue
        graphs, values = [], []
        for own in node.args:
            called = _graph_of(module, own)
            (values if called is None else graphs).append(own if called is None else called)
        made, operands = control_module(operator, graphs, values)
        path = f"{operator}_{node.name}"
        while hasattr(module, path):
            path += "_"
        module.add_module(path, made)
        with module.graph.inserting_before(node):
            call = module.graph.call_module(path, operands)
        node.replace_all_uses_with(call)
        module.graph.erase_node(node)
    for node in module.graph.find_nodes(op="get_attr"):
        if not node.users:
            module.graph.erase_node(node)
    module.recompile()
    return module


def _operator_of(node: Node | torch.fx.Node) -> str | None:
    """The operator that a node calls, if it calls graphs."""
    target = node.target
    is_one = node.op == "call_function" and isinstance(target, torch._ops.HigherOrderOperator)
    return target.__name__ if is_one and target.__name__ in _OPERATORS else None


def _graph_of(module: GraphModule, argument: Any) -> GraphModule | None:
    """The graph that an argument is."""
    if not isinstance(argument, Node) or argument.op != "get_attr":
        return None
    own = _get_attr(module, str(argument.target))
    if not isinstance(own, (GraphModule, torch.fx.GraphModule)):
        return None
    read = with_control_modules(own)
    return read if isinstance(read, GraphModule) else from_torch(read)
