"""Lookups in a backend's description. The names are those of ``torch.ao.quantization.backend_config.utils``.

Mappings by patterns have these in reverse order: (relu, conv), (relu, (bn, conv)).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F

from corsac.quantization.fuser_method_mappings import _reverse2, _reverse3

__all__ = [
    "entry_to_pretty_str",
    "get_fused_module_classes",
    "get_fuser_method_mapping",
    "get_fusion_pattern_to_extra_inputs_getter",
    "get_fusion_pattern_to_root_node_getter",
    "get_module_to_qat_module",
    "get_pattern_to_dtype_configs",
    "get_pattern_to_input_type_to_index",
    "get_qat_module_classes",
    "get_root_module_to_quantized_reference_module",
    "pattern_to_human_readable",
    "remove_boolean_dispatch_from_name",
]


def _by_pattern(backend_config: Any, attribute: str) -> dict[Any, Any]:
    """The settings of one kind that are set, by pattern."""
    configs = backend_config._pattern_complex_format_to_config
    return {
        pattern: getattr(config, attribute)
        for pattern, config in configs.items()
        if getattr(config, attribute) is not None
    }


def get_pattern_to_dtype_configs(backend_config: Any) -> dict[Any, list[Any]]:
    return _by_pattern(backend_config, "dtype_configs")


def get_pattern_to_input_type_to_index(backend_config: Any) -> dict[Any, dict[str, int]]:
    return _by_pattern(backend_config, "_input_type_to_index")


def get_module_to_qat_module(backend_config: Any) -> dict[Any, type]:
    return _by_pattern(backend_config, "qat_module")


def get_fusion_pattern_to_root_node_getter(backend_config: Any) -> dict[Any, Callable[..., Any]]:
    """Functions that return the node with the weight, of the nodes that match a pattern."""
    return _by_pattern(backend_config, "_root_node_getter")


def get_fusion_pattern_to_extra_inputs_getter(backend_config: Any) -> dict[Any, Callable[..., Any]]:
    """Functions that return the further inputs of the fused module, of the nodes that match a pattern."""
    return _by_pattern(backend_config, "_extra_inputs_getter")


def get_fuser_method_mapping(backend_config: Any) -> dict[Any, Callable[..., Any]]:
    """Fusers that take modules in the order of the patterns."""
    return {
        pattern: _get_fuser_method_in_reversed_nested_tuple_format(config)
        for pattern, config in backend_config._pattern_complex_format_to_config.items()
        if config.fuser_method is not None
    }


def get_qat_module_classes(backend_config: Any) -> tuple[type, ...]:
    return tuple({c.qat_module for c in backend_config.configs if c.qat_module is not None})


def get_fused_module_classes(backend_config: Any) -> tuple[type, ...]:
    return tuple({c.fused_module for c in backend_config.configs if c.fused_module is not None})


def get_root_module_to_quantized_reference_module(backend_config: Any) -> dict[type, type]:
    return {
        config.root_module: config.reference_quantized_module
        for config in backend_config.configs
        if config.root_module is not None and config.reference_quantized_module is not None
    }


def _get_pattern_in_reversed_nested_tuple_format(config: Any) -> Any:
    """The pattern of a configuration in reverse order."""
    if config._pattern_complex_format is not None:
        return config._pattern_complex_format
    match config.pattern:
        case None:
            raise ValueError("expected a pattern or a pattern_complex_format, got neither")
        case (first, second):
            return second, first
        case (first, second, third):
            return third, (second, first)
        case tuple() as pattern:
            raise ValueError(f"expected a tuple of 2 or 3 elements, got {pattern}")
        case pattern:
            return pattern


def _get_fuser_method_in_reversed_nested_tuple_format(config: Any) -> Callable[..., Any]:
    """The fuser of a configuration, taking modules in reverse order."""
    if config.fuser_method is None:
        raise AssertionError(f"expected a fuser_method for {config.pattern}, got None")
    if config._pattern_complex_format is not None:
        return config.fuser_method
    if not isinstance(config.pattern, tuple) or len(config.pattern) not in (2, 3):
        raise ValueError(f"expected a tuple of 2 or 3 elements, got {config.pattern}")
    reverse = _reverse2 if len(config.pattern) == 2 else _reverse3
    return reverse(config.fuser_method)


#: Functions of which PyTorch has no readable name, as they are made by one function.
_DISPATCHED = {
    getattr(F, name): f"torch.nn.functional.{name}"
    for name in (
        "fractional_max_pool2d",
        "fractional_max_pool3d",
        "max_pool1d",
        "max_pool2d",
        "max_pool3d",
        "adaptive_max_pool1d",
        "adaptive_max_pool2d",
        "adaptive_max_pool3d",
    )
}


def remove_boolean_dispatch_from_name(p: Any) -> Any:
    """The name of a function that has no readable one; other values as they are."""
    if p in _DISPATCHED:
        return _DISPATCHED[p]
    if "boolean_dispatch" in str(p):
        raise AssertionError(f"no readable name is known for {p}")
    return p


def pattern_to_human_readable(p: Any) -> Any:
    """A pattern with readable names."""
    if isinstance(p, tuple):
        return tuple(map(pattern_to_human_readable, p))
    return p if isinstance(p, str) else remove_boolean_dispatch_from_name(p)


def entry_to_pretty_str(entry: dict[str, Any]) -> str:
    """Lines about a dictionary of a ``BackendPatternConfig``: the pattern, the types, the rest."""
    lines = ["{"]
    if "pattern" in entry:
        lines.append(f"  'pattern': {pattern_to_human_readable(entry['pattern'])},")
    if "dtype_configs" in entry:
        lines.append("  'dtype_configs': [")
        for types in entry["dtype_configs"]:
            lines += [
                "    {",
                *(f"      '{name}': {value}," for name, value in types.items()),
                "    },",
            ]
        lines.append("  ],")
    by_tensors = "num_tensor_args_to_observation_type"
    if by_tensors in entry:
        lines += [
            f"  '{by_tensors}': {{",
            *(f"    {n}: {kind}," for n, kind in entry[by_tensors].items()),
            "  },",
        ]
    shown = ("pattern", "dtype_configs", by_tensors)
    lines += [f"  '{name}': {value}," for name, value in entry.items() if name not in shown]
    return "\n".join([*lines, "}"])
