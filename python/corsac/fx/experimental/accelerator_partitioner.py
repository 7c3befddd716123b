"""Places partitions of a module on devices, by memory and by cost."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import torch

from corsac import _core

from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node, map_arg  # noqa: F401
from ..passes.graph_manipulation import get_size_of_all_nodes
from ..passes.split_module import split_module
from .partitioner_utils import (
    Device,
    NodeLatency,
    Partition,
    PartitionerConfig,
    PartitionMode,
    get_extra_size_of,
    in_order,
    size_of,
)

_CALLS = frozenset({"call_module", "call_method", "call_function"})


class DAGNode:
    """A partition, as a node of the module that calls the partitions.

    Args:
        submodule_node: the node that calls it.
        input_nodes: the nodes whose values are its arguments.
        output_nodes: the nodes for its results.
        logical_device_ids: its devices.
        size_bytes: the memory that it needs.
    """

    def __init__(
        self,
        submodule_node: Node,
        input_nodes: list[Node],
        output_nodes: list[Node],
        logical_device_ids: list[int],
        size_bytes: int,
    ) -> None:
        self.submodule_node = submodule_node
        self.input_nodes = input_nodes
        self.output_nodes = output_nodes
        self.logical_device_ids = logical_device_ids
        self.size_bytes = size_bytes

    def __str__(self) -> str:
        return str(self.submodule_node)


class DAG:
    """The partitions, in the order of their calls."""

    def __init__(self) -> None:
        self.nodes: list[DAGNode] = []

    def create_node(
        self,
        submodule_node: Node,
        input_nodes: list[Node],
        output_nodes: list[Node],
        logical_devices: list[int],
        size_bytes: int,
    ) -> None:
        """Append a partition; see :class:`DAGNode`."""
        self.nodes.append(
            DAGNode(submodule_node, input_nodes, output_nodes, logical_devices, size_bytes)
        )


class PartitionResult(NamedTuple):
    """The partitions with their devices, and the module that calls them."""

    dag: DAG
    module_with_submodules: GraphModule


def reset_partition_device(partitions: list[Partition]) -> None:
    """Remove the partitions from their devices."""
    for partition in partitions:
        partition.logical_device_ids = []


def combine_two_partitions(
    partition_0: Partition, partition_1: Partition, partitions: list[Partition]
) -> None:
    """Merge two of ``partitions`` into one, which comes last, and renumber all."""
    combined = Partition(len(partitions))
    combined.nodes = partition_0.nodes | partition_1.nodes
    combined.recalculate_mem_size()
    partitions.remove(partition_0)
    partitions.remove(partition_1)
    partitions.append(combined)
    reorganize_partitions(partitions)


def set_parents_and_children(partitions: list[Partition]) -> None:
    """Find the partitions that use values of each other."""
    places: dict[Node, list[Partition]] = defaultdict(list)
    for partition in partitions:
        partition.children, partition.parents = set(), set()
        for node in partition.nodes:
            places[node].append(partition)
    for partition in partitions:
        for node in partition.nodes:
            for user in node.users:
                for other in places.get(user, ()):
                    if other is not partition and node not in other.nodes:
                        partition.children.add(other)
                        other.parents.add(partition)


def reorganize_partitions(partitions: list[Partition]) -> None:
    """Number the partitions by position, and find those that use values of each other."""
    for number, partition in enumerate(partitions):
        partition.partition_id = number
    set_parents_and_children(partitions)


def get_bfs_level_partition(partitions: list[Partition]) -> None:
    """Set the level of each partition: the longest chain of partitions before it."""
    for partition in in_order(partitions):
        partition.bfs_level = max((p.bfs_level + 1 for p in partition.parents), default=0)


def get_node_to_partition_mapping(partitions: list[Partition]) -> dict[Node, int]:
    """The partition number of each node; the last one for nodes in several."""
    return {node: partition.partition_id for partition in partitions for node in partition.nodes}


def get_logical_id_to_device(devices: list[Device]) -> dict[int, Device]:
    """Devices by number."""
    return {device.logical_id: device for device in devices}


def get_device_partition_stats(
    partitions: list[Partition], devices: list[Device]
) -> tuple[dict[Device, list[Partition]], dict[Device, int], list[Partition]]:
    """The partitions on each device, the bytes left on it, and the partitions without a device."""
    by_id = get_logical_id_to_device(devices)
    on_device: dict[Device, list[Partition]] = {device: [] for device in devices}
    left = {device: device.available_mem_bytes for device in devices}
    for partition in partitions:
        for device in (by_id[number] for number in partition.logical_device_ids):
            on_device[device].append(partition)
            left[device] -= partition.used_mem_bytes
    return on_device, left, [p for p in partitions if not p.logical_device_ids]


def get_device_to_partitions_mapping(partitions: list[Partition], devices: list[Device]) -> bool:
    """Put each partition without a device on the fullest one that still has room for it.

    Returns:
        Whether all partitions have devices now. If not, some may have been placed.
    """
    on_device, left, waiting = get_device_partition_stats(partitions, devices)
    for partition in waiting:
        for device in sorted(left, key=left.__getitem__):
            needed = _extra_size(partition, on_device[device])
            if needed < left[device]:
                on_device[device].append(partition)
                partition.logical_device_ids.append(device.logical_id)
                left[device] -= needed
                break
        else:
            return False
    return True


def _extra_size(partition: Partition, others: list[Partition]) -> int:
    """Number of additional bytes that a device needs for ``partition`` besides ``others``."""
    nodes = set().union(*(other.nodes for other in others))
    if not nodes:
        return partition.used_mem_bytes
    nodes |= partition.nodes
    return sum(get_extra_size_of(node, nodes) for node in partition.nodes)


def check_dependency(partition: Partition) -> bool:
    """Whether a partition depends on its own values, by way of other partitions."""
    seen: set[Partition] = set()
    waiting = list(partition.children)
    while waiting:
        part = waiting.pop()
        if part is partition:
            return True
        if part not in seen:
            seen.add(part)
            waiting.extend(part.children)
    return False


class Partitioner:
    """Splits a module that does not fit on one device into partitions on several."""

    def __init__(self) -> None:
        self.partitions: list[Partition] = []
        self.node_to_partition: dict[Node, int] = {}
        self.devices: list[Device] = []

    def partition_graph(
        self,
        fx_module: GraphModule,
        torch_module: torch.nn.Module,
        partitioner_config: PartitionerConfig,
    ) -> PartitionResult:
        """Put nodes into partitions and partitions on devices.

        If the module fits on one device, it becomes one partition on the largest, unless the configuration
        places nodes explicitly.

        Args:
            fx_module: the module, on which :class:`corsac.fx.passes.shape_prop.ShapeProp` must have been run.
            torch_module: unused, as in torch.fx.
            partitioner_config: the configuration.

        Raises:
            RuntimeError: there are no devices or no calls, or the devices have too little memory.
        """
        config = partitioner_config
        self.graph_module, self.torch_module = fx_module, torch_module
        self.devices = config.devices
        if not self.devices:
            raise RuntimeError("No devices")
        get_size_of_all_nodes(fx_module)
        if not self._calls():
            raise RuntimeError("No Partition since no operations in the module")
        total = sum(n.size_bytes.total_size for n in fx_module.graph.nodes if n.op != "output")
        largest = max(self.devices, key=lambda device: device.available_mem_bytes)
        if config.mode == PartitionMode.aot_based:
            self.aot_based_partition(
                config.node_to_partition_mapping, config.partition_to_logical_device_mapping
            )
        elif total <= largest.available_mem_bytes:
            self.find_single_partition(total, logical_device_id=largest.logical_id)
        elif total > sum(device.available_mem_bytes for device in self.devices):
            raise RuntimeError("Devices do not have enough memory for the module")
        elif config.mode == PartitionMode.sparse_nn:
            sizes = {device.available_mem_bytes for device in self.devices}
            if len(sizes) > 1:
                raise RuntimeError("All devices must have same memory size!")
            self.sparse_nn_partition(sizes.pop())
        elif config.mode == PartitionMode.cost_aware:
            self.cost_aware_partition(
                config.transfer_rate_bytes_per_sec, config.node_to_latency_mapping
            )
        elif config.mode == PartitionMode.kl_based:
            self.kl_based_partition(
                config.transfer_rate_bytes_per_sec, config.node_to_latency_mapping
            )
        else:
            self.size_based_partition()
        if config.saturate_host:
            self.saturate_host()
        module_with_submodules = self.do_partition()
        return PartitionResult(self.dump_dag(module_with_submodules), module_with_submodules)

    @property
    def _graph(self) -> Graph:
        return self.graph_module.graph

    def _calls(self) -> list[Node]:
        return [node for node in self._graph.nodes if node.op in _CALLS]

    def _sizes(self) -> list[tuple[int, int]]:
        """Bytes of the value of each node, without and with its parameters."""
        return [(0, 0) if n.op == "output" else tuple(size_of(n)) for n in self._graph.nodes]

    def _devices(self) -> list[tuple[int, int]]:
        return [(device.available_mem_bytes, device.logical_id) for device in self.devices]

    def _seconds(self, latencies: dict[Node, NodeLatency], rate: float) -> list[float]:
        """Seconds for each call: for moving data or computing, whichever is longer."""
        if not rate and len(self._calls()) > 1:
            raise ZeroDivisionError("transfer_rate_bytes_per_sec is 0: nothing would ever be moved")
        return [
            float(max(latencies[node])) if node.op in _CALLS else 0.0 for node in self._graph.nodes
        ]

    def _take(self, parts: list[tuple[list[Node], list[int]]]) -> None:
        """Set the partitions to these."""
        self.partitions = []
        for nodes, devices in parts:
            partition = self.create_partition()
            partition.nodes = set(nodes)
            partition.recalculate_mem_size()
            partition.logical_device_ids = devices
        set_parents_and_children(self.partitions)
        get_bfs_level_partition(self.partitions)
        self.node_to_partition = get_node_to_partition_mapping(self.partitions)

    def find_single_partition(self, total_size_of_graph: int, logical_device_id: int = 0) -> None:
        """Put all nodes into one partition on one device."""
        partition = self.create_partition()
        partition.nodes.update(n for n in self.graph_module.graph.nodes if n.op != "output")
        partition.used_mem_bytes = total_size_of_graph
        partition.logical_device_ids = [logical_device_id]
        self.node_to_partition = get_node_to_partition_mapping(self.partitions)

    def size_based_partition(self) -> None:
        """Fill one device after the other with nodes in graph order; remaining nodes become partitions of
        their own, placed wherever there is room.

        Raises:
            RuntimeError: a node or a partition does not fit on any device.
        """
        self._take(_core.place_by_size(self._graph, self._sizes(), self._devices()))

    def saturate_host(self) -> None:
        """Put copies of all partitions on unused devices, as long as there are enough of these.

        A copy of a device's partitions goes to the smallest device that has room for them.
        """
        on_device, left, waiting = get_device_partition_stats(self.partitions, self.devices)
        if waiting:
            raise AssertionError(f"{len(waiting)} partitions are on no device")
        used = [device for device in self.devices if on_device[device]]
        copies: dict[Device, Device] = {}
        while len(used) * 2 + len(copies) <= len(self.devices):
            idle = [d for d in self.devices if d not in used and d not in copies]
            more: dict[Device, Device] = {}
            for device in used:
                needed = device.available_mem_bytes - left[device]
                fitting = [d for d in idle if d.available_mem_bytes >= needed]
                if not fitting:
                    break
                new = min(fitting, key=lambda d: d.available_mem_bytes)
                idle.remove(new)
                more[new] = device
            if len(more) < len(used):
                break
            copies.update(more)
        for new, device in copies.items():
            for partition in on_device[device]:
                partition.logical_device_ids.append(new.logical_id)

    def do_partition(self) -> GraphModule:
        """The module with a submodule for each partition."""
        return split_module(
            self.graph_module, self.torch_module, self.node_to_partition.__getitem__
        )

    def dump_dag(self, module_with_submodules: GraphModule) -> DAG:
        """The partitions as they are called in a module from :meth:`do_partition`."""
        dag = DAG()
        for node in module_with_submodules.graph.find_nodes(op="call_module"):
            number = int(node.name.rsplit("_", 1)[-1])
            partition = self.partitions[number]
            outputs = list(node.users) if len(node.users) > 1 else [node]
            dag.create_node(
                node,
                node.all_input_nodes,
                outputs,
                partition.logical_device_ids,
                partition.used_mem_bytes,
            )
        return dag

    def create_partition(self) -> Partition:
        """Append an empty partition."""
        partition = Partition(len(self.partitions))
        self.partitions.append(partition)
        return partition

    def create_single_node_partition(self, node: Node) -> None:
        """Append a partition with one node."""
        self.create_partition().add_node(node)

    def sparse_nn_partition(self, available_mem_bytes: int) -> None:
        """Put embeddings on devices, one partition each, and copies of everything else on all of these.

        Nodes are assigned to partitions in graph order; partitions of one kind are then combined, smallest
        first, as long as they fit on a device and are close to each other.

        Args:
            available_mem_bytes: the memory of each device.

        Raises:
            RuntimeError: it does not fit.
        """
        embeddings = [self._is_embedding(node) for node in self._graph.nodes]
        sizes, devices = self._sizes(), self._devices()
        self._take(
            _core.place_with_embeddings(
                self._graph, sizes, devices, available_mem_bytes, embeddings
            )
        )

    def _is_embedding(self, node: Node) -> bool:
        """Whether a node calls an embedding, or a module that contains one."""
        if node.op != "call_module":
            return False
        module: object = self.graph_module
        for part in str(node.target).split("."):
            if not hasattr(module, part):
                raise RuntimeError(f"Module {module} has no attribute {part}")
            module = getattr(module, part)
            if "Embedding" in str(module):
                return True
        return False

    def cost_aware_partition(
        self,
        transfer_rate_bytes_per_sec: float,
        node_to_latency_mapping: dict[Node, NodeLatency],
    ) -> None:
        """Start with one partition per node, and combine the two for which the module then takes the least
        time, as long as the time does not increase.

        Args:
            transfer_rate_bytes_per_sec: transfer rate between devices.
            node_to_latency_mapping: latency of each node.
        """
        seconds = self._seconds(node_to_latency_mapping, transfer_rate_bytes_per_sec)
        self._take(
            _core.place_by_cost(
                self._graph,
                self._sizes(),
                self._devices(),
                seconds,
                transfer_rate_bytes_per_sec,
            )
        )

    def kl_based_partition(
        self,
        transfer_rate_bytes_per_sec: float,
        node_to_latency_mapping: dict[Node, NodeLatency],
    ) -> None:
        """Start with :meth:`size_based_partition`; then, node by node, swap it with a node of another
        partition, or move it there, if that reduces the module's time.

        Source: Kernighan and Lin, "An efficient heuristic procedure for partitioning graphs" (1970).

        Args:
            transfer_rate_bytes_per_sec: transfer rate between devices.
            node_to_latency_mapping: latency of each node.
        """
        seconds = self._seconds(node_to_latency_mapping, transfer_rate_bytes_per_sec)
        self._take(
            _core.place_by_exchange(
                self._graph,
                self._sizes(),
                self._devices(),
                seconds,
                transfer_rate_bytes_per_sec,
            )
        )

    def aot_based_partition(
        self,
        node_to_partition_mapping: dict[Node, int],
        partition_to_logical_device_mapping: dict[int, list[int]],
    ) -> None:
        """Put nodes into the given partitions, and these on the given devices.

        Args:
            node_to_partition_mapping: the partition number of each call.
            partition_to_logical_device_mapping: the devices of each partition.
        """
        self.node_to_partition = node_to_partition_mapping
        by_id: dict[int, Partition] = {}
        for node, number in node_to_partition_mapping.items():
            partition = by_id.get(number)
            if partition is None:
                partition = by_id[number] = Partition(number)
                partition.logical_device_ids = partition_to_logical_device_mapping[number]
                self.partitions.append(partition)
            partition.add_node(node)
