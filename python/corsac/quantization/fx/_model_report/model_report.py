"""Reports on a calibrated model: which settings would make its quantised form more accurate or faster."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from corsac.quantization.fx._model_report._detector import (
    DETECTOR_IS_POST_OBS_KEY,
    DETECTOR_OBS_ARGS_KEY,
    DETECTOR_OBS_TO_INSERT_KEY,
    DETECTOR_TARGET_NODE_KEY,
    DetectorBase,
    DetectorQConfigInfo,
)
from corsac.quantization.fx._model_report.model_report_visualizer import ModelReportVisualizer
from corsac.quantization.qconfig_mapping import QConfigMapping

__all__ = ["ModelReport"]


class ModelReport:
    """The reports of some detectors on a prepared model, and the configurations that follow from them.

    Example::

        report = ModelReport(prepared, {PerChannelDetector(), OutlierDetector()})
        report.prepare_detailed_calibration()
        for batch in batches:
            prepared(batch)
        texts = report.generate_model_report(remove_inserted_observers=False)
        mapping = report.generate_qconfig_mapping()

    Args:
        model: a graph module, the result of ``prepare_fx`` for example. It is changed.
        desired_report_detectors: the detectors, with different names.

    https://docs.pytorch.org/docs/stable/torch.ao.quantization.html
    """

    def __init__(self, model: Any, desired_report_detectors: Iterable[DetectorBase]) -> None:
        # The order of a set is not always the same: that of names is.
        detectors = sorted(desired_report_detectors, key=lambda one: one.get_detector_name())
        if not detectors:
            raise ValueError("expected at least one detector")
        self._model = model
        self._desired_report_detectors = detectors
        self._desired_detector_names = {one.get_detector_name() for one in detectors}
        if len(self._desired_detector_names) < len(detectors):
            raise ValueError(
                f"expected detectors with different names, got {[one.get_detector_name() for one in detectors]}"
            )
        self._detector_name_to_observer_fqns: dict[str, set[str]] = {
            name: set() for name in self._desired_detector_names
        }
        self._prepared_flag = False
        self._removed_observers = False
        self._generated_reports: dict[str, dict[str, Any]] = {}

    def get_desired_reports_names(self) -> set[str]:
        """The names of the reports."""
        return self._desired_detector_names.copy()

    def get_observers_of_interest(self) -> dict[str, set[str]]:
        """The paths of the observers of each report."""
        return self._detector_name_to_observer_fqns.copy()

    def prepare_detailed_calibration(self) -> Any:
        """The model, with the observers that the detectors need; detectors share them.

        Raises:
            ValueError: the model has them already, or detectors ask for different channels at one place.
        """
        if self._prepared_flag:
            raise ValueError(
                "the model has the observers already: calibrate it, then ask for reports"
            )
        places: dict[str, dict[str, Any]] = {}
        axes: dict[str, tuple[str, int]] = {}
        for detector in self._desired_report_detectors:
            name, own = (
                detector.get_detector_name(),
                detector.determine_observer_insert_points(self._model),
            )
            if (axis := getattr(detector, "ch_axis", None)) is not None:
                for path in own:
                    other, known = axes.setdefault(path, (name, axis))
                    if known != axis:
                        raise ValueError(
                            f"{path}: {other} has channels in dimension {known}, {name} in {axis}; make "
                            "two reports"
                        )
            for path, place in own.items():
                # Observers for channels record what others do.
                if path not in places or axis is not None:
                    places[path] = place
            self._detector_name_to_observer_fqns[name] = set(own)
        for path, place in places.items():
            self._insert(path, place)
        self._model.recompile()
        self._prepared_flag = True
        return self._model

    def _insert(self, path: str, place: dict[str, Any]) -> None:
        graph, node = self._model.graph, place[DETECTOR_TARGET_NODE_KEY]
        self._model.add_submodule(path, place[DETECTOR_OBS_TO_INSERT_KEY])
        is_after = place[DETECTOR_IS_POST_OBS_KEY]
        with graph.inserting_after(node) if is_after else graph.inserting_before(node):
            graph.create_node("call_module", path, args=place[DETECTOR_OBS_ARGS_KEY])

    def _require_observers(self) -> None:
        if not self._prepared_flag:
            raise RuntimeError(
                "there are no observers: call prepare_detailed_calibration, then calibrate the model"
            )
        if self._removed_observers:
            raise RuntimeError("the observers were removed with an earlier report")

    def generate_model_report(
        self, remove_inserted_observers: bool
    ) -> dict[str, tuple[str, dict[str, Any]]]:
        """The reports of a calibrated model, by name: as text, and by path.

        Args:
            remove_inserted_observers: whether the observers are taken out again.

        Raises:
            RuntimeError: there are no observers.
        """
        self._require_observers()
        reports = {
            one.get_detector_name(): one.generate_detector_report(self._model)
            for one in self._desired_report_detectors
        }
        if remove_inserted_observers:
            self._remove_observers()
        self._generated_reports = {name: found for name, (_, found) in reports.items()}
        return reports

    def _remove_observers(self) -> None:
        paths = set().union(*self._detector_name_to_observer_fqns.values())
        for node in [*self._model.graph.nodes]:
            if node.op == "call_module" and node.target in paths:
                self._model.graph.erase_node(node)
        for path in paths:
            self._model.delete_submodule(path)
        self._model.recompile()
        self._removed_observers = True

    def _is_same_info_for_same_key(self, info_dict_a: Any, info_dict_b: Any) -> bool:
        return all(
            _same(info_dict_a[key], info_dict_b[key]) for key in info_dict_a.keys() & info_dict_b
        )

    def _reformat_reports_for_visualizer(self) -> OrderedDict[str, dict[str, Any]]:
        """The facts of all reports, by path, in the order of the model's modules."""
        merged: OrderedDict[str, dict[str, Any]] = OrderedDict()
        for path, _ in self._model.named_modules():
            for facts in self._generated_reports.values():
                new = facts.get(path)
                if new is None:
                    continue
                known = merged.setdefault(path, {})
                if not self._is_same_info_for_same_key(new, known):
                    differing = [
                        key for key in new.keys() & known if not _same(new[key], known[key])
                    ]
                    raise ValueError(
                        f"{path}: detectors have different values for {', '.join(sorted(differing))}"
                    )
                known.update(new)
        return merged

    def generate_visualizer(self) -> ModelReportVisualizer:
        """Tables and plots of the reports.

        Raises:
            RuntimeError: there are no reports yet.
        """
        if not self._generated_reports:
            raise RuntimeError("there are no reports yet: call generate_model_report first")
        return ModelReportVisualizer(self._reformat_reports_for_visualizer())

    def _advice(
        self, merge: Callable[[DetectorQConfigInfo, DetectorQConfigInfo], None]
    ) -> dict[str, DetectorQConfigInfo]:
        """The advice of all detectors, by path."""
        self._require_observers()
        merged: dict[str, DetectorQConfigInfo] = {}
        for detector in self._desired_report_detectors:
            for path, advice in detector.get_qconfig_info(self._model).items():
                if path in merged:
                    merge(merged[path], advice)
                else:
                    merged[path] = advice
        return merged

    def _mapping(
        self,
        advice: dict[str, DetectorQConfigInfo],
        choose: Callable[[DetectorQConfigInfo, nn.Module], Any],
    ) -> QConfigMapping:
        mapping = QConfigMapping()
        for path, module in self._model.named_modules():
            if path in advice:
                mapping.set_module_name(path, choose(advice[path], module))
        return mapping

    def generate_qconfig_mapping(self) -> QConfigMapping:
        """The configurations that the reports advise, by path.

        Raises:
            RuntimeError: there are no observers.
        """

        def merge(known: DetectorQConfigInfo, new: DetectorQConfigInfo) -> None:
            known.is_activation_dynamic = known.is_activation_dynamic or new.is_activation_dynamic
            known.is_weight_per_channel = known.is_weight_per_channel or new.is_weight_per_channel

        return self._mapping(
            self._advice(merge), lambda one, module: one.generate_quantization_qconfig(module)
        )

    def generate_equalization_mapping(self) -> QConfigMapping:
        """The configurations of equalisation for the modules of the reports, by path.

        Raises:
            RuntimeError: there are no observers.
        """

        def merge(known: DetectorQConfigInfo, new: DetectorQConfigInfo) -> None:
            known.is_equalization_recommended = (
                known.is_equalization_recommended or new.is_equalization_recommended
            )

        return self._mapping(
            self._advice(merge), lambda one, _: one.generate_equalization_qconfig()
        )


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and torch.equal(left, right)
    return not isinstance(right, torch.Tensor) and bool(left == right)
