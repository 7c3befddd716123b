"""Items of containers and of tensors."""

from __future__ import annotations

from typing import Any

from corsac.onnx._builder import Builder, Missing, Tensor
from corsac.onnx._table import translates
from corsac.onnx._types import Unsupported
from corsac.onnx.translations.indexing import index_tensor
from corsac.onnx.translations.views import transpose


@translates("getitem")
def getitem(g: Builder, input: Any, index: Any) -> Any:
    """An item of a container, or the elements of a tensor at an index."""
    if isinstance(input, Tensor):
        return index_tensor(g, input, index)
    try:
        item = input[index]
    except (TypeError, KeyError, IndexError) as error:
        raise Unsupported(f"no item {index!r}") from error
    if isinstance(item, Missing):
        raise Unsupported(item.reason)
    return item


@translates("getattr")
def getattr_(g: Builder, input: Any, name: str, default: Any = None) -> Any:
    """A transposed tensor, or a field of a named tuple."""
    if isinstance(input, Tensor):
        if name == "data":
            return input
        if name == "T":
            return g.permute(input, list(reversed(range(input.rank))))
        if name in ("mT", "mH") or (name == "H" and input.rank == 2):
            return transpose(g, input, -2, -1)
    if isinstance(input, tuple) and name in ("values", "indices") and len(input) == 2:
        return getitem(g, input, ("values", "indices").index(name))
    raise Unsupported(f"no translation of the attribute {name}")
