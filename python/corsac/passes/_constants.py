"""Constant folding: values that do not depend on the inputs are computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.passes.shape_prop import _extract_tensor_metadata

from corsac import _core
from corsac.fx import Interpreter, Node
from corsac.fx.graph_module import GraphModule
from corsac.passes._budget import Budget, current_budget
from corsac.passes._derive import derived, erase_unused, take_place, unique_attribute
from corsac.passes._registry import registered
from corsac.passes._report import Report, Site
from corsac.passes._target import drop_unused, graph_of


@registered
def fold_constants(
    target: GraphModule,
    *,
    skip: Callable[[Node], bool] | None = None,
    budget: Budget | None = None,
) -> Report:
    """Compute the values that do not depend on the inputs, and keep them as buffers.

    Parameters, buffers and modules are taken to stay as they are from now on. A node that uses random
    numbers, has another effect besides its value, is written to or is returned to the caller, who
    may write to it, is computed in every call as before.

    Args:
        target: the module to change.
        skip: predicate: true for nodes that are to be computed in every call.
        budget: largest number of results to keep; see :class:`Budget`.

    The report lists the results kept, and the calls on constants that were not folded, with the
    reason. ``corsac.fx.experimental.const_fold`` computes them at the first call of the module
    instead.
    """
    graph = graph_of(target)
    before = len(graph.nodes)
    skipped = [] if skip is None else [node for node in graph.nodes if skip(node)]
    constants, results, kept = _core.find_constants(graph, skipped, budget=current_budget(budget))
    sites = [Site(*site) for site in kept]
    values = _values(target, constants, results)
    for node in results:
        site = (node.name, node._pretty_print_target(node.target))
        value = values[node]
        if type(value) is not torch.Tensor:
            kind = type(value).__qualname__
            sites.append(Site(*site, None, f"its value is no tensor but of type {kind}"))
            continue
        name = unique_attribute(target, f"_constant_{node.name}")
        target.register_buffer(name, value)
        with graph.inserting_before(node):
            new = derived(node, "get_attr", name, same_value=True)
        if "tensor_meta" in new.meta:  # The buffer does not require a gradient.
            new.meta["tensor_meta"] = _extract_tensor_metadata(value)
        take_place(new, node)
        sites.append(Site(*site, name, None))
    gone = [node for node in constants if not node._erased]
    erase_unused(graph, gone)
    report = Report("constants", tuple(sites), before, len(graph.nodes))
    if report.changed:
        names = [node.target for node in constants if node.op in ("get_attr", "call_module")]
        drop_unused(target, names)
        target._refresh()
    return report


def _values(gm: GraphModule, constants: list[Node], results: list[Node]) -> dict[Node, Any]:
    """The values of ``results``, which depend on ``constants`` only."""
    if not results:
        return {}
    interpreter = Interpreter(gm, graph=graph_of(gm))
    needed, stack = set(results), list(results)
    while stack:
        new = [node for node in stack.pop().all_input_nodes if node not in needed]
        needed.update(new)
        stack.extend(new)
    with torch.no_grad():
        for node in constants:
            if node in needed:
                interpreter.env[node] = interpreter.run_node(node)
    # Copies: a view would keep its base alive.
    return {
        node: value.clone() if isinstance(value := interpreter.env[node], torch.Tensor) else value
        for node in results
    }
