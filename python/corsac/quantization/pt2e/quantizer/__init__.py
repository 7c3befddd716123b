"""The names of ``torchao.quantization.pt2e.quantizer``: those of :mod:`corsac.quantization.quantizer`."""

from __future__ import annotations

from corsac._lazy import lazy_names
from corsac.quantization.quantizer import _HOMES as _NAMES

_HOMES = {f"corsac.quantization.quantizer.{home}": names for home, names in _NAMES.items()}
_MODULES = ("x86_inductor_quantizer",)

__all__ = [name for names in _HOMES.values() for name in names]

__getattr__, __dir__ = lazy_names(__name__, _HOMES, _MODULES)
