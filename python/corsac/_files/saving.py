"""``corsac.save``: a model as one file that runs without Python."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from corsac import _core
from corsac._capture.capture import graph_for
from corsac._capture.exported_program import converted, with_plain_inputs
from corsac._engine.native_graph import CompileError
from corsac._models.example_inputs import ExampleInputs, as_tuple
from corsac._models.function import check_callable, module_of
from corsac._models.wrapper import ModelWrapper, root_of
from corsac._pytorch.quantised_parts import is_converted
from corsac.fx import GraphModule
from corsac.fx._own_copy import own_copy
from corsac.fx.proxy import TraceError
from corsac.lowering._decompositions import undo_decompositions
from corsac.lowering._lower import is_training
from corsac.passes import eliminate_dead_code, fold_constants, remove_no_ops


def save(
    model: Callable[..., Any],
    path: str | os.PathLike[str],
    example_inputs: ExampleInputs,
) -> None:
    """Write ``model`` to one file that runs without Python and PyTorch.

    The file is a safetensors file: the weights under their names, and in its metadata the text of the
    graph. :func:`corsac.load` reads it, and so do ``corsac run`` and, in Rust,
    ``corsac_engine::Model::load``. The model is called with copies of ``example_inputs``, and the file holds the
    computation of that call: for these sizes, and for the present Python state. Of results in classes, the tensors
    are saved as a tuple. If writing fails, the old file at ``path`` remains.

    Args:
        model: a module, a graph module, the result of :func:`corsac.compile`, a program of
            :func:`torch.export.export`, or a function of tensors.
        path: the file, by custom ``*.safetensors``.
        example_inputs: a tensor, or a tuple of tensors, with the shapes and element types that the file is to be
            for.

    Raises:
        TypeError: ``model`` cannot be called.
        CompileError: control flow of the model depends on values, it changes existing state, or the engine cannot
            run the whole graph: the message names the operators.
        OSError: the file cannot be written.
    """
    inputs = as_tuple(example_inputs)
    with torch.no_grad():
        module = _program(model, inputs)
    placeholders = module.graph.find_nodes(op="placeholder")
    specs = [
        (node.target, *_type(tensor)) for node, tensor in zip(placeholders, inputs, strict=True)
    ]
    weights = _weights(module)
    _core.write_model_file(os.fspath(path), module.graph.to_lossless(), specs, weights)


def _program(model: Any, inputs: tuple[torch.Tensor, ...]) -> GraphModule:
    """The graph of ``model`` for such inputs: functions of them and of its weights."""
    if isinstance(model, torch.export.ExportedProgram):
        model = model.module()
    check_callable(model)
    model = _read(model)
    root = root_of(module_of(model))
    if is_training(root):
        raise CompileError("the model is in training mode: call model.eval() before it is saved")
    if _core.Recording.unavailable() is None:
        try:
            # Files cannot hold classes: if results are in some, the graph returns a tuple of the tensors.
            module = graph_for(model, inputs)
        except TraceError as error:
            raise CompileError(str(error)) from error
    else:
        module = _exported(root, inputs)
    undo_decompositions(module.graph)
    fold_constants(module)
    remove_no_ops(module)
    eliminate_dead_code(module)
    return module


def _read(model: Any) -> Any:
    """The quantised form of a model that torch.ao has quantised; other models as they are."""
    own = model._model if isinstance(model, ModelWrapper) else model
    if not isinstance(own, nn.Module) or not is_converted(own):
        return model
    # Not at the top: most models are not quantised.
    from corsac.quantization.torch_ao import UnreadableError, from_torch_ao

    try:
        return from_torch_ao(own)
    except UnreadableError as error:
        raise CompileError(str(error)) from error


def _exported(root: nn.Module, inputs: tuple[torch.Tensor, ...]) -> GraphModule:
    """The graph of ``torch.export``, for interpreters in which programs cannot be recorded."""
    return own_copy(with_plain_inputs(converted(torch.export.export(root, inputs))))


def _type(tensor: torch.Tensor) -> tuple[str, list[int]]:
    return str(tensor.dtype).removeprefix("torch."), list(tensor.shape)


def _weights(module: GraphModule) -> list[Any]:
    """The tensors that the graph refers to, each once."""
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


__all__ = ["save"]
