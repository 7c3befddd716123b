"""Placing the parts of a module on devices, by memory and by cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import torch

from ..graph_module import GraphModule
from ..node import Node
from ..passes.graph_manipulation import get_size_of_all_nodes
from ..passes.split_module import split_module
from .partitioner_utils import (
    Device,
    NodeLatency,
    Partition,
    PartitionerConfig,
    PartitionMode,
    get_extra_size_of,
    get_latency_of_partitioned_graph,
    get_partition_to_latency_mapping,
    in_order,
)

_CALLS = frozenset({"call_module", "call_method", "call_function"})
_NEVER = float("inf")


class DAGNode:
    """A part in the module that calls the parts.

    Args:
        submodule_node: the node that calls it.
        input_nodes: the nodes whose values it is given.
        output_nodes: the nodes that stand for its values.
        logical_device_ids: the devices it is on.
        size_bytes: the memory it takes.
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
    """The parts, in the order in which they are called."""

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
        """Append a part; see :class:`DAGNode`."""
        self.nodes.append(
            DAGNode(submodule_node, input_nodes, output_nodes, logical_devices, size_bytes)
        )


class PartitionResult(NamedTuple):
    """The parts with their devices, and the module that calls them."""

    dag: DAG
    module_with_submodules: GraphModule


def reset_partition_device(partitions: list[Partition]) -> None:
    """Take the parts off their devices."""
    for partition in partitions:
        partition.logical_device_ids = []


def combine_two_partitions(
    partition_0: Partition, partition_1: Partition, partitions: list[Partition]
) -> None:
    """Make two of ``partitions`` one, which comes last, and number all anew."""
    combined = Partition(len(partitions))
    combined.nodes = partition_0.nodes | partition_1.nodes
    combined.recalculate_mem_size()
    partitions.remove(partition_0)
    partitions.remove(partition_1)
    partitions.append(combined)
    reorganize_partitions(partitions)


def set_parents_and_children(partitions: list[Partition]) -> None:
    """Find out which parts use values of which."""
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
    """Number the parts by their places, and find out which use values of which."""
    for number, partition in enumerate(partitions):
        partition.partition_id = number
    set_parents_and_children(partitions)


def get_bfs_level_partition(partitions: list[Partition]) -> None:
    """Find out for each part how many come before it at most."""
    for partition in in_order(partitions):
        partition.bfs_level = max((p.bfs_level + 1 for p in partition.parents), default=0)


def get_node_to_partition_mapping(partitions: list[Partition]) -> dict[Node, int]:
    """The number of the part of each node; the last one of nodes that are in several."""
    return {node: partition.partition_id for partition in partitions for node in partition.nodes}


def get_logical_id_to_device(devices: list[Device]) -> dict[int, Device]:
    """The devices by their numbers."""
    return {device.logical_id: device for device in devices}


def get_device_partition_stats(
    partitions: list[Partition], devices: list[Device]
) -> tuple[dict[Device, list[Partition]], dict[Device, int], list[Partition]]:
    """The parts on each device, the bytes left on it, and the parts on none."""
    by_id = get_logical_id_to_device(devices)
    on_device: dict[Device, list[Partition]] = {device: [] for device in devices}
    left = {device: device.available_mem_bytes for device in devices}
    for partition in partitions:
        for device in (by_id[number] for number in partition.logical_device_ids):
            on_device[device].append(partition)
            left[device] -= partition.used_mem_bytes
    return on_device, left, [p for p in partitions if not p.logical_device_ids]


def get_device_to_partitions_mapping(partitions: list[Partition], devices: list[Device]) -> bool:
    """Put each part that is on no device on the fullest one that still has room for it.

    Returns:
        Whether all parts are on devices now. If not, some may have been put on one.
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
    """How many bytes a device needs more if it is to have ``partition`` besides ``others``."""
    nodes = set().union(*(other.nodes for other in others))
    if not nodes:
        return partition.used_mem_bytes
    nodes |= partition.nodes
    return sum(get_extra_size_of(node, nodes) for node in partition.nodes)


def check_dependency(partition: Partition) -> bool:
    """Whether a part needs its own values, by way of other parts."""
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
    """Splits a module that does not fit on one device into parts that fit on several."""

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
        """Put nodes into parts and parts on devices.

        If the module fits on one device, it is one part on the largest, unless the configuration
        says where nodes go.

        Args:
            fx_module: the module; :class:`corsac.fx.passes.shape_prop.ShapeProp` has to have been
                through its nodes.
            torch_module: not used; torch.fx asks for it.
            partitioner_config: what to do.

        Raises:
            RuntimeError: there are no devices or no calls, or the devices do not have the memory.
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

    def _calls(self) -> list[Node]:
        return [node for node in self.graph_module.graph.nodes if node.op in _CALLS]

    def find_single_partition(self, total_size_of_graph: int, logical_device_id: int = 0) -> None:
        """Put all nodes into one part on one device."""
        partition = self.create_partition()
        partition.nodes.update(n for n in self.graph_module.graph.nodes if n.op != "output")
        partition.used_mem_bytes = total_size_of_graph
        partition.logical_device_ids = [logical_device_id]
        self.node_to_partition = get_node_to_partition_mapping(self.partitions)

    def size_based_partition(self) -> None:
        """Fill one device after the other with nodes in graph order; nodes that are left become
        parts of their own, which go where there is room.

        Raises:
            RuntimeError: a node or a part fits nowhere.
        """
        free = list(self.devices)

        def device_for(node: Node) -> Device:
            needed = get_extra_size_of(node, set())
            for device in free:
                if device.available_mem_bytes >= needed:
                    free.remove(device)
                    return device
            raise RuntimeError(f"{node} is too large to fit any device")

        partition = self.create_partition()
        left = 0
        for node in self._calls():
            if len(self.partitions) > len(self.devices):
                self.create_single_node_partition(node)
                continue
            needed = get_extra_size_of(node, partition.nodes)
            if partition.used_mem_bytes == 0 or left < needed:
                if partition.used_mem_bytes:
                    if len(self.partitions) == len(self.devices):
                        self.create_single_node_partition(node)
                        continue
                    partition = self.create_partition()
                    needed = get_extra_size_of(node, partition.nodes)
                device = device_for(node)
                left = device.available_mem_bytes
                partition.logical_device_ids.append(device.logical_id)
            partition.add_node(node)
            left -= needed
        reorganize_partitions(self.partitions)
        self.node_to_partition = get_node_to_partition_mapping(self.partitions)
        if not get_device_to_partitions_mapping(self.partitions, self.devices):
            raise RuntimeError("Cannot Get a Valid Partition to Logical Device Mapping")

    def saturate_host(self) -> None:
        """Put copies of all parts on devices that have none, as often as these last.

        A copy of a device's parts goes to the smallest device that has room for them.
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
        """The module with a submodule for each part."""
        return split_module(
            self.graph_module, self.torch_module, self.node_to_partition.__getitem__
        )

    def dump_dag(self, module_with_submodules: GraphModule) -> DAG:
        """The parts as they are called in a module that :meth:`do_partition` has made."""
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
        """Append a part without nodes."""
        partition = Partition(len(self.partitions))
        self.partitions.append(partition)
        return partition

    def create_single_node_partition(self, node: Node) -> None:
        """Append a part with one node."""
        self.create_partition().add_node(node)

    def sparse_nn_partition(self, available_mem_bytes: int) -> None:
        """Put embeddings on devices, one part each, and copies of everything else on all of these.

        Nodes are put into parts in graph order; parts of one sort are then combined, smallest
        first, as long as they fit on a device and are near each other.

        Args:
            available_mem_bytes: the memory of each device.

        Raises:
            RuntimeError: it does not fit.
        """
        parts: dict[bool, list[Partition]] = {True: [], False: []}
        in_embedding = False
        partition = self.create_partition()
        for node in self._calls():
            if self._is_embedding(node) != in_embedding:
                if partition.used_mem_bytes:
                    parts[in_embedding].append(partition)
                    partition = self.create_partition()
                in_embedding = not in_embedding
            needed = get_extra_size_of(node, partition.nodes)
            if needed + partition.used_mem_bytes > available_mem_bytes:
                parts[in_embedding].append(partition)
                partition = self.create_partition()
                if get_extra_size_of(node, partition.nodes) > available_mem_bytes:
                    raise RuntimeError(f"{node.target} is too large to fit into a device")
            partition.add_node(node)
        parts[in_embedding].append(partition)
        set_parents_and_children(self.partitions)
        for sort in (False, True):
            self._combine_by_size(parts[sort], available_mem_bytes)
        others = sum(part.used_mem_bytes for part in parts[False])
        if len(parts[True]) > len(self.devices):
            raise RuntimeError(
                f"Need {len(parts[True])} devices, but only {len(self.devices)} provided"
            )
        occupied: list[int] = []
        for part, device in zip(parts[True], self.devices, strict=False):
            if others + part.used_mem_bytes > available_mem_bytes:
                raise RuntimeError(
                    f"partition_{part.partition_id}(embedding partition) and non embedding "
                    "partitions can not fit into one device"
                )
            part.logical_device_ids = [device.logical_id]
            occupied.append(device.logical_id)
        for part in parts[False]:
            part.logical_device_ids = list(occupied)
        if not get_device_to_partitions_mapping(self.partitions, self.devices):
            raise RuntimeError("Cannot Get a Valid Partition to Logical Device Mapping")
        self.node_to_partition = get_node_to_partition_mapping(self.partitions)

    def _is_embedding(self, node: Node) -> bool:
        """Whether a node calls an embedding, or a module with one in it."""
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

    def _combine_by_size(self, parts: list[Partition], available_mem_bytes: int) -> None:
        """Combine the smallest part with the largest one that it fits on a device with and whose
        level is at most one away, again and again. What would make a cycle is not combined.
        """
        while len(parts) > 1:
            get_bfs_level_partition(self.partitions)
            smallest, *others = sorted(parts, key=lambda part: part.used_mem_bytes)
            for part in reversed(others):
                nodes = part.nodes | smallest.nodes
                if (
                    abs(smallest.bfs_level - part.bfs_level) > 1
                    or sum(get_extra_size_of(n, nodes) for n in nodes) > available_mem_bytes
                    or _would_cycle(part, smallest)
                ):
                    continue
                combine_two_partitions(part, smallest, self.partitions)
                parts.remove(smallest)
                parts.remove(part)
                parts.append(self.partitions[-1])
                break
            else:
                return

    def cost_aware_partition(
        self,
        transfer_rate_bytes_per_sec: float,
        node_to_latency_mapping: dict[Node, NodeLatency],
    ) -> None:
        """Begin with a part for each node, and combine the two for which the module then takes the
        least time, as long as it does not take more than before.

        Args:
            transfer_rate_bytes_per_sec: how fast values move between devices.
            node_to_latency_mapping: how long each node takes.
        """
        for node in self._calls():
            self.create_single_node_partition(node)
        set_parents_and_children(self.partitions)
        get_bfs_level_partition(self.partitions)
        costs = _Costs(transfer_rate_bytes_per_sec, node_to_latency_mapping, self.devices)
        while len(self.partitions) > 1:
            best, pair = costs.of(self.partitions), None
            for i, j in _pairs(len(self.partitions)):
                cost = costs.of_combined(self.partitions, i, j)
                if cost <= best:
                    best, pair = cost, (i, j)
                reorganize_partitions(self.partitions)
            if pair is not None:
                combine_two_partitions(*(self.partitions[i] for i in pair), self.partitions)
            get_bfs_level_partition(self.partitions)
            reset_partition_device(self.partitions)
            get_device_to_partitions_mapping(self.partitions, self.devices)
            if pair is None:
                break
        reorganize_partitions(self.partitions)
        self.node_to_partition = get_node_to_partition_mapping(self.partitions)

    def kl_based_partition(
        self,
        transfer_rate_bytes_per_sec: float,
        node_to_latency_mapping: dict[Node, NodeLatency],
    ) -> None:
        """Begin with :meth:`size_based_partition`, and for one node after the other swap it with the
        node of another part, or move it there, if the module then takes less time.

        Source: Kernighan and Lin, "An efficient heuristic procedure for partitioning graphs" (1970).

        Args:
            transfer_rate_bytes_per_sec: how fast values move between devices.
            node_to_latency_mapping: how long each node takes.
        """
        self.size_based_partition()
        costs = _Costs(transfer_rate_bytes_per_sec, node_to_latency_mapping, self.devices)
        best = costs.of(self.partitions)
        for node in self._calls():
            home = next(part for part in self.partitions if node in part.nodes)
            swap: tuple[Node | None, Partition] | None = None
            for other in self.partitions:
                if other is home:
                    continue
                for partner in [*sorted(n for n in other.nodes if n.op in _CALLS), None]:
                    cost = self._cost_of_swap(node, partner, home, other, costs)
                    if cost < best:
                        best, swap = cost, (partner, other)
            if swap is not None:
                _swap(node, swap[0], home, swap[1])
                reorganize_partitions(self.partitions)
                reset_partition_device(self.partitions)
                get_device_to_partitions_mapping(self.partitions, self.devices)
        self.partitions = [part for part in self.partitions if part.nodes]
        reorganize_partitions(self.partitions)
        get_device_to_partitions_mapping(self.partitions, self.devices)
        self.node_to_partition = get_node_to_partition_mapping(self.partitions)

    def _cost_of_swap(
        self, node: Node, partner: Node | None, home: Partition, other: Partition, costs: _Costs
    ) -> float:
        """How long the module would take after a swap, which is undone again."""
        nodes = set(home.nodes), set(other.nodes)
        devices = [part.logical_device_ids for part in self.partitions]
        _swap(node, partner, home, other)
        reorganize_partitions(self.partitions)
        cost = _NEVER
        if not check_dependency(home) and not check_dependency(other):
            cost = costs.on_new_devices(self.partitions)
        for part, before in zip((home, other), nodes, strict=True):
            part.nodes = before
            part.recalculate_mem_size()
        reorganize_partitions(self.partitions)
        for part, before_ids in zip(self.partitions, devices, strict=True):
            part.logical_device_ids = before_ids
        return cost

    def aot_based_partition(
        self,
        node_to_partition_mapping: dict[Node, int],
        partition_to_logical_device_mapping: dict[int, list[int]],
    ) -> None:
        """Put nodes into parts, and these on devices, as the caller says.

        Args:
            node_to_partition_mapping: the number of the part of each call.
            partition_to_logical_device_mapping: the devices of each part.
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


class _Costs:
    """How long a module takes, in seconds, with its parts on devices."""

    def __init__(
        self, rate: float, latencies: dict[Node, NodeLatency], devices: list[Device]
    ) -> None:
        self.rate = rate
        self.latencies = latencies
        self.devices = devices

    def of(self, partitions: list[Partition]) -> float:
        """With parts where they are."""
        latencies = get_partition_to_latency_mapping(partitions, self.latencies)
        return get_latency_of_partitioned_graph(partitions, latencies, self.rate)

    def on_new_devices(self, partitions: list[Partition]) -> float:
        """With parts put on devices anew; infinite, if they do not fit."""
        reset_partition_device(partitions)
        if not get_device_to_partitions_mapping(partitions, self.devices):
            return _NEVER
        return self.of(partitions)

    def of_combined(self, partitions: list[Partition], i: int, j: int) -> float:
        """With two of the parts combined; infinite, if they are far from each other, would need each
        other's values by way of others, or do not fit.
        """
        a, b = partitions[i], partitions[j]
        is_near = abs(a.bfs_level - b.bfs_level) <= 1 or a in b.parents or a in b.children
        if not is_near or _would_cycle(a, b):
            return _NEVER
        tried = partitions[:]
        combine_two_partitions(a, b, tried)
        return self.on_new_devices(tried)


def _pairs(count: int) -> Iterable[tuple[int, int]]:
    return ((i, j) for i in range(count - 1) for j in range(i + 1, count))


def _would_cycle(a: Partition, b: Partition) -> bool:
    """Whether a way leads from one part to the other through a third."""
    for start, end in ((a, b), (b, a)):
        seen: set[Partition] = set()
        waiting = [part for part in start.children if part is not end]
        while waiting:
            part = waiting.pop()
            if part is end:
                return True
            if part not in seen:
                seen.add(part)
                waiting.extend(part.children)
    return False


def _swap(node: Node, partner: Node | None, home: Partition, other: Partition) -> None:
    """Move ``node`` from its part to another, and ``partner``, if there is one, the other way."""
    home.remove_node(node)
    other.add_node(node)
    if partner is not None:
        home.add_node(partner)
        other.remove_node(partner)
