"""Remove dropout from a model permanently, with a Transformer.

A transformer replays a graph into a new one. The result of a method replaces the call, so that returning the
input of a dropout removes it.

    python examples/remove_dropout.py
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import corsac.fx as fx

DROPOUT_MODULES = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)
DROPOUT_FUNCTIONS = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout)


class RemoveDropout(fx.Transformer):
    """Returns the input of every dropout."""

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(self.submodules[target], DROPOUT_MODULES):
            return args[0] if args else kwargs["input"]
        return super().call_module(target, args, kwargs)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target in DROPOUT_FUNCTIONS:
            return args[0] if args else kwargs["input"]
        return super().call_function(target, args, kwargs)


class Net(nn.Module):
    """Uses dropout in both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.dropout = nn.Dropout(0.5)
        self.second = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.dropout(torch.relu(self.first(x)))
        return F.dropout(self.second(x), p=0.2, training=self.training)


def main() -> None:
    model = Net()
    traced = fx.symbolic_trace(model)
    cleaned = RemoveDropout(traced).transform()
    print("before:", traced.code)
    print("after:", cleaned.code)
    x = torch.randn(3, 4)
    torch.testing.assert_close(cleaned(x), model.eval()(x))
    print("modules that are left:", [name for name, _ in cleaned.named_children()])


if __name__ == "__main__":
    main()
