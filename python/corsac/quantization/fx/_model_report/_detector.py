"""Common parts of detectors: places of observers, and configurations that follow from a report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import nn

from corsac.quantization.fx._equalize import EqualizationQConfig, default_equalization_qconfig
from corsac.quantization.observer import (
    default_dynamic_quant_observer,
    default_observer,
    default_per_channel_weight_observer,
    default_weight_observer,
)
from corsac.quantization.qconfig import QConfig, _assert_valid_qconfig, default_qconfig

#: Keys of the places of observers: the node, the observer, whether it comes after the node, and its arguments.
DETECTOR_TARGET_NODE_KEY = "target_node"
DETECTOR_OBS_TO_INSERT_KEY = "observer_to_insert"
DETECTOR_IS_POST_OBS_KEY = "is_post_observer"
DETECTOR_OBS_ARGS_KEY = "observer_args"


class DetectorQConfigInfo:
    """Advice of detectors for a module.

    Args:
        module_fqn: the path of the module.

    Attributes:
        is_activation_dynamic: whether its inputs are to be quantised at each call.
        is_weight_per_channel: whether each channel of its weight is to have a scale.
        is_equalization_recommended: whether its inputs and weight are to be equalised.

    https://docs.pytorch.org/docs/stable/torch.ao.quantization.html
    """

    def __init__(self, module_fqn: str) -> None:
        self.module_fqn = module_fqn
        self.is_activation_dynamic = False
        self.is_weight_per_channel = False
        # One for each channel, if a detector has given advice.
        self.is_equalization_recommended: bool | list[bool] = False

    def generate_quantization_qconfig(self, module: nn.Module) -> QConfig:
        """The configuration that follows as far as ``module`` can have it."""
        dynamic, per_channel = self.is_activation_dynamic, self.is_weight_per_channel
        for is_dynamic, by_channel in (
            (dynamic, per_channel),
            (dynamic, False),
            (False, per_channel),
        ):
            qconfig = QConfig(
                default_dynamic_quant_observer if is_dynamic else default_observer,
                default_per_channel_weight_observer if by_channel else default_weight_observer,
            )
            try:
                _assert_valid_qconfig(qconfig, module)
            except AssertionError:
                continue
            return qconfig
        return default_qconfig

    def generate_equalization_qconfig(self) -> EqualizationQConfig:
        """The configuration of equalisation."""
        return default_equalization_qconfig


class DetectorBase(ABC):
    """A question about a calibrated model: where to put observers for it, and the report.

    https://docs.pytorch.org/docs/stable/torch.ao.quantization.html
    """

    def __init__(self) -> None:
        super().__init__()
        self.detector_config_info = None

    @abstractmethod
    def determine_observer_insert_points(self, model: Any) -> dict[str, dict[str, Any]]:
        """The observers that the detector needs: by path, a dictionary with the keys of this module."""

    @abstractmethod
    def get_detector_name(self) -> str:
        """The name of the report."""

    @abstractmethod
    def get_qconfig_info(self, model: Any) -> dict[str, DetectorQConfigInfo]:
        """The advice for each module, by path, after calibration."""

    @abstractmethod
    def generate_detector_report(self, model: Any) -> tuple[str, dict[str, Any]]:
        """The report of a calibrated model: as text, and by path."""

    def _get_targeting_node(self, prepared_fx_model: Any, target_fqn: str) -> Any:
        """The node that calls a module, or the fused layer or other module that it is in."""
        targets = {node.target: node for node in reversed(prepared_fx_model.graph.nodes)}
        path = target_fqn
        while path and path not in targets:
            path = path.rpartition(".")[0]
        if not path:
            raise ValueError(f"expected a module that the graph calls, got {target_fqn!r}")
        return targets[path]

    def _places(
        self, model: Any, path: str, before: tuple[str, Any], after: tuple[str, Any] | None = None
    ) -> dict[str, dict[str, Any]]:
        """The observers before and after a module: each a name and a module."""
        node = self._get_targeting_node(model, path)
        found = {}
        if node.args:
            found[f"{path}.{before[0]}"] = _place(node, before[1], False, tuple(node.args[:1]))
        if after is not None:
            found[f"{path}.{after[0]}"] = _place(node, after[1], True, (node,))
        return found


def _place(node: Any, observer: nn.Module, is_post: bool, args: tuple[Any, ...]) -> dict[str, Any]:
    return {
        DETECTOR_TARGET_NODE_KEY: node,
        DETECTOR_OBS_TO_INSERT_KEY: observer,
        DETECTOR_IS_POST_OBS_KEY: is_post,
        DETECTOR_OBS_ARGS_KEY: args,
    }
