"""``corsac.compile``: a model as a native program, captured at the first call."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
import time
import types
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, overload

import torch
from torch.compiler import is_dynamo_compiling

from corsac import _core
from corsac._dynamo import PARTITIONS, PRECISIONS, TRAINING, checked_options, piece_for
from corsac._native import RUNNING, NativeCall
from corsac._native_graph import Compiled, CompileError, NativeGraph, call_key
from corsac._panic import EngineError, as_compile_error, told
from corsac._python_state import PythonState
from corsac._sized_capture import Hollow
from corsac._sized_programs import LIMIT, Call, SizedProgram, SizedPrograms
from corsac._trace_watch import WatchingTracer, watched_trace
from corsac.fx import GraphModule, Node
from corsac.fx._module_attributes import _get_attr
from corsac.fx.proxy import TraceError
from corsac.lowering import LoweringError
from corsac.passes import fold_constants

if TYPE_CHECKING:
    from corsac._training import TrainedGraph, TrainedModel
    from corsac.backends._hosted import HostedModule
    from corsac.lowering import Preview

#: How many programs a model keeps, one for each set of input shapes.
PROGRAMS = 16
#: How many graphs a model in training has, for sets of sizes and situations, before Dynamo makes symbols of sizes.
TRAINED = 8
#: What inputs may be made of.
DTYPES = (
    torch.float32,
    torch.int64,
    torch.bool,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
)
#: Why a program for inference is not asked.
_AUTOGRAD = "autograd records it (call it in torch.no_grad() or torch.inference_mode())"
#: What is told who probably wants no gradients.
_FOR_RESULTS = (
    "autograd records a call of a model in evaluation mode, which is compiled for training; for "
    "results alone, which takes a part of the time, call it in torch.inference_mode() or torch.no_grad()"
)
#: Where the code of PyTorch and of corsac is.
_PACKAGES = tuple(os.path.dirname(package) + os.sep for package in (torch.__file__, __file__))
_OF_DTYPES = ", ".join(str(dtype) for dtype in DTYPES)


class HostWarning(UserWarning):
    """PyTorch runs what was compiled, and why."""


def _warn(text: str, category: type[Warning]) -> None:
    """Warn of the line that has called what was compiled, outside PyTorch and corsac."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGES):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


@overload
def compile(
    model: Callable[..., Any],
    *,
    backend: Any = None,
    precision: str = "f32",
    dynamic: bool | None = None,
    fullgraph: bool = False,
    options: Mapping[str, Any] | None = None,
) -> CompiledModule | HostedModule: ...
@overload
def compile(
    model: None = None,
    *,
    backend: Any = None,
    precision: str = "f32",
    dynamic: bool | None = None,
    fullgraph: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Callable[[Callable[..., Any]], CompiledModule | HostedModule]: ...
def compile(
    model: Callable[..., Any] | None = None,
    *,
    backend: Any = None,
    precision: str = "f32",
    dynamic: bool | None = None,
    fullgraph: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """``model``, run by corsac's engine, or by another backend.

    A function with arguments, or a decorator: ``@corsac.compile`` or ``@corsac.compile(backend=…)``.

    The model is captured at the first call with tensors of new shapes and compiled for them, in
    milliseconds and without a C++ compiler. Operators that the engine does not know are run by
    PyTorch, between native parts; :meth:`CompiledModule.explain` lists them. Calls of which nothing
    can be native are run by PyTorch as they are, with a :class:`HostWarning` that says why: autocast,
    hooks, other devices and element types than float32.

    Calls that autograd records are captured for their sizes, as a graph for the way forward and one for the
    way back, or by Dynamo and AOTAutograd where that cannot be done. Both are native where that is faster,
    which is tried in the first steps (docs/backends.md).

    Weights may change, and modules be replaced, put in training mode or given hooks: the next call
    sees it. Other attributes that ``forward`` reads are taken as they are when it is captured.

    What corsac's own tracer cannot trace (control flow that depends on sizes, arguments that are no tensors)
    is captured for the sizes of a call, which takes some 30 milliseconds, for up to four sets of sizes.
    Where values decide, and after that, Dynamo captures, and its graphs are run in the same way, with PyTorch
    between them.

    Graphs that corsac's tracer captures are for all sizes, and a program is made for each set of them, in about
    a millisecond; the programs of a model share its packed weights. Dynamo captures a graph for the sizes
    that it sees, and at the second set of them one in which sizes are symbols.

    With another backend, its graphs go there (docs/backends.md): captured by corsac's own tracer, or
    by Dynamo, and compiled for each set of types, as long as weights stay where they are. It may train.

    Args:
        model: a module or a function of tensors; without it, a decorator is returned.
        backend: the name of a backend (:func:`corsac.backends.list_backends`), or a function of a graph
            module and example inputs. By default :func:`corsac.backends.get_default_backend`, which is
            the engine unless it was set.
        precision: ``"f32"``, or ``"bf16"``: convolutions and linear layers multiply numbers that are
            rounded to bfloat16 (8 bits of precision) and sum up in float32, where the processor has
            tiles for it (AMX); elsewhere, and in everything else, they are float32. Inputs, weights
            and results are float32 tensors all the same.
        dynamic: whether Dynamo makes symbols of sizes: from the start, never, or (None) of those that
            have changed. With True corsac captures nothing for sizes, with False sixteen sets of them.
        fullgraph: raise :class:`CompileError` instead of running on PyTorch.
        options: for the backend; the engine knows ``{"precision": …}``, ``{"training": …}``, which is
            ``"measured"``, ``"native"`` (wherever the engine can) or ``"host"`` (PyTorch), and
            ``{"partition": …}``, which is ``"min_cut"``, ``"fewest_bytes"`` or ``"default"``
            (docs/backends.md).

    Returns:
        A module with the parameters, buffers and submodules of ``model``.

    Raises:
        ValueError: ``precision`` is none of these, or there is no such backend or option.
    """
    if model is None:
        return functools.partial(
            compile,
            backend=backend,
            precision=precision,
            dynamic=dynamic,
            fullgraph=fullgraph,
            options=options,
        )
    # Not at the top: backends are made with what is here.
    from corsac.backends._registry import ENGINE, get_default_backend
    from corsac.backends._watching import watch_settings

    chosen = get_default_backend() if backend is None else backend
    # Says, too, if the environment asks for what there is not.
    watched = watch_settings() is not None
    if chosen == ENGINE:
        checked_options(options)
        settings = {"precision": precision, **(options or {})}
        if not watched:
            return CompiledModule(model, **settings, dynamic=dynamic, fullgraph=fullgraph)
        # Its graphs go to the engine as to any backend.
        options = settings
    elif precision != "f32":
        raise ValueError(f"precision={precision!r} is for the engine; {chosen!r} has options=")
    from corsac.backends._hosted import HostedModule

    return HostedModule(model, chosen, dynamic=dynamic, fullgraph=fullgraph, options=options)


def why_not_plain(number: int, own: Any) -> str | None:
    """Why input ``number`` is no tensor that native code or a backend can read as it is."""
    if type(own) is not torch.Tensor and type(own) is not torch.nn.Parameter:
        return f"input {number} is a {type(own).__name__}, not a tensor"
    if own.layout is not torch.strided:
        return f"input {number} is {own.layout}"
    if torch._C._functorch.is_functorch_wrapped_tensor(own):
        return f"input {number} is transformed by torch.func"
    return None


class StandIn(torch.nn.Module):
    """A module in the place of ``model``, whose parameters, buffers and submodules are its own."""

    def __init__(self, model: Callable[..., Any]) -> None:
        super().__init__()
        root = model if isinstance(model, torch.nn.Module) else Shell(model)
        state = self.__dict__
        state["_model"], state["_callable"] = root, model
        # The same dictionaries: what is registered, moved or loaded here is so there.
        for name in ("_parameters", "_buffers", "_modules"):
            state[name] = getattr(root, name)
        state["training"] = root.training

    def train(self, mode: bool = True) -> Self:
        self._model.train(mode)
        self.__dict__["training"] = mode
        return self


class Shell(torch.nn.Module):
    """A function as a module, so that its graph has an owner."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.__dict__["forward"] = function
        self.training = False


class CompiledModule(StandIn):
    """A model that the engine runs. Parameters, buffers and submodules are those of the model."""

    #: What inputs may be made of; None for anything.
    _dtypes: ClassVar[tuple[torch.dtype, ...] | None] = DTYPES

    def __init__(
        self,
        model: Callable[..., Any],
        *,
        precision: str = "f32",
        training: str = TRAINING[0],
        partition: str = PARTITIONS[0],
        dynamic: bool | None = None,
        fullgraph: bool = False,
        capture: Callable[[], GraphModule] | None = None,
    ) -> None:
        super().__init__(model)
        if precision not in PRECISIONS:
            known = " or ".join(map(repr, PRECISIONS))
            raise ValueError(f"precision is {known}, not {precision!r}")
        state = self.__dict__
        state["_precision"] = precision
        state["_dynamic"], state["_fullgraph"] = dynamic, fullgraph
        state["_placement"], state["_partition"] = training, partition
        #: The model as Dynamo captures it, for calls that autograd records.
        state["_trained"] = None
        # A graph that is given is not traced, and not by Dynamo either.
        state["_capture"] = capture
        self._forget()

    def _forget(self) -> None:
        state = self.__dict__
        state["_programs"] = OrderedDict()
        state["_captured"] = state["_native_graph"] = None
        #: Why corsac's own tracer cannot trace the model, once that is known.
        state["_untraceable"] = None
        state["_watches_attributes"] = False
        #: Tensors that the graph has and that are no weights, as a watch takes them.
        state["_constants"] = []
        #: What was captured for the sizes of calls.
        limit = LIMIT if self._dynamic is None else PROGRAMS
        state["_sized"] = SizedPrograms(self._model, self._callable, self._precision, limit)
        state["_watch"] = _core.Watch(self._model)
        state["_runner"] = _core.Runner(self._watch, self)
        state["_reasons"] = {}
        state["_dynamo"] = None
        if self._trained is None:
            state["_pieces"] = []

    def __reduce__(self) -> Any:
        settings = (self._fullgraph, self._dynamic, self._precision, self._placement)
        return _restore, (self._callable, *settings, self._partition)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            # Who captures a program around this one gets the model's own operators.
            return self._callable(*args, **kwargs)
        if not kwargs:
            try:
                results = self._runner.run(args)
            except ValueError as error:
                self._fail(error, args, {})
            except _core.PanicException as panic:
                return self._without_program(told(panic, RUNNING), args)
            if results is not NotImplemented:
                return results
        return super().__call__(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if any(type(own) is Hollow for own in (*args, *kwargs.values())):
            # What is captured around this one takes its calls as they are.
            return self._callable(*args, **kwargs)
        if (
            self._trained is not None
            and torch.is_grad_enabled()
            and self._watch.requires_grad()
            and _core.unusual_mode() is None
        ):
            # Weights change from step to step, which is nothing to look at here.
            return self._trained(*args, **kwargs)
        if not self._watch.is_current():
            self._forget()
        if self._untraceable is not None:
            return self._untraced_call(args, kwargs)
        inputs = self._bind(args, kwargs)
        if self._capture is None and (
            inputs is None or not all(isinstance(x, torch.Tensor) for x in inputs)
        ):
            return self._untraced_call(args, kwargs)
        reason = self._why_not(inputs)
        if reason is _AUTOGRAD and self._capture is None:
            return self._training_call(inputs)(*args, **kwargs)
        if reason is None:
            key = call_key(inputs)
            compiled = self._programs.get(key)
            if compiled is None:
                try:
                    compiled = self._compile(key, inputs)
                except TraceError as error:
                    if self._capture is not None:
                        raise CompileError(f"TraceError: {error}") from error
                    self.__dict__["_untraceable"] = str(error)
                    return self._untraced_call(args, kwargs)
            else:
                # Another thread may have dropped it meanwhile.
                with contextlib.suppress(KeyError):
                    self._programs.move_to_end(key)
            if isinstance(compiled, str):
                reason = compiled
            else:
                try:
                    return compiled.run(*inputs)
                except ValueError as error:
                    self._fail(error, args, kwargs)
                except EngineError as error:
                    if not isinstance(compiled.run, NativeCall):
                        # What PyTorch has run of it may have had effects.
                        raise
                    self._runner.remove(key)
                    self._programs[key] = reason = str(error)
        return self._by_host(reason, args, kwargs)

    def _without_program(self, reason: str, args: tuple[Any, ...]) -> Any:
        """Let PyTorch run this call and those like it: the program for them panicked, which had written to
        nothing but its own results."""
        used = self._runner.recent()
        if used:
            # The last one.
            self._runner.remove(used[-1])
        call = Call.of(args, {})
        if self._untraceable is None:
            self._programs[call_key(args)] = reason
        elif call is not None:
            self._sized.refuse(call, reason)
        return self._by_host(reason, args, {})

    def _by_host(self, reason: str, args: Any, kwargs: Any) -> Any:
        """The call as PyTorch runs it, once it is said why."""
        if self._fullgraph:
            raise CompileError(reason)
        if reason not in self._reasons:
            _warn(f"PyTorch runs this call: {reason}", HostWarning)
        self._reasons[reason] = self._reasons.get(reason, 0) + 1
        return self._callable(*args, **kwargs)

    def _fail(self, error: ValueError, args: Any, kwargs: Any) -> NoReturn:
        """Raise what PyTorch raises where a native program, which writes to no input, fails."""
        self._callable(*args, **kwargs)
        raise error

    def prepare(self, inputs: tuple[Any, ...]) -> str | None:
        """Compile for ``inputs`` without a call: None, or why PyTorch would run it."""
        if not self._watch.is_current():
            self._forget()
        reason = self._why_not(inputs)
        if reason is not None:
            return reason
        key = call_key(inputs)
        compiled = self._programs.get(key) or self._compile(key, inputs)
        return compiled if isinstance(compiled, str) else None

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        """All arguments by position; None if one is left out before another."""
        if not kwargs:
            return args
        signature = inspect.signature(self._model.forward)
        bound = signature.bind(*args, **kwargs)
        if any(
            own != name for own, name in zip(bound.arguments, signature.parameters, strict=False)
        ):
            return None
        return (*bound.args, *bound.kwargs.values())

    def _why_not(self, inputs: tuple[Any, ...]) -> str | None:
        """Why this call cannot run on the engine, whatever the graph is."""
        tensors = [(at, own) for at, own in enumerate(inputs) if type(own) is not int]
        for number, tensor in tensors:
            if (reason := why_not_plain(number, tensor)) is not None:
                return reason
            if self._dtypes is not None and tensor.dtype not in self._dtypes:
                return f"input {number} is {tensor.dtype}, not {_OF_DTYPES}"
            if tensor.device.type != "cpu":
                return f"input {number} is on {tensor.device}, not on the CPU"
        if torch.is_grad_enabled() and (
            any(tensor.requires_grad for _, tensor in tensors) or self._watch.requires_grad()
        ):
            return _core.unusual_mode() or _AUTOGRAD
        if not self._watch.counts_writes:
            return "weights made in inference mode do not tell when they are written to"
        return _core.unusual_mode()

    def _compile(self, key: Any, inputs: tuple[torch.Tensor, ...]) -> Compiled | str:
        start = time.perf_counter()
        compiled: Compiled | str
        try:
            with as_compile_error("it compiled a program"):
                if self._captured is None:
                    with torch.no_grad():
                        self.__dict__["_captured"] = self._graph_module()
                run, preview = self._native(inputs)
        except TraceError:
            raise
        except (CompileError, LoweringError, _core.ShapeInferenceError) as error:
            # PyTorch has the last word on calls that fail: it raises what users expect.
            compiled = f"{type(error).__name__}: {error}"
        else:
            seconds = time.perf_counter() - start
            kept = self._native_graph is not None and self._native_graph.is_kept(run, inputs)
            compiled = Compiled(run, seconds, preview, kept)
        for used in self._runner.recent():
            # Most calls pass this by: which programs they used is known there.
            with contextlib.suppress(KeyError):
                self._programs.move_to_end(used)
        self._programs[key] = compiled
        if isinstance(compiled, Compiled) and isinstance(compiled.run, NativeCall):
            self._runner.add(key, compiled.run.program, inputs)
        if len(self._programs) > PROGRAMS:
            oldest, _ = self._programs.popitem(last=False)
            self._runner.remove(oldest)
        return compiled

    def _graph_module(self) -> GraphModule:
        """The program that the model is, with what does not depend on inputs computed."""
        if self._capture is not None:
            module = self._capture()
        else:
            state = PythonState.of(self._model, self._callable)
            try:
                program = captured(self._model)
            except TraceError:
                # It runs once more, in another way.
                state.restore()
                raise
            module = program.module
            if program.read:
                # What they hold is in the program, so that it is for them as they are now.
                self._constants[:] = program.read
                self._watch_anew()
        fold_constants(module)
        return module

    def _untraced_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that corsac's own tracer has no graph for: captured for its sizes, or by Dynamo."""
        call = Call.of(args, kwargs)
        if call is None:
            return self._by_dynamo()(*args, **kwargs)
        reason = self._why_not(call.tensors)
        if reason is _AUTOGRAD:
            return self._training_call(call.tensors)(*args, **kwargs)
        if reason is not None or self._dynamic or self._watch.has_hooks:
            return self._by_dynamo()(*args, **kwargs)
        if not self._watches_attributes:
            self._watch_attributes()
        found = self._sized.program(call, args, kwargs)
        if isinstance(found, TraceError):
            return self._by_dynamo()(*args, **kwargs)
        program, is_new = found
        if is_new and not kwargs and program.capture.template is None:
            self._run_without_python(program, args)
        try:
            return program(call.tensors)
        except ValueError as error:
            self._fail(error, args, kwargs)
        except EngineError as error:
            if not isinstance(program.compiled.run, NativeCall):
                raise
            self._runner.remove(program.call.key)
            self._sized.refuse(call, str(error))
            return self._by_host(str(error), args, kwargs)

    def _watch_attributes(self) -> None:
        """Have calls look at what modules and the program can read besides tensors: graphs for sizes are
        for that, too."""
        self.__dict__["_watches_attributes"] = True
        self._watch_anew()

    def _watch_anew(self) -> None:
        """Look in calls at what programs are made for, as it is now."""
        entries = []
        if self._watches_attributes:
            entries = list(PythonState.of(self._model, self._callable).entries())
        watch = _core.Watch(self._model, entries, self._constants)
        runner = _core.Runner(watch, self)
        for key, compiled in list(self._programs.items()):
            if isinstance(compiled, Compiled) and isinstance(compiled.run, NativeCall):
                runner.add(key, compiled.run.program, ())
        self.__dict__["_watch"], self.__dict__["_runner"] = watch, runner

    def _run_without_python(self, program: SizedProgram, args: tuple[Any, ...]) -> None:
        """Have calls with such arguments run by native code from now on, if it knows them."""
        tensors = [own for own in args if isinstance(own, torch.Tensor)]
        is_known = all(type(own) is int or isinstance(own, torch.Tensor) for own in args)
        if len({id(own) for own in tensors}) < len(tensors):
            return
        if is_known and isinstance(program.compiled.run, NativeCall):
            native = program.compiled.run.program
            self._runner.add(program.call.key, native, args, distinct=True)

    def _by_dynamo(self) -> Callable[..., Any]:
        """The model captured by Dynamo: what it makes graphs of runs on the engine."""
        if self._dynamo is None:
            self.__dict__["_dynamo"] = self._captured_by_dynamo(self._sized.is_full)
        return self._dynamo

    def _training_call(self, inputs: tuple[Any, ...]) -> Callable[..., Any]:
        """The model for calls that autograd records: forward and backward graphs, natively where that
        is faster."""
        if self._trained is None:
            model = self._callable
            evaluates = isinstance(model, torch.nn.Module) and not model.training
            if evaluates and not any(getattr(own, "requires_grad", False) for own in inputs):
                _warn(_FOR_RESULTS, UserWarning)
            self.__dict__["_trained"] = self._trained_model()
        return self._trained

    def _trained_model(self) -> TrainedModel:
        # Not at the top: AOTAutograd is not imported before somebody uses it.
        from corsac._training import Captures, TrainedGraph, TrainedModel

        def make() -> TrainedGraph:
            return TrainedGraph(self._precision, self._placement, self._partition)

        limits = {None: TRAINED, True: 0, False: PROGRAMS}
        captures = Captures(self._model, self._callable, limits[self._dynamic], make)
        return TrainedModel(captures, self._captured_by_dynamo)

    def _captured_by_dynamo(self, sizes_change: bool) -> Callable[..., Any]:
        """The model captured by Dynamo, with sizes as symbols from the start if they keep changing and the user
        has not said otherwise."""
        dynamic = True if self._dynamic is None and sizes_change else self._dynamic
        pieces = self._pieces

        def backend(module: Any, inputs: Any) -> Callable[..., Any]:
            options = {
                "precision": self._precision,
                "training": self._placement,
                "partition": self._partition,
            }
            piece = piece_for(module, inputs, options)
            pieces.append(piece)
            return piece

        compiled = torch.compile(
            self._callable, backend=backend, dynamic=dynamic, fullgraph=self._fullgraph
        )
        return _with_known_floats(compiled) if dynamic else compiled

    def _native(
        self, inputs: tuple[torch.Tensor, ...]
    ) -> tuple[Callable[..., Any], Preview | None]:
        """The whole graph as a program, or what the engine knows of it as several."""
        if self._native_graph is None:
            # Programs around the graphs of Dynamo may write to their results.
            strict = self._capture is not None
            self.__dict__["_native_graph"] = NativeGraph(
                self._captured, precision=self._precision, strict=strict
            )
        # Types of what has no rule are found by running it: hooks are to run in calls only.
        return self._native_graph.compile(inputs, whole=self._fullgraph or self._watch.has_hooks)

    def native_programs(self) -> list[_core.NativeProgram]:
        """The programs that there are for whole graphs, those of Dynamo's graphs among them."""
        runs = [own.run for own in self._programs.values() if isinstance(own, Compiled)]
        runs += [own.compiled.run for own in self._sized.programs()]
        found = [run.program for run in runs if isinstance(run, NativeCall)]
        for piece in [*self._pieces, *self._trained_graphs()]:
            found += piece.native_programs()
        return found

    def _trained_graphs(self) -> list[TrainedGraph]:
        """The forward and backward graphs of calls that were captured for their sizes."""
        if self._trained is None:
            return []
        return [own.graph for own in self._trained.captures.programs()]

    def explain(self) -> str:
        """What was compiled, and what PyTorch ran and why, as text."""
        lines = [
            f"{own.call.describe()}: {own.compiled.explain()}" for own in self._sized.programs()
        ]
        if self._trained is not None:
            for program in self._trained.captures.programs():
                lines.append(f"{program.call.describe()}, with gradients:")
                lines += ["  " + line for line in program.graph.explain().splitlines()]
        for number, piece in enumerate(self._pieces):
            lines.append(f"graph {number} of Dynamo:")
            lines += ["  " + line for line in piece.explain().splitlines()]
        for key, compiled in self._programs.items():
            shapes = ", ".join(str(own if isinstance(own, int) else list(own[1])) for own in key)
            if isinstance(compiled, str):
                lines.append(f"{shapes}: not compiled: {compiled}")
                continue
            lines.append(f"{shapes}: {compiled.explain()}")
        for reason, count in self._reasons.items():
            lines.append(f"run by PyTorch {count} times: {reason}")
        return "\n".join(lines) or "not called yet"


def _with_known_floats(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, which Dynamo captures, with sizes as symbols but not the numbers in modules: it
    would make float64 tensors of factors and of what norms add to variances."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._dynamo.config.patch(specialize_float=True):
            return function(*args, **kwargs)

    return run


@dataclass(frozen=True, slots=True)
class Captured:
    """A program as a graph.

    Attributes:
        module: the graph.
        made: the nodes that give tensors, or views of tensors, that were made when it was traced.
        outside: an operator that read other tensors then, whose result is a constant of the graph.
        read: tensors that the program reads, or read then, and that are no inputs, parameters or buffers,
            as :class:`corsac._core.Watch` takes them.
    """

    module: GraphModule
    made: set[Node]
    outside: str | None
    read: list[tuple[tuple[dict[str, Any], str] | None, torch.Tensor]]


def captured(model: torch.nn.Module) -> Captured:
    """The program that ``model`` is.

    Raises:
        CompileError: it is not written in Python, or corsac's tracer panicked.
        TraceError: corsac's own tracer cannot trace it, or its graph would do something else.
    """
    program = model.forward if isinstance(model, Shell) else model
    if not isinstance(program, torch.nn.Module | types.FunctionType):
        raise CompileError(f"{program!r} is neither a module nor a function in Python")
    tracer = WatchingTracer()
    try:
        with as_compile_error("it traced a program"), watched_trace() as watch:
            graph = tracer.trace(program)
    except (TraceError, CompileError):
        raise
    except Exception as error:
        # Programs may do anything with what stands for their inputs.
        raise TraceError(f"{type(error).__name__}: {error}") from error
    # Tensors that are made when a program is traced are with the tracer.
    root = tracer.root if isinstance(model, Shell) else model
    watch.check(graph, root)
    known = {id(own) for own in (*model.parameters(), *model.buffers())}
    read: dict[int, Any] = {id(own): (None, own) for own in watch.read if id(own) not in known}
    for node in graph.find_nodes(op="get_attr"):
        value = _get_attr(root, str(node.target))
        if not isinstance(value, torch.Tensor) or id(value) in known:
            continue
        if value.requires_grad:
            raise TraceError(f"{node.target} wants gradients, and is no input and no parameter")
        if not watch.made(value):
            owner, _, name = str(node.target).rpartition(".")
            attributes = root.get_submodule(owner).__dict__
            place = (attributes, name) if attributes.get(name) is value else None
            read[id(value)] = place, value
    if root is not model:
        root.training = False
    constants = watch.constants(graph, root)
    return Captured(GraphModule(root, graph), constants, watch.outside, list(read.values()))


def _restore(
    model: Callable[..., Any],
    fullgraph: bool,
    dynamic: bool | None = None,
    precision: str = "f32",
    training: str = TRAINING[0],
    partition: str = PARTITIONS[0],
) -> CompiledModule:
    return CompiledModule(
        model,
        precision=precision,
        training=training,
        partition=partition,
        dynamic=dynamic,
        fullgraph=fullgraph,
    )
