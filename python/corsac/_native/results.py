"""Results of native programs, with PyTorch or without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def filled(output: Any, results: Sequence[Any]) -> Any:
    """The return value of a program: ``output`` with integers replaced by the ``results`` of that index."""
    if isinstance(output, int):
        return results[output]
    if isinstance(output, tuple | list):
        return type(output)(filled(item, results) for item in output)
    if isinstance(output, dict):
        return {key: filled(item, results) for key, item in output.items()}
    return output
