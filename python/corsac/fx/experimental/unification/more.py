"""Terms of user-defined classes."""

from __future__ import annotations

from typing import Any

from torch.fx.experimental.unification import unifiable as _torch_unifiable

from .core import TERMS, reify, unify

__all__ = ["reify_object", "unifiable", "unify_object"]


def unifiable(cls: type) -> type:
    """Let objects of ``cls`` be unified by their attributes, here and in torch.fx. Returns ``cls``, for use
    as a decorator.

    Example::

        >>> @unifiable
        ... class Pair:
        ...     def __init__(self, a, b):
        ...         self.a, self.b = a, b
        >>> x = Var("x")
        >>> unify(Pair(1, 2), Pair(1, x), {})
        {~x: 2}
    """
    TERMS[cls] = (_attributes, _with_attributes)
    return _torch_unifiable(cls)


def reify_object(o: Any, s: dict[Any, Any]) -> Any:
    """A copy of ``o`` with the variables in its attributes replaced; ``o`` itself if there are none."""
    old = _attributes(o)
    new = reify(old, s)
    return o if new == old else _with_attributes(o, new)


def unify_object(u: Any, v: Any, s: dict[Any, Any]) -> dict[Any, Any] | bool:
    """Unify two objects by their attributes; False if they are of different classes."""
    if type(u) is not type(v):
        return False
    return unify(_attributes(u), _attributes(v), s)


def _attributes(o: Any) -> list[Any]:
    if hasattr(o, "__slots__"):
        return [getattr(o, name) for name in o.__slots__]
    return list(vars(o).values())


def _with_attributes(o: Any, values: list[Any]) -> Any:
    made = object.__new__(type(o))
    names = o.__slots__ if hasattr(o, "__slots__") else vars(o)
    for name, value in zip(names, values, strict=True):
        object.__setattr__(made, name, value)
    return made
