"""Inversion: the program that computes the input from the result."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from corsac.fx import Graph, Node
from corsac.fx.graph_module import GraphModule
from corsac.passes._derive import OF_VALUE


class NotInvertible(ValueError):
    """A program that has no inverse, or none that is known.

    Attributes:
        node: the name of the node that is in the way.
    """

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(f"the program cannot be inverted at {node}: {reason}")
        self.node = node


def _inverse_of_rsqrt(x: torch.Tensor) -> torch.Tensor:
    return torch.reciprocal(torch.square(x))


#: For functions of one tensor: what undoes them.
_UNARY: dict[str, Callable[..., Any]] = {
    "neg": torch.neg,
    "exp": torch.log,
    "log": torch.exp,
    "exp2": torch.log2,
    "log2": torch.exp2,
    "expm1": torch.log1p,
    "log1p": torch.expm1,
    "tanh": torch.atanh,
    "atanh": torch.tanh,
    "sinh": torch.asinh,
    "asinh": torch.sinh,
    "sigmoid": torch.logit,
    "reciprocal": torch.reciprocal,
    "sqrt": torch.square,
    "rsqrt": _inverse_of_rsqrt,
    "t": torch.t,
}
#: For operators: what undoes them where the right operand is known, and where the left one is.
_BINARY: dict[str, tuple[Callable[..., Any] | None, Callable[..., Any] | None]] = {
    "add": (operator.sub, operator.sub),
    "sub": (operator.add, None),
    "mul": (operator.truediv, operator.truediv),
    "truediv": (operator.mul, None),
    "div": (operator.mul, None),
}


def invert(gm: GraphModule) -> GraphModule:
    """The module that computes the input of ``gm`` from its result.

    ``gm`` has one input and one result, and every step between them is invertible: sums, differences,
    products and quotients with what does not depend on the input, ``exp``, ``log``, ``tanh``,
    ``sigmoid``, ``sqrt`` and others, transpositions, ``permute`` and ``flip``. Exact up to rounding
    where the functions are; a factor of zero gives what dividing by zero gives. Nodes of the inverse
    have the source lines and metadata of what they undo. Weights are shared with ``gm``.

    Raises:
        NotInvertible: a step has no inverse, the input is used twice on the way, or there is not
            one input and one result.

    Reference: J. Reed et al., "torch.fx: Practical Program Capture and Transformation for Deep
    Learning in Python", MLSys 2022, shows the idea.
    """
    graph = gm.graph
    inputs = graph.find_nodes(op="placeholder")
    result = graph.output_node().args[0]
    if len(inputs) != 1:
        raise NotInvertible("the inputs", f"there are {len(inputs)} of them")
    if not isinstance(result, Node):
        raise NotInvertible("the output", "it is not one value")
    dependent = {inputs[0]}
    for node in graph.nodes:
        if any(used in dependent for used in node.all_input_nodes):
            dependent.add(node)
    if result not in dependent:
        raise NotInvertible(result.name, "it does not depend on the input")

    inverse = Graph()
    values: dict[Node, Node] = {}

    def known(node: Node) -> Node:
        """What does not depend on the input, computed in the inverse."""
        if node not in values:
            for used in node.all_input_nodes:
                known(used)
            values[node] = inverse.node_copy(node, values.__getitem__)
        return values[node]

    current, value = result, inverse.placeholder(result.name)
    while current is not inputs[0]:
        on_the_way = [user for user in current.users if user in dependent and user.op != "output"]
        if current is not result and len(on_the_way) > 1:
            raise NotInvertible(current.name, "its value is used more than once")
        operand, function, args = _undone(current, dependent, known, value)
        copy = inverse.node_copy(current, dict.fromkeys(current.all_input_nodes, value).__getitem__)
        copy.args, copy.kwargs = (), {}
        copy.op, copy.target = "call_function", function
        copy.args = args
        for key in OF_VALUE:
            copy.meta.pop(key, None)
        copy._rename(inverse._target_to_str(function))
        current = operand
        value = copy
    inverse.output(value)
    made = GraphModule(gm, inverse)
    made.graph.lint()
    return made


def _undone(
    node: Node, dependent: set[Node], known: Callable[[Node], Node], value: Node
) -> tuple[Node, Callable[..., Any], tuple[Any, ...]]:
    """The operand on the way to the input, and the call that gives it from ``value``."""
    if node.op not in ("call_function", "call_method"):
        raise NotInvertible(node.name, f"what {node.op} does is not known to have an inverse")
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if callable(node.target) and not _is_torch(node.target):
        raise NotInvertible(node.name, f"the inverse of {name} is not known")
    if node.kwargs:
        raise NotInvertible(node.name, f"{name} is called with keyword arguments")
    way = [arg for arg in node.args if isinstance(arg, Node) and arg in dependent]
    if len(way) != 1 or sum(used in dependent for used in node.all_input_nodes) != 1:
        raise NotInvertible(node.name, "several of its operands depend on the input")
    rest = [known(arg) if isinstance(arg, Node) else arg for arg in node.args if arg is not way[0]]
    if len(node.args) == 1 and name in _UNARY:
        return way[0], _UNARY[name], (value,)
    if len(node.args) == 2 and name in _BINARY:
        undo_left, undo_right = _BINARY[name]
        if node.args[0] is way[0] and undo_left is not None:
            return way[0], undo_left, (value, rest[0])
        if node.args[1] is way[0]:
            if undo_right is not None:
                return way[0], undo_right, (value, rest[0])
            # c - x and c / x undo themselves.
            itself = operator.sub if name == "sub" else operator.truediv
            return way[0], itself, (rest[0], value)
    if name == "transpose" and len(rest) == 2:
        return way[0], torch.transpose, (value, *rest)
    if name == "permute":
        flat = rest[0] if len(rest) == 1 else rest
        dims = list(flat) if isinstance(flat, (tuple, list)) else [flat]
        if all(isinstance(dim, int) for dim in dims):
            order = [dim % len(dims) for dim in dims]
            back = tuple(order.index(dim) for dim in range(len(dims)))
            return way[0], torch.permute, (value, back)
    if name == "flip" and len(rest) == 1:
        return way[0], torch.flip, (value, rest[0])
    raise NotInvertible(node.name, f"the inverse of {name} is not known")


def _is_torch(function: Callable[..., Any]) -> bool:
    module = getattr(function, "__module__", None) or ""
    return function in vars(operator).values() or module.split(".")[0] in ("torch", "_operator", "")
