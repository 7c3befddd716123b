"""Archives of ``torch.export``."""

from __future__ import annotations

import io
import warnings
from typing import Any

import torch


def archive(model: Any, args: Any, kwargs: Any = None, shapes: Any = None) -> bytes:
    """The archive of a program for these arguments and ``dynamic_shapes``."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(model, args, kwargs, dynamic_shapes=shapes)
        torch.export.save(program, file)
    return file.getvalue()


__all__ = ["archive"]
