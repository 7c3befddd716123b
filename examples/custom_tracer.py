"""Choose which calls are recorded as one node and which are traced into.

A tracer calls ``is_leaf_module`` for each module. Functions become single calls by ``wrap``, or as an
argument of the tracer.

    python examples/custom_tracer.py
"""

import torch
from torch import nn

import corsac.fx as fx


class Rotation(nn.Module):
    """A block that later stages need as one call."""

    def __init__(self) -> None:
        super().__init__()
        self.angle = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        c, s = torch.cos(self.angle), torch.sin(self.angle)
        return torch.stack([x[..., 0] * c - x[..., 1] * s, x[..., 0] * s + x[..., 1] * c], -1)


def clipped(x: torch.Tensor, limit: float) -> torch.Tensor:
    """Control flow depends on a value, so that it cannot be traced into."""
    if x.abs().max() > limit:
        return x.clamp(-limit, limit)
    return x


class Net(nn.Module):
    """Uses both."""

    def __init__(self) -> None:
        super().__init__()
        self.rotate = nn.Sequential(Rotation(), Rotation())
        self.linear = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return clipped(self.linear(self.rotate(x)), 1.0)


class BlockTracer(fx.Tracer):
    """Treats the given classes and functions as leaves, besides those of PyTorch itself."""

    def __init__(self, *leaves: type[nn.Module], functions: tuple = ()) -> None:
        super().__init__(autowrap_functions=functions)
        self.leaves = leaves

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, self.leaves) or super().is_leaf_module(m, module_qualified_name)


def trace(model: nn.Module) -> fx.GraphModule:
    """Trace a model, with rotations as leaves."""
    tracer = BlockTracer(Rotation, functions=(clipped,))
    return fx.GraphModule(model, tracer.trace(model), "Net")


def main() -> None:
    model = Net()
    traced = trace(model)
    print(traced.graph)
    x = torch.randn(5, 2)
    torch.testing.assert_close(traced(x), model(x))


if __name__ == "__main__":
    main()
