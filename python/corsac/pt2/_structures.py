"""Structures of arguments and results: tuples, lists and dictionaries of leaves."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from corsac.pt2._archive import Pt2ImportError

_PLAIN = ("builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict")
_SEQUENCES = ("builtins.tuple", "torch.Size")


def structure(text: Any, leaf: Callable[[], Any], *, classes: bool) -> Any:
    """The structure that a text of PyTorch describes, with a leaf of each call of ``leaf``.

    Args:
        text: the text.
        leaf: makes the leaves, in order.
        classes: whether instances of classes become tuples; else they are an error.
    """
    try:
        version, spec = json.loads(text)
        if version != 1:
            raise Pt2ImportError(f"a structure of version {version}")
        return _built(spec, leaf, classes)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        if isinstance(error, Pt2ImportError):
            raise
        raise Pt2ImportError(f"a structure that cannot be read ({error})") from error


def _built(spec: Any, leaf: Callable[[], Any], classes: bool) -> Any:
    kind = spec["type"]
    if kind is None:
        return leaf()
    if kind not in _PLAIN and not classes:
        raise Pt2ImportError(f"an input of the class {kind}")
    children = [_built(own, leaf, classes) for own in spec["children_spec"]]
    if kind == "builtins.list":
        return children
    if kind in _PLAIN and kind not in _SEQUENCES:
        keys = json.loads(spec["context"])
        made: dict[Any, Any] = OrderedDict() if kind == "collections.OrderedDict" else {}
        made.update(zip(keys, children, strict=True))
        return made
    return tuple(children)


def leaves_of(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a structure in order, with their places as Python writes them: ``[0]['mask']``."""
    if isinstance(value, dict):
        for key, own in value.items():
            yield from leaves_of(own, f"{path}[{key!r}]")
    elif isinstance(value, (tuple, list)):
        for at, own in enumerate(value):
            yield from leaves_of(own, f"{path}[{at}]")
    else:
        yield path, value


__all__ = ["leaves_of", "structure"]
