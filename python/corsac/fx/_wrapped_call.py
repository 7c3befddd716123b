"""Calls graph modules, and reports the line of generated code in which a call failed."""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch

from ._generated_source import is_generated


class _WrappedCall:
    """Calls a graph module; an exception raised by a generated line is shown with that line.

    ``cls`` is the per-instance class of the module. ``cls_call`` replaces the inherited ``__call__`` if it is
    not ``None``.
    """

    def __init__(self, cls: type, cls_call: Callable[..., Any] | None) -> None:
        self.cls = cls
        self.cls_call = cls_call

    @staticmethod
    def _generate_error_message(frame_summary: traceback.FrameSummary) -> str:
        """The current exception, and the generated lines around ``frame_summary``."""
        line_number = frame_summary.lineno
        line = frame_summary.line
        if line_number is None or line is None:
            raise AssertionError(f"no source line is known for {frame_summary.filename}")
        lines = linecache.getlines(frame_summary.filename)
        report = torch._dynamo.disable(
            traceback.format_exc, reason="formatting an exception is not part of the program"
        )()
        headline = (
            f"Call using an FX-traced Module, line {line_number} of the traced Module's "
            "generated forward function:"
        )
        before = "".join(lines[line_number - 2 : line_number])
        marker = "~" * len(line) + "~~~ <--- HERE"
        after = "\n".join(lines[line_number : line_number + 2])
        return "\n".join([report, headline, before, marker, after])

    def __call__(self, obj: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if self.cls_call is not None:
                return self.cls_call(obj, *args, **kwargs)
            return super(self.cls, obj).__call__(*args, **kwargs)  # type: ignore[misc]
        except Exception as error:
            frames = traceback.StackSummary.extract(
                traceback.walk_tb(error.__traceback__), lookup_lines=False
            )
            if not frames or not is_generated(frames[-1].filename):
                raise
            message = _WrappedCall._generate_error_message(frames[-1])
            origin = _user_source(obj, frames[-1].lineno)
            if origin is not None:
                message = f"{message}\n\nThis line was traced from:\n{origin}"
            print(message, file=sys.stderr)
            raise error.with_traceback(None)  # noqa: B904


def _node_of_line(module: Any, line_number: int | None) -> Any | None:
    """The node whose statement is in line ``line_number`` of the generated code."""
    line_map = module._lineno_map
    if line_map is None or line_number is None:
        return None
    index = line_map.get(line_number - module._prologue_start)
    if index is None:
        return None
    for position, node in enumerate(module.graph.nodes):
        if position == index:
            # The graph may have been edited since the code was generated.
            lines = module.code.split("\n")
            in_line = line_number <= len(lines) and node.name in lines[line_number - 1]
            return node if in_line or node.op == "output" else None
    return None


def _user_source(module: Any, line_number: int | None) -> str | None:
    """The place in the user's program that made the failing node, if tracing recorded it."""
    node = _node_of_line(module, line_number)
    if node is None:
        return None
    source = getattr(node, "source", None)
    if source is not None and getattr(source, "file", None):
        place = f'  File "{source.file}", line {source.line}, in {source.function}'
        text = linecache.getline(source.file, source.line).strip()
        return f"{place}\n    {text}" if text else place
    stack_trace = node.stack_trace
    return stack_trace.rstrip("\n") if stack_trace else None
