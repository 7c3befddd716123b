"""Models in training: forward and backward graphs of AOTAutograd, run natively where that is faster."""

from corsac._training._backend import TrainedGraph, train

__all__ = ["TrainedGraph", "train"]
