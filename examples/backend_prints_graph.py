"""A backend that prints the graph it is given, for a function and for a module.

A backend is a function of a graph module and example inputs that returns a function. This one returns the
graph unchanged.

    python examples/backend_prints_graph.py
"""

from collections.abc import Callable

import torch
from torch import nn

import corsac
import corsac.fx as fx


def my_compiler(gm: fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., object]:
    print("my_compiler() called with graph:")
    gm.graph.print_tabular()
    return gm.forward


@corsac.compile(backend=my_compiler)
def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    a = torch.cos(x)
    b = torch.sin(y)
    return a + b


class MockModule(nn.Module):
    """A layer and an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(torch.cos(x))


def main() -> None:
    x, y = torch.randn(10), torch.randn(10)
    torch.testing.assert_close(fn(x, y), torch.cos(x) + torch.sin(y))
    module = MockModule()
    optimized = corsac.compile(module, backend=my_compiler)
    torch.testing.assert_close(optimized(x), module(x))


if __name__ == "__main__":
    main()
