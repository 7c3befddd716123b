"""Models as graphs that autograd runs, with the weights by name."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_unflatten

from corsac._capture.exported_program import converted, is_exported, with_plain_inputs
from corsac._capture.record import Recorded
from corsac._capture.recordings import random_numbers_kept, record_at_once
from corsac._capture.refusal import Refusal
from corsac._capture.result_template import flat_results
from corsac._capture.sizes import Condition
from corsac._messages.lines import in_brackets
from corsac._models.example_inputs import CONSTANTS
from corsac.distributed._errors import PipelineError
from corsac.fx import Graph, GraphModule, Node
from corsac.fx._module_attributes import _get_attr


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor that a program reads besides its inputs.

    Attributes:
        shape, dtype: its type.
        kind: ``"parameter"``, ``"buffer"``, or ``"constant"`` for one that is not in the state dict of the model.
        requires_grad: whether autograd gives it a gradient.
        aliases: its other names in the model.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    kind: str
    requires_grad: bool
    aliases: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call of a model: tensors, which are inputs of the graph, and constants.

    Attributes:
        places: the position or the name of each input.
        constants: the other arguments, by position or name.
    """

    places: tuple[int | str, ...]
    constants: Mapping[int | str, Any]

    @classmethod
    def of(cls, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        """The arguments of a call.

        Raises:
            TypeError: one is neither a tensor nor a constant.
        """
        places: list[int | str] = []
        constants: dict[int | str, Any] = {}
        for place, own in [*enumerate(args), *kwargs.items()]:
            if isinstance(own, torch.Tensor):
                places.append(place)
            elif isinstance(own, CONSTANTS):
                constants[place] = own
            else:
                kind = type(own).__name__
                raise TypeError(f"input {place} is a {kind}, not a tensor or a plain value")
        return cls(tuple(places), constants)

    def tensors(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
        """The inputs of the graph in a call.

        Raises:
            TypeError: the call has others than these.
        """
        other = Arguments.of(args, kwargs)
        if set(other.places) != set(self.places):
            raise TypeError(
                f"expected tensors as inputs {list(self.places)}, got {list(other.places)}"
            )
        for place, own in other.constants.items():
            if place not in self.constants or self.constants[place] != own:
                known = self.constants.get(place, "no value")
                raise TypeError(f"input {place} is {own!r}; the graph was captured with {known!r}")
        given = dict(enumerate(args)) | dict(kwargs)
        return tuple(given[place] for place in self.places)


@dataclass(slots=True)
class Program:
    """A model as one graph of PyTorch's functions.

    Attributes:
        graph: the graph; its placeholders are the tensors of ``arguments``.
        arguments: the arguments of a call.
        weights: the tensors that it reads, by the names that its nodes have for them.
        tensors: their values, of which those on ``meta`` are to be read from a file.
        conditions: conditions on sizes under which it is the model.
        build: makes the result of the model from the results of the graph; None if they are equal.
    """

    graph: Graph
    arguments: Arguments
    weights: dict[str, Weight]
    tensors: dict[str, torch.Tensor]
    conditions: list[Condition] = field(default_factory=list)
    build: Callable[[Any], Any] | None = None

    def parts(self) -> dict[str, Any]:
        """What ranks that run the same program must agree on, as values of JSON."""
        return {
            "graph": self.graph.to_lossless(),
            "arguments": [list(self.arguments.places), repr(self.arguments.constants)],
            "weights": {
                name: [list(own.shape), str(own.dtype), own.requires_grad]
                for name, own in self.weights.items()
            },
            "conditions": self.conditions,
        }

    def under_all_names(
        self, values: Iterable[tuple[str, torch.Tensor]]
    ) -> dict[str, torch.Tensor]:
        """Weights by all their names in the state dict of the model; others than those are left out."""
        found: dict[str, torch.Tensor] = {}
        for name, own in values:
            weight = self.weights[name]
            if weight.kind != "constant":
                found.update(dict.fromkeys((name, *weight.aliases), own))
        return found

    def results(self) -> list[Node]:
        """The tensors that it returns, each once."""
        leaves = flat_results(self.graph.output_node())[0]
        return list(dict.fromkeys(own for own in leaves if isinstance(own, Node)))

    def result(self, tensors: Sequence[Any]) -> Any:
        """The result of the model, from the values of :meth:`results`."""
        leaves, spec = flat_results(self.graph.output_node())
        values = dict(zip(self.results(), tensors, strict=True))
        tree = tree_unflatten([values.get(own, own) for own in leaves], spec)
        return tree if self.build is None else self.build(tree)


def positional(example_inputs: Any) -> tuple[Any, ...]:
    """The positional arguments of a call, of which there may be one, given as it is."""
    return tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (example_inputs,)


def program_of(
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Mapping[str | int, Collection[int]] | None,
) -> Program:
    """Capture a call of a model, in the training modes that its modules have: dropout and the statistics of batch norms
    are in the graph. Buffers and the state of the random generator are restored.

    Args:
        model: a module, which may be on ``meta``, or a program of :func:`torch.export.export`.
        args, kwargs: its arguments: tensors and plain values.
        dynamic_shapes: dimensions of inputs that are to be symbolic, by position or name; None for all.

    Raises:
        PipelineError: the call is no graph.
    """
    if is_exported(model):
        model = converted(model)
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"expected a module, got a {type(model).__name__}")
    arguments = Arguments.of(args, kwargs)
    with _state_kept(model), random_numbers_kept(), torch.enable_grad():
        with _stood_in(model):
            recorded, reason = _recorded(model, args, kwargs, dynamic_shapes)
        if recorded is None:
            return _exported(model, args, kwargs, dynamic_shapes, arguments, reason)
    template = recorded.template
    conditions = [] if recorded.sizes is None else recorded.sizes.with_names()
    # Names that are no attributes are of inputs only.
    weights, tensors = _weights(model, recorded.module)
    return Program(
        recorded.module.graph,
        arguments,
        weights,
        tensors,
        conditions,
        None if template is None else template.build,
    )


def _recorded(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Mapping[str | int, Collection[int]] | None,
) -> tuple[Recorded | None, str]:
    """A recorded call; None and the reason if it is none."""

    def own(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if value.is_meta:
            return torch.zeros(value.shape, dtype=value.dtype)
        return value.detach().cpu().clone(memory_format=torch.contiguous_format)

    positional = tuple(map(own, args))
    named = {name: own(value) for name, value in kwargs.items()}
    given = [*enumerate(positional), *named.items()]
    dynamic: dict[int, set[int]] = {}
    for place, value in given:
        if isinstance(value, torch.Tensor):
            dims = _dynamic(place, value, dynamic_shapes)
            if dims:
                dynamic[id(value)] = dims
    try:
        recorded = record_at_once(model, model, positional, named, dynamic=dynamic, trains=True)
    except Exception as error:
        if any(own.is_meta for own in (*model.parameters(), *model.buffers())):
            # Stand-ins for weights have no values that a program could read.
            return None, f"{type(error).__name__}: {error}"
        raise
    if isinstance(recorded, Refusal):
        return None, f"{recorded.reason}{in_brackets(recorded.line)}"
    if recorded.stages is not None or recorded.replay is not None or recorded.rewritten:
        return None, "it reads values or changes state"
    return recorded, ""


def _dynamic(
    place: int | str,
    value: torch.Tensor,
    dynamic_shapes: Mapping[str | int, Collection[int]] | None,
) -> set[int]:
    """The symbolic dimensions of an input."""
    if dynamic_shapes is None:
        return set(range(value.dim()))
    return {dim % value.dim() for dim in dynamic_shapes.get(place, ())}


def _exported(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Mapping[str | int, Collection[int]] | None,
    arguments: Arguments,
    reason: str,
) -> Program:
    """The graph of ``torch.export``, for models that cannot be recorded."""
    devices = {own.device for own in (*model.parameters(), *model.buffers())} or {
        torch.device("cpu")
    }
    device = next(iter(devices))

    def own(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return torch.zeros_like(value, device=device) if value.is_meta else value.to(device)

    auto = torch.export.Dim.AUTO

    def shapes(place: int | str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return None
        return dict.fromkeys(_dynamic(place, value, dynamic_shapes), auto)

    given = dict(enumerate(args)) | dict(kwargs)
    try:
        exported = torch.export.export(
            model,
            tuple(map(own, args)),
            {name: own(value) for name, value in kwargs.items()},
            dynamic_shapes=_by_parameter(model, args, {p: shapes(p, v) for p, v in given.items()}),
            strict=False,
        )
    except Exception as error:
        raise PipelineError(
            f"the model is no graph: {reason}; torch.export: {str(error).splitlines()[0]}"
        ) from error
    module = converted(exported)
    spec = getattr(getattr(module.graph._codegen, "pytree_info", None), "out_spec", None)
    leaves = list(module.graph.output_node().args[0])
    conditions = _conditions_of_export(exported)
    module = with_plain_inputs(module)
    # Results in classes are built from the leaves, in every case.
    module.graph.output_node().args = (tuple(leaves),)
    for node in module.graph.find_nodes(op="placeholder"):
        if not _is_tensor(node):
            if node.users:
                raise PipelineError(f"the model is no graph: {reason}; {node.name} is no tensor")
            module.graph.erase_node(node)
    weights, tensors = _weights(model, module)
    return Program(
        module.graph,
        arguments,
        weights,
        tensors,
        conditions,
        None if spec is None else lambda tree: tree_unflatten(list(tree), spec),
    )


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _by_parameter(
    model: torch.nn.Module, args: Sequence[Any], shapes: Mapping[int | str, Any]
) -> dict[str, Any]:
    """Dynamic shapes by the names of parameters."""
    bound = inspect.signature(model.forward).bind(
        *(shapes[place] for place in range(len(args))),
        **{name: own for name, own in shapes.items() if isinstance(name, str)},
    )
    found = dict(bound.arguments)
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD and name in found:
            found.update(found.pop(name))
    return found


def _conditions_of_export(exported: torch.export.ExportedProgram) -> list[Condition]:
    """The sizes that an exported program has fixed, and the ranges of the others."""
    ranges = {str(symbol): own for symbol, own in exported.range_constraints.items()}
    conditions: list[Condition] = []
    inputs = set(exported.graph_signature.user_inputs)
    for node in exported.graph.nodes:
        value = node.meta.get("val")
        if node.op != "placeholder" or node.name not in inputs:
            continue
        for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            place = ("size", node.name, dim)
            if isinstance(size, int):
                conditions.append(("eq", place, size, True))
            elif (own := ranges.get(str(size))) is not None:
                conditions.append(("ge", place, int(own.lower), True))
                # The largest size that there is stands for none.
                if own.upper < 2**31:
                    conditions.append(("le", place, int(own.upper), True))
    return conditions


def _weights(
    model: torch.nn.Module, module: GraphModule
) -> tuple[dict[str, Weight], dict[str, torch.Tensor]]:
    """The weights that a graph reads, and their values in the model. Nodes get one name for one tensor."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    buffers = dict(model.named_buffers(remove_duplicate=False))
    names: dict[int, list[str]] = {}
    for name, own in [*parameters.items(), *buffers.items()]:
        names.setdefault(id(own), []).append(name)
    weights: dict[str, Weight] = {}
    tensors: dict[str, torch.Tensor] = {}
    saved = set(model.state_dict(keep_vars=True))
    for node in module.graph.find_nodes(op="get_attr"):
        target = str(node.target)
        value = parameters.get(target, buffers.get(target))
        known = names.get(id(value), [])
        if value is None:
            value = _get_attr(module, target)
            if not isinstance(value, torch.Tensor):
                raise PipelineError(f"{target} is a {type(value).__name__}, not a tensor")
        elif known[0] != target:
            node.target = target = known[0]
        if target in parameters:
            kind = "parameter"
        else:
            kind = "buffer" if saved.intersection(known) else "constant"
        weights[target] = Weight(
            tuple(value.shape), value.dtype, kind, value.requires_grad, tuple(known[1:])
        )
        tensors[target] = value
    return weights, tensors


@contextlib.contextmanager
def _state_kept(model: torch.nn.Module) -> Iterator[None]:
    """Restore the buffers of a model after the block."""
    before = [(own, own.detach().clone()) for own in model.buffers() if not own.is_meta]
    try:
        yield
    finally:
        with torch.no_grad():
            for own, value in before:
                own.copy_(value)


@contextlib.contextmanager
def _stood_in(model: torch.nn.Module) -> Iterator[None]:
    """Put zeros in the place of weights on ``meta`` in the block; those of parameters take no memory."""
    stood: list[tuple[dict[str, Any], str, Any]] = []
    made: dict[int, torch.Tensor] = {}
    for part in model.modules():
        for place in (part._parameters, part._buffers):
            for name, own in place.items():
                if own is None or not own.is_meta:
                    continue
                if id(own) not in made:
                    if place is part._parameters:
                        zeros = torch.zeros((), dtype=own.dtype).expand(own.shape)
                        made[id(own)] = torch.nn.Parameter(zeros, own.requires_grad)
                    else:
                        made[id(own)] = torch.zeros(own.shape, dtype=own.dtype)
                stood.append((place, name, own))
                place[name] = made[id(own)]
    try:
        yield
    finally:
        for place, name, own in stood:
            place[name] = own


__all__ = ["Arguments", "Program", "Weight", "positional", "program_of"]
