"""Functions of ``nn.Module`` for calls and attributes, whose code the recorder has shortcuts for."""

from __future__ import annotations

import functools
import hashlib
from typing import Any

from torch import nn

#: Names of the functions, with digests of the code that ``capture/known_code.rs`` is written for.
_KNOWN = (
    ("__getattr__", "781d33162287e6c1"),
    ("_wrapped_call_impl", "bd5566da26fe6b7f"),
    ("_call_impl", "bb8c32906e0cff5f"),
)


@functools.cache
def known_code() -> list[Any]:
    """The code of these functions; none if one is unknown. A function replaced later is recorded like all code."""
    codes = [getattr(nn.Module, name).__code__ for name, _ in _KNOWN]
    found = [_digest(own) for own in codes]
    return codes if found == [own for _, own in _KNOWN] else []


def _digest(code: Any) -> str:
    """Digest of a code object."""
    texts = [own for own in code.co_consts if isinstance(own, str)]
    parts = (code.co_code, code.co_names, code.co_varnames, code.co_cellvars, texts)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


__all__ = ["known_code"]
