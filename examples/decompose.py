"""Decompose operators, by tracing a rule for each of them.

A rule is an ordinary Python function. Calling it with proxies that write into the new graph
records the operators it uses, so that no nodes need to be built by hand.

    python examples/decompose.py
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

import corsac.fx as fx


def relu(x, inplace=False):
    return (x > 0) * x


def hardswish(x, inplace=False):
    return x * torch.clamp(x + 3, 0, 6) / 6


def layer_norm(x, shape, weight=None, bias=None, eps=1e-5):
    dims = tuple(range(-len(shape), 0))
    centred = x - x.mean(dims, keepdim=True)
    result = centred * torch.rsqrt((centred * centred).mean(dims, keepdim=True) + eps)
    if weight is not None:
        result = result * weight
    return result if bias is None else result + bias


def gelu(x, approximate="none"):
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


RULES = {
    F.relu: relu,
    torch.relu: relu,
    F.hardswish: hardswish,
    F.layer_norm: layer_norm,
    F.gelu: gelu,
}


def decompose(traced: fx.GraphModule) -> fx.GraphModule:
    """A copy of a module in which every call with a rule is decomposed."""
    graph = fx.Graph()
    tracer = fx.proxy.GraphAppendingTracer(graph)
    copies: dict[fx.Node, fx.Node] = {}
    for node in traced.graph.nodes:
        rule = RULES.get(node.target) if node.op == "call_function" else None
        if rule is None:
            copies[node] = graph.node_copy(node, lambda n: copies[n])
            continue
        arguments = fx.map_arg((node.args, node.kwargs), lambda n: fx.Proxy(copies[n], tracer))
        copies[node] = rule(*arguments[0], **arguments[1]).node
    return fx.GraphModule(traced, graph)


class Net(nn.Module):
    """A module to decompose."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.weight = nn.Parameter(torch.randn(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.layer_norm(self.linear(x), (8,), self.weight)
        return F.gelu(F.relu(x) + F.hardswish(x))


def main() -> None:
    traced = fx.symbolic_trace(Net())
    decomposed = decompose(traced)
    print("before:", traced.code)
    print("after:", decomposed.code)
    x = torch.randn(4, 8)
    torch.testing.assert_close(decomposed(x), traced(x))
    print(f"{len(traced.graph.nodes)} nodes became {len(decomposed.graph.nodes)}")


if __name__ == "__main__":
    main()
