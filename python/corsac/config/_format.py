"""Notations of configurations."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, TypeAlias, get_args

Format: TypeAlias = Literal["graph", "toml", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)


def format_of(file: str | os.PathLike[str], given: str | None) -> str:
    """The notation of ``file``: the one ``given``, or that of its suffix.

    Raises:
        ValueError: neither is a notation.
    """
    name = Path(file).suffix[1:] if given is None else given
    if name not in FORMATS:
        raise ValueError(
            f"{os.fspath(file)}: expected a file *.graph, *.toml or *.json, or the format as one of "
            f"{', '.join(map(repr, FORMATS))}"
        )
    return name
