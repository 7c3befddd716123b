"""Configurations of quantisers, and annotations of nodes. The names are those of ``torch.ao``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from corsac._messages.near_names import did_you_mean
from corsac.quantization.quantizer.quantizer import (
    Q_ANNOTATION_KEY,
    QuantizationAnnotation,
    QuantizationSpec,
)

__all__ = [
    "OperatorConfig",
    "OperatorPatternType",
    "QuantizationConfig",
    "annotate_input_qspec_map",
    "annotate_output_qspec",
    "get_bias_qspec",
    "get_input_act_qspec",
    "get_module_name_filter",
    "get_output_act_qspec",
    "get_weight_qspec",
    "is_valid_annotation",
]


@dataclass(eq=True, frozen=True)
class QuantizationConfig:
    """Specifications of what an operator reads and returns; None for what stays float."""

    input_activation: QuantizationSpec | None
    output_activation: QuantizationSpec | None
    weight: QuantizationSpec | None
    bias: QuantizationSpec | None
    is_qat: bool = False


#: A pattern: modules and functions, one after the other.
OperatorPatternType = list[Callable[..., Any]]


class OperatorConfig(NamedTuple):
    """A configuration and the patterns that it is supported for."""

    config: QuantizationConfig
    operators: list[OperatorPatternType]


def _spec(config: Any, name: str, schemes: tuple[Any, ...]) -> Any:
    spec = None if config is None else getattr(config, name)
    if spec is not None and spec.qscheme not in schemes:
        listed = ", ".join(map(str, schemes))
        raise ValueError(f"{name}: expected a qscheme of {listed}, got {spec.qscheme}")
    return spec


def get_input_act_qspec(quantization_config: Any) -> Any:
    """The specification of inputs, which is per tensor; None if they stay float."""
    schemes = (torch.per_tensor_affine, torch.per_tensor_symmetric)
    return _spec(quantization_config, "input_activation", schemes)


def get_output_act_qspec(quantization_config: Any) -> Any:
    """The specification of outputs, which is per tensor; None if they stay float."""
    schemes = (torch.per_tensor_affine, torch.per_tensor_symmetric)
    return _spec(quantization_config, "output_activation", schemes)


def get_weight_qspec(quantization_config: Any) -> Any:
    """The specification of weights, which is symmetric; None if they stay float."""
    schemes = (torch.per_tensor_symmetric, torch.per_channel_symmetric, None)
    return _spec(quantization_config, "weight", schemes)


def get_bias_qspec(quantization_config: Any) -> Any:
    """The specification of biases, which stay float; None in most configurations."""
    spec = None if quantization_config is None else quantization_config.bias
    if spec is not None and spec.dtype != torch.float:
        raise ValueError(f"bias: expected float32, got {spec.dtype}")
    return spec


def _annotation(node: Any) -> Any:
    return node.meta.setdefault(Q_ANNOTATION_KEY, QuantizationAnnotation())


def annotate_input_qspec_map(node: Any, input_node: Any, qspec: Any) -> None:
    """Add the specification of an input to the annotation of ``node``."""
    _annotation(node).input_qspec_map[input_node] = qspec


def annotate_output_qspec(node: Any, qspec: Any) -> None:
    """Set the specification of the output in the annotation of ``node``."""
    _annotation(node).output_qspec = qspec


def get_module_name_filter(module_name: str) -> Callable[[Any], bool]:
    """A function that returns whether a node comes from the module of this qualified name, or from one inside it."""

    def comes_from_module(node: Any) -> bool:
        stack = node.meta.get("nn_module_stack") or {}
        return any(path.removeprefix("L['self'].") == module_name for path, _ in stack.values())

    return comes_from_module


def warn_of_unmatched(model: Any, names: Iterable[str]) -> None:
    """Warn of names of modules that no node of an exported program comes from."""
    stacks = (node.meta.get("nn_module_stack") or {} for node in model.graph.nodes)
    known = {path.removeprefix("L['self'].") for stack in stacks for path, _ in stack.values()}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, sorted(known))
            warnings.warn(f"the model calls no module {name!r}{hint}", stacklevel=4)


def is_valid_annotation(annotation: Any) -> bool:
    """Whether an annotation has a specification."""
    return annotation is not None and bool(
        annotation.input_qspec_map or annotation.output_qspec is not None
    )
