"""Whose fault it is that a graph could not be compiled."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)

from corsac.fx import GraphModule

# What tensors without data cannot do; programs may all the same.
_UNKNOWN = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
    NotImplementedError,
)


def fails_without_backend(module: GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether PyTorch cannot run the graph either, on tensors like ``inputs`` without data."""
    # It would log what is found out here.
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in inputs]
        try:
            module(*fakes)
        except _UNKNOWN:
            return False
        except Exception:
            return True
        finally:
            logger.setLevel(level)
    return False
