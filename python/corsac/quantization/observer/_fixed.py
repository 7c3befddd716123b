"""Observers that record nothing, or all: fixed parameters, placeholders, records for debugging."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from corsac.quantization import _dtypes
from corsac.quantization._qparams import PER_CHANNEL
from corsac.quantization.observer._base import EPS, ObserverBase


class FixedQParamsObserver(ObserverBase):
    """A given scale and zero point, per tensor.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.observer.FixedQParamsObserver.html
    """

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self,
        scale: float,
        zero_point: int,
        dtype: torch.dtype = _dtypes.quint8,
        qscheme: torch.qscheme = torch.per_tensor_affine,
        quant_min: int = 0,
        quant_max: int = 255,
        is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:
        if is_dynamic:
            raise NotImplementedError("FixedQParamsObserver: fixed parameters are not dynamic")
        super().__init__(dtype=dtype, is_dynamic=is_dynamic, **kwargs)
        self.qscheme = qscheme
        self.quant_min = quant_min
        self.quant_max = quant_max
        self.register_buffer("scale", torch.tensor([scale], dtype=torch.float))
        self.register_buffer("zero_point", torch.tensor([zero_point], dtype=torch.int))

    def forward(self, X: Tensor) -> Tensor:
        return X

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        return self.scale, self.zero_point


class _WithoutParameters(ObserverBase):
    """An observer that passes values on and has no parameters."""

    def forward(self, x: Tensor) -> Tensor:
        return x

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        raise NotImplementedError(f"{self._label()} has no quantisation parameters")


class PlaceholderObserver(_WithoutParameters):
    """A type, and a range of quantised values, without anything recorded.

    For float16, and for dynamic quantisation (``is_dynamic``). ``compute_dtype`` is an old name of the latter.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.observer.PlaceholderObserver.html
    """

    def __init__(
        self,
        dtype: torch.dtype = torch.float32,
        custom_op_name: str = "",
        compute_dtype: torch.dtype | None = None,
        quant_min: int | None = None,
        quant_max: int | None = None,
        qscheme: torch.qscheme | None = None,
        eps: float | None = None,
        is_dynamic: bool = False,
    ) -> None:
        if compute_dtype:
            is_dynamic = True
            warnings.warn(
                "PlaceholderObserver: compute_dtype is deprecated, use is_dynamic", stacklevel=2
            )
        super().__init__(dtype=dtype, is_dynamic=is_dynamic)
        self.qscheme = torch.per_tensor_affine if qscheme is None else qscheme
        self.quant_min = quant_min
        self.quant_max = quant_max
        self.eps = EPS if eps is None else eps
        self.custom_op = custom_op_name

    def extra_repr(self) -> str:
        return f"dtype={self.dtype}, is_dynamic={self.is_dynamic}"


class RecordingObserver(_WithoutParameters):
    """All batches, copied, in ``tensor_val``; for debugging.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.observer.RecordingObserver.html
    """

    def __init__(self, dtype: torch.dtype = _dtypes.quint8) -> None:
        super().__init__(dtype=dtype)
        self.tensor_val: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.tensor_val.append(x.clone())
        return x

    def get_tensor_value(self) -> list[Tensor]:
        return self.tensor_val


class NoopObserver(_WithoutParameters):
    """A type without anything recorded, for float16.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.observer.NoopObserver.html
    """

    def __init__(self, dtype: torch.dtype = torch.float16, custom_op_name: str = "") -> None:
        super().__init__(dtype=dtype)
        self.custom_op = custom_op_name


class ReuseInputObserver(_WithoutParameters):
    """Stands for the observer of an operator's input: the output of a reshape has the input's parameters."""

    def __init__(self) -> None:
        super().__init__(dtype=_dtypes.quint8)


class _DerivedObserverOrFakeQuantize(_WithoutParameters):
    """Parameters computed from those of other observers or fake quantisers, as those of a bias are."""

    def __init__(
        self,
        dtype: torch.dtype,
        obs_or_fqs: Sequence[Any],
        derive_qparams_fn: Callable[[Sequence[Any]], tuple[Tensor, Tensor]],
        quant_min: int | None = None,
        quant_max: int | None = None,
        qscheme: torch.qscheme | None = None,
        ch_axis: int | None = None,
    ) -> None:
        if qscheme in PER_CHANNEL and ch_axis is None:
            raise AssertionError(f"expected a ch_axis for {qscheme}")
        super().__init__(dtype=dtype)
        self.obs_or_fqs = obs_or_fqs
        self.derive_qparams_fn = derive_qparams_fn
        self.quant_min = quant_min
        self.quant_max = quant_max
        self.qscheme = qscheme
        self.ch_axis = ch_axis

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        return self.derive_qparams_fn(self.obs_or_fqs)
