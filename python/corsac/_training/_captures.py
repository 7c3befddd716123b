"""Models in training, captured for the sizes of a call."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from corsac import _core
from corsac._collection import no_collection
from corsac._compile import why_not_plain
from corsac._panic import as_compile_error
from corsac._python_state import PythonState
from corsac._result_template import ResultTemplate
from corsac._sized_capture import SizedCapture, sized_capture
from corsac._sized_programs import Call
from corsac._training._backend import TrainedGraph
from corsac.fx import GraphModule
from corsac.fx._module_attributes import _get_attr
from corsac.fx.convert import to_torch
from corsac.fx.proxy import TraceError


@dataclass(frozen=True, slots=True)
class TrainedProgram:
    """What runs calls of some sizes.

    Attributes:
        call: the arguments that it is for, without them.
        graph: forward and backward graph.
    """

    call: Call
    graph: TrainedGraph
    _weights: list[torch.Tensor]
    _form: TreeSpec | ResultTemplate

    def __call__(self, inputs: Sequence[torch.Tensor]) -> Any:
        results = self.graph(*self._weights, *inputs)
        if isinstance(self._form, ResultTemplate):
            return self._form.build(results)
        return tree_unflatten(results, self._form)

    @classmethod
    def made(cls, call: Call, capture: SizedCapture, graph: TrainedGraph) -> Self:
        """Compiles what was captured for ``call``."""
        module, weights, form = _with_weights_as_inputs(capture)
        inputs = [*weights, *call.tensors]
        graph.capture(module, inputs, weights=len(weights))
        return cls(Call((), call.key), graph, weights, form)


@dataclass(slots=True)
class _Situation:
    """A model as it was, and the programs that were made for that, or why there is none."""

    watch: _core.Watch
    programs: dict[Any, TrainedProgram | TraceError] = field(default_factory=dict)


class Captures:
    """What runs a model where autograd records: forward and backward graphs for the sizes of its calls.

    A graph is for a model as it is: modules, whether they train, what Python objects hold, and which
    parameters want gradients. A model that changes between a few such situations, as those do whose
    parts train in turn, has graphs for each.

    Args:
        model: has the weights.
        program: is called; the model itself, or a function.
        limit: how many graphs are made; calls that need another one are for who makes symbols of sizes.
        make: an empty graph, with the user's options.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        program: Callable[..., Any],
        limit: int,
        make: Callable[[], TrainedGraph],
    ) -> None:
        self._model, self._program = model, program
        self._left, self._make = limit, make
        #: The one of the last call is the first.
        self._situations: list[_Situation] = []
        # Captures take turns: each looks whether the model is left as it was.
        self._lock = threading.RLock()

    @property
    def is_full(self) -> bool:
        """Whether no more graphs are made."""
        return self._left <= 0

    def program(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[TrainedProgram, Sequence[torch.Tensor]] | TraceError:
        """What runs a call, and the tensors among its arguments; or why there is none."""
        call = Call.of(args, kwargs)
        if call is None:
            return TraceError("an argument is neither a tensor nor a constant")
        key = (call.key, tuple(map(_form, call.tensors)), _settings())
        situation = self._current()
        found = None if situation is None else situation.programs.get(key)
        if found is None:
            with self._lock:
                found = self._captured(call, key, args, kwargs)
        return found if isinstance(found, TraceError) else (found, call.tensors)

    def programs(self) -> list[TrainedProgram]:
        """All that there are."""
        situations = list(self._situations)
        found = (own for situation in situations for own in list(situation.programs.values()))
        return [own for own in found if isinstance(own, TrainedProgram)]

    def _current(self) -> _Situation | None:
        """The situation that the model is in, if programs were made for it."""
        for own in self._situations:
            if own.watch.is_current():
                if own is not self._situations[0]:
                    self._situations = [own, *(it for it in self._situations if it is not own)]
                return own
        return None

    def _captured(
        self, call: Call, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> TrainedProgram | TraceError:
        situation = self._current()
        if situation is None:
            if self.is_full:
                return TraceError("it was captured in too many situations")
            state = PythonState.of(self._model, self._program)
            situation = _Situation(_core.Watch(self._model, list(state.entries()), trains=True))
            # Those whose tensors are gone do not come back.
            kept = [own for own in self._situations if own.watch.has_same_tensors()]
            self._situations = [situation, *kept]
        found = situation.programs.get(key)
        if found is not None:
            # Of another thread.
            return found
        if self.is_full:
            return TraceError("it was called with too many sets of sizes")
        self._left -= 1
        made: TrainedProgram | TraceError
        try:
            if situation.watch.has_hooks:
                raise TraceError("modules have hooks")
            for number, own in enumerate(call.tensors):
                if (reason := why_not_plain(number, own)) is not None:
                    raise TraceError(reason)
                if own.is_conj() or own.is_neg():
                    raise TraceError(f"input {number} is to be conjugated or negated")
            with (
                as_compile_error("it captured a model for training"),
                no_collection(),
                _without_hooks_of_saved_tensors(),
            ):
                capture = sized_capture(self._model, self._program, args, kwargs, trains=True)
                made = TrainedProgram.made(call, capture, self._make())
        except Exception as error:
            # A new one: the error knows frames, which have the arguments.
            made = TraceError(f"{type(error).__name__}: {error}")
        situation.programs[key] = made
        return made


class TrainedModel:
    """A model for calls that autograd records: captured for their sizes, or by Dynamo where that cannot be done.

    Args:
        captures: are asked first.
        dynamo: captures the model with Dynamo; is told whether sizes are to be symbols from the start, because
            there are many sets of them.
    """

    def __init__(self, captures: Captures, dynamo: Callable[[bool], Callable[..., Any]]) -> None:
        self.captures = captures
        self._dynamo = dynamo
        self._of_dynamo: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = self.captures.program(args, kwargs)
        if not isinstance(found, TraceError):
            program, inputs = found
            return program(inputs)
        if self._of_dynamo is not None:
            return self._of_dynamo(*args, **kwargs)
        self._of_dynamo = self._dynamo(self.captures.is_full)
        with no_collection():
            return self._of_dynamo(*args, **kwargs)


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What a graph is for besides the type and the sizes of an input."""
    return tensor.stride(), tensor.requires_grad, type(tensor), tensor.is_conj(), tensor.is_neg()


@contextlib.contextmanager
def _without_hooks_of_saved_tensors() -> Iterator[None]:
    """What autograd saves in the block is not for the caller's hooks: checkpoints count it, for instance."""
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is None:
        yield
        return
    with torch.autograd.graph.saved_tensors_hooks(lambda own: own, lambda own: own):
        yield


def _settings() -> tuple[Any, ...]:
    """What PyTorch's functions depend on besides their arguments."""
    return (
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        bool(torch.nn.modules.module._has_any_global_hook()),
    )


def _with_weights_as_inputs(
    capture: SizedCapture,
) -> tuple[torch.fx.GraphModule, list[torch.Tensor], TreeSpec | ResultTemplate]:
    """The graph as AOTAutograd takes it: of weights and inputs, with results in a tuple; the weights;
    and what makes of the results what the program returns."""
    module = capture.module
    graph = module.graph
    first = next(iter(graph.nodes))
    weights: list[torch.Tensor] = []
    for node in graph.find_nodes(op="get_attr"):
        weights.append(_get_attr(module, str(node.target)))
        with graph.inserting_before(first):
            node.replace_all_uses_with(graph.placeholder(f"weight_{node.name}"))
        graph.erase_node(node)
    output = graph.output_node()
    results, spec = tree_flatten(output.args[0])
    output.args = (tuple(results),)
    return to_torch(GraphModule(torch.nn.Module(), graph)), weights, capture.template or spec


__all__ = ["Captures", "TrainedModel", "TrainedProgram"]
