"""Invert a function of one value: build the function that undoes it.

The graph is walked from its result to its input; each step is replaced by its inverse. A step without an
inverse, or that uses the value twice, is an error with the name of the node.

    python examples/invert.py
"""

import operator
from collections.abc import Callable

import torch

import corsac.fx as fx

# Inverses of calls: functions of the result's proxy and the constant, if there is one.
UNARY = {
    torch.exp: torch.log,
    torch.log: torch.exp,
    torch.tanh: torch.atanh,
    torch.atanh: torch.tanh,
    torch.neg: torch.neg,
    operator.neg: operator.neg,
    torch.sigmoid: torch.logit,
    torch.sinh: torch.asinh,
}
CONSTANT_ON_THE_RIGHT = {
    operator.add: lambda y, c: y - c,
    operator.sub: lambda y, c: y + c,
    operator.mul: lambda y, c: y / c,
    operator.truediv: lambda y, c: y * c,
}
CONSTANT_ON_THE_LEFT = {
    operator.add: lambda y, c: y - c,
    operator.sub: lambda y, c: c - y,
    operator.mul: lambda y, c: y / c,
    operator.truediv: lambda y, c: c / y,
}


class NotInvertible(ValueError):
    """A step of the function cannot be undone."""


def undo(node: fx.Node, value: fx.Proxy) -> fx.Proxy:
    """Record the inverse of one call."""
    if len(node.args) == 1 and node.target in UNARY:
        return UNARY[node.target](value)
    if len(node.args) == 2:
        left, right = node.args
        if not isinstance(right, fx.Node) and node.target in CONSTANT_ON_THE_RIGHT:
            return CONSTANT_ON_THE_RIGHT[node.target](value, right)
        if not isinstance(left, fx.Node) and node.target in CONSTANT_ON_THE_LEFT:
            return CONSTANT_ON_THE_LEFT[node.target](value, left)
    raise NotInvertible(f"no inverse is known for {node.format_node()}")


def invert(function: Callable) -> fx.GraphModule:
    """The inverse of a function of one argument."""
    graph = fx.symbolic_trace(function).graph
    inverse = fx.Graph()
    value = fx.Proxy(inverse.placeholder("y"))
    node = graph.output_node().args[0]
    while node.op != "placeholder":
        inputs = node.all_input_nodes
        if node.op != "call_function" or len(inputs) != 1 or len(node.users) != 1:
            raise NotInvertible(f"cannot undo {node.format_node()}")
        value = undo(node, value)
        node = inputs[0]
    inverse.output(value.node)
    inverse.lint()
    return fx.GraphModule({}, inverse)


def squash(x):
    return 3 - torch.tanh(torch.exp(x) / 4) * 2


def main() -> None:
    undone = invert(squash)
    print(undone.code)
    x = torch.linspace(-2, 1, 7)
    torch.testing.assert_close(undone(squash(x)), x)
    print("the inverse of the inverse:", invert(undone).code)
    try:
        invert(lambda x: x * x)
    except NotInvertible as error:
        print("refused:", error)


if __name__ == "__main__":
    main()
