"""``corsac.capture``: the graph of a model's call."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from corsac._capture.control_flow import with_control_modules
from corsac._capture.exported_program import converted, is_exported
from corsac._capture.guard_text import guards_as_text
from corsac._capture.record import Recorded, named_arguments
from corsac._capture.recordings import record_at_once
from corsac._capture.refusal import Refusal
from corsac._capture.result_template import returned_by_graph
from corsac._capture.unchanged import unchanged
from corsac._messages.lines import in_brackets
from corsac._models.example_inputs import CONSTANTS, ExampleInputs, as_tuple, gathered
from corsac._models.function import check_callable, module_of
from corsac._models.wrapper import ModelWrapper, root_of
from corsac.fx import Graph, GraphModule, Node, symbolic_trace
from corsac.fx.proxy import TraceError

#: Dimensions of inputs whose sizes may vary, by the name of the parameter or its position.
DynamicShapes = Mapping[str | int, Collection[int]]


def capture(
    model: Callable[..., Any],
    *args: Any,
    dynamic_shapes: DynamicShapes | None = None,
    strict: bool = True,
    **kwargs: Any,
) -> GraphModule:
    """Capture a call of ``model`` as a graph, with all Python control flow resolved.

    The model is called and recorded: control flow, hooks and other Python code are as in that call, and sizes may
    have become numbers in the graph. :func:`corsac.fx.symbolic_trace` makes graphs for all sizes, of models whose
    control flow does not depend on them.

    The conditions under which the graph is valid, besides the types of its inputs, are in ``meta`` of the result, as
    lines of text: ``"guards"``, the Python state that the model has read, with its values; ``"effects"``, the state
    that it has changed, which the graph does not change; ``"conditions"`` on dynamic sizes; ``"decisions"``, the
    values of tensors that control flow depended on.

    Args:
        model: a module, a bound method, a function of tensors, or a program of :func:`torch.export.export`. Modules in
            training mode that use random numbers or write to buffers are refused.
        args: its arguments; a single tuple or list stands for all of them. Placeholders are the tensors, each once,
            then those in containers, then state that the model replaces, in the order in which it is found.
        dynamic_shapes: the dimensions that are to stay symbolic in the graph, unless the model needs their values.
        strict: refuse models that change Python state, and models whose control flow depends on values of tensors:
            the graph follows one path only.
        kwargs: keyword arguments.

    Returns:
        A graph module of functions of PyTorch, with the model's parameters and buffers under their names. If the
        model returns other objects than tuples, lists and dictionaries of tensors, numbers, texts and None, takes
        containers or changes state, it returns a tuple of the tensors in the objects that the model returns and sets.

    Raises:
        TypeError: ``model`` cannot be called.
        TraceError: the call cannot be expressed as a graph, or with ``strict`` not as a single one; the message names
            the line of the program, if known.
        ValueError: ``dynamic_shapes`` names an input or a dimension that does not exist.
    """
    return _captured(model, gathered(args), kwargs, dynamic_shapes or {}, strict)[0]


def _captured(
    model: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dynamic_shapes: DynamicShapes,
    strict: bool,
) -> tuple[GraphModule, Recorded]:
    """The graph of a call, and the record that it is of."""
    if is_exported(model):
        model = converted(model)
    if isinstance(model, (GraphModule, torch.fx.GraphModule)):
        model = with_control_modules(model)
    check_callable(model)
    program = _program_of(model)
    recorded = recorded_call(program, args, kwargs, dynamic_shapes, decides=not strict)
    if strict:
        _refuse_changes(recorded)
        if recorded.replay is None or recorded.state is None:
            # What it prints is no result.
            _return_structure(recorded)
    module = recorded.module
    reads = [] if recorded.stages is None else recorded.stages.reads()
    for read in reads:
        module.graph.erase_node(next(own for own in module.graph.nodes if own.name == read.name))
    module.recompile()
    module.meta["guards"] = guards_as_text(recorded.guards, program)
    module.meta["effects"] = [] if recorded.replay is None else recorded.replay.effects()
    module.meta["conditions"] = [] if recorded.sizes is None else recorded.sizes.as_text()
    module.meta["decisions"] = [str(own) for own in reads]
    return module, recorded


def recorded_call(
    program: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dynamic_shapes: DynamicShapes,
    *,
    decides: bool = False,
    state: Mapping[int, Collection[int]] | None = None,
) -> Recorded:
    """The record of a call of a module or a function, with copies of its arguments; see :func:`capture`. If ``state``
    is given, the program may write to existing tensors: these, and those with the ids in ``state``, are inputs of the
    graph. Its values are their dynamic dimensions. The program is as before the call.

    Raises:
        TraceError: the call cannot be expressed as a graph.
        ValueError: ``dynamic_shapes`` names an input or a dimension that does not exist.
    """
    with torch.no_grad(), unchanged(program) as kept:
        # Separate copies, so that each is a placeholder of its own, and contiguous.
        args, kwargs = tree_map_only(torch.Tensor, _copied, (args, kwargs))
        record = functools.partial(
            record_at_once,
            root_of(program),
            program,
            args,
            kwargs,
            dynamic=_dynamic(program, args, kwargs, dynamic_shapes)
            | {own: set(dims) for own, dims in (state or {}).items() if dims},
            replays=True,
            decides=decides,
            rewritten=state,
            keep=kept.keep,
        )
        recorded = record()
        if not decides and isinstance(recorded, Recorded) and _changes(recorded):
            # What the first call sets up is there now.
            recorded = record()
    if isinstance(recorded, Refusal):
        where = in_brackets(recorded.line)
        raise TraceError(f"the model is no graph{where}: {recorded.reason}")
    if recorded.called is not None:
        recorded.called.attach(recorded.module, graph_for)
    return recorded


def _changes(recorded: Recorded) -> list[str]:
    """The changes of objects that a program makes, as text."""
    return [] if recorded.replay is None else recorded.replay.changes()


def _refuse_changes(recorded: Recorded) -> None:
    """Refuse a program that changes objects; a graph need not print or warn.

    Raises:
        TraceError: it does.
    """
    changes = _changes(recorded)
    if changes:
        raise TraceError(f"the model is no graph: it changes state in Python: {changes[0]}")


def _return_structure(recorded: Recorded) -> None:
    """Make a graph return what the program returns, instead of all tensors of its results and effects.

    Raises:
        TraceError: it returns a tensor that is the same in each call.
    """
    graph = recorded.module.graph
    output, placeholders = graph.output_node(), graph.find_nodes(op="placeholder")
    if recorded.replay is not None:
        output.args = (recorded.replay.structure(output.args[0], placeholders),)
    elif recorded.template is not None:
        nodes = output.args[0]
        output.args = (returned_by_graph(recorded.template.build(nodes), nodes),)


def _program_of(model: Callable[..., Any]) -> Any:
    program = module_of(model)
    return program._callable if isinstance(program, ModelWrapper) else program


def _copied(own: torch.Tensor) -> torch.Tensor:
    return own.clone(memory_format=torch.contiguous_format)


def _dynamic(
    program: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    shapes: DynamicShapes,
) -> dict[int, set[int]]:
    """Dynamic dimensions by the id of the tensor."""
    named = dict(enumerate(args)) | dict(named_arguments(program, args)) | dict(kwargs)
    found: dict[int, set[int]] = {}
    for name, dims in shapes.items():
        own = named.get(name)
        if not isinstance(own, torch.Tensor):
            tensors = [key for key, own in named.items() if isinstance(own, torch.Tensor)]
            known = ", ".join(str(key) for key in tensors)
            raise ValueError(f"dynamic_shapes: {name!r} is no tensor among the inputs ({known})")
        if not all(-own.dim() <= dim < own.dim() for dim in dims):
            raise ValueError(
                f"dynamic_shapes: {name!r} has {own.dim()} dimensions, not {set(dims)}"
            )
        found[id(own)] = {dim % own.dim() for dim in dims}
    return found


def graph_for(
    model: Callable[..., Any], example_inputs: ExampleInputs, *, strict: bool = True
) -> GraphModule:
    """:func:`capture` for a model whose inputs are all tensors."""
    return capture(model, _tensors(example_inputs), strict=strict)


def graph_with_conditions(
    model: Callable[..., Any], example_inputs: ExampleInputs, dynamic_shapes: DynamicShapes
) -> tuple[GraphModule, list[Node]]:
    """:func:`graph_for` with symbolic sizes, and the nodes that it has for the conditions on these, which have to be
    true.

    Raises:
        TraceError: the call cannot be expressed as a graph, or as none for other sizes.
    """
    module, recorded = _captured(model, _tensors(example_inputs), {}, dynamic_shapes, True)
    if recorded.sizes is None:
        raise TraceError("the model computes with sizes in a way that cannot be followed")
    return module, recorded.sizes.as_truths(module.graph)


@dataclass(frozen=True, slots=True)
class StatefulGraph:
    """A graph that reads and writes state.

    Attributes:
        module: the graph; its inputs are the arguments and then the state.
        truths: its nodes that have to be true.
        state: the tensors that are state, in the order of its inputs.
        written: those of them that it writes to.
    """

    module: GraphModule
    truths: list[Node]
    state: list[torch.Tensor]
    written: list[torch.Tensor]


def graph_with_state(
    model: Callable[..., Any],
    example_inputs: ExampleInputs,
    state: Mapping[int, Collection[int]],
    dynamic_shapes: DynamicShapes,
) -> StatefulGraph:
    """:func:`graph_with_conditions` for a model that writes to existing tensors. The call writes to them, too.

    Args:
        state: ids of tensors that are state, whether or not they are written to, with their dynamic dimensions.

    Raises:
        TraceError: the call cannot be expressed as a graph.
    """
    check_callable(model)
    inputs = _tensors(example_inputs)
    recorded = recorded_call(_program_of(model), inputs, {}, dynamic_shapes, state=state)
    graph = recorded.module.graph
    _refuse_changes(recorded)
    placeholders = graph.find_nodes(op="placeholder")
    if len(placeholders) != len(inputs) + len(recorded.rewritten):
        raise TraceError("the model reads tensors in containers")
    _return_structure(recorded)
    is_dynamic = any(dynamic_shapes.values()) or any(state.values())
    if is_dynamic and recorded.sizes is None:
        raise TraceError("the model computes with sizes in a way that cannot be followed")
    truths = [] if recorded.sizes is None or not is_dynamic else recorded.sizes.as_truths(graph)
    recorded.module.recompile()
    kept = list(recorded.rewritten)
    written = [own - len(inputs) for own in recorded.overwritten]
    if any(own < 0 for own in written):
        raise TraceError("the model writes to its inputs")
    return StatefulGraph(recorded.module, truths, kept, [kept[own] for own in written])


def input_names(model: Callable[..., Any], example_inputs: ExampleInputs) -> list[str]:
    """The names of the inputs of a model that takes tensors only."""
    if is_exported(model):
        model = converted(model)
    check_callable(model)
    program = _program_of(model)
    return [name for name, _ in named_arguments(program, _tensors(example_inputs))]


def _tensors(example_inputs: ExampleInputs) -> tuple[torch.Tensor, ...]:
    inputs = as_tuple(example_inputs)
    for number, own in enumerate(inputs):
        if not isinstance(own, torch.Tensor):
            raise TypeError(f"example input {number} is a {type(own).__name__}, not a tensor")
    return inputs


def graph_of(
    model: torch.nn.Module,
    example_inputs: Callable[[], ExampleInputs],
    kwargs: Mapping[str, Any] = MappingProxyType({}),
    *,
    strict: bool = True,
) -> GraphModule:
    """The graph of a model: for all sizes if it can be traced symbolically, or else captured with example inputs, which
    are made only then; ``strict`` is as for :func:`capture`.

    Raises:
        TraceError: neither works.
        TypeError: the model has to be captured, and an example input is neither a tensor nor a plain value.
    """
    try:
        traced = symbolic_trace(model)
    except Exception as error:
        # Programs may raise anything when called with proxies.
        try:
            return _graph_for_call(model, as_tuple(example_inputs()), kwargs, strict=strict)
        except TraceError as other:
            raise other from error
    names = [str(node.target) for node in traced.graph.find_nodes(op="placeholder")]
    if any(name.startswith("*") for name in names):
        # Of any number of inputs, as many as there are here.
        with contextlib.suppress(TraceError, TypeError):
            return _graph_for_call(model, as_tuple(example_inputs()), kwargs, strict=strict)
    return traced


def _graph_for_call(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, strict: bool
) -> GraphModule:
    """As :func:`capture`, with the parameters of the model as placeholders, in their order and with their defaults, up
    to the last one that has a value in this call. Those that are no tensors are constants, and have no users."""
    for name, own in [*enumerate(args), *kwargs.items()]:
        if not isinstance(own, (torch.Tensor, *CONSTANTS)):
            kind = type(own).__name__
            raise TypeError(f"example input {name} is a {kind}, not a tensor or a plain value")
    try:
        signature = inspect.signature(model.forward)
        order = {name: at for at, name in enumerate(signature.parameters)}
        kwargs = dict(sorted(kwargs.items(), key=lambda own: order.get(own[0], len(order))))
        bound = signature.bind(*args, **kwargs)
    except (TypeError, ValueError):
        # The call says what is wrong with it.
        return capture(model, args, strict=strict, **kwargs)
    module = capture(model, args, strict=strict, **kwargs)
    _declare(module.graph, bound)
    module.recompile()
    return module


def _declare(graph: Graph, bound: inspect.BoundArguments) -> None:
    """Gives ``graph``, whose placeholders are tensors, the placeholders of a function that is called like this."""
    inputs = iter(graph.find_nodes(op="placeholder"))
    last, optional = None, False
    for name, value, default in _parameters(bound):
        if isinstance(value, torch.Tensor):
            node = next(inputs)
            node.target = name
        else:
            node = graph.placeholder(name)
        if default or optional:
            # Python has no parameters without a default behind those that have one.
            node.args, optional = default or (None,), True
        if last is not None:
            last.append(node)
        elif (first := next(iter(graph.nodes))) is not node:
            first.prepend(node)
        last = node


def _parameters(bound: inspect.BoundArguments) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """The parameters of a call up to the last one that is given: name, value, and default in a tuple, empty for none."""
    left = len(bound.arguments)
    for parameter in bound.signature.parameters.values():
        if not left:
            return
        left -= parameter.name in bound.arguments
        value = bound.arguments.get(parameter.name)
        default = () if parameter.default is parameter.empty else (parameter.default,)
        if parameter.kind is parameter.VAR_POSITIONAL:
            for at, own in enumerate(value or ()):
                # Those that are no tensors are not there: nobody could say which is which.
                if isinstance(own, torch.Tensor):
                    yield f"{parameter.name}_{at}", own, default
        elif parameter.kind is parameter.VAR_KEYWORD:
            for name, own in (value or {}).items():
                yield name, own, default
        else:
            yield parameter.name, value, default


__all__ = [
    "StatefulGraph",
    "capture",
    "graph_for",
    "graph_of",
    "graph_with_conditions",
    "graph_with_state",
    "input_names",
    "recorded_call",
]
