"""Where in the user's program a node was made."""

from __future__ import annotations

from typing import NamedTuple


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
