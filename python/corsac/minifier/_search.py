"""Asks for the fault in ever smaller graphs."""

from __future__ import annotations

import time
from collections.abc import Callable

from corsac.fx import Node
from corsac.minifier._backend_fails import BackendFails
from corsac.minifier._case import Case
from corsac.minifier._child import can_fork
from corsac.minifier._fault import Fails, Fault
from corsac.minifier._progress import Progress
from corsac.minifier._server import Served, ServerError
from corsac.minifier._shrink import (
    Test,
    bypassed,
    fewer_calls,
    fewer_inputs,
    fewer_results,
    halved,
    truncated,
    without_lead,
)
from corsac.minifier._simplify import own_weights, simpler_values, smaller_sizes
from corsac.minifier._trial import Forked, Here, Place, Trial
from corsac.passes import modules_to_functions

#: How long a small graph may take before it counts as one that hangs, in seconds: a forked process on a
#: busy machine has taken 0.3 s.
_LEAST = 0.7
#: How much longer than a graph of its size took a graph may take.
_SLACK = 5.0

#: What is done in turn, until nothing more goes: its name in the progress bar, and how.
STAGES: tuple[tuple[str, Callable[[Case, Test], Case]], ...] = (
    ("weights", own_weights),
    ("halves", halved),
    ("suffix", truncated),
    ("lead", without_lead),
    ("calls", fewer_calls),
    ("bypass", bypassed),
    ("results", fewer_results),
    ("inputs", fewer_inputs),
    ("sizes", smaller_sizes),
    ("values", simpler_values),
)


class TimeUp(Exception):
    """The time is up."""


class Search:
    """Asks ``fails`` of cases, and keeps the smallest that has the fault.

    Args:
        case: the whole graph.
        fails: as for :func:`corsac.minify`.
        deadline: of the whole search, by ``time.monotonic()``.
        patience: how long a graph may take before it hangs, in seconds.
        isolated: whether ``fails`` is called in processes of their own.
        unused: whether these are forked from a process that has used nothing yet, and from no other.
        progress: what is told of it.
    """

    def __init__(
        self,
        case: Case,
        fails: Fails,
        deadline: float,
        patience: float,
        isolated: bool,
        unused: bool,
        progress: Progress | None,
    ) -> None:
        self.best, self.fails, self.tests, self.stage = case, fails, 0, "whole"
        self.fault = Fault("", "")
        #: What was kept, newest last.
        self.kept = [case]
        self._deadline, self._patience, self._progress = deadline, patience, progress
        self._start = time.monotonic()
        self._whole = max(len(case.calls), 1)
        self._isolated, self._unused = isolated and can_fork(), unused
        self._place: Place = Here()
        self._served = Served()
        # How many calls graphs had that took how long.
        self._took: list[tuple[int, float]] = []

    def begin(self) -> Fault | None:
        """Look at the whole graph, and choose where graphs are looked at: None if it has no fault.

        Raises:
            ValueError: PyTorch cannot run it.
        """
        if isinstance(self.fails, BackendFails) and isinstance(self._places()[0], Forked):
            # Once, and not in each process.
            self.fails.prepare()
        for place in self._places():
            try:
                trial = place.ask(self.best, self.fails, self._patience, self.tell)
            except ServerError:
                continue
            self.tests += 1
            if not trial.runs:
                raise ValueError("expected a graph that PyTorch can run on these inputs")
            if trial.fault is None:
                continue
            self._place, self.fault = place, trial.fault
            self._note(self.best, trial)
            return self.fault
        return None

    def reduce(self) -> None:
        """Make the graph smaller until nothing more goes.

        Raises:
            TimeUp: it is.
        """
        if not _is_flat(self.best):
            self._flatten()
        while True:
            before = self._size()
            for self.stage, shrink in STAGES:
                shrink(self.best, self.test)
            # Fewer results and smaller tensors may make calls superfluous.
            if self._size() >= before:
                return

    def _flatten(self) -> None:
        """Have the graph return a tuple of values, and call functions instead of modules."""
        case = self.best
        (output,) = case.module.graph.find_nodes(op="output")
        body = {n for n in case.module.graph.nodes if n.op not in ("placeholder", "output")}
        values, results = case.values(), set(output.all_input_nodes)
        flat = case.part(body, values, results)
        same = flat is not None and self.test(flat)
        functional = case.part(body, values, results)
        if same and functional and functional.module.graph.find_nodes(op="call_module"):
            modules_to_functions(functional.module)
            self.test(functional)

    def test(self, case: Case) -> bool:
        """Whether a case has the fault; it is the best then."""
        if time.monotonic() > self._deadline:
            raise TimeUp
        calls = len(case.calls)
        try:
            trial = self._place.ask(case, self.fails, self._limit(calls), self.tell)
        except ServerError:
            # It cannot be written as text, for one.
            return False
        if not trial.runs:
            return False
        self.tests += 1
        self._note(case, trial)
        found = trial.fault is not None and trial.fault.signature == self.fault.signature
        if found:
            self.best, self.fault = case, trial.fault
            self.kept.append(case)
        self.tell()
        return found

    @property
    def hangs(self) -> bool:
        """Whether the fault is that a graph hangs."""
        return self.fault.kind == "hangs"

    def confirm(self) -> None:
        """Go back to the smallest graph that hangs however long it is waited for."""
        self.stage = "confirm"
        while self.hangs and len(self.kept) > 1:
            trial = self._place.ask(self.best, self.fails, self._patience, self.tell)
            if trial.fault is not None and trial.fault.signature == self.fault.signature:
                self.fault = trial.fault
                return
            self.kept.pop()
            self.best = self.kept[-1]

    @property
    def may_miss_threads(self) -> bool:
        """Whether a graph that hangs may only wait for threads that forked processes do not have."""
        return isinstance(self._place, Forked) and self.hangs

    def close(self) -> None:
        """End the processes that were started."""
        self._served.close()

    def _places(self) -> list[Place]:
        if not self._isolated:
            return [Here()]
        if self._unused:
            return [self._served]
        if isinstance(self.fails, BackendFails) and isinstance(self.fails.backend, str):
            return [self._served, Forked(), Here()]
        return [Forked(), Here()]

    def _size(self) -> tuple[int, int]:
        nodes = self.best.module.graph.nodes
        return len(self.best.calls), sum(node.op != "output" for node in nodes)

    def _note(self, case: Case, trial: Trial) -> None:
        if trial.fault is None or trial.fault.kind != "hangs":
            self._took.append((max(len(case.calls), 1), trial.seconds))

    def _limit(self, calls: int) -> float:
        """How long a graph of so many calls may take, by how long others took."""
        larger = [seconds for size, seconds in self._took if size >= calls]
        if larger:
            expected = min(larger)
        elif self._took:
            expected = max(seconds * calls / size for size, seconds in self._took)
        else:
            return min(self._patience, _LEAST + self._patience * calls / self._whole)
        return min(self._patience, _LEAST + _SLACK * expected)

    def tell(self) -> None:
        """Say where the search is."""
        if self._progress is not None:
            spent = time.monotonic() - self._start
            self._progress(self.stage, len(self.best.calls), spent)


def _is_flat(case: Case) -> bool:
    """Whether a graph returns a tuple of values, and calls no modules."""
    (output,) = case.module.graph.find_nodes(op="output")
    returned = output.args[0]
    return (
        type(returned) is tuple
        and all(isinstance(own, Node) and own.op.startswith("call_") for own in returned)
        and not case.module.graph.find_nodes(op="call_module")
    )
