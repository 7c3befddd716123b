"""The decorator that states whether the compatibility of an API is guaranteed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")

#: Objects marked as guaranteed, and all marked objects, in order of marking.
_BACK_COMPAT_OBJECTS: dict[Any, None] = {}
_MARKED_WITH_COMPATIBILITY: dict[Any, None] = {}

_STABLE = ".. note::\n    Backwards-compatibility for this API is guaranteed.\n"
_EXPERIMENTAL = ".. warning::\n    This API is experimental and is *NOT* backward-compatible.\n"


def compatibility(is_backward_compatible: bool) -> Callable[[_T], _T]:
    """Add a note on backward compatibility to the docstring of a function or class."""
    notice = _STABLE if is_backward_compatible else _EXPERIMENTAL

    def mark(fn: _T) -> _T:
        doc = inspect.cleandoc(getattr(fn, "__doc__", None) or "")
        fn.__doc__ = f"{doc}\n\n{notice}"
        _MARKED_WITH_COMPATIBILITY[fn] = None
        if is_backward_compatible:
            _BACK_COMPAT_OBJECTS[fn] = None
        return fn

    return mark
