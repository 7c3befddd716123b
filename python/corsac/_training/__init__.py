"""Training: forward and backward graphs of ATen operators, native where that is faster."""

from corsac._training._backend import TrainedGraph, train
from corsac._training._captures import Captures, TrainedModel

__all__ = ["Captures", "TrainedGraph", "TrainedModel", "train"]
