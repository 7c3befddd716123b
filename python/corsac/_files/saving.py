"""``corsac.save``: a model as one file that runs without Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from corsac import _core
from corsac._capture.capture import graph_for, graph_with_conditions, input_names
from corsac._capture.exported_program import converted, is_exported, with_plain_inputs
from corsac._capture.unchanged import unchanged
from corsac._engine.native_graph import CompileError
from corsac._files.dynamic_shapes import DynamicShapes
from corsac._files.exported_ranges import take_checked_ranges, take_ranges
from corsac._files.input_check import InputCheck
from corsac._files.program_graphs import readable, simplified
from corsac._files.programs import save_programs, sources
from corsac._files.promised_sizes import PromisedSizes
from corsac._files.weights import FileWeights, type_of
from corsac._models.example_inputs import ExampleInputs, as_tuple
from corsac._models.function import module_of
from corsac._models.wrapper import root_of
from corsac.fx import GraphModule, Node
from corsac.fx._own_copy import own_copy
from corsac.fx.proxy import TraceError


def save(
    model: Callable[..., Any] | None,
    path: str | os.PathLike[str],
    example_inputs: ExampleInputs | None = None,
    *,
    dynamic_shapes: Any = None,
    state: bool | Sequence[str] = False,
    programs: Mapping[str, Any] | None = None,
    metadata: Mapping[str, str] | None = None,
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
            other sizes to verify the file. Without a declared range, the file has the one that was found. State is
            named like an input: ``{"cache.keys": {1: "capacity"}}``. With ``programs``, by name of the program.
        state: buffers that calls of the file read and write, and keep in sessions: their names, or True for all that
            the recorded calls write. They begin with their present values.
        programs: several programs in the file, which share weights and state: by name, example inputs for ``model``, or
            a module or function and its example inputs. The first is the default one.
        metadata: other texts for the header of the file, by keys that do not begin with ``corsac.``.

    Raises:
        TypeError: ``model`` cannot be called.
        ValueError: ``dynamic_shapes`` contradicts the inputs or itself, ``state`` names no buffer, or a key of
            ``metadata`` is one of the format.
        CompileError: control flow of the model depends on values, it changes other existing state, the engine cannot
            run the whole graph (the message names the operators), or the model is not the same function for all sizes
            of ``dynamic_shapes``.
        OSError: the file cannot be written.
    """
    if (example_inputs is None) == (programs is None):
        raise TypeError("save takes either example_inputs or programs")
    others = dict(metadata or {})
    with torch.no_grad():
        if programs is not None or state:
            given = {"": example_inputs} if programs is None else programs
            shared = {"": dynamic_shapes} if programs is None else dynamic_shapes or {}
            save_programs(path, sources(model, given, shared), state, others)
            return
        assert model is not None and example_inputs is not None
        inputs = as_tuple(example_inputs)
        shapes = None
        if dynamic_shapes is not None:
            shapes = DynamicShapes.of(dynamic_shapes, input_names(model, inputs), inputs)
        _save_graph(model, path, inputs, shapes if shapes and shapes.ranges else None, others)


def _save_graph(
    model: Any,
    path: str | os.PathLike[str],
    inputs: tuple[torch.Tensor, ...],
    shapes: DynamicShapes | None,
    metadata: dict[str, str],
) -> None:
    """Write a model without state; ``shapes`` are its symbolic sizes, if it has some."""
    module, truths = _program(model, inputs, shapes)
    placeholders = module.graph.find_nodes(op="placeholder")
    types = [type_of(own) for own in inputs]
    sizes: Sequence[Any] = [own for _, own in types]
    if shapes is not None:
        sizes = shapes.declared_shapes(inputs)
    specs = [
        (node.target, dtype, shape)
        for node, (dtype, _), shape in zip(placeholders, types, sizes, strict=True)
    ]
    weights = FileWeights()
    weights.name(module)
    text, conditions = module.graph.to_lossless(), [node.name for node in truths]
    symbols: list[Any] = []
    if shapes is not None:

        def draft(symbols: list[tuple[str, int, int | None]]) -> _core.ModelDraft:
            return _core.ModelDraft(
                text, specs, weights.types(), symbols, conditions, graphs=weights.graphs()
            )

        module.recompile()
        with unchanged(model):
            symbols = PromisedSizes(shapes, inputs, draft, module, _called(model)).symbols()
    program: Any = ("", text, specs, [], symbols, conditions)
    _core.write_model_file(os.fspath(path), [program], weights.rows(), metadata, weights.graphs())


def _called(model: Any) -> Callable[..., Any]:
    """A function that gives the tensors that ``model`` returns, in the order in which a file has them."""
    if isinstance(model, torch.export.ExportedProgram):
        return model.module()
    own, _ = readable(model)
    if is_exported(own) or _core.Recording.unavailable() is not None:
        return root_of(module_of(own))
    # Of results in classes, a graph has the tensors.
    return lambda *inputs: graph_for(own, inputs)(*inputs)


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
    model, root = readable(model)
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
    return module, simplified(module, truths)


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


__all__ = ["save"]
