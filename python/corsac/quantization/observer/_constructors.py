"""Constructors with some arguments given: ``MinMaxObserver.with_args(quant_max=127)``.

https://docs.pytorch.org/docs/stable/torch.ao.quantization.html
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any


class _PartialWrapper:
    """A constructor with arguments, and arguments that are computed at each call."""

    def __init__(self, p: Callable[..., Any]) -> None:
        self.p = p
        self.callable_args: dict[str, Callable[[], Any]] = {}

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        computed = {
            name: compute() for name, compute in self.callable_args.items() if name not in keywords
        }
        return self.p(*args, **{**keywords, **computed})

    def __repr__(self) -> str:
        return f"{self.p!r}{self.callable_args!r}"

    def with_args(self, **kwargs: Any) -> _PartialWrapper:
        return _with_args(self, **kwargs)

    def with_callable_args(self, **kwargs: Callable[[], Any]) -> _PartialWrapper:
        wrapper = _PartialWrapper(self.p)
        wrapper.callable_args = {**self.callable_args, **kwargs}
        return wrapper


def _with_args(cls_or_self: Callable[..., Any], **kwargs: Any) -> _PartialWrapper:
    """``cls_or_self`` with keyword arguments; each call makes a new object."""
    return _PartialWrapper(partial(cls_or_self, **kwargs))


def _with_callable_args(cls_or_self: Callable[..., Any], **kwargs: Any) -> _PartialWrapper:
    """``cls_or_self`` with keyword arguments that are computed at each call, as a device may be."""
    return _PartialWrapper(partial(cls_or_self)).with_callable_args(**kwargs)
