"""``corsac.compile``: a model as a native program, recorded at its first call."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

import torch

from corsac import _core
from corsac._capture.calls import NO_CALL, Call
from corsac._capture.recordings import SIZES, Entry
from corsac._capture.refusal import Kind, Refusal
from corsac._compile import verify
from corsac._compile.by_dynamo import captured_by_dynamo
from corsac._compile.read_module import ReadModule
from corsac._compile.recorded_programs import NativeProgram, RecordedPrograms
from corsac._engine.module import (
    AUTOGRAD,
    EngineModule,
    is_captured_around,
    warn,
)
from corsac._messages import logs
from corsac._models.function import as_function, check_callable, module_of
from corsac._models.wrapper import Shell
from corsac._native.options import (
    MODES,
    Mode,
    Precision,
    Settings,
    checked_options,
)
from corsac._native.panic import EngineError
from corsac._pytorch.autocast import autocast_dtype
from corsac._pytorch.quantised_parts import is_converted
from corsac.backends._registry import ENGINE, get_default_backend
from corsac.backends._watching import watch_settings

if TYPE_CHECKING:
    from corsac._training import TrainedGraph, TrainedModel
    from corsac.backends._hosted import HostedModule

#: Largest number of captured graphs of a model in training, for sets of sizes and states of the model.
TRAINED = 8
#: Warning for users who probably want no gradients.
_FOR_RESULTS = (
    "autograd records a call of a model in evaluation mode, which is compiled for training; for "
    "results alone, which takes a part of the time, call it in torch.inference_mode() or torch.no_grad()"
)
#: Classes of TorchScript programs, which have no Python code to record.
_SCRIPTS = (torch.jit.ScriptModule, torch.jit.ScriptFunction, torch.jit.TopLevelTracedModule)


_F = TypeVar("_F", bound=Callable[..., Any])


@overload
def compile(
    model: torch.nn.Module,
    *,
    backend: Any = None,
    precision: Precision = "f32",
    dynamic: bool | None = None,
    fullgraph: bool = False,
    options: Mapping[str, Any] | None = None,
    mode: Mode | None = None,
    disable: bool = False,
) -> CompiledModule | HostedModule: ...
@overload
def compile(
    model: _F,
    *,
    backend: Any = None,
    precision: Precision = "f32",
    dynamic: bool | None = None,
    fullgraph: bool = False,
    options: Mapping[str, Any] | None = None,
    mode: Mode | None = None,
    disable: bool = False,
) -> _F: ...
@overload
def compile(
    model: None = None,
    *,
    backend: Any = None,
    precision: Precision = "f32",
    dynamic: bool | None = None,
    fullgraph: bool = False,
    options: Mapping[str, Any] | None = None,
    mode: Mode | None = None,
    disable: bool = False,
) -> Callable[[_F], _F]: ...
def compile(
    model: Callable[..., Any] | None = None,
    *,
    backend: Any = None,
    precision: Precision = "f32",
    dynamic: bool | None = None,
    fullgraph: bool = False,
    options: Mapping[str, Any] | None = None,
    mode: Mode | None = None,
    disable: bool = False,
) -> Any:
    """Compile ``model`` for corsac's engine, or for another backend.

    Usable as a function, or as a decorator: ``@corsac.compile`` or ``@corsac.compile(backend=…)``.

    The first call with tensors of new shapes runs in PyTorch; it is recorded, and compiled in milliseconds and
    without a C++ compiler. Later calls are native as long as all Python state that the program has read, and all
    tensors besides its inputs, are unchanged (docs/capture.md). Operators that the engine does not support are run
    by PyTorch, between native parts; :meth:`CompiledModule.explain` lists them. Calls that cannot be native at all
    are run by PyTorch as they are, with a :class:`HostWarning` that gives the reason: other devices,
    complex numbers, unknown C functions.

    Models that ``torch.ao.quantization`` has converted are read first
    (:func:`corsac.quantization.from_torch_ao`), where they can be.

    Where control flow depends on values, the programs of all paths that calls have taken share their common beginning.
    Programs that cannot be recorded are captured by Dynamo from the second or fourth call on, and its graphs are run
    in the same way, with PyTorch between them.

    Calls that autograd records become a forward and a backward graph. Both are native where that is faster, which
    is measured in the first steps (docs/backends.md).

    With another backend, the graphs go there (docs/backends.md): recorded in the same way, or captured by Dynamo,
    and compiled for each set of types, as long as weights stay the same tensors. It may train.

    Args:
        model: a module or a function of tensors; without it, a decorator is returned.
        backend: the name of a backend (:func:`corsac.backends.list_backends`), or a function of a graph
            module and example inputs. By default :func:`corsac.backends.get_default_backend`, which is
            the engine unless it was set.
        precision: ``"f32"``, or ``"bf16"``: convolutions and linear layers multiply numbers that are
            rounded to bfloat16 (8 bits of precision) and sum up in float32, where the processor has
            instructions for it (AMX, AVX-512 BF16); elsewhere, and in everything else, they are float32. Inputs, weights
            and results are float32 tensors all the same.
        dynamic: whether sizes are symbolic: True for all sizes but 0 and 1, from the first program on; False for none;
            None for those that have changed between calls, or were marked (``torch._dynamo.mark_dynamic``). In
            training, Dynamo captures all calls with True.
        fullgraph: raise :class:`CompileError` instead of running on PyTorch.
        options: for the backend; the engine has ``{"precision": …}``, ``{"training": …}``, which is
            ``"measured"``, ``"native"`` (wherever the engine can) or ``"host"`` (PyTorch), and
            ``{"inference": …}``, which is ``"measured"`` (calls are left to PyTorch where it is faster, which is
            measured in the first ones) or ``"native"``, and ``{"partition": …}``, which is ``"min_cut"``,
            ``"fewest_bytes"`` or ``"default"`` (docs/backends.md).
        mode: as for :func:`torch.compile`, and without ``options``. The engine compiles in one way, whatever the mode;
            backends with modes take them among ``options``.
        disable: return ``model`` as it is.

    Returns:
        For a module, a module with its parameters, buffers and submodules, which forwards other attributes;
        for a function or a bound method, a function, so that after ``model.forward = corsac.compile(model.forward)``
        all calls of the model are compiled. Both have ``explain()``.

    Raises:
        TypeError: ``model`` is neither.
        ValueError: ``precision`` is none of these, or there is no such backend, option or mode.
        RuntimeError: ``mode`` and ``options`` are given.
    """
    if mode is not None and mode not in MODES:
        raise ValueError(f"mode is one of {', '.join(map(repr, MODES))}, not {mode!r}")
    if mode is not None and options is not None:
        # torch.compile has RuntimeError for it, too.
        raise RuntimeError("mode and options are given: as for torch.compile, it is one of them")
    if model is None:
        return functools.partial(
            compile,
            backend=backend,
            precision=precision,
            dynamic=dynamic,
            fullgraph=fullgraph,
            options=options,
            disable=disable,
        )
    check_callable(model)
    if disable:
        return model
    made = _compiled(module_of(model), backend, precision, dynamic, fullgraph, options)
    return made if isinstance(model, torch.nn.Module) else as_function(made, model)


def _compiled(
    model: Callable[..., Any],
    backend: Any,
    precision: Precision,
    dynamic: bool | None,
    fullgraph: bool,
    options: Mapping[str, Any] | None,
) -> CompiledModule | ReadModule | HostedModule:
    """``model`` as a module that the engine or another backend runs."""
    logs.switch_on()
    chosen = get_default_backend() if backend is None else backend
    # Also raises for unknown settings in the environment.
    watched = watch_settings() is not None
    if chosen == ENGINE:
        checked_options(options)
        options = {"precision": precision, **(options or {})}
        if not watched:
            settings = Settings(**options, dynamic=dynamic, fullgraph=fullgraph)
            if isinstance(model, torch.nn.Module) and is_converted(model):
                return ReadModule(model, settings, CompiledModule)
            return CompiledModule(model, settings)
        # Watched: graphs go to the engine as to any backend.
    elif precision != "f32":
        raise ValueError(f"precision={precision!r} is for the engine; {chosen!r} has options=")
    # Not at the top: most models run on the engine.
    from corsac.backends._hosted import HostedModule

    return HostedModule(model, chosen, dynamic=dynamic, fullgraph=fullgraph, options=options)


class CompiledModule(EngineModule):
    """A model that the engine runs. Parameters, buffers and submodules are those of the model."""

    def __init__(
        self,
        model: Callable[..., Any],
        settings: Settings,
        autocast: torch.dtype | None = None,
    ) -> None:
        super().__init__(model, precision=settings.precision, fullgraph=settings.fullgraph)
        state = self.__dict__
        state["_settings"], state["_autocast"] = settings, autocast
        #: The model for calls in autocast, by the type that it casts to.
        state["_in_autocast"] = {}
        #: The model for calls that autograd records.
        state["_trained"] = None
        #: The model as captured by Dynamo, and its graphs.
        state["_dynamo"], state["_pieces"] = None, []
        # Lazy parameters raise if their attributes are read.
        with torch._C.DisableTorchFunctionSubclass():
            state["_model_guards"] = _core.ModelGuards(self._model)
        state["_runner"] = _core.Runner(self, autocast=autocast is not None)
        state["_recorded"] = RecordedPrograms(self._model, self._callable, settings, self._runner)

    def __reduce__(self) -> Any:
        return CompiledModule, (self._callable, self._settings)

    def _looked_at(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._with_own_hooks(args, kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        if is_captured_around():
            return self._callable(*args, **kwargs)
        autocast = autocast_dtype()
        if autocast is not None and self._autocast is None:
            return self._for_autocast(autocast)._call_with(args, kwargs)
        if (
            self._trained is not None
            and torch.is_grad_enabled()
            and self._model_guards.requires_grad()
            and _core.unusual_mode(autocast=self._autocast is not None) is None
        ):
            # Weights change from step to step, so they are not checked here.
            return self._trained(*args, **kwargs)
        if not self._model_guards.is_current():
            rewritten = self._recorded.rewritten()
            self.__dict__["_model_guards"] = _core.ModelGuards(self._model, rewritten=rewritten)
            self._recorded.look_again()
        call, found = self._find(args, kwargs)
        if isinstance(found, Refusal):
            return self._refused(found, call, args, kwargs)
        assert call is not None
        if isinstance(found, Entry):
            program = found.run
            assert isinstance(program, NativeProgram)
            if verify.ON:
                return verify.verified(
                    program,
                    call,
                    program.weights,
                    lambda: self._callable(*args, **kwargs),
                    self._precision,
                    self._recorded.keeps_views,
                )
            lookup = 0.0
            tries = program.compiled.choice.race is not None
            if tries and not self._recorded.runs_unseen(found, call):
                lookup = time.perf_counter() - began
            return self._run(
                program.compiled,
                lambda: program(call),
                args,
                kwargs,
                refuse=functools.partial(self._recorded.refuse, call),
                rewind=call.rewind,
                settle=functools.partial(self._recorded.settle, found, call, args, kwargs),
                lookup=lookup,
            )
        result, made = self._recorded.record(call, args, kwargs)
        if isinstance(made, Refusal) and (
            self._fullgraph or (made.kind is Kind.HOST and not made.passes)
        ):
            self._note_host(made.reason, args, kwargs)
        return result

    def _for_autocast(self, dtype: torch.dtype) -> CompiledModule:
        """The model for calls in autocast to this type, whose programs cast as autocast does."""
        found = self._in_autocast.get(dtype)
        if found is None:
            made = CompiledModule(self._callable, self._settings, dtype)
            found = self._in_autocast.setdefault(dtype, made)
        return found

    def _find(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Call | None, Entry | Refusal | None]:
        """The program for a call, or the reason why there is none; None if it may be recorded."""
        if isinstance(self._callable, _SCRIPTS):
            return None, Refusal(Kind.HOST, "it is a program of TorchScript")
        call = self._recorded.call(args, kwargs)
        if call is None:
            return None, Refusal(Kind.HOST, NO_CALL)
        reason = self._why_not(call.tensors)
        if reason is None:
            return call, self._recorded.find(call)
        return call, Refusal(Kind.TRAINS if reason is AUTOGRAD else Kind.HOST, reason)

    def _refused(
        self, refusal: Refusal, call: Call | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Make a call without a recorded program by its fallback."""
        if refusal.kind is Kind.HOST:
            return self._by_host(refusal.reason, args, kwargs)
        if refusal.kind is Kind.TRAINS:
            return self._training_call(() if call is None else call.tensors)(*args, **kwargs)
        return self._by_dynamo()(*args, **kwargs)

    def _without_program(self, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        used = self._runner.recent()
        # The one that ran is the last one.
        has_written = bool(used) and used[-1].run.compiled.has_written()
        call = self._recorded.call(args, kwargs)
        if call is not None:
            self._recorded.refuse(call, reason)
        if has_written:
            # It is unknown what it has written.
            raise EngineError(reason)
        return self._by_host(reason, args, kwargs)

    def _by_dynamo_anew(self) -> Callable[..., Any]:
        return captured_by_dynamo(self._callable, self._settings, self._pieces)

    def _by_dynamo(self) -> Callable[..., Any]:
        """The model captured by Dynamo, with its graphs on the engine; made at first use."""
        if self._dynamo is None:
            self.__dict__["_dynamo"] = self._by_dynamo_anew()
        return self._dynamo

    def _training_call(self, inputs: tuple[Any, ...]) -> Callable[..., Any]:
        """The model for calls that autograd records: forward and backward graphs, native where that
        is faster."""
        if self._settings.dynamic:
            return self._by_dynamo()
        if self._trained is None:
            evaluates = not isinstance(self._model, Shell) and not self._model.training
            if evaluates and not any(getattr(own, "requires_grad", False) for own in inputs):
                warn(_FOR_RESULTS, UserWarning)
            self.__dict__["_trained"] = self._trained_model()
        return self._trained

    def _trained_model(self) -> TrainedModel:
        # Not at the top: AOTAutograd is imported only when it is needed.
        from corsac._training import Captures, TrainedGraph, TrainedModel

        settings = self._settings

        def make() -> TrainedGraph:
            return TrainedGraph(settings.precision, settings.training, settings.partition)

        sizes = TRAINED if settings.dynamic is None else SIZES
        captures = Captures(self._model, self._callable, sizes, make, not settings.fullgraph)
        return TrainedModel(captures, self._callable, self._by_dynamo_anew, self._note_host)

    def native_programs(self) -> list[_core.NativeProgram]:
        """The native programs of whole graphs, including Dynamo's."""
        recorded = self._recorded.programs()
        found = [native for own in recorded for native in own.compiled.native_programs()]
        for piece in [*self._in_autocast.values(), *self._pieces, *self._own_trained_graphs()]:
            found += piece.native_programs()
        return found

    def _trained_graphs(self) -> list[TrainedGraph]:
        """The forward and backward graphs of calls captured for their sizes, in autocast, too."""
        inside = [graph for own in self._in_autocast.values() for graph in own._trained_graphs()]
        return self._own_trained_graphs() + inside

    def _own_trained_graphs(self) -> list[TrainedGraph]:
        if self._trained is None:
            return []
        programs = self._trained.captures.programs()
        return [graph for own in programs for graph in own.graphs()]

    def explain(self, *, guards: bool = False) -> str:
        """Report of the compiled programs, and of calls that PyTorch ran, with reasons, as text.

        Args:
            guards: list also the guards that are checked before each call, with the line of the program that has
                read the value.
        """
        lines = self._recorded.explain(guards)
        if self._trained is not None:
            for program in self._trained.captures.programs():
                lines.append(f"{program.call.describe()}, with gradients:")
                lines += ["  " + line for line in program.explain()]
        for number, piece in enumerate(self._pieces):
            lines.append(f"graph {number} of Dynamo:")
            lines += ["  " + line for line in piece.explain().splitlines()]
        for dtype, own in self._in_autocast.items():
            lines.append(f"in autocast to {dtype}:")
            lines += ["  " + line for line in own.explain(guards=guards).splitlines()]
        return "\n".join([*lines, *self._hosted_calls()]) or "not called yet"
