"""Lines of programs, for messages."""

from __future__ import annotations

import os
import sys

import torch

#: Where the code of PyTorch and of corsac is.
PACKAGES = tuple(os.path.dirname(package) + os.sep for package in (torch.__file__, __file__))

#: A file and a line.
Line = tuple[str, int]


def line_of_program() -> Line | None:
    """The line being executed of the code around this call that is neither PyTorch's nor corsac's."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(PACKAGES):
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def short_line(line: Line | None) -> str:
    """``file.py:12``; of packages, with the folders in them."""
    if line is None:
        return ""
    file, number = line
    _, is_in_package, inner = file.rpartition(f"site-packages{os.sep}")
    return f"{inner if is_in_package else os.path.basename(file)}:{number}"


def in_brackets(line: Line | None) -> str:
    """`` (file.py:12)``, or nothing."""
    return "" if line is None else f" ({short_line(line)})"
