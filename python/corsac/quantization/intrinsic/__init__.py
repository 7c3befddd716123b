"""Fused modules: sequences that become one quantised operator.

The names are those of ``torch.ao.nn.intrinsic``; ``corsac.quantization.intrinsic.qat`` has those for training.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

__all__ = [
    "BNReLU2d",
    "BNReLU3d",
    "ConvAdd2d",
    "ConvAddReLU2d",
    "ConvBn1d",
    "ConvBn2d",
    "ConvBn3d",
    "ConvBnReLU1d",
    "ConvBnReLU2d",
    "ConvBnReLU3d",
    "ConvReLU1d",
    "ConvReLU2d",
    "ConvReLU3d",
    "LinearBn1d",
    "LinearLeakyReLU",
    "LinearReLU",
    "LinearTanh",
]


class _FusedModule(nn.Sequential):
    """A sequence of modules of given types, by the names of the constructor's arguments."""

    _parts: tuple[tuple[str, type[nn.Module]], ...] = ()

    def __init__(self, *modules: nn.Module, **named: nn.Module) -> None:
        if self._parts:
            names, expected = zip(*self._parts, strict=True)
            rest = [name for name in names[len(modules) :] if name in named]
            modules = (*modules, *(named.pop(name) for name in rest))
            got = tuple(map(type_before_parametrizations, modules))
            if named or len(got) != len(expected):
                raise TypeError(
                    f"{type(self).__name__}: expected {', '.join(names)}; "
                    f"got {len(got)} modules of these names and {sorted(named)}"
                )
            if got != expected:
                raise AssertionError(
                    f"{type(self).__name__}: expected modules of types {_names(expected)}, got {_names(got)}"
                )
        super().__init__(*modules)


def _names(types: tuple[type, ...]) -> str:
    return ", ".join(kind.__name__ for kind in types)


class ConvReLU1d(_FusedModule):
    """Conv1d, ReLU."""

    _parts = (("conv", nn.Conv1d), ("relu", nn.ReLU))


class ConvReLU2d(_FusedModule):
    """Conv2d, ReLU."""

    _parts = (("conv", nn.Conv2d), ("relu", nn.ReLU))


class ConvReLU3d(_FusedModule):
    """Conv3d, ReLU."""

    _parts = (("conv", nn.Conv3d), ("relu", nn.ReLU))


class ConvBn1d(_FusedModule):
    """Conv1d, BatchNorm1d."""

    _parts = (("conv", nn.Conv1d), ("bn", nn.BatchNorm1d))


class ConvBn2d(_FusedModule):
    """Conv2d, BatchNorm2d."""

    _parts = (("conv", nn.Conv2d), ("bn", nn.BatchNorm2d))


class ConvBn3d(_FusedModule):
    """Conv3d, BatchNorm3d."""

    _parts = (("conv", nn.Conv3d), ("bn", nn.BatchNorm3d))


class ConvBnReLU1d(_FusedModule):
    """Conv1d, BatchNorm1d, ReLU."""

    _parts = (("conv", nn.Conv1d), ("bn", nn.BatchNorm1d), ("relu", nn.ReLU))


class ConvBnReLU2d(_FusedModule):
    """Conv2d, BatchNorm2d, ReLU."""

    _parts = (("conv", nn.Conv2d), ("bn", nn.BatchNorm2d), ("relu", nn.ReLU))


class ConvBnReLU3d(_FusedModule):
    """Conv3d, BatchNorm3d, ReLU."""

    _parts = (("conv", nn.Conv3d), ("bn", nn.BatchNorm3d), ("relu", nn.ReLU))


class BNReLU2d(_FusedModule):
    """BatchNorm2d, ReLU."""

    _parts = (("batch_norm", nn.BatchNorm2d), ("relu", nn.ReLU))


class BNReLU3d(_FusedModule):
    """BatchNorm3d, ReLU."""

    _parts = (("batch_norm", nn.BatchNorm3d), ("relu", nn.ReLU))


class LinearReLU(_FusedModule):
    """Linear, ReLU."""

    _parts = (("linear", nn.Linear), ("relu", nn.ReLU))


class LinearBn1d(_FusedModule):
    """Linear, BatchNorm1d."""

    _parts = (("linear", nn.Linear), ("bn", nn.BatchNorm1d))


class LinearLeakyReLU(_FusedModule):
    """Linear, LeakyReLU."""

    _parts = (("linear", nn.Linear), ("leaky_relu", nn.LeakyReLU))


class LinearTanh(_FusedModule):
    """Linear, Tanh."""

    _parts = (("linear", nn.Linear), ("tanh", nn.Tanh))


class ConvAdd2d(_FusedModule):
    """A convolution, and the sum of its result and another value: ``add(conv(x1), x2)``."""

    def __init__(self, conv: nn.Module, add: Any) -> None:
        super().__init__(conv)
        self.add = add

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return self.add(self[0](x1), x2)


class ConvAddReLU2d(_FusedModule):
    """A convolution, the sum of its result and another value, and an activation: ``relu(add(conv(x1), x2))``."""

    def __init__(self, conv: nn.Module, add: Any, relu: Any) -> None:
        super().__init__(conv)
        self.add = add
        self.relu = relu

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return self.relu(self.add(self[0](x1), x2))
