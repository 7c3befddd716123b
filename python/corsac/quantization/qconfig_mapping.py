"""Mappings from the operators of a model to quantisation configurations.

The names are those of ``torch.ao.quantization.qconfig_mapping``.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from corsac.quantization.fake_quantize import FixedQParamsFakeQuantize, default_weight_fake_quant
from corsac.quantization.observer import (
    _PartialWrapper,
    default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer,
    default_placeholder_observer,
    default_weight_observer,
)
from corsac.quantization.qconfig import (
    QConfig,
    QConfigAny,
    default_quint8_weight_qconfig,
    default_reuse_input_qconfig,
    default_symmetric_qnnpack_qat_qconfig,
    default_symmetric_qnnpack_qconfig,
    get_default_qat_qconfig,
    get_default_qconfig,
)

__all__ = ["QConfigMapping", "get_default_qat_qconfig_mapping", "get_default_qconfig_mapping"]

#: Operators with results in a known range.
_FIXED_QPARAMS_OP_TO_OBSERVER: dict[Callable[..., Any] | str, _PartialWrapper] = {
    **dict.fromkeys(
        (
            nn.Hardsigmoid,
            F.hardsigmoid,
            "hardsigmoid",
            "hardsigmoid_",
            nn.Sigmoid,
            torch.sigmoid,
            "sigmoid",
            "sigmoid_",
            nn.Softmax,
        ),
        default_fixed_qparams_range_0to1_observer,
    ),
    **dict.fromkeys(
        (nn.Tanh, torch.tanh, "tanh", "tanh_"), default_fixed_qparams_range_neg1to1_observer
    ),
}

_TRANSPOSED = (
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
    F.conv_transpose1d,
    F.conv_transpose2d,
    F.conv_transpose3d,
)

#: Attributes and the keys of dictionaries, the least specific one first.
_STYLES = {
    "global_qconfig": "",
    "object_type_qconfigs": "object_type",
    "module_name_regex_qconfigs": "module_name_regex",
    "module_name_qconfigs": "module_name",
    "module_name_object_type_order_qconfigs": "module_name_object_type_order",
}


class QConfigMapping:
    """Configurations by what they are for; where several match an operator, the last in this list counts.

    - ``set_global``: all operators.
    - ``set_object_type``: a module type, a function or the name of a method.
    - ``set_module_name_regex``: modules of which a regular expression matches the name; the first that does counts.
    - ``set_module_name``: a module and those in it.
    - ``set_module_name_object_type_order``: the n-th call of a function within a module.

    Setting what is already set replaces it, in its place.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.qconfig_mapping.QConfigMapping.html
    """

    def __init__(self) -> None:
        self.global_qconfig: QConfigAny = None
        self.object_type_qconfigs: OrderedDict[Callable[..., Any] | str, QConfigAny] = OrderedDict()
        self.module_name_regex_qconfigs: OrderedDict[str, QConfigAny] = OrderedDict()
        self.module_name_qconfigs: OrderedDict[str, QConfigAny] = OrderedDict()
        self.module_name_object_type_order_qconfigs: OrderedDict[
            tuple[str, Callable[..., Any], int], QConfigAny
        ] = OrderedDict()

    def set_global(self, global_qconfig: QConfigAny) -> QConfigMapping:
        self.global_qconfig = global_qconfig
        return self

    def set_object_type(
        self, object_type: Callable[..., Any] | str, qconfig: QConfigAny
    ) -> QConfigMapping:
        self.object_type_qconfigs[object_type] = qconfig
        return self

    def set_module_name_regex(self, module_name_regex: str, qconfig: QConfigAny) -> QConfigMapping:
        self.module_name_regex_qconfigs[module_name_regex] = qconfig
        return self

    def set_module_name(self, module_name: str, qconfig: QConfigAny) -> QConfigMapping:
        self.module_name_qconfigs[module_name] = qconfig
        return self

    def set_module_name_object_type_order(
        self,
        module_name: str,
        object_type: Callable[..., Any],
        index: int,
        qconfig: QConfigAny,
    ) -> QConfigMapping:
        key = module_name, object_type, index
        self.module_name_object_type_order_qconfigs[key] = qconfig
        return self

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for style in _STYLES:
            entries = getattr(self, style)
            lines.append(f" {style}")
            if isinstance(entries, OrderedDict) and entries:
                lines += [f"  {key}: {qconfig}" for key, qconfig in entries.items()]
            else:
                lines.append(f"  {entries}")
        return "\n".join([*lines, ")"])

    def to_dict(self) -> dict[str, Any]:
        """A dictionary: "" has the global configuration; the other keys have lists of tuples."""
        entries: dict[str, Any] = {}
        for style, name in _STYLES.items():
            value = getattr(self, style)
            if isinstance(value, OrderedDict):
                value = [
                    (*key, qconfig) if isinstance(key, tuple) else (key, qconfig)
                    for key, qconfig in value.items()
                ]
            entries[name] = value
        return entries

    @classmethod
    def from_dict(cls, qconfig_dict: dict[str, Any]) -> QConfigMapping:
        """The mapping of a dictionary as :meth:`to_dict` returns it; keys may be left out."""
        mapping = cls()
        unknown = qconfig_dict.keys() - _STYLES.values()
        if unknown:
            warnings.warn(
                f"unknown keys {sorted(map(str, unknown))} are ignored, expected some of {list(_STYLES.values())}",
                stacklevel=2,
            )
        for style, name in _STYLES.items():
            if not name:
                mapping.global_qconfig = qconfig_dict.get("")
                continue
            for *key, qconfig in qconfig_dict.get(name, []):
                getattr(mapping, style)[key[0] if len(key) == 1 else tuple(key)] = qconfig
        return mapping


def require_configurations(mapping: Any) -> None:
    """Check that what a mapping has for types and names are configurations.

    Raises:
        TypeError: one is something else.
    """
    tables = {name: getattr(mapping, name) for name in _STYLES if name != "global_qconfig"}
    found = [("global_qconfig", mapping.global_qconfig)]
    found += [
        (f"{name}, {key}", one) for name, table in tables.items() for key, one in table.items()
    ]
    for place, own in found:
        if own is not None and not (hasattr(own, "activation") and hasattr(own, "weight")):
            raise TypeError(f"{place}: expected a QConfig or None, got {own!r}")


def _get_default_qconfig_mapping(is_qat: bool, backend: str, version: int) -> QConfigMapping:
    qconfig = (get_default_qat_qconfig if is_qat else get_default_qconfig)(backend, version)
    weight = default_weight_fake_quant if is_qat else default_weight_observer
    # FBGEMM's transposed convolutions have no scales per channel.
    per_tensor = QConfig(qconfig.activation, weight) if backend in ("fbgemm", "x86") else qconfig
    # The weights of a layer norm stay real.
    norm = QConfig(qconfig.activation, default_placeholder_observer)
    mapping = (
        QConfigMapping().set_global(qconfig).set_object_type("reshape", default_reuse_input_qconfig)
    )
    for operator in _TRANSPOSED:
        mapping.set_object_type(operator, per_tensor)
    for operator in (F.layer_norm, nn.LayerNorm):
        mapping.set_object_type(operator, norm)
    mapping.set_object_type(nn.PReLU, default_quint8_weight_qconfig)
    fixed = {
        observer: QConfig(
            FixedQParamsFakeQuantize.with_args(observer=observer) if is_qat else observer, weight
        )
        for observer in dict.fromkeys(_FIXED_QPARAMS_OP_TO_OBSERVER.values())
    }
    for operator, observer in _FIXED_QPARAMS_OP_TO_OBSERVER.items():
        mapping.set_object_type(operator, fixed[observer])
    return mapping


def get_default_qconfig_mapping(backend: str = "x86", version: int = 0) -> QConfigMapping:
    """The mapping for quantisation after training: "x86", "fbgemm", "qnnpack" or "onednn".

    https://docs.pytorch.org/docs/stable/torch.ao.quantization.html
    """
    return _get_default_qconfig_mapping(False, backend, version)


def get_default_qat_qconfig_mapping(backend: str = "x86", version: int = 1) -> QConfigMapping:
    """The mapping for training: "x86", "fbgemm", "qnnpack" or "onednn".

    https://docs.pytorch.org/docs/stable/torch.ao.quantization.html
    """
    return _get_default_qconfig_mapping(True, backend, version)


def _get_default_qconfig_mapping_with_default_qconfig(
    is_qat: bool, backend: str, default_qconfig: QConfig
) -> QConfigMapping:
    """The default mapping with one configuration for all operators but those with results in a known range."""
    get = get_default_qat_qconfig_mapping if is_qat else get_default_qconfig_mapping
    mapping = get(backend).set_global(default_qconfig)
    for operator in mapping.object_type_qconfigs.keys() - _FIXED_QPARAMS_OP_TO_OBSERVER.keys():
        mapping.set_object_type(operator, default_qconfig)
    return mapping


def _get_symmetric_qnnpack_qconfig_mapping() -> QConfigMapping:
    return _get_default_qconfig_mapping_with_default_qconfig(
        False, "qnnpack", default_symmetric_qnnpack_qconfig
    )


def _get_symmetric_qnnpack_qat_qconfig_mapping() -> QConfigMapping:
    return _get_default_qconfig_mapping_with_default_qconfig(
        True, "qnnpack", default_symmetric_qnnpack_qat_qconfig
    )
