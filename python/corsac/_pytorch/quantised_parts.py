"""Modules and functions of models that torch.ao has quantised, by their names. Nothing here imports torch.ao."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

_NN = "torch.ao.nn."


def place(module: Any) -> str:
    """The kind of the class of a module: "static", "dynamic" or "reference" for quantised ones of torch.ao, or ""."""
    kind = type(module)
    found = _PLACES.get(kind)
    if found is None:
        found = _PLACES[kind] = _place(kind)
    return found


#: Kinds of classes: models are looked at in each call.
_PLACES: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()


def _place(kind: type) -> str:
    for base in kind.__mro__:
        name = base.__module__
        if not name.startswith(_NN):
            continue
        if ".quantized" not in name:
            continue
        if name.startswith(_NN + "quantized.reference"):
            return "reference"
        if name.startswith((_NN + "quantized.dynamic", _NN + "intrinsic.quantized.dynamic")):
            return "dynamic"
        if base.__name__ in ("FloatFunctional", "FXFloatFunctional"):
            return ""
        if base.__name__ in ("Embedding", "EmbeddingBag"):
            return "dynamic"
        return "static"
    return ""


def is_graph(module: Any) -> bool:
    """Whether a module is a graph module, of torch.fx or of this package."""
    return (
        isinstance(module, nn.Module)
        # TorchScript has graphs of another kind.
        and not isinstance(module, torch.jit.ScriptModule)
        and hasattr(module, "graph")
        and hasattr(module.graph, "nodes")
    )


def operator_name(target: Any) -> str:
    """The name of a function: "quantized.add" for an operator of that library, and without its place for others."""
    if isinstance(target, torch._ops.OpOverload):
        space, _, name = target._schema.name.partition("::")
    elif isinstance(target, torch._ops.OpOverloadPacket):
        space, _, name = target._qualified_op_name.partition("::")
    else:
        space, name = "", getattr(target, "__name__", str(target))
    if space == "quantized":
        return f"quantized.{name}"
    return name


#: Functions outside the library that make, or take, tensors of quantised types.
_CONVERSIONS = frozenset(
    {
        "quantize_per_tensor",
        "quantize_per_channel",
        "quantize_per_tensor_dynamic",
        "dequantize",
        "int_repr",
    }
)


def has_quantised_calls(module: Any) -> bool:
    """Whether the graph of a graph module has functions of quantised types."""
    return any(map(_is_quantised_call, module.graph.nodes))


def _is_quantised_call(node: Any) -> bool:
    if node.op not in ("call_function", "call_method"):
        return False
    name = node.target if node.op == "call_method" else operator_name(node.target)
    if isinstance(node.target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        # Operators of other libraries have names like these.
        own = str(node.target)
        return name.startswith("quantized.") or (own.startswith("aten.") and name in _CONVERSIONS)
    return name in _CONVERSIONS


def parts(module: Any) -> Iterator[Any]:
    """A module and those inside it, without the insides of quantised modules."""
    yield module
    if not place(module) or is_container(module):
        for child in module.children():
            yield from parts(child)


def is_container(module: Any) -> bool:
    """Whether a quantised module calls other ones: recurrent layers and attention of quantised values."""
    return any(
        base.__name__ in ("LSTM", "LSTMCell", "MultiheadAttention")
        and base.__module__.startswith(_NN + "quantizable")
        for base in type(module).__mro__
    )


def is_static(module: Any) -> bool:
    """Whether values between the modules of a model are of quantised types."""
    return any(
        place(own) == "static" or (is_graph(own) and has_quantised_calls(own))
        for own in parts(module)
    )


def is_converted(model: Any) -> bool:
    """Whether a model has parts that torch.ao has quantised."""
    return isinstance(model, nn.Module) and any(
        place(own) or (is_graph(own) and has_quantised_calls(own)) for own in parts(model)
    )
