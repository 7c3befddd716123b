"""Splits a graph so that its slowest part is as fast as possible."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal

import torch

from corsac import _core
from corsac._models.example_inputs import ExampleInputs, as_tuple
from corsac._splitting.report import BalanceReport
from corsac.analysis._cost import CostReport
from corsac.analysis._machine import Machine, machine
from corsac.analysis._meta_run import MetaRun
from corsac.analysis._profile import Timer
from corsac.analysis._subject import captured
from corsac.fx import GraphModule
from corsac.fx.passes.split_module import split_module

By = Literal["flops", "bytes", "measured"]
Optimizer = Literal["sgd", "momentum", "adam"]

#: Tensors of the size of each parameter that an optimizer keeps.
STATES: dict[str, int] = {"sgd": 0, "momentum": 1, "adam": 2}


def split_balanced(
    target: torch.nn.Module | torch.export.ExportedProgram,
    inputs: ExampleInputs,
    *,
    parts: int,
    memory: int | None = None,
    bandwidth: float | None = None,
    by: By = "flops",
    training: Optimizer | None = None,
    microbatches: int | None = None,
    only_tensors: bool = False,
    kwargs: Mapping[str, Any] | None = None,
    speed: Machine | None = None,
    repeats: int = 3,
) -> tuple[GraphModule, BalanceReport]:
    """Split a graph into parts that run one after the other, so that the slowest is as fast as possible.

    The calls are cut in the order of the graph, and no cut of this order has a faster slowest part; of equally fast
    ones, the result has the least traffic. A part pays for what crosses the borders before and behind it. A value
    crosses each border between the call that makes it and its last use; inputs of the program and attributes are at
    hand in every part, and cross none.

    No border is put where copies on both sides could come to differ: between uses of an input or attribute that is
    written to, and before a write to a value of which two names cross.

    Example::

        split, report = corsac.passes.split_balanced(model, x, parts=4, memory=16 * 10**9)
        print(report)
        split.submod_0(x)

    Args:
        target: a graph module, or a model, which is traced, or captured for ``inputs``. Programs of
            :func:`torch.export.export` and graph modules of torch.fx are converted.
        inputs: its positional inputs: a tensor, or a tuple or list. With ``by="flops"`` and ``"bytes"``, tensors and
            weights may be on the device ``meta``, or fake. In training, those of one microbatch.
        parts: number of parts.
        memory: bytes for each part; unlimited by default.
        bandwidth: bytes per second across a border; by default, traffic takes no time, and decides between cuts of
            which the slowest parts are equally fast.
        by: work of a call: its floating-point operations, the bytes that it reads and writes, or its measured time:
            the least of ``repeats`` runs.
        training: the optimizer, if the parts are to be trained. Then a part needs memory for the gradients of its
            parameters, the state of the optimizer, and all activations for each microbatch in flight: with
            the schedule 1F1B as many as there are parts from this one on.
        microbatches: number of microbatches; at most so many are in flight.
        only_tensors: let only tensors cross, as between processes: no numbers, no tuples.
        kwargs: keyword inputs.
        speed: peaks from which ``bandwidth`` gets the time of operations and bytes; those of this machine by
            default.
        repeats: number of timed runs for ``by="measured"``.

    Returns:
        The split module, as :func:`corsac.fx.passes.split_module.split_module` makes it, whose parts are
        ``submod_0``, ``submod_1``, …, and a report, whose text is a table.

    Raises:
        BalanceError: there are not so many places for a border, or the memory does not suffice; the message names
            the call that does not fit by itself, and the least memory that would do.
        ValueError: sizes of ``inputs`` are symbols, or an argument has none of its values.
        ShapeInferenceError: a call fails for ``inputs``.
    """
    _check(parts, memory, by, training, microbatches, repeats)
    module, args = captured(target, as_tuple(inputs), kwargs)
    graph = module.graph
    with torch.no_grad():
        types = _core.propagate_types(graph, args, MetaRun(module), fill=False, cost=True)
        costs = CostReport(graph, types)
        work, in_seconds = _work(module, args, costs, by, repeats), by == "measured"
        if bandwidth is not None and not in_seconds:
            speed = speed or machine()
            rate = 1e9 * (speed.gflops if by == "flops" else speed.gbytes)
            work, in_seconds = [own / rate for own in work], True
    states = None
    if training is not None:
        states = (STATES[training], parts if microbatches is None else microbatches)
    cut = types.balance(
        work,
        parts,
        memory=memory,
        bandwidth=bandwidth,
        training=states,
        only_tensors=only_tensors,
    )
    calls = [node for node in graph.nodes if node.op.startswith("call_")]
    if costs.unknown and by != "measured":
        first = costs.unknown[0]
        warnings.warn(
            f"{len(costs.unknown)} of {len(calls)} calls have no known cost and count as nothing, so that the parts may "
            f'not be balanced (by="measured" times them): {first.node}: {first.reason}',
            stacklevel=2,
        )
    part_of = dict(zip(calls, cut[0], strict=True))
    split = split_module(module, module, part_of.__getitem__, keep_original_order=True)
    split.train(module.training)
    return split, BalanceReport(split, costs, by, cut, in_seconds)


def _check(
    parts: int,
    memory: int | None,
    by: str,
    training: str | None,
    microbatches: int | None,
    repeats: int,
) -> None:
    numbers = {"parts": parts, "microbatches": microbatches, "repeats": repeats}
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise ValueError(f"{name}: expected at least 1, got {number}")
    if memory is not None and memory < 0:
        raise ValueError(f"memory: expected at least 0 bytes, got {memory}")
    if by not in ("flops", "bytes", "measured"):
        raise ValueError(f"by: expected 'flops', 'bytes' or 'measured', got {by!r}")
    if training is not None and training not in STATES:
        known = ", ".join(map(repr, STATES))
        raise ValueError(f"training: expected one of {known}, got {training!r}")
    if training is None and microbatches is not None:
        raise ValueError("microbatches: expected only together with training")


def _work(
    module: GraphModule, args: tuple[Any, ...], costs: CostReport, by: str, repeats: int
) -> list[float]:
    """Operations, bytes or seconds of each node; those of unknown cost count as nothing."""
    counts = [
        (row, count)
        for row in costs.rows
        for count in (row.flops, row.bytes_read, row.bytes_written, row.output_bytes)
    ]
    symbolic = next(
        (row for row, own in counts if own is not None and not isinstance(own, int)), None
    )
    if symbolic is not None:
        raise ValueError(
            f"expected inputs whose sizes are numbers, got sizes that are symbols: {symbolic.name} is "
            f"{symbolic.output}"
        )
    if by == "measured":
        return _measured(module, args, repeats)
    if by == "bytes":
        return [(row.bytes_read or 0) + (row.bytes_written or 0) for row in costs.rows]
    return [row.flops or 0 for row in costs.rows]


def _measured(module: GraphModule, args: tuple[Any, ...], repeats: int) -> list[float]:
    """The least time of each node. The module's buffers, the inputs and the generator of random numbers stay as they
    are."""
    kept = {name: own.clone() for name, own in module.named_buffers()}
    timer = Timer(module)
    try:
        with torch.random.fork_rng(devices=[]):
            for run in range(repeats + 1):
                if run == 1:
                    # The first run warms up.
                    timer.clear()
                timer.run(*torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, args))
    finally:
        for name, own in module.named_buffers():
            own.copy_(kept[name])
    return [min(own) for own in timer.times.values()]
