"""An observer that records what the detectors of a report need."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from corsac.quantization import _dtypes
from corsac.quantization.observer import ObserverBase

__all__ = ["ModelReportObserver"]


class ModelReportObserver(ObserverBase):
    """Ranges of batches and of the whole data, and ranges and outliers of channels.

    Args:
        ch_axis: the dimension of the channels.
        comp_percentile: the share of values, 0 to 1, that the largest value is compared with.

    Attributes:
        num_batches_tracked: the number of batches.
        average_batch_activation_range: the mean of the ranges of batches.
        epoch_activation_min, epoch_activation_max: the range of all data.
        min_val, max_val: the range of each channel.
        average_percentile_ratio: the mean of largest value / value at ``comp_percentile``, by channel.
        percentile_batches_tracked: the number of batches in that mean: those in which one of the two is not 0.
        constant_channels: the number of batches in which a channel has one value.

    https://docs.pytorch.org/docs/stable/torch.ao.quantization.html
    """

    epoch_activation_min: Tensor
    epoch_activation_max: Tensor
    min_val: Tensor
    max_val: Tensor
    comp_percentile: Tensor
    average_percentile_ratio: Tensor
    percentile_batches_tracked: Tensor
    constant_channels: Tensor

    def __init__(self, ch_axis: int = 1, comp_percentile: float = 0.9) -> None:
        super().__init__(_dtypes.qint8)
        self.ch_axis = ch_axis
        self.register_buffer("comp_percentile", torch.tensor([comp_percentile]))
        self._start(None)

    def _start(self, device: torch.device | None) -> None:
        self.num_batches_tracked = 0
        self.average_batch_activation_range = torch.tensor(0.0, device=device)
        ends = {"epoch_activation_min": math.inf, "epoch_activation_max": -math.inf}
        for name, end in ends.items():
            self.register_buffer(name, torch.tensor(end, device=device))
        for name in (
            "min_val",
            "max_val",
            "average_percentile_ratio",
            "percentile_batches_tracked",
            "constant_channels",
        ):
            self.register_buffer(name, torch.tensor([], device=device))

    def reset_batch_and_epoch_values(self) -> None:
        """Forget all batches."""
        self._start(self.max_val.device)

    def forward(self, x: Tensor) -> Tensor:
        """Record a batch, of any shape that has the channels; it is returned. Nothing is recorded if it is empty."""
        if x.numel() == 0:
            return x
        self._count_batch()
        values = x.detach().to(self.epoch_activation_min.dtype)
        low, high = torch.aminmax(values)
        self._require_finite(low, high)
        self._record_range(low, high)
        # One row for each channel.
        rows = values.transpose(0, self.ch_axis).flatten(1)
        lows, highs = torch.aminmax(rows, dim=1)
        self._record_channels(lows, highs)
        self._record_outliers(rows, lows, highs)
        return x

    def _record_range(self, low: Tensor, high: Tensor) -> None:
        self.epoch_activation_min = torch.minimum(self.epoch_activation_min, low)
        self.epoch_activation_max = torch.maximum(self.epoch_activation_max, high)
        count = self.num_batches_tracked
        total = self.average_batch_activation_range * count + (high - low)
        self.average_batch_activation_range = total / (count + 1)
        self.num_batches_tracked = count + 1

    def _record_channels(self, lows: Tensor, highs: Tensor) -> None:
        if self.min_val.numel():
            lows, highs = torch.minimum(self.min_val, lows), torch.maximum(self.max_val, highs)
        self.min_val, self.max_val = lows, highs

    def _record_outliers(self, rows: Tensor, lows: Tensor, highs: Tensor) -> None:
        place = int(self.comp_percentile.item() * (rows.shape[1] - 1))
        compared = rows.kthvalue(place + 1, dim=1).values
        counted = ((compared != 0) | (highs != 0)).int()
        ratios = counted * torch.nan_to_num(highs / compared)
        constant = (highs == lows).int()
        if self.percentile_batches_tracked.numel() == 0:
            self.percentile_batches_tracked = torch.zeros_like(counted)
            self.average_percentile_ratio = torch.zeros_like(ratios)
            self.constant_channels = torch.zeros_like(constant)
        before = self.percentile_batches_tracked
        after = before + counted
        mean = (self.average_percentile_ratio * before + ratios) / after
        self.average_percentile_ratio = torch.nan_to_num(mean)
        self.percentile_batches_tracked = after
        self.constant_channels = self.constant_channels + constant

    def get_batch_to_epoch_ratio(self) -> Tensor:
        """The mean of the ranges of batches, as a part of the range of all data: 1 for data that do not drift.

        Raises:
            ValueError: there was no batch, or all values are equal.
        """
        if self.num_batches_tracked == 0:
            raise ValueError(f"{self._label()} has seen no values")
        epoch_range = self.epoch_activation_max - self.epoch_activation_min
        if epoch_range == 0:
            raise ValueError(
                f"{self._label()}: all values are {self.epoch_activation_min.item()}, expected a range"
            )
        return self.average_batch_activation_range / epoch_range

    def calculate_qparams(self, **kwargs: Any) -> tuple[Tensor, Tensor]:
        raise NotImplementedError(f"{type(self).__name__} has no quantisation parameters")

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name, buffer in self._buffers.items():
            given = state_dict.get(prefix + name)
            if buffer is not None and given is not None and given.shape != buffer.shape:
                self._buffers[name] = torch.empty_like(given, device=buffer.device)
        super()._load_from_state_dict(state_dict, prefix, *rest)
