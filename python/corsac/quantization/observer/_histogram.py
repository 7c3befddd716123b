"""The observer that keeps a histogram, and searches the range with the least error."""

from __future__ import annotations

import ctypes
import math
import warnings
from bisect import bisect_left, bisect_right
from typing import Any

import torch
from torch import Tensor, nn

from corsac.quantization import _dtypes
from corsac.quantization._qparams import PER_TENSOR
from corsac.quantization.observer._base import EPS, UniformQuantizationObserverBase

#: A histogram is this many times finer when it is moved to another range.
UPSAMPLE_RATE = 16
#: The share of all values by which the search moves a bound.
STEP = 1e-5


class HistogramObserver(UniformQuantizationObserverBase):
    """A histogram of all batches; its outliers are cut off where that makes the squared error less.

    Args:
        bins: the number of bins.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.observer.HistogramObserver.html
    """

    _schemes = PER_TENSOR

    histogram: Tensor
    min_val: Tensor
    max_val: Tensor

    def __init__(
        self,
        bins: int = 2048,
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
        if is_dynamic:
            raise NotImplementedError("HistogramObserver: dynamic quantisation keeps no histogram")
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
        self.bins = bins
        buffer = nn.factory_kwargs(factory_kwargs)
        self.register_buffer("histogram", torch.zeros(bins, **buffer))
        self.register_buffer("min_val", torch.tensor(float("inf"), **buffer))
        self.register_buffer("max_val", torch.tensor(float("-inf"), **buffer))
        self.dst_nbins = 2 ** torch.iinfo(dtype).bits
        self.upsample_rate = UPSAMPLE_RATE

    def forward(self, x_orig: Tensor) -> Tensor:
        """Count the values of a batch of any shape; the batch is returned. Infinite values are not counted."""
        if x_orig.numel() == 0:
            return x_orig
        self._count_batch()
        x = x_orig.detach()
        low, high = torch.aminmax(x)
        if bool(low == -torch.inf) or bool(high == torch.inf):
            warnings.warn(
                f"{self._label()}: batch {self.batches_seen} has infinite values, which are ignored",
                stacklevel=2,
            )
            x = x[x.abs() != torch.inf]
            if x.numel() == 0:
                return x_orig
            low, high = torch.aminmax(x)
        self._require_finite(low, high)
        if self._unseen():
            self.reset_histogram(x, low, high)
            return x_orig
        new_low, new_high = torch.min(self.min_val, low), torch.max(self.max_val, high)
        added = torch.histc(x, self.bins, min=new_low, max=new_high).to(self.histogram.device)
        self._store(
            self._combine_histograms(
                self.histogram, self.min_val, self.max_val, added, new_low, new_high
            ),
            new_low,
            new_high,
        )
        return x_orig

    def reset_histogram(self, x: Tensor, min_val: Tensor, max_val: Tensor) -> None:
        """Forget all batches but ``x``, of which the smallest and the largest value are given, []."""
        if min_val.numel() != 1 or max_val.numel() != 1:
            raise AssertionError(
                f"expected one smallest and one largest value, got {min_val.numel()} and {max_val.numel()}"
            )
        self._store(torch.histc(x, self.bins, min=min_val, max=max_val), min_val, max_val)

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """The scale and the zero point, [1], of the range that the search finds."""
        if bool(self.min_val == float("inf")) and bool(self.max_val == float("-inf")):
            return self._calculate_qparams(self.min_val, self.max_val)
        if len(self.histogram) != self.bins:
            raise AssertionError(
                f"{self._label()}: expected a histogram of {self.bins} bins, got {len(self.histogram)}"
            )
        return self._calculate_qparams(*self._non_linear_param_search())

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"

    def _unseen(self) -> bool:
        return bool(self.min_val == float("inf")) or bool(self.max_val == float("-inf"))

    def _store(self, histogram: Tensor, low: Tensor, high: Tensor) -> None:
        for buffer, value in (
            (self.histogram, histogram),
            (self.min_val, low),
            (self.max_val, high),
        ):
            buffer.detach_().resize_(value.shape)
            buffer.copy_(value)

    def _combine_histograms(
        self,
        orig_hist: Tensor,
        orig_min: Tensor,
        orig_max: Tensor,
        update_hist: Tensor,
        update_min: Tensor,
        update_max: Tensor,
    ) -> Tensor:
        """The sum of two histograms in the range of the second one, which contains that of the first."""
        if bool(update_min == orig_min) and bool(update_max == orig_max):
            return orig_hist + update_hist
        if bool(orig_min == orig_max):  # all values are one
            where = torch.histc(orig_min, bins=self.bins, min=update_min, max=update_max)
            return where * torch.sum(orig_hist) + update_hist
        if bool(update_min > orig_min) or bool(update_max < orig_max):
            raise AssertionError(
                f"{self._label()}: the range {update_min.item()} to {update_max.item()} does not contain "
                f"{orig_min.item()} to {orig_max.item()}"
            )
        return update_hist + self._upscale_histogram(
            orig_hist, orig_min, orig_max, update_min, update_max
        )

    def _upscale_histogram(
        self,
        histogram: Tensor,
        orig_min: Tensor,
        orig_max: Tensor,
        update_min: Tensor,
        update_max: Tensor,
    ) -> Tensor:
        """The histogram in a wider range: each bin is split, the parts go where their middles are."""
        parts = self.bins * self.upsample_rate
        width = (orig_max - orig_min) / parts
        edges = torch.linspace(orig_min, orig_max, parts + 1, device=orig_min.device)
        middles = edges[:-1].to(histogram.device) + 0.5 * width
        borders = torch.linspace(
            update_min, update_max, self.bins + 1, device=update_min.device
        ).to(histogram.device)
        # Middles may round to just outside of the range.
        targets = (torch.bucketize(middles, borders, right=True) - 1).clamp_(0, self.bins - 1)
        counts = histogram.repeat_interleave(self.upsample_rate) / self.upsample_rate
        return torch.bincount(targets, weights=counts, minlength=self.bins)

    def _non_linear_param_search(self) -> tuple[Tensor, Tensor]:
        """The range with the least error: bounds move inwards, past the rarer values first, until it grows.

        As ``NormMinimization::NonlinearQuantizationParamsSearch`` of Caffe2 does.
        """
        width = (self.max_val - self.min_val) / self.bins
        if bool(width == 0):
            return self.min_val + 0, self.min_val + 0
        total = torch.sum(self.histogram).item()
        below: list[float] = torch.cumsum(self.histogram, dim=0).tolist()
        # Shares are compared in the type of the histogram.
        rounded = _rounding(self.histogram.dtype)
        alpha, beta = 0.0, 1.0
        start, end = 0, self.bins - 1
        least = float("inf")
        while alpha < beta:
            next_alpha, next_beta = alpha + STEP, beta - STEP
            left = bisect_left(below, rounded(next_alpha * total), start, max(start, end))
            right = bisect_right(below, rounded(next_beta * total), start + 1, end + 1) - 1
            next_start, next_end = start, end
            if left - start > end - right:
                next_start, alpha = left, next_alpha
            else:
                next_end, beta = right, next_beta
            if (next_start, next_end) == (start, end):
                continue
            error = self._compute_quantization_error(next_start, next_end)
            if error > least:
                break
            least, start, end = error, next_start, next_end
        return self.min_val + width * start, self.min_val + width * (end + 1)

    def _get_norm(self, delta_begin: Tensor, delta_end: Tensor, density: Tensor) -> Tensor:
        """The integral of ``density * x**2`` from ``delta_begin`` to ``delta_end``."""
        cubes = delta_end * delta_end * delta_end - delta_begin * delta_begin * delta_begin
        return density * (cubes / 3)

    def _compute_quantization_error(self, next_start_bin: int, next_end_bin: int) -> float:
        """The squared error if the quantised values cover the bins from ``next_start_bin`` to ``next_end_bin``.

        Values are taken as evenly spread within a bin. A bin ends in other quantised values than it begins: the error
        is that of its first one, of those between, and of its last one.
        """
        # Errors are compared with each other only: in units of a power of two they neither overflow nor underflow.
        width, _ = math.frexp((self.max_val.item() - self.min_val.item()) / self.bins)
        step = width * (next_end_bin - next_start_bin + 1) / self.dst_nbins
        device = self.histogram.device
        begin = (torch.arange(self.bins, device=device) - next_start_bin) * width
        end = begin + width
        first, last = (
            torch.clamp(torch.div(edge, step, rounding_mode="floor"), 0, self.dst_nbins - 1)
            for edge in (begin, end)
        )
        density = self.histogram / width
        half = torch.tensor(step / 2)
        error = self._get_norm(begin - (first + 0.5) * step, half, density)
        error = error + (last - first - 1) * self._get_norm(-half, half, density)
        error = error + self._get_norm(-half, end - (last * step + step / 2), density)
        return error.sum().item()

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        *rest: Any,
    ) -> None:
        version = local_metadata.get("version")
        for name, unseen in (("min_val", float("inf")), ("max_val", float("-inf"))):
            value = state_dict.get(prefix + name)
            if value is None:
                continue
            if (version is None or version < 3) and value.shape == (0,):
                value = state_dict[prefix + name] = torch.tensor(unseen)
            getattr(self, name).resize_(value.shape)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


def _rounding(dtype: torch.dtype) -> Any:
    """Rounds a float to a type."""
    if dtype == torch.float32:
        return lambda value: ctypes.c_float(value).value
    return lambda value: torch.tensor(value, dtype=dtype).item()
