"""Functions of PyTorch written in Python, whose operators are recorded instead of them."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch


@functools.cache
def opened_functions() -> dict[Any, Callable[..., Any]]:
    """Functions of PyTorch written in Python that are recorded as the operators they call, with rebuilt versions."""

    def opened(function: Any) -> Callable[..., Any]:
        # Without overrides: otherwise it would pass itself to the recorder.
        variables = {
            **function.__globals__,
            "has_torch_function": lambda _: False,
            "has_torch_function_variadic": lambda *_: False,
        }
        own = types.FunctionType(
            function.__code__, variables, function.__name__, function.__defaults__
        )
        own.__kwdefaults__ = function.__kwdefaults__
        return own

    functional = torch.nn.functional
    found = (functional.multi_head_attention_forward, functional.triplet_margin_with_distance_loss)
    return {own: opened(own) for own in found}


__all__ = ["opened_functions"]
