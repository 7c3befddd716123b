"""Detector of outliers in the inputs of modules."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from corsac.quantization._kinds import is_activation_post_process
from corsac.quantization.fx._equalize import is_equalization_observer
from corsac.quantization.fx._model_report._detector import DetectorBase, DetectorQConfigInfo
from corsac.quantization.fx._model_report.model_report_observer import ModelReportObserver


class OutlierDetector(DetectorBase):
    """Channels of inputs whose largest value is far above most others.

    It is reliable for data that do not drift, which :class:`DynamicStaticDetector` finds.

    Args:
        ratio_threshold: a channel has outliers if the mean of largest value / value at ``reference_percentile`` is
            above this, at least 1.
        reference_percentile: the share of values, 0 to 1, that the largest one is compared with.
        fraction_batches_used_threshold: the share of batches, 0 to 1, that a mean is of at least, to be reliable.
        ch_axis: the dimension of the channels.

    https://docs.pytorch.org/docs/stable/torch.ao.quantization.html
    """

    DEFAULT_PRE_OBSERVER_NAME: str = "model_report_pre_observer"
    INPUT_ACTIVATION_PREFIX = "input_activation_"

    OUTLIER_KEY = "outliers_detected"
    NUM_BATCHES_KEY = "outlier_detection_batches_used"
    IS_SUFFICIENT_BATCHES_KEY = "outlier_detection_is_sufficient_batches"
    COMP_METRIC_KEY = "outlier_detection_percentile_ratios"
    RATIO_THRES_KEY = "outlier_detection_ratio_threshold"
    REF_PERCENTILE_KEY = "outlier_detection_reference_percentile"
    CHANNEL_AXIS_KEY = "outlier_detection_channel_axis"
    MAX_VALS_KEY = f"{INPUT_ACTIVATION_PREFIX}per_channel_max"
    CONSTANT_COUNTS_KEY = "constant_batch_counts"

    def __init__(
        self,
        ratio_threshold: float = 3.5,
        reference_percentile: float = 0.975,
        fraction_batches_used_threshold: float = 0.95,
        ch_axis: int = 1,
    ) -> None:
        super().__init__()
        for name, share in (
            ("reference_percentile", reference_percentile),
            ("fraction_batches_used_threshold", fraction_batches_used_threshold),
        ):
            if not 0 <= share <= 1:
                raise AssertionError(f"{name}: expected a share from 0 to 1, got {share}")
        self.ratio_threshold = ratio_threshold
        self.reference_percentile = reference_percentile
        self.fraction_batches_used_threshold = fraction_batches_used_threshold
        self.ch_axis = ch_axis

    def get_detector_name(self) -> str:
        return "outlier_detector"

    def get_qconfig_info(self, model: Any) -> dict[str, DetectorQConfigInfo]:
        """None: no configuration follows from outliers."""
        return {}

    def _supports_insertion(self, module: nn.Module) -> bool:
        is_leaf = next(module.children(), None) is None
        return is_leaf and not is_activation_post_process(module)

    def _supports_report_gen(self, module: nn.Module) -> bool:
        return hasattr(module, self.DEFAULT_PRE_OBSERVER_NAME)

    def determine_observer_insert_points(self, prepared_fx_model: Any) -> dict[str, dict[str, Any]]:
        """Observers before modules that have no others in them."""
        found: dict[str, dict[str, Any]] = {}
        for path, module in prepared_fx_model.named_modules():
            if self._supports_insertion(module) and not is_equalization_observer(module):
                observer = ModelReportObserver(self.ch_axis, self.reference_percentile)
                before = (self.DEFAULT_PRE_OBSERVER_NAME, observer)
                found.update(self._places(prepared_fx_model, path, before))
        return found

    def _facts(self, model: Any) -> dict[str, dict[str, Any]]:
        facts = {}
        for path, module in model.named_modules():
            if not self._supports_report_gen(module):
                continue
            observer = getattr(module, self.DEFAULT_PRE_OBSERVER_NAME)
            # The magnitude counts: of a negative value to a small positive one, too.
            ratios = observer.average_percentile_ratio.abs()
            ratios = torch.where(ratios < 1, 1 / ratios, ratios)
            batches, total = observer.percentile_batches_tracked, observer.num_batches_tracked
            facts[path] = {
                self.CHANNEL_AXIS_KEY: self.ch_axis,
                self.REF_PERCENTILE_KEY: self.reference_percentile,
                self.RATIO_THRES_KEY: self.ratio_threshold,
                self.COMP_METRIC_KEY: ratios,
                self.NUM_BATCHES_KEY: batches,
                self.OUTLIER_KEY: [ratio > self.ratio_threshold for ratio in ratios.tolist()],
                self.IS_SUFFICIENT_BATCHES_KEY: [
                    count / total >= self.fraction_batches_used_threshold
                    for count in batches.tolist()
                ],
                self.CONSTANT_COUNTS_KEY: observer.constant_channels,
                self.MAX_VALS_KEY: observer.max_val,
            }
        return facts

    def generate_detector_report(self, model: Any) -> tuple[str, dict[str, Any]]:
        facts = self._facts(model)
        lines = ["Outliers in inputs:"]
        for path, found in facts.items():
            lines += self._lines(path, found)
        if len(lines) == 1:
            lines.append("there are none")
        else:
            lines.append("Outliers are reliable for values that do not drift from batch to batch.")
        return "\n".join(lines) + "\n", facts

    def _lines(self, path: str, facts: dict[str, Any]) -> list[str]:
        lines = []
        rows = zip(
            facts[self.OUTLIER_KEY],
            facts[self.MAX_VALS_KEY].tolist(),
            facts[self.CONSTANT_COUNTS_KEY].tolist(),
            facts[self.IS_SUFFICIENT_BATCHES_KEY],
            strict=True,
        )
        for channel, (is_outlier, largest, constant, is_sufficient) in enumerate(rows):
            where = f"{path}, axis {self.ch_axis}, channel {channel}"
            if is_outlier:
                doubt = "" if is_sufficient else ", of few batches"
                lines.append(f"{where}: outliers, the largest value is {largest:.6g}{doubt}")
            if constant:
                lines.append(f"{where}: has one value in {constant} batches")
        return lines
