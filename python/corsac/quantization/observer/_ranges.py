"""Observers of the smallest and the largest value: running or averaged, per tensor or per channel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from corsac.quantization import _dtypes
from corsac.quantization._qparams import PER_CHANNEL, PER_TENSOR, SYMMETRIC
from corsac.quantization.observer._base import EPS, UniformQuantizationObserverBase


def channel_range(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The smallest and the largest value of each channel, [channels]."""
    others = [dim for dim in range(x.dim()) if dim != axis % x.dim()]
    # Two reductions are several times faster than aminmax along a dimension.
    return (x.amin(others), x.amax(others)) if others else (x, x)


class _RangeObserver(UniformQuantizationObserverBase):
    """An observer with a recorded range: ``min_val`` and ``max_val``, [] or [channels]."""

    min_val: Tensor
    max_val: Tensor

    def _register_range(self, low: Any, high: Any, factory_kwargs: dict[str, Any] | None) -> None:
        buffer = nn.factory_kwargs(factory_kwargs)
        self.register_buffer("min_val", torch.tensor(low, **buffer))
        self.register_buffer("max_val", torch.tensor(high, **buffer))
        if self.qscheme in SYMMETRIC and self.reduce_range and self.dtype == _dtypes.quint8:
            raise NotImplementedError(
                f"{type(self).__name__}: reduce_range with a symmetric qscheme is not possible for {self.dtype}"
            )

    def range_of(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The range of a batch."""
        raise NotImplementedError

    def _seen(self) -> bool:
        """Whether a range was recorded."""
        raise NotImplementedError

    def _merged(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The recorded range with that of one more batch."""
        return torch.min(low, self.min_val), torch.max(high, self.max_val)

    def forward(self, x_orig: Tensor) -> Tensor:
        """Record the range of a batch of any shape; the batch is returned. Nothing is recorded if it is empty."""
        if x_orig.numel() == 0:
            return x_orig
        self._count_batch()
        low, high = self.range_of(x_orig.detach().to(self.min_val.dtype))
        self._require_finite(low, high)
        if self._seen():
            low, high = self._merged(low, high)
        for buffer, value in ((self.min_val, low), (self.max_val, high)):
            buffer.resize_(value.shape)
            buffer.copy_(value)
        return x_orig

    def merged_in_functions(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The recorded range, of infinities if nothing was seen, with that of one more batch, by functions that compiled
        programs compute natively: it is not recorded, and no values are looked at."""
        return self._merged(low, high)

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """The scales and zero points of the recorded range, [1] or [channels]."""
        return self._calculate_qparams(self.min_val, self.max_val)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"


class MinMaxObserver(_RangeObserver):
    """The smallest and the largest value of all batches.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.observer.MinMaxObserver.html
    """

    _schemes = PER_TENSOR

    def __init__(
        self,
        dtype: torch.dtype = _dtypes.quint8,
        qscheme: torch.qscheme = torch.per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict[str, Any] | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            dtype,
            qscheme,
            reduce_range,
            quant_min,
            quant_max,
            factory_kwargs,
            eps,
            is_dynamic,
            **kwargs,
        )
        self._register_range(float("inf"), float("-inf"), factory_kwargs)

    def range_of(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.aminmax(x)

    def _seen(self) -> bool:
        return True  # infinities are what nothing seen is merged as

    def reset_min_max_vals(self) -> None:
        self.min_val.fill_(float("inf"))
        self.max_val.fill_(float("-inf"))


class PerChannelMinMaxObserver(_RangeObserver):
    """The smallest and the largest value of each channel.

    Args:
        ch_axis: the dimension of the channels.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.observer.PerChannelMinMaxObserver.html
    """

    _schemes = PER_CHANNEL

    def __init__(
        self,
        ch_axis: int = 0,
        dtype: torch.dtype = _dtypes.quint8,
        qscheme: torch.qscheme = torch.per_channel_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict[str, Any] | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:
        if is_dynamic:
            raise NotImplementedError(
                f"{type(self).__name__}: dynamic quantisation is per tensor only"
            )
        super().__init__(
            dtype,
            qscheme,
            reduce_range,
            quant_min,
            quant_max,
            factory_kwargs,
            eps,
            is_dynamic,
            **kwargs,
        )
        self.ch_axis = ch_axis
        self._register_range([], [], factory_kwargs)

    def range_of(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if not -x.dim() <= self.ch_axis < x.dim():
            raise IndexError(
                f"{type(self).__name__}: expected values with dimension {self.ch_axis}, got {x.dim()} dimensions"
            )
        return channel_range(x, self.ch_axis)

    def _seen(self) -> bool:
        return self.min_val.numel() != 0 and self.max_val.numel() != 0

    def reset_min_max_vals(self) -> None:
        self.min_val.resize_(0)
        self.max_val.resize_(0)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        *rest: Any,
    ) -> None:
        version = local_metadata.get("version")
        for name in ("min_val", "max_val"):
            if version is not None and version < 3 and f"{prefix}{name}s" in state_dict:
                state_dict[prefix + name] = state_dict.pop(f"{prefix}{name}s")
            if prefix + name in state_dict:
                getattr(self, name).resize_(state_dict[prefix + name].shape)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class _MovingAverage:
    """Averages ranges: each batch moves the recorded range by ``averaging_constant`` of the difference."""

    averaging_constant: float

    def _merged(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        share = self.averaging_constant
        return (
            self.min_val + share * (low - self.min_val),
            self.max_val + share * (high - self.max_val),
        )

    def merged_in_functions(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        seen = torch.logical_or(self.min_val != float("inf"), self.max_val != float("-inf"))
        least, most = self._merged(low, high)
        return torch.where(seen, least, low), torch.where(seen, most, high)


class MovingAverageMinMaxObserver(_MovingAverage, MinMaxObserver):
    """Moving averages of the smallest and the largest value of batches.

    Args:
        averaging_constant: the share of a new batch; 1 keeps the last batch only.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.observer.MovingAverageMinMaxObserver.html
    """

    def __init__(
        self,
        averaging_constant: float = 0.01,
        dtype: torch.dtype = _dtypes.quint8,
        qscheme: torch.qscheme = torch.per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:
        if is_dynamic and averaging_constant != 1:
            raise NotImplementedError(
                "MovingAverageMinMaxObserver: expected an averaging_constant of 1 for dynamic quantisation, "
                f"got {averaging_constant}"
            )
        super().__init__(
            dtype,
            qscheme,
            reduce_range,
            quant_min,
            quant_max,
            eps=eps,
            is_dynamic=is_dynamic,
            **kwargs,
        )
        self.averaging_constant = averaging_constant

    def _seen(self) -> bool:
        return bool(self.min_val != float("inf")) or bool(self.max_val != float("-inf"))


class MovingAveragePerChannelMinMaxObserver(_MovingAverage, PerChannelMinMaxObserver):
    """Moving averages of the smallest and the largest value of each channel.

    Args:
        averaging_constant: the share of a new batch; 1 keeps the last batch only.
        ch_axis: the dimension of the channels.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.observer.MovingAveragePerChannelMinMaxObserver.html
    """

    def __init__(
        self,
        averaging_constant: float = 0.01,
        ch_axis: int = 0,
        dtype: torch.dtype = _dtypes.quint8,
        qscheme: torch.qscheme = torch.per_channel_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            ch_axis,
            dtype,
            qscheme,
            reduce_range,
            quant_min,
            quant_max,
            eps=eps,
            is_dynamic=is_dynamic,
            **kwargs,
        )
        self.averaging_constant = averaging_constant
