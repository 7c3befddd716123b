"""Exported programs (PT2E), as in ``torch.ao.quantization.pt2e`` and ``torchao.quantization.pt2e``.

https://docs.pytorch.org/ao/stable/pt2e_quantization/index.html
"""

from __future__ import annotations

from corsac._lazy import lazy_names
from corsac.quantization import _HOMES as _NAMES

_HOMES = {
    **{f"corsac.quantization.{home}": _NAMES[home] for home in ("fake_quantize", "observer")},
    "export_utils": (
        "WrapperModule",
        "allow_exported_model_train_eval",
        "model_is_exported",
        "move_exported_model_to_eval",
        "move_exported_model_to_train",
    ),
    "_numeric_debugger": (
        "CUSTOM_KEY",
        "NUMERIC_DEBUG_HANDLE_KEY",
        "compare_results",
        "extract_results_from_loggers",
        "generate_numeric_debug_handle",
        "prepare_for_propagation_comparison",
    ),
    "_observers": ("DerivedObserverOrFakeQuantize",),
}
_MODULES = ("export_utils", "quantize_pt2e", "quantizer")

__all__ = [name for names in _HOMES.values() for name in names]

__getattr__, __dir__ = lazy_names(__name__, _HOMES, _MODULES)
