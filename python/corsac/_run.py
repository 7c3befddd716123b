"""What every run of a program of the engine needs, with PyTorch or without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def filled(output: Any, results: Sequence[Any]) -> Any:
    """What a program returns, with ``results`` in the places of their numbers."""
    if isinstance(output, int):
        return results[output]
    if isinstance(output, tuple | list):
        return type(output)(filled(item, results) for item in output)
    if isinstance(output, dict):
        return {key: filled(item, results) for key, item in output.items()}
    return output
