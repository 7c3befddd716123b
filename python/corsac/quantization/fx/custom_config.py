"""Settings of preparing, converting and fusing. The names are those of ``torch.ao.quantization.fx.custom_config``."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from corsac.quantization._kinds import is_a
from corsac.quantization.backend_config import BackendConfig
from corsac.quantization.qconfig_mapping import QConfigMapping
from corsac.quantization.quant_type import (
    QuantType,
    _get_quant_type_to_str,
    _quant_type_from_str,
)

__all__ = [
    "ConvertCustomConfig",
    "FuseCustomConfig",
    "PrepareCustomConfig",
    "StandaloneModuleConfigEntry",
]


@dataclass
class StandaloneModuleConfigEntry:
    """The settings of a module that is quantised on its own; None stands for those of the parent."""

    qconfig_mapping: QConfigMapping | None
    example_inputs: tuple[Any, ...]
    prepare_custom_config: PrepareCustomConfig | None
    backend_config: BackendConfig | None


class _Settings:
    """Settings that are lists and dictionaries, with the keys that dictionaries of settings have."""

    #: Attributes that are lists, and their keys.
    _lists: tuple[tuple[str, str], ...] = (("preserved_attributes", "preserved_attributes"),)
    #: Attributes that are dictionaries by kinds of quantisation, and their keys.
    _mappings: tuple[tuple[str, str], ...] = ()
    #: Attributes that are dictionaries of entries of modules, and their keys.
    _entries: tuple[tuple[str, str], ...] = ()

    preserved_attributes: list[str]

    def __init__(self) -> None:
        for attribute, _ in (*self._entries, *self._mappings):
            setattr(self, attribute, {})
        for attribute, _ in self._lists:
            setattr(self, attribute, [])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({ {name: value for name, value in vars(self).items() if value} })"

    def set_preserved_attributes(self, attributes: list[str]) -> Any:
        """Set attributes that a graph module keeps, also where its graph does not use them."""
        self.preserved_attributes = attributes
        return self

    def _set_mapping(
        self, attribute: str, source: type, target: type, quant_type: QuantType
    ) -> Any:
        getattr(self, attribute).setdefault(QuantType(quant_type), {})[source] = target
        return self

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> Any:
        """The settings of a dictionary as :meth:`to_dict` returns it; keys may be left out."""
        made = cls()
        unknown = settings.keys() - {key for _, key in (*cls._entries, *cls._mappings, *cls._lists)}
        if unknown:
            warnings.warn(
                f"{cls.__name__}: unknown keys {sorted(map(str, unknown))} are ignored",
                stacklevel=2,
            )
        for attribute, key in cls._entries:
            for name, mapping, inputs, custom, backend in settings.get(key, []):
                getattr(made, attribute)[name] = StandaloneModuleConfigEntry(
                    _converted(QConfigMapping, mapping, key),
                    inputs,
                    _converted(PrepareCustomConfig, custom, key),
                    _converted(BackendConfig, backend, key),
                )
        for attribute, key in cls._mappings:
            for kind, classes in settings.get(key, {}).items():
                for source, target in classes.items():
                    made._set_mapping(attribute, source, target, _quant_type_from_str(kind))
        for attribute, key in cls._lists:
            setattr(made, attribute, settings.get(key, []))
        return made

    def to_dict(self) -> dict[str, Any]:
        """The settings by name, without those that are empty."""
        found: dict[str, Any] = {}
        for attribute, key in self._entries:
            for name, entry in getattr(self, attribute).items():
                mapping, custom = entry.qconfig_mapping, entry.prepare_custom_config
                found.setdefault(key, []).append(
                    (
                        name,
                        mapping.to_dict() if mapping else None,
                        entry.example_inputs,
                        custom.to_dict() if custom else None,
                        entry.backend_config,
                    )
                )
        for attribute, key in self._mappings:
            for kind, classes in getattr(self, attribute).items():
                found.setdefault(key, {})[_get_quant_type_to_str(kind)] = classes
        for attribute, key in self._lists:
            if getattr(self, attribute):
                found[key] = getattr(self, attribute)
        return found


def _converted(kind: Any, value: Any, key: str) -> Any:
    if value is None or is_a(value, kind.__name__):
        return value
    if isinstance(value, dict):
        return kind.from_dict(value)
    raise ValueError(f"{key}: expected a {kind.__name__}, got {type(value).__name__}")


class PrepareCustomConfig(_Settings):
    """Settings of ``prepare_fx`` and ``prepare_qat_fx``.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.fx.custom_config.PrepareCustomConfig.html
    """

    standalone_module_names: dict[str, StandaloneModuleConfigEntry]
    standalone_module_classes: dict[type, StandaloneModuleConfigEntry]
    float_to_observed_mapping: dict[QuantType, dict[type, type]]
    non_traceable_module_names: list[str]
    non_traceable_module_classes: list[type]
    input_quantized_indexes: list[int]
    output_quantized_indexes: list[int]

    _entries = (
        ("standalone_module_names", "standalone_module_name"),
        ("standalone_module_classes", "standalone_module_class"),
    )
    _mappings = (("float_to_observed_mapping", "float_to_observed_custom_module_class"),)
    _lists = (
        ("non_traceable_module_names", "non_traceable_module_name"),
        ("non_traceable_module_classes", "non_traceable_module_class"),
        ("input_quantized_indexes", "input_quantized_idxs"),
        ("output_quantized_indexes", "output_quantized_idxs"),
        *_Settings._lists,
    )

    def set_standalone_module_name(
        self,
        module_name: str,
        qconfig_mapping: QConfigMapping | None,
        example_inputs: tuple[Any, ...],
        prepare_custom_config: PrepareCustomConfig | None,
        backend_config: BackendConfig | None,
    ) -> PrepareCustomConfig:
        """Quantise the module of a name on its own."""
        self.standalone_module_names[module_name] = StandaloneModuleConfigEntry(
            qconfig_mapping, example_inputs, prepare_custom_config, backend_config
        )
        return self

    def set_standalone_module_class(
        self,
        module_class: type,
        qconfig_mapping: QConfigMapping | None,
        example_inputs: tuple[Any, ...],
        prepare_custom_config: PrepareCustomConfig | None,
        backend_config: BackendConfig | None,
    ) -> PrepareCustomConfig:
        """Quantise each module of a class on its own."""
        self.standalone_module_classes[module_class] = StandaloneModuleConfigEntry(
            qconfig_mapping, example_inputs, prepare_custom_config, backend_config
        )
        return self

    def set_float_to_observed_mapping(
        self,
        float_class: type,
        observed_class: type,
        quant_type: QuantType = QuantType.STATIC,
    ) -> PrepareCustomConfig:
        """Swap modules of a class for those of a class that observes, by its ``from_float``."""
        return self._set_mapping(
            "float_to_observed_mapping", float_class, observed_class, quant_type
        )

    def _set_mapping(
        self, attribute: str, source: type, target: type, quant_type: QuantType
    ) -> PrepareCustomConfig:
        if quant_type != QuantType.STATIC:
            raise ValueError(f"{attribute}: expected QuantType.STATIC, got {quant_type!r}")
        return super()._set_mapping(attribute, source, target, quant_type)

    def set_non_traceable_module_names(self, module_names: list[str]) -> PrepareCustomConfig:
        """Set the names of modules that are not traced into."""
        self.non_traceable_module_names = module_names
        return self

    def set_non_traceable_module_classes(self, module_classes: list[type]) -> PrepareCustomConfig:
        """Set the classes of modules that are not traced into."""
        self.non_traceable_module_classes = module_classes
        return self

    def set_input_quantized_indexes(self, indexes: list[int]) -> PrepareCustomConfig:
        """Set the inputs of the model that are quantised."""
        self.input_quantized_indexes = indexes
        return self

    def set_output_quantized_indexes(self, indexes: list[int]) -> PrepareCustomConfig:
        """Set the results of the model that are quantised."""
        self.output_quantized_indexes = indexes
        return self


class ConvertCustomConfig(_Settings):
    """Settings of ``convert_fx``.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.fx.custom_config.ConvertCustomConfig.html
    """

    observed_to_quantized_mapping: dict[QuantType, dict[type, type]]

    _mappings = (("observed_to_quantized_mapping", "observed_to_quantized_custom_module_class"),)

    def set_observed_to_quantized_mapping(
        self,
        observed_class: type,
        quantized_class: type,
        quant_type: QuantType = QuantType.STATIC,
    ) -> ConvertCustomConfig:
        """Swap modules of a class that observes for those of a quantised class, by its ``from_observed``."""
        return self._set_mapping(
            "observed_to_quantized_mapping", observed_class, quantized_class, quant_type
        )


class FuseCustomConfig(_Settings):
    """Settings of ``fuse_fx``.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.fx.custom_config.FuseCustomConfig.html
    """
