"""Detector of layers whose values drift from batch to batch."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn

from corsac.quantization.fx._model_report._detector import DetectorBase, DetectorQConfigInfo
from corsac.quantization.fx._model_report.model_report_observer import ModelReportObserver


class DynamicStaticDetector(DetectorBase):
    """Linear layers and convolutions for which dynamic quantisation is better than static, or the other way round.

    Ranges of batches that are small against that of all data drift; scales are then better chosen at each call.

    Args:
        tolerance: values drift if the mean of their batches' ranges is at most this part of the range of all data.

    https://docs.pytorch.org/docs/stable/torch.ao.quantization.html
    """

    DEFAULT_PRE_OBSERVER_NAME = "model_report_pre_observer"
    DEFAULT_POST_OBSERVER_NAME = "model_report_post_observer"

    STATIONARY_STR = "stationary"
    NON_STATIONARY_STR = "non-stationary"

    INPUT_ACTIVATION_PREFIX = "input_activation_"
    OUTPUT_ACTIVATION_PREFIX = "output_activation_"

    TOLERANCE_KEY = "dynamic_static_tolerance"
    DEFAULT_DYNAMIC_REC_KEY = "dynamic_recommended"
    PRE_OBS_COMP_STAT_KEY = f"{INPUT_ACTIVATION_PREFIX}dynamic_static_comp_stat"
    POST_OBS_COMP_STAT_KEY = f"{OUTPUT_ACTIVATION_PREFIX}dynamic_static_comp_stat"
    PRE_OBS_DATA_DIST_KEY = f"{INPUT_ACTIVATION_PREFIX}dynamic_static_data_classification"
    POST_OBS_DATA_DIST_KEY = f"{OUTPUT_ACTIVATION_PREFIX}dynamic_static_data_classification"
    IS_CURRENTLY_SUPPORTED_KEY = "is_dynamic_supported"

    DEFAULT_DYNAMIC_STATIC_CHECK_SUPPORTED: ClassVar[set[Any]] = {nn.Linear}
    DEFAULT_DYNAMIC_STATIC_FUTURE_SUPPORTED: ClassVar[set[Any]] = {nn.Conv1d, nn.Conv2d, nn.Conv3d}

    def __init__(self, tolerance: float = 0.5) -> None:
        super().__init__()
        self.tolerance = tolerance
        self.useful_observer_fqns: set[str] = set()

    def get_detector_name(self) -> str:
        return "dynamic_vs_static_detector"

    def determine_observer_insert_points(self, prepared_fx_model: Any) -> dict[str, dict[str, Any]]:
        """Observers before and after each layer."""
        found: dict[str, dict[str, Any]] = {}
        for path, module in prepared_fx_model.named_modules():
            if self._is_supported(module, insert=True):
                before = (self.DEFAULT_PRE_OBSERVER_NAME, ModelReportObserver())
                after = (self.DEFAULT_POST_OBSERVER_NAME, ModelReportObserver())
                found.update(self._places(prepared_fx_model, path, before, after))
        return found

    def _is_supported(self, module: nn.Module, insert: bool = False) -> bool:
        kinds = (
            *self.DEFAULT_DYNAMIC_STATIC_CHECK_SUPPORTED,
            *self.DEFAULT_DYNAMIC_STATIC_FUTURE_SUPPORTED,
        )
        names = (self.DEFAULT_PRE_OBSERVER_NAME, self.DEFAULT_POST_OBSERVER_NAME)
        return isinstance(module, kinds) and (insert or all(hasattr(module, n) for n in names))

    def get_qconfig_info(self, model: Any) -> dict[str, DetectorQConfigInfo]:
        advice = {}
        for path, facts in self._facts(model).items():
            advice[path] = DetectorQConfigInfo(path)
            advice[path].is_activation_dynamic = facts[self.DEFAULT_DYNAMIC_REC_KEY]
        return advice

    def _facts(self, model: Any) -> dict[str, dict[str, Any]]:
        facts: dict[str, dict[str, Any]] = {}
        for path, module in model.named_modules():
            if not self._is_supported(module):
                continue
            before, after = (
                getattr(module, name).get_batch_to_epoch_ratio()
                for name in (self.DEFAULT_PRE_OBSERVER_NAME, self.DEFAULT_POST_OBSERVER_NAME)
            )
            facts[path] = {
                self.TOLERANCE_KEY: self.tolerance,
                self.DEFAULT_DYNAMIC_REC_KEY: after <= self.tolerance,
                self.PRE_OBS_COMP_STAT_KEY: before,
                self.PRE_OBS_DATA_DIST_KEY: self._named(before),
                self.POST_OBS_COMP_STAT_KEY: after,
                self.POST_OBS_DATA_DIST_KEY: self._named(after),
                self.IS_CURRENTLY_SUPPORTED_KEY: isinstance(
                    module, tuple(self.DEFAULT_DYNAMIC_STATIC_CHECK_SUPPORTED)
                ),
            }
        return facts

    def _named(self, ratio: Any) -> str:
        return self.STATIONARY_STR if ratio > self.tolerance else self.NON_STATIONARY_STR

    def generate_detector_report(self, model: Any) -> tuple[str, dict[str, Any]]:
        facts = self._facts(model)
        lines = ["Dynamic or static quantisation:"]
        lines += [self._line(path, found) for path, found in facts.items()]
        if not facts:
            lines.append("there are no linear layers and convolutions")
        return "\n".join(lines) + "\n", facts

    def _line(self, path: str, facts: dict[str, Any]) -> str:
        before, after = facts[self.PRE_OBS_DATA_DIST_KEY], facts[self.POST_OBS_DATA_DIST_KEY]
        kind, gain = "static", "faster"
        if facts[self.DEFAULT_DYNAMIC_REC_KEY]:
            kind, gain = "dynamic", "more accurate"
        line = f"{path}: {kind}, which is {gain}: inputs are {before}, results {after}"
        if kind == "dynamic" and not facts[self.IS_CURRENTLY_SUPPORTED_KEY]:
            return f"{line}; this layer has no dynamic form yet"
        if kind == "static" and before == self.NON_STATIONARY_STR:
            return f"{line}; the inputs are best quantised dynamically"
        return line
