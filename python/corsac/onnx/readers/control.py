"""Control flow: branches that are known are read in place, others become modules."""

from __future__ import annotations

from typing import Any

import torch

from corsac._capture import control_flow as control
from corsac.onnx._emitter import Emitter
from corsac.onnx._registry import reads
from corsac.onnx._subgraph import Subgraph, read_body, read_subgraphs
from corsac.onnx._types import Unsupported
from corsac.onnx._values import Sequence, Value


@reads("If")
def if_(g: Emitter, condition: Value, *, then_branch: Any, else_branch: Any) -> Any:
    if condition.constant is not None:
        branch = then_branch if condition.number else else_branch
        return g.reading.inline_graph(branch)
    branches, captured = read_subgraphs(g.reading, [(then_branch, []), (else_branch, [])])
    return _called(
        g,
        "if",
        control.If(branches[0].module, branches[1].module),
        [condition, *captured],
        branches,
    )


def _called(
    g: Emitter, name: str, module: torch.nn.Module, arguments: list[Any], graphs: list[Subgraph]
) -> Any:
    """Call a module whose results have the declared types, or else those of its graphs."""
    samples = []
    for at, output in enumerate(g.outputs):
        declared = g.declared(output) if output else None
        samples.append(
            _common(g, [own.results[at] for own in graphs]) if declared is None else declared
        )
    if all(own is not None for own in samples):
        joined = [tuple(own[at] for own in samples) for at in range(g.count)]
        return g.module(name, module, arguments, joined)
    raise Unsupported("results whose types are not known before it runs")


def _common(g: Emitter, values: list[Any]) -> Any:
    """The type of results that is the same in all graphs."""
    if any(isinstance(own, Sequence) for own in values):
        raise Unsupported("sequences from control flow that depends on elements")
    first = values[0]
    if any(own.dtype != first.dtype or own.rank != first.rank for own in values):
        return None
    if any(own.shape != first.shape for own in values) or None in first.shape:
        return g.reading.fresh(first.dtype, first.rank)
    return tuple(torch.empty(first.shape, dtype=first.dtype, device="meta") for _ in range(g.count))


@reads("Loop")
def loop(
    g: Emitter,
    count: Value | None = None,
    condition: Value | None = None,
    *carried: Value,
    body: Any,
) -> Any:
    known = None if count is None else count.number
    always = condition is None or bool(condition.number)
    if known is not None and known <= 64 and always and _condition_is_passed(body):
        return _unrolled(g, int(known), list(carried), body)
    if any(isinstance(own, Sequence) for own in carried):
        raise Unsupported("sequences in a loop whose number of iterations is not known")
    number = g.literal(0, torch.int64)
    truth = g.literal(True, torch.bool)
    own, captured = read_body(g.reading, body, list(carried), [number, truth], 2, 1)
    rows = own.results[1 + len(carried) :]
    types = [(row.dtype, [0 if size is None else size for size in row.shape]) for row in rows]
    length = int(known) if known is not None and always and _condition_is_passed(body) else None
    module = control.Loop(own.module, len(carried), types, length)
    return _looped(
        g, "loop", module, [count, condition, *carried, *captured], own.results[1:], len(carried)
    )


def _looped(
    g: Emitter, name: str, module: Any, arguments: list[Any], results: list[Any], carried: int
) -> Any:
    samples = []
    for at, output in enumerate(g.outputs):
        declared = g.declared(output) if output else None
        if declared is None and at < carried:
            declared = _common(g, [results[at]])
        if declared is None and output:
            declared = g.reading.fresh(results[at].dtype, results[at].rank + 1)
        if declared is None:
            declared = (torch.empty(0, device="meta"),) * g.count
        samples.append(declared)
    return g.module(
        name, module, arguments, [tuple(own[at] for own in samples) for at in range(g.count)]
    )


def _condition_is_passed(body: Any) -> bool:
    """Whether a loop has no condition of its own."""
    known = {body.input[1].name}
    constants = set()
    for node in body.node:
        if node.op_type == "Identity" and node.input[0] in known:
            known.add(node.output[0])
        if node.op_type == "Constant" and node.attribute and node.attribute[0].t.data_type == 9:
            tensor = node.attribute[0].t
            if bytes(tensor.raw_data) == b"\x01" or list(tensor.int32_data) == [1]:
                constants.add(node.output[0])
        if node.op_type == "Identity" and node.input[0] in constants:
            constants.add(node.output[0])
    return body.output[0].name in known | constants


def _unrolled(g: Emitter, count: int, carried: list[Any], body: Any) -> Any:
    results: list[list[Value]] = [[] for _ in body.output[1 + len(carried) :]]
    outputs = g.outputs
    for at in range(count):
        number, truth = g.literal(at, torch.int64), g.literal(True, torch.bool)
        _, *found = g.reading.inline_graph(body, [number, truth, *carried])
        carried = list(found[: len(carried)])
        for parts, result in zip(results, found[len(carried) :], strict=True):
            parts.append(result)
    g.outputs = outputs
    if results and not count:
        raise Unsupported("a loop without iterations, whose results have no known types")
    return (*carried, *(g.call(torch.stack, parts) for parts in results))


@reads("Scan", since=9)
def scan(
    g: Emitter,
    *inputs: Value,
    body: Any,
    num_scan_inputs: int,
    scan_input_axes: list[int] | None = None,
    scan_input_directions: list[int] | None = None,
    scan_output_axes: list[int] | None = None,
    scan_output_directions: list[int] | None = None,
) -> Any:
    carried = len(inputs) - num_scan_inputs
    tensors = inputs[carried:]
    input_axes = scan_input_axes or [0] * num_scan_inputs
    backwards = scan_input_directions or [0] * num_scan_inputs
    count = len(body.output) - carried
    output_axes = scan_output_axes or [0] * count
    output_backwards = scan_output_directions or [0] * count
    length = tensors[0].shape[input_axes[0]]
    outputs = g.outputs
    if length is not None and length <= 64:
        own, results = list(inputs[:carried]), [[] for _ in range(count)]
        for at in range(length):
            parts = [
                g.call(torch.select, tensor, axis, length - 1 - at if back else at)
                for tensor, axis, back in zip(tensors, input_axes, backwards, strict=True)
            ]
            found = g.reading.inline_graph(body, [*own, *parts])
            own = list(found[:carried])
            for joined, result in zip(results, found[carried:], strict=True):
                joined.append(result)
        g.outputs = outputs
        return (
            *own,
            *(
                g.call(torch.stack, joined[::-1] if back else joined, axis)
                for joined, axis, back in zip(results, output_axes, output_backwards, strict=True)
            ),
        )
    parts = [
        Value(tensor.name, tuple(own.select(axis, 0) for own in tensor.samples), g.node(tensor))
        for tensor, axis in zip(tensors, input_axes, strict=True)
    ]
    own, captured = read_body(g.reading, body, list(inputs[:carried]), parts, 0, 0)
    module = control.Scan(
        own.module, carried, num_scan_inputs, input_axes, [bool(x) for x in backwards], output_axes,
        [bool(x) for x in output_backwards],
    )  # fmt: skip
    return _looped(g, "scan", module, [*inputs, *captured], own.results, carried)


@reads("Scan", since=8)
def scan_8(g: Emitter, *inputs: Any, **attributes: Any) -> Any:
    raise Unsupported("Scan of version 8, with sequences of different lengths")
