"""``corsac.save``: a model as one file that runs without Python."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from corsac import _core
from corsac._capture.capture import graph_for, graph_with_conditions, input_names
from corsac._capture.exported_program import converted, is_exported, with_plain_inputs
from corsac._engine.native_graph import CompileError
from corsac._files.dynamic_shapes import DynamicShapes
from corsac._files.exported_ranges import take_checked_ranges, take_ranges
from corsac._files.input_check import InputCheck
from corsac._files.promised_sizes import PromisedSizes
from corsac._models.example_inputs import ExampleInputs, as_tuple
from corsac._models.function import check_callable, module_of
from corsac._models.wrapper import ModelWrapper, root_of
from corsac._pytorch.quantised_parts import is_converted
from corsac.fx import GraphModule, Node
from corsac.fx._own_copy import own_copy
from corsac.fx.proxy import TraceError
from corsac.lowering._decompositions import undo_decompositions
from corsac.lowering._lower import is_training
from corsac.passes import eliminate_dead_code, fold_constants, remove_no_ops


def save(
    model: Callable[..., Any],
    path: str | os.PathLike[str],
    example_inputs: ExampleInputs,
    *,
    dynamic_shapes: Any = None,
) -> None:
    """Write ``model`` to one file that runs without Python and PyTorch.

    The file is a safetensors file: the weights under their names, and in its metadata the text of the
    graph. :func:`corsac.load` reads it, and so do ``corsac run`` and, in Rust,
    ``corsac_engine::Model::load``. The model is called with copies of ``example_inputs``, and the file holds the
    computation of that call: for these sizes, except those in ``dynamic_shapes``, and for the present Python state. Of
    results in classes, the tensors are saved as a tuple. If writing fails, the old file at ``path`` remains.

    Args:
        model: a module, a graph module, the result of :func:`corsac.compile`, a program of
            :func:`torch.export.export`, or a function of tensors.
        path: the file, by custom ``*.safetensors``.
        example_inputs: a tensor, or a tuple of tensors, with the shapes and element types that the file is to be
            for.
        dynamic_shapes: dimensions whose sizes may differ between calls, by name or position of the input, as for
            :func:`torch.export.export`: ``{"x": {0: "batch"}}``, or with a range ``{"x": {0: Dim("batch", min=1,
            max=64)}}``. Equal names are equal sizes; ``2*batch + 1`` follows from ``batch``. The model is called with
            other sizes to verify the file. Without a declared range, the file has the one that was found.

    Raises:
        TypeError: ``model`` cannot be called.
        ValueError: ``dynamic_shapes`` contradicts the inputs or itself.
        CompileError: control flow of the model depends on values, it changes existing state, the engine cannot
            run the whole graph (the message names the operators), or the model is not the same function for all sizes
            of ``dynamic_shapes``.
        OSError: the file cannot be written.
    """
    inputs = as_tuple(example_inputs)
    shapes = None
    if dynamic_shapes is not None:
        shapes = DynamicShapes.of(dynamic_shapes, input_names(model, inputs), inputs)
    with torch.no_grad():
        if shapes is None or not shapes.ranges:
            _write(path, _program(model, inputs)[0], inputs)
        else:
            _save_dynamic(model, path, inputs, shapes)


def _save_dynamic(
    model: Any,
    path: str | os.PathLike[str],
    inputs: tuple[torch.Tensor, ...],
    shapes: DynamicShapes,
) -> None:
    """Write a model with symbolic sizes."""
    module, truths = _program(model, inputs, shapes)
    placeholders = module.graph.find_nodes(op="placeholder")
    types = [_type(tensor)[0] for tensor in inputs]
    specs = [
        (node.target, dtype, shape)
        for node, dtype, shape in zip(
            placeholders, types, shapes.declared_shapes(inputs), strict=True
        )
    ]
    weights = _weights(module)
    text, conditions = module.graph.to_lossless(), [node.name for node in truths]

    def draft(symbols: list[tuple[str, int, int | None]]) -> _core.ModelDraft:
        own = [spec for spec, _ in weights]
        return _core.ModelDraft(text, specs, own, symbols, conditions)

    module.recompile()
    promised = PromisedSizes(shapes, inputs, draft, module, _called(model))
    symbols = promised.symbols()
    _core.write_model_file(os.fspath(path), text, specs, weights, symbols, conditions)


def _called(model: Any) -> Callable[..., Any]:
    """A function that gives the tensors that ``model`` returns, in the order in which a file has them."""
    if isinstance(model, torch.export.ExportedProgram):
        return model.module()
    own = _read(model)
    if is_exported(own) or _core.Recording.unavailable() is not None:
        return root_of(module_of(own))
    # Of results in classes, a graph has the tensors.
    return lambda *inputs: graph_for(own, inputs)(*inputs)


def _write(
    path: str | os.PathLike[str], module: GraphModule, inputs: tuple[torch.Tensor, ...]
) -> None:
    placeholders = module.graph.find_nodes(op="placeholder")
    specs = [
        (node.target, *_type(tensor)) for node, tensor in zip(placeholders, inputs, strict=True)
    ]
    weights = _weights(module)
    _core.write_model_file(os.fspath(path), module.graph.to_lossless(), specs, weights)


def _program(
    model: Any, inputs: tuple[torch.Tensor, ...], shapes: DynamicShapes | None = None
) -> tuple[GraphModule, list[Node]]:
    """The graph of ``model`` for such inputs: functions of them and of its weights; and its nodes that have to be true,
    if sizes are symbols."""
    if isinstance(model, torch.export.ExportedProgram):
        if shapes is not None:
            take_ranges(model, shapes)
        model = model.module()
    check = InputCheck.of(model)
    if check is not None:
        check(model, inputs, {})
        if shapes is not None:
            take_checked_ranges(check, shapes)
        # The file has the types, sizes and ranges of its inputs.
        model = own_copy(model)
    check_callable(model)
    model = _read(model)
    root = root_of(module_of(model))
    if is_training(root):
        raise CompileError("the model is in training mode: call model.eval() before it is saved")
    truths: list[Node] = []
    if _core.Recording.unavailable() is None:
        try:
            # Files cannot hold classes: if results are in some, the graph returns a tuple of the tensors.
            if shapes is None:
                module = graph_for(model, inputs)
            else:
                module, truths = graph_with_conditions(model, inputs, shapes.dims())
        except TraceError as error:
            raise CompileError(str(error)) from error
    else:
        module = _exported(root, inputs, shapes)
    result = module.graph.output_node().args[0]
    if truths:
        # So that passes keep them.
        module.graph.output_node().args = ((result, *truths),)
    undo_decompositions(module.graph)
    fold_constants(module)
    remove_no_ops(module)
    eliminate_dead_code(module)
    if truths:
        result, *truths = module.graph.output_node().args[0]
        module.graph.output_node().args = (result,)
    return module, truths


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


def _exported(
    root: nn.Module, inputs: tuple[torch.Tensor, ...], shapes: DynamicShapes | None
) -> GraphModule:
    """The graph of ``torch.export``, for interpreters in which programs cannot be recorded."""
    dynamic = None if shapes is None else shapes.for_export()
    try:
        program = torch.export.export(root, inputs, dynamic_shapes=dynamic)
    except torch._dynamo.exc.UserError as error:
        if shapes is None:
            raise
        # Sizes that are not in the ranges.
        raise CompileError(str(error).strip()) from error
    return own_copy(with_plain_inputs(converted(program)))


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
