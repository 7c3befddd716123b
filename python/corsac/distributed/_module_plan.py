"""Plans for PyTorch's ``parallelize_module``, from plans for graphs."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

from corsac.distributed._errors import ParallelError
from corsac.distributed._node_plan import NodePlan
from corsac.distributed._parallel_plan import ParallelPlan
from corsac.distributed._values import described
from corsac.fx import Node


def module_plan(plan: ParallelPlan, model: torch.nn.Module) -> dict[str, Any]:
    """The styles of the modules of a model whose weights a plan cuts, as :meth:`ParallelPlan.module_plan` has them."""
    for node, planned in plan.nodes.items():
        reason = _not_of_modules(plan, node, planned)
        if reason is not None:
            raise ParallelError(
                f"{described(node)}: {reason}, which parallelize_module cannot do; parallelize() can"
            )
    names = {
        alias: name
        for name, weight in plan.program.weights.items()
        for alias in (name, *weight.aliases)
    }
    found: dict[str, Any] = {}
    for path, module in model.named_modules():
        for own, _ in module.named_parameters(recurse=False):
            name = f"{path}.{own}" if path else own
            target = names.get(name, name)
            if target in plan.shards:
                dim, pieces = plan.shards[target]
                if len(pieces) > 1:
                    raise _without_style(name, f"in pieces of {pieces}")
                if not isinstance(module, (torch.nn.Linear, torch.nn.Embedding)):
                    raise _without_style(name, f"of {type(module).__name__}")
                if own == "weight":
                    found[path] = _style(plan, target, dim, isinstance(module, torch.nn.Embedding))
    return found


def _without_style(name: str, reason: str) -> ParallelError:
    return ParallelError(
        f"{name}, {reason}: parallelize_module has no style for it; parallelize() cuts it"
    )


def _style(plan: ParallelPlan, name: str, dim: int, is_embedding: bool) -> Any:
    """The style of a layer whose weight is cut along a dimension."""
    if (dim == 0) is is_embedding:
        return RowwiseParallel(**({"input_layouts": Replicate()} if is_embedding else {}))
    return ColwiseParallel(**({"output_layouts": Replicate()} if _is_gathered(plan, name) else {}))


def _not_of_modules(plan: ParallelPlan, node: Node, planned: NodePlan) -> str | None:
    """What a call does on parts that styles of modules cannot; None if it does nothing such."""
    if planned.form == "mean":
        return "it is a mean over parts"
    for place, path in planned.sizes:
        own: Any = node.args[place] if isinstance(place, int) else node.kwargs[place]
        for step in path:
            own = (own.start, own.stop)[step] if isinstance(own, slice) else own[step]
        if isinstance(own, int) and own != -1:
            return f"its argument {own} is the size of a whole"
    for value, own in planned.inputs.items():
        if own == [None] and _is_part(plan, value) and not _weight_of(value):
            return f"its input {value.name} is made whole"
    weight = _weight_of(node)
    if weight is None:
        is_made_whole = _is_part(plan, node) and planned.replicated
        return "its result is made whole" if is_made_whole else None
    name = str(weight.target)
    if name not in plan.shards or len(plan.program.weights[name].shape) == 1:
        return None
    if planned.output == ["sum"]:
        return None if planned.replicated else "its sum is used before it is whole"
    others = [own for at, own in planned.inputs.items() if at.op != "get_attr"]
    return "its input is a part" if any(own != [None] for own in others) else None


def _weight_of(node: Node) -> Node | None:
    """A weight that a call reads."""
    return next((own for own in node.all_input_nodes if own.op == "get_attr"), None)


def _is_part(plan: ParallelPlan, node: Node) -> bool:
    planned = plan.nodes[node]
    return node.op != "get_attr" and any(isinstance(own, tuple) for own in planned.output)


def _is_gathered(plan: ParallelPlan, name: str) -> bool:
    """Whether the result of the layer with this weight is whole before it is used."""
    for node, planned in plan.nodes.items():
        reads = any(own.op == "get_attr" and own.target == name for own in node.all_input_nodes)
        if reads and isinstance(planned.output[0], tuple):
            uses = [plan.nodes[user].inputs.get(node) for user in node.users]
            return planned.replicated or all(own in (None, [None]) for own in uses)
    return False


__all__ = ["module_plan"]
