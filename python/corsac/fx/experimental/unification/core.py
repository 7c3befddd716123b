"""Finds the substitution that makes two terms equal, and applies it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.fx.experimental.unification.core import _reify as _torch_reify
from torch.fx.experimental.unification.core import _unify as _torch_unify

from .utils import hashable
from .variable import isvar

__all__ = ["reify", "unify"]

#: For each class registered with ``unifiable``: its parts, and its constructor from parts.
Parts = tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]
TERMS: dict[type, Parts] = {
    slice: (lambda term: (term.start, term.stop, term.step), lambda _, parts: slice(*parts))
}

_SEQUENCES = (tuple, list, Iterator)


def parts_of(term: Any) -> Parts | None:
    """Functions that decompose terms of this class, or of the nearest registered one."""
    return next((TERMS[cls] for cls in type(term).__mro__ if cls in TERMS), None)


def reify(e: Any, s: dict[Any, Any]) -> Any:
    """``e`` with its variables replaced by their values in ``s``.

    Example::

        >>> x, y = Var("x"), Var("y")
        >>> reify((1, x, (3, y)), {x: 2, y: 4})
        (1, 2, (3, 4))
    """
    while isvar(e):
        if e not in s:
            return e
        e = s[e]
    if isinstance(e, Iterator):
        return (reify(item, s) for item in e)
    if isinstance(e, tuple):
        return tuple(reify(item, s) for item in e)
    if isinstance(e, list):
        return [reify(item, s) for item in e]
    if isinstance(e, dict):
        return {key: reify(value, s) for key, value in e.items()}
    parts = parts_of(e)
    if parts is not None:
        take, make = parts
        old = take(e)
        new = reify(old, s)
        return e if new == old else make(e, new)
    return _torch_reify(e, s)


def unify(u: Any, v: Any, s: dict[Any, Any] | None = None) -> dict[Any, Any] | bool:
    """The values of variables that make the two terms equal, in addition to those in ``s``; False if
    sequences differ in length. ``s`` is not changed.

    Takes linear time in the size of the terms, except for chains of variables.

    Example::

        >>> x = Var("x")
        >>> unify((1, x), (1, 2), {})
        {~x: 2}

    Raises:
        NotImplementedError: two terms differ and cannot be decomposed, such as two numbers.
    """
    known = {} if s is None else s
    found: dict[Any, Any] | None = None
    pending = [(u, v)]
    while pending:
        left, right = pending.pop()
        mapping = known if found is None else found
        left, right = _walk(left, mapping), _walk(right, mapping)
        if left == right:
            continue
        if isvar(left) or isvar(right):
            if found is None:
                found = dict(known)
            variable, value = (left, right) if isvar(left) else (right, left)
            found[variable] = value
            continue
        if isinstance(left, _SEQUENCES) and isinstance(right, _SEQUENCES):
            if len(left) != len(right):
                return False
            pending.extend(reversed(list(zip(left, right, strict=True))))
            continue
        parts = parts_of(left)
        if parts is not None and type(left) is type(right):
            pending.append((parts[0](left), parts[0](right)))
            continue
        if parts is not None and parts is parts_of(right):
            return False
        answer = _torch_unify(left, right, mapping)
        if answer is False:
            return False
        found = dict(answer)
    return known if found is None else found


def _walk(term: Any, mapping: dict[Any, Any]) -> Any:
    while hashable(term) and term in mapping:
        term = mapping[term]
    return term
