"""Models whose graphs a backend runs."""

from __future__ import annotations

import functools
import inspect
import threading
import time
import types
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling

from corsac import _core
from corsac._engine_module import HostWarning, why_not_plain
from corsac._native_graph import CompileError
from corsac._recordings import SIZES
from corsac._stand_in import StandIn
from corsac._trace_watch import ModeWatch
from corsac._traced_program import captured
from corsac.backends._contract import BackendError, Declined, hand_over, name_of
from corsac.backends._flatten import flatten_results
from corsac.backends._graph_record import GraphRecord
from corsac.backends._program_error import fails_without_backend
from corsac.backends._registry import lookup_backend
from corsac.backends._watching import watched
from corsac.fx.convert import from_torch
from corsac.fx.proxy import TraceError

# Backends are asked by one thread at a time.
_compiling = threading.RLock()


class HostedModule(StandIn):
    """A model of which a backend runs the graphs: what :func:`corsac.compile` makes with ``backend=``.

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
        self._forget()
        if dynamic:
            self._use_dynamo("dynamic=True: sizes are symbols")

    def _forget(self) -> None:
        state = self.__dict__
        #: Tensors that graphs read besides, as a watch takes them, by themselves.
        state["_constants"] = {}
        state["_watch"] = _core.Watch(self._model)
        state["_structure"] = _structure(self._model)
        state["_weights"] = list(self._model.parameters())
        state["_calls"] = OrderedDict()
        state["_dynamo"] = None
        #: Why corsac's own tracer did not capture the model.
        state["_why_dynamo"] = None
        #: What was handed to the backend.
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
        """What was handed to the backend, in order."""
        return tuple(self._records)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            # Who captures a program around this one gets the model's own operators.
            return self._callable(*args, **kwargs)
        self._look_at_weights()
        if self._dynamo is not None:
            return self._dynamo(*args, **kwargs)
        inputs = self._bind(args, kwargs)
        reason = self._why_not_traced(inputs)
        if reason is None:
            try:
                call = self._call_for(inputs)
            except TraceError as error:
                reason = str(error)
        if reason is not None:
            return self._use_dynamo(reason)(*args, **kwargs)
        return call(*inputs)

    def _call_for(self, inputs: tuple[torch.Tensor, ...]) -> Callable[..., Any]:
        """What runs calls with such inputs."""
        key = _key(inputs)
        if torch.is_grad_enabled():
            key += tuple(own.requires_grad for own in self._weights)
        call = self._calls.get(key)
        if call is not None:
            return call
        with _compiling:
            call = self._calls.get(key)
            if call is None:
                call = self._calls[key] = self._compile(inputs)
                while len(self._calls) > SIZES:
                    self._calls.popitem(last=False)
        return call

    def _look_at_weights(self) -> None:
        """Forget what was compiled if it is for another model than this has become."""
        if self._dynamo is not None or self._watch.is_current():
            return
        # AOTAutograd puts stand-ins in the place of weights while it compiles.
        with _compiling:
            if self._watch.is_current():
                return
            structure = _structure(self._model)
            if structure == self._structure and not getattr(self._backend, "copies_weights", False):
                # Weights were written to, as an optimiser does; the same tensors are read again.
                self._watch_anew()
            else:
                self._forget()

    def _watch_anew(self) -> None:
        self.__dict__["_watch"] = _core.Watch(self._model, constants=list(self._constants.values()))

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        """All inputs by position; None if they cannot be."""
        try:
            bound = inspect.signature(self._model.forward).bind(*args, **kwargs)
        except (TypeError, ValueError):
            return None
        bound.apply_defaults()
        return (*bound.args, *bound.kwargs.values())

    def _why_not_traced(self, inputs: tuple[Any, ...] | None) -> str | None:
        """Why Dynamo has to capture this call, whatever the program is."""
        if inputs is None:
            return "its arguments do not fit, or its signature is not known"
        for number, own in enumerate(inputs):
            if (reason := why_not_plain(number, own)) is not None:
                return reason
        if self._watch.has_hooks:
            return "it has hooks"
        if torch._C._len_torch_dispatch_stack():
            return "a mode of torch.utils._python_dispatch is on"
        if forward_ad._current_level >= 0:
            return "forward-mode differentiation is on"
        return None

    def _compile(self, inputs: tuple[torch.Tensor, ...]) -> Callable[..., Any]:
        start = time.perf_counter()
        with torch.no_grad(), ModeWatch():
            program = captured(self._model)
        if program.outside is not None:
            raise TraceError(f"{program.outside} reads a tensor that is no input and no parameter")
        self._constants.update({id(own): (place, own) for place, own in program.read})
        self._watch_anew()
        module = program.module
        assemble = flatten_results(program)
        places = len(module.graph.find_nodes(op="placeholder"))
        if places != len(inputs):
            raise TraceError(f"the graph takes {places} inputs, not {len(inputs)}")
        record = GraphRecord(module, inputs, "corsac", time.perf_counter() - start)
        try:
            compiled = self._handed_over(record, module, inputs)
        except Exception as error:
            if fails_without_backend(module, inputs):
                # PyTorch has the last word on programs that fail: it raises what users expect.
                return self._callable
            if isinstance(error, BackendError):
                raise
            raise _failure(self._backend, error) from error

        def call(*args: torch.Tensor) -> Any:
            return assemble(*compiled(*args))

        return call

    def _handed_over(self, record: GraphRecord, module: Any, inputs: Any) -> Callable[..., Any]:
        """What the backend makes of a graph; PyTorch runs it if the backend declines."""
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

    def _use_dynamo(self, reason: str) -> Callable[..., Any]:
        """The model captured by Dynamo, with the backend for its graphs."""

        def receive(module: torch.fx.GraphModule, inputs: Any, **_: Any) -> Callable[..., Any]:
            start = time.perf_counter()
            converted = from_torch(module)
            record = GraphRecord(converted, inputs, "Dynamo", 0.0)
            record.seconds["conversion"] = time.perf_counter() - start
            record.stopped = getattr(module, "compile_subgraph_reason", None)
            with _compiling:
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

    def explain(self) -> str:
        """What was handed to the backend, and what PyTorch ran and why, as text."""
        lines = []
        if self._why_dynamo is not None:
            lines.append(f"captured by Dynamo: {self._why_dynamo}")
        lines += [f"graph {number}: {own}" for number, own in enumerate(self._records)]
        return "\n".join(lines) or "not called yet"


def _target(model: Callable[..., Any]) -> Any:
    """What Dynamo compiles: it looks through functions and modules, not through other callables."""
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


def _structure(model: torch.nn.Module) -> list[Any]:
    """What graphs depend on: the tensors and their types, the modules and how they train."""
    found: list[Any] = []
    for name, module in model.named_modules():
        found.append((name, id(module), module.training, bool(module._forward_hooks)))
        for own in (module._parameters, module._buffers):
            for key, x in own.items():
                if x is None:
                    found.append((key, None))
                else:
                    found.append((key, id(x), x.dtype, x.shape, x.device))
    return found


def _key(inputs: tuple[torch.Tensor, ...]) -> Any:
    """What a graph was compiled for: types of tensors, what they share, and modes."""
    types_ = tuple(
        (x.dtype, x.shape, x.stride(), x.device, x.requires_grad, type(x)) for x in inputs
    )
    places: dict[int, int] = {}
    shared = tuple(places.setdefault(x.untyped_storage()._cdata, n) for n, x in enumerate(inputs))
    if len(places) < len(inputs):
        shared += tuple(
            (id(x) in map(id, inputs[:n]), x.storage_offset()) for n, x in enumerate(inputs)
        )
    device = inputs[0].device.type if inputs else "cpu"
    autocast = torch.is_autocast_enabled(device)
    return (
        types_,
        shared,
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        autocast and torch.get_autocast_dtype(device),
    )
