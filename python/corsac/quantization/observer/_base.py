"""Common parts of observers: a type, a range of quantised values, parameters of a recorded range."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from corsac.quantization import _dtypes
from corsac.quantization._kinds import is_a
from corsac.quantization._qparams import (
    PER_CHANNEL,
    PER_TENSOR,
    calculate_qmin_qmax,
    check_min_max_valid,
    qparams_of_range,
    validate_qmin_qmax,
)
from corsac.quantization.observer._constructors import _with_args, _with_callable_args

EPS = torch.finfo(torch.float32).eps


def plain(tensor: Tensor) -> bool:
    """Whether a tensor has values that may be looked at: not a fake tensor, nothing that is being compiled."""
    return type(tensor) is Tensor and not tensor.is_meta and not torch.compiler.is_compiling()


def all_finite(low: Tensor, high: Tensor) -> bool:
    """Whether ranges, [] or [channels], have neither NaN nor infinity."""
    if low.dim() == 0:
        return math.isfinite(low.item()) and math.isfinite(high.item())
    # One sum finds almost all; a sum of large numbers may overflow.
    return math.isfinite((high - low).sum().item()) or bool(
        (torch.isfinite(low) & torch.isfinite(high)).all()
    )


class ObserverBase(ABC, nn.Module):
    """A module that passes its input on and records what quantisation parameters depend on.

    Args:
        dtype: the quantised type.
        is_dynamic: whether parameters are computed from each batch when the model runs.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.observer.ObserverBase.html
    """

    #: The name of the value that is observed, for messages; set when a graph is prepared.
    observed_name: str | None = None
    #: The number of batches seen, for messages.
    batches_seen: int = 0

    def __init__(self, dtype: torch.dtype, is_dynamic: bool = False) -> None:
        super().__init__()
        self.dtype = dtype
        self.is_dynamic = is_dynamic

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def calculate_qparams(self, **kwargs: Any) -> tuple[Tensor, Tensor]: ...

    with_args = classmethod(_with_args)
    with_callable_args = classmethod(_with_callable_args)

    @classmethod
    def __subclasshook__(cls, other: type) -> Any:
        """Observers of ``torch.ao`` are observers."""
        return (cls is ObserverBase and is_a(other, "ObserverBase")) or NotImplemented

    def _label(self) -> str:
        """The observer and what it observes, for messages."""
        kind = type(self).__name__
        return f"{kind} of {self.observed_name}" if self.observed_name else kind

    def _count_batch(self) -> None:
        if not torch.compiler.is_compiling():
            self.batches_seen += 1

    def _require_finite(self, low: Tensor, high: Tensor, what: str | None = None) -> None:
        """Raise ``ValueError`` where the range of a batch, or of ``what``, has NaN or infinity."""
        if not plain(low) or all_finite(low, high):
            return
        infinite = torch.logical_not(torch.isfinite(low) & torch.isfinite(high))
        channels = infinite.nonzero().flatten().tolist() if low.dim() else []
        where = f" in channels {channels[:8]}" if channels else ""
        raise ValueError(
            f"{self._label()}: {what or f'batch {self.batches_seen}'} has NaN or infinity{where}: values are from "
            f"{low.min().item()} to {high.max().item()}, expected finite ones"
        )


class UniformQuantizationObserverBase(ObserverBase):
    """An observer of which scale and zero point follow from a range of values.

    Args:
        dtype: the quantised type, 8 bits for most backends.
        qscheme: per tensor or per channel, affine or symmetric.
        reduce_range: halves the range of quantised values, for kernels that saturate in 16 bits.
        quant_min: the smallest quantised value, that of the type if not given.
        quant_max: the largest quantised value, that of the type if not given.
        factory_kwargs: device and type of the buffers.
        eps: the smallest scale.
        is_dynamic: whether parameters are computed from each batch when the model runs.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.observer.UniformQuantizationObserverBase.html
    """

    # Version 2 has eps as a buffer; version 3 has min_val and max_val, of no dimensions in histograms. State dicts are
    # PyTorch's.
    _version = 3
    #: Schemes that a class supports.
    _schemes: tuple[torch.qscheme, ...] = (*PER_TENSOR, *PER_CHANNEL)

    eps: Tensor

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
        name = type(self).__name__
        if qscheme not in self._schemes:
            # PyTorch raises the one for the base class and the other for those derived from it.
            error = (
                NotImplementedError
                if self._schemes != (*PER_TENSOR, *PER_CHANNEL)
                else AssertionError
            )
            allowed = ", ".join(map(str, self._schemes))
            raise error(f"{name}: expected a qscheme of {allowed}, got {qscheme}")
        super().__init__(dtype=dtype, is_dynamic=is_dynamic, **kwargs)
        if dtype not in _dtypes.OBSERVED:
            allowed = ", ".join(map(str, _dtypes.OBSERVED))
            raise AssertionError(f"{name}: expected a dtype of {allowed}, got {dtype}")
        if reduce_range:
            warnings.warn(
                f"{name}: reduce_range is deprecated, use quant_min and quant_max", stacklevel=3
            )
        self.qscheme = qscheme
        self.reduce_range = reduce_range
        buffer = nn.factory_kwargs(factory_kwargs)
        self.register_buffer("eps", torch.tensor([eps], **buffer))
        self.has_customized_qrange = quant_min is not None and quant_max is not None
        if self.has_customized_qrange:
            validate_qmin_qmax(quant_min, quant_max)
        self.quant_min, self.quant_max = calculate_qmin_qmax(
            quant_min, quant_max, self.has_customized_qrange, dtype, reduce_range
        )

    def _validate_qmin_qmax(self, quant_min: int, quant_max: int) -> None:
        validate_qmin_qmax(quant_min, quant_max)

    def _calculate_qparams(self, min_val: Tensor, max_val: Tensor) -> tuple[Tensor, Tensor]:
        """Scales and zero points of ranges, [] or [channels]; see :mod:`corsac.quantization._qparams`."""
        if not check_min_max_valid(min_val, max_val):
            device = min_val.device.type
            return torch.tensor([1.0], device=device), torch.tensor([0], device=device)
        self._require_finite(min_val, max_val, "the recorded range")
        self._warn_of_zeros(min_val, max_val)
        return self.qparams_in_functions(min_val, max_val)

    def qparams_in_functions(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The same by functions that compiled programs compute natively; no values are looked at."""
        return qparams_of_range(
            low,
            high,
            self.quant_min,
            self.quant_max,
            self.dtype,
            self.eps,
            self.has_customized_qrange,
            self.qscheme,
        )

    def _warn_of_zeros(self, low: Tensor, high: Tensor) -> None:
        """Warn where all values are less than half of the smallest scale, so that they become zero."""
        if self.qscheme == torch.per_channel_affine_float_qparams or not plain(low):
            return
        largest = float(torch.max(high.max(), -low.min()))
        eps = float(self.eps)
        if 0 < 2 * largest <= eps:
            warnings.warn(
                f"{self._label()}: all values become 0: the largest is {largest}, the smallest scale (eps) {eps}; "
                "pass a smaller eps",
                stacklevel=3,
            )

    def reset_min_max_vals(self) -> None:
        """Forget the recorded range."""
        raise NotImplementedError(f"{type(self).__name__} has no range to reset")

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        *rest: Any,
    ) -> None:
        if local_metadata.get("version") in (None, 1):
            state_dict.setdefault(prefix + "eps", torch.tensor([EPS]))
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


# The name of torch.ao before PyTorch 1.13.
_ObserverBase = UniformQuantizationObserverBase
