"""Pass manager: runs passes one after the other and checks each."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from corsac import _core
from corsac._models.example_inputs import ExampleInputs, as_tuple
from corsac.fx.graph_module import GraphModule
from corsac.passes._agreement import Agreement, compare_outputs, default_tolerance
from corsac.passes._budget import Budget, rewrite_budget
from corsac.passes._execution import Execution, Run
from corsac.passes._report import Report, Site

#: A pass: changes a graph module in place, or returns another one, by itself or as the
#: ``graph_module`` of a result.
Pass = Callable[[GraphModule], Any]


class VerificationError(AssertionError):
    """A pass changed what the program computes, or left a graph that is not well formed.

    Attributes:
        pass_name: the first pass after which the result differs.
        node: the first node whose value differs from that of the node of the same name before the
            pass, if one was found.
        report: the report of the pass, if it made one.
    """

    def __init__(
        self, message: str, pass_name: str, node: str | None = None, report: Report | None = None
    ) -> None:
        super().__init__(message)
        self.pass_name, self.node, self.report = pass_name, node, report


@dataclass(frozen=True, slots=True)
class Step:
    """The run of one pass.

    Attributes:
        name: the pass.
        report: its report; derived from the graph for passes that do not report.
        seconds: its duration, without checks.
        agreement: difference between the results before and after; None without verification.
    """

    name: str
    report: Report
    seconds: float
    agreement: Agreement | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a :class:`PassManager`; true if a graph has changed.

    Attributes:
        graph_module: the result: the module passed in, unless a pass returned another one.
        steps: the passes in order.
        tolerance: allowed difference, relative to the largest value.
    """

    graph_module: GraphModule
    steps: tuple[Step, ...]
    tolerance: float | None = None

    @property
    def reports(self) -> list[Report]:
        """The report of each pass."""
        return [step.report for step in self.steps]

    @property
    def modified(self) -> bool:
        """Whether a graph has changed."""
        return any(report.changed for report in self.reports)

    @property
    def changes(self) -> int:
        """Number of changes made."""
        return sum(report.count for report in self.reports)

    def __bool__(self) -> bool:
        return self.modified

    def __str__(self) -> str:
        lines = []
        for step in self.steps:
            checked = "" if step.agreement is None else f", error {step.agreement.error:.1e}"
            lines.append(f"[{step.seconds * 1e3:.1f} ms{checked}] {step.report}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Culprit:
    """The one change that makes the result differ.

    Attributes:
        pass_name: the pass that made it.
        change: its number, counted from 1 over all passes.
        site: its place; None for a pass that does not report.
        node: the first node whose value the change alters.
        detail: description of the difference between the results.
    """

    pass_name: str
    change: int
    site: Site | None
    node: str | None
    detail: str

    def __str__(self) -> str:
        where = f" at {self.site.node} ({self.site.target})" if self.site else ""
        first = f"; the first value that differs is that of {self.node}" if self.node else ""
        return f"change {self.change}, by {self.pass_name}{where}: {self.detail}{first}"


@dataclass(slots=True)
class PassManager:
    """Runs passes in order.

    A pass is a function of a :class:`corsac.fx.GraphModule` that changes it in place, or returns
    another one, by itself or as the ``graph_module`` of a result. The verifier checks the graph after
    each pass. With ``verify``, the module is run before and after each pass, on copies of these
    inputs, from the same random state and with buffers restored, and results, inputs and buffers
    that were written to are compared.

    Args:
        passes: the passes, in order.
        verify: a tensor, or a tuple of positional inputs, to run on.
        tolerance: allowed difference, relative to the largest value; by default 1e-4 for float32,
            1e-9 for float64, 1e-2 for float16, 5e-2 for bfloat16, none for integers.
        stop_after: largest number of changes in all; unlimited by default. A pass that does not
            support a :class:`Budget` counts as one change.

    Example::

        manager = PassManager(
            [corsac.passes.remove_dropout, corsac.passes.fuse_conv_bn], verify=(x,)
        )
        outcome = manager(gm)
        print(outcome)

    Raises:
        VerificationError: from calls; a pass changed what the program computes.
    """

    passes: Sequence[Pass]
    verify: ExampleInputs | None = None
    tolerance: float | None = None
    stop_after: int | None = None
    _names: list[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._names = [_name(step) for step in self.passes]

    def __call__(self, gm: GraphModule) -> Outcome:
        """Run the passes on ``gm``."""
        with rewrite_budget(self.stop_after) as budget:
            return self._run(gm, budget, self._execution())

    def bisect(self, gm: GraphModule) -> Culprit | None:
        """The one change with which the result differs, found by running the passes on copies of
        ``gm`` with ever fewer changes. ``gm`` stays as it is; None if nothing differs.

        Needs ``verify``. A failure that takes several changes is laid to the last of them.
        """
        execution = self._execution()
        if execution is None:
            raise ValueError("bisect compares results: make the PassManager with verify=inputs")
        expected = execution.run(gm)
        tolerance = self._tolerance(expected)

        @functools.cache
        def attempt(changes: int | None) -> tuple[Outcome, int, str | None]:
            with rewrite_budget(changes) as budget:
                outcome = self._run(_copy(gm), budget, None)
            try:
                found = execution.run(outcome.graph_module)
            except Exception as error:
                return outcome, budget.spent, f"{type(error).__name__}: {error}"
            return outcome, budget.spent, _difference(expected, found, tolerance)[1]

        _, changes, detail = attempt(None)
        if detail is None:
            return None
        if changes == 0 or attempt(0)[2] is not None:
            raise ValueError("the result differs without any change that could be left out")
        change = _core.first_failing(changes, lambda n: attempt(n)[2] is not None)
        (before, _, _), (after, _, detail) = attempt(change - 1), attempt(change)
        for step, earlier in zip(after.steps, before.steps, strict=True):
            new = [s for s in step.report.applied if s not in earlier.report.applied]
            if new or step.report.count > earlier.report.count:
                node = _first_difference(
                    execution, before.graph_module, after.graph_module, tolerance
                )
                site = new[0] if new else None
                return Culprit(step.name, change, site, node, detail or "")
        raise AssertionError("a change was made that no pass reports")

    def _execution(self) -> Execution | None:
        if self.verify is None:
            return None
        inputs = as_tuple(self.verify)
        return Execution(inputs)

    def _tolerance(self, run: Run) -> float:
        return default_tolerance(run.result) if self.tolerance is None else self.tolerance

    def _run(self, gm: GraphModule, budget: Budget, execution: Execution | None) -> Outcome:
        expected = None if execution is None else execution.run(gm)
        tolerance = None if expected is None else self._tolerance(expected)
        steps = []
        for name, transform in zip(self._names, self.passes, strict=True):
            before = None if execution is None else _copy(gm)
            gm, report, seconds = _apply(name, transform, gm, budget)
            agreement = None
            if execution is not None and expected is not None and tolerance is not None:
                assert before is not None
                found = _verified(name, report, execution, before, gm, expected, tolerance)
                expected, agreement = found
            steps.append(Step(name, report, seconds, agreement))
        return Outcome(gm, tuple(steps), tolerance)


def _function(transform: Pass) -> Pass:
    while isinstance(transform, functools.partial):
        transform = transform.func
    return transform


def _name(transform: Pass) -> str:
    transform = _function(transform)
    return getattr(transform, "__name__", None) or type(transform).__name__


def _knows_budgets(transform: Pass) -> bool:
    return (getattr(_function(transform), "__module__", None) or "").startswith("corsac.")


def _copy(gm: GraphModule) -> GraphModule:
    """A module with a graph of its own that shares the submodules it calls with ``gm``."""
    return GraphModule(gm, gm.graph.__deepcopy__({}))


def _apply(
    name: str, transform: Pass, gm: GraphModule, budget: Budget
) -> tuple[GraphModule, Report, float]:
    """Run one pass, within the budget, and check the graph that it leaves."""
    nodes, spent = len(gm.graph.nodes), budget.spent
    if budget.left == 0 and not _knows_budgets(transform):
        return gm, Report(name, (), nodes, nodes), 0.0
    text = None if _knows_budgets(transform) else gm.graph.canonical_hash()
    start = time.perf_counter()
    answer = transform(gm)
    seconds = time.perf_counter() - start
    result = answer if isinstance(answer, GraphModule) else getattr(answer, "graph_module", gm)
    try:
        result.graph.lint()
    except Exception as error:
        message = f"{name} left a graph that is not well formed: {error}"
        raise VerificationError(message, name) from error
    said = answer if isinstance(answer, Report) else getattr(transform, "report", None)
    if said is None and result is not gm:
        said = result.meta.get("report")
    if isinstance(said, Report):
        return result, said, seconds
    changed = bool(getattr(answer, "modified", False)) or result is not gm
    changed = changed or (text is not None and result.graph.canonical_hash() != text)
    if changed and budget.spent == spent:
        # A pass without support for budgets counts as one change.
        budget.take()
    sites = (Site(name, name, None, None),) if changed else ()
    return result, Report(name, sites, nodes, len(result.graph.nodes)), seconds


def _verified(
    name: str,
    report: Report,
    execution: Execution,
    before: GraphModule,
    after: GraphModule,
    expected: Run,
    tolerance: float,
) -> tuple[Run, Agreement]:
    """The run after a pass, and its agreement with the one before it.

    Raises:
        VerificationError: the program fails, or the runs differ.
    """
    try:
        found = execution.run(after)
    except Exception as error:
        message = f"after {name} the program fails: {type(error).__name__}: {error}"
        raise VerificationError(message, name, report=report) from error
    agreement, difference = _difference(expected, found, tolerance)
    if difference is None and agreement is not None:
        return found, agreement
    node = None
    if _difference(expected, execution.run(before), tolerance)[1] is None:
        node = _first_difference(execution, before, after, tolerance)
        place = f"; the first value that differs is that of {node}" if node else ""
    else:
        place = "; it changed weights that the module before it shares"
    message = (
        f"{name} changed what the program computes: {difference} (tolerance {tolerance:g} of the "
        f"largest value){place}. PassManager.bisect finds the change."
    )
    raise VerificationError(message, name, node, report)


def _difference(expected: Run, found: Run, tolerance: float) -> tuple[Agreement | None, str | None]:
    """The largest difference between two runs, and its description if it exceeds ``tolerance``."""
    shared = expected.state.keys() & found.state.keys()
    parts = [
        ("the result", expected.result, found.result),
        ("an input that was written to", expected.inputs, found.inputs),
        *((f"the tensor {k}", expected.state[k], found.state[k]) for k in sorted(shared)),
    ]
    largest: Agreement | None = None
    for what, left, right in parts:
        agreement = compare_outputs(left, right)
        if isinstance(agreement, str):
            return None, f"{what} is another one: {agreement}"
        if not agreement.within(tolerance):
            error, scale = agreement.error, agreement.scale
            return (
                agreement,
                f"{what} differs by {error:.3g}, where the largest value is {scale:.3g}",
            )
        if largest is None or agreement.error > largest.error:
            largest = agreement
    missing = sorted(expected.state.keys() ^ found.state.keys())
    if missing:
        return largest, f"{missing[0]} is written to in one of the two programs only"
    return largest, None


def _first_difference(
    execution: Execution, before: GraphModule, after: GraphModule, tolerance: float
) -> str | None:
    """The first node of ``after`` whose value differs from that of the node of the same name in
    ``before``, and from those of all removed nodes, one of which it might have replaced."""
    try:
        old, new = execution.values(before), execution.values(after)
    except Exception:
        return None
    gone = [value for name, value in old.items() if name not in new]

    def agree(left: Any, right: Any) -> bool:
        agreement = compare_outputs(left, right)
        return isinstance(agreement, Agreement) and agreement.within(tolerance)

    for name, value in new.items():
        if name not in old or agree(old[name], value):
            continue
        if not any(agree(other, value) for other in gone):
            return name
    return None
