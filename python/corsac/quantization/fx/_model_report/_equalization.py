"""Detector of layers that equalisation of inputs and weights helps."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from corsac.quantization._kinds import same_place
from corsac.quantization.fx._model_report._detector import DetectorBase, DetectorQConfigInfo
from corsac.quantization.fx._model_report._per_channel import LAYERS, LAYERS_FOR_TRAINING
from corsac.quantization.fx._model_report.model_report_observer import ModelReportObserver


class InputWeightEqualizationDetector(DetectorBase):
    """Linear layers and convolutions for which scaled input channels, and weights scaled back, lose less.

    Equalisation is advised for a channel if ``sqrt(w / W) / sqrt(i / I)`` is from ``ratio_threshold`` to
    ``1 / ratio_threshold``, where ``w`` and ``i`` are ranges of the channel in weight and input, and ``W`` and ``I`` those
    of all channels.

    Args:
        ratio_threshold: between 0 and 1.
        ch_axis: the dimension of the input channels, in inputs and weights.

    https://docs.pytorch.org/docs/stable/torch.ao.quantization.html
    """

    SUPPORTED_MODULES: ClassVar[set[Any]] = {*LAYERS, *LAYERS_FOR_TRAINING}

    DEFAULT_PRE_OBSERVER_NAME: str = "model_report_pre_observer"

    WEIGHT_PREFIX = "weight_"
    ACTIVATION_PREFIX = "input_activation_"

    PER_CHANNEL_MAX_KEY = "per_channel_max"
    PER_CHANNEL_MIN_KEY = "per_channel_min"
    GLOBAL_MAX_KEY = "global_max"
    GLOBAL_MIN_KEY = "global_min"

    RECOMMENDED_KEY = "input_weight_equalization_recommended"
    COMP_METRIC_KEY = "input_weight_channel_comparison_metrics"
    THRESHOLD_KEY = "input_weight_threshold"
    CHANNEL_KEY = "input_weight_channel_axis"

    WEIGHT_STR = "weight"
    INPUT_STR = "input"

    #: Equalisation is advised for a layer if it is for this share of its channels.
    DEFAULT_RECOMMEND_INPUT_WEIGHT_CHANNEL_RATIO = 0.4

    def __init__(self, ratio_threshold: float, ch_axis: int = 1) -> None:
        super().__init__()
        if not 0 < ratio_threshold < 1:
            raise ValueError(
                f"ratio_threshold: expected a number between 0 and 1, got {ratio_threshold}"
            )
        self.ratio_threshold, self.ch_axis = ratio_threshold, ch_axis

    def get_detector_name(self) -> str:
        return "input_weight_equalization_detector"

    def _is_supported(self, module: nn.Module, insert: bool = False) -> bool:
        known = any(same_place(type(module), kind) for kind in self.SUPPORTED_MODULES)
        return known and (insert or hasattr(module, self.DEFAULT_PRE_OBSERVER_NAME))

    def determine_observer_insert_points(self, prepared_fx_model: Any) -> dict[str, dict[str, Any]]:
        """Observers before each layer."""
        found: dict[str, dict[str, Any]] = {}
        for path, module in prepared_fx_model.named_modules():
            if self._is_supported(module, insert=True):
                before = (self.DEFAULT_PRE_OBSERVER_NAME, ModelReportObserver(self.ch_axis))
                found.update(self._places(prepared_fx_model, path, before))
        return found

    def get_qconfig_info(self, model: Any) -> dict[str, DetectorQConfigInfo]:
        advice = {}
        for path, facts in self._facts(model).items():
            advice[path] = DetectorQConfigInfo(path)
            advice[path].is_equalization_recommended = facts[self.RECOMMENDED_KEY]
        return advice

    def _facts(self, model: Any) -> dict[str, dict[str, Any]]:
        facts = {}
        for path, module in model.named_modules():
            if not self._is_supported(module):
                continue
            observer = getattr(module, self.DEFAULT_PRE_OBSERVER_NAME)
            inputs = (observer.min_val, observer.max_val)
            weight: Any = module.weight
            columns = weight.detach().transpose(0, self.ch_axis).float().flatten(1)
            weights = torch.aminmax(columns, dim=1)
            ratios = self._ratios(path, inputs, weights)
            low, high = self.ratio_threshold, 1 / self.ratio_threshold
            facts[path] = {
                self.RECOMMENDED_KEY: [low <= ratio <= high for ratio in ratios.tolist()],
                self.COMP_METRIC_KEY: ratios,
                self.THRESHOLD_KEY: self.ratio_threshold,
                self.CHANNEL_KEY: self.ch_axis,
                **self._ranges(self.ACTIVATION_PREFIX, *inputs),
                **self._ranges(self.WEIGHT_PREFIX, *weights),
            }
        return facts

    def _ranges(self, prefix: str, lows: Tensor, highs: Tensor) -> dict[str, Tensor]:
        return {
            prefix + self.PER_CHANNEL_MAX_KEY: highs,
            prefix + self.PER_CHANNEL_MIN_KEY: lows,
            prefix + self.GLOBAL_MAX_KEY: highs.max(),
            prefix + self.GLOBAL_MIN_KEY: lows.min(),
        }

    def _ratios(self, path: str, inputs: Any, weights: Any) -> Tensor:
        """The compared number of each channel."""
        weight, given = (
            self._parts(path, what, *ranges)
            for what, ranges in ((self.WEIGHT_STR, weights), (self.INPUT_STR, inputs))
        )
        if len(weight) != len(given):
            # Columns of a convolution with groups are those of each group.
            if len(given) % len(weight):
                raise AssertionError(
                    f"{path}: expected a multiple of {len(weight)} input channels, got {len(given)}"
                )
            weight = weight.repeat(len(given) // len(weight))
        return weight.sqrt() / given.sqrt()

    def _parts(self, path: str, what: str, lows: Tensor, highs: Tensor) -> Tensor:
        """The ranges of channels as parts of that of all."""
        whole = highs.max() - lows.min()
        if whole == 0:
            raise ValueError(
                f"{path}: expected a range of the {what}, all values are {lows.min().item()}"
            )
        return (highs - lows) / whole

    def generate_detector_report(self, model: Any) -> tuple[str, dict[str, Any]]:
        facts = self._facts(model)
        lines = ["Equalisation of inputs and weights:"]
        for path, found in facts.items():
            channels = found[self.RECOMMENDED_KEY]
            share = sum(channels) / len(channels)
            enough = share >= self.DEFAULT_RECOMMEND_INPUT_WEIGHT_CHANNEL_RATIO
            lines.append(
                f"{path}, axis {self.ch_axis}: {'yes' if enough else 'no'}, it helps "
                f"{sum(channels)} of {len(channels)} channels"
            )
        if not facts:
            lines.append("there are no linear layers and convolutions")
        return "\n".join(lines) + "\n", facts
