"""Detector of weights with one scale where each channel could have one."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn

from corsac.quantization import qat
from corsac.quantization._kinds import is_fake_quantize
from corsac.quantization.fx._model_report._detector import DetectorBase, DetectorQConfigInfo

#: Linear layers and convolutions; those for training are derived from them.
LAYERS: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
#: The same, for training.
LAYERS_FOR_TRAINING: tuple[type[nn.Module], ...] = (qat.Linear, qat.Conv1d, qat.Conv2d, qat.Conv3d)


class PerChannelDetector(DetectorBase):
    """Linear layers and convolutions whose weights have one scale: they are more accurate with one for each channel.

    Args:
        backend: the backend, PyTorch's own choice by default.

    https://docs.pytorch.org/docs/stable/torch.ao.quantization.html
    """

    BACKEND_KEY = "backend"
    PER_CHAN_SUPPORTED_KEY = "per_channel_quantization_supported"
    PER_CHAN_USED_KEY = "per_channel_quantization_used"

    DEFAULT_BACKEND_PER_CHANNEL_SUPPORTED_MODULES: ClassVar[dict[str, set[Any]]] = {
        backend: {*LAYERS, *LAYERS_FOR_TRAINING}
        for backend in ("fbgemm", "qnnpack", "onednn", "x86")
    }

    def __init__(self, backend: str | None = None) -> None:
        super().__init__()
        self.backend_chosen = backend or torch.backends.quantized.engine
        known = self.DEFAULT_BACKEND_PER_CHANNEL_SUPPORTED_MODULES
        if self.backend_chosen not in known:
            raise ValueError(
                f"expected a backend of {', '.join(known)}, got {self.backend_chosen!r}"
            )
        self.supported_modules = known[self.backend_chosen]

    def get_detector_name(self) -> str:
        return "per_channel_detector"

    def determine_observer_insert_points(self, model: nn.Module) -> dict[str, dict[str, Any]]:
        """None: configurations tell."""
        return {}

    def get_qconfig_info(self, model: nn.Module) -> dict[str, DetectorQConfigInfo]:
        advice = {}
        for path, facts in self._facts(model).items():
            advice[path] = DetectorQConfigInfo(path)
            advice[path].is_weight_per_channel = facts[self.PER_CHAN_SUPPORTED_KEY]
        return advice

    def _facts(self, model: nn.Module) -> dict[str, dict[str, Any]]:
        return {
            path: {
                self.PER_CHAN_SUPPORTED_KEY: True,
                self.PER_CHAN_USED_KEY: _is_per_channel(module.qconfig.weight()),
                self.BACKEND_KEY: self.backend_chosen,
            }
            for path, module in model.named_modules()
            if isinstance(module, tuple(self.supported_modules))
            and getattr(module, "qconfig", None) is not None
        }

    def generate_detector_report(self, model: nn.Module) -> tuple[str, dict[str, Any]]:
        facts = self._facts(model)
        lines = [f"Scales of weights, backend {self.backend_chosen}:"]
        lines += [
            f"{path}: one scale; a weight observer per channel would be more accurate"
            for path, found in facts.items()
            if not found[self.PER_CHAN_USED_KEY]
        ]
        if len(lines) == 1:
            lines.append("all layers that can have a scale for each channel have it")
        return "\n".join(lines) + "\n", facts


def _is_per_channel(observer: Any) -> bool:
    if is_fake_quantize(observer):
        return bool(getattr(observer, "is_per_channel", False))
    return hasattr(observer, "ch_axis")
