"""One matrix product for several, under the names of ``torch.fx.experimental.merge_matmul``."""

from __future__ import annotations

import torch

from corsac import _core
from corsac.fx._symbolic_trace import symbolic_trace
from corsac.fx.graph_module import GraphModule
from corsac.fx.node import Node

__all__ = ["are_nodes_independent", "may_depend_on", "merge_matmul", "split_result_tensors"]


def split_result_tensors(
    result: torch.Tensor, inputs: list[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Split ``result``, shape ``(n, ...)``, into parts with as many rows as each of ``inputs``."""
    if isinstance(result, torch.fx.Proxy):
        sizes = [0] * len(inputs)
    else:
        sizes = [x.shape[0] for x in inputs]
    return torch.split(result, sizes)


def may_depend_on(a: Node, b: Node, search_depth: int = 6) -> bool:
    """Whether ``a`` depends on ``b``; True where more than ``search_depth`` steps would be needed
    to be sure."""
    if a == b:
        return True
    if not a.all_input_nodes:
        return False
    if search_depth == 0:
        return True
    return any(may_depend_on(x, b, search_depth - 1) for x in a.all_input_nodes)


def are_nodes_independent(nodes: list[Node]) -> bool:
    """Whether none of ``nodes`` depends on another one of them."""
    chosen, last = set(nodes), max(nodes)
    # What depends on one of them, from the first on.
    tainted: set[Node] = set()
    node = min(nodes)
    while True:
        inputs = node.all_input_nodes
        depends = any(x in tainted or x in chosen for x in inputs)
        if depends:
            if node in chosen:
                return False
            tainted.add(node)
        if node is last:
            return True
        node = node.next


def merge_matmul(in_mod: torch.nn.Module) -> GraphModule:
    """A module in which products ``x @ w``, ``y @ w``, ... with one right-hand side are one product
    of the rows of all of them.

    The left-hand sides have to agree in all dimensions but the first, and the right-hand side to have
    two dimensions or one; where that is known not to hold (``node.meta["tensor_meta"]``, attributes),
    they stay apart. So they do where one depends on another, something is written to in between, or
    to a result. Traced if it is no graph module; not changed.
    :func:`corsac.passes.merge_matmul` changes a module, says why products stay, and takes no shape
    for granted.
    """
    gm = in_mod if isinstance(in_mod, GraphModule) else symbolic_trace(in_mod)
    gm = GraphModule(gm, gm.graph.__deepcopy__({}))
    _core.merge_products(gm.graph, split_result_tensors, trusting=True)
    gm.recompile()
    gm.graph.lint()
    return gm
