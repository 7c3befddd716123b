"""Detectors: questions about a calibrated model. The names are those of torch.ao's module."""

from corsac.quantization.fx._model_report._detector import (
    DETECTOR_IS_POST_OBS_KEY,
    DETECTOR_OBS_ARGS_KEY,
    DETECTOR_OBS_TO_INSERT_KEY,
    DETECTOR_TARGET_NODE_KEY,
    DetectorBase,
    DetectorQConfigInfo,
)
from corsac.quantization.fx._model_report._dynamic_static import DynamicStaticDetector
from corsac.quantization.fx._model_report._equalization import InputWeightEqualizationDetector
from corsac.quantization.fx._model_report._outliers import OutlierDetector
from corsac.quantization.fx._model_report._per_channel import PerChannelDetector

__all__ = [
    "DETECTOR_IS_POST_OBS_KEY",
    "DETECTOR_OBS_ARGS_KEY",
    "DETECTOR_OBS_TO_INSERT_KEY",
    "DETECTOR_TARGET_NODE_KEY",
    "DetectorBase",
    "DetectorQConfigInfo",
    "DynamicStaticDetector",
    "InputWeightEqualizationDetector",
    "OutlierDetector",
    "PerChannelDetector",
]
