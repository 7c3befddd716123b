"""Details of the nodes of a graph, for pictures of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import torch

from corsac.fx._source import place_in

# Number of shapes of a list that are shown.
_MAX_SHAPES = 4
_MAX_TEXT = 2000


@dataclasses.dataclass
class Note:
    """Details of one node. Text is shown as it is; ``None`` stands for unknown."""

    #: Qualified name of the class of the module that the node calls.
    class_name: str | None = None
    shape: str | None = None
    dtype: str | None = None
    source: str | None = None
    settings: str | None = None
    #: In seconds.
    time: float | None = None
    #: Read and written.
    bytes: float | None = None
    #: Floating-point operations.
    flops: float | None = None
    #: The number of the part of the program that it is in.
    part: int | None = None
    #: The enclosing module calls, outermost first: path, class, number of the call.
    modules: list[tuple[str, str, int]] | None = None
    more: list[tuple[str, str]] = dataclasses.field(default_factory=list)


def notes_of(graph: Any, annotations: Any = None) -> list[tuple[Any, Note]]:
    """Details of each node of ``graph``, from its ``meta`` and its module, overridden by
    ``annotations`` (see :func:`corsac.draw`)."""
    said = _by_name(annotations)
    owner = graph.owning_module
    notes = []
    for node in graph.nodes:
        note = Note()
        _from_meta(note, node.meta)
        if node.op == "call_module" and owner is not None:
            _from_module(note, owner, node.target)
        _from_annotation(note, said.get(node.name))
        notes.append((node, note))
    return notes


def text(value: Any) -> str:
    """``str`` of a value, shortened, and as text that can be encoded in UTF-8."""
    shown = str(value)
    if len(shown) > _MAX_TEXT:
        shown = shown[:_MAX_TEXT] + "…"
    return shown.encode("utf-8", "replace").decode("utf-8")


def shape_and_dtype(value: Any) -> tuple[str | None, str | None]:
    """Shape and element type of a value as text: a tensor, ``TensorMetadata``, or containers of them;
    ``None`` for other values."""
    shapes: list[str] = []
    dtypes: list[str] = []
    _collect(value, shapes, dtypes)
    if not shapes:
        return None, None
    shown = ", ".join(shapes[:_MAX_SHAPES]) + (", …" if len(shapes) > _MAX_SHAPES else "")
    return shown, ", ".join(dict.fromkeys(dtypes))


def _collect(value: Any, shapes: list[str], dtypes: list[str]) -> None:
    if len(shapes) > _MAX_SHAPES:
        return
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and isinstance(dtype, torch.dtype):
        shapes.append("×".join(text(size) for size in shape) or "scalar")
        dtypes.append(text(dtype).removeprefix("torch."))
    elif isinstance(value, Mapping):
        for part in value.values():
            _collect(part, shapes, dtypes)
    elif isinstance(value, (tuple, list)):
        for part in value:
            _collect(part, shapes, dtypes)


def _from_meta(note: Note, meta: Mapping[str, Any]) -> None:
    for key in ("tensor_meta", "val", "example_value"):
        if meta.get(key) is not None:
            note.shape, note.dtype = shape_and_dtype(meta[key])
            break
    trace = meta.get("stack_trace")
    if isinstance(trace, str) and (place := place_in(trace)) is not None:
        note.source = text(place)
    stack = meta.get("nn_module_stack")
    if isinstance(stack, Mapping):
        note.modules = [_module_call(key, entry) for key, entry in stack.items()]


def _module_call(key: Any, entry: Any) -> tuple[str, str, int]:
    path, module_class = entry if isinstance(entry, tuple) and len(entry) == 2 else (key, "")
    _, _, call = str(key).rpartition("@")
    return text(path), _class_name(module_class), int(call) if call.isdecimal() else 0


def _class_name(module_class: Any) -> str:
    if isinstance(module_class, type):
        return text(f"{module_class.__module__}.{module_class.__qualname__}")
    return text(module_class)


def _from_module(note: Note, owner: Any, target: str) -> None:
    try:
        module = owner.get_submodule(target)
    except AttributeError:
        return
    note.class_name = _class_name(type(module))
    if settings := module.extra_repr():
        note.settings = text(settings)


def _by_name(annotations: Any) -> dict[str, Any]:
    """Annotations by the names of nodes."""
    if annotations is None:
        return {}
    rows = getattr(annotations, "rows", None)
    if rows is not None:
        # A report of corsac.analysis.
        annotations = {row.name: _measured(row) for row in rows}
    if not isinstance(annotations, Mapping):
        raise TypeError(
            "annotations are a mapping from names of nodes to what is known of them, or a report "
            f"of corsac.analysis, not {type(annotations).__qualname__}"
        )
    return {
        node if isinstance(node, str) else node.name: said for node, said in annotations.items()
    }


def _measured(row: Any) -> dict[str, Any]:
    """The annotation of a row of a report: a ``NodeCost``, or a ``NodeTime``, which has one."""
    cost = getattr(row, "cost", row)
    moved = (cost.bytes_read, cost.bytes_written)
    # Counts with symbols cannot be drawn.
    return {
        "flops": cost.flops if isinstance(cost.flops, int) else None,
        "bytes": sum(moved) if all(isinstance(count, int) for count in moved) else None,
        "time": getattr(row, "seconds", None),
    }


_FIELDS = {
    "shape": "shape",
    "dtype": "dtype",
    "source": "source",
    "settings": "settings",
    "time": "time",
    "seconds": "time",
    "time_s": "time",
    "bytes": "bytes",
    "bytes_moved": "bytes",
    "flops": "flops",
    "part": "part",
}
_AMOUNTS = ("time", "bytes", "flops")


def _from_annotation(note: Note, said: Any) -> None:
    if said is None:
        return
    if not isinstance(said, Mapping):
        said = {key: getattr(said, key) for key in _FIELDS if hasattr(said, key)}
    for key, value in said.items():
        if value is None:
            continue
        field = _FIELDS.get(key)
        if field in _AMOUNTS:
            amount = float(value)
            setattr(note, field, amount if math.isfinite(amount) else None)
        elif field == "part":
            note.part = int(value)
        elif field == "shape" and isinstance(value, (tuple, list)):
            note.shape = "×".join(text(size) for size in value) or "scalar"
        elif field is not None:
            setattr(note, field, text(value))
        else:
            note.more.append((text(key), text(value)))
