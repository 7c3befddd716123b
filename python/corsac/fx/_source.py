"""Places in the user's program where nodes were made."""

from __future__ import annotations

import re
from typing import NamedTuple

_ENTRY = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
# Folders of installed packages, which are of no interest to readers.
_INSTALLED = re.compile(r"^.*[/\\](?:site|dist)-packages[/\\]")


def place_in(trace: str) -> str | None:
    """The last place in a stack trace or in the text of a :class:`NodeSource`, such as
    ``torchvision/models/resnet.py:268``; None if there is none."""
    entries = list(_ENTRY.finditer(trace))
    if not entries:
        return None
    return f"{_INSTALLED.sub('', entries[-1]['file'])}:{entries[-1]['line']}"


class NodeSource(NamedTuple):
    """A place in the program that was traced."""

    file: str
    line: int
    function: str
    #: The qualified name of the module whose call made the node; empty for the root.
    module: str

    def __str__(self) -> str:
        text = f'File "{self.file}", line {self.line}, in {self.function}'
        return f"{text} (module {self.module})" if self.module else text
