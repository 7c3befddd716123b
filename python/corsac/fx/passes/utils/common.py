"""Modules for subgraphs, and comparison of graphs."""

from __future__ import annotations

from torch import nn

from ..._module_attributes import _registered_module
from ..._packages import expect_ours
from ...graph import Graph
from ...graph_module import GraphModule
from .matcher_utils import SubgraphMatcher

__all__ = ["HolderModule", "compare_graphs", "lift_subgraph_as_module"]


class HolderModule(nn.Module):
    """A module that only holds others.

    Args:
        d: the modules by name.
    """

    def __init__(self, d: dict[str, nn.Module | None]) -> None:
        super().__init__()
        for name, module in d.items():
            self.add_module(name, module)


def lift_subgraph_as_module(
    gm: GraphModule,
    subgraph: Graph,
    comp_name: str = "",
    class_name: str = "GraphModule",
) -> tuple[GraphModule, dict[str, str]]:
    """A module that runs ``subgraph`` with the attributes of ``gm``.

    Args:
        gm: the module with the submodules and attributes that the subgraph uses.
        subgraph: a graph made of nodes of ``gm``.
        comp_name: the name that the new module will have.
        class_name: the new module's class name when printed.

    Returns:
        The module, and a map from the names in ``gm`` of all it uses to their new names: ``{"conv":
        "<comp_name>.conv"}``.
    """
    expect_ours(subgraph, "lift_subgraph_as_module")
    root = HolderModule({})
    names = subgraph._state_names()
    for name in names:
        *path, last = name.split(".")
        owner, holder = gm, root
        for part in path:
            owner = getattr(owner, part)
            inner = _registered_module(holder, part)
            if inner is None:
                inner = HolderModule({})
                holder.add_module(part, inner)
            holder = inner
        setattr(holder, last, getattr(owner, last))
    lifted = GraphModule(root, subgraph, class_name)
    return lifted, {name: f"{comp_name}.{name}" for name in names}


def compare_graphs(left: Graph, right: Graph) -> bool:
    """Whether two graphs have the same nodes, with the same inputs, results and connections."""
    matcher = SubgraphMatcher(left, match_output=True, match_placeholder=True)
    return bool(matcher.match(right))
