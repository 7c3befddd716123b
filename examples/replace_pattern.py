"""Find a group of operations and replace it by another.

The pattern and its replacement are plain functions; their parameters match any value.

    python examples/replace_pattern.py
"""

import torch
import torch.nn.functional as F
from torch import nn

import corsac.fx as fx


def swish(x):
    return x * torch.sigmoid(x)


def fused_swish(x):
    return F.silu(x)


def scaled_add(x, y, scale):
    return torch.add(x, torch.mul(y, scale))


def fused_scaled_add(x, y, scale):
    return torch.addcmul(x, y, scale)


class Net(nn.Module):
    """Contains both patterns, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.randn(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            y = self.linear(x)
            x = torch.add(x, torch.mul(y * torch.sigmoid(y), self.scale))
        return x


def optimize(model: nn.Module) -> tuple[fx.GraphModule, int]:
    """A traced model with both patterns replaced, and the number of places."""
    traced = fx.symbolic_trace(model)
    found = fx.replace_pattern(traced, swish, fused_swish)
    found += fx.replace_pattern(traced, scaled_add, fused_scaled_add)
    return traced, len(found)


def main() -> None:
    model = Net()
    traced, places = optimize(model)
    print(traced.code)
    print(f"replaced {places} places")
    x = torch.randn(2, 4)
    torch.testing.assert_close(traced(x), model(x))


if __name__ == "__main__":
    main()
