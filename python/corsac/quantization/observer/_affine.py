"""Quantisation in blocks: granularities, mappings and the observer base that PyTorch shares with torchao.

https://docs.pytorch.org/ao/stable/api_reference/index.html
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import torch
from torch import Tensor, nn

from corsac.quantization.observer._constructors import _with_args


class MappingType(Enum):
    """The way a range of real values becomes one of integers."""

    #: -largest to largest.
    SYMMETRIC = auto()
    #: The greater of the scales that the negative and the positive values need.
    SYMMETRIC_NO_CLIPPING_ERR = auto()
    #: Smallest to largest.
    ASYMMETRIC = auto()


class ZeroPointDomain(Enum):
    """The domain of zero points: integers, real numbers, or none."""

    INT = auto()
    FLOAT = auto()
    NONE = auto()


class TorchAODType(Enum):
    """Types of less than eight bits."""

    INT1 = auto()
    INT2 = auto()
    INT3 = auto()
    INT4 = auto()
    INT5 = auto()
    INT6 = auto()
    INT7 = auto()


@dataclass(frozen=True)
class Granularity:
    """The part of a tensor that shares a scale."""


@dataclass(frozen=True)
class PerBlock(Granularity):
    """Blocks of the given sizes."""

    block_size: tuple[int, ...]


@dataclass(frozen=True)
class PerTensor(Granularity):
    """The whole tensor."""


@dataclass(frozen=True)
class PerAxis(Granularity):
    """Each slice along a dimension."""

    axis: int


@dataclass(frozen=True)
class PerGroup(Granularity):
    """Groups of consecutive elements of each row of a matrix."""

    group_size: int


class PerRow(Granularity):
    """Each row of the last dimension."""


class PerToken(Granularity):
    """Each row of the last dimension: one token."""


def get_block_size(input_shape: tuple[int, ...], granularity: Granularity) -> tuple[int, ...]:
    """The sizes of the blocks that share a scale."""
    match granularity:
        case PerTensor():
            return input_shape
        case PerAxis(axis):
            sizes = list(input_shape)
            sizes[axis] = 1
            return tuple(sizes)
        case PerRow() | PerToken():
            return (1,) * (len(input_shape) - 1) + (input_shape[-1],)
        case PerGroup(group_size):
            if len(input_shape) != 2:
                raise AssertionError(f"expected a matrix for groups of a row, got {input_shape}")
            return (1, group_size)
        case Granularity():
            raise ValueError(f"unsupported granularity {granularity}")
    raise AssertionError(f"expected an instance of Granularity, got {granularity}")


class AffineQuantizedObserverBase(ABC, nn.Module):
    """Base of observers of blocks; derived classes compute parameters and set ``block_size`` and ``original_dtype``."""

    with_args = classmethod(_with_args)

    def __init__(
        self,
        mapping_type: MappingType,
        target_dtype: torch.dtype,
        granularity: Granularity,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float | None = None,
        scale_dtype: torch.dtype | None = None,
        zero_point_dtype: torch.dtype | None = None,
        preserve_zero: bool = True,
        zero_point_domain: ZeroPointDomain | None = ZeroPointDomain.INT,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if granularity is None:
            raise AssertionError("expected a granularity, got None")
        self.mapping_type = mapping_type
        self.target_dtype = target_dtype
        self.granularity = granularity
        self.quant_min = quant_min
        self.quant_max = quant_max
        self.eps = eps
        self.scale_dtype = scale_dtype
        self.zero_point_dtype = zero_point_dtype
        self.preserve_zero = preserve_zero
        self.zero_point_domain = zero_point_domain
        self.block_size: tuple[int, ...] | None = None
        self.original_dtype: torch.dtype | None = None

    @abstractmethod
    def forward(self, input: Tensor) -> Tensor: ...

    @abstractmethod
    def calculate_qparams(self) -> tuple[Tensor, Tensor]: ...
