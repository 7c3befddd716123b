"""Base class of modules that the engine runs: calls that it cannot run, and warnings about them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch.compiler import is_dynamo_compiling

from corsac import _core
from corsac._capture.markers import is_recording
from corsac._engine.native_graph import Compiled, CompileError, FailedAfterwards, Raised
from corsac._messages.lines import PACKAGES
from corsac._models.wrapper import ModelWrapper
from corsac._native.call import RUNNING
from corsac._native.options import PRECISIONS
from corsac._native.panic import EngineError, panic_message

#: Dtypes of native inputs.
DTYPES: tuple[torch.dtype, ...] = tuple(getattr(torch, name) for name in _core.native_dtypes())
#: Number of calls left to PyTorch without a check where it was measured to be faster.
LEFT = 1000
#: Number of calls that are checked and turn out to be PyTorch's before some are left to it without a check.
OFTEN = 100
#: Reason why a program for inference does not run a call.
AUTOGRAD = "autograd records it (call it in torch.no_grad() or torch.inference_mode())"
_OF_DTYPES = ", ".join(str(dtype) for dtype in DTYPES)


class HostWarning(UserWarning):
    """PyTorch runs a compiled call; the message gives the reason."""


def warn(text: str, category: type[Warning]) -> None:
    """Issue a warning that points to the calling line outside PyTorch and corsac."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGES):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def why_not_plain(name: str, own: Any) -> str | None:
    """Reason why an input is not a plain strided tensor, which native code or a backend can read; None if it is."""
    if type(own) is not torch.Tensor and type(own) is not torch.nn.Parameter:
        return f"{name} is a {type(own).__name__}, not a tensor"
    if own.is_nested:
        return f"{name} is a nested tensor"
    if own.layout is not torch.strided:
        return f"{name} is {own.layout}"
    if torch._C._functorch.is_functorch_wrapped_tensor(own) or torch._is_functional_tensor(own):
        return f"{name} is transformed by torch.func"
    return None


def why_not_native(
    name: str, own: Any, dtypes: tuple[torch.dtype, ...] | None = DTYPES
) -> str | None:
    """Reason why an input is not a CPU tensor of these dtypes that native code can read; None if it is."""
    if (reason := why_not_plain(name, own)) is not None:
        return reason
    if dtypes is not None and own.dtype not in dtypes:
        return f"{name} is {own.dtype}, not {_OF_DTYPES}"
    if own.device.type != "cpu":
        return f"{name} is on {own.device}, not on the CPU"
    return None


def is_captured_around() -> bool:
    """Whether a program around this call is being captured, and needs the model's own operators."""
    return is_dynamo_compiling() or is_recording() or torch._C._get_tracing_state() is not None


class EngineModule(ModelWrapper):
    """A model, or a graph, that the engine runs. Parameters, buffers and submodules are those of the model."""

    #: Dtypes of inputs; None for any.
    _dtypes: ClassVar[tuple[torch.dtype, ...] | None] = DTYPES
    #: The type that autocast casts to in the calls that it runs; None for calls without autocast.
    _autocast: torch.dtype | None = None

    def __init__(self, model: Callable[..., Any], *, precision: str, fullgraph: bool) -> None:
        super().__init__(model)
        if precision not in PRECISIONS:
            known = " or ".join(map(repr, PRECISIONS))
            raise ValueError(f"precision is {known}, not {precision!r}")
        state = self.__dict__
        state["_precision"], state["_fullgraph"] = precision, fullgraph
        #: Number of calls that PyTorch ran, by reason.
        state["_reasons"] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call_with(args, kwargs)

    def _call_with(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if is_dynamo_compiling() or is_recording():
            # A capture of a program around this one gets the model's own operators.
            return self._callable(*args, **kwargs)
        panicked = None
        try:
            results = self._runner.run(args, kwargs)
        except _core.PanicException as panic:
            results, panicked = None, panic_message(panic, RUNNING)
        # After the handler, so that exceptions of PyTorch have no other one as their context.
        if panicked is not None:
            return self._without_program(panicked, args, kwargs)
        if results is _core.FAILED:
            return self._failed(args, kwargs)
        if results is _core.HOST:
            if not (torch.is_grad_enabled() and self._model_guards.requires_grad()):
                return self._callable(*args, **kwargs)
        elif results is not NotImplemented:
            return results
        return self._looked_at(args, kwargs)

    def _looked_at(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call that the runner does not know, with all checks."""
        return super().__call__(*args, **kwargs)

    def _without_program(self, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let PyTorch run this call and those like it: their program panicked, and had written to its own
        results only."""
        raise NotImplementedError

    def _run(
        self,
        compiled: Compiled,
        run: Callable[[], Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        refuse: Callable[[str], str],
        rewind: Callable[[], None],
        settle: Callable[[], None],
        lookup: float = 0.0,
    ) -> Any:
        """Run a call that has a program, natively or by PyTorch, whichever is faster.

        Args:
            compiled: the program.
            run: makes the call natively.
            args, kwargs: its arguments.
            refuse: leaves calls like this one to PyTorch; called with the reason why native code failed.
            rewind: undoes the changes of the call, before PyTorch repeats it.
            settle: called once it is known which way is faster.
            lookup: time to find the program, in seconds, if each call needs it.
        """

        def native() -> Any:
            error: Raised | ValueError | EngineError
            try:
                return run()
            except (Raised, ValueError, EngineError) as raised:
                error = raised
            # After the handler, so that exceptions of PyTorch have no other one as their context. Parts that PyTorch has
            # run may have had effects.
            repeats = compiled.may_repeat() and not isinstance(error, FailedAfterwards)
            has_written = not isinstance(error, ValueError) and compiled.has_written()
            if has_written or not repeats:
                raise error.error if isinstance(error, Raised) else error
            rewind()
            if isinstance(error, EngineError):
                return self._by_host(refuse(str(error)), args, kwargs)
            # The program may catch PyTorch's error, and go on.
            return self._failed(args, kwargs)

        race = compiled.choice.race

        def host() -> Any:
            rewind()
            return self._callable(*args, **kwargs)

        results = compiled.call(native, host, lookup)
        if race is not None and compiled.choice.race is None:
            settle()
        if compiled.choice.is_slower():
            self._runner.leave(args, kwargs, LEFT)
        return results

    def _by_host(self, reason: str, args: Any, kwargs: Any) -> Any:
        """Run the call by PyTorch, and note the reason."""
        self._note_host(reason, args, kwargs)
        return self._callable(*args, **kwargs)

    def _note_host(self, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note, and warn once, why PyTorch runs a call with such arguments. After enough of them, the next ones are
        not checked, since the check may take longer than the call."""
        if self._fullgraph:
            raise CompileError(reason)
        if reason not in self._reasons:
            warn(f"PyTorch runs this call: {reason}", HostWarning)
        self._reasons[reason] = self._reasons.get(reason, 0) + 1
        if self._reasons[reason] > OFTEN:
            self._runner.leave(args, kwargs, LEFT)

    def _hosted_calls(self) -> list[str]:
        """Numbers of calls that PyTorch ran, with reasons, as lines of text."""
        return [
            f"run by PyTorch {f'more than {OFTEN}' if count > OFTEN else count} times: {reason}"
            for reason, count in self._reasons.items()
        ]

    def _failed(self, args: Any, kwargs: Any) -> Any:
        """Repeat a failed call by PyTorch, which returns a result or raises its own error; the native program has
        written to no input."""
        return self._callable(*args, **kwargs)

    def _why_not(self, inputs: tuple[Any, ...]) -> str | None:
        """Reason why this call cannot run on the engine, whatever the program; None if it can."""
        tensors = [(at, own) for at, own in enumerate(inputs) if type(own) is not int]
        # The fast check passes nearly all inputs.
        if self._dtypes is not DTYPES or not _core.are_native(tuple([own for _, own in tensors])):
            for number, tensor in tensors:
                if (reason := why_not_native(f"input {number}", tensor, self._dtypes)) is not None:
                    return reason
        unusual: str | None = _core.unusual_mode(autocast=self._autocast is not None)
        if torch.is_grad_enabled() and (
            any(tensor.requires_grad for _, tensor in tensors) or self._model_guards.requires_grad()
        ):
            return unusual or AUTOGRAD
        return unusual


__all__ = [
    "AUTOGRAD",
    "DTYPES",
    "EngineModule",
    "HostWarning",
    "is_captured_around",
    "warn",
    "why_not_native",
    "why_not_plain",
]
