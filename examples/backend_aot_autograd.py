"""A compiler of forward and backward graphs, through AOTAutograd.

AOTAutograd captures both graphs in ATen operators. A compiler is called with graph modules of corsac.fx, and
returns a function that takes its arguments as a list, which ``make_boxed_func`` makes.

    python examples/backend_aot_autograd.py
"""

from collections.abc import Callable

import torch
from torch import nn

import corsac
import corsac.fx as fx
from corsac.backends import aot_autograd, make_boxed_func


def my_compiler(gm: fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., object]:
    print(gm.code)
    return make_boxed_func(gm.forward)


my_backend = aot_autograd(fw_compiler=my_compiler)


def main() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    x = torch.randn(5, 4)
    model(x).sum().backward()
    expected = [own.grad for own in model.parameters()]
    model.zero_grad()
    corsac.compile(model, backend=my_backend)(x).sum().backward()
    for own, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(own.grad, gradient)
    print("the gradients are those of PyTorch")


if __name__ == "__main__":
    main()
