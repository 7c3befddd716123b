"""Constant folding, under the names of ``torch.fx.experimental.const_fold``: the part of a module that does
not depend on its inputs is split off and run once, at the first call."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

import torch
from torch import nn

from corsac import _core
from corsac.fx._symbolic_trace import symbolic_trace
from corsac.fx.graph import Graph
from corsac.fx.graph_module import GraphModule
from corsac.fx.node import Node, map_arg  # noqa: F401
from corsac.fx.passes.split_module import split_module  # noqa: F401
from corsac.passes._derive import derived, erase_unused, take_place, unique_attribute
from corsac.passes._target import drop_unused

__all__ = ["FoldedGraphModule", "get_unique_attr_name_in_module", "split_const_subgraphs"]


class FoldedGraphModule(GraphModule):
    """A graph module whose constants are computed at the first call.

    Attributes:
        const_subgraph_module: the module that computes the constants; None if there are none.
        fx_const_folded_attrs_name: the attribute that holds them: a parameter, or a ``ParameterList`` for
            several.
        has_folding_been_run: whether they have been computed.
        device_for_folded_attrs: the device for the constants.
    """

    def __init__(
        self,
        root: nn.Module,
        graph: Graph,
        const_subgraph: Graph | None = None,
        fx_const_folded_attrs_name: str | None = None,
        device_for_folded_attrs: str = "cuda",
    ) -> None:
        super().__init__(root, graph)
        self.const_subgraph_module = (
            None if const_subgraph is None else GraphModule(root, const_subgraph)
        )
        self.has_folding_been_run = False
        self.fx_const_folded_attrs_name = fx_const_folded_attrs_name
        self.device_for_folded_attrs = device_for_folded_attrs

    def __call__(self, *args, **kwargs):
        if not self.has_folding_been_run:
            self.run_folding()
        return super().__call__(*args, **kwargs)

    def run_folding(self) -> None:
        """Compute the constants.

        Raises:
            AssertionError: they have been computed already.
        """
        if self.const_subgraph_module is None or self.fx_const_folded_attrs_name is None:
            return
        if self.has_folding_been_run:
            raise AssertionError("the constants have been computed already")
        # Autograd records it as it would in the program, whatever the grad mode of the first call.
        with torch.enable_grad():
            values = self.const_subgraph_module()
        values = values if isinstance(values, tuple) else (values,)
        made = [self._parameter(value) for value in values]
        folded = made[0] if len(made) == 1 else nn.ParameterList(made)
        delattr(self, self.fx_const_folded_attrs_name)
        setattr(self, self.fx_const_folded_attrs_name, folded)
        # Last, so that a failure above can be retried.
        self.has_folding_been_run = True

    def _parameter(self, value: torch.Tensor) -> nn.Parameter:
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"a constant is no tensor but a {type(value).__qualname__}")
        return nn.Parameter(
            value.detach().clone().to(self.device_for_folded_attrs),
            requires_grad=value.requires_grad,
        )


def get_unique_attr_name_in_module(mod_traced: GraphModule, name: str) -> str:
    """The first name derived from ``name`` that is no attribute of the module: other characters than ASCII letters,
    digits and underscores are replaced by one underscore, and a number at the end counts up."""
    name = re.sub(r"\W+", "_", name, flags=re.ASCII)
    if name[:1].isdigit():
        name = f"_{name}"
    numbered = re.fullmatch(r"(.*)_(\d+)", name)
    stem, number = (numbered[1], int(numbered[2])) if numbered else (name, 0)
    while hasattr(mod_traced, name):
        number += 1
        name = f"{stem}_{number}"
    return name


def split_const_subgraphs(
    module: nn.Module | GraphModule,
    skip_folding_node_fn: Callable[[Node], bool] | None = None,
    device_for_folded_attrs: str = "cpu",
    is_impure_node: Callable[[Node], bool] | None = None,
) -> FoldedGraphModule:
    """Split off the part that does not depend on the inputs.

    Args:
        module: the module; traced if it is not a graph module. It is not changed.
        skip_folding_node_fn: whether a node is to be computed in every call.
        device_for_folded_attrs: the device for the constants.
        is_impure_node: whether a node, in addition to those detected, has side effects.

    Returns a module that computes the constants at its first call. Values that the caller receives or that
    are written to, operators that use random numbers and other side effects are computed in every call.
    """
    traced = module if isinstance(module, GraphModule) else symbolic_trace(module)
    gm = GraphModule(traced, traced.graph.__deepcopy__({}))
    graph = gm.graph

    def skips(node: Node) -> bool:
        return bool(
            (skip_folding_node_fn is not None and skip_folding_node_fn(node))
            or (is_impure_node is not None and is_impure_node(node))
        )

    constants, results, _ = _core.find_constants(graph, [n for n in graph.nodes if skips(n)])
    if not results:
        return FoldedGraphModule(gm, graph)
    constant_graph = Graph()
    copies: dict[Node, Node] = {}
    needed, stack = set(results), list(results)
    while stack:
        new = [node for node in stack.pop().all_input_nodes if node not in needed]
        needed.update(new)
        stack.extend(new)
    for node in constants:
        if node in needed:
            copies[node] = constant_graph.node_copy(node, copies.__getitem__)
    made = tuple(copies[node] for node in results)
    constant_graph.output(made[0] if len(made) == 1 else made)

    name = unique_attribute(gm, "_FX_CONST_FOLDED_ATTRS")
    several = len(results) > 1
    setattr(gm, name, nn.ParameterList() if several else nn.Parameter(torch.zeros(())))
    first = results[0]
    if several:
        with graph.inserting_before(min(results)):
            all_of_them = derived(first, "get_attr", name)
    for index, node in enumerate(results):
        with graph.inserting_before(node):
            if several:
                new = derived(
                    node, "call_function", operator.getitem, (all_of_them, index), same_value=True
                )
            else:
                new = derived(node, "get_attr", name, same_value=True)
        label = new.name
        take_place(new, node)
        new.name = label
    erase_unused(graph, [node for node in constants if not node._erased])
    folded = FoldedGraphModule(gm, graph, None, name, device_for_folded_attrs)
    folded.const_subgraph_module = GraphModule(gm, constant_graph)
    targets = [n.target for n in constant_graph.nodes if n.op in ("get_attr", "call_module")]
    drop_unused(folded, targets)
    return folded
