"""Models in training, captured for the sizes of a call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch.utils._pytree import TreeSpec, tree_unflatten

from corsac import _core
from corsac._collection import no_collection
from corsac._engine_module import why_not_plain
from corsac._panic import as_compile_error
from corsac._record import Recorded, named_weights
from corsac._recorder import Kind, Refusal
from corsac._recordings import Call, Entry, Recordings
from corsac._result_template import ResultTemplate, flat_results
from corsac._training._backend import TrainedGraph
from corsac.fx import GraphModule
from corsac.fx._module_attributes import _get_attr
from corsac.fx.convert import to_torch


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
    _statistics: tuple[torch.Tensor, ...]
    _form: TreeSpec | ResultTemplate

    def __call__(self, inputs: Sequence[torch.Tensor]) -> Any:
        # PyTorch does not count what norms write to their statistics, and neither does autograd expect it.
        with torch.autograd._unsafe_preserve_version_counter(self._statistics):
            results = self.graph(*self._weights, *inputs)
        if isinstance(self._form, ResultTemplate):
            return self._form.build(results)
        return tree_unflatten(results, self._form)

    def reads_only(self, known: Container[int]) -> bool:
        """Whether all tensors that it reads and that are no inputs have these identities."""
        return all(id(own) in known for own in self._weights)

    @classmethod
    def made(cls, call: Call, recorded: Recorded, graph: TrainedGraph) -> Self:
        """Compiles what was recorded of ``call``."""
        module, weights, form = _with_weights_as_inputs(recorded)
        inputs = [*weights, *call.tensors]
        graph.capture(module, inputs, weights=len(weights))
        known = Call((), call.key, call.objects)
        return cls(known, graph, weights, tuple(recorded.statistics), form)


class Captures(Recordings):
    """What runs a model where autograd records: forward and backward graphs for the sizes of its calls.

    A graph is for a model as it is: modules, whether they train, what Python objects hold, and which
    parameters want gradients. A model that changes between a few such situations, as those do whose
    parts train in turn, has graphs for each.

    Args:
        model: has the weights.
        program: is called; the model itself, or a function.
        sizes: for how many sets of sizes there are graphs.
        make: an empty graph, with the user's options.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        program: Callable[..., Any],
        sizes: int,
        make: Callable[[], TrainedGraph],
    ) -> None:
        super().__init__(model, program, self._compiled, trains=True, sizes=sizes)
        self._new_graph = make

    def key(self, call: Call) -> Any:
        return call.key, tuple(map(_form, call.tensors))

    def may_come_back(self, entry: Entry) -> bool:
        # Weights are read anew in each step: if they are still there, and want gradients again.
        known = {id(own) for _, own in named_weights(self._model)}
        program = entry.run
        assert isinstance(program, TrainedProgram)
        return program.reads_only(known) or entry.watch.is_current()

    def programs(self) -> list[TrainedProgram]:
        """All that there are."""
        return [own.run for own in self.entries() if isinstance(own.run, TrainedProgram)]

    def _compiled(self, call: Call, recorded: Recorded) -> Entry:
        watch = _core.Watch(
            torch.nn.Module(), constants=[(None, own) for own in recorded.tensors], trains=True
        )
        with (
            as_compile_error("it captured a model for training"),
            no_collection(),
            _without_hooks_of_saved_tensors(),
        ):
            program = TrainedProgram.made(call, recorded, self._new_graph())
        return Entry(program.call, program, recorded.guards, watch, recorded.form)


class TrainedModel:
    """A model for calls that autograd records: captured for their sizes, or by Dynamo where that cannot be done.

    Args:
        captures: are asked first.
        program: what is called.
        dynamo: captures the model with Dynamo.
        note: is told why PyTorch runs a call as it is.
    """

    def __init__(
        self,
        captures: Captures,
        program: Callable[..., Any],
        dynamo: Callable[[], Callable[..., Any]],
        note: Callable[[str], None],
    ) -> None:
        self.captures = captures
        self._program, self._dynamo, self._note = program, dynamo, note
        self._of_dynamo: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = self.captures.call(args, kwargs)
        if call is None or _why_not(call) is not None:
            return self._by_dynamo(args, kwargs)
        found = self.captures.find(call)
        if found is None and torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            # Checkpoints count what is saved, in this call and when it is made again.
            return self._program(*args, **kwargs)
        if isinstance(found, Entry):
            return found.run(call.tensors)
        if isinstance(found, Refusal):
            if found.kind is Kind.HOST:
                self._note(found.reason)
                return self._program(*args, **kwargs)
            return self._by_dynamo(args, kwargs)
        return self.captures.record(call, args, kwargs)[0]

    def _by_dynamo(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._of_dynamo is not None:
            return self._of_dynamo(*args, **kwargs)
        self._of_dynamo = self._dynamo()
        with no_collection():
            return self._of_dynamo(*args, **kwargs)


def _why_not(call: Call) -> str | None:
    """Why nothing can be recorded of a call."""
    for number, own in enumerate(call.tensors):
        if (reason := why_not_plain(f"input {number}", own)) is not None:
            return reason
        if own.is_conj() or own.is_neg():
            return f"input {number} is to be conjugated or negated"
    return None


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


def _with_weights_as_inputs(
    recorded: Recorded,
) -> tuple[torch.fx.GraphModule, list[torch.Tensor], TreeSpec | ResultTemplate]:
    """The graph as AOTAutograd takes it: of weights and inputs, with results in a tuple; the weights;
    and what makes of the results what the program returns."""
    module = recorded.module
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
    output.args = (tuple(results),)
    return to_torch(GraphModule(torch.nn.Module(), graph)), weights, recorded.template or spec


__all__ = ["Captures", "TrainedModel", "TrainedProgram"]
