"""Sequences whose lengths are known, and optional values that are known to be there or not."""

from __future__ import annotations

from typing import Any

import torch

from corsac.onnx._emitter import Emitter
from corsac.onnx._registry import reads
from corsac.onnx._types import Unsupported
from corsac.onnx._values import Sequence, Size, Value


def _place(g: Emitter, position: Value) -> int:
    found = g.int(position)
    if isinstance(found, Size):
        raise Unsupported("a place in a sequence that depends on the inputs")
    return int(found)


@reads("SequenceConstruct", since=11)
def sequence_construct(g: Emitter, *inputs: Value) -> Any:
    return Sequence(inputs)


@reads("SequenceEmpty", since=11)
def sequence_empty(g: Emitter, *, dtype: int = 1) -> Any:
    return Sequence()


@reads("SequenceAt", since=11)
def sequence_at(g: Emitter, sequence: Any, position: Value) -> Value:
    return sequence[_place(g, position)]


@reads("SequenceInsert", since=11)
def sequence_insert(g: Emitter, sequence: Any, value: Value, position: Value | None = None) -> Any:
    made = Sequence(sequence)
    made.insert(len(made) if position is None else _place(g, position), value)
    return made


@reads("SequenceErase", since=11)
def sequence_erase(g: Emitter, sequence: Any, position: Value | None = None) -> Any:
    made = Sequence(sequence)
    del made[-1 if position is None else _place(g, position)]
    return made


@reads("SequenceLength", since=11)
def sequence_length(g: Emitter, sequence: Any) -> Value:
    return g.literal(len(sequence), torch.int64)


@reads("ConcatFromSequence", since=11)
def concat_from_sequence(g: Emitter, sequence: Any, *, axis: int, new_axis: int = 0) -> Value:
    return g.call(torch.stack if new_axis else torch.cat, list(sequence), axis)


@reads("SplitToSequence", since=11)
def split_to_sequence(
    g: Emitter, input: Value, split: Value | None = None, *, axis: int = 0, keepdims: int = 1
) -> Any:
    if split is None:
        parts = g.call(torch.split, input, 1, axis)
        return Sequence(parts if keepdims else [g.call(torch.squeeze, own, axis) for own in parts])
    sizes = g.fixed(split, "lengths of parts") or []
    return Sequence(g.call(torch.split, input, sizes if split.rank else sizes[0], axis))


@reads("SequenceMap", since=17)
def sequence_map(g: Emitter, sequence: Any, *others: Any, body: Any) -> Any:
    if not isinstance(sequence, Sequence):
        raise Unsupported("its first input is no sequence")
    outputs = g.outputs
    results: list[tuple[Value, ...]] = []
    for at in range(len(sequence)):
        # Tensors among the inputs are the same for all parts.
        given = [own[at] if isinstance(own, Sequence) else own for own in (sequence, *others)]
        results.append(g.reading.inline_graph(body, given))
    g.outputs = outputs
    return tuple(Sequence(own[at] for own in results) for at in range(len(body.output)))


@reads("Optional", since=15)
def optional(g: Emitter, value: Any = None, *, type: Any = None) -> Any:
    if value is None:
        raise Unsupported("an optional value without an element")
    return value


@reads("OptionalHasElement", since=15)
def optional_has_element(g: Emitter, value: Any = None) -> Value:
    return g.literal(value is not None, torch.bool)


@reads("OptionalGetElement", since=15)
def optional_get_element(g: Emitter, value: Any) -> Any:
    return value
