"""Recorded programs as graphs for backends."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_unflatten

from corsac import _core
from corsac._capture.calls import Call
from corsac._capture.collection import no_collection
from corsac._capture.record import Recorded
from corsac._capture.recordings import Entry, Recordings
from corsac._capture.result_template import flat_results
from corsac._capture.stages import StagedRun, Stages, whole_form
from corsac.backends._graph_record import GraphRecord
from corsac.fx import GraphModule, Node
from corsac.fx.proxy import TraceError

#: A function that compiles a graph for such inputs with a backend.
HandOver = Callable[[GraphRecord, Sequence[torch.Tensor]], Callable[..., Any]]

#: Lock of calls to backends: one thread at a time.
asking = threading.RLock()


@dataclass(frozen=True, slots=True, eq=False)
class HostedProgram:
    """A graph compiled by a backend, with the function that builds the program's return value.

    Attributes:
        compiled: runs the graph on the tensors of a call.
        assemble: builds the return value of the program from the results of the graph and the values read.
        stages: runs the program if its control flow depends on values, instead of ``compiled``.
        repeats: whether the recorded call changed nothing, so that the backend may repeat it.
        guarded: number of guards that are checked before a call.
    """

    compiled: Callable[..., Any] | None
    assemble: Callable[[Any, Mapping[str, Any]], Any]
    stages: StagedRun | None
    repeats: bool
    guarded: int

    def __call__(self, call: Call) -> Any:
        if self.stages is not None:
            return self.assemble(*self.stages.results(call))
        assert self.compiled is not None
        return self.assemble(self.compiled(*call.tensors), {})


class HostedPrograms(Recordings):
    """The programs of a model that a backend runs: one for each set of input types and modes of PyTorch.

    Args:
        model: the owner of the weights.
        program: the function to call: the model itself, or a function of it.
        hand_over: compiles a graph with the backend.
        copies_weights: whether to compile again with the backend after writes to weights.
        decides: whether control flow may depend on values.
    """

    failures = (TraceError,)

    def __init__(
        self,
        model: torch.nn.Module,
        program: Callable[..., Any],
        hand_over: HandOver,
        copies_weights: bool,
        decides: bool,
    ) -> None:
        # Graphs may use random numbers and write to buffers, whether autograd records or not.
        super().__init__(model, program, self._compiled, trains=True, decides=decides)
        self._hand_over, self._copies_weights = hand_over, copies_weights
        self._stages: Stages = Stages()

    def key(self, call: Call) -> Any:
        tensors = call.tensors
        places: dict[int, int] = {}
        shared = tuple(
            places.setdefault(own.untyped_storage()._cdata, n) for n, own in enumerate(tensors)
        )
        if len(places) < len(tensors):
            shared += tuple(own.storage_offset() for own in tensors)
        device = tensors[0].device.type if tensors else "cpu"
        autocast = torch.is_autocast_enabled(device)
        return (
            call.key,
            tuple((own.stride(), own.device, own.requires_grad) for own in tensors),
            shared,
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            autocast and torch.get_autocast_dtype(device),
        )

    def may_come_back(self, entry: Entry) -> bool:
        return not self._copies_weights or entry.model_guards.is_current()

    def _making(self) -> contextlib.AbstractContextManager[Any]:
        # Backends may temporarily replace weights by other tensors.
        return asking

    def _compiled(self, call: Call, recorded: Recorded) -> Entry:
        with no_collection():
            found = self.find(call)
            if isinstance(found, Entry):
                # Another thread has compiled it meanwhile.
                return found
            model_guards = self._model_guards(recorded.tensors, recorded.typed)
            if recorded.stages is None:
                assemble, stages = _results_in_a_tuple(recorded), None
                compiled = self._asked(recorded.module, recorded.seconds)(call.tensors)
            else:
                assemble, compiled = _returned(recorded), None
                graph = recorded.module.graph
                stages = StagedRun(
                    recorded.stages,
                    graph,
                    self._stages,
                    self._asked,
                    self._model_guards,
                    whole_form,
                )
                stages.prepare(call.tensors)
        program = HostedProgram(compiled, assemble, stages, recorded.repeats, len(recorded.guards))
        return Entry(
            Call((), call.key, call.objects),
            program,
            recorded.guards,
            model_guards,
            recorded.form,
            decides=None if stages is None else stages.decides,
            decided=lambda: None if stages is None else stages.failure,
        )

    def _asked(
        self, module: GraphModule, seconds: float = 0.0
    ) -> Callable[[Sequence[Any]], Callable[..., Any]]:
        """A function that compiles a graph for given inputs with the backend."""

        def compile(inputs: Sequence[Any]) -> Callable[..., Any]:
            with asking, no_collection():
                module.recompile()
                return self._hand_over(GraphRecord(module, inputs, "corsac", seconds), inputs)

        return compile

    def _model_guards(
        self, weights: Iterable[torch.Tensor], typed: Iterable[torch.Tensor] = ()
    ) -> _core.ModelGuards:
        return _core.ModelGuards(
            torch.nn.Module(),
            constants=[(None, own) for own in weights],
            trains=not self._copies_weights,
            typed=list(typed),
        )


def _returned(recorded: Recorded) -> Callable[[Any, Mapping[str, Any]], Any]:
    """A function that builds the program's return value from the graph's results and the values read."""
    template = recorded.template
    if template is None:
        return lambda results, values: results
    return lambda results, values: template.build(results, values=values)


def _results_in_a_tuple(recorded: Recorded) -> Callable[[Any, Mapping[str, Any]], Any]:
    """Change a graph to return a tuple of distinct values.

    Returns:
        A function that builds the program's return value from these; its second argument is not used.
    """
    output = recorded.module.graph.output_node()
    returned, spec = flat_results(output)
    places: dict[Node, int] = {}
    order = [places.setdefault(node, len(places)) for node in returned]
    output.args = (tuple(places),)
    template = recorded.template

    def assemble(results: Sequence[Any], _: Mapping[str, Any]) -> Any:
        leaves = [results[place] for place in order]
        return tree_unflatten(leaves, spec) if template is None else template.build(leaves)

    return assemble


__all__ = ["HostedProgram", "HostedPrograms", "asking"]
