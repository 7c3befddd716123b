"""Translates calls without a row in the table by PyTorch's decomposition into operators."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from corsac import _core
from corsac.fx import Node
from corsac.onnx._builder import Tensor
from corsac.onnx._table import translate_call, translation_of
from corsac.onnx._types import Unsupported, is_static

if TYPE_CHECKING:
    from corsac.onnx._translate import Translator


def decompose(
    translator: Translator, node: Node, args: Any, kwargs: Any, reason: str
) -> Any:  # fmt: skip
    """The value of ``node`` from the ``aten`` operators that it calls, found on fake tensors."""
    flat, spec = torch.utils._pytree.tree_flatten((args, kwargs))
    inputs = [leaf for leaf in flat if isinstance(leaf, Tensor)]
    if any(not is_static(tensor.shape) for tensor in inputs):
        raise Unsupported(f"{reason}, and sizes that are not known")
    weights = _weights(translator, node)
    try:
        graph, constants, shape = _trace(translator, node, flat, spec, inputs, weights)
    except Unsupported:
        raise
    except Exception as error:  # whatever part of the call cannot be recorded
        raise Unsupported(f"{reason}, and it cannot be taken apart") from error
    values: dict[Any, Any] = {}
    given = [*inputs, *(translator.builder.weight(*weight) for weight in weights.values())]
    try:
        results = _run(translator, graph, constants, given, values)
        return torch.utils._pytree.tree_unflatten(results, shape)
    except Unsupported as error:
        raise Unsupported(f"{reason} ({error})") from error


@functools.cache
def _further_decompositions() -> dict[Any, Any]:
    """PyTorch's decompositions of the operators without a row in the table."""
    known = torch._decomp.core_aten_decompositions()
    return {
        operator: rule
        for operator, rule in known.items()
        if not isinstance(operator, torch._ops.OpOverload)
        or translation_of(_core.operator_of("call_function", operator)[0]) is None
    }


def _weights(translator: Translator, node: Node) -> dict[str, tuple[torch.Tensor, str]]:
    if node.op != "call_module":
        return {}
    module = translator._module(node)
    if any(part.training for part in module.modules()):
        raise Unsupported(f"a {type(module).__name__} in training has no translation")
    state = [*module.named_parameters(), *module.named_buffers()]
    return {name: (tensor, f"{node.target}.{name}") for name, tensor in state}


def _trace(
    translator: Translator, node: Node, flat: list[Any], spec: Any, inputs: Any, weights: Any
) -> tuple[torch.fx.Graph, torch.nn.Module, Any]:
    """Trace the operators of a call as a graph without writes; return it with the structure of the results."""
    shapes: list[Any] = []

    def run(tensors: list[torch.Tensor], state: list[torch.Tensor]) -> Any:
        rest = iter(tensors)
        leaves = [next(rest) if isinstance(leaf, Tensor) else leaf for leaf in flat]
        args, kwargs = torch.utils._pytree.tree_unflatten(leaves, spec)
        if node.op == "call_module":
            module = translator._module(node)
            named = dict(zip(weights, state, strict=True))
            result = torch.func.functional_call(module, named, args, kwargs)
        elif node.op == "call_method":
            result = getattr(args[0], str(node.target))(*args[1:], **kwargs)
        else:
            result = node.target(*args, **kwargs)
        results, shape = torch.utils._pytree.tree_flatten(result)
        shapes.append(shape)
        return results

    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            fakes = [torch.empty(tuple(x.shape), dtype=x.dtype) for x in inputs]
            state = [torch.empty(x.shape, dtype=x.dtype) for x, _ in weights.values()]
            further = _further_decompositions()
            module = make_fx(torch.func.functionalize(run), further)(fakes, state)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return module.graph, module, shapes[-1]


def _run(
    translator: Translator,
    graph: torch.fx.Graph,
    module: torch.nn.Module,
    given: list[Tensor],
    values: dict[Any, Any],
) -> Any:
    """Translate the operators; those on constants are computed."""
    g = translator.builder
    arguments = iter(given)
    scope, out = g.scope, g.out
    for node in graph.nodes:
        if node.op == "placeholder":
            values[node] = next(arguments)
        elif node.op == "get_attr":
            values[node] = g.known(getattr(module, node.target))
        elif node.op == "output":
            g.scope, g.out = scope, out
            return [values.get(item, item) for item in node.args[0]]
        elif node.users:
            values[node] = _operator(translator, node, values)
    raise AssertionError("the graph has no output")


def _operator(translator: Translator, node: torch.fx.Node, values: dict[Any, Any]) -> Any:
    g = translator.builder
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: values[n])
    flat, spec = torch.utils._pytree.tree_flatten((args, kwargs))
    made = node.meta.get("val")
    operands = [leaf for leaf in flat if isinstance(leaf, Tensor)]
    constant = all(operand.constant is not None for operand in operands)
    if constant and isinstance(node.target, torch._ops.OpOverload):
        if torch.Tag.nondeterministic_seeded in node.target.tags:
            raise Unsupported("it uses random numbers")
        leaves = [leaf.constant if isinstance(leaf, Tensor) else leaf for leaf in flat]
        args, kwargs = torch.utils._pytree.tree_unflatten(leaves, spec)
        result = node.target(*args, **kwargs)
        known = torch.utils._pytree.tree_map_only(torch.Tensor, g.known, result)
        return known
    g.out = made
    return translate_call(g, node, args, kwargs)
