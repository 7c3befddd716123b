"""Annotations of quantisers: a specification for each value that is quantised, and the contract of quantisers.

The names are those of ``torch.ao.quantization.quantizer.quantizer``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "DerivedQuantizationSpec",
    "EdgeOrNode",
    "FixedQParamsQuantizationSpec",
    "QuantizationAnnotation",
    "QuantizationSpec",
    "QuantizationSpecBase",
    "Quantizer",
    "SharedQuantizationSpec",
]

#: The key of a node's ``meta`` with its :class:`QuantizationAnnotation`.
Q_ANNOTATION_KEY = "quantization_annotation"

#: A value as its node, or as one user reads it: a pair of the value's node and the user.
EdgeOrNode = Any


class QuantizationSpecBase(ABC):  # noqa: B024  there is nothing that all have
    """Specification of a quantised value."""


@dataclass(eq=True, frozen=True)
class QuantizationSpec(QuantizationSpecBase):
    """Quantisation by an observer or fake quantiser of its own.

    Args:
        dtype: the quantised type.
        observer_or_fake_quant_ctr: the constructor, which is called with the other arguments.
        quant_min: the smallest quantised value.
        quant_max: the largest quantised value.
        qscheme: per tensor or per channel, affine or symmetric.
        ch_axis: the dimension of channels.
        is_dynamic: whether parameters are computed from each batch when the model runs.
    """

    dtype: torch.dtype
    observer_or_fake_quant_ctr: Any
    quant_min: int | None = None
    quant_max: int | None = None
    qscheme: torch.qscheme | None = None
    ch_axis: int | None = None
    is_dynamic: bool = False

    def __post_init__(self) -> None:
        low, high = self.quant_min, self.quant_max
        if low is not None and high is not None and low > high:
            raise ValueError(f"expected quant_min of at most quant_max, got {low} and {high}")
        if self.ch_axis is not None and self.ch_axis < 0:
            raise ValueError(f"expected a ch_axis of at least 0, got {self.ch_axis}")


@dataclass(eq=True, frozen=True)
class FixedQParamsQuantizationSpec(QuantizationSpecBase):
    """Quantisation with a given scale and zero point."""

    dtype: torch.dtype
    scale: float
    zero_point: int
    quant_min: int | None = None
    quant_max: int | None = None
    qscheme: torch.qscheme | None = None
    is_dynamic: bool = False


@dataclass(eq=True, frozen=True)
class SharedQuantizationSpec(QuantizationSpecBase):
    """Quantisation by the observer of another value."""

    edge_or_node: EdgeOrNode


@dataclass(eq=True, frozen=True)
class DerivedQuantizationSpec(QuantizationSpecBase):
    """Quantisation with parameters computed from those of other values, as for a bias.

    Args:
        derived_from: the other values.
        derive_qparams_fn: computes scale and zero point from their observers or fake quantisers.
        dtype: the quantised type.
        quant_min: the smallest quantised value.
        quant_max: the largest quantised value.
        qscheme: per tensor or per channel, affine or symmetric.
        ch_axis: the dimension of channels.
        is_dynamic: whether parameters are computed from each batch when the model runs.
    """

    derived_from: list[EdgeOrNode]
    derive_qparams_fn: Callable[[list[Any]], tuple[Tensor, Tensor]]
    dtype: torch.dtype
    quant_min: int | None = None
    quant_max: int | None = None
    qscheme: torch.qscheme | None = None
    ch_axis: int | None = None
    is_dynamic: bool = False


@dataclass
class QuantizationAnnotation:
    """Specifications for the inputs and the output of a node.

    Args:
        input_qspec_map: specifications by input; None leaves an input as it is.
        output_qspec: the specification of the output.
        allow_implicit_sharing: whether an input uses the observer of the value, or of another user of it, that is
            quantised in the same way.
    """

    input_qspec_map: dict[Any, QuantizationSpecBase | None] = field(default_factory=dict)
    output_qspec: QuantizationSpecBase | None = None
    allow_implicit_sharing: bool = True
    #: Whether a quantiser has decided on this node.
    _annotated: bool = False


class Quantizer(ABC):
    """The quantiser of a backend: it writes an annotation into ``meta["quantization_annotation"]`` of nodes."""

    def transform_for_annotation(self, model: torch.nn.Module) -> torch.nn.Module:
        """The graph module that is annotated: ``model``, or one with other operators."""
        return model

    @abstractmethod
    def annotate(self, model: torch.nn.Module) -> torch.nn.Module:
        """Annotate nodes of ``model``."""

    @abstractmethod
    def validate(self, model: torch.nn.Module) -> None:
        """Raise an exception if the backend does not support the annotations."""

    def prepare_obs_or_fq_callback(  # noqa: B027  quantisers may leave it out
        self, model: torch.nn.Module, edge_or_node_to_obs_or_fq: dict[EdgeOrNode, Any]
    ) -> None:
        """Change observers, or the dictionary of them, before they are inserted into the graph."""
