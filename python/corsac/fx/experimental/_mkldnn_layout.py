"""Finds subgraphs that run in oneDNN's layout, and runs them there."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from corsac import _core
from corsac.fx.experimental._mkldnn_modules import (
    MkldnnBatchNorm,
    MkldnnConv2d,
    MkldnnLinear,
    PostOp,
    unfit,
)
from corsac.fx.graph import Graph
from corsac.fx.graph_module import GraphModule
from corsac.fx.node import Node
from corsac.passes import Site, pure
from corsac.passes._derive import unique_attribute
from corsac.passes._weights import install

__all__ = [
    "MklSubgraph",
    "UnionFind",
    "mkldnn_supported",
    "mkldnn_supported_unknown",
    "to_channels_last",
    "to_contiguous",
    "use_mkl_length",
]

#: Classes of modules and functions that run in oneDNN's layout. Additions are taken into subgraphs too, and
#: must work on tensors in channels-last order. As in ``MODULES`` and ``FUNCTIONS`` of
#: ``crates/corsac-passes/src/mkldnn/table.rs``.
mkldnn_supported: list[Any] = [
    nn.Conv2d,
    nn.Linear,
    nn.BatchNorm2d,
    nn.ReLU,
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
    nn.ReLU6,
    nn.Hardtanh,
    nn.Hardswish,
    nn.Hardsigmoid,
    nn.LeakyReLU,
    nn.Sigmoid,
    nn.Tanh,
    nn.SiLU,
    nn.GELU,
    nn.ELU,
    nn.Mish,
    nn.Identity,
    torch.relu,
    torch.transpose,
    torch.sigmoid,
    F.relu,
    F.avg_pool2d,
    F.adaptive_avg_pool2d,
    F.max_pool2d,
    F.relu6,
    F.hardtanh,
    F.hardswish,
    F.hardsigmoid,
    F.leaky_relu,
    F.silu,
    F.gelu,
    torch.tanh,
]
#: Functions that join a subgraph if one of their operands is in it: operands may be numbers.
mkldnn_supported_unknown: list[Any] = [
    operator.add,
    operator.mul,
    operator.iadd,
    operator.imul,
    operator.sub,
    torch.add,
    torch.mul,
    torch.cat,
]


@pure
def to_channels_last(x: Any) -> Any:
    """Convert images ``(N, C, H, W)`` to channels-last format; other values are returned unchanged."""
    if isinstance(x, torch.Tensor) and x.dim() == 4 and x.layout == torch.strided:
        return x.contiguous(memory_format=torch.channels_last)
    return x


@pure
def to_contiguous(x: Any) -> Any:
    """Convert a tensor to row-major order; other values are returned unchanged."""
    if isinstance(x, torch.Tensor) and x.layout == torch.strided:
        return x.contiguous()
    return x


class MklSubgraph:
    """Connected nodes that run in oneDNN's layout.

    Attributes:
        fx_graph: their graph.
        nodes: the nodes, in order.
        start_nodes: conversions of the values that enter, each with one argument.
        end_nodes: conversions of the values that leave, each with one argument.
    """

    def __init__(self, fx_graph: Graph) -> None:
        self.fx_graph = fx_graph
        self.nodes: list[Node] = []
        self.start_nodes: list[Node] = []
        self.end_nodes: list[Node] = []


def use_mkl_length(graph: MklSubgraph) -> bool:
    """Whether a subgraph has more than two nodes: a rule for :func:`optimize_for_inference`."""
    return len(graph.nodes) > 2


class UnionFind:
    """Disjoint sets of the numbers below ``n``.

    Attributes:
        parent: for each number one nearer to the representative of its set; None if it is in no set.
        size: for each representative, the number of members of its set.
    """

    def __init__(self, n: int) -> None:
        self.parent: list[int | None] = [None] * n
        self.size: list[int] = [0] * n

    def make_set(self, v: int) -> None:
        """Make ``v`` a set of its own."""
        self.parent[v] = v
        self.size[v] = 1

    def find(self, v: int) -> int:
        """The representative of the set of ``v``.

        Raises:
            AssertionError: ``v`` is in no set.
        """
        path = []
        while self.parent[v] != v:
            path.append(v)
            above = self.parent[v]
            if above is None:
                raise AssertionError("Parent is None")
            v = above
        for passed in path:
            self.parent[passed] = v
        return v

    def join(self, a: int, b: int) -> int | None:
        """Join the sets of ``a`` and ``b``. Returns the representative if they were one set before, as
        torch.fx does."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return a
        if self.size[a] < self.size[b]:
            a, b = b, a
        self.parent[b] = a
        self.size[a] += self.size[b]
        return None


def find_subgraphs(gm: GraphModule) -> tuple[list[MklSubgraph], list[Site]]:
    """Insert conversions around the maximal subgraphs of ``gm`` that run in oneDNN's layout.

    Returns:
        The subgraphs, and the supported nodes outside of all, with the reason.
    """
    reasons = {}
    for path in {node.target for node in gm.graph.find_nodes(op="call_module")}:
        module = gm.get_submodule(path)
        if type(module) in mkldnn_supported and (reason := unfit(module)) is not None:
            reasons[path] = f"{path}: {reason}"
    found, refused = _core.convert_mkldnn(
        gm.graph,
        mkldnn_supported,
        mkldnn_supported_unknown,
        reasons,
        to_channels_last,
        to_contiguous,
    )
    subgraphs = []
    for nodes, starts, ends in found:
        subgraph = MklSubgraph(gm.graph)
        subgraph.nodes, subgraph.start_nodes, subgraph.end_nodes = nodes, starts, ends
        subgraphs.append(subgraph)
    return subgraphs, [Site(*site) for site in refused]


def leave_out(subgraph: MklSubgraph) -> None:
    """Remove the conversions around a subgraph: its nodes run as before."""
    _core.unconvert_mkldnn(subgraph.fx_graph, subgraph.start_nodes, subgraph.end_nodes)


def has_layers(gm: GraphModule, subgraph: MklSubgraph) -> bool:
    """Whether a subgraph contains a layer that benefits from oneDNN's layout."""
    return any(
        node.op == "call_module" and type(gm.get_submodule(node.target)) in (nn.Conv2d, nn.Linear)
        for node in subgraph.nodes
    )


@dataclass(frozen=True, slots=True)
class _Fused:
    """A call of a layer, with the operators fused into it."""

    node: Node
    path: str
    binary: str | None
    activation: PostOp | None

    def module(self, dense: nn.Module) -> nn.Module:
        if isinstance(dense, nn.Conv2d):
            return MkldnnConv2d(dense, activation=self.activation, binary=self.binary)
        return MkldnnLinear(dense, activation=self.activation)


def run_on_mkldnn(gm: GraphModule, subgraphs: list[MklSubgraph]) -> None:
    """Make the layers of ``subgraphs`` run on oneDNN, fused with the operators on their results. Modules of
    ``gm`` are replaced by new ones, and it must be recompiled."""
    calls: list[_Fused] = []
    norms: set[str] = set()
    for subgraph in subgraphs:
        norms |= _batch_norms(gm, subgraph)
        for node, path, binary, name, module in _core.fuse_mkldnn(gm.graph, subgraph.nodes):
            activation = None
            if name is not None:
                activation = PostOp(name, None if module is None else gm.get_submodule(module))
            calls.append(_Fused(node, path, binary, activation))
    _install(gm, calls)
    for path in norms - _called_elsewhere(gm, subgraphs, norms):
        install(gm, path, MkldnnBatchNorm(gm.get_submodule(path)))


def _batch_norms(gm: GraphModule, subgraph: MklSubgraph) -> set[str]:
    """The batch norms with running statistics that a subgraph calls."""
    return {
        node.target
        for node in subgraph.nodes
        if node.op == "call_module"
        and type(norm := gm.get_submodule(node.target)) is nn.BatchNorm2d
        and norm.running_mean is not None
    }


def _called_elsewhere(gm: GraphModule, subgraphs: list[MklSubgraph], paths: set[str]) -> set[str]:
    """Those of the modules that nodes outside of ``subgraphs`` call or read from."""
    inside = {node for subgraph in subgraphs for node in subgraph.nodes}
    called = {n.target for n in gm.graph.find_nodes(op="call_module") if n not in inside}
    read = {n.target.rpartition(".")[0] for n in gm.graph.find_nodes(op="get_attr")}
    return paths & (called | read)


def _install(gm: GraphModule, calls: list[_Fused]) -> None:
    """Give each call its fused module: in place of the layer if all calls of that are alike, under a new name
    otherwise."""
    total: dict[str, int] = {}
    for node in gm.graph.find_nodes(op="call_module"):
        total[node.target] = total.get(node.target, 0) + 1
    read = {n.target.rpartition(".")[0] for n in gm.graph.find_nodes(op="get_attr")}
    dense = {call.path: gm.get_submodule(call.path) for call in calls}
    made: dict[tuple[str, str | None, PostOp | None], str] = {}
    for call in calls:
        key = (call.path, call.binary, call.activation)
        if key not in made:
            alike = sum((c.path, c.binary, c.activation) == key for c in calls)
            own = alike == total[call.path] and call.path not in read
            path = call.path if own else unique_attribute(gm, call.path)
            install(gm, path, call.module(dense[call.path]))
            made[key] = path
        call.node.target = made[key]
