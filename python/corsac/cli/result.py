"""Writing the optimized model."""

from __future__ import annotations

import warnings
from pathlib import Path

from corsac import fx
from corsac.cli.failure import Failure, first_line

#: The file that marks a folder as written by this program.
GRAPH = "graph.txt"


def check_folder(folder: Path) -> None:
    """That ``folder`` can be written without losing something."""
    if folder.exists() and not folder.is_dir():
        raise Failure(f"--out {folder}: there is a file of that name")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / GRAPH).exists():
        raise Failure(f"--out {folder}: the folder holds something else; name an empty or new one")


def write(module: fx.GraphModule, folder: Path, class_name: str) -> None:
    """Write ``module`` as an importable package with its weights, and its graph as text."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            # That parts are pickled: said in the report.
            warnings.simplefilter("ignore")
            module.to_folder(folder.resolve(), class_name)
        (folder / GRAPH).write_text(f"{module.graph}\n")
    except OSError as error:
        raise Failure(f"--out {folder} cannot be written: {first_line(error)}") from error
