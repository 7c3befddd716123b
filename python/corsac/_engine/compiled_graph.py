"""Compilation of given graphs into native programs."""

from __future__ import annotations

import contextlib
import functools
import inspect
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from corsac import _core
from corsac._engine.module import EngineModule, is_captured_around
from corsac._engine.native_graph import Compiled, CompileError, NativeGraph, call_key
from corsac._messages.report_text import with_repeats
from corsac._native.call import NativeCall
from corsac._native.options import INFERENCE, Precision
from corsac._native.panic import EngineError, as_compile_error
from corsac._pytorch.aten import storage_of, storages_in
from corsac.fx import GraphModule
from corsac.lowering import LoweringError
from corsac.passes import fold_constants
from corsac.passes._writes import written_placeholders

if TYPE_CHECKING:
    from corsac.lowering import Preview

#: Largest number of programs of a graph, one for each set of input shapes: those of caches grow from call to call.
PROGRAMS = 128


class CompiledGraph(EngineModule):
    """A graph module that the engine runs, compiled for each set of input shapes.

    Args:
        model: the graph module, which runs the calls that the engine cannot.
        capture: makes its graph, whose constants are folded.
        precision: as for :func:`corsac.compile`.
        inference: one of :data:`corsac._native.options.INFERENCE`.
        strict: whether results that share memory with anything else are an error: programs around the graph may
            write to them.
        any_rows: whether weights of linear layers are packed once for any number of rows.
        check: raises if the graph is not valid for such inputs.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        capture: Callable[[], GraphModule],
        *,
        precision: Precision = "f32",
        inference: str = INFERENCE[0],
        strict: bool = True,
        any_rows: bool = False,
        check: Callable[[Sequence[Any]], None] | None = None,
    ) -> None:
        super().__init__(model, precision=precision, fullgraph=False)
        state = self.__dict__
        state["_inference"] = inference
        state["_capture"], state["_strict"], state["_check"] = capture, strict, check
        state["_any_rows"] = any_rows
        self._forget()

    def _forget(self) -> None:
        state = self.__dict__
        state["_programs"] = OrderedDict()
        state["_captured"] = state["_native_graph"] = None
        # Norms do not raise the version counters of their statistics, so their contents are watched.
        statistics = [
            own for own in self._model.buffers() if own.dim() == 1 and own.is_floating_point()
        ]
        state["_model_guards"] = _core.ModelGuards(self._model, contents=statistics)
        state["_runner"] = _core.Runner(self)
        state["_reasons"] = {}
        #: Indices of inputs that it may write to, and the memory of weights, which they may be views of.
        graph = getattr(self._model, "graph", None)
        state["_written"] = () if graph is None else tuple(written_placeholders(graph))
        state["_storages"] = set()
        if self._written:
            weights = [*self._model.parameters(), *self._model.buffers()]
            state["_storages"] = set(storages_in(weights))

    def __reduce__(self) -> Any:
        made = functools.partial(
            CompiledGraph,
            precision=self._precision,
            inference=self._inference,
            strict=self._strict,
            any_rows=self._any_rows,
            check=self._check,
        )
        return made, (self._model, self._capture)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if is_captured_around():
            return self._callable(*args, **kwargs)
        if not self._model_guards.is_current():
            self._forget()
        inputs = self._bind(args, kwargs)
        if self._check is not None:
            self._check(inputs)
        reason = self._why_not(inputs)
        if reason is None:
            key = self._key(inputs)
            compiled = self._programs.get(key)
            if compiled is None:
                compiled = self._compile(key, inputs)
            else:
                # Another thread may have dropped it meanwhile.
                with contextlib.suppress(KeyError):
                    self._programs.move_to_end(key)
            if isinstance(compiled, str):
                reason = compiled
            else:
                return self._run(
                    compiled,
                    lambda: compiled.run(*inputs),
                    args,
                    kwargs,
                    refuse=functools.partial(self._refuse, key),
                    rewind=lambda: None,
                    settle=functools.partial(self._settle, key, compiled, inputs),
                )
        return self._by_host(reason, args, kwargs)

    def _refuse(self, key: Any, reason: str) -> str:
        """Leave calls like this one to PyTorch, since their program failed; return the reason."""
        self._runner.remove(key)
        self._programs[key] = reason
        return reason

    def _settle(self, key: Any, compiled: Compiled, inputs: tuple[Any, ...]) -> None:
        """Let the runner call the program for such inputs directly, if it is all native, and faster."""
        is_native = isinstance(compiled.run, NativeCall) and compiled.choice.race is None
        # Another thread may have dropped it meanwhile.
        if is_native and not compiled.choice.is_slower() and self._programs.get(key) is compiled:
            self._runner.add(key, compiled.run.program, inputs, self._model_guards)

    def _key(self, inputs: tuple[Any, ...]) -> Any:
        """Key of the program for these inputs; if it writes to inputs, with whether these share memory with weights."""
        key = call_key(inputs)
        return (key, self._is_apart(inputs)) if self._written else key

    def _is_apart(self, inputs: tuple[Any, ...]) -> bool:
        given = (inputs[number] for number in self._written if number < len(inputs))
        return not any(
            isinstance(own, torch.Tensor) and storage_of(own) in self._storages for own in given
        )

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """All arguments by position."""
        if not kwargs:
            return args
        bound = inspect.signature(self._model.forward).bind(*args, **kwargs)
        return (*bound.args, *bound.kwargs.values())

    def _why_not(self, inputs: tuple[Any, ...]) -> str | None:
        if not self._model_guards.counts_writes:
            return "weights made in inference mode do not tell when they are written to"
        return super()._why_not(inputs)

    def _without_program(self, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let PyTorch run this call and those like it: their program panicked, and had written to its own
        results only."""
        used = self._runner.recent()
        if used:
            # The last one ran this call.
            self._runner.remove(used[-1])
        if self._written:
            # It may have written to inputs already, so the call cannot be repeated.
            raise EngineError(reason)
        self._programs[self._key(self._bind(args, kwargs))] = reason
        return self._by_host(reason, args, kwargs)

    def prepare(self, inputs: tuple[Any, ...]) -> str | None:
        """Compile for ``inputs`` without a call; return the reason if PyTorch would run it, else None."""
        if not self._model_guards.is_current():
            self._forget()
        reason = self._why_not(inputs)
        if reason is not None:
            return reason
        key = self._key(inputs)
        compiled = self._programs.get(key) or self._compile(key, inputs)
        return compiled if isinstance(compiled, str) else None

    def _compile(self, key: Any, inputs: tuple[torch.Tensor, ...]) -> Compiled | str:
        start = time.perf_counter()
        compiled: Compiled | str
        try:
            with as_compile_error("it compiled a program"):
                if self._captured is None:
                    with torch.no_grad():
                        module = self._capture()
                        fold_constants(module)
                    self.__dict__["_captured"] = module
                run, preview = self._native(inputs)
        except (CompileError, LoweringError, _core.ShapeInferenceError) as error:
            # PyTorch runs calls that fail, and raises the errors that users expect.
            compiled = f"{type(error).__name__}: {error}"
        else:
            seconds = time.perf_counter() - start
            kept = self._native_graph is not None and self._native_graph.is_kept(run, inputs)
            compiled = Compiled(run, seconds, preview, kept)
        for used in self._runner.recent():
            # Most calls go to the runner directly, which has the order of last uses.
            with contextlib.suppress(KeyError):
                self._programs.move_to_end(used)
        self._programs[key] = compiled
        if isinstance(compiled, Compiled):
            if self._inference == INFERENCE[0]:
                compiled.measure()
            self._settle(key, compiled, inputs)
        if len(self._programs) > PROGRAMS:
            oldest, _ = self._programs.popitem(last=False)
            self._runner.remove(oldest)
        return compiled

    def _native(
        self, inputs: tuple[torch.Tensor, ...]
    ) -> tuple[Callable[..., Any], Preview | None]:
        """The whole graph as one program, or as several native parts with PyTorch between them."""
        if self._native_graph is None:
            self.__dict__["_native_graph"] = NativeGraph(
                self._captured,
                precision=self._precision,
                strict=self._strict,
                any_rows=self._any_rows,
            )
        # Types of calls without a rule are found by running them, which must not run hooks.
        return self._native_graph.compile(
            inputs, whole=self._model_guards.has_hooks, apart=self._is_apart(inputs)
        )

    def native_programs(self) -> list[_core.NativeProgram]:
        """The native programs of the whole graph."""
        runs = [own.run for own in self._programs.values() if isinstance(own, Compiled)]
        return [run.program for run in runs if isinstance(run, NativeCall)]

    def explain(self) -> str:
        """Report of the compiled programs, and of calls that PyTorch ran, with reasons, as text."""
        lines = []
        for key, compiled in self._programs.items():
            key = key[0] if self._written else key
            shapes = with_repeats(
                [str(own if isinstance(own, int) else list(own[1])) for own in key]
            )
            if isinstance(compiled, str):
                lines.append(f"{shapes}: not compiled: {compiled}")
                continue
            lines.append(f"{shapes}: {compiled.explain()}")
        return "\n".join([*lines, *self._hosted_calls()]) or "not called yet"


__all__ = ["PROGRAMS", "CompiledGraph"]
