"""Find the module that each operation came from.

While a tracer runs a model it handles every call of a module. A stack of the paths gives, for every node, the
innermost module that made it.

    python examples/module_tracer.py
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import corsac.fx as fx


class PathTracer(fx.Tracer):
    """Traces, and maps each node to the path of the module that it was recorded in."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = [""]
        self.path_of: dict[fx.Node, str] = {}

    def call_module(
        self, m: nn.Module, forward: Callable, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self.stack.append(self.path_of_module(m))
        try:
            return super().call_module(m, forward, args, kwargs)
        finally:
            self.stack.pop()

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        node = super().create_node(*args, **kwargs)
        self.path_of[node] = self.stack[-1]
        return node


class Attention(nn.Module):
    """One head, written out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return torch.softmax(q @ k.transpose(-2, -1), dim=-1) @ v


class Layer(nn.Module):
    """Attention and a feed-forward part, each with its residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = Attention(width)
        self.feed = nn.Sequential(nn.Linear(width, width), nn.GELU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x)
        return x + self.feed(x)


def main() -> None:
    tracer = PathTracer()
    graph = tracer.trace(nn.Sequential(Layer(8), Layer(8)))
    for node in graph.nodes:
        print(f"{tracer.path_of[node] or '(root)':<18} {node.format_node()}")


if __name__ == "__main__":
    main()
