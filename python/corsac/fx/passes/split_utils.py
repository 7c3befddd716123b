"""Splits by tags on nodes, and helpers of splitters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from corsac import _core

from .._packages import expect_ours
from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node, map_arg  # noqa: F401
from .tools_common import CALLABLE_NODE_OPS, is_node_output_tensor
from .utils.common import HolderModule, lift_subgraph_as_module

if TYPE_CHECKING:
    from .splitter_base import Subgraph

__all__ = [
    "Component",
    "getattr_recursive",
    "move_non_tensor_nodes_on_boundary",
    "setattr_recursive",
    "split_by_tags",
]


def getattr_recursive(obj: object, name: str) -> Any:
    """The attribute of ``obj`` with a qualified name; None if missing."""
    for part in name.split("."):
        if isinstance(obj, torch.nn.ModuleList):
            obj = obj._modules.get(part)
        else:
            obj = getattr(obj, part, None)
        if obj is None:
            return None
    return obj


def setattr_recursive(obj: object, attr: str, value: object) -> None:
    """Set the attribute of ``obj`` with a qualified name.

    Raises:
        AttributeError: a part of the path is missing.
    """
    *path, last = attr.split(".")
    for part in path:
        obj = getattr(obj, part)
    setattr(obj, last, value)


@dataclass
class Component:
    """A partition under construction."""

    graph: Graph
    """The nodes it will run."""
    order: int
    """Its position among the components."""
    name: str
    """The name of its module."""
    input_placeholders: list[Node] = field(default_factory=list)
    """Its inputs."""
    orig_inputs: list[Node] = field(default_factory=list)
    """The nodes of the original graph for the inputs."""
    orig_outputs: list[Node] = field(default_factory=list)
    """The nodes of the original graph for the results."""
    getattr_maps: dict[Node, Node] = field(default_factory=dict)
    """Attributes in the original graph, with those in this one."""
    constructor_args: list[str] = field(default_factory=list)
    gm: GraphModule | None = None
    """The module."""


def split_by_tags(
    gm: GraphModule,
    tags: list[str],
    return_fqn_mapping: bool = False,
    return_tuple: bool = False,
    GraphModuleCls: type[GraphModule] = GraphModule,
) -> GraphModule | tuple[GraphModule, dict[str, str]]:
    """Split ``gm`` into one submodule per tag; the result computes the same.

    Nodes are tagged by ``node.tag = "name"``; tags of inputs, outputs and attributes are ignored. Submodules
    are called in the order of ``tags``, and each reads the attributes it uses. Names, metadata, sources,
    types and tags of nodes are carried into them.

    Args:
        gm: the module to split.
        tags: the tags in order. Each has a submodule, even if no node has the tag.
        return_fqn_mapping: also return the new names of modules and attributes.
        return_tuple: let submodules return tuples even for a single value.
        GraphModuleCls: the class of the result.

    Returns:
        The module; with ``return_fqn_mapping`` also a map from names in ``gm`` to names in it.

    Raises:
        AssertionError: a node has no tag, or uses a value of a later tag.
        KeyError: a tag is not in ``tags``.
        RuntimeError: the graph does not have one output node.
    """
    expect_ours(gm, "split_by_tags")
    outputs = gm.graph.find_nodes(op="output")
    if len(outputs) > 1:
        raise RuntimeError("Multiple output nodes in graph!")
    numbers = {tag: number for number, tag in enumerate(tags)}
    part_of: list[int | None] = []
    for node in gm.graph.nodes:
        if node.op not in CALLABLE_NODE_OPS:
            part_of.append(None)
            continue
        tag = getattr(node, "tag", None)
        if tag is None:
            raise AssertionError(f"Node does not have tag: {node.format_node()}")
        part_of.append(numbers[tag])
    if not outputs:
        raise RuntimeError("Graph had no output node!")
    (graph, targets), parts, _ = _core.split_graph(
        gm.graph, part_of, tags, tagged=True, tuple_return=return_tuple
    )
    root = HolderModule({})
    moved: dict[str, str] = {}
    for tag, (part, _) in zip(tags, parts, strict=True):
        for node in part.nodes:
            if node.op in CALLABLE_NODE_OPS:
                node.tag = tag
        module, names = lift_subgraph_as_module(gm, part, comp_name=tag)
        root.add_module(tag, module)
        moved.update(names)
    graph._codegen = gm.graph._codegen
    for new, old in targets:
        setattr(root, new, getattr_recursive(gm, old))
    split = GraphModuleCls(root, graph)
    return (split, moved) if return_fqn_mapping else split


def move_non_tensor_nodes_on_boundary(subgraphs: list[Subgraph]) -> None:
    """Move non-tensor nodes out of accelerator subgraphs into neighbours that use them.

    A node that is not a tensor according to :class:`.shape_prop.ShapeProp` moves to the one other subgraph
    that uses it, with all nodes of its own that depend on it. If these would have to go to several subgraphs,
    it stays, and a line is printed.

    Args:
        subgraphs: the subgraphs, whose lists of nodes are changed.
    """
    place = {node: i for i, subgraph in enumerate(subgraphs) for node in subgraph.nodes}

    def calls(nodes: Any) -> list[Node]:
        return [n for n in nodes if n.op in CALLABLE_NODE_OPS and n in place]

    def crosses(node: Node) -> bool:
        return any(place[user] != place[node] for user in calls(node.users))

    for number, subgraph in enumerate(subgraphs):
        if not subgraph.is_acc:
            continue
        waiting = [n for n in subgraph.nodes if not is_node_output_tensor(n) and crosses(n)]
        seen: set[Node] = set()
        for node in waiting:
            if node in seen or place[node] != number:
                continue
            seen.add(node)
            others = {place[user] for user in calls(node.users)} - {number}
            if len(others) != 1:
                print(
                    f"Cannot move non-tensor node {node.name} on boundary because it has children "
                    "in multiple subgraphs"
                )
                continue
            (other,) = others
            moving = _dependents(node, number, other, place, calls)
            if moving is None:
                continue
            for moved in moving:
                subgraph.nodes.remove(moved)
                subgraphs[other].nodes.append(moved)
                place[moved] = other
                print(
                    f"In order to move the non-tensor node {node.name} on boundary, moved node "
                    f"{moved.name} from {_called(subgraphs, number)} to {_called(subgraphs, other)}"
                )
            waiting.extend(
                parent
                for parent in calls(node.all_input_nodes)
                if not is_node_output_tensor(parent)
                and parent not in seen
                and place[parent] == number
            )


def _called(subgraphs: list[Subgraph], number: int) -> str:
    return f"{'acc' if subgraphs[number].is_acc else 'gpu'}_{number}"


def _dependents(
    node: Node, home: int, other: int, place: dict[Node, int], calls: Any
) -> list[Node] | None:
    """Nodes in the subgraph ``home`` that depend on ``node``, in the order found; None if some are used in a
    subgraph other than ``other``.
    """
    found: dict[Node, None] = {node: None}
    for dependent in (order := [node]):
        for user in calls(dependent.users):
            if place[user] == home:
                if user not in found:
                    found[user] = None
                    order.append(user)
            elif place[user] != other:
                return None
    return order
