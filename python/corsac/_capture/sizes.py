"""Symbolic sizes of a program that is being recorded, and the conditions on them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from corsac import _core
from corsac._capture.tracked_size import TrackedSize
from corsac._pytorch.functions import getters
from corsac.fx import Graph, GraphModule, Node

#: Functions that return sizes of their first argument.
_SHAPE, _SIZE = next(getters("shape")), torch.Tensor.size
#: Functions that return the number of its elements.
_COUNTS = frozenset([torch.Tensor.numel, torch.Tensor.nelement, torch.numel])
#: Functions that return properties that do not depend on sizes.
TYPES = frozenset(
    [
        *getters("dtype", "device", "ndim", "layout", "itemsize", "names", "is_cpu", "is_cuda"),
        *getters("is_mps", "is_xpu", "is_xla", "is_hpu", "is_mtia", "is_ipu", "is_vulkan"),
        *getters("is_maia", "is_quantized", "is_sparse", "is_sparse_csr", "is_mkldnn", "is_nested"),
        torch.Tensor.dim,
        torch.Tensor.ndimension,
        torch.Tensor.element_size,
        torch.Tensor.is_floating_point,
        torch.Tensor.is_complex,
        torch.Tensor.is_signed,
        torch.is_floating_point,
        torch.is_complex,
        torch.is_signed,
    ]
)
#: Signs of the functions in expressions and conditions, for texts.
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"} | {
    "lt": "<",
    "le": "<=",
    "eq": "==",
    "ne": "!=",
    "gt": ">",
    "ge": ">=",
}
#: The comparisons that are true where others are not.
_CONTRARY = {"lt": "ge", "le": "gt", "eq": "ne", "ne": "eq", "gt": "le", "ge": "lt"}
#: An expression of sizes: a number, the size of a tensor (its number and a dimension), the number of tensors that a
#: node returns, or a function of two expressions.
Expression = Any
#: A comparison: the name of the function, two expressions, and the required result.
Condition = tuple[str, Expression, Expression, bool]


def as_size(own: int) -> torch.Tensor:
    """A tensor without elements whose first size is the integer ``own``."""
    return torch.empty(own, 0, dtype=torch.uint8, device="cpu")


class Sizes:
    """Symbolic sizes, as integers for the program and as nodes for the graph.

    Args:
        recording: records the program's operations on integers.
        graph: the graph, which gets nodes for sizes that operators take.
        dynamic: dynamic dimensions of inputs, by id of the tensor.
    """

    def __init__(
        self,
        recording: _core.Recording,
        graph: Graph,
        dynamic: Mapping[int, Collection[int]],
    ) -> None:
        self._recording, self._graph = recording, graph
        self._dynamic: dict[int, Collection[int]] = dict(dynamic)
        #: The nodes of tensors whose sizes were read, by their numbers.
        self._tensors: list[Node] = []
        self._numbers: dict[Node, int] = {}
        #: The nodes of expressions.
        self._nodes: dict[Expression, Node] = {}
        #: Nodes whose values may have other sizes.
        self._varying: set[Node] = set()
        self._conditions: list[Condition] = []

    def is_dynamic(self, own: torch.Tensor) -> bool:
        """Whether an input has dynamic dimensions."""
        return id(own) in self._dynamic

    def given(self, own: torch.Tensor, node: Node) -> None:
        """Note the node of an input."""
        if self.is_dynamic(own):
            self._varying.add(node)

    def made(self, node: Node) -> None:
        """Note a new node."""
        if any(own in self._varying for own in node.all_input_nodes):
            self._varying.add(node)

    def varies(self, node: Node) -> bool:
        """Whether the value of a node may have other sizes, or depends on some."""
        return node in self._varying

    def counted(self, node: Node, count: int) -> None:
        """Require that a node always returns this number of tensors, all of which the program gets."""
        if node in self._varying:
            self._conditions.append(("eq", ("count", self._number(node), 0), count, True))

    def fix(self, own: torch.Tensor, node: Node) -> None:
        """Require the present sizes of a tensor, since the program uses them in a way that is not recorded."""
        if node in self._varying:
            number = self._number(node)
            for dim in self._dims(own):
                self._conditions.append(("eq", ("size", number, dim), own.size(dim), True))

    def require(self, name: str, left: Expression, right: Expression, result: bool) -> None:
        """Require that a comparison has this result."""
        self._conditions.append((name, left, right, result))

    def _number(self, node: Node) -> int:
        number = self._numbers.setdefault(node, len(self._tensors))
        if number == len(self._tensors):
            self._tensors.append(node)
        return number

    def replaced(self, old: Node, new: Node) -> None:
        """Note that ``new`` takes the place of ``old``."""
        if old in self._varying:
            self._varying.add(new)
        if old in self._numbers:
            self._tensors[self._numbers[old]] = new

    def asked(
        self,
        func: Any,
        args: tuple[Any, ...],
        result: Any,
        node: Node,
        seen: bool,
        *,
        tracked: bool = False,
    ) -> Any:
        """The result of a function of the type and the sizes of a tensor, with symbols for sizes.

        Args:
            func, args: the function and its arguments, of which the first is the tensor.
            result: its result in PyTorch.
            node: the node of the tensor.
            seen: whether the use of the result is recorded.
            tracked: whether it is, by the numbers themselves.
        """
        if func in TYPES or node not in self._varying:
            return result
        own = args[0]
        number = self._number(node)
        is_size = func in (_SHAPE, _SIZE) and seen
        if is_size and isinstance(result, torch.Size):
            return torch.Size(
                [self._symbol(number, own, dim, tracked) for dim in range(len(result))]
            )
        if is_size and type(result) is int and len(args) == 2 and type(args[1]) is int:
            return self._symbol(number, own, args[1] % own.dim(), tracked)
        if seen and (func in _COUNTS):
            sizes = [self._expression(number, own, dim) for dim in range(own.dim())]
            start: Expression = 1
            count = functools.reduce(lambda left, right: ("mul", left, right), sizes, start)
            return self._of(count, result, tracked)
        self.fix(own, node)
        return result

    def integer(self, own: torch.Tensor, node: Node) -> int:
        """The first size of an input made by :func:`as_size`, as a symbol."""
        self._dynamic[id(own)] = {0}
        self.given(own, node)
        return self._symbol(self._number(node), own, 0, False)

    def _dims(self, own: torch.Tensor) -> Collection[int]:
        return self._dynamic.get(id(own), range(own.dim()))

    def _expression(self, number: int, own: torch.Tensor, dim: int) -> Expression:
        return ("size", number, dim) if dim in self._dims(own) else own.size(dim)

    def _symbol(self, number: int, own: torch.Tensor, dim: int, tracked: bool) -> int:
        return self._of(self._expression(number, own, dim), own.size(dim), tracked)

    def _of(self, expression: Expression, number: int, tracked: bool) -> int:
        """An integer that stands for an expression."""
        if isinstance(expression, int | float):
            return number
        if tracked:
            return TrackedSize.of(number, expression, self)
        return int(self._recording.symbol(expression, number, False))

    def numbers(self) -> Collection[Node]:
        """The nodes of integers."""
        return self._nodes.values()

    def node_of(self, own: int) -> Node | None:
        """The node of an integer, if it is a symbol."""
        is_tracked = isinstance(own, TrackedSize)
        expression = own.expression if is_tracked else self._recording.expression(own)
        return None if expression is None else self._node(expression)

    def _node(self, expression: Expression) -> Any:
        if isinstance(expression, int | float):
            return expression
        known = self._nodes.get(expression)
        if known is None:
            name, first, second = expression
            if name == "size":
                known = self._graph.call_method("size", (self._tensors[first], second))
            else:
                parts = self._node(first), self._node(second)
                known = self._graph.call_function(getattr(operator, name), parts)
            self._nodes[expression] = known
            self._varying.add(known)
        return known

    def finished(
        self,
        weights: dict[str, torch.Tensor],
        inputs: Sequence[torch.Tensor],
        reads: Collection[Node],
    ) -> SizeConditions | None:
        """The conditions on sizes, once the graph is complete; ``reads`` are its nodes that read values. None if the
        conditions are not known."""
        conditions = self._recording.conditions()
        if isinstance(conditions, str):
            return None
        copies: dict[Node, Any] = {}
        graph = Graph()
        graph.output(graph.graph_copy(self._graph, copies))
        for own in reads:
            graph.erase_node(copies.pop(own))
        order = {node: number for number, node in enumerate(graph.nodes)}
        places = [order[copies[own]] for own in self._tensors]
        module = GraphModule(dict(weights), graph)
        shapes = [
            tuple(
                None if dim in self._dynamic.get(id(own), ()) else size
                for dim, size in enumerate(own.shape)
            )
            for own in inputs
        ]
        return SizeConditions(module, shapes, places, [*self._conditions, *conditions])


class SizeConditions:
    """Conditions of a program on the sizes of its inputs.

    Args:
        module: the graph.
        shapes: the shapes of inputs, with None for dynamic sizes.
        places: positions in the graph of the nodes of the tensors in conditions, by the numbers of these.
        conditions: comparisons of sizes, with the results that they must have.
    """

    def __init__(
        self,
        module: GraphModule,
        shapes: Sequence[tuple[int | None, ...]],
        places: Sequence[int],
        conditions: Sequence[Condition],
    ) -> None:
        self._module, self._shapes, self._places = module, shapes, places
        self._conditions = list(dict.fromkeys(conditions))

    def __len__(self) -> int:
        return len(self._conditions)

    def with_names(self) -> list[Condition]:
        """The conditions, with the names of nodes in the place of the numbers of tensors."""
        names = [node.name for node in self._module.graph.nodes]

        def named(expression: Expression) -> Expression:
            if isinstance(expression, int | float):
                return expression
            name, first, second = expression
            if name in ("size", "count"):
                return name, names[self._places[first]], second
            return name, named(first), named(second)

        return [
            (name, named(left), named(right), expected)
            for name, left, right, expected in self._conditions
        ]

    def as_text(self) -> list[str]:
        """The conditions, a line each."""
        names = {place: node.name for place, node in enumerate(self._module.graph.nodes)}

        def text(expression: Expression) -> str:
            if isinstance(expression, int | float):
                return str(expression)
            name, first, second = expression
            if name == "size":
                return f"{names[self._places[first]]}.shape[{second}]"
            if name == "count":
                return f"len({names[self._places[first]]})"
            return f"({text(first)} {_SIGNS[name]} {text(second)})"

        return [
            f"{text(left)} {_SIGNS[name]} {text(right)} is {expected}"
            for name, left, right, expected in self._conditions
        ]

    def as_nodes(self, graph: Graph, require: Callable[[Any, Any, str], None]) -> None:
        """Add nodes that call ``require`` with what each condition is, must be, and says, to a graph of the same nodes."""
        value = self._adding(graph)
        with graph.inserting_before(graph.output_node()):
            for (name, left, right, expected), text in zip(
                self._conditions, self.as_text(), strict=True
            ):
                found = value((name, left, right))
                graph.call_function(require, (found, expected, text))

    def as_truths(self, graph: Graph) -> list[Node]:
        """Add nodes that are true if the conditions hold, to a graph of the same nodes; return them. Each is where its
        arguments are known, before nodes that may fail without it."""
        value, last, before = self._adding(graph), graph.output_node(), set(graph.nodes)
        with graph.inserting_before(last):
            truths = [
                value((name if expected else _CONTRARY[name], left, right))
                for name, left, right, expected in self._conditions
            ]
        inputs = graph.find_nodes(op="placeholder")
        for node in [own for own in graph.nodes if own not in before]:
            max([*node.all_input_nodes, *inputs[-1:]]).append(node)
        return truths

    def _adding(self, graph: Graph) -> Callable[[Expression], Any]:
        """A function that adds the nodes of an expression to a graph of the same nodes."""
        own = list(graph.nodes)
        made: dict[Expression, Any] = {}

        def value(expression: Expression) -> Any:
            if isinstance(expression, int | float):
                return expression
            if expression not in made:
                name, first, second = expression
                if name == "size":
                    made[expression] = graph.call_method("size", (own[self._places[first]], second))
                elif name == "count":
                    made[expression] = graph.call_function(len, (own[self._places[first]],))
                else:
                    parts = value(first), value(second)
                    made[expression] = graph.call_function(getattr(operator, name), parts)
            return made[expression]

        return value

    def hold(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Whether the program is valid for inputs of these sizes."""
        if len(inputs) != len(self._shapes) or not all(
            len(shape) == own.dim()
            and all(size is None or size == own.size(dim) for dim, size in enumerate(shape))
            for own, shape in zip(inputs, self._shapes, strict=True)
        ):
            return False
        if not self._conditions:
            return True
        try:
            types = _core.propagate_types(self._module.graph, tuple(inputs), None, fill=False)
        except _core.ShapeInferenceError:
            return False
        found = types.values(self._places)

        def value(expression: Expression) -> Any:
            if isinstance(expression, int | float):
                return expression
            name, first, second = expression
            if name == "count":
                # The type of a tensor is a named tuple.
                return len(found[first]) if type(found[first]) in (tuple, list) else -1
            if name == "size":
                size = found[first].shape[second]
                if type(size) is not int:
                    raise TypeError
                return size
            return getattr(operator, name)(value(first), value(second))

        try:
            return all(
                getattr(operator, name)(value(left), value(right)) is expected
                for name, left, right, expected in self._conditions
            )
        except (AttributeError, TypeError, ZeroDivisionError):
            # Result types of some operators are not known before they run.
            return False


__all__ = ["SizeConditions", "Sizes", "as_size"]
