"""Runs the small programs of the conformance kit on a backend, and compares each with PyTorch."""

from __future__ import annotations

import copy
import ctypes
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from corsac._engine.module import HostWarning
from corsac.backends._hosted import HostedModule
from corsac.backends._registry import lookup_backend
from corsac.backends.conformance._compare import Outcome, copied, difference, later_change
from corsac.backends.conformance._memory import PROGRAMS as MEMORY
from corsac.backends.conformance._models import PROGRAMS as MODELS
from corsac.backends.conformance._program import Program
from corsac.backends.conformance._report import Report, Row
from corsac.backends.conformance._structure import PROGRAMS as STRUCTURE
from corsac.backends.conformance._values import PROGRAMS as VALUES
from corsac.lowering._backend import name_of

#: Number of rounds over the calls of a program: PyTorch may run the first call, and also the next two of programs
#: that change Python state.
_ROUNDS = 2
#: All programs of the kit.
PROGRAMS: tuple[Program, ...] = (*VALUES, *MEMORY, *STRUCTURE, *MODELS)


def check(backend: Any, *, programs: Iterable[str] | None = None, seconds: float = 60.0) -> Report:
    """Run the programs of the conformance kit on a backend and compare each with PyTorch.

    Results, their types and structure, writes to inputs, buffers and weights, gradients, exceptions,
    and the sharing of memory have to be as with PyTorch, call after call. Graphs that the backend
    declines are run by PyTorch; the table shows that. A backend that raises, returns a wrong result or
    hangs fails that program, and the next one runs.

    Dynamo's compiled code of this process is reset.

    Args:
        backend: a name or a function.
        programs: names or kinds of programs; all by default.
        seconds: time limit for a program. Python code that takes longer is stopped; native code
            cannot be, and continues in its thread.

    Returns:
        A row for each program; as text, a table.

    Raises:
        UnknownBackend: there is none of that name.
        ValueError: an unknown program.
    """
    chosen = _chosen(programs)
    found = lookup_backend(backend)
    torch._dynamo.reset()
    rows = []
    with warnings.catch_warnings():
        # The rows list declined graphs.
        warnings.simplefilter("ignore", HostWarning)
        warnings.filterwarnings("ignore", "Error detected in", UserWarning)
        for program in chosen:
            rows.append(_row(program, found, seconds))
    torch._dynamo.reset()
    return Report(name_of(backend), tuple(rows))


def _chosen(names: Iterable[str] | None) -> list[Program]:
    if names is None:
        return list(PROGRAMS)
    wanted = [names] if isinstance(names, str) else list(names)
    known = {program.name for program in PROGRAMS} | {program.kind for program in PROGRAMS}
    for name in wanted:
        if name not in known:
            raise ValueError(f"expected the name or kind of a program, got {name!r}")
    return [program for program in PROGRAMS if program.name in wanted or program.kind in wanted]


def _row(program: Program, backend: Any, seconds: float) -> Row:
    start = time.perf_counter()
    box: dict[str, Any] = {}

    def run() -> None:
        try:
            box["fault"], box["declined"] = _fault(program, backend)
        except BaseException as error:
            box["fault"] = f"{type(error).__name__}: {error}"

    thread = threading.Thread(target=run, name=f"check {program.name}", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        _stop(thread)
        thread.join(1.0)
        box = {"fault": f"it takes longer than {seconds:g} s"}
    return Row(
        program.name,
        program.kind,
        box.get("fault"),
        tuple(box.get("declined", ())),
        time.perf_counter() - start,
    )


def _stop(thread: threading.Thread) -> None:
    """Raise an exception in the Python code of a thread, which may hold locks that others need."""
    ident = ctypes.c_ulong(thread.ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(TimeoutError))


def _fault(program: Program, backend: Any) -> tuple[str | None, list[str]]:
    """The fault of the backend in a program, if any, and its reasons for declining graphs of it."""
    eager = program.make()
    own = copy.deepcopy(eager) if isinstance(eager, torch.nn.Module) else eager
    hosted = HostedModule(own, backend, dynamic=program.dynamic)
    calls = [own for _ in range(_ROUNDS) for own in program.calls()]
    if program.threads > 1:
        fault = _in_threads(program, eager, hosted, calls)
    else:
        fault = _in_turn(program, eager, hosted, calls)
    return fault, [record.declined for record in hosted.graphs if record.declined is not None]


def _in_turn(
    program: Program, eager: Any, hosted: HostedModule, calls: list[tuple[Any, ...]]
) -> str | None:
    outcomes = []
    for number, arguments in enumerate(calls):
        expected = _call(program, eager, eager, copied(arguments))
        found = _call(program, hosted, hosted._model, copied(arguments))
        fault = difference(found, expected, program.exact)
        if fault is not None:
            return f"call {number}: {fault}"
        outcomes.append(found)
        if program.between is not None:
            program.between(eager)
            program.between(hosted._model)
    for number, outcome in enumerate(outcomes[:-1]):
        # Results must not change later, unless they share memory with an input or a buffer.
        if outcome.error is None and (fault := later_change(outcome)) is not None:
            return f"call {number}: {fault}"
    return None


def _in_threads(
    program: Program, eager: Any, hosted: HostedModule, calls: list[tuple[Any, ...]]
) -> str | None:
    expected = [_call(program, eager, eager, copied(arguments)) for arguments in calls]
    with ThreadPoolExecutor(program.threads) as pool:
        found = list(
            pool.map(lambda own: _call(program, hosted, hosted._model, copied(own)), calls)
        )
    for number, (own, other) in enumerate(zip(found, expected, strict=True)):
        fault = difference(own, other, program.exact) or later_change(own)
        if fault is not None:
            return f"call {number}, in {program.threads} threads: {fault}"
    return None


def _call(
    program: Program, function: Callable[..., Any], model: Any, arguments: tuple[Any, ...]
) -> Outcome:
    outcome = Outcome(inputs=arguments)
    state = isinstance(model, torch.nn.Module)
    if program.threads == 1:
        torch.manual_seed(0)
    try:
        with torch.set_grad_enabled(program.backward):
            outcome.result = function(*arguments)
        outcome.freeze()
        if program.backward:
            _backward(outcome.result)
    except Exception as error:
        outcome.error = error
    outcome.gradients = _gradients(arguments, model)
    if state:
        outcome.state = {name: own.detach().clone() for name, own in _tensors(model).items()}
    return outcome


def _backward(result: Any) -> None:
    """Run backward from all results that require gradients."""
    wanted = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor) and x.requires_grad]
    if wanted:
        torch.autograd.backward([(x * x).sum() for x in wanted])


def _gradients(arguments: tuple[Any, ...], model: Any) -> dict[str, torch.Tensor | None]:
    named = {
        f"input {number}": own
        for number, own in enumerate(tree_leaves(arguments))
        if isinstance(own, torch.Tensor) and own.is_leaf and own.requires_grad
    }
    if isinstance(model, torch.nn.Module):
        named |= dict(model.named_parameters())
    return {name: None if x.grad is None else x.grad.clone() for name, x in named.items()}


def _tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return dict(model.named_parameters()) | dict(model.named_buffers())
