"""Operations between values, as modules that can be observed. The names are those of ``torch.ao.nn.quantized``."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corsac.quantization.quantized._output import RoundedOutput

__all__ = ["FXFloatFunctional", "FloatFunctional", "QFunctional"]


class _Functional(nn.Module):
    """Operations. Each result goes through :meth:`_result`, except those with a number: they have the steps of the
    input, shifted or scaled.
    """

    def forward(self, x: Any) -> Any:
        raise RuntimeError(
            f"{type(self).__name__} is not called itself, expected a call of one of its operations, such as add"
        )

    def _result(self, value: Tensor) -> Tensor:
        return value

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """``x + y``"""
        return self._result(torch.add(x, y))

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        """``x + y`` for a number ``y``"""
        return torch.add(x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """``x * y``"""
        return self._result(torch.mul(x, y))

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        """``x * y`` for a number ``y``"""
        return torch.mul(x, y)

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        """Tensors joined along a dimension"""
        return self._result(torch.cat(x, dim=dim))

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """``relu(x + y)``"""
        return self._result(F.relu(torch.add(x, y)))

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """``x @ y``"""
        return self._result(torch.matmul(x, y))


class FloatFunctional(_Functional):
    """Operations between floats, the results of which are observed.

    A module has one for each operation, ``self.sum = FloatFunctional()``, and calls ``self.sum.add(x, y)``.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.nn.quantized.FloatFunctional.html
    """

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process = nn.Identity()

    def _result(self, value: Tensor) -> Tensor:
        return self.activation_post_process(value)


class FXFloatFunctional(_Functional):
    """:class:`FloatFunctional` for graph modules, which have observers of their own.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.nn.quantized.FXFloatFunctional.html
    """


class QFunctional(RoundedOutput, _Functional):
    """Operations with rounded results.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.nn.quantized.QFunctional.html
    """

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.zero_point = 1.0, 0
        self.output_min, self.output_max, self.output_dtype = 0, 255, torch.uint8

    def _get_name(self) -> str:
        return "QFunctional"

    def _result(self, value: Tensor) -> Tensor:
        return self.rounded(value)

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: bool = False) -> QFunctional:
        """The operations of an observed :class:`FloatFunctional`."""
        made = cls()
        made.train(mod.training)
        made.set_output(getattr(mod, "activation_post_process", None))
        return made

    def extra_repr(self) -> str:
        return self._described_output().lstrip(", ")
