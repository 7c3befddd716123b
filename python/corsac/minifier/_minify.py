"""``corsac.minify``: the smallest graph that shows a fault."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from corsac.fx import GraphModule
from corsac.fx.convert import from_torch
from corsac.minifier._case import Case, Fails, signature
from corsac.minifier._script import run_script, script_of
from corsac.minifier._shrink import fewer_calls, fewer_results, simpler_values, smaller_sizes
from corsac.passes import modules_to_functions

#: Called as ``progress(stage, calls left, seconds)``.
Progress = Callable[[str, int, float], None]


@dataclass(frozen=True, slots=True)
class Minified:
    """A small graph with the fault of a large one.

    Attributes:
        module, inputs: the graph and its inputs.
        signature: the fault: what ``fails`` says of both.
        before: how many calls the large graph has.
        tests: how often ``fails`` was asked.
        seconds: how long it took.
        finished: whether nothing was left to try; False if the time was up.
        script: a Python program that shows the fault; None if none could be written.
        verified: whether the script did so in a process of its own.
        reason: why not, if it did not.
    """

    module: GraphModule
    inputs: list[Any]
    signature: str
    before: int
    tests: int
    seconds: float
    finished: bool
    script: str | None
    verified: bool
    reason: str | None

    @property
    def calls(self) -> int:
        """How many calls the graph has."""
        return sum(node.op.startswith("call_") for node in self.module.graph.nodes)

    def save(self, path: str | Path) -> None:
        """Write the script to a file.

        Raises:
            ValueError: there is none.
        """
        if self.script is None:
            raise ValueError(f"expected a script, and there is none: {self.reason}")
        Path(path).write_text(self.script)

    def __str__(self) -> str:
        state = "verified" if self.verified else f"not verified: {self.reason}"
        return (
            f"{self.before} calls became {self.calls} in {self.seconds:.1f} s and {self.tests} tests"
            f"{'' if self.finished else ', when the time was up'}; script {state}\n"
            f"{self.signature}\n{self.module.graph}"
        )


class _TimeUp(Exception):
    pass


class _Search:
    """Asks ``fails`` of cases, and keeps the smallest that has the fault."""

    def __init__(
        self, case: Case, fails: Fails, deadline: float, progress: Progress | None
    ) -> None:
        self.best, self.fails, self.tests, self.stage = case, fails, 0, ""
        self._deadline, self._progress = deadline, progress
        self._start = time.monotonic()
        self.wanted = ""

    def test(self, case: Case) -> bool:
        if time.monotonic() > self._deadline:
            raise _TimeUp
        if not case.runs():
            return False
        self.tests += 1
        found = signature(case, self.fails) == self.wanted
        if found:
            self.best = case
        if self._progress is not None:
            self._progress(self.stage, len(self.best.calls), time.monotonic() - self._start)
        return found


def minify(
    module: GraphModule | torch.fx.GraphModule,
    inputs: Sequence[Any],
    fails: Fails,
    *,
    seconds: float = 60.0,
    progress: bool | Progress = False,
    verify: bool = True,
) -> Minified:
    """The smallest graph, with the smallest inputs, that shows the fault that ``module`` shows.

    Calls are removed by delta debugging, values being replaced by inputs; then results are dropped,
    sizes shrunk and inputs made simple. A smaller graph counts only if PyTorch can run it and the
    fault has the same signature: the class of the exception and its message, without numbers and
    names, or what ``fails`` returns. The result comes with a script, run in a process of its own.

    Args:
        module: a graph, of corsac.fx or torch.fx. Calls of modules of ``torch.nn`` become functions
            of their weights where the fault stays.
        inputs: a value for each of its inputs.
        fails: ``fails(module, inputs)``: raises, or returns True or a text, if there is the fault; False
            or None if there is not. A function at the top level of a module goes into the script with
            what it uses of it.
        seconds: how long it may take; what was reached by then is the result.
        progress: True to show calls left and time on stderr, or a function of the stage and these.
        verify: whether the script is run in a process of its own.

    Raises:
        ValueError: there is no fault, or PyTorch itself cannot run the graph.
    """
    start = time.monotonic()
    case = Case(from_torch(module), list(inputs))
    if not case.runs():
        raise ValueError("expected a graph that PyTorch can run on these inputs")
    report = _show if progress is True else (progress or None)
    search = _Search(case, fails, start + seconds, report)
    search.tests = 1
    wanted = signature(case, fails)
    if wanted is None:
        raise ValueError("expected a fault, and fails() finds none in the whole graph")
    search.wanted = wanted
    finished = True
    try:
        _reduce(search)
    except _TimeUp:
        finished = False
    best = search.best
    script, verified, reason = None, False, None
    try:
        script = script_of(best, fails, wanted)
    except ValueError as error:
        reason = str(error)
    else:
        reason = "not asked for"
        if verify:
            reason = run_script(script, wanted, timeout=max(60.0, seconds))
        verified = reason is None
    if progress is True:
        print(file=sys.stderr)
    return Minified(
        best.module,
        best.inputs,
        wanted,
        len(case.calls),
        search.tests,
        time.monotonic() - start,
        finished,
        script,
        verified,
        reason,
    )


def _reduce(search: _Search) -> None:
    search.stage = "whole"
    case = search.best
    (output,) = case.module.graph.find_nodes(op="output")
    body = {n for n in case.module.graph.nodes if n.op not in ("placeholder", "output")}
    values, results = case.values(), set(output.all_input_nodes)
    # It returns a tuple of values, whatever they were in.
    flat = case.part(body, values, results)
    same = flat is not None and search.test(flat)
    functional = case.part(body, values, results)
    if same and functional is not None and functional.module.graph.find_nodes(op="call_module"):
        modules_to_functions(functional.module)
        search.test(functional)
    while True:
        before = len(search.best.calls)
        for stage, shrink in (
            ("calls", fewer_calls),
            ("results", fewer_results),
            ("sizes", smaller_sizes),
            ("values", simpler_values),
        ):
            search.stage = stage
            shrink(search.best, search.test)
        # Fewer results may make calls superfluous.
        if len(search.best.calls) >= before:
            return


def _show(stage: str, calls: int, seconds: float) -> None:
    print(f"\rminify: {stage}, {calls} calls left, {seconds:.1f} s ", end="", file=sys.stderr)
