"""Models that ``torch.ao.quantization`` has converted, read as models of this package."""

from __future__ import annotations

from corsac.quantization.torch_ao._models import from_torch_ao
from corsac.quantization.torch_ao._weights import UnreadableError

__all__ = ["UnreadableError", "from_torch_ao"]
