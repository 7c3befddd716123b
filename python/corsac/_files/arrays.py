"""Arrays of numpy in the place of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def held_as(dtype: str) -> str:
    """The type of numpy arrays for an element type."""
    return "float32" if dtype == "bfloat16" else dtype


#: Types in which programs hold elements of other types.
COMPUTED_AS = {
    **dict.fromkeys(("float16", "bfloat16"), "float32"),
    **dict.fromkeys(("int32", "int16", "int8", "uint8"), "int64"),
}


def flat(array: Any) -> Any:
    """The array as one dimension; bool as bytes."""
    own = array.reshape(-1)
    return own.view("uint8") if own.dtype == bool else own


def shown(specs: Sequence[tuple[str, str, Sequence[int | str]]]) -> str:
    """Tensors as text: ``x: float32[batch, 3]``."""
    return ", ".join(f"{name}: {dtype}{shape_text(shape)}" for name, dtype, shape in specs)


def shape_text(shape: Sequence[int | str]) -> str:
    """A shape as text: ``[batch, 3]``."""
    return f"[{', '.join(map(str, shape))}]"


__all__ = ["COMPUTED_AS", "flat", "held_as", "shape_text", "shown"]
