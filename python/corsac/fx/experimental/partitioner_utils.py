"""Parts of a graph on devices, and what running them costs."""

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
        partition_id: a number that tells parts from each other.
    """

    def __init__(self, partition_id: int) -> None:
        self.nodes: set[Node] = set()
        self.partition_id = partition_id
        self.parents: set[Partition] = set()
        """The parts whose values it uses."""
        self.children: set[Partition] = set()
        """The parts that use its values."""
        self.bfs_level: int = -1
        """How many parts come before it at most, once that has been found."""
        self.used_mem_bytes: int = 0
        """The memory it takes."""
        self.logical_device_ids: list[int] = []
        """The devices it is on."""

    def __str__(self) -> str:
        return str(self.partition_id)

    def recalculate_mem_size(self) -> None:
        """Find out how much memory it takes."""
        self.used_mem_bytes = sum(get_extra_size_of(node, self.nodes) for node in self.nodes)

    def add_node(self, node: Node) -> None:
        """Add a node, and the inputs and attributes it uses."""
        self.nodes.update(n for n in node.all_input_nodes if n.op in _GIVEN)
        self.nodes.add(node)
        self.recalculate_mem_size()

    def remove_node(self, node: Node) -> None:
        """Remove a node, if it is there, and inputs and attributes that no other node uses."""
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
    """How long a node takes, in seconds: moving data, and computing."""

    mem_latency_sec: float
    computer_latency_sec: float


class PartitionLatency(NamedTuple):
    """How long the longest way through a part takes, in seconds: moving data, computing, and both,
    of each node what takes longer.
    """

    mem_latency_sec: float
    computer_latency_sec: float
    overall_latency_sec: float


class PartitionMode(Enum):
    """How nodes are put into parts."""

    size_based = 0
    sparse_nn = 1
    cost_aware = 2
    kl_based = 3
    aot_based = 4


class PartitionerConfig(NamedTuple):
    """What a partitioner is to do.

    Attributes:
        devices: the devices there are.
        mode: how to put nodes into parts.
        transfer_rate_bytes_per_sec: how fast values move between devices.
        node_to_latency_mapping: how long each node takes.
        node_to_partition_mapping: the part of each node, for ``aot_based``.
        partition_to_logical_device_mapping: the devices of each part, for ``aot_based``.
        saturate_host: put copies of the parts on devices that are left.
    """

    devices: list[Device]
    mode: PartitionMode = PartitionMode.size_based
    transfer_rate_bytes_per_sec: float = 0.0
    node_to_latency_mapping: dict[Node, NodeLatency] = {}  # noqa: RUF012
    node_to_partition_mapping: dict[Node, int] = {}  # noqa: RUF012
    partition_to_logical_device_mapping: dict[int, list[int]] = {}  # noqa: RUF012
    saturate_host: bool = False


def get_extra_size_of(node: Node, nodes: set[Node]) -> int:
    """How many bytes a set of nodes needs more if it is to have ``node``.

    Those of the node itself, and those of values that it uses and that are not in the set.

    Raises:
        RuntimeError: a size is not known: ``get_size_of_all_nodes`` has not been run.
    """
    outside = [n for n in node.all_input_nodes if n not in nodes]
    return sum(size_of(n).output_size for n in outside) + size_of(node).total_size


def size_of(node: Node) -> size_bytes:
    """The bytes of a node.

    Raises:
        RuntimeError: they are not known: ``get_size_of_all_nodes`` has not been run.
    """
    size = getattr(node, "size_bytes", None)
    if not size:
        raise RuntimeError("node has no size_bytes attr")
    return size


_NONE = PartitionLatency(0.0, 0.0, 0.0)


def get_latency_of_one_partition(
    partition: Partition, node_to_latency_mapping: dict[Node, NodeLatency]
) -> PartitionLatency:
    """How long the longest way through a part takes."""
    calls = sorted(node for node in partition.nodes if node.op not in _GIVEN)
    # The longest way to each node and through it, in graph order.
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
    """:func:`get_latency_of_one_partition` of each part."""
    return {p: get_latency_of_one_partition(p, node_to_latency_mapping) for p in partitions}


def get_comm_latency_between(
    parent_partition: Partition,
    child_partition: Partition,
    transfer_rate_bytes_per_sec: float,
) -> float:
    """How long it takes, in seconds, to move to a part what it uses of another one.

    Nothing, if both are on the same devices.
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
    """How long the longest way through all parts takes, in seconds, moving values included."""
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
    """The parts, each after those whose values it uses.

    Raises:
        graphlib.CycleError: (a ``ValueError``) if there is no such order.
    """
    return TopologicalSorter({part: part.parents for part in partitions}).static_order()
