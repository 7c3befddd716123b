"""Searches for the smallest graph that still has the fault."""

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

#: Limit for a small graph, after which it counts as a hang, in seconds: a forked process on a busy machine
#: has taken 0.3 s.
_LEAST = 0.7
#: Factor on the time that graphs of a size took, for the limit of a graph of that size.
_SLACK = 5.0

#: Stages, repeated until none makes the graph smaller: the name in the progress bar, and the function.
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
    """The time limit is reached."""


class Search:
    """Calls ``fails`` with ever smaller cases and keeps the smallest that has the fault.

    Args:
        case: the whole graph.
        fails: as for :func:`corsac.minify`.
        deadline: end of the whole search, by ``time.monotonic()``.
        patience: limit for one graph, in seconds, after which it counts as a hang.
        isolated: whether ``fails`` is called in processes of their own.
        unused: whether these are forked only from a process in which no backend was used.
        progress: called with the state of the search.
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
        #: Cases with the fault, newest last.
        self.kept = [case]
        self._deadline, self._patience, self._progress = deadline, patience, progress
        self._start = time.monotonic()
        self._whole = max(len(case.calls), 1)
        self._isolated, self._unused = isolated and can_fork(), unused
        self._place: Place = Here()
        self._served = Served()
        # Number of calls and seconds of the graphs tried.
        self._took: list[tuple[int, float]] = []

    def begin(self) -> Fault | None:
        """Try the whole graph, and choose where graphs are tried; None if it has no fault.

        Raises:
            ValueError: PyTorch cannot run the graph.
        """
        if isinstance(self.fails, BackendFails) and isinstance(self._places()[0], Forked):
            # Here once, not in each forked process.
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
        """Make the graph smaller until no stage does any more.

        Raises:
            TimeUp: the deadline has passed.
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
        """Make the graph return a tuple of values, and call functions instead of modules."""
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
        """Whether a case has the fault; if so, it becomes the best."""
        if time.monotonic() > self._deadline:
            raise TimeUp
        calls = len(case.calls)
        try:
            trial = self._place.ask(case, self.fails, self._limit(calls), self.tell)
        except ServerError:
            # The case cannot be sent there: it may not be writable as text, for example.
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
        """Return to the smallest graph that still hangs when given the full time."""
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
        """Whether a hang may only come from threads that do not exist in forked processes."""
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
        """Time limit for a graph of so many calls, estimated from the durations of others."""
        larger = [seconds for size, seconds in self._took if size >= calls]
        if larger:
            expected = min(larger)
        elif self._took:
            expected = max(seconds * calls / size for size, seconds in self._took)
        else:
            return min(self._patience, _LEAST + self._patience * calls / self._whole)
        return min(self._patience, _LEAST + _SLACK * expected)

    def tell(self) -> None:
        """Report the progress."""
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
