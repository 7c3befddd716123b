"""What programs print, log and warn of: each call does so once more, after everything else.

Nobody can tell that it comes last, as long as what is printed does not change meanwhile: constants, numbers, and
tensors that the program does not write to afterwards.
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

from corsac._aten import has_attributes, place_of

#: What may be printed besides tensors, and tuples of both.
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
#: What may be printed to, if the program does not open it.
_FILES = (io.TextIOWrapper, io.StringIO)
#: Logs a message, whatever has been called for that.
_LOG = logging.Logger._log
#: How many frames may lie between what prints and the tensor that it prints.
_DEEPEST = 40


@dataclass(frozen=True, slots=True)
class DeferredCall:
    """A call that is made after everything else.

    Attributes:
        function: is called.
        args: its arguments.
        names: the names of the last of them.
        line: for people.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    names: tuple[str, ...]
    line: str

    def __call__(self, values: list[Any]) -> None:
        """Calls it with these values in the place of the arguments."""
        first = len(values) - len(self.names)
        self.function(*values[:first], **dict(zip(self.names, values[first:], strict=True)))


class Deferred:
    """The calls of a program that is being recorded which print, log or warn.

    Args:
        end: the code that calls the program: who is warned of what is outside is another one in each call.
    """

    #: The code of functions that print, in which nothing is looked at.
    CODES = (_LOG.__code__,)

    def __init__(self, end: CodeType) -> None:
        self._end = end
        self.calls: list[DeferredCall] = []
        #: Where tensors lie that were printed.
        self.places: set[int] = set()
        #: Whether the program warns.
        self.warns = False
        self._out, self._filters = sys.stdout, list(warnings.filters)
        self._show = warnings.showwarning
        #: The frame that has printed last, and the instruction in it.
        self._frame: FrameType | None = None
        self._at = 0

    def note(
        self, function: Callable[..., Any] | None, arguments: tuple[Any, ...], names: Any
    ) -> str | None:
        """A function that prints is called; without one, the frame that is entered prints.

        Args:
            function: it.
            arguments: all of its arguments.
            names: the names of the last ones; None if they are not known.

        Returns:
            Why that cannot be made up for later; None if it can.
        """
        # Of the program, below the recorder.
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
            self._note_places(own)
        self._frame, self._at = frame, frame.f_lasti
        return None

    def is_printing(self) -> bool:
        """Whether who has called this is called by what prints just now."""
        frame: FrameType | None = sys._getframe(2)
        for _ in range(_DEEPEST):
            if frame is None or frame is self._frame:
                break
            frame = frame.f_back
        if frame is None or frame is not self._frame:
            return False
        return frame.f_lasti == self._at or frame.f_code in self.CODES

    def end(self) -> None:
        """The program is over."""
        self._frame = None

    def files(self) -> list[Any]:
        """The files that it prints to."""
        values = [
            own
            for call in self.calls
            for own in (*call.args, getattr(call.function, "__self__", None))
        ]
        return [own for own in values if isinstance(own, _FILES)]

    def _is_later(self, own: Any) -> bool:
        """Whether it is the same later."""
        if isinstance(own, torch.Tensor):
            return (
                type(own) in (torch.Tensor, torch.nn.Parameter)
                and own.layout is torch.strided
                and not has_attributes(own)
            )
        if type(own) is tuple or type(own) is torch.Size:
            return all(map(self._is_later, own))
        return type(own) in _VALUES or isinstance(own, _FILES)

    def _note_places(self, own: Any) -> None:
        if isinstance(own, torch.Tensor):
            self.places.add(place_of(own))
        elif type(own) is tuple:
            for part in own:
                self._note_places(part)

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
        """The frame that a warning is for; None if that is outside of the program."""
        found: FrameType | None = frame
        while level > 1 and found is not None and found.f_code is not self._end:
            found = found.f_back
            while found is not None and "importlib" in found.f_code.co_filename:
                found = found.f_back
            level -= 1
        return None if found is None or found.f_code is self._end else found


def _log(logger: logging.Logger, level: int, place: Any, message: Any, *args: Any) -> None:
    """Logs what was logged at a place: a file, a line and a function."""
    file, line, function = place
    record = logger.makeRecord(
        logger.name, level, file, line, message, args, None, function, None, None
    )
    logger.handle(record)


def warnings_are_raised() -> bool:
    """Whether a warning may be an exception, which the program may catch."""
    return any(own[0] == "error" for own in warnings.filters)


__all__ = ["Deferred", "DeferredCall", "warnings_are_raised"]
