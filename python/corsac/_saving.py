"""``corsac.save``: a model as one file that runs without Python."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from corsac import _core
from corsac._engine_module import EngineModule
from corsac._example_inputs import ExampleInputs, as_tuple
from corsac._native_graph import CompileError
from corsac._sized_capture import sized_capture
from corsac._stand_in import Shell
from corsac._traced_program import captured
from corsac.analysis import propagate
from corsac.fx import GraphModule, Node
from corsac.fx.proxy import TraceError
from corsac.passes import (
    eliminate_dead_code,
    fold_constants,
    modules_to_functions,
    remove_dropout,
    remove_no_ops,
)
from corsac.passes._replace_op import _has_hooks as has_hooks


def save(
    model: Callable[..., Any],
    path: str | os.PathLike[str],
    example_inputs: ExampleInputs,
) -> None:
    """Write ``model`` to one file that runs without Python and PyTorch.

    The file is a safetensors file: the weights under their names, and in its metadata the text of the
    graph. :func:`corsac.load` reads it, and so do ``corsac run`` and, in Rust,
    ``corsac_engine::Model::load``. A program whose control flow depends on sizes is saved as it is for
    those of ``example_inputs``; of results in classes, the tensors are saved as a tuple. Whatever happens, the file at ``path`` is the old one or the
    whole new one.

    Args:
        model: a module, a graph module, what :func:`corsac.compile` made of one, or a function of
            tensors. It stays as it is.
        path: the file, by custom ``*.safetensors``.
        example_inputs: a tensor, or a tuple of tensors, such as the model will get: their shapes and element types are those
            that the file is for.

    Raises:
        CompileError: the engine cannot run the whole graph: the message names the operators.
        OSError: the file cannot be written.
    """
    inputs = as_tuple(example_inputs)
    for number, tensor in enumerate(inputs):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"example input {number} is a {type(tensor).__name__}, not a tensor")
    with torch.no_grad():
        module = _functional(model, inputs)
    placeholders = module.graph.find_nodes(op="placeholder")
    if len(placeholders) < len(inputs):
        raise TypeError(f"the model takes {len(placeholders)} inputs, not {len(inputs)}")
    specs = [
        (node.target, *_type(tensor)) for node, tensor in zip(placeholders, inputs, strict=False)
    ]
    weights = _weights(module)
    _core.write_model_file(os.fspath(path), module.graph.to_lossless(), specs, weights)


def _functional(model: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> GraphModule:
    """A copy of the program that ``model`` is, with functions of its weights instead of modules."""
    if isinstance(model, EngineModule):
        model = model._callable
    root = model if isinstance(model, nn.Module) else Shell(model)
    if root.training:
        raise CompileError("the model is in training mode: call model.eval() before it is saved")
    before = set(vars(root))
    try:
        module = captured(root).module
    except TraceError as error:
        module = _captured_for_sizes(root, model, inputs, error)
    for name in set(vars(root)) - before:
        delattr(root, name)  # tensors that tracing found, which the captured program has now
    remove_dropout(module)
    fold_constants(module)
    _replace_attention(module, inputs)
    report = modules_to_functions(module)
    left = [f"{site.node} ({site.target}): {site.reason}" for site in report.sites if site.reason]
    if left:
        raise CompileError(
            f"a model file holds functions only, and these modules cannot be written as such: "
            f"{'; '.join(left)}. corsac.compile runs the model, and these by PyTorch"
        )
    remove_no_ops(module)
    eliminate_dead_code(module)
    return module


def _captured_for_sizes(
    root: nn.Module, program: Callable[..., Any], inputs: tuple[torch.Tensor, ...], why: TraceError
) -> GraphModule:
    """The program as a graph for inputs such as these, if it is a graph for no others."""
    try:
        found = sized_capture(root, program, inputs, {})
    except TraceError as error:
        raise error from why
    # Files know no classes: where results are in others, the graph gives a tuple of the tensors.
    return found.module


def _type(tensor: torch.Tensor) -> tuple[str, list[int]]:
    return str(tensor.dtype).removeprefix("torch."), list(tensor.shape)


def _weights(module: GraphModule) -> list[Any]:
    """The tensors that the graph names, each once."""
    names: dict[int, str] = {}
    weights = {}
    for node in module.graph.find_nodes(op="get_attr"):
        value: Any = module
        for part in node.target.split("."):
            value = getattr(value, part)
        if not isinstance(value, torch.Tensor):
            raise CompileError(f"{node.target} is a {type(value).__name__}, not a tensor")
        # One tensor under two names is one weight.
        node.target = names.setdefault(id(value), node.target)
        weights[node.target] = value
    return [((name, *_type(value)), _bytes(value)) for name, value in weights.items()]


def _bytes(tensor: torch.Tensor) -> Any:
    whole = tensor.detach().cpu().contiguous().reshape(-1)
    return whole.view(torch.uint8).numpy()


def _replace_attention(module: GraphModule, inputs: tuple[torch.Tensor, ...]) -> None:
    """Write out ``nn.MultiheadAttention`` of a sequence with itself."""
    calls = [
        node
        for node in module.graph.find_nodes(op="call_module")
        if type(module.get_submodule(node.target)) is nn.MultiheadAttention
    ]
    if not calls:
        return
    propagate(module, *inputs)
    for node in calls:
        reason = _why_not(module, node)
        if reason is not None:
            raise CompileError(f"{node.name} ({node.target}): {reason}")
        _write_out(module, node)
    module.graph.lint()


def _why_not(module: GraphModule, node: Node) -> str | None:
    attention = module.get_submodule(node.target)
    names = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask")
    given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    query = given.pop("query", None)
    if given.pop("key", None) is not query or given.pop("value", None) is not query:
        return "attention to another sequence"
    if given.pop("need_weights", True):
        return "attention whose weights are asked for"
    given.pop("average_attn_weights", None)
    if any(value not in (None, False) for value in given.values()):
        return f"attention with {', '.join(given)}"
    if has_hooks(attention) or has_hooks(attention.out_proj):
        return "it has hooks"
    if attention.in_proj_weight is None or attention.bias_k is not None or attention.add_zero_attn:
        return "attention with kdim, vdim, add_bias_kv or add_zero_attn"
    if attention.training and attention.dropout:
        return "attention with dropout"
    meta = query.meta.get("tensor_meta")
    if meta is None or len(meta.shape) != 3:
        return "attention without a batch"
    for user in node.users:
        is_item = user.op == "call_function" and user.target.__name__ == "getitem"
        if not is_item or user.args[0] is not node or (user.args[1] != 0 and user.users):
            return "the pair of its results is used as a whole"
    return None


def _write_out(module: GraphModule, node: Node) -> None:
    graph, attention, path = module.graph, module.get_submodule(node.target), node.target
    query = node.args[0] if node.args else node.kwargs["query"]
    heads, own = attention.num_heads, attention.head_dim

    def weight(name: str) -> Node | None:
        owner = attention.out_proj if name.startswith("out_proj.") else attention
        if getattr(owner, name.rpartition(".")[2]) is None:
            return None
        return graph.get_attr(f"{path}.{name}")

    def method(name: str, *args: Any) -> Node:
        return graph.call_method(name, args)

    with graph.inserting_before(node):
        joint = graph.call_function(
            F.linear, (query, weight("in_proj_weight"), weight("in_proj_bias"))
        )
        joint = method("unflatten", joint, -1, (3, heads, own))
        # Batch, heads, sequence, own; batch and sequence are the other way round by default.
        order = (0, 2, 1, 3) if attention.batch_first else (1, 2, 0, 3)
        parts = [method("permute", method("select", joint, 2, i), *order) for i in range(3)]
        mixed = graph.call_function(F.scaled_dot_product_attention, tuple(parts))
        back = (0, 2, 1, 3) if attention.batch_first else (2, 0, 1, 3)
        merged = method("flatten", method("permute", mixed, *back), 2)
        out = graph.call_function(
            F.linear, (merged, weight("out_proj.weight"), weight("out_proj.bias"))
        )
    for user in list(node.users):
        if user.args[1] == 0:
            user.replace_all_uses_with(out)
        graph.erase_node(user)
    graph.erase_node(node)


__all__ = ["save"]
