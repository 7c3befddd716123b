"""Models whose graphs are run by a backend."""

from __future__ import annotations

import functools
import time
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from corsac import _core
from corsac._capture.calls import Call
from corsac._capture.recordings import Entry
from corsac._capture.refusal import Refusal
from corsac._capture.stages import Read
from corsac._engine.module import HostWarning, is_captured_around, why_not_plain
from corsac._engine.native_graph import CompileError
from corsac._models.wrapper import ModelWrapper
from corsac.backends._contract import BackendError, Declined, hand_over
from corsac.backends._graph_record import GraphRecord
from corsac.backends._recorded_graphs import HostedProgram, HostedPrograms, asking
from corsac.backends._registry import lookup_backend
from corsac.backends._watching import watched
from corsac.fx.convert import from_torch
from corsac.lowering._backend import name_of


class HostedModule(ModelWrapper):
    """A model whose graphs a backend runs: the result of :func:`corsac.compile` with ``backend=``.

    Parameters, buffers and submodules are those of the model.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        backend: Any,
        *,
        dynamic: bool | None = None,
        fullgraph: bool = False,
        options: Mapping[str, Any] | None = None,
        guard_export_fn: Callable[..., None] | None = None,
    ) -> None:
        super().__init__(model)
        state = self.__dict__
        state["_backend"], state["_named"] = lookup_backend(backend), backend
        state["_dynamic"], state["_fullgraph"] = dynamic, fullgraph
        state["_options"] = None if options is None else dict(options)
        state["_guard_export_fn"] = guard_export_fn
        # Lazy parameters raise if their attributes are read.
        with torch._C.DisableTorchFunctionSubclass():
            state["_model_guards"] = _core.ModelGuards(self._model)
        state["_programs"] = HostedPrograms(
            self._model,
            model,
            self._asked,
            getattr(self._backend, "copies_weights", False),
            not fullgraph,
        )
        #: The model as captured by Dynamo, and the reason for using Dynamo.
        state["_dynamo"], state["_why_dynamo"] = None, None
        #: The graphs passed to the backend.
        state["_records"] = []

    def __reduce__(self) -> Any:
        made = functools.partial(
            HostedModule,
            dynamic=self._dynamic,
            fullgraph=self._fullgraph,
            options=self._options,
        )
        return made, (self._callable, self._named)

    @property
    def graphs(self) -> tuple[GraphRecord, ...]:
        """The graphs passed to the backend, in order."""
        return tuple(self._records)

    def programs(self) -> list[HostedProgram]:
        """The recorded programs, as compiled by the backend."""
        made = [own.run for own in self._programs.entries()]
        return [own for own in made if isinstance(own, HostedProgram)]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_captured_around():
            # A capture of a program around this one gets the model's own operators.
            return self._callable(*args, **kwargs)
        return self._with_own_hooks(args, kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not self._model_guards.is_current():
            # Programs that were not captured before may be now.
            self.__dict__["_model_guards"] = _core.ModelGuards(self._model)
            self._programs.look_again()
        call = None if self._dynamic else self._programs.call(args, kwargs)
        reason = self._why_not_recorded(call)
        if call is None or reason is not None:
            return self._by_dynamo(reason)(*args, **kwargs)
        while True:
            found = self._programs.find(call)
            if isinstance(found, Entry):
                return found.run(call)
            if isinstance(found, Refusal):
                return self._by_dynamo(found.reason)(*args, **kwargs)
            result, made = self._programs.record(call, args, kwargs)
            if not _repeats(made):
                return result
            # The call has changed nothing, so the backend may repeat it: this is its first run.

    def _why_not_recorded(self, call: Call | None) -> str | None:
        """Reason why Dynamo has to capture a call, whatever the program; None if corsac can."""
        if self._dynamic:
            return "dynamic=True: sizes are symbols"
        if call is None:
            return "an argument is a container"
        for number, own in enumerate(call.tensors):
            if (reason := why_not_plain(f"input {number}", own)) is not None:
                return reason
        if torch._C._len_torch_dispatch_stack():
            return "a mode of torch.utils._python_dispatch is on"
        if forward_ad._current_level >= 0:
            return "forward-mode differentiation is on"
        return _core.Recording.unavailable()

    def _asked(self, record: GraphRecord, inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
        """Compile the graph of a recorded program with the backend."""
        try:
            return self._handed_over(record, record.module, inputs)
        except (BackendError, CompileError):
            raise
        except Exception as error:
            raise _failure(self._backend, error) from error

    def _handed_over(self, record: GraphRecord, module: Any, inputs: Any) -> Callable[..., Any]:
        """Compile a graph with the backend; if it declines, PyTorch runs the graph."""
        start = time.perf_counter()
        self._records.append(record)

        def ask() -> Callable[..., Any]:
            record.compiled = hand_over(self._backend, module, inputs, self._options)
            return record.compiled

        try:
            called = watched(self._named, module, inputs, self._options, ask)
        except Declined as error:
            record.declined = str(error)
            reason = f"{name_of(self._backend)} declined: {error}"
            if self._fullgraph:
                raise CompileError(reason) from error
            warnings.warn(f"PyTorch runs this graph: {reason}", HostWarning, stacklevel=4)
            return module.forward
        finally:
            record.seconds["backend"] = time.perf_counter() - start
        return called

    def _by_dynamo(self, reason: str | None) -> Callable[..., Any]:
        """The model captured by Dynamo, with the backend for its graphs."""
        if self._dynamo is not None:
            return self._dynamo

        def receive(module: torch.fx.GraphModule, inputs: Any, **_: Any) -> Callable[..., Any]:
            start = time.perf_counter()
            converted = from_torch(module)
            record = GraphRecord(converted, inputs, "Dynamo", 0.0)
            record.seconds["conversion"] = time.perf_counter() - start
            record.stopped = getattr(module, "compile_subgraph_reason", None)
            with asking:
                return self._handed_over(record, module, inputs)

        compiled = torch._dynamo.optimize(
            receive,
            nopython=self._fullgraph,
            dynamic=self._dynamic,
            guard_export_fn=self._guard_export_fn,
        )(_target(self._callable))

        @functools.wraps(compiled)
        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                return compiled(*args, **kwargs)
            except torch._dynamo.exc.BackendCompilerFailed as error:
                inner = error.inner_exception
                if isinstance(inner, CompileError):
                    raise inner from None
                raise _failure(self._backend, inner) from inner

        self.__dict__["_dynamo"], self.__dict__["_why_dynamo"] = run, reason
        return run

    def reads(self) -> list[Read]:
        """The reads of values that control flow of its programs depends on, each once."""
        stages = (own.stages for own in self.programs() if own.stages is not None)
        found = {(str(read.source), read.name): read for own in stages for read in own.reads()}
        return list(found.values())

    def explain(self) -> str:
        """Report of the graphs passed to the backend, and of those that PyTorch runs, with reasons, as text."""
        lines = []
        if reads := self.reads():
            lines += ["values decide which graphs run:", *(f"  {own.place()}" for own in reads)]
        if self._why_dynamo is not None:
            lines.append(f"captured by Dynamo: {self._why_dynamo}")
        lines += [f"graph {number}: {own}" for number, own in enumerate(self._records)]
        return "\n".join(lines) or "not called yet"


def _target(model: Callable[..., Any]) -> Any:
    """The model in a form that Dynamo traces: a function or module, not another callable."""
    if isinstance(model, torch.nn.Module | types.FunctionType | types.MethodType):
        return model

    def call(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    return call


def _failure(backend: Any, error: BaseException) -> BackendError:
    failure = BackendError(f"backend {name_of(backend)} failed: {type(error).__name__}: {error}")
    for note in getattr(error, "__notes__", ()):
        failure.add_note(note)
    return failure


def _repeats(made: Entry | Refusal | None) -> bool:
    """Whether a recorded call may be repeated, since it has changed nothing."""
    if isinstance(made, Entry):
        program = made.run
        assert isinstance(program, HostedProgram)
        return program.repeats
    return made is not None and made.repeats
