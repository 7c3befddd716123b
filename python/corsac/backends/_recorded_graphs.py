"""Recorded programs as graphs for backends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_unflatten

from corsac import _core
from corsac._collection import no_collection
from corsac._record import Recorded
from corsac._recordings import Call, Entry, Recordings
from corsac._result_template import flat_results
from corsac.backends._graph_record import GraphRecord
from corsac.fx import Node
from corsac.fx.proxy import TraceError

#: Asks a backend for what runs a graph with such inputs.
HandOver = Callable[[GraphRecord, Sequence[torch.Tensor]], Callable[..., Any]]

#: Backends are asked by one thread at a time.
asking = threading.RLock()


@dataclass(frozen=True, slots=True, eq=False)
class HostedProgram:
    """What a backend made of a graph, and what makes of its results what the program returns.

    Attributes:
        repeats: whether the call that was recorded changed nothing, so that the backend may make it anew.
        guarded: how many places in Python are looked at before a call.
    """

    compiled: Callable[..., Any]
    assemble: Callable[[Sequence[Any]], Any]
    repeats: bool
    guarded: int

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Any:
        return self.assemble(self.compiled(*tensors))


class HostedPrograms(Recordings):
    """The programs of a model that a backend runs: one for each kind of inputs, and modes of PyTorch.

    Args:
        model: has the weights.
        program: is called; the model itself, or a function.
        hand_over: asks the backend.
        copies_weights: whether the backend is to be asked again when weights were written to.
    """

    failures = (TraceError,)

    def __init__(
        self,
        model: torch.nn.Module,
        program: Callable[..., Any],
        hand_over: HandOver,
        copies_weights: bool,
    ) -> None:
        # Graphs may draw random numbers and write to buffers; whether autograd records or not.
        super().__init__(model, program, self._compiled, trains=True)
        self._hand_over, self._copies_weights = hand_over, copies_weights

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
        return not self._copies_weights or entry.watch.is_current()

    def _compiled(self, call: Call, recorded: Recorded) -> Entry:
        with asking, no_collection():
            found = self.find(call)
            if isinstance(found, Entry):
                # Another thread has asked meanwhile.
                return found
            watch = _core.Watch(
                torch.nn.Module(),
                constants=[(None, own) for own in recorded.tensors],
                trains=not self._copies_weights,
            )
            assemble = _results_in_a_tuple(recorded)
            module = recorded.module
            module.recompile()
            record = GraphRecord(module, call.tensors, "corsac", recorded.seconds)
            compiled = self._hand_over(record, call.tensors)
        program = HostedProgram(compiled, assemble, recorded.repeats, len(recorded.guards))
        known = Call((), call.key, call.objects)
        return Entry(known, program, recorded.guards, watch, recorded.form)


def _results_in_a_tuple(recorded: Recorded) -> Callable[[Sequence[Any]], Any]:
    """Changes a graph to return a tuple of different values.

    Returns:
        A function of these values that gives what the program returns.
    """
    output = recorded.module.graph.output_node()
    returned, spec = flat_results(output)
    places: dict[Node, int] = {}
    order = [places.setdefault(node, len(places)) for node in returned]
    output.args = (tuple(places),)
    template = recorded.template

    def assemble(results: Sequence[Any]) -> Any:
        leaves = [results[place] for place in order]
        return tree_unflatten(leaves, spec) if template is None else template.build(leaves)

    return assemble


__all__ = ["HostedProgram", "HostedPrograms", "asking"]
