"""The rows of the table, by family. Importing this registers them all."""

from corsac.onnx._table import table as operators
from corsac.onnx.translations import (
    activations,
    attention,
    containers,
    convolutions,
    creation,
    elementwise,
    indexing,
    joining,
    matrices,
    modules,
    normalisation,
    pooling,
    quantisation,
    reductions,
    resampling,
    views,
)

__all__ = [
    "activations",
    "attention",
    "containers",
    "convolutions",
    "creation",
    "elementwise",
    "indexing",
    "joining",
    "matrices",
    "modules",
    "normalisation",
    "operators",
    "pooling",
    "quantisation",
    "reductions",
    "resampling",
    "views",
]
