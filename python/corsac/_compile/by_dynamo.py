"""Models captured by Dynamo, with its graphs on the engine."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from corsac._native.options import Settings
from corsac.backends._pieces import piece_for


def captured_by_dynamo(
    program: Callable[..., Any], settings: Settings, pieces: list[Any]
) -> Callable[..., Any]:
    """``program``, captured by Dynamo when it is called; its compiled graphs are added to ``pieces``."""

    def backend(module: Any, inputs: Any) -> Callable[..., Any]:
        piece = piece_for(module, inputs, settings)
        pieces.append(piece)
        return piece

    compiled = torch.compile(
        program, backend=backend, dynamic=settings.dynamic, fullgraph=settings.fullgraph
    )
    if not settings.fullgraph:
        compiled = _with_its_errors_suppressed(compiled)
    return _with_known_floats(compiled) if settings.dynamic else compiled


def _with_its_errors_suppressed(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, which Dynamo captures, with PyTorch as the fallback where capturing fails: a part of the call may
    have run by then, and cannot be repeated."""
    config = torch._dynamo.config

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        before = config.suppress_errors
        config.suppress_errors = True
        try:
            return function(*args, **kwargs)
        finally:
            config.suppress_errors = before

    return run


def _with_known_floats(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, which Dynamo captures with symbolic sizes, but with floats of modules as constants: it
    would turn scale factors and the eps of norms into float64 tensors."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._dynamo.config.patch(specialize_float=True):
            return function(*args, **kwargs)

    return run
