"""``corsac.minify``: the smallest graph that shows a fault."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from corsac._models.example_inputs import ExampleInputs, as_tuple
from corsac.fx import GraphModule
from corsac.fx.convert import from_torch
from corsac.minifier._case import Case
from corsac.minifier._fault import Fails, Fault
from corsac.minifier._progress import Bar, Progress
from corsac.minifier._script import run_script, script_of
from corsac.minifier._search import Search, TimeUp


class NoFault(ValueError):
    """The graph to be made smaller has no fault, or another one than expected."""


@dataclass(frozen=True, slots=True)
class Minified:
    """A small graph with the fault of a large one.

    Attributes:
        module, inputs: the graph and its inputs.
        fault: its fault, with the message in full.
        before: number of calls of the large graph.
        tests: number of calls of ``fails``.
        seconds: duration.
        finished: whether nothing was left to try; False if time ran out.
        script: a Python program that shows the fault; None if none could be written.
        verified: whether the script showed the fault in a process of its own.
        reason: the reason if it did not.
    """

    module: GraphModule
    inputs: list[Any]
    fault: Fault
    before: int
    tests: int
    seconds: float
    finished: bool
    script: str | None
    verified: bool
    reason: str | None

    @property
    def signature(self) -> str:
        """Signature of the fault, the same for both graphs."""
        return self.fault.signature

    @property
    def calls(self) -> int:
        """Number of calls of the graph."""
        return sum(node.op.startswith("call_") for node in self.module.graph.nodes)

    def save(self, path: str | Path) -> None:
        """Write the script to a file, and the graph's text beside it: ``fault.py`` and ``fault.graph``.

        Raises:
            ValueError: there is no script.
        """
        if self.script is None:
            raise ValueError(f"expected a script, and there is none: {self.reason}")
        path = Path(path)
        path.write_text(self.script)
        path.with_suffix(".graph").write_text(f"{self.module.graph}\n")

    def __str__(self) -> str:
        state = "verified" if self.verified else f"not verified: {self.reason}"
        return (
            f"{self.before} calls became {self.calls} in {self.seconds:.1f} s and {self.tests} tests"
            f"{'' if self.finished else ', when the time was up'}; script {state}\n"
            f"{self.signature}\n{self.module.graph}"
        )


def minify(
    module: GraphModule | torch.fx.GraphModule,
    inputs: ExampleInputs,
    fails: Fails,
    *,
    seconds: float = 60.0,
    hang_seconds: float = 30.0,
    progress: bool | Progress = False,
    verify: bool = True,
    isolate: bool = True,
    expected: str | None = None,
) -> Minified:
    """Find the smallest graph, with the smallest inputs, that shows the fault of ``module``.

    Calls are removed by bisection and delta debugging, their values becoming inputs; then results and inputs
    are dropped or merged, sizes of inputs and weights reduced, and values simplified. A smaller graph counts
    only if PyTorch can run it and its fault has the same signature: the class of the exception and its
    message, without numbers and names; the signal of a crash; a hang; or the value that ``fails`` returns.
    The result comes with a script, which is run in a process of its own.

    Args:
        module: a graph, of corsac.fx or torch.fx: of a model, of ``torch.compile``, of AOTAutograd.
            Calls of modules of ``torch.nn`` become functions of their weights where the fault stays.
        inputs: a tensor, or a tuple with a value for each input of the graph.
        fails: ``fails(module, inputs)``: raises, or returns True or a text, if there is the fault; returns
            False or None if there is not. It may crash or hang. :class:`corsac.minifier.BackendFails` is such
            a function for a backend. Its source goes into the script.
        seconds: limit for the whole search; the smallest graph found by then is the result.
        hang_seconds: limit for a call of ``fails``, after which it counts as a hang.
        progress: True for a bar on stderr, with calls left and time, or a function of the stage and these.
        verify: whether the script is run in a process of its own.
        isolate: whether ``fails`` is called in forked processes, which may crash. Where processes cannot
            be forked (on Windows, and once CUDA is used) it is called in this one.
        expected: the signature of the fault to look for; by default that of the whole graph.

    Raises:
        NoFault: there is no fault, or it is not the expected one; a ``ValueError``.
        ValueError: PyTorch itself cannot run the graph.
    """
    start = time.monotonic()
    case = Case(from_torch(module), list(as_tuple(inputs)))
    bar = Bar(len(case.calls), seconds) if progress is True else None
    patience = hang_seconds if verify else None

    def found(unused: bool) -> tuple[Minified, bool]:
        """Run a search; return its result, and whether the hang may come from missing threads."""
        report = bar or progress or None
        search = Search(case, fails, start + seconds, hang_seconds, isolate, unused, report)
        try:
            finished = _reduced(search, expected)
            result = _result(search, case, finished, start, patience)
        finally:
            search.close()
            if bar is not None:
                bar.close("done", len(search.best.calls), time.monotonic() - start)
        return result, search.may_miss_threads

    result, doubtful = found(unused=False)
    if doubtful and verify and result.script is not None and not result.verified:
        result, _ = found(unused=True)
    return result


def _reduced(search: Search, expected: str | None) -> bool:
    """Make the graph smaller; return whether the search was completed.

    Raises:
        NoFault: there is no fault, or not the expected one.
        ValueError: PyTorch cannot run the graph.
    """
    fault = search.begin()
    if fault is None:
        raise NoFault("expected a fault, and fails() finds none in the whole graph")
    if expected is not None and fault.signature != expected:
        raise NoFault(f"expected the fault {expected!r}, and it is {fault.signature!r}")
    finished = True
    try:
        with torch.set_grad_enabled(getattr(search.fails, "grad", False)):
            search.reduce()
    except TimeUp:
        finished = False
    return finished


def _result(
    search: Search, case: Case, finished: bool, start: float, patience: float | None
) -> Minified:
    """The result, with a script that is run for up to ``patience`` seconds; not run if that is None."""
    before = len(case.calls)
    script, reason = _tried_script(search, before, patience)
    if search.hangs and reason is not None:
        # On a busy machine a graph may only have exceeded its reduced limit.
        smallest = search.best
        search.confirm()
        if search.best is not smallest:
            script, reason = _tried_script(search, before, patience)
    return Minified(
        search.best.module,
        search.best.inputs,
        search.fault,
        before,
        search.tests,
        time.monotonic() - start,
        finished,
        script,
        reason is None,
        reason,
    )


def _tried_script(
    search: Search, before: int, patience: float | None
) -> tuple[str | None, str | None]:
    """A script, and the reason if it is not verified."""
    try:
        script = script_of(search.best, search.fails, search.fault, before)
    except ValueError as error:
        return None, str(error)
    search.stage = "verify"
    search.tell()
    if patience is None:
        return script, "not asked for"
    return script, run_script(script, search.fault.signature, patience)
