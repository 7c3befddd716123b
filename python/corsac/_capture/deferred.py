"""Deferred output: prints, logs and warnings of a recorded program are repeated at the end of each call.

The delay cannot be observed as long as the printed values do not change meanwhile: constants, numbers, and tensors
that the program does not write to afterwards.
"""

from __future__ import annotations

import functools
import io
import logging
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch

from corsac._pytorch.aten import has_attributes, storage_of

#: Types of values that may be printed, besides tensors and tuples.
_VALUES = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    torch.dtype,
    torch.device,
    torch.layout,
)
#: Types of files that may be printed to, if the program does not open them itself.
_FILES = (io.TextIOWrapper, io.StringIO)
#: The method that all logging functions end in.
_LOG = logging.Logger._log
#: Largest number of frames between a printing call and the formatting of a tensor.
_DEEPEST = 40


@dataclass(frozen=True, slots=True)
class DeferredCall:
    """A call that is made at the end of the program.

    Attributes:
        function: the function to call.
        args: its arguments, positional ones first.
        names: names of the keyword arguments, which are the last of ``args``.
        line: description for reports.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    names: tuple[str, ...]
    line: str

    def __call__(self, values: list[Any]) -> None:
        """Call the function with these values in the place of the arguments."""
        first = len(values) - len(self.names)
        self.function(*values[:first], **dict(zip(self.names, values[first:], strict=True)))


class Deferred:
    """The printing, logging and warning calls of a program that is being recorded.

    Args:
        end: the code that calls the program: warnings that point outside of it point elsewhere in each call.
    """

    #: Code of printing functions, which is not recorded.
    CODES = (_LOG.__code__,)

    def __init__(self, end: CodeType) -> None:
        self._end = end
        self.calls: list[DeferredCall] = []
        #: Memory of printed tensors.
        self.storages: set[int] = set()
        #: Whether the program warns.
        self.warns = False
        self._out, self._filters = sys.stdout, list(warnings.filters)
        self._show = warnings.showwarning
        #: The frame of the last printing call, and the instruction in it.
        self._frame: FrameType | None = None
        self._at = 0

    def note(
        self, function: Callable[..., Any] | None, arguments: tuple[Any, ...], names: Any
    ) -> str | None:
        """Note the call of a printing function.

        Args:
            function: the function; None if the frame being entered is that of :data:`_LOG`.
            arguments: all of its arguments.
            names: the names of the last ones; None if they are not known.

        Returns:
            The reason why it cannot be repeated later; None if it can.
        """
        # The frame of the program, below the recorder.
        frame = sys._getframe(3)
        made = None
        if function is None:
            made = self._logged(frame)
        elif names is not None:
            names = tuple(names)
            if function is warnings.warn:
                made = self._warned(frame, arguments, names)
            elif all(map(self._is_later, arguments)) and (
                sys.stdout is self._out or function is not print
            ):
                name = getattr(function, "__qualname__", str(function))
                made = DeferredCall(function, arguments, names, name)
        if made is None:
            called = "logging" if function is None else getattr(function, "__name__", "")
            return f"it calls {called} with what is another thing later"
        self.calls.append(made)
        for own in made.args:
            self._note_storages(own)
        self._frame, self._at = frame, frame.f_lasti
        return None

    def is_printing(self) -> bool:
        """Whether the caller runs inside the printing call noted last."""
        frame: FrameType | None = sys._getframe(2)
        for _ in range(_DEEPEST):
            if frame is None or frame is self._frame:
                break
            frame = frame.f_back
        if frame is None or frame is not self._frame:
            return False
        return frame.f_lasti == self._at or frame.f_code in self.CODES

    def end(self) -> None:
        """End the recording."""
        self._frame = None

    def files(self) -> list[Any]:
        """The files that the program prints to."""
        values = [
            own
            for call in self.calls
            for own in (*call.args, getattr(call.function, "__self__", None))
        ]
        return [own for own in values if isinstance(own, _FILES)]

    def _is_later(self, own: Any) -> bool:
        """Whether a value prints the same later."""
        if isinstance(own, torch.Tensor):
            return (
                type(own) in (torch.Tensor, torch.nn.Parameter)
                and own.layout is torch.strided
                and not has_attributes(own)
            )
        if type(own) is tuple or type(own) is torch.Size:
            return all(map(self._is_later, own))
        return type(own) in _VALUES or isinstance(own, _FILES)

    def _note_storages(self, own: Any) -> None:
        if isinstance(own, torch.Tensor):
            self.storages.add(storage_of(own))
        elif type(own) is tuple:
            for part in own:
                self._note_storages(part)

    def _logged(self, frame: FrameType) -> DeferredCall | None:
        given = frame.f_locals
        logger, message, args = given["self"], given["msg"], given["args"]
        if (
            given["exc_info"]
            or given["extra"] is not None
            or given["stack_info"]
            or given["stacklevel"] != 1
            or not self._is_later(message)
            or type(args) is not tuple
            or not self._is_later(args)
        ):
            return None
        caller: FrameType | None = frame
        while caller is not None and caller.f_code.co_filename == logging._srcfile:
            caller = caller.f_back
        if caller is None:
            return None
        code = caller.f_code
        place = (code.co_filename, caller.f_lineno, code.co_name)
        function = functools.partial(_log, logger, given["level"], place)
        return DeferredCall(function, (message, *args), (), f"logging: {message}")

    def _warned(
        self, frame: FrameType, arguments: tuple[Any, ...], names: tuple[str, ...]
    ) -> DeferredCall | None:
        first = len(arguments) - len(names)
        order = ("message", "category", "stacklevel", "source")
        given = dict(zip(order, arguments[:first], strict=False))
        given.update(zip(names, arguments[first:], strict=True))
        message, category = given.get("message"), given.get("category")
        if (
            type(message) is not str
            or warnings_are_raised()
            or given.get("source") is not None
            or not isinstance(category, type | None)
            or warnings.filters != self._filters
            or warnings.showwarning is not self._show
        ):
            return None
        target = self._target(frame, given.get("stacklevel", 1))
        if target is None:
            return None
        self.warns = True
        variables = target.f_globals
        function = functools.partial(
            warnings.warn_explicit,
            category=UserWarning if category is None else category,
            filename=target.f_code.co_filename,
            lineno=target.f_lineno,
            module=variables.get("__name__", "<string>"),
            registry=variables.setdefault("__warningregistry__", {}),
        )
        return DeferredCall(function, (message,), (), f"warn: {message}")

    def _target(self, frame: FrameType, level: int) -> FrameType | None:
        """The frame that a warning points to; None if it is outside of the program."""
        found: FrameType | None = frame
        while level > 1 and found is not None and found.f_code is not self._end:
            found = found.f_back
            while found is not None and "importlib" in found.f_code.co_filename:
                found = found.f_back
            level -= 1
        return None if found is None or found.f_code is self._end else found


def _log(logger: logging.Logger, level: int, place: Any, message: Any, *args: Any) -> None:
    """Log a message as from ``place``: a file, a line and a function."""
    file, line, function = place
    record = logger.makeRecord(
        logger.name, level, file, line, message, args, None, function, None, None
    )
    logger.handle(record)


def warnings_are_raised() -> bool:
    """Whether a warning may be raised as an exception, which the program may catch."""
    return any(own[0] == "error" for own in warnings.filters)


__all__ = ["Deferred", "DeferredCall", "warnings_are_raised"]
