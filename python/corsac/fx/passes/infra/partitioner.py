"""Partitions as large as a backend can run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from corsac import _core

from ..._packages import expect_ours
from ...graph_module import GraphModule
from ...node import Node, _get_qualified_name
from ..operator_support import OperatorSupportBase
from ..utils.fuser_utils import fuse_by_partitions

logger = logging.getLogger(__name__)
logger.setLevel(logging.WARNING)

_NO_COMPUTATION = {"torch.ops.aten.view", "_operator.getitem"}


class Partition:
    """Nodes that are to run together.

    Args:
        id: the number of the partition.
        nodes: the nodes.
        node_orders: a number per node, for sorting.
    """

    def __init__(
        self,
        id: int | None = None,
        nodes: Iterable[Node] | None = None,
        node_orders: Iterable[int] | None = None,
    ) -> None:
        self.id = id
        self.nodes: dict[Node, int | None] = {}
        if nodes is None:
            return
        nodes = list(nodes)
        if node_orders is None:
            self.nodes = dict.fromkeys(nodes)
            return
        orders = list(node_orders)
        if len(nodes) != len(orders):
            raise AssertionError(f"{len(nodes)} nodes need as many orders, not {len(orders)}")
        self.nodes = dict(zip(nodes, orders, strict=True))

    def __repr__(self) -> str:
        return str(self.nodes)

    def add_node(self, node: Node, node_order: int | None = None) -> None:
        """Add a node, or change its order."""
        self.nodes[node] = node_order

    def remove_node(self, node: Node) -> None:
        """Remove a node."""
        del self.nodes[node]

    def size(self) -> int:
        """Number of nodes."""
        return len(self.nodes)


class CapabilityBasedPartitioner:
    """Groups the nodes that a backend supports into partitions that can run as a unit.

    No path may leave a partition and return to it. Each partition is as large as that allows. The time grows
    with the number of nodes and uses, not with pairs of partitions.

    Args:
        graph_module: the module. Its nodes have to be in order.
        operator_support: decides which nodes are supported.
        allows_single_node_partition: also propose partitions with a single computation.
        non_compute_ops: qualified names of functions without computation, besides ``torch.ops.aten.view`` and
            ``_operator.getitem``.
        allowed_single_node_partition_ops: qualified names of functions for which a single-node partition is
            still proposed.
        skip_horizontal_fusion: only group nodes that use each other.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        operator_support: OperatorSupportBase,
        allows_single_node_partition: bool = False,
        non_compute_ops: Sequence[str] | None = None,
        allowed_single_node_partition_ops: Sequence[str] | None = None,
        skip_horizontal_fusion: bool = False,
    ) -> None:
        expect_ours(graph_module, "CapabilityBasedPartitioner")
        self.graph_module = graph_module
        self.operator_support = operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops = [] if non_compute_ops is None else non_compute_ops
        self.allowed_single_node_partition_ops = (
            [] if allowed_single_node_partition_ops is None else allowed_single_node_partition_ops
        )
        self.skip_horizontal_fusion = skip_horizontal_fusion
        self._submodules = dict(graph_module.named_modules())

    def _is_node_supported(self, node: Node) -> bool:
        return self.operator_support.is_node_supported(self._submodules, node)

    def propose_partitions(self) -> list[Partition]:
        """The partitions, from the end of the program. Items of a tuple are in the tuple's partition."""
        self._submodules = dict(self.graph_module.named_modules())
        # From the end, as in torch.fx: supports that count nodes may depend on the order.
        nodes = list(reversed(self.graph_module.graph.nodes))
        supported = [bool(self._is_node_supported(node)) for node in nodes]
        order = {node: place for place, node in enumerate(nodes)}
        proposed = _core.propose_parts(
            self.graph_module.graph, supported[::-1], horizontal=not self.skip_horizontal_fusion
        )
        partitions = []
        for number, members, late in proposed:
            partition = Partition(number, members, [order[node] for node in members])
            partition.nodes.update(dict.fromkeys(late))
            if partition.nodes and (
                self.allows_single_node_partition or self._computations(partition) > 1
            ):
                partitions.append(partition)
        logger.debug("Partitions proposed: %s", partitions)
        return partitions

    def _computations(self, partition: Partition) -> int:
        """Number of computations of a partition; those allowed as single nodes count twice."""
        functions = [_get_qualified_name(n.target) for n in partition.nodes if _is_function(n)]
        ignored = _NO_COMPUTATION.union(self.non_compute_ops)
        alone = set(self.allowed_single_node_partition_ops)
        return sum(name not in ignored for name in functions) + sum(
            name in alone for name in functions
        )

    def fuse_partitions(self, partitions: list[Partition], prefix: str = "fused_") -> GraphModule:
        """Move partitions into submodules called ``<prefix>0``, …, and return the module.

        Raises:
            AssertionError: a partition cannot run as a unit.
        """
        return fuse_by_partitions(
            self.graph_module, [partition.nodes for partition in partitions], prefix=prefix
        )

    def remove_bookend_non_compute_ops(self, partitions: list[Partition]) -> None:
        """Remove functions without computation from the beginning and end of each partition.

        These functions are the ones in ``non_compute_ops``.
        """
        names = set(self.non_compute_ops)
        for partition in partitions:
            # A node is at the beginning if all paths upwards leave the partition through such functions only;
            # members are in order, so that one walk in each direction finds them.
            idle = {
                node
                for node in partition.nodes
                if _is_function(node) and _get_qualified_name(node.target) in names
            }
            if not idle:
                continue
            members = sorted(partition.nodes)
            inside = set(members)
            first: set[Node] = set()
            for node in members:
                if node in idle and all(
                    n not in inside or n in first for n in node.all_input_nodes
                ):
                    first.add(node)
            last: set[Node] = set()
            for node in reversed(members):
                if node in idle and all(n not in inside or n in last for n in node.users):
                    last.add(node)
            for node in first | last:
                del partition.nodes[node]

    def partition_and_fuse(self, prefix: str = "fused_") -> GraphModule:
        """:meth:`propose_partitions`, then :meth:`fuse_partitions`."""
        return self.fuse_partitions(self.propose_partitions(), prefix=prefix)


def _is_function(node: Node) -> bool:
    return node.op == "call_function"
