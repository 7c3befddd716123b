"""Source lines of programs, for messages."""

from __future__ import annotations

import os
import sys
from types import FrameType

import torch

from corsac import _core

#: Folders of the code of PyTorch and corsac.
PACKAGES = tuple(os.path.dirname(package) + os.sep for package in (torch.__file__, _core.__file__))

#: A file and a line.
Line = tuple[str, int]


def line_of_program() -> Line | None:
    """The line of the innermost calling frame that is neither PyTorch's nor corsac's."""
    frame = calling_frame(PACKAGES)
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def calling_frame(packages: tuple[str, ...] = PACKAGES[1:]) -> FrameType | None:
    """The innermost calling frame that is not of these packages, by default of corsac."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(packages):
        frame = frame.f_back
    return frame


def short_line(line: Line | None) -> str:
    """The line as ``file.py:12``; for installed packages with the path from ``site-packages``."""
    if line is None:
        return ""
    file, number = line
    _, is_in_package, inner = file.rpartition(f"site-packages{os.sep}")
    return f"{inner if is_in_package else os.path.basename(file)}:{number}"


def in_brackets(line: Line | None) -> str:
    """The line as `` (file.py:12)``; empty for None."""
    return "" if line is None else f" ({short_line(line)})"
