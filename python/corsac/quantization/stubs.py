"""Modules that mark where values become quantised and real. The names are those of ``torch.ao.quantization.stubs``."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

__all__ = ["DeQuantStub", "QuantStub", "QuantWrapper"]


class _Stub(nn.Module):
    """A module that passes values on."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Tensor) -> Tensor:
        return x


class QuantStub(_Stub):
    """The place where a value is quantised.

    Args:
        qconfig: the configuration of the value; that of the parent module if not given.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.QuantStub.html
    """


class DeQuantStub(_Stub):
    """The place where a value becomes real.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.DeQuantStub.html
    """


class QuantWrapper(nn.Module):
    """A module between a :class:`QuantStub` and a :class:`DeQuantStub`.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.QuantWrapper.html
    """

    quant: QuantStub
    dequant: DeQuantStub
    module: nn.Module

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        qconfig = getattr(module, "qconfig", None)
        self.quant = QuantStub(qconfig)
        self.dequant = DeQuantStub(qconfig)
        self.module = module
        self.train(module.training)

    def forward(self, X: Tensor) -> Tensor:
        return self.dequant(self.module(self.quant(X)))
