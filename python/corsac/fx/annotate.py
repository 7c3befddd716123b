"""Annotates a traced value with a type."""

from typing import Any

from .proxy import Proxy

__all__ = ["annotate"]


def annotate(val: Any, type: type) -> Any:
    """Record ``type`` as the type of the traced value ``val``, and return ``val``.

    Outside of tracing, where ``val`` is not a :class:`Proxy`, nothing is recorded.

    Raises:
        RuntimeError: the value has a type already, from the signature of the traced function or
            from an earlier call.
    """
    if not isinstance(val, Proxy):
        return val
    if val.node.type:
        raise RuntimeError(
            "Tried to annotate a value that already had a type on it!"
            f" Existing type is {val.node.type} and new type is {type}."
            " A function parameter takes its type from the signature;"
            " any other value can be annotated once"
        )
    val.node.type = type
    return val
