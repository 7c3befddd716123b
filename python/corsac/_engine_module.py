"""What modules have in common that the engine runs: when it cannot, and what is said then."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch.compiler import is_dynamo_compiling

from corsac import _core
from corsac._dynamo import PRECISIONS
from corsac._lines import PACKAGES
from corsac._native import RUNNING
from corsac._native_graph import Compiled, CompileError, GraphFailed
from corsac._panic import EngineError, told
from corsac._record import is_recording
from corsac._stand_in import StandIn

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
#: How many calls are left to PyTorch without a look at them where it was seen to be faster.
LEFT = 1000
#: So many calls are looked at that turn out to be PyTorch's before some are left to it.
OFTEN = 100
#: Why a program for inference is not asked.
AUTOGRAD = "autograd records it (call it in torch.no_grad() or torch.inference_mode())"
_OF_DTYPES = ", ".join(str(dtype) for dtype in DTYPES)


class HostWarning(UserWarning):
    """PyTorch runs what was compiled, and why."""


def warn(text: str, category: type[Warning]) -> None:
    """Warn of the line that has called what was compiled, outside PyTorch and corsac."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGES):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def why_not_plain(name: str, own: Any) -> str | None:
    """Why an input is no tensor that native code or a backend can read as it is."""
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
    """Why an input is no tensor of these types that native code can read."""
    if (reason := why_not_plain(name, own)) is not None:
        return reason
    if dtypes is not None and own.dtype not in dtypes:
        return f"{name} is {own.dtype}, not {_OF_DTYPES}"
    if own.device.type != "cpu":
        return f"{name} is on {own.device}, not on the CPU"
    return None


def is_captured_around() -> bool:
    """Whether somebody captures a program around this call, and is to see the model's own operators."""
    return is_dynamo_compiling() or is_recording() or torch._C._get_tracing_state() is not None


class EngineModule(StandIn):
    """A model, or a graph, that the engine runs. Parameters, buffers and submodules are those of the model."""

    #: What inputs may be made of; None for anything.
    _dtypes: ClassVar[tuple[torch.dtype, ...] | None] = DTYPES

    def __init__(self, model: Callable[..., Any], *, precision: str, fullgraph: bool) -> None:
        super().__init__(model)
        if precision not in PRECISIONS:
            known = " or ".join(map(repr, PRECISIONS))
            raise ValueError(f"precision is {known}, not {precision!r}")
        state = self.__dict__
        state["_precision"], state["_fullgraph"] = precision, fullgraph
        #: Why PyTorch ran calls, and how many.
        state["_reasons"] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call_with(args, kwargs)

    def _call_with(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if is_dynamo_compiling() or is_recording():
            # Who captures a program around this one gets the model's own operators.
            return self._callable(*args, **kwargs)
        if not kwargs:
            try:
                results = self._runner.run(args)
            except ValueError:
                return self._failed(args, {})
            except _core.PanicException as panic:
                return self._without_program(told(panic, RUNNING), args)
            if results is _core.HOST:
                if not (torch.is_grad_enabled() and self._watch.requires_grad()):
                    return self._callable(*args)
            elif results is not NotImplemented:
                return results
        return self._looked_at(args, kwargs)

    def _looked_at(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that something may be special about."""
        return super().__call__(*args, **kwargs)

    def _without_program(self, reason: str, args: tuple[Any, ...]) -> Any:
        """Let PyTorch run this call and those like it: the program for them panicked, which had written to
        nothing but its own results."""
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
        """A call that something was compiled for, by who is faster.

        Args:
            compiled: what runs it.
            run: the call, natively.
            args, kwargs: its arguments.
            refuse: is told why native code failed, and leaves calls like this one to PyTorch.
            rewind: puts back what the call has changed, before PyTorch makes it.
            settle: is called once it is known who is faster.
            lookup: how long it took to find what runs it, in seconds, if that is so in each call.
        """

        def native() -> Any:
            try:
                return run()
            except GraphFailed as failed:
                if compiled.has_written() or not compiled.may_repeat():
                    raise failed.error from None
                # The program may catch it, and go on.
                rewind()
                return self._failed(args, kwargs)
            except (ValueError, EngineError) as error:
                if not compiled.may_repeat():
                    # What PyTorch has run of it may have had effects.
                    raise
                if isinstance(error, ValueError):
                    rewind()
                    return self._failed(args, kwargs)
                if compiled.has_written():
                    raise
                rewind()
                return self._by_host(refuse(str(error)), args, kwargs)

        race = compiled.choice.race

        def host() -> Any:
            rewind()
            return self._callable(*args, **kwargs)

        results = compiled.call(native, host, lookup)
        if race is not None and compiled.choice.race is None:
            settle()
        if not kwargs and compiled.choice.is_slower():
            self._runner.leave(args, LEFT)
        return results

    def _by_host(self, reason: str, args: Any, kwargs: Any) -> Any:
        """The call as PyTorch runs it, once it is said why."""
        self._note_host(reason, args, kwargs)
        return self._callable(*args, **kwargs)

    def _note_host(self, reason: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Says why PyTorch runs a call with such arguments. Where that was so often enough, the next ones are not
        looked at, which takes longer than some of them do."""
        if self._fullgraph:
            raise CompileError(reason)
        if reason not in self._reasons:
            warn(f"PyTorch runs this call: {reason}", HostWarning)
        self._reasons[reason] = self._reasons.get(reason, 0) + 1
        if self._reasons[reason] > OFTEN and not kwargs:
            self._runner.leave(args, LEFT)

    def _hosted_calls(self) -> list[str]:
        """Why PyTorch ran calls, and how many, as text."""
        return [
            f"run by PyTorch {f'more than {OFTEN}' if count > OFTEN else count} times: {reason}"
            for reason, count in self._reasons.items()
        ]

    def _failed(self, args: Any, kwargs: Any) -> Any:
        """What PyTorch gives, or raises, where a native program, which writes to no input, fails."""
        return self._callable(*args, **kwargs)

    def _why_not(self, inputs: tuple[Any, ...]) -> str | None:
        """Why this call cannot run on the engine, whatever the program is."""
        tensors = [(at, own) for at, own in enumerate(inputs) if type(own) is not int]
        # Those that are as nearly all are need no further questions.
        if self._dtypes is not DTYPES or not _core.are_native(tuple([own for _, own in tensors])):
            for number, tensor in tensors:
                if (reason := why_not_native(f"input {number}", tensor, self._dtypes)) is not None:
                    return reason
        if torch.is_grad_enabled() and (
            any(tensor.requires_grad for _, tensor in tensors) or self._watch.requires_grad()
        ):
            return _core.unusual_mode() or AUTOGRAD
        return _core.unusual_mode()


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
