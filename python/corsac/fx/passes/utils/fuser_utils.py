"""Moves nodes of a graph into submodules."""

from __future__ import annotations

import operator
from collections.abc import Iterable

from corsac import _core
from corsac.passes._derive import derived

from ..._packages import expect_ours
from ...graph_module import GraphModule
from ...node import Node
from ..tools_common import NodeList, legalize_graph, stable_topological_sort  # noqa: F401
from .common import lift_subgraph_as_module

__all__ = [
    "erase_nodes",
    "fuse_as_graphmodule",
    "fuse_by_partitions",
    "insert_subgm",
    "topo_sort",
    "validate_partition",
]


def topo_sort(nodes: NodeList) -> NodeList:
    """Sort ``nodes`` topologically.

    Among those that could come next, the first one in ``nodes`` does.

    Raises:
        AssertionError: they use each other in a cycle.
    """
    return _core.sort_nodes(nodes[0].graph, nodes) if nodes else []


def validate_partition(partition: NodeList) -> bool:
    """Whether the nodes can run as a unit: no path leaves them and returns."""
    return not partition or _core.find_part_cycle(partition[0].graph, [partition]) is None


def fuse_as_graphmodule(
    gm: GraphModule,
    nodes: NodeList,
    module_name: str,
    partition_lookup_table: dict[Node, int | None] | None = None,
    *,
    always_return_tuple: bool = False,
) -> tuple[GraphModule, tuple[Node, ...], tuple[Node, ...]]:
    """A module that computes what some nodes of ``gm`` compute. ``gm`` is not changed.

    Names, metadata, types and sources of the nodes are kept.

    Args:
        gm: the module with the nodes.
        nodes: the nodes, in topological order.
        module_name: the new module's class name when printed.
        partition_lookup_table: unused; torch.fx needs the nodes again for lookups.
        always_return_tuple: let the module return a tuple even for a single value.

    Returns:
        The module, the nodes of ``gm`` for its arguments, and the nodes for its results.

    Raises:
        AssertionError: a node is not in the graph of ``gm``, or has been erased, or the nodes cannot run as a
            unit.
    """
    expect_ours(gm, "fuse_as_graphmodule")
    _check_nodes(gm, nodes)
    if not validate_partition(nodes):
        raise AssertionError("Invalid partition, found dependency cycles")
    return extract_part(gm, nodes, module_name, always_return_tuple)


def _check_nodes(gm: GraphModule, nodes: Iterable[Node]) -> None:
    for node in nodes:
        if node.graph.owning_module is not gm:
            raise AssertionError(
                f"{node} doesn't belong to passed in graph module {gm._get_name()}"
            )
        if node._erased:
            raise AssertionError(f"{node} has been removed from owning graph")


def extract_part(
    gm: GraphModule, nodes: NodeList, name: str, tuple_return: bool = False
) -> tuple[GraphModule, tuple[Node, ...], tuple[Node, ...]]:
    """Do the same as :func:`fuse_as_graphmodule` for nodes that are known to run as a unit."""
    graph, inputs, outputs = _core.extract_nodes(gm.graph, nodes, tuple_return=tuple_return)
    graph.lint()
    fused, _ = lift_subgraph_as_module(gm, graph, class_name=name)
    return fused, tuple(inputs), tuple(outputs)


def insert_subgm(
    gm: GraphModule,
    sub_gm: GraphModule,
    orig_inputs: tuple[Node, ...],
    orig_outputs: tuple[Node, ...],
    insertion_point: Node | None = None,
) -> GraphModule:
    """Call ``sub_gm`` in ``gm``, and replace ``orig_outputs`` by its results.

    Args:
        gm: the module to change.
        sub_gm: a module that computes the outputs. It becomes a submodule, named after its class.
        orig_inputs: its arguments.
        orig_outputs: the nodes that its results replace.
        insertion_point: the node to call it after; the last of the outputs by default.

    Raises:
        AssertionError: there is neither an insertion point nor an output.
    """
    name = sub_gm.__class__.__name__
    gm.add_submodule(name, sub_gm)
    if insertion_point is None:
        if not orig_outputs:
            raise AssertionError(
                "there are no outputs to insert the call after: insertion_point is needed"
            )
        insertion_point = max(orig_outputs)
    returns_tuple = isinstance(sub_gm.graph.output_node().args[0], tuple)
    is_value = len(orig_outputs) == 1 and not returns_tuple
    with gm.graph.inserting_after(insertion_point):
        if not orig_outputs:
            gm.graph.call_module(name, args=orig_inputs)
            return gm
        last = orig_outputs[-1]
        call = derived(last, "call_module", name, orig_inputs, same_value=is_value)
    if is_value:
        last.replace_all_uses_with(call)
        return gm
    with gm.graph.inserting_before(call.next):
        for index, output in enumerate(orig_outputs):
            item = derived(
                output, "call_function", operator.getitem, (call, index), same_value=True
            )
            output.replace_all_uses_with(item)
    call.meta["val"] = tuple(output.meta.get("val") for output in orig_outputs)
    return gm


def erase_nodes(gm: GraphModule, nodes: NodeList) -> None:
    """Erase nodes, from the last one."""
    for node in reversed(nodes):
        gm.graph.erase_node(node)


def fuse_by_partitions(
    gm: GraphModule,
    partitions: list[dict[Node, int | None]],
    prefix: str = "fused_",
    always_return_tuple: bool = False,
) -> GraphModule:
    """Move each of ``partitions`` into a submodule of ``gm``, which is changed and returned.

    Uses of values that are written to keep their order, even between nodes that do not use each other:
    submodules are called at suitable places.

    Args:
        gm: the module to change.
        partitions: the nodes of each partition, as the keys of a dictionary.
        prefix: submodules are called ``<prefix>0``, ``<prefix>1``, …
        always_return_tuple: let submodules return tuples even for a single value.

    Raises:
        AssertionError: a node is not in the graph, or a partition cannot run as a unit. All partitions are
            checked first, and the module is then unchanged.
    """
    expect_ours(gm, "fuse_by_partitions")
    return move_parts(gm, partitions, prefix, always_return_tuple)


def move_parts(
    gm: GraphModule,
    partitions: list[dict[Node, int | None]],
    prefix: str,
    always_return_tuple: bool = False,
    *,
    writes: bool = True,
) -> GraphModule:
    """Do the same as :func:`fuse_by_partitions`; without ``writes``, the caller ensures that uses of values
    that are written to keep their order."""
    parts = [topo_sort(list(partition)) for partition in partitions]
    for nodes in parts:
        _check_nodes(gm, nodes)
    cycle = _core.find_part_cycle(gm.graph, parts, writes=writes)
    if cycle is not None:
        raise AssertionError(f"Invalid partition, found dependency cycles: {cycle}")
    if writes and _core.effect_pairs(gm.graph):
        _core.gather_parts(gm.graph, parts)
        parts = [sorted(nodes) for nodes in parts]
    for number, nodes in enumerate(parts):
        sub_gm, inputs, outputs = extract_part(gm, nodes, f"{prefix}{number}", always_return_tuple)
        insert_subgm(gm, sub_gm, inputs, outputs, nodes[-1])
        erase_nodes(gm, nodes)
    stable_topological_sort(gm)
    gm.graph.lint()
    return gm
