"""Makes a case simpler: smaller tensors and simpler values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from corsac.fx import GraphModule
from corsac.fx._module_attributes import _get_attr
from corsac.fx._own_copy import copied_graph
from corsac.fx.node import map_aggregate
from corsac.minifier._case import Case
from corsac.minifier._shrink import Test

#: Sizes up to this are also tried one smaller.
SMALL = 16
#: The seed of random values.
SEED = 0


def own_weights(case: Case, test: Test) -> Case:
    """Give the graph a root of its own that holds just its weights, by names that are identifiers."""
    graph, root = copied_graph(case.module.graph), torch.nn.Module()
    names: dict[str, str] = {}
    for node in graph.nodes:
        if node.op == "call_module":
            return case
        if node.op != "get_attr":
            continue
        target = str(node.target)
        if target not in names:
            own = _get_attr(case.module, target)
            if not isinstance(own, torch.Tensor):
                return case
            name = target.replace(".", "_")
            name = name if name.isidentifier() else f"_{name}"
            while name in names.values() or hasattr(root, name):
                name += "_"
            names[target] = name
            _set_tensor(root, name, own, own.detach().clone())
        node.target = names[target]
    own_root = Case(GraphModule(root, graph), case.inputs)
    renamed = any(own != target for target, own in names.items())
    return own_root if renamed and test(own_root) else case


def smaller_sizes(case: Case, test: Test) -> Case:
    """Reduce each size, in inputs, weights and numbers of the graph alike, to 1, 2, its half, or one
    less."""
    tried: set[tuple[int, int]] = set()
    while (smaller := _with_smaller_size(case, test, tried)) is not None:
        case = smaller
    return case


def simpler_values(case: Case, test: Test) -> Case:
    """Replace inputs and weights, one by one, by ones, zeros, a range, seeded random or rounded values."""
    for at, own in enumerate(case.inputs):
        for simple in _simple(own):
            candidate = Case(case.module, [*case.inputs[:at], simple, *case.inputs[at + 1 :]])
            if test(candidate):
                case = candidate
                break
    for name in _weights(case):
        for simple in _simple(getattr(case.module, name)):
            candidate = _with_weights(case, {name: simple.detach()})
            if test(candidate):
                case = candidate
                break
    return case


def seeded(like: torch.Tensor) -> torch.Tensor:
    """Random values of a tensor's shape and type, the same each time."""
    generator = torch.Generator().manual_seed(SEED)
    return torch.randn(like.shape, generator=generator).to(like.dtype)


def _set_tensor(
    root: torch.nn.Module, name: str, before: torch.Tensor, tensor: torch.Tensor
) -> None:
    """Register ``tensor`` in ``root`` as a parameter or a buffer, as ``before`` is."""
    if isinstance(before, torch.nn.Parameter):
        root.register_parameter(name, torch.nn.Parameter(tensor, before.requires_grad))
    else:
        root.register_buffer(name, tensor)


def _with_smaller_size(case: Case, test: Test, tried: set[tuple[int, int]]) -> Case | None:
    """The case with one size reduced, the largest one possible; None if no size can be.

    ``tried`` holds the pairs of a size and its replacement tried so far; new ones are added.
    """
    sizes = {size for own in _tensors(case) for size in own.shape if size > 1}
    for size in sorted(sizes, reverse=True):
        for new in dict.fromkeys((1, 2, size // 2, *[size - 1] * (size <= SMALL))):
            if new >= size or (size, new) in tried:
                continue
            tried.add((size, new))
            found = next(filter(test, _resized(case, size, new)), None)
            if found is not None:
                return found
    return None


def _resized(case: Case, size: int, new: int) -> Iterator[Case]:
    """The case with all axes of this size cut, then also with the same number replaced in the graph."""
    weights = {name: _cut(getattr(case.module, name), size, new) for name in _weights(case)}
    cut = _with_weights(case, weights)
    cut = Case(cut.module, [_cut(own, size, new) for own in case.inputs])
    yield cut
    graph = copied_graph(case.module.graph)
    changed = False

    def number(value: Any) -> Any:
        nonlocal changed
        if type(value) is not int or value != size:
            return value
        changed = True
        return new

    for node in graph.nodes:
        if node.op.startswith("call_"):
            node.args = map_aggregate(node.args, number)
            node.kwargs = map_aggregate(node.kwargs, number)
    if changed:
        yield Case(GraphModule(cut.module, graph), cut.inputs)


def _cut(value: Any, size: int, new: int) -> Any:
    if not isinstance(value, torch.Tensor) or size not in value.shape:
        return value
    cut = value.detach()
    for axis, own in enumerate(value.shape):
        if own == size:
            cut = cut.narrow(axis, 0, new)
    return cut.clone().requires_grad_(value.requires_grad)


def _weights(case: Case) -> list[str]:
    """Names of the weights that the graph reads from its own root."""
    names = dict.fromkeys(str(n.target) for n in case.module.graph.find_nodes(op="get_attr"))
    if any("." in own or not isinstance(getattr(case.module, own), torch.Tensor) for own in names):
        return []
    return list(names)


def _with_weights(case: Case, weights: dict[str, torch.Tensor]) -> Case:
    """The case with new values for some of its own weights."""
    if not weights:
        return case
    root = torch.nn.Module()
    for name in _weights(case):
        own = getattr(case.module, name)
        _set_tensor(root, name, own, weights.get(name, own).detach())
    return Case(GraphModule(root, copied_graph(case.module.graph)), case.inputs)


def _simple(value: Any) -> Iterator[torch.Tensor]:
    if not isinstance(value, torch.Tensor) or value.is_complex() or not value.numel():
        return
    own = value.detach()
    candidates = [lambda: torch.ones_like(own, memory_format=torch.contiguous_format)]
    candidates.append(lambda: torch.zeros_like(own, memory_format=torch.contiguous_format))
    if own.dtype != torch.bool:
        candidates.append(lambda: torch.arange(own.numel()).reshape(own.shape).to(own.dtype))
    if own.is_floating_point():
        candidates.append(lambda: seeded(own))
        candidates.append(lambda: own.round())
        candidates.append(lambda: (own * 4).round() / 4)
    for make in candidates:
        simple = make()
        if torch.equal(simple, own):
            return
        yield simple.requires_grad_(value.requires_grad)


def _tensors(case: Case) -> list[torch.Tensor]:
    weights = [getattr(case.module, name) for name in _weights(case)]
    return [own for own in [*case.inputs, *weights] if isinstance(own, torch.Tensor)]
