"""Properties of nodes for splitters, and sorting of graphs."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from corsac import _core

from .._packages import expect_ours
from ..graph_module import GraphModule
from ..node import Node, _get_qualified_name

__all__ = [
    "FxNetAccFusionsFinder",
    "get_acc_ops_name",
    "get_node_target",
    "is_node_output_tensor",
    "legalize_graph",
    "stable_topological_sort",
]

Tensors = tuple[torch.Tensor] | list[torch.Tensor]
TensorOrTensors = torch.Tensor | Tensors
NodeList = list[Node]
NodeSet = set[Node]
Names = list[str]
CALLABLE_NODE_OPS = {"call_module", "call_function", "call_method"}


def get_acc_ops_name(k: str | type) -> str:
    """The name of a function or class: ``module.name``, or ``acc_ops.name`` for those of accelerators.

    A string is the name itself.
    """
    if isinstance(k, str):
        return k
    module = k.__module__
    if module and "acc_ops" in module:
        return f"acc_ops.{k.__name__}"
    return f"{module.replace('torch._ops', 'torch.ops')}.{k.__name__}"


def get_node_target(submodules: Mapping[str, torch.nn.Module], node: Node) -> str:
    """The target of ``node``: the class of a module, the qualified name of a function, the method.

    Raises:
        AssertionError: the node is not a call.
    """
    if node.op not in CALLABLE_NODE_OPS:
        raise AssertionError(
            f"Expect op types of {', '.join(CALLABLE_NODE_OPS)}, but found {node.op}"
        )
    target: Any = node.target
    if node.op == "call_module":
        module = submodules[target]
        return get_acc_ops_name(getattr(module, "_base_class_origin", type(module)))
    if node.op == "call_method":
        return target
    module_name = target.__module__
    if module_name is not None and "acc_ops" in module_name:
        return f"acc_ops.{target.__name__}"
    return _get_qualified_name(target)


def is_node_output_tensor(node: Node) -> bool:
    """Whether the value of ``node`` is a tensor, as recorded by :class:`.shape_prop.ShapeProp`."""
    kind = node.meta.get("type")
    return kind is not None and issubclass(kind, torch.Tensor)


class FxNetAccFusionsFinder:
    """Finds nodes that must run together, since they exchange non-tensor values.

    Calling an instance without arguments returns a map from each such node to its group. Groups that would
    need nodes outside of ``acc_nodes`` are removed from ``acc_nodes``.

    Args:
        module: a module on which :class:`.shape_prop.ShapeProp` has been run.
        acc_nodes: the nodes that can run on the accelerator.
    """

    def __init__(self, module: GraphModule, acc_nodes: NodeSet) -> None:
        expect_ours(module, "FxNetAccFusionsFinder")
        self.module = module
        self.nodes = list(module.graph.nodes)
        self.acc_nodes = acc_nodes
        self.node_index = {node: i for i, node in enumerate(self.nodes)}

    @dataclass
    class FusionGroup:
        """Nodes that must run together."""

        top_node_idx: int
        """The graph position of the first node."""
        nodes: NodeSet
        """The nodes."""
        inputs: NodeSet
        """The calls outside the group whose values they use."""
        nodes_need_process: NodeSet
        """Nodes whose users and inputs have not been examined."""

        def add_node(self, node: Node) -> None:
            """Add a node, with its inputs."""
            if node in self.nodes:
                return
            self.nodes_need_process.add(node)
            self.nodes.add(node)
            self.inputs.discard(node)
            self.inputs.update(
                n for n in node.all_input_nodes if n.op in CALLABLE_NODE_OPS and n not in self.nodes
            )

    def recursive_add_node(
        self,
        fusion_group: FxNetAccFusionsFinder.FusionGroup,
        inputs: NodeSet | NodeList,
        visited: NodeSet | None = None,
    ) -> bool:
        """Search upwards from ``inputs`` for a path to the group, and add the nodes along the first one.

        Args:
            fusion_group: the group.
            inputs: the start nodes.
            visited: nodes to skip; visited nodes are added.

        Returns:
            Whether there is a path.
        """
        first = (
            sorted(inputs, key=self.node_index.__getitem__) if isinstance(inputs, set) else inputs
        )
        ways: list[tuple[Node | None, Iterator[Node]]] = [(None, iter(first))]
        while ways:
            for arg in ways[-1][1]:
                if visited is not None:
                    if arg in visited:
                        continue
                    visited.add(arg)
                if arg.op not in CALLABLE_NODE_OPS:
                    continue
                if self.node_index[arg] < fusion_group.top_node_idx:
                    continue
                if arg in fusion_group.nodes:
                    for node, _ in reversed(ways[1:]):
                        fusion_group.add_node(node)  # type: ignore[arg-type]
                    return True
                ways.append((arg, iter(arg.all_input_nodes)))
                break
            else:
                ways.pop()
        return False

    def __call__(self) -> dict[Node, NodeSet]:
        result: dict[Node, NodeSet] = {}
        for node in [node for node in self.nodes if node in self.acc_nodes]:
            no_tensor = node.op in CALLABLE_NODE_OPS and "tensor_meta" not in node.meta
            if node in result or not no_tensor or node not in self.acc_nodes:
                continue
            group = self._group_of(node)
            if group <= self.acc_nodes:
                for member in sorted(group, key=self.node_index.__getitem__):
                    result[member] = group
            else:
                self.acc_nodes -= group
        return result

    def _group_of(self, start: Node) -> NodeSet:
        """The nodes connected to ``start`` by non-tensor values, directly or not."""
        group = self.FusionGroup(
            top_node_idx=self.node_index[start],
            nodes={start},
            inputs=set(start.all_input_nodes),
            nodes_need_process={start},
        )

        def close() -> None:
            self.recursive_add_node(group, group.inputs, visited=set())

        def add(neighbours: Iterable[Node]) -> None:
            for other in neighbours:
                if other.op in CALLABLE_NODE_OPS and other not in group.nodes:
                    group.add_node(other)
                    group.top_node_idx = min(group.top_node_idx, self.node_index[other])
                    close()

        while group.nodes_need_process:
            node = min(group.nodes_need_process, key=self.node_index.__getitem__)
            group.nodes_need_process.remove(node)
            close()
            if "tensor_meta" not in node.meta:
                add(node.users)
            add(arg for arg in node.all_input_nodes if "tensor_meta" not in arg.meta)
        return group.nodes


_AS_SOON_AS_POSSIBLE = [
    operator.add,
    operator.mul,
    operator.sub,
    operator.floordiv,
    operator.truediv,
    operator.mod,
    operator.le,
    operator.lt,
    operator.ge,
    operator.gt,
    operator.eq,
    operator.ne,
    torch.ops.aten.sym_constrain_range.default,
    torch.ops.aten.sym_constrain_range_for_size.default,
    torch.ops.aten._assert_async.msg,
    torch.ops.aten.scalar_tensor.default,
    torch.ops.aten._assert_scalar.default,
]
"""Computations on sizes and checks, which come as early as possible in a sorted graph."""


def legalize_graph(gm: GraphModule) -> GraphModule:
    """Sort the nodes of ``gm`` topologically, and return ``gm``.

    The order is breadth first and may change a valid order: see :func:`stable_topological_sort`.

    Raises:
        RuntimeError: nodes use each other in a cycle; the module is then unchanged.
    """
    expect_ours(gm, "legalize_graph")
    _core.sort_breadth_first(gm.graph, _AS_SOON_AS_POSSIBLE)
    gm.recompile()
    return gm


def stable_topological_sort(gm: GraphModule) -> GraphModule:
    """Sort the nodes of ``gm`` topologically, and return ``gm``.

    Nodes that come too early move right after the nodes that they depend on; all others stay.

    Raises:
        AssertionError: nodes use each other in a cycle; the module is then unchanged.
    """
    expect_ours(gm, "stable_topological_sort")
    try:
        gm.graph.topological_sort()
    except RuntimeError as error:
        raise AssertionError(f"Input graph has cycles: {error}") from None
    gm.recompile()
    return gm
