"""Watches backends: a fault is written to a script before the error is raised.

The environment variable ``CORSAC_REPRO`` sets how thoroughly; docs/minifier.md.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from corsac.backends._contract import BackendError, Declined
from corsac.fx import GraphModule
from corsac.fx._own_copy import own_copy
from corsac.fx.convert import from_torch
from corsac.lowering._backend import name_of
from corsac.minifier._backend_fails import BackendFails, unboxed
from corsac.minifier._case import Case
from corsac.minifier._child import can_fork
from corsac.minifier._fault import Fault
from corsac.minifier._minify import Minified, NoFault, minify
from corsac.minifier._server import Served, ServerError
from corsac.minifier._settings import Settings
from corsac.minifier._trial import Forked, Here, Place

# Calls made while a fault is being sought are not watched themselves.
_looking = threading.local()
# Shared by all graphs of a backend.
_served = Served()


def watched(
    settings: Settings,
    backend: Any,
    module: Any,
    example_inputs: Sequence[Any],
    options: Mapping[str, Any] | None,
    ask: Callable[[], Any],
) -> Any:
    """Call ``ask``, which has ``backend`` compile ``module``, and watch calls of the result.

    Args:
        settings: settings of the watch.
        backend: its name, or a function that is a backend or compiles graphs of AOTAutograd.
        module: the graph, of corsac.fx or torch.fx.
        example_inputs: the backend's example inputs; tensors without data are replaced by random ones.
        options: options of the backend.
        ask: calls the backend.

    Raises:
        BackendError: the backend crashes, hangs or returns wrong results. A note has the script's path.
        Exception: an exception of the backend, with such a note.
    """
    if getattr(_looking, "on", False):
        return ask()
    if getattr(backend, "watches_graphs", False):
        # Its inner compilers are watched instead: their graphs are smaller, and include backward graphs.
        return ask()
    grad = torch.is_grad_enabled()
    with _undisturbed():
        inputs, known = _real(example_inputs, grad)
        copy = own_copy(from_torch(module))
        look = settings.look if known else "compile"
        fails = BackendFails(backend, look, options, settings.tolerance, grad)
        watch = _Watch(settings, copy, fails)
        fault = watch.first_fault(inputs)
    reduced = None
    if fault is not None:
        with _undisturbed():
            reduced = watch.reduced(inputs, fault)
        if not _is_exception(fault):
            raise watch.error(fault, reduced)
    try:
        if reduced is None:
            compiled = ask()
        else:
            with _undisturbed(tracing=True):
                compiled = ask()
    except Declined:
        raise
    except Exception as error:
        if reduced is not None:
            error.add_note(reduced)
        raise
    if settings.look == "compile":
        return compiled
    watch.fails = BackendFails(backend, settings.look, options, settings.tolerance, grad)
    return WatchedCall(compiled, watch, reduced)


class WatchedCall:
    """A graph that a backend compiled, checked at each call.

    Attributes:
        compiled: the backend's result.
    """

    def __init__(self, compiled: Any, watch: _Watch, reduced: str | None) -> None:
        self.compiled, self._watch, self._reduced = compiled, watch, reduced
        self._boxed_call = getattr(compiled, "_boxed_call", False)

    def __call__(self, *args: Any) -> Any:
        if getattr(_looking, "on", False):
            return self.compiled(*args)
        inputs = list(args[0]) if self._boxed_call else list(args)
        watch, reduced = self._watch, self._reduced
        fault = None
        if reduced is None:
            with _undisturbed():
                fault = watch.fault_of_call(self.compiled, inputs)
                if fault is not None:
                    reduced = watch.reduced(_real(inputs, watch.fails.grad)[0], fault)
            if fault is not None and not _is_exception(fault):
                raise watch.error(fault, reduced)
        try:
            return self.compiled(*args)
        except Exception as error:
            if reduced is not None:
                error.add_note(reduced)
            raise


class _Watch:
    """The watch on one graph and its backend."""

    def __init__(self, settings: Settings, module: GraphModule, fails: BackendFails) -> None:
        self.settings, self.module, self.fails = settings, module, fails
        self._forks = can_fork()

    def first_fault(self, inputs: list[Any]) -> Fault | None:
        """The fault of the graph when compiled and called for the first time, in another process."""
        case, patience = Case(self.module, inputs), self.settings.hang_seconds
        for place in self._places():
            try:
                trial = place.ask(case, self.fails, patience, None)
            except ServerError:
                continue
            # Where PyTorch fails too, the backend is not at fault.
            return trial.fault if trial.runs else None
        return None

    def _places(self) -> list[Place]:
        if not can_fork():
            return [Here()]
        if isinstance(self.fails.backend, str):
            return [_served, Forked()]
        self.fails.prepare()
        return [Forked()]

    def fault_of_call(self, compiled: Any, args: list[Any]) -> Fault | None:
        """The fault of a call, made in another process first."""
        inputs, _ = _real(args, self.fails.grad)
        place = Forked() if self._forks else Here()
        calls = _CallFails(self.fails, compiled)
        trial = place.ask(Case(self.module, inputs), calls, self.settings.hang_seconds, None)
        if not trial.runs or trial.fault is None:
            return None
        if trial.fault.kind == "hangs" and self._forks and self.first_fault(inputs) is None:
            # The hang came from threads that do not exist in forked processes.
            self._forks = False
            return self.fault_of_call(compiled, args)
        return trial.fault

    def error(self, fault: Fault, note: str) -> BackendError:
        """The error for a fault that the backend itself does not raise."""
        error = BackendError(f"backend {name_of(self.fails.backend)}: {fault.text}")
        error.add_note(note)
        return error

    def reduced(self, inputs: list[Any], fault: Fault) -> str:
        """Make the graph smaller and write it; return a sentence with the path."""
        settings = self.settings
        name = re.sub(r"\W+", "-", name_of(self.fails.backend)).strip("-")
        stem = f"{name}-{fault.kind}-{self.module.graph.canonical_hash()[:8]}"
        print(
            f"corsac: backend {name_of(self.fails.backend)}: {fault.signature}; "
            "making the graph smaller",
            file=sys.stderr,
        )
        try:
            found = minify(
                self.module,
                inputs,
                self.fails,
                seconds=settings.seconds,
                hang_seconds=settings.hang_seconds,
                progress=True,
                expected=fault.signature,
            )
        except (NoFault, ValueError) as error:
            note = f"not made smaller: {error}"
            found = None
        folder = settings.folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            note = self._write(folder.resolve() / stem, found, note if found is None else "")
        except OSError as error:
            note = f"no script: {folder} cannot be written: {error}"
        print(f"corsac: {note}", file=sys.stderr)
        return note

    def _write(self, path: Path, found: Minified | None, why: str) -> str:
        if found is not None and found.script is not None:
            script = path.with_suffix(".py")
            found.save(script)
            state = "" if found.verified else f", which does not show it: {found.reason}"
            return f"{found.before} calls became {found.calls}: {script}{state}"
        graph = path.with_suffix(".graph")
        graph.write_text(f"{(self.module if found is None else found.module).graph}\n")
        if found is None:
            return f"{why}; the graph is {graph}"
        return f"{found.before} calls became {found.calls}: {graph}; no script: {found.reason}"


@dataclass(frozen=True, slots=True)
class _CallFails:
    """``fails(module, inputs)`` for a graph that a backend has compiled."""

    fails: BackendFails
    compiled: Any

    @property
    def grad(self) -> bool:
        return self.fails.grad

    def __call__(self, module: GraphModule, inputs: list[Any]) -> Fault | None:
        return self.fails.of_calls(unboxed(self.compiled), module, inputs)


def _is_exception(fault: Fault) -> bool:
    """Whether the backend itself raises the fault."""
    return fault.kind == "raises"


def _real(values: Sequence[Any], grad: bool) -> tuple[list[Any], bool]:
    """Values to call a graph with, and whether they are the real ones: False if there were fake tensors."""
    known = not any(isinstance(own, FakeTensor) for own in values)
    return [_real_value(own, grad) for own in values], known


def _real_value(own: Any, grad: bool) -> Any:
    if isinstance(own, torch.SymInt | torch.SymFloat | torch.SymBool):
        return own.node.hint
    if not isinstance(own, torch.Tensor):
        return own
    wants = own.requires_grad and grad
    if not isinstance(own, FakeTensor):
        return own.detach().clone().requires_grad_(wants)
    generator = torch.Generator().manual_seed(0)
    shape = [int(_real_value(size, grad)) for size in own.shape]
    if own.dtype.is_floating_point or own.dtype.is_complex:
        made = torch.randn(shape, generator=generator).to(own.dtype)
    else:
        made = torch.randint(0, 2, shape, generator=generator).to(own.dtype)
    return made.requires_grad_(wants)


@contextmanager
def _undisturbed(tracing: bool = False) -> Iterator[None]:
    """Switch watching off and, unless ``tracing``, leave the tracing of Dynamo or AOTAutograd."""
    _looking.on = True
    try:
        if tracing:
            yield
        else:
            with torch._guards.tracing(None), unset_fake_temporarily():
                yield
    finally:
        _looking.on = False
