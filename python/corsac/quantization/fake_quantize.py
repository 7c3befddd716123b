"""Fake quantisers: modules that round values to those of a quantised type, and record ranges while they do.

The result is ``(clamp(round(x / scale + zero_point), quant_min, quant_max) - zero_point) * scale``; gradients pass where
nothing is clamped. The names are those of ``torch.ao.quantization.fake_quantize``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from corsac._capture.markers import assume_constant, is_recording
from corsac.quantization import _dtypes, _operators  # noqa: F401
from corsac.quantization._kinds import is_a, is_fake_quantize
from corsac.quantization._qparams import PER_CHANNEL, PER_TENSOR, SYMMETRIC
from corsac.quantization.observer import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    ObserverBase,
    PerChannelMinMaxObserver,
    _PartialWrapper,
    _with_args,
    default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer,
)
from corsac.quantization.observer._base import plain
from corsac.quantization.observer._ranges import channel_range

__all__ = [
    "FakeQuantize",
    "FakeQuantizeBase",
    "FixedQParamsFakeQuantize",
    "FusedMovingAvgObsFakeQuantize",
    "default_affine_fixed_qparams_fake_quant",
    "default_dynamic_fake_quant",
    "default_embedding_fake_quant",
    "default_embedding_fake_quant_4bit",
    "default_fake_quant",
    "default_fixed_qparams_range_0to1_fake_quant",
    "default_fixed_qparams_range_neg1to1_fake_quant",
    "default_fused_act_fake_quant",
    "default_fused_per_channel_wt_fake_quant",
    "default_fused_wt_fake_quant",
    "default_histogram_fake_quant",
    "default_per_channel_weight_fake_quant",
    "default_symmetric_fixed_qparams_fake_quant",
    "default_weight_fake_quant",
    "disable_fake_quant",
    "disable_observer",
    "enable_fake_quant",
    "enable_observer",
    "fused_per_channel_wt_fake_quant_range_neg_127_to_127",
    "fused_wt_fake_quant_range_neg_127_to_127",
]


#: Observers whose ranges are functions of those of batches.
_RECORDABLE = (
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
)


@assume_constant
def _observes(switch: Tensor) -> bool:
    """Whether an observer is on where that decides about sizes, which hold for a program."""
    return switch.item() == 1


def _is_on(switch: Tensor) -> Tensor:
    """Whether a switch, [1], is on: a bool without dimensions."""
    return switch.reshape(()) != 0


class FakeQuantizeBase(ABC, nn.Module):
    """A fake quantiser with switches, [1] buffers: ``fake_quant_enabled`` and ``observer_enabled``.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.fake_quantize.FakeQuantizeBase.html
    """

    fake_quant_enabled: Tensor
    observer_enabled: Tensor
    #: NCCL broadcasts no bool tensors.
    _switch_dtype = torch.uint8

    def __init__(self) -> None:
        super().__init__()
        for name in ("fake_quant_enabled", "observer_enabled"):
            self.register_buffer(name, torch.tensor([1], dtype=self._switch_dtype))

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def calculate_qparams(self, **kwargs: Any) -> tuple[Tensor, Tensor]: ...

    def enable_fake_quant(self, enabled: bool = True) -> None:
        self.fake_quant_enabled[0] = 1 if enabled else 0

    def disable_fake_quant(self) -> None:
        self.enable_fake_quant(False)

    def enable_observer(self, enabled: bool = True) -> None:
        self.observer_enabled[0] = 1 if enabled else 0

    def disable_observer(self) -> None:
        self.enable_observer(False)

    @classmethod
    def with_args(cls, **kwargs: Any) -> _PartialWrapper:
        return _with_args(cls, **kwargs)

    @classmethod
    def __subclasshook__(cls, other: type) -> Any:
        """Fake quantisers of ``torch.ao`` are fake quantisers."""
        return (cls is FakeQuantizeBase and is_a(other, "FakeQuantizeBase")) or NotImplemented


ObserverOrFakeQuantize = ObserverBase | FakeQuantizeBase


class FakeQuantize(FakeQuantizeBase):
    """A fake quantiser with an observer, ``activation_post_process``.

    Args:
        observer: the constructor of the observer.
        quant_min: the smallest quantised value.
        quant_max: the largest quantised value.
        is_dynamic: whether parameters are computed from each batch.
        observer_kwargs: further arguments of the observer.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.fake_quantize.FakeQuantize.html
    """

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self,
        observer: Callable[..., Any] = MovingAverageMinMaxObserver,
        quant_min: int | None = None,
        quant_max: int | None = None,
        is_dynamic: bool = False,
        **observer_kwargs: Any,
    ) -> None:
        super().__init__()
        chosen = quant_min is not None and quant_max is not None
        if chosen:
            if quant_min > quant_max:
                raise AssertionError(
                    f"expected quant_min of at most quant_max, got {quant_min} and {quant_max}"
                )
            observer_kwargs.update(quant_min=quant_min, quant_max=quant_max)
        inner = observer(**observer_kwargs, is_dynamic=is_dynamic)
        if chosen:
            limits = torch.iinfo(inner.dtype)
            if quant_min < limits.min or quant_max > limits.max:
                raise AssertionError(
                    f"{quant_min} to {quant_max} is out of bound for {inner.dtype}: {limits.min} to {limits.max}"
                )
        self.activation_post_process = inner
        self.quant_min = inner.quant_min
        self.quant_max = inner.quant_max
        self.is_dynamic = inner.is_dynamic
        self.dtype = inner.dtype
        self.qscheme = inner.qscheme
        self.ch_axis = getattr(inner, "ch_axis", -1)
        if self.qscheme not in (*PER_TENSOR, *PER_CHANNEL):
            raise AssertionError(
                f"{type(self).__name__}: expected a qscheme per tensor or per channel, got {self.qscheme}"
            )
        self.is_per_channel = self.qscheme in PER_CHANNEL
        real = self.qscheme == torch.per_channel_affine_float_qparams
        self.register_buffer("scale", torch.tensor([1.0], dtype=torch.float))
        self.register_buffer(
            "zero_point", torch.tensor([0], dtype=torch.float if real else torch.int)
        )

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        return self.activation_post_process.calculate_qparams()

    def forward(self, X: Tensor) -> Tensor:
        if is_recording() and self._is_recordable(X):
            return self._in_functions(X)
        if self.observer_enabled[0] == 1:
            self.activation_post_process(X.detach())
            for buffer, value in zip(
                (self.scale, self.zero_point), self.calculate_qparams(), strict=True
            ):
                if buffer.shape != value.shape:
                    buffer.resize_(value.shape)
                buffer.copy_(value)
        if self.fake_quant_enabled[0] == 1:
            limits = self.activation_post_process.quant_min, self.activation_post_process.quant_max
            if self.is_per_channel:
                return torch.fake_quantize_per_channel_affine(
                    X, self.scale, self.zero_point, self.ch_axis, *limits
                )
            return torch.fake_quantize_per_tensor_affine(X, self.scale, self.zero_point, *limits)
        return X

    def _is_recordable(self, X: Tensor) -> bool:
        """Whether :meth:`_in_functions` computes what :meth:`forward` does."""
        inner = self.activation_post_process
        if type(self) is not FakeQuantize or type(inner) not in _RECORDABLE:
            return False
        if inner._forward_hooks or inner._forward_pre_hooks:
            return False
        # Zero points of wider types may be no numbers of float32.
        return (
            X.dtype == inner.min_val.dtype == torch.float32
            and X.numel() != 0
            and self.zero_point.dtype == torch.int32
            and inner.quant_max - inner.quant_min < 2**16
            and (inner.min_val.numel() == self.scale.numel() or _observes(self.observer_enabled))
        )

    def _in_functions(self, X: Tensor) -> Tensor:
        """:meth:`forward` in functions that compiled programs compute natively; values are not looked at."""
        inner = self.activation_post_process
        low, high = inner.range_of(X.detach())
        state = inner.min_val, inner.max_val, self.scale, self.zero_point
        if any(own.numel() != low.numel() for own in state):
            self._size_by_pytorch(low, state)
        low, high = inner.merged_in_functions(low, high)
        scale, zero_point = inner.qparams_in_functions(low, high)
        observing = _is_on(self.observer_enabled)
        found = []
        for own, value in zip(state, (low, high, scale, zero_point), strict=True):
            now, before = value.reshape(own.shape).to(torch.float32), own.to(torch.float32)
            found.append(torch.where(observing, now, before))
            own.copy_(found[-1].to(own.dtype))
        return self._rounded_by(X, *found[2:])

    def _size_by_pytorch(self, like: Tensor, state: tuple[Tensor, ...]) -> None:
        """Give ``state`` the size of ``like``: PyTorch's operator does so, once, and nothing else if it is off."""
        rows = like.new_zeros(like.numel(), 1)
        off = like.new_zeros(1, dtype=torch.long)
        torch.fused_moving_avg_obs_fake_quant(rows, off, off, *state, 1.0, 0, 1, 0, True, False)

    def _rounded_by(self, X: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
        """``X``, rounded if that is switched on, by functions that compiled programs compute natively."""
        inner = self.activation_post_process
        shape: list[int] = []
        if self.is_per_channel:
            shape = [1] * X.dim()
            shape[self.ch_axis] = -1
        return torch.ops.corsac.fake_quantize(
            X,
            scale.reshape(shape),
            zero_point.reshape(shape),
            inner.quant_min,
            inner.quant_max,
            _is_on(self.fake_quant_enabled),
        )

    def _shown(self, *fields: str) -> str:
        """Fields and their values; those of the range are the observer's."""
        inner = self.activation_post_process
        owners = {name: inner for name in ("quant_min", "quant_max", "reduce_range")}
        return ", ".join(f"{name}={getattr(owners.get(name, self), name)}" for name in fields)

    def extra_repr(self) -> str:
        return self._shown(
            "fake_quant_enabled",
            "observer_enabled",
            "quant_min",
            "quant_max",
            "dtype",
            "qscheme",
            "ch_axis",
            "scale",
            "zero_point",
        )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name in ("scale", "zero_point"):
            if prefix + name in state_dict:
                getattr(self, name).resize_(state_dict[prefix + name].shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)


class FixedQParamsFakeQuantize(FakeQuantize):
    """A fake quantiser with the parameters of a :class:`FixedQParamsObserver`.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.fake_quantize.FixedQParamsFakeQuantize.html
    """

    def __init__(self, observer: Callable[..., Any]) -> None:
        super().__init__(observer=observer)
        inner = self.activation_post_process
        if not is_a(inner, "FixedQParamsObserver"):
            raise AssertionError(
                f"{type(self).__name__}: expected a FixedQParamsObserver, got {type(inner).__name__}"
            )
        if self.qscheme not in PER_TENSOR:
            raise AssertionError(
                f"{type(self).__name__}: expected a qscheme per tensor, got {self.qscheme}"
            )
        self._observer_ctr = observer
        self.scale = inner.scale
        self.zero_point = inner.zero_point

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        return self.scale, self.zero_point

    def forward(self, X: Tensor) -> Tensor:
        if is_recording() and X.dtype == torch.float32:
            # The observer records nothing.
            return self._rounded_by(X, self.scale, self.zero_point.to(torch.float32))
        return super().forward(X)

    def extra_repr(self) -> str:
        return self._shown(
            "fake_quant_enabled",
            "observer_enabled",
            "scale",
            "zero_point",
            "dtype",
            "quant_min",
            "quant_max",
            "qscheme",
        )


class FusedMovingAvgObsFakeQuantize(FakeQuantize):
    """A fake quantiser that observes and rounds in one operator, with moving averages of the range.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.fake_quantize.FusedMovingAvgObsFakeQuantize.html
    """

    _switch_dtype = torch.long

    def __init__(
        self,
        observer: Callable[..., Any] = MovingAverageMinMaxObserver,
        quant_min: int = 0,
        quant_max: int = 255,
        **observer_kwargs: Any,
    ) -> None:
        super().__init__(observer, quant_min, quant_max, **observer_kwargs)
        inner = self.activation_post_process
        if not is_a(inner, "MovingAverageMinMaxObserver", "MovingAveragePerChannelMinMaxObserver"):
            raise AssertionError(
                f"{type(self).__name__}: expected an observer of moving averages, got {type(inner).__name__}"
            )
        self.is_symmetric_quant = self.qscheme in SYMMETRIC

    def forward(self, X: Tensor) -> Tensor:
        inner = self.activation_post_process
        if is_recording() and X.dtype == torch.float32 and X.numel() != 0:
            return self._in_functions(X)
        state = (inner.min_val, inner.max_val, self.scale, self.zero_point)
        # Values are looked at on the host only: other devices would have to wait. calculate_qparams looks once more.
        low = inner.min_val
        looked_at = hasattr(inner, "_require_finite") and plain(low) and low.device.type == "cpu"
        observing = looked_at and self.observer_enabled.item() == 1
        before = [value.clone() for value in state] if observing else []
        try:
            result = torch.fused_moving_avg_obs_fake_quant(
                X,
                self.observer_enabled,
                self.fake_quant_enabled,
                *state,
                inner.averaging_constant,
                inner.quant_min,
                inner.quant_max,
                self.ch_axis,
                self.is_per_channel,
                self.is_symmetric_quant,
            )
        finally:
            if observing:
                self._keep_finite(state, before)
        return result

    def _in_functions(self, X: Tensor) -> Tensor:
        """The same in functions that compiled programs compute natively; values are not looked at."""
        inner = self.activation_post_process
        values = X.detach()
        if self.is_per_channel:
            ends = channel_range(values, self.ch_axis)
        else:
            ends = values.amin(), values.amax()
        state = (inner.min_val, inner.max_val, self.scale, self.zero_point)
        if self.zero_point.dtype != torch.int32 or any(
            own.numel() != ends[0].numel() for own in state
        ):
            self._observe_by_pytorch(ends, state)
            # Copies, which the backward pass needs even if the next call writes to the state.
            return self._rounded_by(X, self.scale.clone(), self.zero_point.to(torch.float32))
        found = torch.ops.corsac.moving_average_qparams(
            *ends,
            _is_on(self.observer_enabled),
            _is_on(self.fake_quant_enabled),
            *(own.to(torch.float32).reshape(ends[0].shape) for own in state),
            inner.averaging_constant,
            inner.quant_min,
            inner.quant_max,
            self.is_symmetric_quant,
        )
        for own, value in zip(state, found, strict=True):
            own.copy_(value.reshape(own.shape).to(own.dtype))
        return self._rounded_by(X, *found[2:])

    def _observe_by_pytorch(self, ends: tuple[Tensor, Tensor], state: tuple[Tensor, ...]) -> None:
        """Give PyTorch's operator the ends of a range in the place of all values. It may give ``state`` other shapes."""
        inner = self.activation_post_process
        torch.fused_moving_avg_obs_fake_quant(
            torch.stack(ends, -1),
            self.observer_enabled,
            self.fake_quant_enabled,
            *state,
            inner.averaging_constant,
            inner.quant_min,
            inner.quant_max,
            0,
            self.is_per_channel,
            self.is_symmetric_quant,
        )

    def _keep_finite(self, state: tuple[Tensor, ...], before: list[Tensor]) -> None:
        """Count a batch; go back to the state before it where it has NaN or infinity, and raise ``ValueError``."""
        inner = self.activation_post_process
        inner._count_batch()
        try:
            inner._require_finite(inner.min_val, inner.max_val)
        except ValueError:
            for buffer, value in zip(state, before, strict=True):
                buffer.resize_(value.shape)
                buffer.copy_(value)
            raise

    def extra_repr(self) -> str:
        return self._shown(
            "fake_quant_enabled",
            "observer_enabled",
            "scale",
            "zero_point",
            "dtype",
            "quant_min",
            "quant_max",
            "qscheme",
            "reduce_range",
        )


def _switch(name: str, does: str) -> Callable[[nn.Module], None]:
    def switch(mod: nn.Module) -> None:
        if is_fake_quantize(mod):
            getattr(mod, name)()

    switch.__name__ = switch.__qualname__ = name
    switch.__doc__ = f"""{does} of ``mod`` if it is a fake quantiser: ``model.apply({name})``.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.fake_quantize.{name}.html
    """
    return switch


disable_fake_quant = _switch("disable_fake_quant", "Switch off the rounding")
enable_fake_quant = _switch("enable_fake_quant", "Switch on the rounding")
disable_observer = _switch("disable_observer", "Switch off the observer")
enable_observer = _switch("enable_observer", "Switch on the observer")


# Arguments of activations and weights.
_UINT8 = {"quant_min": 0, "quant_max": 255, "dtype": _dtypes.quint8}
_INT8 = {"quant_min": -128, "quant_max": 127, "dtype": _dtypes.qint8}
_XNNPACK = {"quant_min": -127, "quant_max": 127, "dtype": _dtypes.qint8, "eps": 2**-12}
_AVERAGE = {"observer": MovingAverageMinMaxObserver}
_AVERAGE_PER_CHANNEL = {"observer": MovingAveragePerChannelMinMaxObserver}
_AFFINE_7_BITS = {"qscheme": torch.per_tensor_affine, "reduce_range": True}
_REAL_ZERO_POINTS = {
    **_AVERAGE_PER_CHANNEL,
    "qscheme": torch.per_channel_affine_float_qparams,
    "ch_axis": 0,
    "averaging_constant": 1,
}
_PER_TENSOR = {"qscheme": torch.per_tensor_symmetric}
_PER_CHANNEL = {"qscheme": torch.per_channel_symmetric}

default_fake_quant = FakeQuantize.with_args(**_AVERAGE, **_UINT8, **_AFFINE_7_BITS)
default_histogram_fake_quant = FakeQuantize.with_args(
    observer=HistogramObserver, **_UINT8, **_AFFINE_7_BITS
)
default_dynamic_fake_quant = FakeQuantize.with_args(
    **_AVERAGE, **_UINT8, is_dynamic=True, averaging_constant=1
)
default_weight_fake_quant = FakeQuantize.with_args(
    **_AVERAGE, **_INT8, **_PER_TENSOR, reduce_range=False
)
default_per_channel_weight_fake_quant = FakeQuantize.with_args(
    **_AVERAGE_PER_CHANNEL, **_INT8, **_PER_CHANNEL, reduce_range=False, ch_axis=0
)
default_embedding_fake_quant = FakeQuantize.with_args(**_REAL_ZERO_POINTS, **_UINT8)
default_embedding_fake_quant_4bit = FakeQuantize.with_args(
    **_REAL_ZERO_POINTS, dtype=_dtypes.quint4x2
)

default_fixed_qparams_range_neg1to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=default_fixed_qparams_range_neg1to1_observer
)
default_fixed_qparams_range_0to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=default_fixed_qparams_range_0to1_observer
)
default_symmetric_fixed_qparams_fake_quant = default_fixed_qparams_range_neg1to1_fake_quant
default_affine_fixed_qparams_fake_quant = default_fixed_qparams_range_0to1_fake_quant

default_fused_act_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(**_AVERAGE, **_UINT8)
default_fused_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    **_AVERAGE, **_INT8, **_PER_TENSOR
)
default_fused_per_channel_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    **_AVERAGE_PER_CHANNEL, **_INT8, **_PER_CHANNEL
)
fused_wt_fake_quant_range_neg_127_to_127 = FusedMovingAvgObsFakeQuantize.with_args(
    **_AVERAGE, **_XNNPACK, **_PER_TENSOR
)
fused_per_channel_wt_fake_quant_range_neg_127_to_127 = FusedMovingAvgObsFakeQuantize.with_args(
    **_AVERAGE_PER_CHANNEL, **_XNNPACK, **_PER_CHANNEL
)
