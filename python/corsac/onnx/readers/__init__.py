"""The rows of the table of readers, by family. Importing this registers them all."""

from corsac.onnx.readers import (
    activations,
    constants,
    control,
    convolutions,
    elementwise,
    indexing,
    matrices,
    normalisation,
    pooling,
    quantisation,
    recurrent,
    reductions,
    resampling,
    sequences,
    shapes,
    signals,
)

__all__ = [
    "activations",
    "constants",
    "control",
    "convolutions",
    "elementwise",
    "indexing",
    "matrices",
    "normalisation",
    "pooling",
    "quantisation",
    "recurrent",
    "reductions",
    "resampling",
    "sequences",
    "shapes",
    "signals",
]
