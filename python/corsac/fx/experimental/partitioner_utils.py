"""Partitions of a graph on devices, and their costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from graphlib import TopologicalSorter
from typing import NamedTuple

from ..node import Node, map_arg  # noqa: F401
from ..passes.graph_manipulation import size_bytes

_GIVEN = frozenset({"placeholder", "get_attr"})


class Partition:
    """Nodes that run on one device, with the inputs and attributes that they use.

    Args:
        partition_id: the number of the partition.
    """

    def __init__(self, partition_id: int) -> None:
        self.nodes: set[Node] = set()
        self.partition_id = partition_id
        self.parents: set[Partition] = set()
        """The partitions whose values it uses."""
        self.children: set[Partition] = set()
        """The partitions that use its values."""
        self.bfs_level: int = -1
        """Length of the longest chain of partitions before it; -1 until computed."""
        self.used_mem_bytes: int = 0
        """The memory that it needs."""
        self.logical_device_ids: list[int] = []
        """Its devices."""

    def __str__(self) -> str:
        return str(self.partition_id)

    def recalculate_mem_size(self) -> None:
        """Compute the memory that the partition needs."""
        self.used_mem_bytes = sum(get_extra_size_of(node, self.nodes) for node in self.nodes)

    def add_node(self, node: Node) -> None:
        """Add a node, with the inputs and attributes that it uses."""
        self.nodes.update(n for n in node.all_input_nodes if n.op in _GIVEN)
        self.nodes.add(node)
        self.recalculate_mem_size()

    def remove_node(self, node: Node) -> None:
        """Remove a node, if present, with inputs and attributes that no other node uses."""
        if node not in self.nodes:
            return
        self.nodes.remove(node)
        self.nodes -= {
            n for n in node.all_input_nodes if n.op in _GIVEN and self.nodes.isdisjoint(n.users)
        }
        self.recalculate_mem_size()


class Device(NamedTuple):
    """A device: its name, its memory in bytes, its number."""

    name: str
    available_mem_bytes: int
    logical_id: int


class NodeLatency(NamedTuple):
    """Latency of a node, in seconds: for moving data, and for computing."""

    mem_latency_sec: float
    computer_latency_sec: float


class PartitionLatency(NamedTuple):
    """Latency of the longest path through a partition, in seconds: for moving data, for computing, and
    overall, counting for each node the longer of the two.
    """

    mem_latency_sec: float
    computer_latency_sec: float
    overall_latency_sec: float


class PartitionMode(Enum):
    """Ways to put nodes into partitions."""

    size_based = 0
    sparse_nn = 1
    cost_aware = 2
    kl_based = 3
    aot_based = 4


class PartitionerConfig(NamedTuple):
    """Configuration of a partitioner.

    Attributes:
        devices: the available devices.
        mode: the way to put nodes into partitions.
        transfer_rate_bytes_per_sec: transfer rate between devices.
        node_to_latency_mapping: latency of each node.
        node_to_partition_mapping: the partition of each node, for ``aot_based``.
        partition_to_logical_device_mapping: the devices of each partition, for ``aot_based``.
        saturate_host: put copies of the partitions on unused devices.
    """

    devices: list[Device]
    mode: PartitionMode = PartitionMode.size_based
    transfer_rate_bytes_per_sec: float = 0.0
    node_to_latency_mapping: dict[Node, NodeLatency] = {}  # noqa: RUF012
    node_to_partition_mapping: dict[Node, int] = {}  # noqa: RUF012
    partition_to_logical_device_mapping: dict[int, list[int]] = {}  # noqa: RUF012
    saturate_host: bool = False


def get_extra_size_of(node: Node, nodes: set[Node]) -> int:
    """Number of additional bytes that a set of nodes needs for ``node``.

    They are those of the node itself, and of values that it uses and that are not in the set.

    Raises:
        RuntimeError: a size is unknown: ``get_size_of_all_nodes`` has not been run.
    """
    outside = [n for n in node.all_input_nodes if n not in nodes]
    return sum(size_of(n).output_size for n in outside) + size_of(node).total_size


def size_of(node: Node) -> size_bytes:
    """The size of a node, in bytes.

    Raises:
        RuntimeError: it is unknown: ``get_size_of_all_nodes`` has not been run.
    """
    size = getattr(node, "size_bytes", None)
    if not size:
        raise RuntimeError("node has no size_bytes attr")
    return size


_NONE = PartitionLatency(0.0, 0.0, 0.0)


def get_latency_of_one_partition(
    partition: Partition, node_to_latency_mapping: dict[Node, NodeLatency]
) -> PartitionLatency:
    """Latency of the longest path through a partition."""
    calls = sorted(node for node in partition.nodes if node.op not in _GIVEN)
    # The longest path up to and including each node, in graph order.
    up_to: dict[Node, PartitionLatency] = {}
    for node in calls:
        own = node_to_latency_mapping[node]
        before = _longest(up_to[n] for n in node.all_input_nodes if n in up_to)
        up_to[node] = PartitionLatency(
            before.mem_latency_sec + own.mem_latency_sec,
            before.computer_latency_sec + own.computer_latency_sec,
            before.overall_latency_sec + max(own),
        )
    return _longest(up_to[node] for node in calls if up_to.keys().isdisjoint(node.users))


def _longest(ways: Iterable[PartitionLatency]) -> PartitionLatency:
    return max(ways, key=lambda way: way.overall_latency_sec, default=_NONE)


def get_partition_to_latency_mapping(
    partitions: list[Partition], node_to_latency_mapping: dict[Node, NodeLatency]
) -> dict[Partition, PartitionLatency]:
    """:func:`get_latency_of_one_partition` of each partition."""
    return {p: get_latency_of_one_partition(p, node_to_latency_mapping) for p in partitions}


def get_comm_latency_between(
    parent_partition: Partition,
    child_partition: Partition,
    transfer_rate_bytes_per_sec: float,
) -> float:
    """Seconds needed to move to a partition the values of another one that it uses.

    Zero if both are on the same devices.
    """
    devices = parent_partition.logical_device_ids
    if devices and devices == child_partition.logical_device_ids:
        return 0.0
    moved = {n for node in child_partition.nodes for n in node.all_input_nodes}
    moved &= parent_partition.nodes
    sizes = [size.output_size for n in moved if (size := getattr(n, "size_bytes", None))]
    return sum(sizes) / transfer_rate_bytes_per_sec


def get_latency_of_partitioned_graph(
    partitions: list[Partition],
    partition_to_latency_mapping: dict[Partition, PartitionLatency],
    transfer_rate_bytes_per_sec: float,
) -> float:
    """Latency of the longest path through all partitions, in seconds, with moving values."""
    up_to: dict[Partition, float] = {}
    for part in in_order(partitions):
        before = (
            up_to[parent] + get_comm_latency_between(parent, part, transfer_rate_bytes_per_sec)
            for parent in part.parents
        )
        own = partition_to_latency_mapping[part].overall_latency_sec
        up_to[part] = max(before, default=0.0) + own
    return max(up_to.values(), default=0.0)


def in_order(partitions: Iterable[Partition]) -> Iterator[Partition]:
    """The partitions, each after those whose values it uses.

    Raises:
        graphlib.CycleError: (a ``ValueError``) there is no such order.
    """
    return TopologicalSorter({part: part.parents for part in partitions}).static_order()
