"""Descriptions of the operators that a backend has in quantised form.

The names are those of ``torch.ao.quantization.backend_config.backend_config``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import nn

from corsac.quantization._kinds import is_a

__all__ = [
    "BackendConfig",
    "BackendPatternConfig",
    "DTypeConfig",
    "DTypeWithConstraints",
    "ObservationType",
]


class ObservationType(Enum):
    """Observers of an operator's result. Members of ``torch.ao``'s class are equal to those of the same name.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.backend_config.ObservationType.html
    """

    #: The result has its own observer: convolutions, softmax.
    OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT = 0
    #: The result shares the observer of the input: concatenation, maximum pooling.
    OUTPUT_SHARE_OBSERVER_WITH_INPUT = 1
    #: Nothing is observed: shapes.
    INPUT_OUTPUT_NOT_OBSERVED = 2

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return is_a(other, "ObservationType") and getattr(other, "name", None) == self.name

    __hash__ = Enum.__hash__


@dataclass
class DTypeWithConstraints:
    """A type with limits that a configuration has to keep for an operator to be quantised.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.backend_config.DTypeWithConstraints.html

    Attributes:
        dtype: the quantised type.
        quant_min_lower_bound: the least that the smallest quantised value may be.
        quant_max_upper_bound: the most that the largest quantised value may be.
        scale_min_lower_bound: the least scale, compared with ``eps`` of observers.
        scale_max_upper_bound: the greatest scale, not checked.
        scale_exact_match: the scale that an operator with a known range of results needs.
        zero_point_exact_match: its zero point.
    """

    dtype: torch.dtype | None = None
    quant_min_lower_bound: int | float | None = None
    quant_max_upper_bound: int | float | None = None
    scale_min_lower_bound: int | float | None = None
    scale_max_upper_bound: int | float | None = None
    scale_exact_match: float | None = None
    zero_point_exact_match: int | None = None


@dataclass
class DTypeConfig:
    """Types of the quantise operators around an operator: of its input, its output and its weight; of its bias.

    A configuration is used for the operator if its observers have these types, and keep their limits.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.backend_config.DTypeConfig.html
    """

    input_dtype_with_constraints: DTypeWithConstraints
    output_dtype_with_constraints: DTypeWithConstraints
    weight_dtype_with_constraints: DTypeWithConstraints
    bias_dtype: torch.dtype | None
    is_dynamic: bool | None

    def __init__(
        self,
        input_dtype: torch.dtype | DTypeWithConstraints | None = None,
        output_dtype: torch.dtype | DTypeWithConstraints | None = None,
        weight_dtype: torch.dtype | DTypeWithConstraints | None = None,
        bias_dtype: torch.dtype | None = None,
        is_dynamic: bool | None = None,
    ) -> None:
        self.input_dtype_with_constraints = _with_constraints(input_dtype)
        self.output_dtype_with_constraints = _with_constraints(output_dtype)
        self.weight_dtype_with_constraints = _with_constraints(weight_dtype)
        self.bias_dtype = bias_dtype
        self.is_dynamic = is_dynamic

    @property
    def input_dtype(self) -> torch.dtype | None:
        return self.input_dtype_with_constraints.dtype

    @property
    def output_dtype(self) -> torch.dtype | None:
        return self.output_dtype_with_constraints.dtype

    @property
    def weight_dtype(self) -> torch.dtype | None:
        return self.weight_dtype_with_constraints.dtype

    @classmethod
    def from_dict(cls, dtype_config_dict: dict[str, Any]) -> DTypeConfig:
        """Types by the names of the constructor's arguments; they may be left out."""
        for name in ("input_dtype", "output_dtype", "weight_dtype"):
            value = dtype_config_dict.get(name)
            if not (value is None or isinstance(value, torch.dtype) or _is_constrained(value)):
                raise ValueError(
                    f"{name}: expected a torch.dtype or DTypeWithConstraints, got {value!r}"
                )
        return cls(**{name: dtype_config_dict.get(name) for name in _DTYPE_KEYS})

    def to_dict(self) -> dict[str, Any]:
        """The argument of :meth:`from_dict`, without what is None."""
        entries = {}
        for name in _DTYPE_KEYS:
            if getattr(self, name) is not None:
                entries[name] = getattr(self, f"{name}_with_constraints", getattr(self, name))
        return entries


_DTYPE_KEYS = ("input_dtype", "output_dtype", "weight_dtype", "bias_dtype", "is_dynamic")


def _is_constrained(value: Any) -> bool:
    return is_a(value, "DTypeWithConstraints") and not isinstance(value, type)


def _with_constraints(dtype: Any) -> DTypeWithConstraints:
    return dtype if _is_constrained(dtype) else DTypeWithConstraints(dtype=dtype)


class BackendPatternConfig:
    """The quantisation of one pattern: a module type, a function, the name of a method, or a tuple of two or three.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.backend_config.BackendPatternConfig.html
    """

    def __init__(self, pattern: Any = None) -> None:
        self.pattern = pattern
        self.observation_type = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
        self.dtype_configs: list[DTypeConfig] = []
        self.root_module: type[nn.Module] | None = None
        self.qat_module: type[nn.Module] | None = None
        self.reference_quantized_module: type[nn.Module] | None = None
        self.fused_module: type[nn.Module] | None = None
        self.fuser_method: Callable[..., nn.Module] | None = None
        self._root_node_getter: Callable[..., Any] | None = None
        self._extra_inputs_getter: Callable[..., Any] | None = None
        self._num_tensor_args_to_observation_type: dict[int, ObservationType] = {}
        self._input_type_to_index: dict[str, int] = {}
        self._pattern_complex_format: Any = None

    def __repr__(self) -> str:
        shown = {
            name: value
            for name, value in vars(self).items()
            if value is not None and not (isinstance(value, (list, dict)) and not value)
        }
        return f"BackendPatternConfig({shown})"

    def set_pattern(self, pattern: Any) -> BackendPatternConfig:
        """Set the pattern; a tuple is in the order of the computation."""
        if self._pattern_complex_format is not None:
            raise ValueError("expected one of pattern and pattern_complex_format, got both")
        self.pattern = pattern
        return self

    def _set_pattern_complex_format(self, pattern: Any) -> BackendPatternConfig:
        """Set the pattern as nested tuples, each of an operator and its arguments."""
        if self.pattern is not None:
            raise ValueError("expected one of pattern and pattern_complex_format, got both")
        self._pattern_complex_format = pattern
        return self

    def set_observation_type(self, observation_type: ObservationType) -> BackendPatternConfig:
        """Set the observers of the result."""
        self.observation_type = observation_type
        return self

    def add_dtype_config(self, dtype_config: DTypeConfig) -> BackendPatternConfig:
        """Add types that are supported."""
        self.dtype_configs.append(dtype_config)
        return self

    def set_dtype_configs(self, dtype_configs: list[DTypeConfig]) -> BackendPatternConfig:
        """Set all types that are supported."""
        self.dtype_configs = dtype_configs
        return self

    def set_root_module(self, root_module: type[nn.Module]) -> BackendPatternConfig:
        """Set the type of the module that has the weight."""
        self.root_module = root_module
        return self

    def set_qat_module(self, qat_module: type[nn.Module]) -> BackendPatternConfig:
        """Set the type of the module for training."""
        self.qat_module = qat_module
        return self

    def set_reference_quantized_module(
        self, reference_quantized_module: type[nn.Module]
    ) -> BackendPatternConfig:
        """Set the type of the module that the root module is swapped for in a reference graph."""
        self.reference_quantized_module = reference_quantized_module
        return self

    def set_fused_module(self, fused_module: type[nn.Module]) -> BackendPatternConfig:
        """Set the type of the module that the pattern is fused to."""
        self.fused_module = fused_module
        return self

    def set_fuser_method(self, fuser_method: Callable[..., nn.Module]) -> BackendPatternConfig:
        """Set the function that fuses: it takes ``is_qat`` and the modules of the pattern."""
        self.fuser_method = fuser_method
        return self

    def _set_root_node_getter(self, root_node_getter: Callable[..., Any]) -> BackendPatternConfig:
        self._root_node_getter = root_node_getter
        return self

    def _set_extra_inputs_getter(
        self, extra_inputs_getter: Callable[..., Any]
    ) -> BackendPatternConfig:
        self._extra_inputs_getter = extra_inputs_getter
        return self

    def _set_num_tensor_args_to_observation_type(
        self, num_tensor_args_to_observation_type: dict[int, ObservationType]
    ) -> BackendPatternConfig:
        self._num_tensor_args_to_observation_type = num_tensor_args_to_observation_type
        return self

    def _set_input_type_to_index(self, input_type_to_index: dict[str, int]) -> BackendPatternConfig:
        self._input_type_to_index = input_type_to_index
        return self

    @classmethod
    def from_dict(cls, backend_pattern_config_dict: dict[str, Any]) -> BackendPatternConfig:
        """The configuration of a dictionary as :meth:`to_dict` returns it; keys may be left out."""
        entries = dict(backend_pattern_config_dict)
        config = cls()
        if "pattern" in entries:
            config.set_pattern(entries["pattern"])
        if "pattern_complex_format" in entries:
            config._set_pattern_complex_format(entries["pattern_complex_format"])
        for entry in entries.get("dtype_configs", []):
            if isinstance(entry, dict):
                entry = DTypeConfig.from_dict(entry)
            elif not is_a(entry, "DTypeConfig"):
                raise ValueError(
                    f"dtype_configs: expected DTypeConfigs, got {type(entry).__name__}"
                )
            config.add_dtype_config(entry)
        for attribute, name in _PATTERN_KEYS.items():
            if name in entries:
                setattr(config, attribute, entries[name])
        return config

    def to_dict(self) -> dict[str, Any]:
        """The settings by name, without those that are not set."""
        entries: dict[str, Any] = {
            "observation_type": self.observation_type,
            "dtype_configs": [config.to_dict() for config in self.dtype_configs],
        }
        if self.pattern is not None:
            entries["pattern"] = self.pattern
        for attribute, name in _PATTERN_KEYS.items():
            value = getattr(self, attribute)
            if value is not None and value != {}:
                entries[name] = value
        if self._pattern_complex_format is not None:
            entries["pattern_complex_format"] = self._pattern_complex_format
        return entries


#: Attributes and the keys of dictionaries, apart from patterns and types.
_PATTERN_KEYS = {
    "observation_type": "observation_type",
    "root_module": "root_module",
    "qat_module": "qat_module",
    "reference_quantized_module": "reference_quantized_module_for_root",
    "fused_module": "fused_module",
    "fuser_method": "fuser_method",
    "_root_node_getter": "root_node_getter",
    "_extra_inputs_getter": "extra_inputs_getter",
    "_num_tensor_args_to_observation_type": "num_tensor_args_to_observation_type",
    "_input_type_to_index": "input_type_to_index",
}


class BackendConfig:
    """The patterns that a backend has in quantised form. A pattern that is set again replaces the one before.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.backend_config.BackendConfig.html
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        #: By patterns in reverse order: (relu, conv), (relu, (bn, conv)).
        self._pattern_complex_format_to_config: dict[Any, BackendPatternConfig] = {}

    def __repr__(self) -> str:
        return f"BackendConfig({vars(self)})"

    def set_name(self, name: str) -> BackendConfig:
        self.name = name
        return self

    def set_backend_pattern_config(self, config: BackendPatternConfig) -> BackendConfig:
        from corsac.quantization.backend_config.utils import (
            _get_pattern_in_reversed_nested_tuple_format,
        )

        pattern = _get_pattern_in_reversed_nested_tuple_format(config)
        self._pattern_complex_format_to_config[pattern] = config
        return self

    def set_backend_pattern_configs(self, configs: Sequence[BackendPatternConfig]) -> BackendConfig:
        for config in configs:
            self.set_backend_pattern_config(config)
        return self

    @property
    def configs(self) -> list[BackendPatternConfig]:
        return list(self._pattern_complex_format_to_config.values())

    @classmethod
    def from_dict(cls, backend_config_dict: dict[str, Any]) -> BackendConfig:
        """The configuration of a dictionary with "name" and "configs"."""
        backend = cls(backend_config_dict.get("name", ""))
        for entry in backend_config_dict.get("configs", []):
            if isinstance(entry, dict):
                entry = BackendPatternConfig.from_dict(entry)
            elif not is_a(entry, "BackendPatternConfig"):
                raise ValueError(
                    f"configs: expected dictionaries or BackendPatternConfigs, got {type(entry).__name__}"
                )
            backend.set_backend_pattern_config(entry)
        return backend

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "configs": [config.to_dict() for config in self.configs]}
