"""Plans as files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from corsac.distributed._errors import PipelineError


def write_content(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write values of JSON to a file, which is there complete or not at all."""
    partial = f"{os.fspath(path)}.partial"
    with open(partial, "w") as file:
        json.dump(content, file, indent=1)
    os.replace(partial, path)


def read_content(path: str | os.PathLike[str]) -> Any:
    """The values of a JSON file.

    Raises:
        PipelineError: it is none.
    """
    try:
        with open(path) as file:
            return json.load(file)
    except ValueError as error:
        raise PipelineError(
            f"{os.fspath(path)} is no plan of a pipeline: {type(error).__name__}: {error}"
        ) from error


__all__ = ["read_content", "write_content"]
