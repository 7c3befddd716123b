"""Gradients of a backward graph in buckets, each averaged over the ranks by one collective."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from corsac.distributed._program import Weight
from corsac.fx import Graph, Node
from corsac.fx._own_copy import copied_graph

_aten = torch.ops.aten
_c10d = torch.ops._c10d_functional
#: Sizes in bytes from which a bucket takes no more gradients, of the first bucket and of the others, as in
#: DistributedDataParallel: the first one is smaller, so that communication starts early.
FIRST_BYTES, BYTES = 2**20, 25 * 2**20


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that lie in one piece of memory.

    Attributes:
        names: of their parameters, in the order in which the gradients are ready.
        shapes: their shapes.
        dtype: their element type.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype

    @property
    def lengths(self) -> list[int]:
        """The numbers of elements of the gradients."""
        return [torch.Size(shape).numel() for shape in self.shapes]

    def places(self) -> Iterator[tuple[str, tuple[int, ...], int, int]]:
        """Where each gradient is in the bucket: its name and shape, the first element, and their number."""
        before = 0
        for name, shape, length in zip(self.names, self.shapes, self.lengths, strict=True):
            yield name, shape, before, length
            before += length

    def part_length(self, ranks: int) -> int:
        """The number of elements of a rank's part, of which the last ones may be no gradients."""
        return -(-sum(self.lengths) // ranks)

    def own_pieces(self, rank: int, ranks: int) -> Iterator[tuple[str, int, int, int]]:
        """What a rank's part has of each gradient: its name, the first element, that of the part, and their number."""
        length = self.part_length(ranks)
        first = rank * length
        for name, _, before, own in self.places():
            start, end = max(before, first), min(before + own, first + length)
            if start < end:
                yield name, start - before, start - first, end - start


def in_buckets(
    ready: Sequence[str], weights: Mapping[str, Weight], bucket_bytes: int, first_bytes: int
) -> list[Bucket]:
    """Buckets of one element type each, in the order in which they are full.

    Args:
        ready: names of parameters, in the order in which their gradients are ready.
        weights: the types of the parameters, which are those of the gradients.
        bucket_bytes, first_bytes: size from which a bucket takes no more gradients, and that of the first bucket.
    """
    found: list[list[str]] = []
    is_open: dict[torch.dtype, list[str]] = {}
    for name in ready:
        own = is_open.setdefault(weights[name].dtype, [])
        own.append(name)
        limit = bucket_bytes if found else min(first_bytes, bucket_bytes)
        if sum(weights[one].bytes for one in own) >= limit:
            found.append(is_open.pop(weights[name].dtype))
    place = {name: at for at, name in enumerate(ready)}
    found.extend(sorted(is_open.values(), key=lambda names: place[names[-1]]))
    return [
        Bucket(tuple(names), tuple(weights[name].shape for name in names), weights[names[0]].dtype)
        for names in found
    ]


def plan_buckets(
    graph: Graph,
    gradients: Mapping[str, int],
    weights: Mapping[str, Weight],
    bucket_bytes: int = BYTES,
    first_bytes: int = FIRST_BYTES,
) -> list[Bucket]:
    """The buckets of the gradients that a graph returns, in the order in which its nodes compute them.

    Args:
        graph: a backward graph, or a joint graph of forward and backward.
        gradients: the index of each parameter's gradient in the results. Those that are None are in no bucket.
        weights, bucket_bytes, first_bytes: as for :func:`in_buckets`.
    """
    position = {node: at for at, node in enumerate(graph.nodes)}
    results = _results(graph)
    known = {name: results[at] for name, at in gradients.items() if results[at] is not None}
    return in_buckets(
        sorted(known, key=lambda name: position[known[name]]), weights, bucket_bytes, first_bytes
    )


def average_gradients(
    graph: Graph,
    gradients: Mapping[str, int],
    buckets: Sequence[Bucket],
    group: str,
    ranks: int,
    *,
    accumulated: bool = False,
    scattered: bool = False,
) -> Graph:
    """A copy of a graph that returns gradients which are means over the ranks.

    ::

        mm_2 = mm(…)                                         mm_2 = mm(…)
        sum_1 = sum(…)                                       sum_1 = sum(…)
        mm_3 = mm(…)                                         bucket_0 = mul(cat([mm_2, sum_1]), 1 / ranks)
        return mm_2, sum_1, mm_3             ──▶             averaged_0 = all_reduce(bucket_0)
                                                             mm_3 = mm(…)
                                                             …
                                                             wait_0 = wait_tensor(averaged_0)
                                                             return views of wait_0, …

    The copy of gradients into a bucket, and the ``all_reduce`` that starts there, stand directly behind the last of
    these gradients, or behind the bucket before if it is ready later. All waits stand at the end. So ranks whose
    graphs differ in the order of gradients run the same collectives in the same order.

    Args:
        graph: a backward graph, or a joint graph, which returns a tuple. It is only read.
        gradients: the index of each parameter's gradient in the results.
        buckets: those of :func:`plan_buckets`, of this graph or of that of the same program for other sizes.
        group: the name of the process group.
        ranks: its size.
        accumulated: whether earlier gradients of this rank are further inputs, for all parameters in the order of the
            buckets; the results are means of the sums.
        scattered: whether each rank gets a part of each bucket (a ``reduce_scatter``): these are further results, and
            those of the gradients are None.

    Raises:
        ValueError: a gradient of a bucket is None, or one that is not None is in no bucket.
    """
    made = copied_graph(graph)
    results = _results(made)
    _check(results, gradients, buckets)
    position = {node: at for at, node in enumerate(made.nodes)}
    inputs = made.find_nodes(op="placeholder")
    # The node behind which the last collective stands, and the end of what stands behind it.
    behind, end = inputs[-1], inputs[-1]
    earlier: dict[str, Node] = {}
    if accumulated:
        with made.inserting_before(end.next):
            for name in (name for bucket in buckets for name in bucket.names):
                earlier[name] = end = made.placeholder("accumulated_" + name.replace(".", "_"))
    started: list[Node] = []
    for number, bucket in enumerate(buckets):
        own = [results[gradients[name]] for name in bucket.names]
        last = max(own, key=position.__getitem__)
        if position[last] > position[behind]:
            behind = end = last
        with made.inserting_before(end.next):
            if accumulated:
                own = [
                    made.call_function(_aten.add.Tensor, (earlier[name], one))
                    for name, one in zip(bucket.names, own, strict=True)
                ]
            end = _started(made, number, own, group, ranks, bucket if scattered else None)
        started.append(end)
    output, parts = made.output_node(), list[Node]()
    with made.inserting_before(output):
        for number, (bucket, one) in enumerate(zip(buckets, started, strict=True)):
            whole = _named(made, f"wait_{number}", _c10d.wait_tensor.default, one)
            if scattered:
                parts.append(whole)
            means = [None] * len(bucket.names) if scattered else _views(made, bucket, whole)
            for name, mean in zip(bucket.names, means, strict=True):
                results[gradients[name]] = mean
    output.args = ((*results, *parts),)
    made.lint()
    return made


def _started(
    graph: Graph,
    number: int,
    own: Sequence[Node],
    group: str,
    ranks: int,
    scattered: Bucket | None,
) -> Node:
    """The ``all_reduce`` of a bucket with these gradients, or the ``reduce_scatter`` of ``scattered``."""
    flat = [graph.call_function(_aten.reshape.default, (one, [-1])) for one in own]
    joined = graph.call_function(_aten.cat.default, (flat,))
    if scattered is not None:
        missing = ranks * scattered.part_length(ranks) - sum(scattered.lengths)
        if missing:
            joined = graph.call_function(_aten.constant_pad_nd.default, (joined, [0, missing]))
    # As DistributedDataParallel does it, so that rounding is the same.
    share = _named(graph, f"bucket_{number}", _aten.mul.Tensor, joined, 1 / ranks)
    name = f"averaged_{number}"
    if scattered is None:
        return _named(graph, name, _c10d.all_reduce.default, share, "sum", group)
    return _named(graph, name, _c10d.reduce_scatter_tensor.default, share, "sum", ranks, group)


def _views(graph: Graph, bucket: Bucket, whole: Node) -> Iterator[Node]:
    """The gradients of a bucket."""
    for _, shape, before, length in bucket.places():
        part = graph.call_function(_aten.slice.Tensor, (whole, 0, before, before + length))
        yield graph.call_function(_aten.view.default, (part, list(shape)))


def _named(graph: Graph, name: str, target: Any, *args: Any) -> Node:
    return graph.create_node("call_function", target, args, name=name)


def _results(graph: Graph) -> list[Any]:
    return list(graph.output_node().args[0])


def _check(results: Sequence[Any], gradients: Mapping[str, int], buckets: Sequence[Bucket]) -> None:
    planned = [name for bucket in buckets for name in bucket.names]
    found = [name for name, at in gradients.items() if results[at] is not None]
    if sorted(planned) != sorted(found):
        missing = sorted(set(planned) - set(found))
        other = sorted(set(found) - set(planned))
        raise ValueError(
            f"the buckets have gradients which the graph does not have: {missing}; the graph has others: {other}"
        )


__all__ = ["BYTES", "FIRST_BYTES", "Bucket", "average_gradients", "in_buckets", "plan_buckets"]
