"""Lowering of a model: parts of it run on a backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from corsac._capture.capture import graph_of
from corsac._models.example_inputs import ExampleInputs, as_tuple
from corsac._models.placed_inputs import is_flat, parameters, placed
from corsac.fx import Node
from corsac.fx._own_copy import own_copy
from corsac.fx.convert import from_torch
from corsac.fx.graph_module import GraphModule
from corsac.fx.passes.utils.fuser_utils import extract_part, move_parts
from corsac.lowering._backend import Backend, LoweringError, make_backend, require
from corsac.lowering._decompositions import undo_decompositions
from corsac.lowering._layout import views_to_reshapes
from corsac.lowering._normal_form import fix_sizes, own_attributes
from corsac.lowering._part import InputCheck, LoweredPart
from corsac.lowering._partition import Partition
from corsac.lowering._preview import Part, Placement, Preview, shown, size_bytes, total
from corsac.onnx._quantised_layers import without_quantised_layers
from corsac.onnx._translate import UNKNOWN, types_of

#: Prefix of the names of lowered submodules; a number follows.
PREFIX = "lowered_"


@dataclass(slots=True)
class _Plan:
    """A program with its partition for a backend."""

    module: GraphModule
    types: dict[Node, Any]
    partition: Partition
    backend: Backend

    def preview(self) -> Preview:
        numbers = self.partition.numbers()
        placements = tuple(
            self._placement(node, numbers)
            for node in self.module.graph.nodes
            if node.op.startswith("call_")
        )
        parts = tuple(self._part(number) for number in range(len(self.partition.parts)))
        return Preview(self.backend.name, placements, parts)

    def _placement(self, node: Node, numbers: Mapping[Node, int]) -> Placement:
        part = numbers.get(node)
        reason = None if part is not None else self.partition.reasons.get(node)
        source = node.source
        where = None if source is None else f"{source.file}:{source.line}"
        target = node._pretty_print_target(node.target)
        return Placement(node.name, node.op, target, part, reason, where)

    def _part(self, number: int) -> Part:
        nodes = self.partition.parts[number]
        _, inputs, outputs = self.extract(number)

        def rows(values: Sequence[Node]) -> tuple[str, ...]:
            return tuple(f"{node.name}: {shown(self.types[node])}" for node in values)

        return Part(
            name=_name(number),
            nodes=tuple(node.name for node in nodes if node.op != "get_attr"),
            inputs=rows(inputs),
            outputs=rows(outputs),
            input_bytes=total(size_bytes(self.types[node]) for node in inputs),
            output_bytes=total(size_bytes(self.types[node]) for node in outputs),
        )

    def extract(self, number: int) -> tuple[GraphModule, tuple[Node, ...], tuple[Node, ...]]:
        """A part as a module, with its input and output nodes."""
        nodes = self.partition.parts[number]
        return extract_part(self.module, nodes, _name(number))

    def input_check(self) -> InputCheck:
        """The hook that refuses inputs of other types."""
        placeholders = self.module.graph.find_nodes(op="placeholder")
        return InputCheck(
            [str(node.target) for node in placeholders],
            [self.types[node] for node in placeholders],
            {str(node.target): node.args[0] for node in placeholders if node.args},
            parameters(self.module.graph) if is_flat(self.module.graph) else None,
        )

    def apply(self) -> GraphModule:
        """Replace each part of the program by a call of its compiled function, and return the program.

        Raises:
            LoweringError: the backend cannot compile a part.
        """
        compiled = [self._compiled(number) for number in range(len(self.partition.parts))]
        parts = [dict.fromkeys(part) for part in self.partition.parts]
        # Writes have been checked: within parts they are new values.
        move_parts(self.module, parts, PREFIX, writes=False)
        for number, function in enumerate(compiled):
            part = LoweredPart(_name(number), self.backend.name, function)
            setattr(self.module, _name(number), part)
        self.module.delete_all_unused_submodules()
        _drop_unused_tensors(self.module)
        self.module.recompile()
        return self.module

    def _compiled(self, number: int) -> Callable[..., Any]:
        part, inputs, _ = self.extract(number)
        try:
            return self.backend.compile(part, [self.types[node] for node in inputs])
        except Exception as error:
            first = ", ".join(node.name for node in self.partition.parts[number][:5])
            raise LoweringError(
                f"{self.backend.name} cannot compile {_name(number)} ({first}, …): {error}"
            ) from error


def _name(number: int) -> str:
    """Name of the submodule that a part becomes."""
    return f"{PREFIX}{number}"


def lower(
    model: torch.nn.Module,
    backend: str | Backend | type[Backend],
    example_inputs: ExampleInputs,
    *,
    kwargs: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    min_nodes: int = 1,
    strict: bool = False,
) -> GraphModule:
    """Lower a model: the nodes that ``backend`` supports run there, the rest on the host.

    The result is called like the model, with inputs of the types in the example: sizes may have
    become constants, and other inputs are refused. It computes no gradients. The model stays as it
    is; weights that only parts use are not in the result's state.

    Args:
        model: a module in evaluation mode, or a graph module.
        backend: a name from :func:`backends`, a backend or its class.
        example_inputs: a tensor or a tuple of positional inputs: tensors, whose types alone matter,
            :class:`corsac.analysis.TensorSpec` with symbols for sizes that vary, or other values. A model that cannot
            be traced symbolically is called with them, and takes tensors and plain values.
        kwargs: keyword inputs.
        options: options of the backend.
        min_nodes: parts with fewer computations stay on the host.
        strict: whether it is an error if a node stays on the host.

    Raises:
        LoweringError: the backend is not available, the model is in training mode, or ``strict``
            is set and a node stays: the message names the first one.
    """
    plan = _plan(model, backend, example_inputs, kwargs or {}, options or {}, min_nodes)
    if strict:
        _check_nothing_stays(plan)
    # The preview shows the program before it is changed.
    preview = plan.preview()
    views_to_reshapes(plan.partition.functions())
    check = plan.input_check()
    lowered = plan.apply()
    lowered.register_forward_pre_hook(check, with_kwargs=True)
    lowered.meta["lowering"] = preview
    return lowered


def preview(
    model: torch.nn.Module,
    backend: str | Backend | type[Backend],
    example_inputs: ExampleInputs,
    *,
    kwargs: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    min_nodes: int = 1,
) -> Preview:
    """Placement of every node by :func:`lower`, with reasons. Nothing is compiled."""
    plan = _plan(model, backend, example_inputs, kwargs or {}, options or {}, min_nodes)
    return plan.preview()


def _plan(
    model: torch.nn.Module,
    backend: str | Backend | type[Backend],
    example_inputs: ExampleInputs,
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
    min_nodes: int,
) -> _Plan:
    made = make_backend(backend, options)
    require(made)
    if isinstance(model, torch.export.ExportedProgram):
        model = model.module(check_guards=False)
    _check_evaluation(model)
    module = _captured(model, example_inputs, kwargs)
    undo_decompositions(module.graph)
    try:
        inputs = placed(module.graph, as_tuple(example_inputs), kwargs)
    except TypeError as error:
        raise LoweringError(str(error)) from error
    types = types_of(module.graph, inputs)
    fix_sizes(module.graph, types)
    own_attributes(module.graph, types)
    for node in module.graph.nodes:
        types.setdefault(node, UNKNOWN)
    partition = Partition(module, types, made, min_nodes)
    return _Plan(module, types, partition, made)


def is_training(model: torch.nn.Module) -> bool:
    """Whether a module is in training mode and computes something else then."""
    if not model.training or not isinstance(model, torch.fx.GraphModule | GraphModule):
        return model.training
    # Graphs of torch.export have `training` set, though they contain no module that depends on it.
    nodes = model.graph.find_nodes(op="call_module")
    called = [model.get_submodule(str(node.target)) for node in nodes]
    return any(own.training and type(own).__name__ != "GuardsFn" for own in called)


def _check_evaluation(model: torch.nn.Module) -> None:
    if is_training(model):
        raise LoweringError(
            "the model is in training mode, and lowering is for evaluation: call model.eval()"
        )


def _captured(
    model: torch.nn.Module, example_inputs: ExampleInputs, kwargs: Mapping[str, Any]
) -> GraphModule:
    """The model as a graph module with the same submodules, which can be changed without changing the model."""
    if isinstance(model, torch.fx.GraphModule):
        model = from_torch(model)
    if isinstance(model, GraphModule):
        return own_copy(without_quantised_layers(model))
    return own_copy(graph_of(model, lambda: example_inputs, kwargs))


def _check_nothing_stays(plan: _Plan) -> None:
    for node in plan.module.graph.nodes:
        if node.op.startswith("call_") and node in plan.partition.reasons:
            source = node.source
            line = "" if source is None else f", at {source.file}:{source.line}"
            raise LoweringError(
                f"{node.name} ({node.op} {node._pretty_print_target(node.target)}) cannot run on "
                f"{plan.backend.name}{line}: {plan.partition.reasons[node]}"
            )


def _drop_unused_tensors(module: GraphModule) -> None:
    """Remove parameters and buffers of the module itself that no node refers to."""
    used = {str(node.target) for node in module.graph.find_nodes(op="get_attr")}
    for kind in (module._parameters, module._buffers):
        for name in [name for name in kind if name not in used]:
            del kind[name]
