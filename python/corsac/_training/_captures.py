"""Captures of models in training, for the sizes of each call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch.utils._pytree import TreeSpec, tree_unflatten

from corsac import _core
from corsac._capture.calls import NO_CALL, Call, state_of
from corsac._capture.collection import no_collection
from corsac._capture.record import Recorded, form_of, named_weights
from corsac._capture.recordings import Entry, ForDynamo, NotForThis, Recordings, random_numbers_kept
from corsac._capture.refusal import Kind, Refusal
from corsac._capture.replay import Replay
from corsac._capture.result_template import ResultTemplate, flat_results
from corsac._capture.rewritten import WrittenInTraining
from corsac._capture.stages import StagedRun, Stages, sizes_of, whole_form
from corsac._engine.module import why_not_plain
from corsac._native.panic import as_compile_error
from corsac._pytorch.autocast import without_autocast
from corsac._training._backend import TrainedGraph
from corsac._training._views import ReturnedViews, without_views
from corsac.fx import Graph, GraphModule, Node
from corsac.fx._module_attributes import _get_attr
from corsac.fx._own_copy import copied_graph
from corsac.fx.convert import to_torch
from corsac.passes._effects import effects
from corsac.passes._writes import written_sources


@dataclass(frozen=True, slots=True)
class TrainedProgram:
    """Compiled program for calls with certain sizes.

    Attributes:
        call: the call that it is for, without its tensors.
        step: forward and backward graph.
    """

    call: Call
    step: _Step
    _statistics: tuple[torch.Tensor, ...]
    _returns: _Returns

    def __call__(self, call: Call) -> Any:
        # As in PyTorch, norms do not raise the version counters of their statistics: autograd would refuse them.
        with torch.autograd._unsafe_preserve_version_counter(self._statistics):
            results = self.step(*call.inputs)
        return self._returns(results, call, {})

    def graphs(self) -> list[TrainedGraph]:
        """Forward and backward graph."""
        return [self.step.graph]

    def explain(self) -> list[str]:
        """Report of native calls, and of those that PyTorch runs, with reasons: lines of text."""
        return self.step.graph.explain().splitlines()

    def reads_only(self, known: Container[int]) -> bool:
        """Whether the ids of all tensors that it reads besides its inputs are in ``known``."""
        return all(id(own) in known for own in self.step.weights)


@dataclass(frozen=True, slots=True)
class TrainedStages:
    """Compiled program for calls with certain sizes whose control flow depends on values: forward and backward graphs
    of its stages, and the values read between them."""

    call: Call
    run: StagedRun
    _weights: list[torch.Tensor]
    _statistics: tuple[torch.Tensor, ...]
    _returns: _Returns

    def __call__(self, call: Call) -> Any:
        with torch.autograd._unsafe_preserve_version_counter(self._statistics):
            results, values = self.run.results(call)
        return self._returns(results, call, values)

    def graphs(self) -> list[TrainedGraph]:
        """Forward and backward graphs."""
        return [own.graph for own in self.run.programs() if isinstance(own, _Step)]

    def explain(self) -> list[str]:
        """Report of native calls, and of those that PyTorch runs, with reasons: lines of text."""
        lines = [line for own in self.graphs() for line in own.explain().splitlines()]
        return [*lines, "values decide:", *(f"  {own}" for own in self.run.reads())]

    def reads_only(self, known: Container[int]) -> bool:
        """As of :class:`TrainedProgram`."""
        return all(id(own) in known for own in self._weights)


@dataclass(frozen=True, slots=True)
class _Returns:
    """Builds the return value of a program from the results of its graphs, and replays its changes of state."""

    template: ResultTemplate | None
    replay: Replay | None

    def __call__(self, results: Any, call: Call, values: Mapping[str, Any]) -> Any:
        if self.replay is not None:
            return self.replay(results, call.inputs, call.met, values)
        return results if self.template is None else self.template.build(results, values=values)

    def changes(self) -> int:
        """Number of changes of state."""
        return 0 if self.replay is None else len(self.replay)


@dataclass(frozen=True, slots=True)
class _Step:
    """A graph, forward and backward, as a function of its inputs.

    Attributes:
        graph: the forward and backward graphs.
        weights: the tensors that it reads besides its inputs.
    """

    graph: TrainedGraph
    weights: list[torch.Tensor]
    _form: TreeSpec
    _views: ReturnedViews | None
    #: Indices of inputs that the graph does not read: the program finds them and only passes them on.
    _idle: tuple[int, ...]

    def __call__(self, *inputs: torch.Tensor) -> Any:
        results = self.graph(*self.weights, *_apart(inputs, self._idle))
        if self._views is not None:
            results = self._views((*self.weights, *inputs), results)
        return tree_unflatten(results[: self._form.num_leaves], self._form)

    @classmethod
    def made(cls, module: GraphModule, inputs: Sequence[torch.Tensor], graph: TrainedGraph) -> Self:
        """Compile a graph, which is changed, for such inputs."""
        with_inputs, weights, form, views = _with_weights_as_inputs(module)
        placeholders = with_inputs.graph.find_nodes(op="placeholder")[len(weights) :]
        idle = tuple(number for number, node in enumerate(placeholders) if not node.users)
        graph.capture(with_inputs, [*weights, *_apart(inputs, idle)], weights=len(weights))
        return cls(graph, weights, form, views, idle)


class Captures(Recordings):
    """Captures of a model for calls that autograd records: forward and backward graphs for the sizes of its calls.

    A graph holds for one state of the model: its modules, their training modes, the contents of Python objects,
    and the parameters that require gradients. A model that alternates between a few states, for instance because
    its parts are trained in turn, gets graphs for each.

    Args:
        model: the owner of the weights.
        program: the function to call: the model itself, or a function of it.
        sizes: largest number of sets of sizes that graphs are made for.
        make: makes an empty graph, with the user's options.
        decides: whether control flow may depend on values.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        program: Callable[..., Any],
        sizes: int,
        make: Callable[[], TrainedGraph],
        decides: bool,
    ) -> None:
        super().__init__(
            model,
            program,
            self._compiled,
            trains=True,
            replays=True,
            sizes=sizes,
            decides=decides,
            casts=True,
        )
        self._new_graph = make
        self._stages: Stages = Stages()

    def key(self, call: Call) -> Any:
        return call.key, tuple(map(_form, call.tensors))

    def may_come_back(self, entry: Entry) -> bool:
        # It may apply again if the model still has its weights, for instance once they require gradients again.
        known = {id(own) for _, own in named_weights(self._model)}
        program = entry.run
        assert isinstance(program, TrainedProgram | TrainedStages)
        return program.reads_only(known) or entry.model_guards.is_current()

    def programs(self) -> list[TrainedProgram | TrainedStages]:
        """All compiled programs."""
        made = [own.run for own in self.entries()]
        return [own for own in made if isinstance(own, TrainedProgram | TrainedStages)]

    def _compiled(self, call: Call, recorded: Recorded) -> Entry:
        known = Call((), call.key, call.objects)
        rewritten = _written_to(recorded)
        statistics, form = tuple(recorded.statistics), recorded.form
        returns = _Returns(recorded.template, recorded.replay)
        state, found = state_of(call, recorded, _why_not_of)
        call.inputs = (*call.tensors, *found)
        if rewritten is not None and not rewritten.are_current(call.inputs):
            raise NotForThis("what it writes to shares memory with something else")
        if found:
            # For found tensors, too, graphs hold for these strides, types and gradients, as :meth:`key` for arguments.
            form = form_of(call.inputs)
        program: TrainedProgram | TrainedStages
        with self._compiling():
            if recorded.stages is None:
                step = _Step.made(recorded.module, call.inputs, self._new_graph())
                program, run = TrainedProgram(known, step, statistics, returns), None
            else:
                if any(own.function is sizes_of for own in recorded.stages.reads()):
                    raise ForDynamo("sizes depend on values, and gradients are wanted")
                graph = recorded.module.graph
                run = StagedRun(
                    recorded.stages,
                    graph,
                    self._stages,
                    self._stage,
                    _model_guards,
                    whole_form,
                    gives_more=False,
                )
                run.prepare(call.inputs)
                program = TrainedStages(known, run, recorded.tensors, statistics, returns)
        return Entry(
            known,
            program,
            recorded.guards,
            _model_guards((*recorded.tensors, *recorded.typed)),
            form,
            state,
            changes=returns.changes() > 0,
            rewritten=rewritten,
            decides=None if run is None else run.decides_quietly,
            decided=lambda: None if run is None else run.failure,
        )

    def _stage(self, module: GraphModule) -> Callable[[Sequence[Any]], Callable[..., Any]]:
        """A function that compiles a stage for given inputs."""

        def compile(inputs: Sequence[Any]) -> Callable[..., Any]:
            own = GraphModule(module, copied_graph(module.graph))
            with self._compiling():
                return _Step.made(own, inputs, self._new_graph())

        return compile

    @contextlib.contextmanager
    def _compiling(self) -> Iterator[None]:
        with (
            as_compile_error("it captured a model for training"),
            no_collection(),
            _without_hooks_of_saved_tensors(),
            random_numbers_kept(),
            without_autocast(),
        ):
            yield


def _apart(inputs: Sequence[torch.Tensor], idle: Sequence[int]) -> Sequence[torch.Tensor]:
    """The inputs, detached at the indices ``idle``."""
    if not idle:
        return inputs
    return [own.detach() if number in idle else own for number, own in enumerate(inputs)]


def _model_guards(weights: Iterable[torch.Tensor]) -> _core.ModelGuards:
    """Guards on the identity of tensors, whatever their values."""
    constants = [(None, own) for own in weights]
    return _core.ModelGuards(torch.nn.Module(), constants=constants, trains=True)


_OBSERVERS = "its fake quantisers have observers that cannot be recorded"


class TrainedModel:
    """A model for calls that autograd records: captured for their sizes, or else by Dynamo.

    Args:
        captures: captures for sizes, tried first.
        program: the model or function to call.
        dynamo: captures the model with Dynamo.
        note: called with the reason and the arguments if PyTorch runs a call as it is.
    """

    def __init__(
        self,
        captures: Captures,
        program: Callable[..., Any],
        dynamo: Callable[[], Callable[..., Any]],
        note: Callable[..., None],
    ) -> None:
        self.captures = captures
        self._program, self._dynamo, self._note = program, dynamo, note
        self._of_dynamo: Callable[..., Any] | None = None
        parts = program.modules() if isinstance(program, torch.nn.Module) else ()
        self._quantises = any(hasattr(own, "fake_quant_enabled") for own in parts)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = self.captures.call(args, kwargs)
        if call is None:
            self._note(NO_CALL, args, kwargs)
            return self._program(*args, **kwargs)
        if _why_not(call) is not None:
            return self._by_dynamo(args, kwargs)
        found = self.captures.find(call)
        if found is None and torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            # Checkpointing counts saved tensors in this call and in its recomputation, so nothing may be recorded now.
            return self._program(*args, **kwargs)
        if isinstance(found, Entry):
            return found.run(call)
        if isinstance(found, Refusal):
            if found.kind is Kind.HOST:
                self._note(found.reason, args, kwargs)
                return self._program(*args, **kwargs)
            return self._by_dynamo(args, kwargs)
        return self.captures.record(call, args, kwargs)[0]

    def _by_dynamo(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._quantises:
            # Dynamo's graphs are cut at observers. One may keep a buffer for the way back that the next one writes to.
            self._note(_OBSERVERS, args, kwargs)
            return self._program(*args, **kwargs)
        if self._of_dynamo is not None:
            return self._of_dynamo(*args, **kwargs)
        self._of_dynamo = self._dynamo()
        with no_collection():
            return self._of_dynamo(*args, **kwargs)


def _why_not(call: Call) -> str | None:
    """Reason why a call cannot be recorded, or None."""
    reasons = (_why_not_of(f"input {number}", own) for number, own in enumerate(call.tensors))
    return next((own for own in reasons if own is not None), None)


def _why_not_of(name: str, tensor: torch.Tensor) -> str | None:
    if (reason := why_not_plain(name, tensor)) is not None:
        return reason
    return f"{name} is to be conjugated or negated" if tensor.is_conj() or tensor.is_neg() else None


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Properties of an input that a graph is specialised to, besides its dtype and sizes."""
    return tensor.stride(), tensor.requires_grad, type(tensor), tensor.is_conj(), tensor.is_neg()


@contextlib.contextmanager
def _without_hooks_of_saved_tensors() -> Iterator[None]:
    """Keep the caller's saved-tensor hooks out of the block: checkpointing counts tensors with them, for instance."""
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is None:
        yield
        return
    with torch.autograd.graph.saved_tensors_hooks(lambda own: own, lambda own: own):
        yield


def _with_weights_as_inputs(
    module: GraphModule,
) -> tuple[torch.fx.GraphModule, list[torch.Tensor], TreeSpec, ReturnedViews | None]:
    """A graph in the form that AOTAutograd takes: inputs are weights and inputs, results are a tuple.

    Returns the graph, the weights, the structure of the results, and the function that rebuilds results that are
    views. ``module`` is changed. Unused random numbers become further results: AOTAutograd would remove them, and
    later random numbers would differ.
    """
    graph = module.graph
    first = next(iter(graph.nodes))
    weights: list[torch.Tensor] = []
    for node in graph.find_nodes(op="get_attr"):
        weights.append(_get_attr(module, str(node.target)))
        with graph.inserting_before(first):
            node.replace_all_uses_with(graph.placeholder(f"weight_{node.name}"))
        graph.erase_node(node)
    output = graph.output_node()
    results, spec = flat_results(output)
    given, views = without_views(graph, results)
    output.args = ((*given, *_unused_random_numbers(graph)),)
    graph.eliminate_dead_code()
    return to_torch(GraphModule(torch.nn.Module(), graph)), weights, spec, views


def _written_to(recorded: Recorded) -> WrittenInTraining | None:
    """The weights, statistics and inputs that a program writes to; None if there are none."""
    module = recorded.module
    written = written_sources(module.graph)
    named = [_get_attr(module, str(own.target)) for own in written if own.op == "get_attr"]
    weights = {id(own): own for own in (*recorded.statistics, *named)}
    placeholders = module.graph.find_nodes(op="placeholder")
    inputs = [number for number, own in enumerate(placeholders) if own in written]
    if not (weights or inputs):
        return None
    return WrittenInTraining(recorded.tensors, weights.values(), inputs)


def _unused_random_numbers(graph: Graph) -> list[Node]:
    """The calls that use random numbers and that neither results nor writes of a graph depend on."""
    known = {node: effects(node) for node in graph.nodes if node.op.startswith("call_")}
    if not any(own.random for own in known.values()):
        return []
    left = [graph.output_node(), *(node for node, own in known.items() if own.mutates)]
    used = set(left)
    while left:
        more = [own for own in left.pop().all_input_nodes if own not in used]
        used.update(more)
        left += more
    return [node for node, own in known.items() if own.random and node not in used]


__all__ = ["Captures", "TrainedModel", "TrainedProgram", "TrainedStages"]
